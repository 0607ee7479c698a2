"""Emits functions of the value IR as C: one emitter, with dialects for OpenCL C, CUDA C, GLSL and WGSL."""

from livegrad.codegen.c.dialect import CUDA, OPENCL, Dialect
from livegrad.codegen.c.function_source import KernelSource, function_source, kernel_source
from livegrad.codegen.c.shader_dialects import GLSL, WGSL

__all__ = ["CUDA", "GLSL", "OPENCL", "WGSL", "Dialect", "KernelSource", "function_source", "kernel_source"]
