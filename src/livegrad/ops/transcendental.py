"""Roots, exponentials, logarithms, trigonometry: elementwise ops on floats (and complex numbers where stated)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from livegrad.ir.node import Node
from livegrad.ir.op import Op
from livegrad.ir.types import f32, f64, scalar_of
from livegrad.ops.comparison import equal, is_finite
from livegrad.ops.conversion import join_parts
from livegrad.ops.elementwise import select
from livegrad.ops.failing import constant_number
from livegrad.ops.rules import FLOATS, INEXACT, filled, same, scale_by, zero

_erf = np.vectorize(math.erf, otypes=[np.float64])


def _evaluate_log1p(x: Any) -> Any:
    """NumPy's `log1p`, except near complex zero, where NumPy adds 1 and loses digits of the real part."""
    result = np.log1p(x)
    if np.asarray(x).dtype.kind != "c":
        return result
    re, im = np.real(x), np.imag(x)
    near = np.hypot(re, im) < 0.5
    exact = 0.5 * np.log1p(np.where(near, re * (2 + re) + im * im, 0))
    return join_parts(np.where(near, exact, result.real), result.imag)


def _evaluate_expm1(x: Any) -> Any:
    """NumPy's `expm1`, but by parts for complex numbers: NumPy loses digits near zero and turns infinities into NaN."""
    if np.asarray(x).dtype.kind != "c":
        return np.expm1(x)
    re, im, whole = np.real(x), np.imag(x), np.exp(x)
    near = np.isfinite(re) & np.isfinite(im) & (re < 1)
    a, b = np.where(near, re, 0), np.where(near, im, 0)
    exact = np.expm1(a) * np.cos(b) - 2 * np.sin(b / 2) ** 2 + 0.0
    return join_parts(np.where(near, exact, whole.real - 1), whole.imag)


def _evaluate_tanh(x: Any) -> Any:
    """NumPy's `tanh`, except at complex infinity, where the imaginary part is a zero with the argument's sign."""
    result = np.tanh(x)
    if np.asarray(x).dtype.kind != "c":
        return result
    far = np.isinf(np.real(x)) & np.isfinite(np.imag(x))
    return join_parts(result.real, np.where(far, np.copysign(np.zeros_like(result.imag), np.imag(x)), result.imag))


def _unary(
    name: str,
    function: Any,
    partial: Any,
    *,
    llvm: str | None = None,
    kinds: tuple[str, ...] = FLOATS,
    cost: float = 12.0,
    expand: Any = None,
) -> Op:
    return Op(
        name,
        type_of=same(1, kinds),
        evaluate=function,
        jvp=scale_by(partial),
        code=f"{name}({{0}})" if expand is None else None,
        llvm=None if expand is not None else {"float": llvm or f"math:{name}"},
        expand=expand,
        cost=cost,
        elementwise=True,
    )


def _one(x: Node) -> Node:
    return filled(1.0, x.type)


sqrt = _unary("sqrt", np.sqrt, lambda y, x: 0.5 / y, llvm="intrinsic:sqrt", kinds=INEXACT, cost=6.0)
rsqrt = _unary(
    "rsqrt",
    lambda x: 1 / np.sqrt(x),
    lambda y, x: -0.5 * (y / x),
    expand=lambda y: 1.0 / sqrt(y.operands[0]),
    cost=12.0,
)
cbrt = _unary("cbrt", np.cbrt, lambda y, x: 1.0 / (3.0 * y * y))
exp = _unary("exp", np.exp, lambda y, x: y, kinds=INEXACT)
exp2 = _unary("exp2", np.exp2, lambda y, x: y * math.log(2.0))
# The derivative of expm1 is not written as y + 1, which cancels for large negative x.
expm1 = _unary("expm1", _evaluate_expm1, lambda y, x: exp(x), kinds=INEXACT)
log = _unary("log", np.log, lambda y, x: 1.0 / x, kinds=INEXACT)
log2 = _unary("log2", np.log2, lambda y, x: 1.0 / (x * math.log(2.0)), kinds=INEXACT)
log10 = _unary("log10", np.log10, lambda y, x: 1.0 / (x * math.log(10.0)), kinds=INEXACT)
log1p = _unary("log1p", _evaluate_log1p, lambda y, x: 1.0 / (x + 1.0), kinds=INEXACT)
sin = _unary("sin", np.sin, lambda y, x: cos(x), kinds=INEXACT)
cos = _unary("cos", np.cos, lambda y, x: -sin(x), kinds=INEXACT)
tan = _unary("tan", np.tan, lambda y, x: 1.0 + y * y, kinds=INEXACT)
asin = _unary("asin", np.arcsin, lambda y, x: 1.0 / sqrt(1.0 - x * x), kinds=INEXACT)
acos = _unary("acos", np.arccos, lambda y, x: -1.0 / sqrt(1.0 - x * x), kinds=INEXACT)
atan = _unary("atan", np.arctan, lambda y, x: 1.0 / (1.0 + x * x), kinds=INEXACT)
sinh = _unary("sinh", np.sinh, lambda y, x: cosh(x), kinds=INEXACT)
cosh = _unary("cosh", np.cosh, lambda y, x: sinh(x), kinds=INEXACT)
tanh = _unary("tanh", _evaluate_tanh, lambda y, x: 1.0 - y * y, kinds=INEXACT)
asinh = _unary("asinh", np.arcsinh, lambda y, x: 1.0 / sqrt(1.0 + x * x), kinds=INEXACT)
acosh = _unary("acosh", np.arccosh, lambda y, x: 1.0 / (sqrt(x - 1.0) * sqrt(x + 1.0)), kinds=INEXACT)
atanh = _unary("atanh", np.arctanh, lambda y, x: 1.0 / (1.0 - x * x), kinds=INEXACT)
erf = _unary(
    "erf",
    lambda x: _erf(x).astype(np.asarray(x).dtype),
    lambda y, x: (2.0 / math.sqrt(math.pi)) * exp(-(x * x)),
)


def _binary(name: str, function: Any, partials: tuple[Any, Any], cost: float, kinds: tuple[str, ...] = FLOATS) -> Op:
    return Op(
        name,
        type_of=same(2, kinds),
        evaluate=function,
        jvp=scale_by(*partials),
        code=f"{name}({{0}}, {{1}})",
        llvm={"float": f"math:{name}"},
        cost=cost,
        elementwise=True,
    )


def _pow_by_base(y: Node, x: Node, exponent: Node) -> Node:
    # x**0 is 1 for every x, so its derivative is 0 even at x = 0, where x**(0-1) is infinite. Elsewhere the product is
    # kept, because it still depends on the exponent: the mixed derivative at exponent 0 is 1/x.
    constant = constant_number(exponent)
    if constant is not None and constant != 0.0:
        return exponent * (x if constant == 2.0 else pow(x, exponent - 1.0))
    flat = equal(exponent, 0.0) & ~is_finite(1.0 / x)
    return select(flat, zero(x.type), exponent * pow(x, select(flat, _one(x), exponent - 1.0)))


def _pow_by_exponent(y: Node, x: Node, exponent: Node) -> Node:
    at_zero = equal(x, 0.0)
    return select(at_zero, zero(x.type), y * log(select(at_zero, _one(x), x)))


_FEW_PRODUCTS = (-2.0, -1.5, -0.5, 0.5, 1.5, 3.0, 4.0)


def is_few_products(power: Node) -> bool:
    """Whether code computes a power by products, quotients and roots, at a fraction of the cost of `pow`."""
    scalar = scalar_of(power.type)
    return scalar in (f32, f64) and constant_number(power.operands[1]) in _FEW_PRODUCTS


def expand_power(power: Node) -> Node:
    """A power for which `is_few_products` holds, with an error of at most 2.3 units in the last place.

    The special cases are those of `pow`. Products of reciprocals reach as far as the power itself; a reciprocal of
    products would overflow or become denormal too early.
    """
    base, exponent = power.operands
    number = constant_number(exponent)
    match number:
        case 3.0:
            return base * base * base
        case 4.0:
            return (base * base) * (base * base)
        case -2.0:
            inverse = 1.0 / base
            return inverse * inverse
        case -1.5:
            inverse = 1.0 / (base + 0.0)  # -0.0 becomes 0.0
            return inverse * sqrt(inverse)
    positive = base + 0.0
    root = sqrt(positive)
    result = root if number == 0.5 else positive * root if number == 1.5 else 1.0 / root
    # The power of -infinity is that of infinity; other powers of negative numbers are NaN.
    limit = filled(0.0 if number == -0.5 else math.inf, power.type)
    return select(equal(base, filled(-math.inf, power.type)), limit, result)


def _over_length(part: Node, length: Node) -> Node:
    """part / length, and 0 where both are 0: the derivative of a length at its kink."""
    at_zero = equal(length, 0.0)
    return select(at_zero, zero(part.type), part / select(at_zero, _one(part), length))


def _over_square(part: Node, other: Node) -> Node:
    """part / (part² + other²), computed from the length, because its square may overflow."""
    length = hypot(part, other)
    return part / length / length


atan2 = _binary(
    "atan2", np.arctan2, (lambda r, y, x: _over_square(x, y), lambda r, y, x: -_over_square(y, x)), cost=20.0
)
hypot = _binary("hypot", np.hypot, (lambda r, x, y: _over_length(x, r), lambda r, x, y: _over_length(y, r)), cost=10.0)
pow = _binary("pow", np.power, (_pow_by_base, _pow_by_exponent), cost=25.0, kinds=INEXACT)
