"""Captures a library call on its own stream as a child graph."""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from functools import cache
from typing import Any

from livegrad.runtime.cuda.driver import DeviceError, checked, device, driver
from livegrad.runtime.cuda.libraries.library_call import LibraryCall
from livegrad.state import renew_lock_after_fork

_lock = threading.Lock()  # one stream, and handles of libraries that serve one caller at a time
renew_lock_after_fork(sys.modules[__name__], "_lock")


@cache
def _capture_stream(context_number: int) -> Any:
    return checked(driver.cuStreamCreate(driver.CUstream_flags.CU_STREAM_NON_BLOCKING))


class Captured:
    """A call with the addresses that it works on, which may change."""

    def __init__(self, call: LibraryCall, operands: Sequence[int], result: int) -> None:
        self.call, self.operands, self.result = call, list(operands), result

    def capture(self) -> Any:
        """The call as a graph of its own; its owner destroys it."""
        with _lock:
            stream = _capture_stream(device().context_number)
            try:
                return self._captured(stream)
            except DeviceError:
                # Libraries load a kernel when it is first needed; some loads are refused during capture (seen: cuBLAS,
                # batches of complex numbers). After one run outside it, the kernel is there.
                self.call.enqueue(stream, self.operands, self.result)
                checked(driver.cuStreamSynchronize(stream))
                return self._captured(stream)

    def _captured(self, stream: Any) -> Any:
        checked(driver.cuStreamBeginCapture(stream, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED))
        try:
            self.call.enqueue(stream, self.operands, self.result)
        except BaseException:
            _, graph = driver.cuStreamEndCapture(stream)  # what was captured of it goes
            if graph is not None and int(graph):
                driver.cuGraphDestroy(graph)
            raise
        return checked(driver.cuStreamEndCapture(stream))
