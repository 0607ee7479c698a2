"""Elementwise arithmetic, sign and rounding functions of the tensor namespace."""

from __future__ import annotations

from typing import Any

import numpy as np

from livegrad.diagnostics import UsageError, caller_origin
from livegrad.ir.node import Node
from livegrad.ir.op import Op
from livegrad.ir.types import Scalar, f64, i64
from livegrad.ops import conversion, transcendental
from livegrad.ops import elementwise as ops
from livegrad.ops.comparison import is_infinite, not_equal
from livegrad.ops.floating import integer_pow
from livegrad.ops.movement import require_tensor
from livegrad.ops.rules import filled, zero
from livegrad.tensors.broadcasting import broadcast_node_shapes, cast_and_broadcast
from livegrad.tensors.dtypes import promote_types
from livegrad.tensors.errors import DtypeError
from livegrad.tensors.handle import (
    Tensor,
    are_weak_numbers,
    combine,
    convert_number,
    match_operands,
    node_of,
    weak_node_of,
    wrap,
)
from livegrad.tensors.operands import to_inexact

# --- arithmetic ------------------------------------------------------------------------------------------------------


def add(x1: Any, x2: Any, /) -> Tensor:
    """The sum.

    >>> import livegrad as lg
    >>> lg.add(lg.asarray([1, 2]), 10)
    Tensor([11, 12], dtype=int64)
    """
    return wrap(combine(ops.add, x1, x2))


def subtract(x1: Any, x2: Any, /) -> Tensor:
    """The difference.

    >>> import livegrad as lg
    >>> lg.subtract(lg.asarray([1, 2]), 10)
    Tensor([-9, -8], dtype=int64)
    """
    return wrap(combine(ops.sub, x1, x2))


def multiply(x1: Any, x2: Any, /) -> Tensor:
    """The product.

    >>> import livegrad as lg
    >>> lg.multiply(lg.asarray([1, 2]), 10)
    Tensor([10, 20], dtype=int64)
    """
    return wrap(combine(ops.mul, x1, x2))


def divide(x1: Any, x2: Any, /) -> Tensor:
    """The quotient. For integers the result is a float of the default type.

    >>> import livegrad as lg
    >>> lg.divide(lg.asarray([1.0, 3.0]), 2)
    Tensor([0.5, 1.5], dtype=float32)
    """
    a, b = match_operands("divide", x1, x2)
    if are_weak_numbers(x1, x2) and _scalar(a) is i64:
        return wrap(ops.div(conversion.cast(a, type=f64), conversion.cast(b, type=f64)))
    return wrap(ops.div(to_inexact(a, "divide"), to_inexact(b, "divide")))


def floor_divide(x1: Any, x2: Any, /) -> Tensor:
    """The quotient rounded down. Integer division by zero raises when it is computed.

    With an infinite operand the result is the quotient itself, as in the standard: `-1.0 // inf` is -0.0.

    >>> import livegrad as lg
    >>> lg.floor_divide(lg.asarray([7, -7]), 2)
    Tensor([ 3, -4], dtype=int64)
    """
    a, b = match_operands("floor_divide", x1, x2)
    quotient = ops.floor_div(a, b)
    if _scalar(a).kind == "float":
        quotient = ops.select(is_infinite(a) | is_infinite(b), a / b, quotient)
    return wrap(quotient)


def remainder(x1: Any, x2: Any, /) -> Tensor:
    """The remainder of floor division, with the sign of the divisor. For integers, a zero divisor raises when it is
    computed.

    >>> import livegrad as lg
    >>> lg.remainder(lg.asarray([7, -7]), 3)
    Tensor([1, 2], dtype=int64)
    """
    return wrap(combine(ops.mod, x1, x2))


def fmod(x1: Any, x2: Any, /) -> Tensor:
    """The remainder of division towards zero, with the sign of the dividend, as in C and NumPy. An integer zero divisor
    raises.

    >>> import livegrad as lg
    >>> lg.fmod(lg.asarray([7.0, -7.0]), 3.0), lg.fmod(lg.asarray([7, -7]), 3)
    (Tensor([ 1., -1.], dtype=float32), Tensor([ 1, -1], dtype=int64))
    """
    a, b = match_operands("fmod", x1, x2)
    if _scalar(a).kind == "float":
        return wrap(ops.fmod(a, b))
    floored = ops.mod(a, b)
    signs_differ = not_equal(floored, 0) & ((a < 0) ^ (b < 0))
    return wrap(ops.select(signs_differ, floored - b, floored))


def negative(x: Any, /) -> Tensor:
    """The negated number.

    >>> import livegrad as lg
    >>> lg.negative(lg.asarray([1, -2]))
    Tensor([-1,  2], dtype=int64)
    """
    return wrap(ops.neg(weak_node_of(x, "negative")))


def positive(x: Any, /) -> Tensor:
    """The number itself.

    >>> import livegrad as lg
    >>> lg.positive(lg.asarray([1, -2]))
    Tensor([ 1, -2], dtype=int64)
    """
    node = weak_node_of(x, "positive")
    _require_numbers(node, "positive")
    return wrap(node)


def square(x: Any, /) -> Tensor:
    """The number times itself.

    >>> import livegrad as lg
    >>> lg.square(lg.asarray([3, -4]))
    Tensor([ 9, 16], dtype=int64)
    """
    node = node_of(x, "square")
    return wrap(node * node)


def reciprocal(x: Any, /) -> Tensor:
    """One divided by the number.

    >>> import livegrad as lg
    >>> lg.reciprocal(lg.asarray([2.0, 4.0]))
    Tensor([0.5 , 0.25], dtype=float32)
    """
    return wrap(1.0 / to_inexact(node_of(x, "reciprocal"), "reciprocal"))


def pow(x1: Any, x2: Any, /) -> Tensor:
    """x1 to the power of x2. A negative power of integers raises.

    >>> import livegrad as lg
    >>> lg.pow(lg.asarray([2, 3]), 3)
    Tensor([ 8, 27], dtype=int64)
    """
    a, b = match_operands("pow", x1, x2)
    if _scalar(a).kind in ("float", "complex", "bool"):
        return wrap(transcendental.pow(a, b))
    if isinstance(x2, int) and not isinstance(x2, np.generic):
        return wrap(_repeated_product(a, x2))
    return wrap(integer_pow(a, b))


def _repeated_product(base: Node, exponent: int) -> Node:
    """Raises a node to a constant non-negative power by repeated squaring."""
    if exponent < 0:
        help = "cast to a float with lg.astype first"
        raise UsageError("cannot raise an integer to a negative power", where=caller_origin(), help=help)
    product: Node | None = None
    while exponent:
        if exponent & 1:
            product = base if product is None else product * base
        exponent >>= 1
        if exponent:
            base = base * base
    return filled(1, base.type) if product is None else product


# --- size and sign ---------------------------------------------------------------------------------------------------


def abs(x: Any, /) -> Tensor:
    """The absolute value.

    >>> import livegrad as lg
    >>> lg.abs(lg.asarray([1, -2]))
    Tensor([1, 2], dtype=int64)
    """
    return wrap(ops.abs(weak_node_of(x, "abs")))


def sign(x: Any, /) -> Tensor:
    """The sign: -1, 0 or 1. A complex number is scaled to modulus 1 (or stays 0).

    >>> import livegrad as lg
    >>> lg.sign(lg.asarray([5, -2, 0]))
    Tensor([ 1, -1,  0], dtype=int64)
    """
    node = node_of(x, "sign")
    if _scalar(node).kind == "float":
        return wrap(ops.select(ops.equal(node, 0.0), zero(node.type), ops.sign(node)))
    if _scalar(node).kind != "complex":
        return wrap(ops.sign(node))
    modulus = ops.abs(node)
    at_zero = ops.equal(modulus, 0.0)
    safe = ops.select(at_zero, filled(1.0, modulus.type), modulus)
    unit = conversion.make_complex(conversion.real(node) / safe, conversion.imag(node) / safe)
    return wrap(ops.select(at_zero, zero(node.type), unit))


def maximum(x1: Any, x2: Any, /) -> Tensor:
    """The larger of two elements; NaN if either is NaN.

    >>> import livegrad as lg
    >>> lg.maximum(lg.asarray([1, 5]), 3)
    Tensor([3, 5], dtype=int64)
    """
    return wrap(combine(ops.maximum, x1, x2))


def minimum(x1: Any, x2: Any, /) -> Tensor:
    """The smaller of two elements; NaN if either is NaN.

    >>> import livegrad as lg
    >>> lg.minimum(lg.asarray([1, 5]), 3)
    Tensor([1, 3], dtype=int64)
    """
    return wrap(combine(ops.minimum, x1, x2))


def clip(x: Any, /, min: Any = None, max: Any = None) -> Tensor:
    """Limits elements to a range. Bounds broadcast; the result has the type of `x`.

    >>> import livegrad as lg
    >>> lg.clip(lg.asarray([-5, 1, 9]), 0, 3)
    Tensor([0, 1, 3], dtype=int64)
    """
    node = node_of(x, "clip")
    for op, bound in ((ops.maximum, min), (ops.minimum, max)):
        if bound is None:
            continue
        limit = _bound(bound, node)
        shape = broadcast_node_shapes("clip", node, limit)
        node = op(*(cast_and_broadcast(each, _scalar(node), shape) for each in (node, limit)))
    _require_numbers(node, "clip")
    return wrap(node)


def _bound(bound: Any, node: Node) -> Node:
    """Converts a bound to the element type of the tensor that it limits; raises if the bound has a wider type."""
    element = _scalar(node)
    number = convert_number(bound, element)
    if number is not None:
        return number
    bound_node = node_of(bound, "clip")
    if promote_types(_scalar(bound_node), element, "clip") is not element:
        raise DtypeError(
            "a bound of `clip` has a wider type than the tensor",
            where=caller_origin(),
            expected=element.long_name,
            found=_scalar(bound_node).long_name,
            help="cast one of them with lg.astype",
        )
    return bound_node


# --- rounding --------------------------------------------------------------------------------------------------------


def ceil(x: Any, /) -> Tensor:
    """Rounds up to an integer.

    >>> import livegrad as lg
    >>> lg.ceil(lg.asarray([1.2, -1.2]))
    Tensor([ 2., -1.], dtype=float32)
    """
    return _round(ops.ceil, x)


def floor(x: Any, /) -> Tensor:
    """Rounds down to an integer.

    >>> import livegrad as lg
    >>> lg.floor(lg.asarray([1.2, -1.2]))
    Tensor([ 1., -2.], dtype=float32)
    """
    return _round(ops.floor, x)


def trunc(x: Any, /) -> Tensor:
    """Rounds towards zero to an integer.

    >>> import livegrad as lg
    >>> lg.trunc(lg.asarray([1.8, -1.8]))
    Tensor([ 1., -1.], dtype=float32)
    """
    return _round(ops.trunc, x)


def round(x: Any, /) -> Tensor:
    """Rounds to the nearest integer, ties to even. Complex numbers are rounded by component.

    >>> import livegrad as lg
    >>> lg.round(lg.asarray([0.5, 1.5, 2.6]))
    Tensor([0., 2., 3.], dtype=float32)
    """
    node = node_of(x, "round")
    if _scalar(node).kind == "complex":
        return wrap(conversion.make_complex(ops.round(conversion.real(node)), ops.round(conversion.imag(node))))
    return _round(ops.round, x)


def _round(op: Op, x: Any) -> Tensor:
    node = node_of(x, op.name)
    if _scalar(node).kind in ("signed", "unsigned"):
        return wrap(node)
    return wrap(op(node))


# --- complex numbers -------------------------------------------------------------------------------------------------


def real(x: Any, /) -> Tensor:
    """The real part. Real numbers are returned unchanged.

    >>> import livegrad as lg
    >>> lg.real(lg.asarray([1 + 2j]))
    Tensor([1.], dtype=float32)
    """
    node = node_of(x, "real")
    _require_numbers(node, "real")
    return wrap(conversion.real(node) if _scalar(node).kind == "complex" else node)


def imag(x: Any, /) -> Tensor:
    """The imaginary part; zero for real numbers.

    >>> import livegrad as lg
    >>> lg.imag(lg.asarray([1 + 2j]))
    Tensor([2.], dtype=float32)
    """
    node = node_of(x, "imag")
    _require_numbers(node, "imag")
    return wrap(conversion.imag(node) if _scalar(node).kind == "complex" else zero(node.type))


def conj(x: Any, /) -> Tensor:
    """The complex conjugate. Real numbers are returned unchanged.

    >>> import livegrad as lg
    >>> lg.conj(lg.asarray([1 + 2j]))
    Tensor([1.-2.j], dtype=complex64)
    """
    node = node_of(x, "conj")
    _require_numbers(node, "conj")
    return wrap(conversion.conj(node) if _scalar(node).kind == "complex" else node)


def _scalar(node: Node) -> Scalar:
    return require_tensor(node.type).element


def _require_numbers(node: Node, user: str) -> None:
    if _scalar(node).kind == "bool":
        raise DtypeError(f"`{user}` takes numbers", where=caller_origin(), found="booleans")
