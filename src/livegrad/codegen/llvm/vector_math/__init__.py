"""Vectorised math functions as LLVM IR text: exp, sin, pow and so on, for float32 and float64 and any lane count.
In: which functions a kernel calls. Out: their definitions. Called by the CPU kernel emitter."""

from livegrad.codegen.llvm.vector_math.math_functions import (
    MATH_FUNCTIONS,
    MathText,
    math_function_name,
    math_functions,
)

__all__ = ["MATH_FUNCTIONS", "MathText", "math_function_name", "math_functions"]
