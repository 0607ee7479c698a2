"""Pinned host memory, and asynchronous readings, which copy values from the device into it.

`engine.read_async` returns a `DeviceReading`. Freed memory is kept for reuse.
"""

from __future__ import annotations

import weakref
from collections import defaultdict
from threading import Lock
from typing import Any

import numpy as np

from livegrad.live.compile.live_plan import BufferSpec
from livegrad.live.graph.sources import Numbers
from livegrad.runtime.cuda.driver import PerContext, check, device, driver

_LEAST = 64
_LARGEST_KEPT, _MOST_KEPT = 1 << 26, 1 << 24  # bytes: of one allocation, and of all allocations of one size


def _make_free_lists() -> defaultdict[int, list[int]]:
    return defaultdict(list)


# Addresses by size. No lock: `append` and `pop` are atomic, and finalizers free memory at any moment, even in a thread
# that is allocating.
_free_lists = PerContext(_make_free_lists)


class PinnedMemory:
    """Pinned bytes, until `free`. Reuses freed memory, because an allocation takes longer than most frames."""

    def __init__(self, size: int) -> None:
        self.size = max(_LEAST, 1 << max(0, size - 1).bit_length())
        self._free_list = _free_lists.current[self.size]
        try:
            self.address = self._free_list.pop()
        except IndexError:
            self.address = int(check(driver.cuMemHostAlloc(self.size, 0)))

    def array(self, dtype: Any, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
        """The memory as an array; valid until it is freed."""
        kind = np.dtype(dtype)
        interface = {"data": (self.address, False), "typestr": kind.str, "shape": shape, "version": 3}
        return np.asarray(type("Pinned", (), {"__array_interface__": interface})())

    def free(self) -> None:
        """Frees the memory. A copy into it may still be running; the stream orders the next copy after it."""
        if self.size <= _LARGEST_KEPT and len(self._free_list) < max(1, _MOST_KEPT // self.size):
            self._free_list.append(self.address)
        else:
            driver.cuStreamSynchronize(device().stream)  # a later copy would not wait for the running copy
            driver.cuMemFreeHost(self.address)


class DeviceReading:
    """A copy of a buffer, ordered after all runs started before it and before all later ones."""

    def __init__(self, address: int, spec: BufferSpec) -> None:
        self._spec = spec
        self._value: Numbers | None = None
        self._lock = Lock()
        self._pinned = PinnedMemory(spec.bytes)
        self._event = check(driver.cuEventCreate(driver.CUevent_flags.CU_EVENT_DISABLE_TIMING))
        stream = device().stream
        if spec.bytes:
            check(driver.cuMemcpyDtoHAsync(self._pinned.address, address, spec.bytes, stream))
        check(driver.cuEventRecord(self._event, stream))
        self._finalizer = weakref.finalize(self, _release, self._event, self._pinned)
        self._finalizer.atexit = False

    def ready(self) -> bool:
        """Whether `result` returns without waiting."""
        with self._lock:
            device()  # makes the context current in this thread
            return self._value is not None or int(driver.cuEventQuery(self._event)[0]) == 0

    def result(self) -> Numbers:
        """Waits for the value and returns it."""
        with self._lock:
            if self._value is None:
                device()
                check(driver.cuEventSynchronize(self._event))
                self._value = np.array(self._pinned.array(self._spec.element.dtype, self._spec.shape))
                self._finalizer()
            return self._value


def _release(event: Any, pinned: PinnedMemory) -> None:
    driver.cuEventDestroy(event)
    pinned.free()
