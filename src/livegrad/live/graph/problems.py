"""Problems of a live graph, each with its block and pin. The graph compiler finds them, the engine reports them."""

from __future__ import annotations

import os
from dataclasses import dataclass

from livegrad.diagnostics import LivegradError, Origin
from livegrad.diagnostics.errors import PACKAGE_DIRECTORY
from livegrad.live.compile.network import NetworkNode
from livegrad.live.graph.block import Block


class GraphError(LivegradError):
    """A live graph that cannot run as described."""

    code = "graph"


class PinError(GraphError):
    """An input whose source has the wrong type."""

    def __init__(self, pin: str, expected: str, found: str) -> None:
        self.pin = pin
        super().__init__(f"input `{pin}` does not fit", expected=expected, found=found)


_LIBRARIES = f"{os.sep}site-packages{os.sep}"


def origin_of_exception(error: BaseException) -> Origin | None:
    """The user's line that raised an exception: the innermost one outside of livegrad and libraries."""
    origin = None
    traceback = error.__traceback__
    while traceback is not None:
        file = traceback.tb_frame.f_code.co_filename
        if not file.startswith((PACKAGE_DIRECTORY, "<frozen ")) and _LIBRARIES not in file:
            origin = Origin(traceback.tb_frame.f_code, traceback.tb_lasti)
        traceback = traceback.tb_next
    return origin


@dataclass(frozen=True)
class Problem:
    """An error of a block or of one of its pins (None: of the block as a whole)."""

    node: str
    block: Block
    pin: str | None
    error: LivegradError

    def __str__(self) -> str:
        return f"{self.node}{'' if self.pin is None else '.' + self.pin}: {self.error}"


def make_problem(node: NetworkNode, pin: str | None, error: LivegradError) -> Problem:
    """Makes the problem of a node or of one of its pins."""
    return Problem(node.key, node.block, pin, error)
