"""Asynchronous readings, which copy values from the device to pinned memory: `engine.read_async` returns one."""

from __future__ import annotations

import weakref
from threading import Lock
from typing import Any

import numpy as np

from livegrad.live.compile.live_plan import BufferSpec
from livegrad.live.graph.sources import Numbers
from livegrad.runtime.cuda.driver import check, device, driver
from livegrad.runtime.cuda.pinned_memory import PinnedMemory


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
