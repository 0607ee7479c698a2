"""Checks of runs that nobody has waited for. A failure is raised when a result is read.

A plan that a jitted function runs copies its status word to the host behind its graph. Its results refer to a
`RunCheck`, and so do all results computed from them. Reading any of them waits for the copy, and raises the failure,
again at each read.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from livegrad.diagnostics import KernelCheckError, LivegradError
from livegrad.ir.line_sites import SourceLocations, resolve_location
from livegrad.runtime.cuda.device_memory import DeviceArray, DeviceMemory
from livegrad.runtime.cuda.driver import check, device, driver
from livegrad.runtime.cuda.pinned_memory import PinnedMemory
from livegrad.runtime.cuda.serialised_launches import SerialisedLaunch, SerialisedLibraryCall

CLEAN = (1 << 64) - 1  # a status word without a failure
_NO_ELEMENT = (1 << 48) - 1  # in the status word of a failed check of a whole array
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


def unfinished_checks(arguments: Sequence[Any], wait: bool) -> tuple[RunCheck, ...]:
    """The checks of arguments that have not passed, each once. With `wait`, waits for them, and raises a failure."""
    if wait:
        for argument in arguments:
            if isinstance(argument, DeviceArray):
                argument.require_checks()
    checks = [one for argument in arguments for one in getattr(argument, "checks", ())]
    return tuple(dict.fromkeys(one for one in checks if one.is_pending or one.error is not None))


def error_in(
    status: np.ndarray[Any, Any],
    launches: Sequence[SerialisedLaunch | SerialisedLibraryCall],
    source_locations: SourceLocations,
) -> LivegradError | None:
    """The first failed check of a run, from the status words of its steps."""
    failed = next((launch for launch in launches if launch.sites and status[launch.number] != CLEAN), None)
    if failed is None:
        return None
    word = int(status[failed.number])
    site = failed.sites[word & 0xFFFF]
    element = "" if word >> 16 == _NO_ELEMENT else f", at element {word >> 16}"
    error = KernelCheckError(f"{site.message}{element}", where=site.origin)
    resolve_location(error, source_locations)
    return error
