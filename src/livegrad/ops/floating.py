"""Elementwise ops with non-trivial edge cases: `signbit`, `nextafter`, `logaddexp`, `gap`, integer powers.

`square`, `reciprocal` and the logical functions of the Array API need no ops: they are x * x, 1 / x and the bitwise ops
on booleans.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from livegrad.diagnostics import TypeRuleError
from livegrad.ir.leaves import constant
from livegrad.ir.node import Node
from livegrad.ir.op import Op
from livegrad.ir.types import Tensor, Type, bf16, components, i64, scalar_of, shape_of
from livegrad.ops.aggregate import get
from livegrad.ops.comparison import bit_and, equal, greater, greater_equal, is_infinite, shift_right
from livegrad.ops.control import check, make_for_loop
from livegrad.ops.elementwise import abs, copysign, maximum, select
from livegrad.ops.failing import power_can_fail
from livegrad.ops.indexing import lookup
from livegrad.ops.reduction import reduce
from livegrad.ops.rules import FLOATS, INTEGERS, filled, predicate, same, scale_by, zero, zero_tangent
from livegrad.ops.transcendental import exp, log1p

# Whether the sign bit is set: true for -0.0, and for a NaN by its bit.
signbit = Op(
    "signbit",
    type_of=predicate(1, FLOATS),
    evaluate=np.signbit,
    jvp=zero_tangent,
    expand=lambda y: copysign(filled(1.0, y.operands[0].type), y.operands[0]) < 0.0,
    elementwise=True,
    differentiable=False,
)


def _nextafter_type(x: Type, towards: Type) -> Type:
    if scalar_of(x) is bf16:
        # bf16 arithmetic runs in f32, which has other neighbouring values.
        raise TypeRuleError("bf16 has no `nextafter`", help="cast to f32 first")
    return same(2, FLOATS)(x, towards)


# The next representable number after the first operand in the direction of the second. The derivative ignores the step.
nextafter = Op(
    "nextafter",
    type_of=_nextafter_type,
    # For equal zeros, NumPy returns the first operand in float16 and the second in all other types.
    evaluate=lambda x, towards: np.where(np.equal(x, towards), towards, np.nextafter(x, towards)),
    jvp=lambda y, dx, dtowards: dx,
    llvm={"float": "nextafter"},
    code="nextafter({0}, {1})",
    elementwise=True,
    cost=8.0,
)


def _expand_logaddexp(y: Node) -> Node:
    a, b = y.operands
    # Equal infinities have no difference.
    same_value = equal(a, b)
    distance = select(same_value, zero(a.type), abs(a - b))
    return select(same_value, a + math.log(2.0), maximum(a, b) + log1p(exp(-distance)))


def _softmax_weight(y: Node, exponent: Node, other: Node) -> Node:
    """exp(exponent) / (exp(exponent) + exp(other)) without overflow. Equal infinities share evenly."""
    d = select(equal(exponent, other) & is_infinite(exponent), zero(exponent.type), other - exponent)
    smaller = greater(d, 0.0)
    ratio = exp(select(smaller, -d, d))
    return select(smaller, ratio, filled(1.0, ratio.type)) / (1.0 + ratio)


# log(exp(a) + exp(b)) without overflow.
logaddexp = Op(
    "logaddexp",
    type_of=same(2, FLOATS),
    evaluate=np.logaddexp,
    jvp=scale_by(lambda y, a, b: _softmax_weight(y, a, b), lambda y, a, b: _softmax_weight(y, b, a)),
    expand=_expand_logaddexp,
    elementwise=True,
    cost=30.0,
)


def _evaluate_gap(a: Any, b: Any) -> Any:
    with np.errstate(invalid="ignore"):
        return np.where(np.equal(a, b), np.zeros_like(a), np.subtract(a, b))


def _gap_jvp(y: Node, da: Node | None, db: Node | None) -> Node | None:
    if da is None or db is None:
        return da if db is None else -db
    return da - db


# a - b, and 0 where they are equal, even for infinities. Its derivative is the derivative of a - b.
gap = Op(
    "gap",
    type_of=same(2, FLOATS),
    evaluate=_evaluate_gap,
    jvp=_gap_jvp,
    expand=lambda y: select(equal(*y.operands), zero(y.type), y.operands[0] - y.operands[1]),
    elementwise=True,
)


def _evaluate_integer_pow(base: Any, exponent: Any) -> Any:
    if np.any(np.asarray(exponent) < 0):
        raise OverflowError("an integer to a negative power")
    return np.power(base, exponent)


def _all_of(condition: Node) -> Node:
    """Whether a bool, or every member of an aggregate or tensor of bools, is true."""
    if isinstance(condition.type, Tensor):
        return lookup(reduce(condition, kind="all", axes=tuple(range(len(shape_of(condition.type))))))
    members = [get(condition, index=index) for index in range(len(components(condition.type)))] or [condition]
    total = members[0]
    for member in members[1:]:
        total = bit_and(total, member)
    return total


def _expand_integer_pow(y: Node) -> Node:
    """Exponentiation by squaring. Products wrap around, like all integer arithmetic."""
    base, exponent = y.operands
    scalar = scalar_of(y.type)
    assert scalar is not None
    one = filled(1, y.type)

    def step(index: Node, total: Node, factor: Node, rest: Node) -> tuple[Node, Node, Node]:
        odd = equal(bit_and(rest, one), one)
        return select(odd, total * factor, total), factor * factor, shift_right(rest, one)

    total, _, _ = make_for_loop(constant(scalar.bits, i64), step, one, base, exponent)
    if scalar.kind == "unsigned":
        return total
    return check(total, _all_of(greater_equal(exponent, 0)), message="an integer to a negative power")


integer_pow = Op(
    "integer_pow",
    type_of=same(2, INTEGERS),
    evaluate=_evaluate_integer_pow,
    jvp=zero_tangent,
    expand=_expand_integer_pow,
    elementwise=True,
    checked=True,
    can_fail=power_can_fail,
    differentiable=False,
    cost=60.0,
)
