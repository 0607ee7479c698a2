"""Expected results of the engine suite: the last value of a chain of blocks after its first change, derived by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:  # peers load this module, and their environment has no livegrad
    from livegrad.live.engine import Engine

POINTS = 64
KINDS = (
    "engine_cpu_nothing", "engine_cpu_hot", "engine_cpu_hot_all", "engine_cpu_code", "engine_cpu_cold",
    "engine_cpu_cold_add",
    "engine_cuda_hot", "engine_cuda_hot_all", "engine_cuda_new_set", "engine_cuda_code", "engine_cuda_cold",
    "engine_cuda_loop",
)  # fmt: skip


def gain_of(frame: int) -> float:
    """Another number every frame."""
    return 1.25 + 0.25 * (frame % 1024)


def turning(engine: Engine, pin: Any) -> Callable[[int], None]:
    """A change: the number of a pin, another one every frame."""
    return lambda frame: engine.set(pin, gain_of(frame))


def target_of(run: int) -> float:
    """A different learning rate for every run; all of them lead to the same point."""
    return 0.25 + 0.0625 * (run % 4)


def expected(kind: str, blocks: int) -> np.ndarray:
    """The chain adds one in every block, so the result is the number of blocks plus the effect of the change."""
    value = {
        "engine_cpu_nothing": blocks,
        "engine_cpu_hot": (blocks - 1) * gain_of(0) + 1,
        "engine_cpu_hot_all": blocks,
        "engine_cpu_code": blocks + 1,
        "engine_cpu_cold": blocks + 1,
        "engine_cpu_cold_add": blocks + 1,
        "engine_cuda_hot": (blocks - 1) * gain_of(0) + 1,
        "engine_cuda_hot_all": blocks,
        "engine_cuda_new_set": blocks,
        "engine_cuda_code": blocks + 1,
        "engine_cuda_cold": blocks,
        "engine_cuda_loop": 3,
    }[kind]
    return np.full(POINTS, value, np.float64)
