"""Algebraic rules of arithmetic, logic and selection; all preserve IEEE semantics, including -0.0, infinities and NaN.

Therefore x + 0.0 stays (it turns -0.0 into 0.0), and so do x * 0.0, x - x, and complex products and quotients.
"""

from __future__ import annotations

import math

from livegrad import ops
from livegrad.ir.node import Node
from livegrad.ir.types import bool_, scalar_of
from livegrad.ops.rules import BITS, INTEGERS, REALS, filled
from livegrad.passes.simplify.folding import is_uniform, kind_of, uniform_value

_ROUNDINGS = (ops.floor, ops.ceil, ops.trunc, ops.round)
_SIGNED = ("signed", "float")
_OR_EQUAL = {ops.less: ops.less_equal, ops.greater: ops.greater_equal}
_MIN_EXPONENT = {"f16": -13, "f32": -125, "f64": -1021}  # of a normal number, as `frexp` returns it
_MAX_EXPONENT = {"f16": 16, "f32": 128, "f64": 1024}


def _is_additive_identity(node: Node) -> bool:
    return is_uniform(node, -0.0) if kind_of(node) == "float" else is_uniform(node, 0)


def add_zero(node: Node) -> Node | None:
    """x + (-0.0) = x, and x + 0 = x for integers."""
    a, b = node.operands
    return a if _is_additive_identity(b) else (b if _is_additive_identity(a) else None)


def scatter_zeros(node: Node) -> Node | None:
    """Adding -0.0, or the integer 0, to elements leaves a tensor as it is, if no index has to be checked."""
    tensor, updates, *_ = node.operands
    return tensor if _is_additive_identity(updates) and not node.may_fail else None


def add_negated(node: Node) -> Node | None:
    """x + (-y) = x - y."""
    a, b = node.operands
    if b.op is ops.neg:
        return ops.sub(a, b.operands[0])
    return ops.sub(b, a.operands[0]) if a.op is ops.neg else None


def subtract_zero(node: Node) -> Node | None:
    """x - 0.0 = x."""
    a, b = node.operands
    return a if is_uniform(b, 0) else None


def subtract_from_zero(node: Node) -> Node | None:
    """-0.0 - x = -x, and 0 - x = -x for integers."""
    a, b = node.operands
    return ops.neg(b) if _is_additive_identity(a) else None


def subtract_negated(node: Node) -> Node | None:
    """x - (-y) = x + y."""
    a, b = node.operands
    return ops.add(a, b.operands[0]) if b.op is ops.neg else None


def multiply_by_one(node: Node) -> Node | None:
    a, b = node.operands
    if kind_of(node) not in REALS:
        return None
    return a if is_uniform(b, 1) else (b if is_uniform(a, 1) else None)


def multiply_by_minus_one(node: Node) -> Node | None:
    a, b = node.operands
    if kind_of(node) not in _SIGNED:
        return None
    return ops.neg(a) if is_uniform(b, -1) else (ops.neg(b) if is_uniform(a, -1) else None)


def multiply_negated_operands(node: Node) -> Node | None:
    """(-x) * (-y) = x * y."""
    a, b = node.operands
    return (
        ops.mul(a.operands[0], b.operands[0])
        if a.op is ops.neg and b.op is ops.neg and kind_of(node) in REALS
        else None
    )


def multiply_by_select_of_one(node: Node) -> Node | None:
    """select(c, k, 1.0) * x = select(c, k * x, x), which is one masked multiplication."""
    a, b = node.operands
    for factor, value in ((a, b), (b, a)):
        if factor.op is not ops.select or kind_of(node) not in REALS:
            continue
        condition, then, otherwise = factor.operands
        if is_uniform(otherwise, 1) and uniform_value(then) is not None:
            return ops.select(condition, ops.mul(then, value), value)
    return None


def divide_by_one(node: Node) -> Node | None:
    a, b = node.operands
    return a if kind_of(node) in REALS and is_uniform(b, 1) else None


def divide_by_power_of_two(node: Node) -> Node | None:
    """x / 4.0 = x * 0.25: both round the same exact value, as long as the reciprocal is a normal number."""
    a, b = node.operands
    scalar, value = scalar_of(node.type), uniform_value(b)
    if scalar is None or scalar.kind != "float" or value is None or not math.isfinite(value):
        return None
    fraction, exponent = math.frexp(value)
    if abs(fraction) != 0.5 or not (_MIN_EXPONENT[scalar.name] <= 2 - exponent <= _MAX_EXPONENT[scalar.name]):
        return None
    return ops.mul(a, filled(1.0 / value, node.type))


def power_by_small_number(node: Node) -> Node | None:
    """x**1 = x, x**2 = x * x, x**-1 = 1 / x, x**0 = 1: correctly rounded, also for -0.0, infinity and NaN."""
    base, exponent = node.operands
    value = uniform_value(exponent) if kind_of(node) == "float" else None
    if value == 1.0:
        return base
    if value == 2.0:
        return ops.mul(base, base)
    if value == -1.0:
        return ops.div(filled(1.0, node.type), base)
    return filled(1.0, node.type) if value == 0.0 else None


def neg_of_neg(node: Node) -> Node | None:
    (x,) = node.operands
    return x.operands[0] if x.op is ops.neg else None


def abs_of_abs(node: Node) -> Node | None:
    """abs(abs(x)) = abs(x), abs(-x) = abs(x), and abs(x) = x for unsigned x."""
    (x,) = node.operands
    if kind_of(x) == "unsigned" or (x.op is ops.abs and x.type is node.type):
        return x
    return ops.abs(x.operands[0]) if x.op is ops.neg and kind_of(x) in _SIGNED else None


def round_of_rounding(node: Node) -> Node | None:
    """floor(ceil(x)) = ceil(x), and likewise for all other roundings."""
    (x,) = node.operands
    return x if x.op in _ROUNDINGS else None


def min_max_of_same(node: Node) -> Node | None:
    """min(x, x) = x."""
    a, b = node.operands
    return a if a is b else None


def compare_with_same(node: Node) -> Node | None:
    """x == x is true and x < x is false, for types without NaN."""
    a, b = node.operands
    if a is not b or kind_of(a) not in BITS:
        return None
    return filled(node.op in (ops.equal, ops.less_equal, ops.greater_equal), node.type)


def merge_with_equality(node: Node) -> Node | None:
    """(x < y) | (x == y) = (x <= y), and likewise for greater; also for NaN, where all are false."""
    for order, same in (node.operands, node.operands[::-1]):
        merged = _OR_EQUAL.get(order.op)
        if merged is not None and same.op is ops.equal and set(same.operands) == set(order.operands):
            return merged(*order.operands)
    return None


# --- bits ------------------------------------------------------------------------------------------------------------


def _is_all_ones(node: Node) -> bool:
    scalar = scalar_of(node.type)
    if scalar is None:
        return False
    ones = {"bool": 1, "signed": -1, "unsigned": (1 << scalar.bits) - 1}.get(scalar.kind)
    return ones is not None and uniform_value(node) == ones


def not_of_not(node: Node) -> Node | None:
    (x,) = node.operands
    return x.operands[0] if x.op is ops.bit_not else None


def bits_with_same(node: Node) -> Node | None:
    """x & x = x | x = x."""
    a, b = node.operands
    return a if a is b else None


def bits_with_identity(node: Node) -> Node | None:
    """x & ones = x, x | 0 = x, x ^ 0 = x."""
    a, b = node.operands
    for value, other in ((a, b), (b, a)):
        if _is_all_ones(other) if node.op is ops.bit_and else is_uniform(other, 0):
            return value
    return None


def bits_with_absorbing(node: Node) -> Node | None:
    """x & 0 = 0, x | ones = ones."""
    for operand in node.operands:
        if is_uniform(operand, 0) if node.op is ops.bit_and else _is_all_ones(operand):
            return operand
    return None


def shift_by_zero(node: Node) -> Node | None:
    a, b = node.operands
    return a if is_uniform(b, 0) else None


def floor_divide_by_one(node: Node) -> Node | None:
    a, b = node.operands
    return a if kind_of(node) in INTEGERS and is_uniform(b, 1) else None


# --- selection -------------------------------------------------------------------------------------------------------


def select_of_constant(node: Node) -> Node | None:
    condition, then, otherwise = node.operands
    value = uniform_value(condition)
    return None if value is None else (then if value else otherwise)


def select_between_same(node: Node) -> Node | None:
    _, then, otherwise = node.operands
    return then if then is otherwise else None


def select_by_negation(node: Node) -> Node | None:
    """select(not c, x, y) = select(c, y, x)."""
    condition, then, otherwise = node.operands
    return ops.select(condition.operands[0], otherwise, then) if condition.op is ops.bit_not else None


def select_of_booleans(node: Node) -> Node | None:
    """select(c, true, false) = c."""
    condition, then, otherwise = node.operands
    if scalar_of(node.type) is not bool_ or condition.type is not node.type:
        return None
    return condition if uniform_value(then) is True and uniform_value(otherwise) is False else None


# --- casts and complex parts -----------------------------------------------------------------------------------------


def cast_to_same(node: Node) -> Node | None:
    (x,) = node.operands
    return x if x.type is node.type else None


def cast_of_lossless_cast(node: Node) -> Node | None:
    """A cast to a type that represents every value exactly, and back, is the identity."""
    (wide,) = node.operands
    if wide.op is not ops.cast or wide.operands[0].type is not node.type:
        return None
    (x,) = wide.operands
    return x if _is_lossless(x, wide) else None


def _is_lossless(x: Node, wide: Node) -> bool:
    source, target = scalar_of(x.type), scalar_of(wide.type)
    if source is None or target is None:
        return False
    if source.bits == target.bits == 16 and source.kind == target.kind == "float":
        return source is target  # neither of f16 and bf16 contains the other
    if source.kind == "bool" or source.kind == target.kind:
        return target.bits >= source.bits
    digits = {"f16": 11, "f32": 24, "f64": 53}.get(target.name, 0)
    if source.kind in INTEGERS and target.kind == "float":
        return source.bits <= digits
    return source.kind == "unsigned" and target.kind == "signed" and target.bits > source.bits


def conj_of_conj(node: Node) -> Node | None:
    (x,) = node.operands
    return x.operands[0] if x.op is ops.conj else None


def part_of_complex(node: Node) -> Node | None:
    """real(make_complex(a, b)) = a."""
    (x,) = node.operands
    return x.operands[0 if node.op is ops.real else 1] if x.op is ops.make_complex else None


def complex_of_parts(node: Node) -> Node | None:
    """make_complex(real(z), imag(z)) = z."""
    a, b = node.operands
    return a.operands[0] if a.op is ops.real and b.op is ops.imag and a.operands == b.operands else None


def detach_of_detach(node: Node) -> Node | None:
    (x,) = node.operands
    return x if x.op is node.op else None
