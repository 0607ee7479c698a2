"""sin, cos and tan.
In: an assembler and the argument. Out: the value of the function, written as instructions.
Called by ``library``."""

from livegrad.backends.cpu.vector_math import coefficients
from livegrad.backends.cpu.vector_math.assembler import Assembler, Value
from livegrad.backends.cpu.vector_math.element import PI
from livegrad.backends.cpu.vector_math.large_angles import (
    FOR_COS,
    FOR_SIN,
    FOR_TAN,
    LARGE_ANGLE,
    AngleReduction,
    large_angles_name,
)


def sin(a: Assembler, x: Value) -> Value:
    magnitude = a.abs(x)
    half_turns, multiple = a.nearest_integer(magnitude, a.element.round(1 / PI))
    r = a.subtract_multiple(magnitude, half_turns, a.element.split(PI, 3))
    r, multiple = _with_large_angles(a, FOR_SIN, magnitude, r, multiple)
    return a.flip_sign(_sin_to_half_pi(a, r), (multiple << (a.element.width - 1)) ^ a.sign_of(x))


def cos(a: Assembler, x: Value) -> Value:
    magnitude = a.abs(x)
    # cos(m·π + π/2 + r) = -(-1)^m · sin(r)
    quotient = a.fma(magnitude, a.element.round(1 / PI), -0.5)
    half_turns, multiple = a.nearest_integer(quotient, 1.0)
    r = a.subtract_multiple(magnitude, half_turns + 0.5, a.element.split(PI, 3))
    r, multiple = _with_large_angles(a, FOR_COS, magnitude, r, multiple)
    return a.flip_sign(_sin_to_half_pi(a, -r), multiple << (a.element.width - 1))


def tan(a: Assembler, x: Value) -> Value:
    magnitude = a.abs(x)
    quarter_turns, multiple = a.nearest_integer(magnitude, a.element.round(2 / PI))
    r = a.subtract_multiple(magnitude, quarter_turns, a.element.split(PI / 2, 3))
    r, multiple = _with_large_angles(a, FOR_TAN, magnitude, r, multiple)
    square = r * r
    tangent = a.fma(r * square, a.polynomial(square, coefficients.TAN[a.element.name]), r)
    # tan(r + π/2) = -1/tan(r)
    is_odd = (multiple & 1).equals(1)
    result = a.select(is_odd, 1.0 / tangent, tangent)
    return a.flip_sign(result, (multiple << (a.element.width - 1)) ^ a.sign_of(x))


def _sin_to_half_pi(a: Assembler, r: Value) -> Value:
    square = r * r
    tail = a.polynomial(square, coefficients.SIN_TO_HALF_PI[a.element.name])
    return a.fma(r * square, tail, r)


def _with_large_angles(
    a: Assembler, reduction: AngleReduction, magnitude: Value, r: Value, multiple: Value
) -> tuple[Value, Value]:
    """The rest and the multiple of the unit, those of large angles replaced. Of a multiple, only low bits count."""
    is_large = magnitude >= LARGE_ANGLE[a.element.name]

    def replace() -> tuple[Value, Value]:
        name = large_angles_name(reduction, a.element, a.lanes)
        large_r, large_multiple = a.call_helper(name, magnitude, (r.kind, multiple.kind))
        return a.select(is_large, large_r, r), a.select(is_large, large_multiple, multiple)

    r, multiple = a.when_any(is_large, (r, multiple), replace)
    return r, multiple
