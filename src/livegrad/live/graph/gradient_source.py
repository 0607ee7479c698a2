"""Types that `lg.grad` accepts in a live graph: blocks, pins and engines."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from livegrad.live.blocks.graph_gradient import GradientBlock
    from livegrad.live.blocks.rollout import FrameGradient


class GradientSource:
    """A value from which `lg.grad` creates gradient blocks, if it receives pins."""

    __slots__ = ()

    def gradient_block(self, *, of: Any, by: Any, name: str) -> GradientBlock:
        # Imported on demand: most graphs have no gradients, and a gradient block is itself a `Block`.
        make = import_module("livegrad.live.blocks.graph_gradient").gradient_block
        return make(None if self is of else self, of=of, by=by, name=name)

    def frame_gradient(self, *, of: Any, by: Any, frames: int) -> FrameGradient:
        make = import_module("livegrad.live.blocks.rollout").frame_gradient
        return make(self, of=of, by=by, frames=frames)
