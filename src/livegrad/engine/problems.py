"""What is wrong with a live graph, said of a block and a pin: the compiler finds it, the engine hands it out."""

from __future__ import annotations

from dataclasses import dataclass

from livegrad.diagnostics import LivegradError
from livegrad.engine.flatten import NetworkNode
from livegrad.engine.graph import Block


class GraphError(LivegradError):
    """A live graph that cannot run as it is described."""

    code = "graph"


class PinError(GraphError):
    """An input that is given something it cannot take."""

    def __init__(self, pin: str, expected: str, found: str) -> None:
        self.pin = pin
        super().__init__(f"input `{pin}` does not fit", expected=expected, found=found)


@dataclass(frozen=True)
class Problem:
    """What is wrong, with which block and which of its pins (None: the block as a whole)."""

    node: str
    block: Block
    pin: str | None
    error: LivegradError

    def __str__(self) -> str:
        return f"{self.node}{'' if self.pin is None else '.' + self.pin}: {self.error}"


def problem(node: NetworkNode, pin: str | None, error: LivegradError) -> Problem:
    """A problem with a pin of a node."""
    return Problem(node.key, node.block, pin, error)
