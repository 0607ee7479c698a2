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
from livegrad.runtime.cuda.driver import checked, device, driver

_ALIGNMENT = 256
_LARGE = 1 << 16  # bytes from which a buffer has an allocation of its own


@dataclass(eq=False)
class HeldBuffer:
    """Memory under a name. `memory` keeps it: an allocation that others may share, or somebody's array."""

    address: int
    bytes: int
    memory: Any


class Buffers:
    """Every buffer of a plan, and the cells of numbers that must lie in memory."""

    def __init__(self) -> None:
        self.held: dict[str, HeldBuffer] = {}
        self.generation = 0  # counts changes of addresses

    def address(self, key: str) -> int:
        """Where a buffer is."""
        return self.held[key].address

    def put(self, fresh: Mapping[str, HeldBuffer]) -> None:
        """Replaces memory. What was there is freed when nothing runs any more."""
        if fresh:
            self.held.update(fresh)
            self.generation += 1

    def drop(self, keys: Iterable[str]) -> None:
        """Gives up buffers that a plan no longer has."""
        for key in keys:
            self.held.pop(key, None)


def make_buffers(specs: Iterable[BufferSpec], plan: LivePlan) -> dict[str, HeldBuffer]:
    """New memory for these buffers, all zeros; external ones that are on the device stay where they are."""
    buffers: dict[str, HeldBuffer] = {}
    small: list[BufferSpec] = []
    for spec in specs:
        external = plan.bindings.get(spec.key)
        if external is not None and isinstance(external.array, ForeignArray):
            buffers[spec.key] = HeldBuffer(external.array.address, spec.bytes, external.array)
        elif spec.bytes >= _LARGE:
            memory = zeroed(spec.bytes)
            buffers[spec.key] = HeldBuffer(memory.address, spec.bytes, memory)
        else:
            small.append(spec)
    if small:
        sizes = [-(-max(spec.bytes, 1) // _ALIGNMENT) * _ALIGNMENT for spec in small]
        memory = zeroed(sum(sizes))
        address = memory.address
        for spec, size in zip(small, sizes, strict=True):
            buffers[spec.key] = HeldBuffer(address, spec.bytes, memory)
            address += size
    return buffers


def make_shared(plan: LivePlan) -> dict[str, HeldBuffer]:
    """Memory for the buffers that share it."""
    slots = [zeroed(size) for size in plan.slots]
    return {
        key: HeldBuffer(slots[slot].address, plan.buffers[key].bytes, slots[slot]) for key, slot in plan.slot_of.items()
    }


def zeroed(size: int) -> DeviceMemory:
    """New memory that reads as zeros."""
    memory = DeviceMemory(size)
    checked(driver.cuMemsetD8Async(memory.address, 0, memory.size, device().stream))
    return memory


def wait_for_writer(array: ForeignArray) -> None:
    """Makes our work wait for the stream that another library writes an array on."""
    stream, engine_stream = array.stream, device().stream
    if stream is not None and stream != int(engine_stream):
        event = checked(driver.cuEventCreate(driver.CUevent_flags.CU_EVENT_DISABLE_TIMING))
        checked(driver.cuEventRecord(event, stream))
        checked(driver.cuStreamWaitEvent(engine_stream, event, 0))
        checked(driver.cuEventDestroy(event))


def write_array(address: int, contents: Numbers) -> None:
    """Copies an array of the host to the device, in order with all other work, and does not wait for that.

    The driver has read pageable memory when it returns, so that the array may be changed.
    """
    dense = np.ascontiguousarray(contents)
    if dense.nbytes:
        checked(driver.cuMemcpyHtoDAsync(address, dense.ctypes.data, dense.nbytes, device().stream))
