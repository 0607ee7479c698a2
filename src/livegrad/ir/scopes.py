"""Which nodes belong to a branch: those that it makes as it is traced, and not those that were there before.

An author's branch may take values from around it and have no arguments at all, so operands do not tell what is the
branch's own work. Nor does the time when a node was made: nodes are interned, and another branch may hold an equal one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from livegrad.ir.origins import ambient

if TYPE_CHECKING:
    from livegrad.ir.node import Node


class Scope:
    """One branch: the nodes that it uses."""

    __slots__ = ("around", "made", "used")

    def __init__(self, around: Scope | None, made: set[Node]) -> None:
        self.around = around
        self.made = made  # in this branch and all others since the outermost choice began
        self.used: set[Node] = set()  # by this branch itself: made, or found equal

    def enter(self, node: Node, is_new: bool) -> None:
        """Notes that the branch asked for a node."""
        self.used.add(node)
        if is_new:
            self.made.add(node)


class Choice:
    """Branches that are traced one after the other, of which one will run.

    >>> import livegrad as lg
    >>> x = lg.asarray(1.0)
    >>> before, choice = lg.sin(x), Choice()
    >>> with choice.branch():
    ...     inside = lg.cos(x)
    >>> choice.was_there(before.node), choice.was_there(inside.node)
    (True, False)
    """

    def __init__(self) -> None:
        self._around: Scope | None = ambient.scope
        self._made: set[Node] = set() if self._around is None else self._around.made

    @contextmanager
    def branch(self) -> Iterator[None]:
        """What is traced inside is one of the branches."""
        ambient.scope = Scope(self._around, self._made)
        try:
            yield
        finally:
            ambient.scope = self._around

    def was_there(self, node: Node) -> bool:
        """Whether a value can be passed to the branches, because it is no work of theirs."""
        if node not in self._made or not node.operands:
            return True
        scope = self._around
        while scope is not None:
            if node in scope.used:
                return True
            scope = scope.around
        return False
