"""Convolutions with cuDNN's graph API: plans of one operation, without tensor cores or reduced precision.

A plan is the first of cuDNN's fallbacks that neither rounds inputs, nor sums in a varying order, nor transforms the
operands, so that results are those of float32 products and sums, and the same bits in every run. Other heuristics
propose engines that transform tiles without saying so: for gradients of kernels, an engine with errors of 5e-6.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from livegrad.ir.types import Scalar, f32, f64
from livegrad.runtime.cuda.device_memory import DeviceMemory
from livegrad.runtime.cuda.driver import DeviceError, PerContext
from livegrad.runtime.cuda.libraries.library_call import shared_library

# cudnnBackendDescriptorType_t
_CONVOLUTION, _ENGINE, _CONFIGURATION, _HEURISTICS, _PLAN, _OPERATIONS, _VARIANT, _TENSOR = 1, 2, 3, 4, 5, 15, 16, 17
# cudnnBackendAttributeType_t
_HANDLE_TYPE, _DATA_TYPE, _INT64, _FLOAT, _DOUBLE, _POINTER, _CONVOLUTION_MODE = 0, 1, 3, 4, 5, 6, 7
_HEURISTICS_MODE, _NUMERICAL_NOTE, _DESCRIPTOR = 8, 11, 15
_C_TYPES: dict[int, Any] = {
    _HANDLE_TYPE: ctypes.c_void_p,
    _DATA_TYPE: ctypes.c_int,
    _INT64: ctypes.c_int64,
    _FLOAT: ctypes.c_float,
    _DOUBLE: ctypes.c_double,
    _POINTER: ctypes.c_void_p,
    _CONVOLUTION_MODE: ctypes.c_int,
    _HEURISTICS_MODE: ctypes.c_int,
    _NUMERICAL_NOTE: ctypes.c_int,
    _DESCRIPTOR: ctypes.c_void_p,
}
# cudnnBackendNumericalNote_t: what engines do that results would show; 0 are tensor cores, 4 a varying order of sums.
_UNWANTED_NOTES = frozenset({0, 1, 2, 3, 4, 5, 6, 7, 8})
_CROSS_CORRELATION, _MODE_FALLBACK = 1, 2
_MAX_CONFIGURATIONS, _MAX_NOTES = 24, 16
_MAX_WORKSPACE_BYTES = 1 << 28
_IMAGE, _KERNELS, _RESULT = 1, 2, 3  # names of tensors
_DATA = {f32: 0, f64: 1}

# The operation, its attributes for the scales and the convolution, and those of the image, the kernels and the result.
_FORWARD, _SCALES_AND_CONVOLUTION, _NAMES = 10, (700, 701, 702), (704, 703, 705)


@dataclass(frozen=True)
class Problem:
    """A convolution of an image with kernels. Tensors are dense."""

    element: Scalar
    image: tuple[int, ...]
    kernels: tuple[int, ...]
    result: tuple[int, ...]
    strides: tuple[int, ...]
    dilation: tuple[int, ...]
    alignment: int = 16  # of all addresses, in bytes


@cache
def library() -> ctypes.CDLL | None:
    """cuDNN, or None if it is not installed."""
    return shared_library("cudnn", ("libcudnn.so.9",))


class Unsupported(Exception):
    """cuDNN cannot do this."""


class _Descriptor:
    """A descriptor of the graph API."""

    def __init__(self, kind: int) -> None:
        self.handle = ctypes.c_void_p()
        cudnn = _cudnn()
        _require(cudnn.cudnnBackendCreateDescriptor(kind, ctypes.byref(self.handle)), "cudnnBackendCreateDescriptor")
        weakref.finalize(self, cudnn.cudnnBackendDestroyDescriptor, self.handle).atexit = False

    def set(self, name: int, kind: int, *values: Any) -> None:
        array = (_C_TYPES[kind] * len(values))(*values)
        status = _cudnn().cudnnBackendSetAttribute(self.handle, name, kind, ctypes.c_int64(len(values)), array)
        _require(status, f"attribute {name}")

    def get(self, name: int, kind: int, most: int, initial: Sequence[Any] = ()) -> list[Any]:
        array, count = (_C_TYPES[kind] * most)(*initial), ctypes.c_int64()
        wanted = ctypes.c_int64(most)
        status = _cudnn().cudnnBackendGetAttribute(self.handle, name, kind, wanted, ctypes.byref(count), array)
        _require(status, f"attribute {name}")
        return list(array)[: count.value]

    def finalise(self) -> _Descriptor:
        _require(_cudnn().cudnnBackendFinalize(self.handle), "cudnnBackendFinalize")
        return self


class ConvolutionPlan:
    """A plan of cuDNN, and its workspace."""

    def __init__(self, plan: _Descriptor, kept: Sequence[_Descriptor]) -> None:
        self._plan, self._kept = plan, kept
        (size,) = plan.get(402, _INT64, 1)
        if size > _MAX_WORKSPACE_BYTES:
            raise Unsupported
        self.workspace = DeviceMemory(size)

    def enqueue(self, stream: Any, image: int, kernels: int, result: int) -> None:
        """Enqueues the operation on these addresses."""
        pack = _Descriptor(_VARIANT)
        pack.set(1000, _INT64, _IMAGE, _KERNELS, _RESULT)
        pack.set(1001, _POINTER, image, kernels, result)
        pack.set(1003, _POINTER, self.workspace.address)
        handle = _handle.current
        _require(_cudnn().cudnnSetStream(handle, ctypes.c_void_p(int(stream))), "cudnnSetStream")
        status = _cudnn().cudnnBackendExecute(handle, self._plan.handle, pack.finalise().handle)
        if status:
            raise DeviceError(f"cuDNN rejects a convolution: status {status}")


def plan_of(problem: Problem) -> ConvolutionPlan | None:
    """The plan for a problem, found once; None if cuDNN is missing or has none."""
    if library() is None or problem.element not in _DATA:
        return None
    plans = _plans.current
    if problem not in plans:
        plans[problem] = _find(problem)
    return plans[problem]


def _find(problem: Problem) -> ConvolutionPlan | None:
    try:
        operations, kept = _describe(problem)
        for configuration in _configurations(operations):
            if not _UNWANTED_NOTES.isdisjoint(_notes_of(configuration)):
                continue
            try:
                plan = _Descriptor(_PLAN)
                plan.set(400, _HANDLE_TYPE, _handle.current)
                plan.set(401, _DESCRIPTOR, configuration.handle)
                return ConvolutionPlan(plan.finalise(), [operations, configuration, *kept])
            except Unsupported:
                continue
    except Unsupported:
        pass  # our kernels compute it
    return None


def _describe(problem: Problem) -> tuple[_Descriptor, list[_Descriptor]]:
    """The graph with the operation, and the descriptors that it refers to."""
    rank, data = len(problem.strides), _DATA[problem.element]
    convolution = _Descriptor(_CONVOLUTION)
    convolution.set(100, _DATA_TYPE, data)
    convolution.set(101, _CONVOLUTION_MODE, _CROSS_CORRELATION)
    convolution.set(106, _INT64, rank)
    for name, values in ((102, problem.dilation), (103, problem.strides), (104, (0,) * rank), (105, (0,) * rank)):
        convolution.set(name, _INT64, *values)
    shapes = (problem.image, problem.kernels, problem.result)
    tensors = [_tensor(name, shape, problem) for name, shape in zip((_IMAGE, _KERNELS, _RESULT), shapes, strict=True)]
    alpha, beta, how = _SCALES_AND_CONVOLUTION
    operation = _Descriptor(_FORWARD)
    scale = _DOUBLE if problem.element is f64 else _FLOAT
    operation.set(alpha, scale, 1.0)
    operation.set(beta, scale, 0.0)
    operation.set(how, _DESCRIPTOR, convolution.finalise().handle)
    for name, tensor in zip(_NAMES, tensors, strict=True):
        operation.set(name, _DESCRIPTOR, tensor.handle)
    graph = _Descriptor(_OPERATIONS)
    graph.set(800, _HANDLE_TYPE, _handle.current)
    graph.set(801, _DESCRIPTOR, operation.finalise().handle)
    return graph.finalise(), [operation, convolution, *tensors]


def _tensor(name: int, shape: Sequence[int], problem: Problem) -> _Descriptor:
    tensor, strides = _Descriptor(_TENSOR), [1]
    for size in reversed(shape[1:]):
        strides.insert(0, strides[0] * size)
    tensor.set(901, _DATA_TYPE, _DATA[problem.element])
    tensor.set(902, _INT64, *shape)
    tensor.set(903, _INT64, *strides)
    tensor.set(906, _INT64, name)
    tensor.set(900, _INT64, problem.alignment)
    return tensor.finalise()


def _configurations(operations: _Descriptor) -> list[_Descriptor]:
    """The configurations that cuDNN falls back to, best first."""
    heuristics = _Descriptor(_HEURISTICS)
    heuristics.set(200, _HEURISTICS_MODE, _MODE_FALLBACK)
    heuristics.set(201, _DESCRIPTOR, operations.handle)
    heuristics.finalise()
    found = [_Descriptor(_CONFIGURATION) for _ in range(_MAX_CONFIGURATIONS)]
    handles = heuristics.get(202, _DESCRIPTOR, len(found), [one.handle for one in found])
    return found[: len(handles)]


def _notes_of(configuration: _Descriptor) -> list[int]:
    engine = _Descriptor(_ENGINE)
    configuration.get(300, _DESCRIPTOR, 1, [engine.handle])
    return engine.get(1303, _NUMERICAL_NOTE, _MAX_NOTES)


def _cudnn() -> Any:
    cudnn = library()
    if cudnn is None:
        raise DeviceError("cuDNN is not installed", help="install nvidia-cudnn-cu13")
    return cudnn


def _make_handle() -> ctypes.c_void_p:
    handle = ctypes.c_void_p()
    if status := _cudnn().cudnnCreate(ctypes.byref(handle)):
        raise DeviceError(f"cuDNN does not start: status {status}")
    return handle


def _make_plans() -> dict[Problem, ConvolutionPlan | None]:
    return {}


_handle = PerContext(_make_handle)
_plans = PerContext(_make_plans)


def _require(status: int, what: str) -> None:
    if status:
        raise Unsupported(f"{what}: status {status}")
