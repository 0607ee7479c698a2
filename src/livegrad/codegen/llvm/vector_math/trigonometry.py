"""Emits sin, cos and tan. In: a math builder and the argument. Out: the value of the function.

Called by ``math_functions``.
"""

from livegrad.codegen.llvm.values import Value
from livegrad.codegen.llvm.vector_math import coefficients
from livegrad.codegen.llvm.vector_math.element import F64, Element
from livegrad.codegen.llvm.vector_math.large_angles import (
    FOR_COS,
    FOR_SIN,
    FOR_TAN,
    LARGE_ANGLE,
    AngleReduction,
    large_angles_name,
)
from livegrad.codegen.llvm.vector_math.math_builder import MathBuilder
from livegrad.codegen.llvm.vector_math.processor_features import keep_zero
from livegrad.ir.types import f32, f64, i32

# From here on, the multiple of π computed in float32 is too inaccurate, and float64 is used.
_LARGE_FOR_FLOAT32 = 2.0**19


def sin(a: MathBuilder, x: Value) -> Value:
    r, multiple = _reduce_angle(a, x, FOR_SIN)
    result = a.flip_sign(_sin_to_half_pi(a, r), multiple << (a.element.width - 1))
    return keep_zero(a, result, x)


def cos(a: MathBuilder, x: Value) -> Value:
    r, multiple = _reduce_angle(a, a.abs(x), FOR_COS)
    # cos(m·π + π/2 + r) = (-1)^m · sin(-r)
    return a.flip_sign(_sin_to_half_pi(a, -r), multiple << (a.element.width - 1))


def tan(a: MathBuilder, x: Value) -> Value:
    r, multiple = _reduce_angle(a, x, FOR_TAN)
    square = r * r
    tail = a.polynomial_in_two_chains(square, coefficients.TAN[a.element.name])
    tangent = a.fma(r * square, tail, r)
    # tan(π/2 + r) = -1/tan(r)
    is_odd = (multiple & 1).equals(1)
    result = a.select(is_odd, 1.0 / tangent, tangent)
    return keep_zero(a, a.flip_sign(result, multiple << (a.element.width - 1)), x)


def _sin_to_half_pi(a: MathBuilder, r: Value) -> Value:
    square = r * r
    return a.fma(r * square, a.polynomial(square, coefficients.SIN_TO_HALF_PI[a.element.name]), r)


def _reduce_angle(a: MathBuilder, x: Value, reduction: AngleReduction) -> tuple[Value, Value]:
    """r and m with x = m·unit + offset + r. The upper bits of m are arbitrary."""
    r, multiple = _subtract_units(a, x, reduction, a.element)
    if a.element is F64:
        return _replace_large(a, x, reduction, r, multiple)

    def replace() -> tuple[Value, Value]:
        precise_r, precise_multiple = _subtract_units(a, a.convert(x, f64), reduction, F64)
        precise_r, precise_multiple = a.convert(precise_r, f32), a.convert(precise_multiple, i32)
        precise_r, precise_multiple = _replace_large(a, x, reduction, precise_r, precise_multiple)
        is_large = a.abs(x) >= _LARGE_FOR_FLOAT32
        return a.select(is_large, precise_r, r), a.select(is_large, precise_multiple, multiple)

    r, multiple = a.when(a.any_square_above(x, _LARGE_FOR_FLOAT32**2), (r, multiple), replace)
    return r, multiple


def _subtract_units(a: MathBuilder, x: Value, reduction: AngleReduction, element: Element) -> tuple[Value, Value]:
    inverse = element.round(1 / reduction.unit)
    parts = element.split(reduction.unit, 3)
    offset = reduction.units_in_offset
    if not offset:
        multiple, multiple_bits = a.nearest_integer(x, inverse)
        return a.subtract_multiple(x, multiple, parts), multiple_bits
    multiple, multiple_bits = a.nearest_integer(a.fma(x, inverse, -offset), 1.0)
    return a.subtract_multiple(x, multiple + offset, parts), multiple_bits


def _replace_large(
    a: MathBuilder, x: Value, reduction: AngleReduction, r: Value, multiple: Value
) -> tuple[Value, Value]:
    def replace() -> tuple[Value, Value]:
        magnitude = a.abs(x)
        name = large_angles_name(reduction, a.element, a.lanes)
        large_r, large_multiple = a.call_helper(name, magnitude, (r.type, multiple.type))
        if not reduction.quarters_in_offset:
            # -x = (-m)·unit + (-r), and the low bit of -m is that of m.
            large_r = a.flip_sign(large_r, a.sign_of(x))
        is_large = magnitude >= LARGE_ANGLE
        return a.select(is_large, large_r, r), a.select(is_large, large_multiple, multiple)

    r, multiple = a.when(a.any_square_above(x, LARGE_ANGLE**2), (r, multiple), replace)
    return r, multiple
