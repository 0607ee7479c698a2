"""Records the nodes of a branch or loop body: those requested while it is traced.

Operands do not determine membership, because a branch may capture outer values and have no arguments. Nor does the
creation time: nodes are interned, and an equal node may already exist.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from livegrad.ir.source_lines import ambient

if TYPE_CHECKING:
    from livegrad.ir.node import Node


class Scope:
    """The branches of a conditional or the body of a loop: code that may not run.

    >>> import livegrad as lg
    >>> x = lg.asarray(1.0)
    >>> before, scope = lg.sin(x), Scope()
    >>> with scope.entered():
    ...     inside = lg.cos(x)
    >>> scope.can_be_passed(before.node), scope.can_be_passed(inside.node)
    (True, False)
    """

    def __init__(self) -> None:
        self._nodes: set[Node] = set()

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Nodes traced inside belong to the scope and to the enclosing scopes."""
        outer_nodes, is_unset = ambient.scope_nodes, ambient.is_unset
        ambient.scope_nodes, ambient.is_unset = self._nodes, False
        try:
            yield
        finally:
            ambient.scope_nodes, ambient.is_unset = outer_nodes, is_unset
            if outer_nodes is not None:
                outer_nodes |= self._nodes

    def can_be_passed(self, node: Node) -> bool:
        """Whether a value is defined outside the scope, so that the scope can capture it."""
        return node not in self._nodes or not node.operands
