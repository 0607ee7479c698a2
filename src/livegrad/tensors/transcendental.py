"""Elementwise roots, exponentials, logarithms and trigonometric functions of the tensor namespace.

They take floats and complex numbers; integers are first converted to the default float type.
"""

from __future__ import annotations

from typing import Any

from livegrad.ir.op import Op
from livegrad.ops import elementwise as arithmetic
from livegrad.ops import floating, transcendental
from livegrad.tensors.handle import Tensor, match_operands, node_of, wrap
from livegrad.tensors.operands import to_inexact


def _unary(op: Op, x: Any) -> Tensor:
    return wrap(op(to_inexact(node_of(x, op.name), op.name)))


def _binary(op: Op, first: Any, second: Any) -> Tensor:
    a, b = match_operands(op.name, first, second)
    return wrap(op(to_inexact(a, op.name), to_inexact(b, op.name)))


def acos(x: Any, /) -> Tensor:
    """The angle in [0, pi] whose cosine is x.

    >>> import livegrad as lg
    >>> lg.acos(lg.asarray([1.0, 0.0]))
    Tensor([0.       , 1.5707964], dtype=float32)
    """
    return _unary(transcendental.acos, x)


def acosh(x: Any, /) -> Tensor:
    """The inverse of cosh.

    >>> import livegrad as lg
    >>> lg.acosh(lg.asarray([1.0]))
    Tensor([0.], dtype=float32)
    """
    return _unary(transcendental.acosh, x)


def asin(x: Any, /) -> Tensor:
    """The angle in [-pi/2, pi/2] whose sine is x.

    >>> import livegrad as lg
    >>> lg.asin(lg.asarray([0.0, 1.0]))
    Tensor([0.       , 1.5707964], dtype=float32)
    """
    return _unary(transcendental.asin, x)


def asinh(x: Any, /) -> Tensor:
    """The inverse of sinh.

    >>> import livegrad as lg
    >>> lg.asinh(lg.asarray([0.0]))
    Tensor([0.], dtype=float32)
    """
    return _unary(transcendental.asinh, x)


def atan(x: Any, /) -> Tensor:
    """The angle in [-pi/2, pi/2] whose tangent is x.

    >>> import livegrad as lg
    >>> lg.atan(lg.asarray([0.0]))
    Tensor([0.], dtype=float32)
    """
    return _unary(transcendental.atan, x)


def atanh(x: Any, /) -> Tensor:
    """The inverse of tanh.

    >>> import livegrad as lg
    >>> lg.atanh(lg.asarray([0.0]))
    Tensor([0.], dtype=float32)
    """
    return _unary(transcendental.atanh, x)


def cos(x: Any, /) -> Tensor:
    """The cosine of an angle in radians.

    >>> import livegrad as lg
    >>> lg.cos(lg.asarray([0.0]))
    Tensor([1.], dtype=float32)
    """
    return _unary(transcendental.cos, x)


def cosh(x: Any, /) -> Tensor:
    """The hyperbolic cosine.

    >>> import livegrad as lg
    >>> lg.cosh(lg.asarray([0.0]))
    Tensor([1.], dtype=float32)
    """
    return _unary(transcendental.cosh, x)


def exp(x: Any, /) -> Tensor:
    """e to the power of x.

    >>> import livegrad as lg
    >>> lg.exp(lg.asarray([0.0]))
    Tensor([1.], dtype=float32)
    """
    return _unary(transcendental.exp, x)


def expm1(x: Any, /) -> Tensor:
    """exp(x) - 1, accurate near zero.

    >>> import livegrad as lg
    >>> lg.expm1(lg.asarray([0.0]))
    Tensor([0.], dtype=float32)
    """
    return _unary(transcendental.expm1, x)


def log(x: Any, /) -> Tensor:
    """The natural logarithm.

    >>> import livegrad as lg
    >>> lg.log(lg.asarray([1.0]))
    Tensor([0.], dtype=float32)
    """
    return _unary(transcendental.log, x)


def log1p(x: Any, /) -> Tensor:
    """log(1 + x), accurate near zero.

    >>> import livegrad as lg
    >>> lg.log1p(lg.asarray([0.0]))
    Tensor([0.], dtype=float32)
    """
    return _unary(transcendental.log1p, x)


def log2(x: Any, /) -> Tensor:
    """The logarithm to base 2.

    >>> import livegrad as lg
    >>> lg.log2(lg.asarray([8.0]))
    Tensor([3.], dtype=float32)
    """
    return _unary(transcendental.log2, x)


def log10(x: Any, /) -> Tensor:
    """The logarithm to base 10.

    >>> import livegrad as lg
    >>> lg.log10(lg.asarray([1000.0]))
    Tensor([3.], dtype=float32)
    """
    return _unary(transcendental.log10, x)


def sin(x: Any, /) -> Tensor:
    """The sine of an angle in radians.

    >>> import livegrad as lg
    >>> lg.sin(lg.asarray([0.0]))
    Tensor([0.], dtype=float32)
    """
    return _unary(transcendental.sin, x)


def sinh(x: Any, /) -> Tensor:
    """The hyperbolic sine.

    >>> import livegrad as lg
    >>> lg.sinh(lg.asarray([0.0]))
    Tensor([0.], dtype=float32)
    """
    return _unary(transcendental.sinh, x)


def sqrt(x: Any, /) -> Tensor:
    """The square root.

    >>> import livegrad as lg
    >>> lg.sqrt(lg.asarray([9.0, 16.0]))
    Tensor([3., 4.], dtype=float32)
    """
    return _unary(transcendental.sqrt, x)


def tan(x: Any, /) -> Tensor:
    """The tangent of an angle in radians.

    >>> import livegrad as lg
    >>> lg.tan(lg.asarray([0.0]))
    Tensor([0.], dtype=float32)
    """
    return _unary(transcendental.tan, x)


def tanh(x: Any, /) -> Tensor:
    """The hyperbolic tangent.

    >>> import livegrad as lg
    >>> lg.tanh(lg.asarray([0.0]))
    Tensor([0.], dtype=float32)
    """
    return _unary(transcendental.tanh, x)


def atan2(x1: Any, x2: Any, /) -> Tensor:
    """The angle of the point (x2, x1), in [-pi, pi].

    >>> import livegrad as lg
    >>> lg.atan2(lg.asarray([0.0]), lg.asarray([1.0]))
    Tensor([0.], dtype=float32)
    """
    return _binary(transcendental.atan2, x1, x2)


def hypot(x1: Any, x2: Any, /) -> Tensor:
    """The length of the hypotenuse: sqrt(x1² + x2²), without intermediate overflow.

    >>> import livegrad as lg
    >>> lg.hypot(lg.asarray([3.0]), lg.asarray([4.0]))
    Tensor([5.], dtype=float32)
    """
    return _binary(transcendental.hypot, x1, x2)


def copysign(x1: Any, x2: Any, /) -> Tensor:
    """The magnitude of x1 with the sign of x2.

    >>> import livegrad as lg
    >>> lg.copysign(lg.asarray([3.0]), lg.asarray([-0.0]))
    Tensor([-3.], dtype=float32)
    """
    return _binary(arithmetic.copysign, x1, x2)


def nextafter(x1: Any, x2: Any, /) -> Tensor:
    """The next float from x1 towards x2.

    >>> import livegrad as lg
    >>> lg.nextafter(lg.asarray([1.0]), lg.asarray([2.0]))
    Tensor([1.0000001], dtype=float32)
    """
    return _binary(floating.nextafter, x1, x2)


def logaddexp(x1: Any, x2: Any, /) -> Tensor:
    """log(exp(x1) + exp(x2)), without intermediate overflow.

    >>> import livegrad as lg
    >>> lg.logaddexp(lg.asarray([1000.0]), lg.asarray([0.0]))
    Tensor([1000.], dtype=float32)
    """
    return _binary(floating.logaddexp, x1, x2)
