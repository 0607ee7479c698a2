"""Emits fmod, exact as in C. In: a math builder and the arguments. Out: the remainder, computed in a loop.

Called by ``math_functions``.
"""

from math import inf, nan

from livegrad.codegen.llvm.values import Value
from livegrad.codegen.llvm.vector_math.math_builder import MathBuilder

# Scaling the divisor twice by this factor keeps the quotient of any two numbers from overflowing.
_DIVISOR_STEP = {"f32": 2.0**76, "f64": 2.0**538}


def fmod(a: MathBuilder, x: Value, y: Value) -> Value:
    divisor = a.abs(y)

    def reduce_once(remainder: Value) -> Value:
        # If the quotient would overflow, a multiple of the divisor is subtracted.
        step = _DIVISOR_STEP[a.element.name]
        magnitude = a.abs(remainder)
        multiple = divisor
        for _ in range(2):
            multiple = a.select(magnitude * (1.0 / step) > multiple, multiple * step, multiple)
        # The quotient has as many bits as a mantissa, and its error is at most one in the last of them, so the
        # difference fits in a mantissa: the fma is exact. Each step removes 23 (52) bits of the ratio.
        return a.fma(-a.trunc(remainder / multiple), multiple, remainder)

    # Infinite arguments and a zero divisor give NaN, for which the comparison is false: the loop ends.
    remainder = a.repeat_while_any(a.abs(x), lambda value: a.abs(value) >= divisor, reduce_once)
    remainder = a.select(remainder < 0.0, remainder + divisor, remainder)
    is_valid = (a.abs(x) < inf) & (divisor > 0.0)
    return a.copy_sign(a.select(is_valid, remainder, nan), x)
