"""Library calls in a live graph: opaque to everything except the executor, which captures or repeats them.

Created by `live.blocks.captured_block` from Python functions; plans hold them in a `CapturedStep`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from livegrad.ir.types import Tensor, Type


@dataclass(frozen=True)
class CapturedCall:
    """A Python function that calls a library, and its parameter and result types.

    It is called as `call(stream, *inputs, *outputs)` and writes the outputs. On CUDA it runs once, while `stream` is
    captured, and every frame replays the capture; on the CPU `stream` is None, and the call is repeated. Buffers are
    views of the engine's memory, which does not move between captures. Numbers are part of the capture unless they are
    `in_memory`: then they are buffers of one element.
    """

    name: str
    call: Callable[..., None]
    parameter_types: tuple[Type, ...]
    result_types: tuple[Tensor, ...]
    in_memory: tuple[bool, ...]  # for each parameter
