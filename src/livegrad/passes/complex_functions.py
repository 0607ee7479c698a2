"""Functions of complex numbers from their real and imaginary parts: roots, exponentials, logarithms, trigonometry.

In: the parts of an argument. Out: the parts of the result, with the branch cuts of C99 and its values for infinities
and signed zeros, and without overflow where the result does not overflow. `split_complex` calls these.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from livegrad.ir.node import Node
from livegrad.ir.op import Op
from livegrad.ir.types import Scalar, f32, f64, scalar_of
from livegrad.ops.comparison import equal, is_finite, is_infinite, is_nan
from livegrad.ops.conversion import cast
from livegrad.ops.elementwise import abs, copysign, maximum, minimum, select
from livegrad.ops.rules import filled
from livegrad.ops.transcendental import (
    atan2,
    cos,
    cosh,
    exp,
    hypot,
    log,
    log1p,
    log2,
    log10,
    sin,
    sinh,
    sqrt,
    tan,
    tanh,
)

# By the bits of a part.
_LARGE_EXPONENT = {32: 88.0, 64: 709.0}  # just below the overflow of exp
_SATURATED = {32: 10.0, 64: 21.0}  # where tanh rounds to 1
_LARGE = {32: 2.0**125, 64: 2.0**1021}  # a sum of four of these overflows
_SMALL = {32: 2.0**-100, 64: 2.0**-960}
_RAISE = {32: 2.0**40, 64: 2.0**80}  # the square of this raises the smallest numbers above `_SMALL`


class Parts(NamedTuple):
    """A complex value as two real ones."""

    re: Node
    im: Node


def _element(part: Node) -> Scalar:
    scalar = scalar_of(part.type)
    assert scalar is not None
    return scalar


def _infinite_or_nan(part: Node) -> Node:
    return ~is_finite(part)


def _exp(a: Parts) -> Parts:
    """exp(re) (cos im + i sin im), with the values of C99 for infinite parts, and without intermediate overflow."""
    is_large = a.re > _LARGE_EXPONENT[_element(a.re).bits]
    root = exp(select(is_large, a.re * 0.5, a.re))  # the square root of a large exp(re), which may overflow
    second_factor = select(is_large, root, filled(1.0, root.type))
    has_angle = is_finite(a.im)
    re = select(has_angle | ~is_infinite(a.re), root * cos(a.im) * second_factor, root)
    im = select(has_angle | (a.re > -math.inf), root * sin(a.im) * second_factor, root)
    return Parts(re, select(equal(a.im, 0.0), a.im, im))


def _sqrt(a: Parts) -> Parts:
    """The root in the right half plane. The larger part comes from a sum without cancellation."""
    bits = _element(a.re).bits
    size = maximum(abs(a.re), abs(a.im))
    is_large, is_small = size > _LARGE[bits], size < _SMALL[bits]
    one = filled(1.0, a.re.type)
    factor = select(is_large, 0.25 * one, select(is_small, _RAISE[bits] ** 2 * one, one))
    back = select(is_large, 2.0 * one, select(is_small, one / _RAISE[bits], one))
    re, im = a.re * factor, a.im * factor
    large = sqrt(0.5 * (abs(re) + hypot(re, im)))
    at_zero = equal(size, 0.0)
    small = select(at_zero, abs(im), 0.5 * abs(im) / select(at_zero, one, large))
    is_right = a.re >= 0.0
    is_left = a.re < 0.0
    root_re = back * select(is_left, small, large)
    root_im = back * select(is_right, small, large)
    unbounded = is_infinite(a.im)
    return Parts(select(unbounded, abs(a.im), root_re), select(unbounded, a.im, copysign(root_im, a.im)))


def _log(a: Parts) -> Parts:
    """log |z| and the angle. Near the unit circle, where log |z| vanishes, it is computed from |z|² - 1."""
    scalar = _element(a.re)
    larger, smaller = maximum(abs(a.re), abs(a.im)), minimum(abs(a.re), abs(a.im))
    is_large, is_small = larger > _LARGE[scalar.bits], larger < _SMALL[scalar.bits]
    one, nothing, raised = filled(1.0, larger.type), filled(0.0, larger.type), _RAISE[scalar.bits] ** 2
    scale = select(is_large, 0.25 * one, select(is_small, raised * one, one))
    shift = select(is_large, math.log(4.0) * one, select(is_small, -math.log(raised) * one, nothing))
    length = hypot(a.re * scale, a.im * scale)
    logarithm = log(length) + shift
    is_near = (length > 0.7) & (length < 1.5) & equal(scale, 1.0)
    excess = _square_excess(larger, smaller, scalar)
    near = 0.5 * log1p(select(is_near, excess, nothing))
    return Parts(select(is_near, near, logarithm), atan2(a.im, a.re))


def _square_excess(larger: Node, smaller: Node, scalar: Scalar) -> Node:
    """larger² + smaller² - 1, in double precision for single precision: there, the squares are exact."""
    if scalar is f32:
        larger, smaller = cast(larger, type=f64), cast(smaller, type=f64)
    excess = (larger - 1.0) * (larger + 1.0) + smaller * smaller
    return cast(excess, type=f32) if scalar is f32 else excess


def _hyperbolic(x: Node) -> tuple[Node, Node, Node]:
    """sinh(x) and cosh(x), each divided by a factor that is not 1 where they may overflow, and the factor."""
    is_large = abs(x) > _LARGE_EXPONENT[_element(x).bits]
    root = exp(select(is_large, 0.5 * abs(x), filled(0.0, x.type)))
    small = select(is_large, filled(0.0, x.type), x)
    half = 0.5 * root
    return select(is_large, copysign(half, x), sinh(small)), select(is_large, half, cosh(small)), root


def _times_angle(size: Node, factor: Node, angle: Node) -> Node:
    """size · factor · angle, where 0 · inf is 0 with the sign of the product."""
    vanishes = equal(size, 0.0) | equal(angle, 0.0)
    sign = copysign(filled(1.0, size.type), size) * copysign(filled(1.0, angle.type), angle)
    return select(vanishes, copysign(filled(0.0, size.type), sign), size * angle * factor)


def _sinh(a: Parts) -> Parts:
    odd, even, factor = _hyperbolic(a.re)
    re, im = _times_angle(odd, factor, cos(a.im)), _times_angle(even, factor, sin(a.im))
    # Without an angle, the real part is still zero or infinite.
    keeps_real = _infinite_or_nan(a.im) & (equal(a.re, 0.0) | is_infinite(a.re))
    return Parts(select(keeps_real, a.re, re), select(equal(a.im, 0.0), a.im, im))


def _cosh(a: Parts) -> Parts:
    odd, even, factor = _hyperbolic(a.re)
    re, im = _times_angle(even, factor, cos(a.im)), _times_angle(odd, factor, sin(a.im))
    no_angle = _infinite_or_nan(a.im)
    im = select(equal(a.re, 0.0) & no_angle, a.re, im)
    return Parts(select(is_infinite(a.re) & no_angle, abs(a.re), re), select(equal(a.im, 0.0) & is_nan(a.re), a.im, im))


def _tanh(a: Parts) -> Parts:
    """Kahan, "Branch cuts for complex elementary functions" (1987)."""
    is_saturated = abs(a.re) > _SATURATED[_element(a.re).bits]
    x = select(is_saturated, filled(0.0, a.re.type), a.re)
    slope, odd = tan(a.im), sinh(x)
    stretch = 1.0 + slope * slope
    divisor = 1.0 + stretch * odd * odd
    one = filled(1.0, x.type)
    decay = exp(-abs(a.re))
    tail = 4.0 * sin(a.im) * cos(a.im) * decay * decay
    # There, the result is one even without an angle, beside a zero with the sign of the angle, as in NumPy.
    at_infinity = is_infinite(a.re)
    im = select(is_saturated, select(at_infinity, copysign(filled(0.0, x.type), a.im), tail), slope / divisor)
    re = select(equal(a.re, 0.0), a.re, stretch * sqrt(1.0 + odd * odd) * odd / divisor)
    re = select(is_saturated & (at_infinity | is_finite(a.im)), copysign(one, a.re), re)
    return Parts(re, select(equal(a.im, 0.0), a.im, im))


def _rotated(function: Callable[[Parts], Parts]) -> Callable[[Parts], Parts]:
    """-i f(i z): the trigonometric function of an odd hyperbolic one."""

    def apply(a: Parts) -> Parts:
        result = function(Parts(-a.im, a.re))
        return Parts(result.im, -result.re)

    return apply


def _scaled_log(factor: float) -> Callable[[Parts], Parts]:
    def apply(a: Parts) -> Parts:
        logarithm = _log(a)
        return Parts(logarithm.re * factor, logarithm.im * factor)

    return apply


FUNCTIONS: dict[Op, Callable[[Parts], Parts]] = {
    sqrt: _sqrt,
    exp: _exp,
    log: _log,
    log2: _scaled_log(1.0 / math.log(2.0)),
    log10: _scaled_log(1.0 / math.log(10.0)),
    sinh: _sinh,
    cosh: _cosh,
    tanh: _tanh,
    sin: _rotated(_sinh),
    cos: lambda a: _cosh(Parts(-a.im, a.re)),
    tan: _rotated(_tanh),
}
