"""Stream capture: records the work that a function enqueues on a stream as a graph.

`BoundCall` captures library calls of plans; `live.cuda.captured_graphs` captures calls of the user's blocks.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

from livegrad.runtime.cuda.driver import DeviceError, PerContext, check, driver
from livegrad.runtime.cuda.libraries.library_call import LibraryCall
from livegrad.state import renew_lock_after_fork

_lock = threading.Lock()  # guards the one stream, and library handles, which are not thread-safe
renew_lock_after_fork(sys.modules[__name__], "_lock")


def make_stream() -> Any:
    """A new stream that does not synchronise with the default stream."""
    return check(driver.cuStreamCreate(driver.CUstream_flags.CU_STREAM_NON_BLOCKING))


_stream = PerContext(make_stream)


def capture_on_stream(stream: Any, enqueue: Callable[[], None]) -> Any:
    """Calls a function and returns what it enqueued on the stream as a graph, which the caller destroys.

    If the function raises, the unfinished graph is destroyed.
    """
    check(driver.cuStreamBeginCapture(stream, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED))
    try:
        enqueue()
    except BaseException:
        status, graph = driver.cuStreamEndCapture(stream)
        if int(status) == 0 and graph is not None and int(graph):
            driver.cuGraphDestroy(graph)
        raise
    return check(driver.cuStreamEndCapture(stream))


class BoundCall:
    """A library call bound to the addresses of its operands and result, which may change."""

    def __init__(self, call: LibraryCall, operands: Sequence[int], result: int) -> None:
        self.call, self.operands, self.result = call, list(operands), result

    def capture(self) -> Any:
        """The call as a graph, which the caller destroys."""
        with _lock:
            stream = _stream.current

            def enqueue() -> None:
                self.call.enqueue(stream, self.operands, self.result)

            try:
                return capture_on_stream(stream, enqueue)
            except DeviceError:
                # Libraries load kernels on first use, and the driver refuses some loads during capture (for example
                # cuBLAS with batches of complex matrices). A run outside of the capture loads the kernel.
                enqueue()
                check(driver.cuStreamSynchronize(stream))
                return capture_on_stream(stream, enqueue)
