"""The ledger of a run: status words of checks, run counts of region bodies, and times inside regions.

It is one device array, which is copied to the host asynchronously after a run. Reading its contents waits for the copy.
"""

from __future__ import annotations

import weakref
from collections import deque
from threading import Lock
from typing import Any

import numpy as np

from livegrad.runtime.cuda.device_memory import DeviceMemory
from livegrad.runtime.cuda.driver import check, device, driver
from livegrad.runtime.cuda.pinned_memory import PinnedMemory

CLEAN = (1 << 64) - 1  # a status word without a report
_MAX_IN_FLIGHT = 8


class Ledger:
    """Status words (all ones before a run), followed by counting words (zeros before a run)."""

    def __init__(self, status_words: int, counting_words: int) -> None:
        self.status_words, self.counting_words = max(status_words, 1), max(counting_words, 1)
        self._memory = DeviceMemory(8 * (self.status_words + self.counting_words))
        self._in_flight: deque[weakref.ref[Snapshot]] = deque()

    @property
    def status_address(self) -> int:
        return self._memory.address

    @property
    def counting_address(self) -> int:
        return self._memory.address + 8 * self.status_words

    def clear(self) -> None:
        """Resets all words for a run, in stream order."""
        stream = device().stream
        check(driver.cuMemsetD8Async(self.status_address, 0xFF, 8 * self.status_words, stream))
        check(driver.cuMemsetD8Async(self.counting_address, 0, 8 * self.counting_words, stream))

    def snapshot(self) -> Snapshot:
        """The words after all runs so far. Waits only if many unread snapshots exist."""
        if len(self._in_flight) >= _MAX_IN_FLIGHT:
            oldest = self._in_flight.popleft()()
            if oldest is not None:
                oldest.take()
        snapshot = Snapshot(self._memory.address, self.status_words, self.counting_words)
        self._in_flight.append(weakref.ref(snapshot))
        return snapshot


class Snapshot:
    """The words of a ledger after one run, being copied to the host."""

    def __init__(self, address: int, status_words: int, counting_words: int) -> None:
        self._status_words, self._count = status_words, status_words + counting_words
        self._words: np.ndarray[Any, Any] | None = None
        self._lock = Lock()  # several threads may read a frame
        self._pinned = PinnedMemory(8 * self._count)
        self._event = check(driver.cuEventCreate(driver.CUevent_flags.CU_EVENT_DISABLE_TIMING))
        stream = device().stream
        check(driver.cuMemcpyDtoHAsync(self._pinned.address, address, 8 * self._count, stream))
        check(driver.cuEventRecord(self._event, stream))
        self._finalizer = weakref.finalize(self, _release, self._event, self._pinned)
        self._finalizer.atexit = False

    def ready(self) -> bool:
        """Whether the words have arrived."""
        with self._lock:
            device()
            return self._words is not None or int(driver.cuEventQuery(self._event)[0]) == 0

    def take(self) -> np.ndarray[Any, Any]:
        """Waits for the words and returns them."""
        with self._lock:
            if self._words is None:
                device()
                check(driver.cuEventSynchronize(self._event))
                self._words = self._pinned.array(np.uint64, (self._count,)).copy()
                self._finalizer()
            return self._words

    @property
    def status(self) -> np.ndarray[Any, Any]:
        return self.take()[: self._status_words]

    @property
    def counts(self) -> np.ndarray[Any, Any]:
        return self.take()[self._status_words :]


def _release(event: Any, pinned: PinnedMemory) -> None:
    driver.cuEventDestroy(event)
    pinned.free()
