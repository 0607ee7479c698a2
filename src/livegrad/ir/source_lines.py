"""Source locations of nodes: the current line of the user, and the table of locations that passes propagate.

A node created by user code stores its lines. Nodes of closed functions are shared between functions, so their lines are
stored in the function (`Function.source_locations`); passes work inside `propagating_lines`, which collects them in a
table.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from livegrad.diagnostics import SourceLocation

if TYPE_CHECKING:
    from livegrad.ir.node import Function, Node

_MAX_ORIGINS = 8


class LocationTable(dict["Node", tuple[SourceLocation, ...]]):
    """Source locations of the nodes of the functions in work, and derivations made while lines are distinct."""

    __slots__ = ("derived", "functions")

    def __init__(self) -> None:
        super().__init__()
        self.functions: set[Function] = set()  # whose lines are in the table
        self.derived: dict[Any, Any] = {}


class _Ambient(threading.local):
    """Thread-local state that applies to nodes created and inspected by this thread."""

    origins: tuple[SourceLocation, ...] | None = None  # the locations of new nodes; None: the calling line
    table: LocationTable | None = None  # of the functions at work; None: nodes know their lines themselves
    every_line: bool = False  # whether authors' nodes of two lines are kept apart even if they cannot fail
    scope_nodes: set[Node] | None = None  # of the branch or loop body that is traced; None: of none
    plain: bool = True  # whether all of these are unset: one test for each new node

    def reset(self) -> None:
        """Resets the state after an interrupt, which may have hit the exit of one of the contexts below."""
        vars(self).clear()


ambient = _Ambient()


class originating_from:
    """Nodes created inside get these source locations instead of the calling line; `move_to` changes the locations."""

    __slots__ = ("_before", "_origins")

    def __init__(self, origins: tuple[SourceLocation, ...]) -> None:
        self._origins = origins

    def __enter__(self) -> originating_from:
        self._before = ambient.origins, ambient.plain
        ambient.origins, ambient.plain = self._origins, False
        return self

    def move_to(self, origins: tuple[SourceLocation, ...]) -> None:
        ambient.origins = origins

    def __exit__(self, *exception: object) -> None:
        ambient.origins, ambient.plain = self._before


class created_at:
    """Nodes created inside get these lines, as if they had been created earlier and outside of all contexts."""

    __slots__ = ("_before", "_origins")

    def __init__(self, origins: tuple[SourceLocation, ...]) -> None:
        self._origins = origins

    def __enter__(self) -> None:
        self._before = dict(vars(ambient))
        ambient.reset()
        ambient.origins, ambient.plain = self._origins, False

    def __exit__(self, *exception: object) -> None:
        ambient.reset()
        vars(ambient).update(self._before)


class telling_lines_apart:
    """Inside, equal expressions written on two lines are two nodes, so that errors can name the right line."""

    __slots__ = ("_before",)

    def __enter__(self) -> None:
        self._before = ambient.every_line, ambient.plain
        ambient.every_line, ambient.plain = True, False

    def __exit__(self, *exception: object) -> None:
        ambient.every_line, ambient.plain = self._before


def merge_locations(first: tuple[SourceLocation, ...], more: tuple[SourceLocation, ...]) -> tuple[SourceLocation, ...]:
    """The source locations of both without repetition, at most eight, those of `first` first."""
    if len(first) >= _MAX_ORIGINS:
        return first
    return (first + tuple(location for location in more if location not in first))[:_MAX_ORIGINS]


def add_origins(node: Node, origins: tuple[SourceLocation, ...], *, first: bool = False) -> None:
    """Adds source locations to a node, after those it has; a node that may fail keeps its single line.

    With `first` they come before: a line that was written last is still in somebody's hands.
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
