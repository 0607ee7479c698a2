"""Declarations of the math functions that a kernel calls. The run time compiles each function once, for all kernels."""

from __future__ import annotations

from livegrad.codegen.llvm.baseline_lanes import is_lane_function, lane_declaration
from livegrad.codegen.llvm.registers import llvm_type
from livegrad.codegen.llvm.vector_math import MATH_FUNCTIONS, math_function_name
from livegrad.ir.types import SCALARS

MathRequest = tuple[str, str, int]  # function, element, lanes


def math_declaration(request: MathRequest) -> str:
    """How a kernel declares a function of the library: pure, so that calls can be shared and moved out of loops."""
    function, element, lanes = request
    if is_lane_function(function):
        return lane_declaration(*request)
    vector = llvm_type(SCALARS[element], lanes)
    arguments = ", ".join([vector] * MATH_FUNCTIONS[function])
    return f"declare fastcc {vector} @{math_function_name(*request)}({arguments}) nounwind willreturn memory(none)"
