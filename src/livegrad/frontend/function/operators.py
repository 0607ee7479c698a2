"""Compiles Python's arithmetic and logical operators.

Numbers of different types are promoted as in Python and NumPy; scalars broadcast over vectors.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any

from livegrad.frontend.function.aliases import Alias
from livegrad.frontend.function.array_arithmetic import array_binary, array_operation, is_array
from livegrad.frontend.function.compile_state import Context
from livegrad.frontend.function.compile_values import (
    Value,
    aliases_of,
    as_scalar_type,
    convert,
    join,
    name_of,
    node_of,
    runtime,
    splat_to,
    static,
    tuple_value,
    with_aliases,
)
from livegrad.frontend.function.function_types import ArrayType, FrontType, RecordType, describe
from livegrad.frontend.function.promotion import promote
from livegrad.frontend.function.type_rules import rules
from livegrad.ir import types as ir
from livegrad.ir.node import Node
from livegrad.ops import comparison, elementwise, transcendental, vector
from livegrad.ops.aggregate import member
from livegrad.ops.control import check, make_for_loop
from livegrad.ops.rules import filled

_PYTHON: dict[type[ast.operator], tuple[Callable[[Any, Any], Any], str, str]] = {
    ast.Add: (operator.add, "+", "__add__"),
    ast.Sub: (operator.sub, "-", "__sub__"),
    ast.Mult: (operator.mul, "*", "__mul__"),
    ast.Div: (operator.truediv, "/", "__truediv__"),
    ast.FloorDiv: (operator.floordiv, "//", "__floordiv__"),
    ast.Mod: (operator.mod, "%", "__mod__"),
    ast.Pow: (operator.pow, "**", "__pow__"),
    ast.MatMult: (operator.matmul, "@", "__matmul__"),
    ast.BitAnd: (operator.and_, "&", "__and__"),
    ast.BitOr: (operator.or_, "|", "__or__"),
    ast.BitXor: (operator.xor, "^", "__xor__"),
    ast.LShift: (operator.lshift, "<<", "__lshift__"),
    ast.RShift: (operator.rshift, ">>", "__rshift__"),
}
_OPS = {
    ast.Add: elementwise.add,
    ast.Sub: elementwise.sub,
    ast.Mult: elementwise.mul,
    ast.FloorDiv: elementwise.floor_div,
    ast.Mod: elementwise.mod,
    ast.BitAnd: comparison.bit_and,
    ast.BitOr: comparison.bit_or,
    ast.BitXor: comparison.bit_xor,
    ast.LShift: comparison.shift_left,
    ast.RShift: comparison.shift_right,
}
Shaped = ir.Scalar | ir.Vector | ir.Matrix
_MAX_UNROLLED_EXPONENT = 16


def apply_binary(context: Context, op: ast.operator, left: Value, right: Value, at: ast.AST) -> Value:
    """`left op right`."""
    python, symbol, method = _PYTHON[type(op)]
    if left.is_number and right.is_number:
        return _fold_constants(context, python, left, right, at)
    by_method = _call_operator_method(context, method, left, right, at)
    if by_method is not None:
        return by_method
    if is_array(left) or is_array(right):
        return array_binary(context, op, symbol, [left, right], at)
    joined = _concatenate_or_repeat(context, op, left, right, at)
    if joined is not None:
        return joined
    if isinstance(op, ast.MatMult):
        return _multiply_matrices(context, left, right, at)
    if isinstance(op, ast.Pow):
        return _apply_power(context, left, right, at)
    shape, a, b = unify(context, left, right, at, symbol)
    scalar = ir.scalar_of(shape)
    assert scalar is not None
    weak = left.weak and right.weak
    if isinstance(op, ast.Div):
        if scalar.kind not in ("float", "complex"):
            scalar = ir.f64
            a, b = (as_scalar_type(Value(shape, node), ir.f64, context.span(at)) for node in (a, b))
        return context.result(_with_scalar(shape, scalar), elementwise.div(a, b), [left, right], at, weak)
    if scalar is ir.bool_ and not isinstance(op, ast.BitAnd | ast.BitOr | ast.BitXor):
        scalar = ir.i64  # True + True is 2
        a, b = (as_scalar_type(Value(shape, node), ir.i64, context.span(at)) for node in (a, b))
        shape = _with_scalar(shape, scalar)
    bits = isinstance(op, ast.BitAnd | ast.BitOr | ast.BitXor | ast.LShift | ast.RShift)
    if bits and scalar.kind in ("float", "complex"):
        raise _operand_error(context, symbol, left, right, at)
    node = _OPS[type(op)](a, b)
    return context.result(shape, node, [left, right], at, weak)


def _with_scalar(type: Shaped, scalar: ir.Scalar) -> Shaped:
    shaped = ir.with_scalar(type, scalar)
    assert isinstance(shaped, Shaped)
    return shaped


def _fold_constants(
    context: Context, python: Callable[[Any, Any], Any], left: Value, right: Value, at: ast.AST
) -> Value:
    try:
        return static(python(left.static, right.static))
    except Exception as error:
        raise context.error("LG201", f"cannot compute with these numbers: {error}", at) from None


def _operand_error(context: Context, symbol: str, left: Value, right: Value, at: ast.AST) -> Exception:
    return context.error(
        "LG201", f"`{symbol}` does not accept these operands", at, found=f"{name_of(left)} and {name_of(right)}"
    )


def _call_operator_method(context: Context, method: str, left: Value, right: Value, at: ast.AST) -> Value | None:
    """Calls the operator method of a struct operand, or its reflected method; None if neither defines one."""
    for target, other, name in ((left, right, method), (right, left, method.replace("__", "__r", 1))):
        if isinstance(target.type, RecordType) and name in target.type.methods:
            return call_method(context, target, name, [other], at)
    return None


def call_method(context: Context, target: Value, name: str, values: list[Value], at: ast.AST) -> Value:
    """Calls a method of a struct."""
    assert isinstance(target.type, RecordType)
    return context.call(target.type.methods[name], [target, *values], at)


def _concatenate_or_repeat(context: Context, op: ast.operator, left: Value, right: Value, at: ast.AST) -> Value | None:
    """`+` concatenates and `*` repeats lists and tuples; None for other operands."""
    if isinstance(op, ast.Add):
        if left.items is not None and right.items is not None:
            return tuple_value([*left.items, *right.items])
        if isinstance(left.type, ArrayType) and isinstance(right.type, ArrayType):
            return context.list_of([*list_elements(left, context, at), *list_elements(right, context, at)], at)
    if isinstance(op, ast.Mult):
        for sequence, count in ((left, right), (right, left)):
            if isinstance(count.static, int) and not isinstance(count.static, bool):
                members = list(sequence.items or ())
                if isinstance(sequence.type, ArrayType):
                    members = list_elements(sequence, context, at)
                elif sequence.items is None:
                    continue
                if count.static > 1:  # each member is one object that occurs several times
                    members = [with_aliases(m, (*aliases_of(m), Alias((at, k), 0, 0))) for k, m in enumerate(members)]
                repeated = members * count.static
                return tuple_value(repeated) if sequence.items is not None else context.list_of(repeated, at)
    return None


def list_elements(value: Value, context: Context, at: ast.AST) -> list[Value]:
    """The elements of a list."""
    assert isinstance(value.type, ArrayType)
    node = node_of(value, context.span(at))
    element = value.type.element
    return [context.part(element, member(node, index), value, at, value.weak) for index in range(value.type.size)]


def unify(context: Context, left: Value, right: Value, at: ast.AST, symbol: str) -> tuple[Shaped, Node, Node]:
    """Converts two numbers or vectors to nodes of one type."""
    if not isinstance(left.type, Shaped) or not isinstance(right.type, Shaped):
        raise _operand_error(context, symbol, left, right, at)
    first, second = ir.scalar_of(left.type), ir.scalar_of(right.type)
    assert first is not None
    assert second is not None
    scalar = promote(first, left.weak, second, right.weak)
    span = context.span(at)
    a, b = as_scalar_type(left, scalar, span), as_scalar_type(right, scalar, span)
    type = b.type if isinstance(a.type, ir.Scalar) else a.type
    a, b = splat_to(a, type), splat_to(b, type)
    if a.type is not b.type:
        raise _operand_error(context, symbol, left, right, at)
    assert isinstance(type, Shaped)
    return type, a, b


def _multiply_matrices(context: Context, left: Value, right: Value, at: ast.AST) -> Value:
    if not isinstance(left.type, ir.Vector | ir.Matrix) or not isinstance(right.type, ir.Vector | ir.Matrix):
        raise _operand_error(context, "@", left, right, at)
    scalar = promote(left.type.element, left.weak, right.type.element, right.weak)
    span = context.span(at)
    a, b = as_scalar_type(left, scalar, span), as_scalar_type(right, scalar, span)
    try:
        if isinstance(left.type, ir.Matrix):
            op = vector.matrix_multiply if isinstance(right.type, ir.Matrix) else vector.matrix_vector
            node = op(a, b)
        elif isinstance(right.type, ir.Matrix):
            node = vector.matrix_vector(vector.matrix_transpose(b), a)
        else:
            node = vector.dot(a, b)
    except Exception:
        raise _operand_error(context, "@", left, right, at) from None
    return context.result(front_type_of(node), node, [left, right], at)


def front_type_of(node: Node) -> FrontType:
    assert isinstance(node.type, Shaped)
    return node.type


def _apply_power(context: Context, left: Value, right: Value, at: ast.AST) -> Value:
    exponent = right.static
    base_scalar = ir.scalar_of(left.type) if isinstance(left.type, Shaped) else None
    if base_scalar is None:
        raise _operand_error(context, "**", left, right, at)
    is_integer = isinstance(exponent, int) and not isinstance(exponent, bool)
    if is_integer and abs(exponent) <= _MAX_UNROLLED_EXPONENT and not left.is_number:
        return _unroll_power(context, left, exponent, at)
    integers = ("bool", "signed", "unsigned")
    if base_scalar.kind in integers and isinstance(right.type, ir.Scalar) and right.type.kind in integers:
        return _loop_power(context, left, right, at)
    type, a, b = unify(context, left, right, at, "**")
    scalar = ir.scalar_of(type)
    assert scalar is not None
    if scalar.kind != "float":
        raise _operand_error(context, "**", left, right, at)
    return context.result(type, transcendental.pow(a, b), [left, right], at, left.weak and right.weak)


def _unroll_power(context: Context, left: Value, exponent: int, at: ast.AST) -> Value:
    """A small static integer power, by repeated squaring: fast, with an exact derivative at 0."""
    base = node_of(left, context.span(at))
    scalar = ir.scalar_of(base.type)
    assert scalar is not None
    if scalar.kind not in ("float", "complex") and (exponent < 0 or scalar is ir.bool_):
        wide = ir.i64 if exponent >= 0 else ir.f64
        base = as_scalar_type(left, wide, context.span(at))
        scalar = wide
    one = filled(1.0 if scalar.kind in ("float", "complex") else 1, base.type)
    total, square, rest = None, base, abs(exponent)
    while rest:
        if rest & 1:
            total = square if total is None else total * square
        rest >>= 1
        if rest:
            square = square * square
    result = one if total is None else total
    if exponent < 0:
        result = one / result
    return context.result(front_type_of(result), result, [left], at, left.weak)


def _loop_power(context: Context, left: Value, right: Value, at: ast.AST) -> Value:
    """int ** int as a loop of multiplications; a negative exponent is a run-time error."""
    span = context.span(at)
    scalar = promote(*(ir.i64 if v.type is ir.bool_ else v.type for v in (left,)), left.weak, ir.i64, True)  # type: ignore[arg-type,misc]
    base, exponent = as_scalar_type(left, scalar, span), as_scalar_type(right, ir.i64, span)
    iterations = check(exponent, exponent >= 0, message="a negative exponent of an integer")
    (node,) = make_for_loop(iterations, lambda index, total: total * base, filled(1, scalar))
    return context.result(scalar, node, [], at)


_UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Invert: operator.invert,
}


# --- unary -----------------------------------------------------------------------------------------------------------


def apply_unary(context: Context, op: ast.unaryop, value: Value, at: ast.AST) -> Value:
    """`-x`, `+x`, `~x`, `not x`."""
    if isinstance(op, ast.Not):
        is_true = to_bool(context, value, at)
        return (
            static(not is_true.static) if is_true.is_static else runtime(ir.bool_, ~node_of(is_true, context.span(at)))
        )
    if value.is_number:
        return static(_UNARY[type(op)](value.static))
    if isinstance(value.type, RecordType) and isinstance(op, ast.USub) and "__neg__" in value.type.methods:
        return call_method(context, value, "__neg__", [], at)
    if is_array(value):
        return array_operation(context, _UNARY[type(op)], [value], "this operator", at)
    scalar = ir.scalar_of(value.type) if isinstance(value.type, Shaped) else None
    if scalar is None or value.node is None:
        raise context.error("LG201", "this operator does not accept the operand", at, found=name_of(value))
    node = value.node
    if scalar is ir.bool_:
        node = as_scalar_type(value, ir.i64, context.span(at))
    if isinstance(op, ast.UAdd):
        return value if scalar is not ir.bool_ else context.result(ir.i64, node, [], at)
    if isinstance(op, ast.Invert):
        if scalar.kind in ("float", "complex"):
            raise context.error("LG201", "`~` does not accept this operand", at, found=name_of(value))
        return context.result(front_type_of(node), ~node, [], at)
    return context.result(front_type_of(node), -node, [value], at, value.weak)


def to_bool(context: Context, value: Value, at: ast.AST) -> Value:
    """The truth of a value, as a bool value: numbers are true unless zero, lists unless empty."""
    if value.is_static:
        return static(bool(value.static))
    if value.items is not None:
        return static(bool(value.items))
    if value.type is ir.bool_:
        return value
    for rule in rules.presence:
        is_true = rule(value)
        if is_true is not None:
            present, inner = is_true
            if isinstance(inner.type, ir.Scalar):
                return logical_and(present, to_bool(context, inner, at), context, at)
            return present
    if isinstance(value.type, ir.Scalar) and value.node is not None:
        zero = False if value.type is ir.bool_ else (0.0 if value.type.kind in ("float", "complex") else 0)
        return runtime(ir.bool_, comparison.not_equal(value.node, zero))
    if isinstance(value.type, ArrayType):
        return static(value.type.size > 0)
    raise context.error(
        "LG201", f"{name_of(value)} cannot be used as a condition", at, help="compare it with something"
    )


def logical_and(first: Value, second: Value, context: Context, at: ast.AST) -> Value:
    """The conjunction of two bool values, folded if one is static."""
    for operand, other in ((first, second), (second, first)):
        if operand.is_static:
            return other if operand.static else static(False)
    span = context.span(at)
    return runtime(ir.bool_, node_of(first, span) & node_of(second, span))


# --- conversions -----------------------------------------------------------------------------------------------------


def convert_to_common_type(
    context: Context, first: Value, second: Value, at: ast.AST
) -> tuple[FrontType, Value, Value]:
    """Converts two values to their common type, for a selection between them."""
    type = join(first, second)
    if type is None:
        raise context.error(
            "LG203", "the two branches have different types", at, found=f"{name_of(first)} and {name_of(second)}"
        )
    span = context.span(at)
    return type, convert(first, type, span), convert(second, type, span)


def expect_int(context: Context, value: Value, at: ast.AST, role: str) -> Node:
    """Converts an integer value to an i64 node; raises for other types."""
    if not isinstance(value.type, ir.Scalar) or value.type.kind not in ("bool", "signed", "unsigned"):
        found = describe(value.type) if value.type is not None else name_of(value)
        advice = "write int(...) to convert it" if isinstance(value.type, ir.Scalar) else None
        raise context.error("LG202", f"{role} must be an int", at, found=found, help=advice)
    return as_scalar_type(value, ir.i64, context.span(at))
