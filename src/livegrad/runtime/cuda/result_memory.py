"""Memory for the results of a plan, which the plan uses again when no array refers to it any more.

A loop that passes results on as arguments then alternates between two sets of addresses, so that the graphs of the plan
need no updates (`plan_graph.py`).
"""

from __future__ import annotations

import weakref

from livegrad.runtime.cuda.device_memory import DeviceMemory, make_room, memory_pool
from livegrad.runtime.cuda.driver import PerContext, check, driver

_MAX_KEPT_BYTES = 1 << 32  # of all plans together
_MAX_KEPT_BLOCKS = 2  # of one result


class _Kept:
    """What all plans of a context keep."""

    def __init__(self) -> None:
        self.bytes = 0
        self.results: weakref.WeakSet[ResultMemory] = weakref.WeakSet()


_kept = PerContext(_Kept)


class LeasedMemory(DeviceMemory):
    """Memory of one result. It goes back to the plan when no array refers to it."""

    def __init__(self, block: DeviceMemory, owner: ResultMemory) -> None:
        self.size, self.address = block.size, block.address
        self._block = block
        self._owner: ResultMemory | None = owner

    def lend(self) -> None:
        """Marks the memory as shared with another library: it is freed after all streams, and not used again."""
        self._owner = None
        self._block.lend()

    def __del__(self) -> None:
        if self._owner is not None:
            self._owner.take_back(self._block)


class ResultMemory:
    """The memory of one result of a plan."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._blocks: list[DeviceMemory] = []
        self._kept = _kept.current
        self._kept.results.add(self)

    def lease(self) -> LeasedMemory:
        """Memory for the next run, of which no array has a part."""
        try:
            block = self._blocks.pop()
        except IndexError:
            return LeasedMemory(DeviceMemory(self.size), self)
        self._kept.bytes -= block.size
        return LeasedMemory(block, self)

    def take_back(self, block: DeviceMemory) -> None:
        """Keeps a block for a later run, or frees it if enough are kept."""
        if len(self._blocks) < _MAX_KEPT_BLOCKS and self._kept.bytes + block.size <= _MAX_KEPT_BYTES:
            self._kept.bytes += block.size
            self._blocks.append(block)

    def free(self) -> bool:
        """Frees the blocks that are kept; returns whether there were any."""
        blocks, self._blocks = self._blocks, []
        self._kept.bytes -= sum(block.size for block in blocks)
        return bool(blocks)

    def __del__(self) -> None:
        self._kept.bytes -= sum(block.size for block in self._blocks)


def free_results() -> bool:
    """Frees all memory that plans keep for results; returns whether there was any."""
    freed = [result.free() for result in list(_kept.current.results)]
    return any(freed)


def memory_in_use() -> tuple[int, int]:
    """The bytes that arrays and plans use, and the bytes that the process has reserved for them."""
    attributes = driver.CUmemPool_attribute
    names = (attributes.CU_MEMPOOL_ATTR_USED_MEM_CURRENT, attributes.CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)
    used, reserved = [int(check(driver.cuMemPoolGetAttribute(memory_pool.current, name))) for name in names]
    return used - _kept.current.bytes, reserved


make_room.append(free_results)
