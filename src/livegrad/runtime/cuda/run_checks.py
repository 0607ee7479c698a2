"""Checks of runs that nobody has waited for. A failure is raised when a result is read.

A plan that a jitted function runs copies its status word to the host behind its graph. Its results refer to a
`RunCheck`, and so do all results computed from them. Reading any of them waits for the copy, and raises the failure,
again at each read.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from livegrad.diagnostics import LivegradError
from livegrad.runtime.cuda.device_memory import DeviceMemory
from livegrad.runtime.cuda.driver import check, device, driver
from livegrad.runtime.cuda.pinned_memory import PinnedMemory

_MAX_PENDING = 16  # runs of a plan


class RunCheck:
    """The status of one run: pending, passed or failed."""

    __slots__ = ("_error_of", "_memory", "_shape", "error", "is_pending")

    def __init__(
        self, status: DeviceMemory, words: int, error_of: Callable[[np.ndarray[Any, Any]], LivegradError | None]
    ) -> None:
        self.error: LivegradError | None = None
        self.is_pending = False  # while there is no copy
        self._error_of, self._shape = error_of, (words,)
        self._memory = PinnedMemory(8 * words)
        self.is_pending = True
        stream = device().stream
        check(driver.cuMemcpyDtoHAsync(self._memory.address, status.address, 8 * words, stream))
        check(driver.cuMemsetD8Async(status.address, 0xFF, 8 * words, stream))

    def require(self) -> None:
        """Waits for the run, and raises if it failed."""
        if self.is_pending:
            check(driver.cuStreamSynchronize(device().stream))
            self.is_pending = False
            self.error = self._error_of(self._memory.array(np.uint64, self._shape).copy())
            self._memory.free()
        if self.error is not None:
            raise self.error.with_traceback(None)

    def __del__(self) -> None:
        if self.is_pending:
            self._memory.free()


class PendingChecks:
    """The checks of the last runs of a plan, oldest first."""

    def __init__(self) -> None:
        self._pending: deque[RunCheck] = deque()

    def add(self, run_check: RunCheck) -> None:
        """Adds a check. If there are many, waits for the oldest one, whose failure is raised if no one has seen it."""
        self._pending.append(run_check)
        while len(self._pending) > _MAX_PENDING:
            oldest = self._pending.popleft()
            if oldest.is_pending:
                oldest.require()


def unfinished(checks: Iterable[RunCheck]) -> tuple[RunCheck, ...]:
    """The checks that have not passed, each once."""
    return tuple(dict.fromkeys(one for one in checks if one.is_pending or one.error is not None))
