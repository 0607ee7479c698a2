"""Errors in context graphs, raised when they are declared, compiled or evaluated."""

from __future__ import annotations

from livegrad.diagnostics import LivegradError


class ContextError(LivegradError):
    """A node uses its context in an undeclared way, or the contexts of a graph are inconsistent.

    >>> import livegrad as lg
    >>> graph = lg.ContextGraph()
    >>> _ = graph.node("clock", lambda ctx: ctx.real_time, extract="real_time")
    >>> try:
    ...     graph.compile("clock", root=[])
    ... except ContextError as error:
    ...     "real_time" in error.what
    True
    """

    code = "context"
