"""Emits log, log2, log10, log1p, asinh, acosh and atanh. In: a math builder and the argument. Out: the result.

Called by ``math_functions``; ``powers`` uses the splitting of a number into mantissa and exponent.
"""

from fractions import Fraction
from math import inf, nan, sqrt

from livegrad.codegen.llvm.values import Value
from livegrad.codegen.llvm.vector_math import coefficients
from livegrad.codegen.llvm.vector_math.element import F32, F64, LN_2, LN_10
from livegrad.codegen.llvm.vector_math.math_builder import MathBuilder
from livegrad.codegen.llvm.vector_math.processor_features import fix_logarithm, split_magnitude

# Above this bound, adding 1 does not change a square.
_SQUARE_ABSORBS_ONE = {"f32": 2.0**13, "f64": 2.0**28}

# Mantissas lie between this and twice this. AVX-512 has an instruction for ¾.
_LEAST_MANTISSA = {"f32": 0.75, "f64": sqrt(0.5)}


def log(a: MathBuilder, x: Value) -> Value:
    return _logarithm(a, x, base_logarithm=Fraction(1))


def log2(a: MathBuilder, x: Value) -> Value:
    return _logarithm(a, x, base_logarithm=LN_2)


def log10(a: MathBuilder, x: Value) -> Value:
    return _logarithm(a, x, base_logarithm=LN_10)


def log1p(a: MathBuilder, x: Value) -> Value:
    result = _log_of_one_plus(a, x)
    result = a.select(x < inf, result, x)
    result = a.select(x.equals(0.0), x, result)
    return a.select(x <= -1.0, a.select(x.equals(-1.0), -inf, nan), result)


def asinh(a: MathBuilder, x: Value) -> Value:
    magnitude = a.abs(x)
    is_large = magnitude > _SQUARE_ABSORBS_ONE[a.element.name]
    square = magnitude * magnitude
    # asinh(x) = log1p(x + (√(x² + 1) - 1)), the bracket without cancellation; log(x) + log(2) for large x.
    argument = magnitude + square / (a.sqrt(square + 1.0) + 1.0)
    result = _log_of_one_plus(a, argument, instead=magnitude, where=is_large)
    result = a.select(magnitude < inf, result, magnitude)
    return a.copy_sign(result, x)


def acosh(a: MathBuilder, x: Value) -> Value:
    is_large = x > _SQUARE_ABSORBS_ONE[a.element.name]
    beyond_one = x - 1.0
    argument = beyond_one + a.sqrt(beyond_one * (beyond_one + 2.0))
    result = _log_of_one_plus(a, argument, instead=x, where=is_large)
    result = a.select(x < inf, result, x)
    return a.select(x < 1.0, nan, result)


def atanh(a: MathBuilder, x: Value) -> Value:
    magnitude = a.abs(x)
    result = _log_of_one_plus(a, (magnitude + magnitude) / (1.0 - magnitude)) * 0.5
    result = a.select(magnitude < 1.0, result, a.select(magnitude.equals(1.0), inf, nan))
    return a.copy_sign(result, x)


def split_exponent(a: MathBuilder, x: Value) -> tuple[Value, Value]:
    """k and m with x = m·2^k and m near 1, for positive normal x; k is an integer."""
    bits = a.bits(x)
    least = a.element.bits_of(a.element.round(_LEAST_MANTISSA[a.element.name]))
    exponent = (bits - least) >> a.element.mantissa_bits
    return exponent, a.from_bits(bits - (exponent << a.element.mantissa_bits))


def is_positive_normal(a: MathBuilder, x: Value) -> Value:
    return (x >= a.element.smallest_normal) & (x < inf)


def split_any_exponent(a: MathBuilder, x: Value) -> tuple[Value, Value]:
    """Like ``split_exponent``, but k is a float, and x may be denormal or negative: its magnitude is split."""
    if a.avx512 and a.element is F32:
        return split_magnitude(a, x)
    magnitude = a.abs(x)
    shift = a.element.mantissa_bits + 2
    is_denormal = magnitude < a.element.smallest_normal
    exponent, mantissa = split_exponent(a, a.select(is_denormal, magnitude * 2.0**shift, magnitude))
    return a.small_integer_to_float(a.select(is_denormal, exponent - shift, exponent)), mantissa


def split_usual_exponent(a: MathBuilder, x: Value, is_usual: Value) -> tuple[Value, Value]:
    """Like ``split_any_exponent``, but faster if all lanes are usual.

    ``is_usual`` must imply that x is positive and normal.
    """
    exponent, mantissa = split_exponent(a, x)
    usual = a.small_integer_to_float(exponent), mantissa
    exponent, mantissa = a.when_any(~is_usual, usual, lambda: split_any_exponent(a, x))
    return exponent, mantissa


def _logarithm(a: MathBuilder, x: Value, base_logarithm: Fraction) -> Value:
    if a.avx512 and a.element is F32:
        exponent, mantissa = split_any_exponent(a, x)
        return fix_logarithm(a, _combine(a, exponent, mantissa - 1.0, base_logarithm), x)
    is_usual = is_positive_normal(a, x)
    exponent, mantissa = split_usual_exponent(a, x, is_usual)
    result = _combine(a, exponent, mantissa - 1.0, base_logarithm)

    def replace() -> tuple[Value]:
        finite = a.select(x < inf, result, x)
        return (a.select(x <= 0.0, a.select(x.equals(0.0), -inf, nan), finite),)

    return a.when_any(~is_usual, (result,), replace)[0]


def _combine(a: MathBuilder, exponent: Value, f: Value, base_logarithm: Fraction) -> Value:
    """(exponent·log(2) + log(1 + f)) / base_logarithm, summed from the smallest term to the largest."""
    ln_2_high, ln_2_low = a.element.split(LN_2 / base_logarithm, 2)
    unit_high, unit_low = a.element.split(1 / base_logarithm, 2)
    scale = float(1 / base_logarithm)
    tail = [-0.5 * scale] + [c * scale for c in coefficients.LOG[a.element.name]]
    polynomial = a.polynomial_in_two_chains if a.element is F64 else a.polynomial
    rest = polynomial(f, tail) * (f * f)
    if unit_low:
        rest = a.fma(f, unit_low, rest)
    if ln_2_low:
        rest = a.fma(exponent, ln_2_low, rest)
    if ln_2_high == 1.0:
        # With the rounding error of the product, because the product may be twice the result.
        product, error = a.two_product(f, a.constant(unit_high))
        return (exponent + product) + (rest + error)
    rest = rest + f if base_logarithm == 1 else a.fma(f, unit_high, rest)
    return a.fma(exponent, ln_2_high, rest)


def _log_of_one_plus(a: MathBuilder, x: Value, instead: Value | None = None, where: Value | None = None) -> Value:
    """log(1 + x) for finite x > -1; in the lanes ``where``, log(2·instead)."""
    u = x + 1.0
    lost = x - (u - 1.0)  # the rounding error of the sum
    if instead is not None and where is not None:
        u = a.select(where, instead, u)
        lost = a.select(where, 0.0, lost)
    exponent, mantissa = split_exponent(a, u)
    # The error is negligible if u is as large as the limit, and 2^-limit is a normal number.
    limited = a.select(exponent > 100, 100, exponent)
    scale = a.from_bits((a.element.bias - limited) << a.element.mantissa_bits)
    f = a.fma(lost, scale, mantissa - 1.0)
    if where is not None:
        exponent = a.select(where, exponent + 1, exponent)
    return _combine(a, a.small_integer_to_float(exponent), f, Fraction(1))
