"""Compiles vector math functions, once for each function, element type and lane count.

Kernels declare the functions that they call, and `math_imports` returns the addresses. All kernels share this code, so
they compile faster.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable

from livegrad.codegen.llvm.baseline_lanes import is_lane_function, lane_definition
from livegrad.codegen.llvm.kernel_builder import MathRequest
from livegrad.codegen.llvm.vector_math import math_function_name, math_functions
from livegrad.runtime.cpu.native.host_target import host_target
from livegrad.runtime.cpu.native.llvm_jit import NativeFunction, compile_kernel
from livegrad.state import renew_lock_after_fork

# The vector width is part of the key, because caller and callee must agree on it: it affects the calling convention.
_compiled: dict[tuple[MathRequest, int], NativeFunction] = {}
_lock = threading.Lock()
renew_lock_after_fork(sys.modules[__name__], "_lock")


def math_imports(requests: Iterable[MathRequest]) -> dict[str, int]:
    """The addresses of the functions, by symbol."""
    return {math_function_name(*request): _function(request).address for request in requests}


def _function(request: MathRequest) -> NativeFunction:
    key = (request, host_target().vector_bytes * 8)
    with _lock:
        if key not in _compiled:
            _compiled[key] = compile_kernel(_module_text(*key), math_function_name(*request), speed=2)
        return _compiled[key]


def _module_text(request: MathRequest, width: int) -> str:
    widths = f'"prefer-vector-width"="{width}" "min-legal-vector-width"="{width}"'
    attributes = f'attributes #1 = {{ nounwind {widths} "stackrealign" }}'
    if is_lane_function(request[0]):
        declarations, definition = lane_definition(*request)
        return "\n".join([*sorted(declarations), definition, attributes])
    text = math_functions([request], avx512=host_target().has_avx512 and width == 512)
    name = math_function_name(*request)
    # Exports only the function; functions that it calls stay internal.
    lines = [
        line.replace("define internal", "define") if f"@{name}(" in line else line
        for line in text.definitions.splitlines()
    ]
    return "\n".join([*sorted(text.declarations), *lines, attributes])
