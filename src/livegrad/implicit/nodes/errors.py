"""Errors of node graphs: the exception of an invalid edit, a warning about parts, and problems as values for tools."""

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
    """A mesh or slice is empty or incomplete: the part has no body, or walls thinner than the requested feature size.

    >>> issubclass(PartWarning, UserWarning)
    True
    """


@dataclass(frozen=True)
class Problem:
    """A problem of an assembly: a location and a message.

    >>> str(Problem("sphere", "Length_1", "input `A` is not connected"))
    'function `sphere`, node `Length_1`: input `A` is not connected'
    """

    function: str
    node: str | None
    message: str
    unfinished: bool = False  # incomplete but not contradictory: an error only if an output needs it

    def __str__(self) -> str:
        location = f"function `{self.function}`" + ("" if self.node is None else f", node `{self.node}`")
        return f"{location}: {self.message}"
