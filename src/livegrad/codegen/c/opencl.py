"""Functions of the value IR as OpenCL C: the text alone, and with a kernel that `run` compiles."""

from __future__ import annotations

from livegrad.codegen.c import OPENCL, KernelSource, function_source
from livegrad.codegen.c import kernel_source as c_kernel_source
from livegrad.ir.node import Function


def opencl_source(function: Function) -> str:
    """The function, and all that it calls, as OpenCL C.

    >>> from livegrad import ops
    >>> from livegrad.ir.function import trace
    >>> from livegrad.ir.types import Vector, f32
    >>> print(opencl_source(trace(lambda p: ops.length(p) - 1.0, Vector(f32, 3), name="ball")))
    float ball(float3 p0)
    {
        const float v0 = length(p0);
        return (v0 - 1.0f);
    }
    <BLANKLINE>
    """
    return function_source(function, OPENCL)


def kernel_source(function: Function, lifted: tuple[bool, ...], name: str = "evaluate") -> KernelSource:
    """The function with a kernel over arrays: a lifted parameter has one value for each work item, packed densely."""
    return c_kernel_source(function, lifted, OPENCL, name)
