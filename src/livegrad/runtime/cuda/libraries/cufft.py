"""Fourier transforms with cuFFT over the last axes of a tensor.

Work areas are preallocated, so a capture allocates nothing."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence
from functools import cache
from math import prod
from typing import Any

from livegrad.ir.types import Tensor, c64, c128
from livegrad.ops.fourier import fft, irfft
from livegrad.runtime.cuda.device_memory import DeviceMemory
from livegrad.runtime.cuda.driver import DeviceError, check, driver
from livegrad.runtime.cuda.libraries.library_call import LibraryCall, shared_library
from livegrad.runtime.cuda.modules import load_function
from livegrad.schedule.plan import Buffer, HostStep

_MAX_AXES = 3
_FORWARD, _INVERSE = -1, 1
# By (input kind, double precision): the type of the cuFFT plan, and the function that runs it.
_KINDS = {
    ("complex", False): (0x29, "cufftExecC2C"),
    ("complex", True): (0x69, "cufftExecZ2Z"),
    ("real", False): (0x2A, "cufftExecR2C"),
    ("real", True): (0x6A, "cufftExecD2Z"),
    ("half", False): (0x2C, "cufftExecC2R"),
    ("half", True): (0x6C, "cufftExecZ2D"),
}

# cuFFT does not scale. Its complex-to-real transforms overwrite their input, and assume that imaginary parts that NumPy
# ignores are zero.
_TEXT = """\
template<class T> __device__ void scale(T* values, long long count, double factor)
{
    const long long step = (long long)gridDim.x * blockDim.x;
    for (long long k = (long long)blockIdx.x * blockDim.x + threadIdx.x; k < count; k += step) values[k] *= (T)factor;
}
extern "C" __global__ void scale32(float* values, long long count, double factor) { scale(values, count, factor); }
extern "C" __global__ void scale64(double* values, long long count, double factor) { scale(values, count, factor); }

template<class T> __device__ void prepare(const T* from, T* to, long long count, long long half, long long even)
{
    const long long step = (long long)gridDim.x * blockDim.x;
    for (long long k = (long long)blockIdx.x * blockDim.x + threadIdx.x; k < count; k += step)
    {
        const long long bin = k / 2 % half;
        const bool unread = k % 2 == 1 && (bin == 0 || (even && bin == half - 1));
        to[k] = unread ? T(0) : from[k];
    }
}
extern "C" __global__ void prepare32(const float* from, float* to, long long count, long long half, long long even)
{ prepare(from, to, count, half, even); }
extern "C" __global__ void prepare64(const double* from, double* to, long long count, long long half, long long even)
{ prepare(from, to, count, half, even); }
"""


class FourierTransform:
    """A batch of transforms of `lengths`, scaled by a factor."""

    def __init__(self, kind: str, wide: bool, lengths: tuple[int, ...], batch: int, factor: float, direction: int):
        self.kind, self.wide, self.lengths, self.batch = kind, wide, lengths, batch
        self.factor, self.direction = factor, direction
        self._plan: int | None = None
        self._work: DeviceMemory | None = None
        self._spectrum: DeviceMemory | None = None

    @property
    def name(self) -> str:
        return f"fft {'x'.join(map(str, self.lengths))}"

    @property
    def _half(self) -> int:
        return self.lengths[-1] // 2 + 1

    def prepare(self) -> None:
        """Creates the plan and its work area."""
        if self._plan is not None:
            return
        cufft = library()
        if cufft is None:
            raise DeviceError("cuFFT is not installed", help="install nvidia-cufft")
        plan, size = ctypes.c_int(), ctypes.c_size_t()
        _require(cufft.cufftCreate(ctypes.byref(plan)), "cufftCreate")
        weakref.finalize(self, cufft.cufftDestroy, plan).atexit = False
        _require(cufft.cufftSetAutoAllocation(plan, 0), "cufftSetAutoAllocation")
        lengths = (ctypes.c_longlong * len(self.lengths))(*self.lengths)
        dense = [None, ctypes.c_longlong(1), ctypes.c_longlong(0)]
        status = cufft.cufftMakePlanMany64(
            plan,
            len(self.lengths),
            lengths,
            *dense,
            *dense,
            _KINDS[self.kind, self.wide][0],
            ctypes.c_longlong(self.batch),
            ctypes.byref(size),
        )
        _require(status, self.name)
        self._work = DeviceMemory(size.value)
        _require(cufft.cufftSetWorkArea(plan, ctypes.c_void_p(self._work.address)), "cufftSetWorkArea")
        if self.kind == "half":
            self._spectrum = DeviceMemory(self.batch * self._half * (16 if self.wide else 8))
        self._functions()
        self._plan = plan.value

    def _functions(self) -> tuple[Any, Any]:
        bits = "64" if self.wide else "32"
        return tuple(load_function(_TEXT, "transforms", name + bits) for name in ("scale", "prepare"))  # type: ignore[return-value]

    def enqueue(self, stream: Any, operands: Sequence[int], result: int) -> None:
        cufft = library()
        assert cufft is not None
        scale, prepare = self._functions()
        source = operands[0]
        if self._spectrum is not None:
            count = 2 * self.batch * self._half
            _launch(prepare, stream, count, source, self._spectrum.address, count, self._half, self._even)
            source = self._spectrum.address
        _require(cufft.cufftSetStream(self._plan, ctypes.c_void_p(int(stream))), "cufftSetStream")
        direction = [self.direction] if self.kind == "complex" else []
        run = getattr(cufft, _KINDS[self.kind, self.wide][1])
        _require(run(self._plan, ctypes.c_void_p(source), ctypes.c_void_p(result), *direction), self.name)
        if self.factor != 1.0:
            count = self._result_numbers
            _launch(scale, stream, count, result, count, self.factor)

    @property
    def _even(self) -> int:
        return int(self.lengths[-1] % 2 == 0)

    @property
    def _result_numbers(self) -> int:
        if self.kind == "half":
            return self.batch * prod(self.lengths)
        last = self._half if self.kind == "real" else self.lengths[-1]
        return 2 * self.batch * prod(self.lengths[:-1]) * last


def transform_call(step: HostStep) -> LibraryCall | None:
    """The cuFFT call of a step; None if cuFFT is missing or the axes are not the last ones."""
    node = step.function.results[0]
    source = node.operands[0].type
    if not isinstance(step.result, Buffer) or not isinstance(source, Tensor) or library() is None:
        return None
    shape: tuple[int, ...] = source.shape  # type: ignore[assignment]
    axes = node.attribute("axes") if node.op is fft else (node.attribute("axis"),)
    first = len(shape) - len(axes)
    if sorted(axes) != list(range(first, len(shape))) or len(axes) > _MAX_AXES or 0 in shape:
        return None
    wide = c128 in (source.element, step.result.element)
    lengths = shape[first:]
    if node.op is irfft:
        lengths = (node.attribute("size"),)
    kind = "complex" if node.op is fft else "half" if node.op is irfft else "real"
    assert c64 in (source.element, step.result.element) or wide
    inverse = node.attribute("inverse") if node.op is fft else node.op is irfft
    scaled = {"ortho": 0.5, "backward": 1.0 if inverse else 0.0, "forward": 0.0 if inverse else 1.0}
    factor = float(prod(lengths)) ** -scaled[node.attribute("norm")]
    return FourierTransform(kind, wide, lengths, prod(shape[:first]), factor, _INVERSE if inverse else _FORWARD)


def _launch(function: Any, stream: Any, count: int, *arguments: float) -> None:
    types = [ctypes.c_double if isinstance(argument, float) else ctypes.c_longlong for argument in arguments]
    grid = min(4096, -(-count // 256))
    parameters = (tuple(arguments), tuple(types))
    check(driver.cuLaunchKernel(function, grid, 1, 1, 256, 1, 1, 0, stream, parameters, 0))


@cache
def library() -> ctypes.CDLL | None:
    """cuFFT, or None if it is not installed."""
    return shared_library("cufft", ("libcufft.so.12", "libcufft.so.11"))


def _require(status: int, what: str) -> None:
    if status:
        raise DeviceError(f"cuFFT rejects `{what}`: status {status}")
