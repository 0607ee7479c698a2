"""Captures library calls of blocks: runs a Python function once while its stream is captured.

In: the function, and views of its buffers. Out: a child graph. If the function raises, the capture is discarded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from livegrad.diagnostics import LivegradError
from livegrad.live.compile.live_plan import BufferSpec
from livegrad.live.executor import StepError
from livegrad.live.graph.problems import GraphError, origin_of_exception
from livegrad.runtime.cuda.device_memory import DeviceMemory
from livegrad.runtime.cuda.dlpack import DEVICE, capsule_of
from livegrad.runtime.cuda.driver import DeviceError, device, driver, is_current
from livegrad.runtime.cuda.libraries.capture import capture_on_stream, make_stream


class DeviceView:
    """A buffer of the engine for other libraries, through `__cuda_array_interface__` or DLPack.

    It is valid as long as the captured graph of the call.
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

    def __dlpack__(self, *, stream: Any = None, **options: Any) -> Any:
        """The buffer as a capsule. No stream has to wait, because the captured graph orders the call."""
        return capsule_of(self, -1)

    def __dlpack_device__(self) -> tuple[int, int]:
        return DEVICE


class CapturedGraph:
    """The graph of a captured call, destroyed when it is replaced. The call reads its inputs from `copies`."""

    def __init__(self, graph: Any, arguments: Sequence[Any], copies: Sequence[DeviceMemory] = ()) -> None:
        self.graph, self._arguments = graph, arguments  # keeps the arguments alive: the graph has their addresses
        self.copies = copies
        self._context_number = device().context_number

    def close(self) -> None:
        if is_current(self._context_number):
            driver.cuGraphDestroy(self.graph)


def capture(
    step: str, name: str, call: Callable[..., None], arguments: Sequence[Any], copies: Sequence[DeviceMemory]
) -> CapturedGraph:
    """Captures the work that a call enqueues on a private stream. Raises errors as a `StepError` of the step."""
    device()
    stream = make_stream()

    def enqueue() -> None:
        try:
            call(int(stream), *arguments)
        except Exception as error:
            raise StepError(step, _explain_error(name, error)) from error

    try:
        return CapturedGraph(capture_on_stream(stream, enqueue), arguments, copies)
    except DeviceError as error:
        raise StepError(step, GraphError(f"capturing `{name}` failed: {error}")) from error
    finally:
        driver.cuStreamDestroy(stream)


def _explain_error(name: str, error: Exception) -> LivegradError:
    if isinstance(error, LivegradError):
        return error
    return GraphError(f"`{name}` raised {type(error).__name__}: {error}", where=origin_of_exception(error))
