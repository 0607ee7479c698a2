"""The buffers of a live plan on the device: by name, each with an address and a generation.

An address is valid for one generation; launches with stale addresses never start.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from livegrad.ir.dimension import round_up
from livegrad.live.compile.live_plan import BufferSpec, LivePlan
from livegrad.live.graph.sources import ForeignArray, Numbers
from livegrad.runtime.cuda.device_memory import DeviceMemory
from livegrad.runtime.cuda.driver import check, device, driver

_ALIGNMENT = 256
_LARGE = 1 << 16  # bytes: buffers from this size on have their own allocation


@dataclass(eq=False)
class DeviceBuffer:
    """A buffer on the device. `memory` keeps it alive: an allocation, possibly shared, or an external array."""

    address: int
    bytes: int
    memory: Any


class Buffers:
    """The buffers of a plan, by key."""

    def __init__(self) -> None:
        self.by_key: dict[str, DeviceBuffer] = {}
        self.generation = 0  # the number of address changes so far

    def address(self, key: str) -> int:
        """The address of a buffer."""
        return self.by_key[key].address

    def replace_memory(self, new_buffers: Mapping[str, DeviceBuffer]) -> None:
        """Replaces memory. The stream order frees the old memory after the work that uses it."""
        if new_buffers:
            self.by_key.update(new_buffers)
            self.generation += 1

    def drop(self, keys: Iterable[str]) -> None:
        """Drops buffers that a plan no longer has."""
        for key in keys:
            self.by_key.pop(key, None)


def make_buffers(specs: Iterable[BufferSpec], plan: LivePlan) -> dict[str, DeviceBuffer]:
    """Allocates zeroed memory for these buffers. Uses external device arrays in place."""
    buffers: dict[str, DeviceBuffer] = {}
    small: list[BufferSpec] = []
    for spec in specs:
        external = plan.bindings.get(spec.key)
        if external is not None and isinstance(external.array, ForeignArray):
            buffers[spec.key] = DeviceBuffer(external.array.address, spec.bytes, external.array)
        elif spec.bytes >= _LARGE:
            memory = allocate_zeroed(spec.bytes)
            buffers[spec.key] = DeviceBuffer(memory.address, spec.bytes, memory)
        else:
            small.append(spec)
    if small:
        sizes = [round_up(max(spec.bytes, 1), _ALIGNMENT) for spec in small]
        memory = allocate_zeroed(sum(sizes))
        address = memory.address
        for spec, size in zip(small, sizes, strict=True):
            buffers[spec.key] = DeviceBuffer(address, spec.bytes, memory)
            address += size
    return buffers


def make_shared(plan: LivePlan) -> dict[str, DeviceBuffer]:
    """Memory for the buffers that share slots."""
    slots = [allocate_zeroed(size) for size in plan.slots]
    return {
        key: DeviceBuffer(slots[slot].address, plan.buffers[key].bytes, slots[slot])
        for key, slot in plan.slot_of.items()
    }


def allocate_zeroed(size: int) -> DeviceMemory:
    """Allocates memory, and clears it in stream order."""
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

    The driver has read the pageable memory when this returns, so the caller may then modify the array.
    """
    dense = np.ascontiguousarray(contents)
    if dense.nbytes:
        check(driver.cuMemcpyHtoDAsync(address, dense.ctypes.data, dense.nbytes, device().stream))
