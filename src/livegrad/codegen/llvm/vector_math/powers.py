"""Emits pow, cbrt and hypot. In: a math builder and the arguments. Out: the value of the function.

Called by ``math_functions``.
"""

from fractions import Fraction
from math import inf, log2, nan

from livegrad.codegen.llvm.values import Value
from livegrad.codegen.llvm.vector_math import coefficients
from livegrad.codegen.llvm.vector_math.element import F32, LN_2
from livegrad.codegen.llvm.vector_math.exponentials import exp2_of_sum
from livegrad.codegen.llvm.vector_math.logarithms import is_positive_normal, split_any_exponent, split_exponent
from livegrad.codegen.llvm.vector_math.math_builder import MathBuilder
from livegrad.codegen.llvm.vector_math.processor_features import look_up, split_positive

# Beyond this exponent of two, every result is zero or infinite.
_EXPONENT_LIMIT = {"f32": 152.0, "f64": 1078.0}
# AVX-512 scales by any power of two; up to this exponent, the error of the product y·log2(x) is much smaller than 1.
_GREATEST_USUAL_EXPONENT = 2.0**10

# log2(1/c) for reciprocals c, in two parts.
_RECIPROCALS = tuple(numerator / 128 for numerator in coefficients.RECIPROCALS_IN_128)
_LOG2_HIGH = tuple(round(-log2(c) * 2**15) / 2**15 for c in _RECIPROCALS)
_LOG2_LOW = tuple(-log2(c) - high for c, high in zip(_RECIPROCALS, _LOG2_HIGH, strict=True))


def pow(a: MathBuilder, x: Value, y: Value) -> Value:
    """2^(y·log2(x)), with the exponent in two parts, because its absolute error is the relative error of the result."""
    product, error, is_unusual = _usual_exponent(a, x, y)

    def replace() -> tuple[Value]:
        product, error = _times_log2(a, *split_any_exponent(a, x), y)
        limit = _EXPONENT_LIMIT[a.element.name]
        error = a.select(a.abs(product) < limit, error, 0.0)
        product = a.at_least(a.at_most(product, limit), -limit)
        return (_pow_special_cases(a, x, y, exp2_of_sum(a, product, error)),)

    return a.when(is_unusual, (exp2_of_sum(a, product, error),), replace)[0]


def cbrt(a: MathBuilder, x: Value) -> Value:
    magnitude = a.abs(x)
    # Tiny numbers are scaled by a cube, because the residual below would be denormal.
    shift = {"f32": 32, "f64": 200}[a.element.name]
    is_tiny = magnitude < 2.0 ** (-2 * shift)
    scaled = a.select(is_tiny, magnitude * 2.0 ** (3 * shift), magnitude)
    inverse = _inverse_cbrt(a, scaled)
    square = inverse * inverse
    root = scaled * square
    # One Newton step with the residual scaled - root³ to twice the precision.
    root_square, error = a.two_product(root, root)
    residual = a.fma(-error, root, a.fma(-root_square, root, scaled))
    root = a.fma(residual * square, a.element.round(Fraction(1, 3)), root)
    root = a.select(is_tiny, root * 2.0**-shift, root)
    is_regular = (magnitude > 0.0) & (magnitude < inf)
    return a.copy_sign(a.select(is_regular, root, magnitude), x)


def hypot(a: MathBuilder, x: Value, y: Value) -> Value:
    x, y = a.abs(x), a.abs(y)
    is_infinite = x.equals(inf) | y.equals(inf)  # even if the other is NaN
    larger = a.select(x > y, x, y)
    # Both are scaled by the power of two that brings the larger one near 1. Its exponent is clamped, so that the scale
    # and its inverse are normal numbers.
    unit = 1 << a.element.mantissa_bits
    exponent = a.bits(larger) & a.element.infinity_bits
    exponent = a.select(exponent < unit, unit, exponent)
    greatest = (2 * a.element.bias - 1) * unit
    exponent = a.select(exponent > greatest, greatest, exponent)
    scale = a.from_bits(2 * a.element.bias * unit - exponent)
    x_scaled, y_scaled = x * scale, y * scale
    root = a.sqrt(a.fma(x_scaled, x_scaled, y_scaled * y_scaled))
    return a.select(is_infinite, inf, root * a.from_bits(exponent))


def _usual_exponent(a: MathBuilder, x: Value, y: Value) -> tuple[Value, Value, Value]:
    """y·log2(x) in two parts, and whether some lane needs the general path: x not a positive normal, or an overflow."""
    if a.avx512 and a.element is F32:
        # If x has no logarithm, the product is NaN or infinite.
        product, error = _times_log2(a, *split_positive(a, x), y)
        return product, error, a.any_square_above(product, _GREATEST_USUAL_EXPONENT**2)
    exponent, mantissa = split_exponent(a, x)
    product, error = _times_log2(a, a.small_integer_to_float(exponent), mantissa, y)
    is_usual = is_positive_normal(a, x) & (a.abs(product) < _EXPONENT_LIMIT[a.element.name])
    return product, error, a.any_lane(~is_usual)


def _times_log2(a: MathBuilder, exponent: Value, mantissa: Value, y: Value) -> tuple[Value, Value]:
    """y·(exponent + log2(mantissa)) in two parts."""
    logarithm = _log2_by_table if a.element is F32 else _log2_in_two_parts
    high, low = logarithm(a, exponent, mantissa)
    product, error = a.two_product(y, high)
    return product, a.fma(y, low, error)


def _log2_by_table(a: MathBuilder, exponent: Value, mantissa: Value) -> tuple[Value, Value]:
    """exponent + log2(mantissa) for float32, with a relative error of about 2^-32.

    With c the reciprocal of a number near m, log2(m) = log2(1/c) + log2(1 + f), where f = m·c - 1 is exact and small.
    Measured with 64 lanes, it takes 0.6 of the time of a polynomial in float64.
    """
    index = a.bits(mantissa) >> (a.element.mantissa_bits - 5)
    f = a.fma(mantissa, look_up(a, "reciprocals", _RECIPROCALS, index), -1.0)
    # Exact: the table's numbers are multiples of 2^-15.
    whole = exponent + look_up(a, "log2_high", _LOG2_HIGH, index)
    unit_high, unit_low = a.element.split(1 / LN_2, 2)
    second, *higher = coefficients.LOG2_NEAR_ONE["f32"]
    # Two terms are added with the rounding errors of the sums, which are exact, because the terms are small.
    square = f * f
    first_sum = a.fma(f, unit_high, whole)
    total = a.fma(square, second, first_sum)
    rest = a.fma(f, unit_high, whole - first_sum) + a.fma(f, unit_low, look_up(a, "log2_low", _LOG2_LOW, index))
    rest = a.fma(f * square, a.polynomial(f, higher), rest)
    return total, a.fma(square, second, first_sum - total) + rest


def _log2_in_two_parts(a: MathBuilder, exponent: Value, mantissa: Value) -> tuple[Value, Value]:
    """exponent + log2(mantissa) to about one and a half times the precision of the element.

    log2(m) = s·(c1 + s²·(c3 + s²·P(s²))) with s = (m - 1)/(m + 1); all except P is computed in two parts.
    """
    c1_high, c1_low = a.element.split(2 / LN_2, 2)
    c3_high, c3_low = a.element.split(2 / (3 * LN_2), 2)
    f = mantissa - 1.0
    divisor, divisor_error = a.fast_two_sum(2.0, f)
    inverse = 1.0 / divisor
    s = f * inverse
    s_low = a.fma(-s, divisor_error, a.fma(-s, divisor, f)) * inverse
    square, square_low = a.two_product(s, s)
    square_low = a.fma(s + s, s_low, square_low)

    tail = a.polynomial(square, coefficients.LOG2_ATANH[a.element.name]) * square
    inner, inner_low = a.fast_two_sum(c3_high, tail)
    inner_low = inner_low + c3_low
    middle, middle_low = a.two_product(square, inner)
    middle_low = a.fma(square, inner_low, a.fma(square_low, inner, middle_low))
    outer, outer_low = a.fast_two_sum(c1_high, middle)
    outer_low = outer_low + (middle_low + c1_low)
    log, log_low = a.two_product(s, outer)
    log_low = a.fma(s, outer_low, a.fma(s_low, outer, log_low))
    total, total_low = a.fast_two_sum(exponent, log)
    return total, total_low + log_low


def _pow_special_cases(a: MathBuilder, x: Value, y: Value, result: Value) -> Value:
    """Applies the special cases of C99's annex F, given the power of |x| for finite nonzero arguments."""
    base, magnitude = a.abs(x), a.abs(y)
    is_extreme = base.equals(0.0) | base.equals(inf) | magnitude.equals(inf)
    grows = ~((base > 1.0) ^ (y > 0.0))
    result = a.select(is_extreme, a.select(grows, inf, 0.0), result)
    result = a.select(base.equals(1.0), 1.0, result)

    is_integer = a.trunc(y).equals(y)
    half = y * 0.5
    is_odd = is_integer & ~a.trunc(half).equals(half)
    is_negative = a.has_sign(x)
    odd_sign = a.select(is_odd & is_negative, a.integer_constant(a.element.sign_bit), 0)
    result = a.flip_sign(result, odd_sign)
    has_no_value = is_negative & ~is_integer & (base > 0.0) & (base < inf)
    result = a.select(has_no_value, nan, result)
    # NaN operands give NaN, except 1^NaN and NaN^0.
    is_number = base.equals(base) & magnitude.equals(magnitude)
    result = a.select(is_number, result, nan)
    return a.select(x.equals(1.0) | y.equals(0.0), 1.0, result)


def _inverse_cbrt(a: MathBuilder, x: Value) -> Value:
    """x^(-1/3) to nearly full precision, for finite x far from underflow."""
    # Dividing the bit pattern by -3 gives a first guess with an error of 4 %. Its upper bits suffice.
    dropped = a.element.mantissa_bits - 12
    _, third = a.nearest_integer(a.small_integer_to_float(a.bits(x) >> dropped), -1.0 / 3.0)
    guess = a.from_bits((third + round((a.element.bias * 4 / 3 - 0.05) * 2**12)) << dropped)
    for _ in range({"f32": 2, "f64": 3}[a.element.name]):
        # Halley's third-order step.
        error = a.fma(-(x * guess) * guess, guess, 1.0)
        guess = a.fma(guess * error, a.fma(error, 2.0 / 9.0, 1.0 / 3.0), guess)
    return guess
