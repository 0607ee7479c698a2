"""A memory pool for results and plans, which reuses freed blocks.

Page faults on fresh memory often cost more than the computation.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np

from livegrad.ir.dimension import round_up
from livegrad.ir.types import Scalar, u8
from livegrad.state import Owned, renew_lock_after_fork

_SMALL = 1 << 18  # bytes; the C library's allocator reuses smaller blocks itself
_MAX_BYTES = 1 << 30
_MAX_PLAN_BYTES = 1 << 28
_ALIGNMENT = 64


def aligned_memory(size: int) -> np.ndarray[Any, Any]:
    """Uninitialised bytes, aligned to a cache line."""
    raw = np.empty(size + _ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % _ALIGNMENT
    return raw[start : start + size]


class _Memory(NamedTuple):
    """Bytes, and their address: asking NumPy for it takes microseconds."""

    bytes: np.ndarray[Any, Any]
    address: int


@lru_cache(maxsize=64)
def _type_name(element: Scalar) -> str:
    return element.dtype.str


def _allocate(size: int) -> _Memory:
    memory = aligned_memory(size)
    return _Memory(memory, memory.ctypes.data)


class _Block:
    """Memory of an array, which returns to the pool when the array and all its views are freed."""

    __slots__ = ("__array_interface__", "_memory", "_pool")

    def __init__(self, pool: MemoryPool, memory: _Memory, type_name: str, shape: tuple[int, ...]):
        self._pool, self._memory = pool, memory
        self.__array_interface__ = {"data": (memory.address, False), "typestr": type_name, "shape": shape, "version": 3}

    def __del__(self) -> None:
        self._pool.release(self._memory)


class MemoryPool:
    """Free blocks by size, bounded in bytes. The least recently used size is evicted first."""

    def __init__(self, max_bytes: int = _MAX_BYTES) -> None:
        self._free: OrderedDict[int, list[_Memory]] = OrderedDict()
        self._free_bytes = 0
        self._max_bytes = max_bytes
        # Re-entrant, because a garbage collection inside the pool may free an array of the pool.
        self._lock = threading.RLock()
        renew_lock_after_fork(self, "_lock", threading.RLock)

    def array(self, element: Scalar, shape: tuple[int, ...], size: int) -> np.ndarray[Any, Any]:
        """An uninitialised array of `size` bytes."""
        rounded = round_up(size, 4096)
        with self._lock:
            blocks = self._free.get(rounded)
            memory = blocks.pop() if blocks else None
            if memory is not None:
                self._free_bytes -= rounded
        return np.asarray(_Block(self, memory or _allocate(rounded), _type_name(element), shape))

    def release(self, memory: _Memory) -> None:
        """Returns a block to the pool."""
        size = memory.bytes.nbytes
        with self._lock:
            if size > self._max_bytes:
                return
            while self._free and self._free_bytes + size > self._max_bytes:
                oldest, blocks = self._free.popitem(last=False)
                self._free_bytes -= oldest * len(blocks)
            self._free.setdefault(size, []).append(memory)
            self._free.move_to_end(size)
            self._free_bytes += size

    @property
    def free_bytes(self) -> int:
        return self._free_bytes


memory_of_results = Owned(MemoryPool)
_memory_of_plans = Owned(partial(MemoryPool, _MAX_PLAN_BYTES))


def plan_memory(size: int) -> np.ndarray[Any, Any]:
    """Memory for a plan, aligned to a cache line. Large blocks come from a pool that plans share."""
    return aligned_memory(size) if size < _SMALL else _memory_of_plans.current.array(u8, (size,), size)


def comes_from_pool(size: int) -> bool:
    """Whether a result of this many bytes comes from the pool."""
    return size >= _SMALL


def result_maker(element: Scalar, shape: tuple[int, ...], size: int) -> Callable[[], np.ndarray[Any, Any]]:
    """A function that allocates a result; small results do not use the pool."""
    if not comes_from_pool(size):
        return partial(np.empty, shape, element.dtype)
    return partial(memory_of_results.current.array, element, shape, size)
