"""C from functions of the value IR: one emitter, with a dialect for OpenCL C and one for CUDA C."""

from livegrad.codegen.c.dialect import CUDA, OPENCL, Dialect
from livegrad.codegen.c.function_source import KernelSource, function_source, kernel_source

__all__ = ["CUDA", "OPENCL", "Dialect", "KernelSource", "function_source", "kernel_source"]
