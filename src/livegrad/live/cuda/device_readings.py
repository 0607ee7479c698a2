"""Asynchronous readings: values that are being copied from the device, as returned by `engine.read_async`."""

from __future__ import annotations

import weakref
from threading import Lock
from typing import Any

import numpy as np

from livegrad.live.compile.live_plan import BufferSpec
from livegrad.live.cuda.pinned import PinnedMemory
from livegrad.live.graph.sources import Numbers
from livegrad.runtime.cuda.driver import checked, device, driver


class DeviceReading:
    """A copy of a buffer that is made after all runs before it was asked for, and before all later ones."""

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
