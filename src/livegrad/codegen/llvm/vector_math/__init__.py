"""Vectorised math functions as LLVM IR: exp, sin, pow and so on, for float32 and float64 and any lane count.

In: the functions that kernels call. Out: their definitions. Called by `runtime/cpu/math_library.py`.
"""

from livegrad.codegen.llvm.vector_math.math_functions import (
    MATH_FUNCTIONS,
    MathText,
    math_function_name,
    math_functions,
)

__all__ = ["MATH_FUNCTIONS", "MathText", "math_function_name", "math_functions"]
