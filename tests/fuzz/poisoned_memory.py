"""Memory for plans and results that is full of NaNs: whatever reads what nothing has written gives another result.

Memory that a process gets anew is zero, which is what most programs expect of memory that they forgot to write."""

from __future__ import annotations

from typing import Any

import numpy as np

from livegrad.runtime.cpu import memory_pool
from livegrad.runtime.cpu.memory_pool import MemoryPool

POISON = 0xFF  # in every byte: NaN as a float, -1 as an integer


class _PoisonedNumpy:
    """NumPy, with arrays of `empty` that are poisoned."""

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)

    def empty(self, *arguments: Any, **named: Any) -> Any:
        return _poisoned(np.empty(*arguments, **named))


def _poisoned(array: Any) -> Any:
    array.reshape(-1).view(np.uint8)[...] = POISON
    return array


def poison_memory() -> None:
    """Poisons what the CPU backend allocates from now on, in this process."""
    memory_pool.np = _PoisonedNumpy()  # type: ignore[assignment]
    array = MemoryPool.array
    MemoryPool.array = lambda *arguments: _poisoned(array(*arguments))  # type: ignore[method-assign]
