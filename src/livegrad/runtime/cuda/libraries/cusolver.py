"""The handles of cuSOLVER and cuBLAS for linear algebra, and their routines by element type."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from livegrad.ir.types import Scalar, c64, c128, f32, f64
from livegrad.runtime.cuda.device_memory import DeviceMemory
from livegrad.runtime.cuda.driver import DeviceError, PerContext
from livegrad.runtime.cuda.libraries import cublas
from livegrad.runtime.cuda.libraries.library_call import shared_library

LOWER, UPPER = 0, 1
LEFT, RIGHT = 0, 1
NO_TRANSPOSE, TRANSPOSE = 0, 1
NON_UNIT = 0


class Kind(NamedTuple):
    """The letter of an element type in names of routines, and the `cudaDataType` of it and of its real part."""

    letter: str
    data: int
    real: int


KINDS: dict[Scalar, Kind] = {
    f32: Kind("S", 0, 0),
    f64: Kind("D", 1, 1),
    c64: Kind("C", 4, 0),
    c128: Kind("Z", 5, 1),
}


@cache
def library() -> ctypes.CDLL | None:
    """cuSOLVER, or None if it is not installed."""
    return shared_library("cusolver", ("libcusolver.so.12", "libcusolver.so.11"))


def is_available() -> bool:
    """Whether cuSOLVER and cuBLAS are installed."""
    return library() is not None and cublas.library() is not None


class Solver:
    """The handles of a context."""

    def __init__(self) -> None:
        cusolver = library()
        if cusolver is None:
            raise DeviceError("cuSOLVER is not installed", help="install nvidia-cusolver")
        self.cusolver = cusolver
        self.handle, self.parameters = ctypes.c_void_p(), ctypes.c_void_p()
        require(cusolver.cusolverDnCreate(ctypes.byref(self.handle)), "cusolverDnCreate")
        require(cusolver.cusolverDnCreateParams(ctypes.byref(self.parameters)), "cusolverDnCreateParams")

    def use(self, stream: Any) -> None:
        """Enqueues the next calls on a stream."""
        require(self.cusolver.cusolverDnSetStream(self.handle, ctypes.c_void_p(int(stream))), "cusolverDnSetStream")

    def workspace(self, routine: str, *arguments: Any) -> Workspace:
        """The workspace that a routine with 64-bit sizes needs for these arguments."""
        on_device, on_host = ctypes.c_size_t(), ctypes.c_size_t()
        *first, batch = arguments if routine.endswith("Batched") else (*arguments, None)
        more = [] if batch is None else [batch]
        function = getattr(self.cusolver, f"{routine}_bufferSize")
        sizes = (ctypes.byref(on_device), ctypes.byref(on_host))
        require(function(self.handle, self.parameters, *first, *sizes, *more), routine)
        return Workspace(on_device.value, on_host.value)

    def call(self, routine: str, *arguments: Any) -> None:
        """Calls a routine with 64-bit sizes."""
        require(getattr(self.cusolver, routine)(self.handle, self.parameters, *arguments), routine)


class Workspace:
    """Memory on the device and on the host for a routine."""

    def __init__(self, on_device: int, on_host: int) -> None:
        self.memory = DeviceMemory(on_device)
        self.host = ctypes.create_string_buffer(max(on_host, 1))
        sizes = ctypes.c_size_t(on_device), ctypes.c_size_t(on_host)
        self.arguments = (pointer(self.memory.address), sizes[0], self.host, sizes[1])


solver = PerContext(Solver)


def pointer(address: int) -> ctypes.c_void_p:
    return ctypes.c_void_p(address)


def one(element: Scalar) -> np.ndarray[Any, Any]:
    """The number one, as routines take it."""
    return np.ones(1, element.dtype)


def require(status: int, what: str) -> None:
    if status:
        raise DeviceError(f"cuSOLVER or cuBLAS rejects `{what}`: status {status}")
