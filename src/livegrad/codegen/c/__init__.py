"""Emits functions of the value IR as C: one emitter, with dialects for OpenCL C, CUDA C, GLSL and WGSL.

`function_source.py` writes whole functions, `body.py` nodes as statements, `expressions.py` elementwise ops and
`operands.py` values. What differs between languages is a `Dialect` (`dialect.py`, `shader_dialects.py`); functions
that a language lacks are in `helpers.py` and `shader_helpers.py`. `readable_function.py` is the C that people read.
"""

from livegrad.codegen.c.dialect import CUDA, OPENCL, Dialect
from livegrad.codegen.c.function_source import KernelSource, function_source, kernel_source
from livegrad.codegen.c.shader_dialects import GLSL, WGSL

__all__ = ["CUDA", "GLSL", "OPENCL", "WGSL", "Dialect", "KernelSource", "function_source", "kernel_source"]
