"""What can be wrong with a context graph: raised when it is declared, compiled or evaluated."""

from __future__ import annotations

from livegrad.diagnostics import LivegradError


class ContextError(LivegradError):
    """A node that does with its context what it did not declare, or a graph whose contexts do not fit together."""

    code = "context"
