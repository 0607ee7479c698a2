"""Intrinsics for lists, tuples and vectors: `len`, `min`, `max`, `sum`, `any`, `list`, `np.array`.

Importing the module adds them to `INTRINSICS`; `sequence_members` splits such a value into its members.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from livegrad.frontend.function.aliases import aliases_of_shallow_copy
from livegrad.frontend.function.compile_state import Context
from livegrad.frontend.function.compile_values import (
    Value,
    array_advice,
    array_value,
    as_scalar_type,
    name_of,
    node_of,
    runtime,
    static,
    tuple_value,
    with_aliases,
)
from livegrad.frontend.function.function_types import ArrayType, TensorType
from livegrad.frontend.function.intrinsics import intrinsic, require_count, shaped_result
from livegrad.frontend.function.operators import apply_binary, list_elements, to_bool, unify
from livegrad.ir import types as ir
from livegrad.ir.node import Node
from livegrad.ir.op import Op
from livegrad.ops import elementwise
from livegrad.ops.aggregate import make, members_of


def sequence_members(context: Context, value: Value, at: ast.AST) -> list[Value] | None:
    """The members of a list, tuple or vector; None for other values."""
    if value.items is not None:
        return list(value.items)
    if isinstance(value.type, ArrayType):
        return list_elements(value, context, at)
    if isinstance(value.type, ir.Vector):
        element = value.type.element
        return [context.result(element, node, [value], at) for node in members_of(node_of(value, context.span(at)))]
    return None


@intrinsic("len")
def _len(context: Context, values: Sequence[Value], at: ast.AST) -> Value:
    require_count(context, values, 1, "len", at)
    (value,) = values
    if value.items is not None:
        return static(len(value.items))
    if isinstance(value.type, ArrayType | ir.Vector):
        return static(value.type.size)
    if isinstance(value.type, ir.Matrix):
        return static(value.type.rows)
    if isinstance(value.type, TensorType):
        return static(value.type.shape[0])
    raise context.error("LG201", f"{name_of(value)} has no length", at, help=array_advice(value))


def _register_extremum(name: str, op: Op) -> None:
    @intrinsic(name)
    def handler(context: Context, values: Sequence[Value], at: ast.AST) -> Value:
        items = list(values)
        if len(items) == 1:
            inner = sequence_members(context, items[0], at)
            if not inner:
                what = "an empty list" if inner is not None else name_of(items[0])
                raise context.error("LG201", f"`{name}` does not accept {what}", at)
            items = inner
        total = items[0]
        for item in items[1:]:
            type, a, b = unify(context, total, item, at, name)
            if ir.scalar_of(type) is ir.bool_:
                a, b = (as_scalar_type(Value(type, node), ir.i64, context.span(at)) for node in (a, b))
            total = shaped_result(context, op(a, b), [total, item], at, total.weak and item.weak)
        return total


_register_extremum("min", elementwise.min)
_register_extremum("max", elementwise.max)


def _register_fold(name: str, op: ast.operator, start: int) -> None:
    @intrinsic(name)
    def handler(context: Context, values: Sequence[Value], at: ast.AST) -> Value:
        items = sequence_members(context, values[0], at)
        if items is None or len(values) > 2:
            raise context.error("LG201", f"`{name}` does not accept {name_of(values[0])}", at)
        total = values[1] if len(values) > 1 else static(start)
        for item in items:
            total = apply_binary(context, op, total, item, at)
        return total


_register_fold("sum", ast.Add(), 0)
_register_fold("prod", ast.Mult(), 1)


def _register_quantifier(name: str, every: bool) -> None:
    @intrinsic(name)
    def handler(context: Context, values: Sequence[Value], at: ast.AST) -> Value:
        items = sequence_members(context, values[0], at)
        if items is None:
            raise context.error("LG201", f"`{name}` does not accept {name_of(values[0])}", at)
        total: Node | None = None
        for item in items:
            test = to_bool(context, item, at)
            if test.is_static:
                if bool(test.static) is not every:
                    return static(not every)
                continue
            node = node_of(test, context.span(at))
            total = node if total is None else (total & node if every else total | node)
        return static(every) if total is None else runtime(ir.bool_, total)


_register_quantifier("any", False)
_register_quantifier("all", True)


@intrinsic("copy")
def _copy(context: Context, values: Sequence[Value], at: ast.AST) -> Value:
    require_count(context, values, 1, "copy", at)
    return with_aliases(values[0], ())


@intrinsic("list")
def _list(context: Context, values: Sequence[Value], at: ast.AST) -> Value:
    require_count(context, values, 1, "list", at)
    (value,) = values
    if value.items is not None:
        return context.list_of(value.items, at)
    return with_aliases(value, aliases_of_shallow_copy(value.aliases))


@intrinsic("tuple")
def _tuple(context: Context, values: Sequence[Value], at: ast.AST) -> Value:
    items = sequence_members(context, values[0], at) if len(values) == 1 else None
    if items is None:
        raise context.error("LG201", "`tuple` takes a list, vector or tuple", at)
    return tuple_value(items)


@intrinsic("array_of")
def array_of(context: Context, values: Sequence[Value], at: ast.AST) -> Value:
    """`np.array([a, b, c])`: a vector, whose arithmetic is componentwise."""
    items = sequence_members(context, values[0], at)
    if not items or any(not isinstance(item.type, ir.Scalar) for item in items):
        raise context.error("LG201", "only a list of numbers can become a vector", at, found=name_of(values[0]))
    list_element = array_value(items, context.span(at))
    assert isinstance(list_element.type, ArrayType)
    element = list_element.type.element
    assert isinstance(element, ir.Scalar)
    type = ir.Vector(element, len(items))
    return context.result(type, make(*members_of(node_of(list_element, context.span(at))), type=type), items, at)
