"""Pinned host memory, and asynchronous readings: values that are being copied from the device into it.

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
from livegrad.runtime.cuda.driver import checked, device, driver

_LEAST = 64
_LARGEST_KEPT, _MOST_KEPT = 1 << 26, 1 << 24  # bytes: of one piece, and of all of a size where that is more than one
# Addresses by context and size. Without a lock: `append` and `pop` are atomic, and finalizers, which may run at any
# moment, also in a thread that is in here, give memory back.
_free: defaultdict[tuple[int, int], list[int]] = defaultdict(list)


class PinnedMemory:
    """Pinned bytes, until `free`. They are reused: the driver takes longer to allocate them than most frames take."""

    def __init__(self, size: int) -> None:
        self.size = max(_LEAST, 1 << max(0, size - 1).bit_length())
        self._kept = _free[device().context_number, self.size]
        try:
            self.address = self._kept.pop()
        except IndexError:
            self.address = int(checked(driver.cuMemHostAlloc(self.size, 0)))

    def array(self, dtype: Any, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
        """The memory as an array; valid until it is freed."""
        kind = np.dtype(dtype)
        interface = {"data": (self.address, False), "typestr": kind.str, "shape": shape, "version": 3}
        return np.asarray(type("Pinned", (), {"__array_interface__": interface})())

    def free(self) -> None:
        """Frees the memory. A copy into it may still be running: the next copy comes after it, in the same stream."""
        if self.size <= _LARGEST_KEPT and len(self._kept) < max(1, _MOST_KEPT // self.size):
            self._kept.append(self.address)
        else:
            driver.cuStreamSynchronize(device().stream)  # there may be no next copy
            driver.cuMemFreeHost(self.address)


class DeviceReading:
    """A copy of a buffer, after all runs that were started before it and before all later ones."""

    def __init__(self, address: int, spec: BufferSpec) -> None:
        self._spec = spec
        self._value: Numbers | None = None
        self._taking = Lock()
        self._pinned = PinnedMemory(spec.bytes)
        self._event = checked(driver.cuEventCreate(driver.CUevent_flags.CU_EVENT_DISABLE_TIMING))
        stream = device().stream
        if spec.bytes:
            checked(driver.cuMemcpyDtoHAsync(self._pinned.address, address, spec.bytes, stream))
        checked(driver.cuEventRecord(self._event, stream))
        self._cleaning = weakref.finalize(self, _release, self._event, self._pinned)
        self._cleaning.atexit = False

    def ready(self) -> bool:
        """Whether `result` would return at once."""
        with self._taking:
            device()  # in this thread too
            return self._value is not None or int(driver.cuEventQuery(self._event)[0]) == 0

    def result(self) -> Numbers:
        """The value, once it is here."""
        with self._taking:
            if self._value is None:
                device()
                checked(driver.cuEventSynchronize(self._event))
                self._value = np.array(self._pinned.array(self._spec.element.dtype, self._spec.shape))
                self._cleaning()
            return self._value


def _release(event: Any, pinned: PinnedMemory) -> None:
    driver.cuEventDestroy(event)
    pinned.free()
