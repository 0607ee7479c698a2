"""The buffers of a live plan on the device: by name, each with an address and a generation.

A user of an address must look it up again when the generation has changed; launches with stale addresses never start.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from livegrad.live.compile.live_plan import BufferSpec, LivePlan
from livegrad.live.graph.sources import ForeignArray, Numbers
from livegrad.runtime.cuda.device_memory import DeviceMemory
from livegrad.runtime.cuda.driver import check, device, driver

_ALIGNMENT = 256
_LARGE = 1 << 16  # bytes from which a buffer has an allocation of its own


@dataclass(eq=False)
class HeldBuffer:
    """A buffer in memory. `memory` keeps it alive: an allocation, possibly shared, or an external array."""

    address: int
    bytes: int
    memory: Any


class Buffers:
    """The buffers of a plan, by key."""

    def __init__(self) -> None:
        self.held: dict[str, HeldBuffer] = {}
        self.generation = 0  # counts changes of addresses

    def address(self, key: str) -> int:
        """The address of a buffer."""
        return self.held[key].address

    def replace_memory(self, fresh: Mapping[str, HeldBuffer]) -> None:
        """Replaces memory. The stream order frees the old memory after the work that uses it."""
        if fresh:
            self.held.update(fresh)
            self.generation += 1

    def drop(self, keys: Iterable[str]) -> None:
        """Drops buffers that a plan no longer has."""
        for key in keys:
            self.held.pop(key, None)


def make_buffers(specs: Iterable[BufferSpec], plan: LivePlan) -> dict[str, HeldBuffer]:
    """New allocate_zeroed memory for these buffers. External device arrays are used in place."""
    buffers: dict[str, HeldBuffer] = {}
    small: list[BufferSpec] = []
    for spec in specs:
        external = plan.bindings.get(spec.key)
        if external is not None and isinstance(external.array, ForeignArray):
            buffers[spec.key] = HeldBuffer(external.array.address, spec.bytes, external.array)
        elif spec.bytes >= _LARGE:
            memory = allocate_zeroed(spec.bytes)
            buffers[spec.key] = HeldBuffer(memory.address, spec.bytes, memory)
        else:
            small.append(spec)
    if small:
        sizes = [-(-max(spec.bytes, 1) // _ALIGNMENT) * _ALIGNMENT for spec in small]
        memory = allocate_zeroed(sum(sizes))
        address = memory.address
        for spec, size in zip(small, sizes, strict=True):
            buffers[spec.key] = HeldBuffer(address, spec.bytes, memory)
            address += size
    return buffers


def make_shared(plan: LivePlan) -> dict[str, HeldBuffer]:
    """Memory for the buffers that share slots."""
    slots = [allocate_zeroed(size) for size in plan.slots]
    return {
        key: HeldBuffer(slots[slot].address, plan.buffers[key].bytes, slots[slot]) for key, slot in plan.slot_of.items()
    }


def allocate_zeroed(size: int) -> DeviceMemory:
    """New allocate_zeroed memory."""
    memory = DeviceMemory(size)
    check(driver.cuMemsetD8Async(memory.address, 0, memory.size, device().stream))
    return memory


def wait_for_writer(array: ForeignArray) -> None:
    """Makes the engine's stream wait for the stream on which another library writes an array."""
    stream, engine_stream = array.stream, device().stream
    if stream is not None and stream != int(engine_stream):
        event = check(driver.cuEventCreate(driver.CUevent_flags.CU_EVENT_DISABLE_TIMING))
        check(driver.cuEventRecord(event, stream))
        check(driver.cuStreamWaitEvent(engine_stream, event, 0))
        check(driver.cuEventDestroy(event))


def write_array(address: int, contents: Numbers) -> None:
    """Copies a host array to the device, in stream order, without waiting.

    The driver has read pageable memory when it returns, so the array may then be modified.
    """
    dense = np.ascontiguousarray(contents)
    if dense.nbytes:
        check(driver.cuMemcpyHtoDAsync(address, dense.ctypes.data, dense.nbytes, device().stream))
