"""The OpenCL backend: runs functions over points, as `compile_function(function, lifted)(*arrays)`. Needs pyopencl."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import llvmlite.binding as llvm
import numpy as np

from livegrad.codegen.c import OPENCL, kernel_source
from livegrad.diagnostics import CompileError, KernelCheckError, UsageError, caller_origin, warn_caller
from livegrad.ir.node import Function
from livegrad.ir.types import Tensor, components, scalar_of

try:
    import pyopencl  # pyright: ignore[reportMissingImports]
except ImportError:
    pyopencl = None


@cache
def reason_for_no_opencl() -> str | None:
    """Why OpenCL cannot be used here, or None if it can.

    >>> reason_for_no_opencl() is None or isinstance(reason_for_no_opencl(), str)
    True
    """
    if pyopencl is None:
        return "pyopencl is not installed"
    try:
        devices = _devices()
    except pyopencl.Error as error:
        return f"OpenCL does not start: {error}"
    if not devices:
        return "OpenCL finds no device"
    if all(map(_is_unknown_to_driver, devices)):
        return f"{devices[0].platform.version.strip()} does not support this processor"
    return None


def _devices() -> list[Any]:
    assert pyopencl is not None
    return [device for platform in pyopencl.get_platforms() for device in platform.get_devices()]


def _is_unknown_to_driver(device: Any) -> bool:
    """Whether PoCL's LLVM is older than the processor, which PoCL then names `generic` and cannot compile for."""
    return "PoCL" in device.platform.version and device.version.endswith("-x86_64-unknown-linux-gnu-generic")


def _warn_of_pocl_crash(device: Any) -> None:
    """PoCL with an old LLVM mistakes AMD processors with AVX-512 for older ones, and aborts the process."""
    assumed = re.search(r"znver[123]\b", device.version)
    if "PoCL" in device.platform.version and assumed and llvm.get_host_cpu_features().get("avx512f"):
        warn_caller(
            f"{device.platform.version.strip()} identifies this processor as `{assumed[0]}` and is known to abort on "
            "it; install PoCL 5 or newer, built with LLVM 16 or newer",
            RuntimeWarning,
        )


@cache
def _context() -> Any:
    if (reason := reason_for_no_opencl()) is not None or pyopencl is None:
        raise CompileError(
            f"OpenCL is not available: {reason}",
            help="install livegrad[opencl] and a driver: PoCL 5 or newer, or the package intel-opencl-rt",
        )
    device = next(device for device in _devices() if not _is_unknown_to_driver(device))
    _warn_of_pocl_crash(device)
    context = pyopencl.Context([device])
    return context, pyopencl.CommandQueue(context)


class OpenclFunction:
    """A function as an OpenCL kernel over points. Lifted parameters take arrays, the others single values."""

    def __init__(self, function: Function, lifted: tuple[bool, ...]) -> None:
        self.function = function
        self.lifted = lifted
        self.kernel = kernel_source(function, lifted, OPENCL)
        context, _ = _context()
        try:
            self._kernel = pyopencl.Program(context, self.kernel.text).build(["-cl-std=CL1.2"]).evaluate  # type: ignore[union-attr]
        except pyopencl.Error as error:  # type: ignore[union-attr]
            raise CompileError(f"OpenCL rejects `{function.name}`: {error}", where=caller_origin()) from None

    def __call__(self, *arguments: Any) -> Any:
        """The results at every point, as NumPy arrays."""
        assert pyopencl is not None
        context, queue = _context()
        flags = pyopencl.mem_flags
        kernel_arguments: list[Any] = []
        count: int | None = None
        for value, type, flag in zip(arguments, self.function.parameter_types, self.lifted, strict=True):
            scalar = scalar_of(type)
            assert scalar is not None
            array = np.ascontiguousarray(value, scalar.dtype)
            if flag:
                if count not in (None, len(array)):
                    raise UsageError("arrays of different lengths", where=caller_origin(), found=str(len(array)))
                count = len(array)
            if flag or isinstance(type, Tensor) or components(type):
                host_array = array if array.size else np.zeros(1, scalar.dtype)  # buffers must not be empty
                kernel_arguments.append(
                    pyopencl.Buffer(context, flags.READ_ONLY | flags.COPY_HOST_PTR, hostbuf=host_array)
                )
            else:
                kernel_arguments.append(np.int32(array[()]) if scalar.kind == "bool" else array[()])
        if count is None:
            raise UsageError("no argument has one value for each point", where=caller_origin())
        results = [_empty(type, count) for type in self.function.result_types]
        buffers = [pyopencl.Buffer(context, flags.WRITE_ONLY, max(result.nbytes, 1)) for result in results]
        failed = np.zeros(count, np.int32) if self.kernel.sites else None
        if failed is not None:
            buffers.append(pyopencl.Buffer(context, flags.WRITE_ONLY, max(failed.nbytes, 1)))
        if count:
            self._kernel(queue, (count,), None, np.int64(count), *kernel_arguments, *buffers)
            for result, buffer in zip(results if failed is None else [*results, failed], buffers, strict=True):
                pyopencl.enqueue_copy(queue, result, buffer)
        if failed is not None:
            self._raise_for(failed)
        return results[0] if len(results) == 1 else tuple(results)

    def _raise_for(self, failed: Any) -> None:
        """Raises the failed check of the first element that has one."""
        if failed.any():
            element = int(np.flatnonzero(failed)[0])
            site = self.kernel.sites[int(failed[element]) - 1]
            raise KernelCheckError(f"{site.message}, at element {element}", where=site.origin)


def _empty(type: Any, count: int) -> Any:
    scalar = scalar_of(type)
    assert scalar is not None
    inner = (len(components(type)),) if components(type) else ()
    return np.empty((count, *inner), scalar.dtype)


def compile_function(function: Function, lifted: tuple[bool, ...] | None = None) -> OpenclFunction:
    """A function as a kernel over points. By default, all parameters have one value for each point."""
    flags = tuple(lifted) if lifted is not None else (True,) * len(function.parameters)
    return OpenclFunction(function, flags)
