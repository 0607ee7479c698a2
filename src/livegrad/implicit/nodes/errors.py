"""Errors of node graphs: the exception that an edit raises, and problems as values for tools."""

from __future__ import annotations

from dataclasses import dataclass

from livegrad.diagnostics import LivegradError


class AssemblyError(LivegradError):
    """An invalid edit of a node graph, or a graph that cannot run.

    >>> import livegrad as lg
    >>> try:
    ...     lg.Assembly().function("ball")
    ... except AssemblyError as error:
    ...     error.what
    'no function `ball`'
    """

    code = "assembly"


class PartWarning(UserWarning):
    """A mesh or slice lacks something: the part has no body, or walls thinner than the requested feature size.

    >>> issubclass(PartWarning, UserWarning)
    True
    """


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong in an assembly: where, and what.

    >>> str(Problem("sphere", "Length_1", "input `A` is not connected"))
    'function `sphere`, node `Length_1`: input `A` is not connected'
    """

    function: str
    node: str | None
    message: str
    unfinished: bool = False  # something is left open, but nothing contradicts: in the way only where it is used

    def __str__(self) -> str:
        place = f"function `{self.function}`" + ("" if self.node is None else f", node `{self.node}`")
        return f"{place}: {self.message}"
