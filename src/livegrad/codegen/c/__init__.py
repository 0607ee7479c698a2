"""Emits functions of the value IR as C: one emitter, with dialects for OpenCL C and CUDA C."""

from livegrad.codegen.c.dialect import CUDA, OPENCL, Dialect
from livegrad.codegen.c.function_source import KernelSource, function_source, kernel_source

__all__ = ["CUDA", "OPENCL", "Dialect", "KernelSource", "function_source", "kernel_source"]
