"""C from functions of the value IR: one emitter, with a dialect for OpenCL C and one for CUDA C."""

from livegrad.backends.c_family.dialect import CUDA, OPENCL, Dialect
from livegrad.backends.c_family.source import KernelSource, function_source, kernel_source

__all__ = ["CUDA", "OPENCL", "Dialect", "KernelSource", "function_source", "kernel_source"]
