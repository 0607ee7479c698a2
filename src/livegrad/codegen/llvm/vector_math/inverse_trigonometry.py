"""Emits asin, acos, atan and atan2. In: a math builder and the arguments. Out: the value of the function.

Called by ``math_functions``.
"""

from livegrad.codegen.llvm.values import Value
from livegrad.codegen.llvm.vector_math import coefficients
from livegrad.codegen.llvm.vector_math.element import PI
from livegrad.codegen.llvm.vector_math.math_builder import MathBuilder


def asin(a: MathBuilder, x: Value) -> Value:
    magnitude = a.abs(x)
    is_outer, root, tail = _asin_parts(a, magnitude)
    high, low = a.element.split(PI / 2, 2)
    # asin(x) = π/2 - 2·asin(√((1 - x)/2)), beyond ½.
    doubled = root + root
    outer = high - (doubled + a.fma(doubled, tail, -low))
    result = a.select(is_outer, outer, a.fma(root, tail, root))
    return a.copy_sign(result, x)


def acos(a: MathBuilder, x: Value) -> Value:
    is_outer, root, tail = _asin_parts(a, a.abs(x))
    is_negative = a.has_sign(x)
    # acos(x) = base - w - w·tail, with base π/2 inside; outside 0 for positive x and π for negative x.
    w = a.select(is_outer, a.copy_sign(root + root, -x), x)
    base = [
        a.select(is_outer, a.select(is_negative, whole, 0.0), half)
        for whole, half in zip(a.element.split(PI, 2), a.element.split(PI / 2, 2), strict=True)
    ]
    return base[0] - (w + a.fma(w, tail, -base[1]))


def atan(a: MathBuilder, x: Value) -> Value:
    magnitude = a.abs(x)
    is_steep = magnitude > 1.0
    ratio = a.select(is_steep, -1.0, magnitude) / a.select(is_steep, magnitude, 1.0)
    high, low = (a.select(is_steep, part, 0.0) for part in a.element.split(PI / 2, 2))
    return a.copy_sign(_base_plus_atan(a, high, low, ratio), x)


def atan2(a: MathBuilder, y: Value, x: Value) -> Value:
    rise, run = a.abs(y), a.abs(x)
    is_steep = rise > run
    numerator = a.select(is_steep, run, rise)
    denominator = a.select(is_steep, rise, run)
    ratio = numerator / denominator
    ratio = a.select(numerator.equals(denominator), 1.0, ratio)  # inf/inf
    ratio = a.select(denominator.equals(0.0), numerator, ratio)  # 0/0, and NaN/0 stays NaN
    leftward = a.sign_of(x)
    steep_sign = a.select(is_steep, a.integer_constant(a.element.sign_bit), 0)
    ratio = a.flip_sign(ratio, leftward ^ steep_sign)
    is_leftward = a.has_sign(x)
    high, low = (
        a.select(is_steep, half, a.select(is_leftward, whole, 0.0))
        for half, whole in zip(a.element.split(PI / 2, 2), a.element.split(PI, 2), strict=True)
    )
    return a.copy_sign(_base_plus_atan(a, high, low, ratio), y)


def _asin_parts(a: MathBuilder, magnitude: Value) -> tuple[Value, Value, Value]:
    """Whether |x| > ½; the reduced argument w; t with asin(w) = w + w·t. NaN for |x| > 1."""
    is_outer = magnitude > 0.5
    square = a.select(is_outer, (1.0 - magnitude) * 0.5, magnitude * magnitude)
    root = a.select(is_outer, a.sqrt(square), magnitude)
    return is_outer, root, a.polynomial(square, coefficients.ASIN[a.element.name]) * square


def _base_plus_atan(a: MathBuilder, high: Value, low: Value, x: Value) -> Value:
    """(high + low) + atan(x) for |x| <= 1."""
    square = x * x
    tail = a.polynomial(square, coefficients.ATAN[a.element.name]) * square
    return high + (x + a.fma(x, tail, low))
