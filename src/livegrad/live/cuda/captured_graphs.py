"""Library calls as graphs: a Python function runs once while its own stream is captured.

In: the function, and views of its buffers. Out: a child graph. If the function raises, the capture is discarded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from livegrad.diagnostics import LivegradError
from livegrad.live.compile.live_plan import BufferSpec
from livegrad.live.executor import StepError
from livegrad.live.graph.problems import GraphError, raised_at
from livegrad.runtime.cuda.device_memory import DeviceMemory
from livegrad.runtime.cuda.dlpack import DEVICE, capsule_of
from livegrad.runtime.cuda.driver import DeviceError, checked, device, driver, is_current


class DeviceView:
    """A buffer of the engine as other libraries take it: by `__cuda_array_interface__` or DLPack.

    It is there for as long as what was recorded of the call.
    """

    def __init__(self, address: int, spec: BufferSpec) -> None:
        self.address, self.shape, self.dtype = address, spec.shape, spec.element.dtype
        self.__cuda_array_interface__ = {
            "shape": spec.shape,
            "typestr": spec.element.dtype.str,
            "data": (address, False),
            "strides": None,
            "version": 3,
        }

    def __dlpack__(self, *, stream: Any = None, **wishes: Any) -> Any:
        """The buffer as a capsule. No stream has to wait: the call is recorded, and the graph has the order."""
        return capsule_of(self, -1)

    def __dlpack_device__(self) -> tuple[int, int]:
        return DEVICE


class CapturedGraph:
    """A captured call; destroyed when it is replaced. `copies` is memory of its own, which it reads its inputs from."""

    def __init__(self, graph: Any, arguments: Sequence[Any], copies: Sequence[DeviceMemory] = ()) -> None:
        self.graph, self._arguments = graph, arguments  # what the call was given lives as long as what it recorded
        self.copies = copies
        self._context_number = device().context_number

    def close(self) -> None:
        if is_current(self._context_number):
            driver.cuGraphDestroy(self.graph)


def capture(
    step: str, name: str, call: Callable[..., None], arguments: Sequence[Any], copies: Sequence[DeviceMemory]
) -> CapturedGraph:
    """Records what a call does on a stream."""
    device()
    stream = checked(driver.cuStreamCreate(driver.CUstream_flags.CU_STREAM_NON_BLOCKING))
    try:
        mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
        checked(driver.cuStreamBeginCapture(stream, mode))
        failed: Exception | None = None
        try:
            call(int(stream), *arguments)
        except Exception as error:
            failed = error
        answer = driver.cuStreamEndCapture(stream)
        if failed is not None:
            if int(answer[0]) == 0 and int(answer[1]):
                driver.cuGraphDestroy(answer[1])
            raise StepError(step, _explained(name, failed)) from failed
        try:
            return CapturedGraph(checked(answer), arguments, copies)
        except DeviceError as error:
            raise StepError(step, GraphError(f"capturing `{name}` failed: {error}")) from error
    finally:
        driver.cuStreamDestroy(stream)


def _explained(name: str, error: Exception) -> LivegradError:
    if isinstance(error, LivegradError):
        return error
    return GraphError(f"`{name}` raised {type(error).__name__}: {error}", where=raised_at(error))
