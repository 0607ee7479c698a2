"""Thread-local state that gives nodes their source locations: the user's current line, or a table during passes.

A node created by user code stores its lines. Nodes of closed functions are shared between functions, so each function
stores the lines of its nodes (`Function.source_locations`); `propagating_lines` collects them in a table for a pass.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from livegrad.diagnostics import SourceLocation

if TYPE_CHECKING:
    from livegrad.ir.node import Function, Node

_MAX_ORIGINS = 8


class LocationTable(dict["Node", tuple[SourceLocation, ...]]):
    """The source locations of the nodes of the functions that a pass works on, and its cache of derived functions."""

    __slots__ = ("derived", "functions")

    def __init__(self) -> None:
        super().__init__()
        self.functions: set[Function] = set()  # the functions whose lines are in the table
        self.derived: dict[Any, Any] = {}  # see `cached_derivation`


class _Ambient(threading.local):
    """Thread-local state that applies to nodes created and inspected by this thread."""

    origins: tuple[SourceLocation, ...] | None = None  # the locations of new nodes; None: the caller's line
    table: LocationTable | None = None  # the lines in the current pass; None: nodes store their own lines
    every_line: bool = False  # whether user code on two lines creates two nodes even if they cannot fail
    scope_nodes: set[Node] | None = None  # the nodes of the branch or loop body being traced
    is_unset: bool = True  # whether all of these are unset, so that `make_node` tests one attribute

    def reset(self) -> None:
        """Resets the state after an interrupt, which may have skipped the exit of one of the contexts below."""
        vars(self).clear()


ambient = _Ambient()


class originating_from:
    """Nodes created inside get these source locations instead of the caller's line; `move_to` changes the locations."""

    __slots__ = ("_before", "_origins")

    def __init__(self, origins: tuple[SourceLocation, ...]) -> None:
        self._origins = origins

    def __enter__(self) -> originating_from:
        self._before = ambient.origins, ambient.is_unset
        ambient.origins, ambient.is_unset = self._origins, False
        return self

    def move_to(self, origins: tuple[SourceLocation, ...]) -> None:
        ambient.origins = origins

    def __exit__(self, *exception: object) -> None:
        ambient.origins, ambient.is_unset = self._before


class created_at:
    """Nodes created inside get these lines, as if they had been created earlier and outside all contexts."""

    __slots__ = ("_before", "_origins")

    def __init__(self, origins: tuple[SourceLocation, ...]) -> None:
        self._origins = origins

    def __enter__(self) -> None:
        self._before = dict(vars(ambient))
        ambient.reset()
        ambient.origins, ambient.is_unset = self._origins, False

    def __exit__(self, *exception: object) -> None:
        ambient.reset()
        vars(ambient).update(self._before)


class distinguish_lines:
    """Inside, equal expressions written on two lines are two nodes, so that errors can name the right line."""

    __slots__ = ("_before",)

    def __enter__(self) -> None:
        self._before = ambient.every_line, ambient.is_unset
        ambient.every_line, ambient.is_unset = True, False

    def __exit__(self, *exception: object) -> None:
        ambient.every_line, ambient.is_unset = self._before


def merge_locations(first: tuple[SourceLocation, ...], more: tuple[SourceLocation, ...]) -> tuple[SourceLocation, ...]:
    """Concatenates source locations without duplicates, up to a limit."""
    if len(first) >= _MAX_ORIGINS:
        return first
    return (first + tuple(location for location in more if location not in first))[:_MAX_ORIGINS]


def add_origins(node: Node, origins: tuple[SourceLocation, ...], *, first: bool = False) -> None:
    """Adds source locations to a node, after its existing ones; a node that may fail keeps its single line.

    With `first` they go before the existing ones: the newest line is the one that the user is working with.
    """
    table = ambient.table
    if not origins or node.located:
        return
    if table is None:
        present = node.local_origins
        if first and not node.operands:
            node.local_origins = origins  # a constant is shared by all lines
        elif present is not origins:
            node.local_origins = merge_locations(origins, present) if first else merge_locations(present, origins)
        return
    present = table.get(node)
    if present is None:
        table[node] = origins
    elif present is not origins:
        table[node] = merge_locations(present, origins)
