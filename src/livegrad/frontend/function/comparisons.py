"""Compiles comparisons: ordering and equality, identity (`is`) and membership (`in`)."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any

from livegrad.frontend.function.array_arithmetic import array_operation, is_array
from livegrad.frontend.function.compile_state import Context
from livegrad.frontend.function.compile_values import (
    Value,
    as_scalar_type,
    name_of,
    node_of,
    runtime,
    static,
)
from livegrad.frontend.function.function_types import NONE, ArrayType, RecordType
from livegrad.frontend.function.operators import apply_unary, front_type_of, list_elements, logical_and, unify
from livegrad.frontend.function.type_rules import rules
from livegrad.ir import types as ir
from livegrad.ops import comparison
from livegrad.ops.aggregate import member, members_of

_COMPARISONS: dict[type[ast.cmpop], tuple[Callable[[Any, Any], Any], Any, str]] = {
    ast.Eq: (operator.eq, comparison.equal, "=="),
    ast.NotEq: (operator.ne, comparison.not_equal, "!="),
    ast.Lt: (operator.lt, comparison.less, "<"),
    ast.LtE: (operator.le, comparison.less_equal, "<="),
    ast.Gt: (operator.gt, comparison.greater, ">"),
    ast.GtE: (operator.ge, comparison.greater_equal, ">="),
}


def compare(context: Context, op: ast.cmpop, left: Value, right: Value, at: ast.AST) -> Value:
    """`left op right` for one comparison."""
    if isinstance(op, ast.Is | ast.IsNot):
        return _compare_identity(context, op, left, right, at)
    if isinstance(op, ast.In | ast.NotIn):
        return _test_membership(context, op, left, right, at)
    python, comparison, symbol = _COMPARISONS[type(op)]
    if left.is_static and right.is_static and ((left.is_number and right.is_number) or left.type is right.type is None):
        return static(bool(python(left.static, right.static)))
    if isinstance(op, ast.Eq | ast.NotEq):
        result = _compare_members(context, op, left, right, at)
        if result is not None:
            return result
    if is_array(left) or is_array(right):
        return array_operation(context, python, [left, right], symbol, at)
    shape, a, b = unify(context, left, right, at, symbol)
    scalar = ir.scalar_of(shape)
    if scalar is ir.bool_ and not isinstance(op, ast.Eq | ast.NotEq):
        a, b = (as_scalar_type(Value(shape, node), ir.i64, context.span(at)) for node in (a, b))
    node = comparison(a, b)
    return runtime(front_type_of(node), node)


def _compare_members(context: Context, op: ast.cmpop, left: Value, right: Value, at: ast.AST) -> Value | None:
    """`==` or `!=` of two tuples, lists or structs, member by member; None for other types."""
    if left.items is not None and right.items is not None:
        pairs = list(zip(left.items, right.items, strict=False))
        if len(left.items) != len(right.items):
            return static(isinstance(op, ast.NotEq))
    elif isinstance(left.type, ArrayType) and isinstance(right.type, ArrayType):
        if left.type.size != right.type.size:
            return static(isinstance(op, ast.NotEq))
        pairs = list(zip(list_elements(left, context, at), list_elements(right, context, at), strict=True))
    elif isinstance(left.type, RecordType) and left.type == right.type:
        pairs = list(zip(_field_values(context, left, at), _field_values(context, right, at), strict=True))
    else:
        return None
    total: Value = static(True)
    for a, b in pairs:
        equal = compare(context, ast.Eq(), a, b, at)
        if isinstance(equal.type, ir.Vector | ir.Matrix):
            for part in members_of(node_of(equal, context.span(at))):
                total = logical_and(total, runtime(ir.bool_, part), context, at)
        else:
            total = logical_and(total, equal, context, at)
    return apply_unary(context, ast.Not(), total, at) if isinstance(op, ast.NotEq) else total


def _field_values(context: Context, value: Value, at: ast.AST) -> list[Value]:
    assert isinstance(value.type, RecordType)
    node = node_of(value, context.span(at))
    return [runtime(field.type, member(node, index)) for index, field in enumerate(value.type.fields)]


def _compare_identity(context: Context, op: ast.cmpop, left: Value, right: Value, at: ast.AST) -> Value:
    same: Value | None = None
    for operand, other in ((left, right), (right, left)):
        if other.type is NONE:
            for rule in rules.presence:
                presence = rule(operand)
                if presence is not None:
                    same = apply_unary(context, ast.Not(), presence[0], at)
    if same is None:
        if left.is_static and right.is_static:
            same = static(left.static is right.static)
        elif NONE in (left.type, right.type):
            same = static(left.type is right.type)
        else:
            raise context.error("LG201", "`is` compares with None only", at, help="use == for values")
    return apply_unary(context, ast.Not(), same, at) if isinstance(op, ast.IsNot) else same


def _test_membership(context: Context, op: ast.cmpop, left: Value, right: Value, at: ast.AST) -> Value:
    if right.items is not None:
        members = list(right.items)
    elif isinstance(right.type, ArrayType):
        members = list_elements(right, context, at)
    elif right.is_static and isinstance(right.static, range | list | set | frozenset | dict):
        members = [static(item) for item in right.static]
    else:
        raise context.error("LG201", "`in` only supports tuples and lists", at, found=name_of(right))
    missing: Value = static(True)
    for item in members:
        missing = logical_and(missing, compare(context, ast.NotEq(), left, item, at), context, at)
    return missing if isinstance(op, ast.NotIn) else apply_unary(context, ast.Not(), missing, at)
