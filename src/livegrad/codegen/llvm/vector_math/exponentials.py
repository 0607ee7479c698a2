"""Emits exp, exp2, expm1, sinh, cosh and tanh. In: a math builder and the argument. Out: the value of the function.

Called by ``math_functions``; ``error_function`` and ``powers`` use the parts without special cases.
"""

from livegrad.codegen.llvm.values import Value
from livegrad.codegen.llvm.vector_math import coefficients
from livegrad.codegen.llvm.vector_math.element import LN_2
from livegrad.codegen.llvm.vector_math.math_builder import MathBuilder
from livegrad.codegen.llvm.vector_math.processor_features import scale_by_power

# Beyond these exponents of two, every result is zero or infinite.
_LEAST_EXPONENT = {"f32": -152.0, "f64": -1078.0}
_GREATEST_EXPONENT = {"f32": 129.0, "f64": 1025.0}


def exp(a: MathBuilder, x: Value) -> Value:
    x = a.at_most(x, _GREATEST_EXPONENT[a.element.name] * float(LN_2))
    x = a.at_least(x, _LEAST_EXPONENT[a.element.name] * float(LN_2))
    n, n_bits = a.nearest_integer(x, a.element.round(1 / LN_2))
    r = a.subtract_multiple(x, n, a.element.split(LN_2, 2))
    return scale_by_power(a, a.polynomial(r, (1.0, 1.0, *coefficients.EXPM1[a.element.name])), n, n_bits)


def exp2(a: MathBuilder, x: Value) -> Value:
    x = a.at_most(x, _GREATEST_EXPONENT[a.element.name])
    return exp2_of_sum(a, a.at_least(x, _LEAST_EXPONENT[a.element.name]), None)


def exp2_of_sum(a: MathBuilder, x: Value, correction: Value | None) -> Value:
    """2^(x + correction) for x within the exponent range and a correction much smaller than 1."""
    n, n_bits = a.nearest_integer(x, 1.0)
    r = x - n
    if correction is not None:
        r = r + correction
    return scale_by_power(a, a.polynomial(r, (1.0, *coefficients.EXP2[a.element.name])), n, n_bits)


def expm1(a: MathBuilder, x: Value) -> Value:
    # Below the lower bound the result rounds to -1.
    clamped = a.at_least(x, {"f32": -20.0, "f64": -40.0}[a.element.name])
    # The result is infinite at the upper bound and above; the exponent n must not exceed bias + 1.
    clamped = a.at_most(clamped, (a.element.bias + 1.4) * float(LN_2))
    fraction, half_power = _expm1_parts(a, clamped, exponent_offset=-1)
    # exp(x)/2 - ½: halved, so that 2^128 (2^1024) does not overflow.
    result = a.fma(half_power, fraction, half_power - 0.5) * 2.0
    # Halving would round denormals, and lose the sign of zero.
    return a.select(a.abs(x) < a.element.smallest_normal * 2.0**a.element.mantissa_bits, x, result)


def tanh(a: MathBuilder, x: Value) -> Value:
    # Above the upper bound the result rounds to 1.
    magnitude = a.at_most(a.abs(x), {"f32": 9.5, "f64": 20.0}[a.element.name])
    square = magnitude * magnitude
    inner = a.fma(magnitude * square, a.polynomial(square, coefficients.TANH[a.element.name]), magnitude)
    # 1 - 2/(exp(2x) + 1): errors of the quotient are small compared to 1.
    fraction, power = _expm1_parts(a, magnitude * 2.0, exponent_offset=0)
    outer = 1.0 - 2.0 / a.fma(power, fraction, power + 1.0)
    return a.copy_sign(a.select(magnitude < 0.5625, inner, outer), x)


def sinh(a: MathBuilder, x: Value) -> Value:
    magnitude = a.abs(x)
    cosh_r_minus_1, sinh_r, half_cosh_n, half_sinh_n = _hyperbolic_parts(a, magnitude)
    # sinh(n·ln 2 + r) by the addition theorem; for n = 0 this is sinh(r) exactly.
    result = a.fma(half_sinh_n, cosh_r_minus_1, half_cosh_n * sinh_r) + half_sinh_n
    tiny = magnitude < a.element.smallest_normal * 2.0**a.element.mantissa_bits
    return a.copy_sign(a.select(tiny, magnitude, result * 2.0), x)


def cosh(a: MathBuilder, x: Value) -> Value:
    cosh_r_minus_1, sinh_r, half_cosh_n, half_sinh_n = _hyperbolic_parts(a, a.abs(x))
    return (a.fma(half_cosh_n, cosh_r_minus_1, half_sinh_n * sinh_r) + half_cosh_n) * 2.0


def exp_of_moderate(a: MathBuilder, x: Value) -> Value:
    """exp(x) where the result is a normal number."""
    fraction, power = _expm1_parts(a, x, exponent_offset=0)
    return a.fma(power, fraction, power)


def _expm1_parts(a: MathBuilder, x: Value, exponent_offset: int) -> tuple[Value, Value]:
    """p and s with exp(x) = (1 + p)·2^n and s = 2^(n + exponent_offset)."""
    n, power = a.nearest_power(x, a.element.round(1 / LN_2), exponent_offset)
    r = a.subtract_multiple(x, n, a.element.split(LN_2, 2))
    return a.fma(r * r, a.polynomial(r, coefficients.EXPM1[a.element.name]), r), power


def _hyperbolic_parts(a: MathBuilder, magnitude: Value) -> tuple[Value, Value, Value, Value]:
    """cosh(r) - 1 and sinh(r), then half of cosh(n·ln 2) and of sinh(n·ln 2), where magnitude = n·ln 2 + r."""
    # The result is infinite at the bound and above; the exponent n must not exceed bias + 2.
    magnitude = a.at_most(magnitude, (a.element.bias + 2.4) * float(LN_2))
    n, n_bits = a.nearest_integer(magnitude, a.element.round(1 / LN_2))
    r = a.subtract_multiple(magnitude, n, a.element.split(LN_2, 2))
    square = r * r
    sinh_r = a.fma(r * square, a.polynomial(square, coefficients.SINH[a.element.name]), r)
    tail = a.polynomial(square, coefficients.COSH[a.element.name])
    cosh_r_minus_1 = a.fma(square * square, tail, square * 0.5)
    quarter_exponent = a.element.bias - 2
    growing = a.from_bits((n_bits + quarter_exponent) << a.element.mantissa_bits)
    # 2^-n becomes negligible long before it would be denormal.
    limit = a.element.bits_of(a.element.rounding_magic) + 100
    n_bits = a.select(n_bits > limit, limit, n_bits)
    shrinking = a.from_bits((quarter_exponent - n_bits) << a.element.mantissa_bits)
    return cosh_r_minus_1, sinh_r, growing + shrinking, growing - shrinking
