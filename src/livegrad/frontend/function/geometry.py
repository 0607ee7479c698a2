"""Intrinsics for graphics and geometry: selection, interpolation, vectors and matrices.

Importing the module adds them to `INTRINSICS`.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from livegrad.diagnostics import LivegradError
from livegrad.frontend.function.compile_state import Context
from livegrad.frontend.function.compile_values import (
    Value,
    as_scalar_type,
    name_of,
    node_of,
    runtime,
    static,
    tuple_value,
    with_aliases,
)
from livegrad.frontend.function.function_types import ArrayType, describe
from livegrad.frontend.function.intrinsics import INTRINSICS, intrinsic, require_count, shaped_result
from livegrad.frontend.function.lvalues import detach_value
from livegrad.frontend.function.operators import Shaped, apply_binary, convert_to_common_type, unify
from livegrad.frontend.function.promotion import promote
from livegrad.frontend.function.sequences import array_of
from livegrad.ir import types as ir
from livegrad.ir.node import Node
from livegrad.ir.op import Op
from livegrad.ops import elementwise, vector
from livegrad.ops.rules import filled, zero

# --- selection and interpolation -------------------------------------------------------------------------------------


@intrinsic("where", "select")
def _where(context: Context, values: Sequence[Value], at: ast.AST) -> Value:
    require_count(context, values, 3, "select", at)
    condition, then, otherwise = values
    if condition.is_static:
        return then if condition.static else otherwise
    type, a, b = convert_to_common_type(context, then, otherwise, at)
    span = context.span(at)
    node = elementwise.select(node_of(condition, span), node_of(a, span), node_of(b, span))
    return context.result(type, node, [then, otherwise], at, then.weak and otherwise.weak)


@intrinsic("clamp")
def _clamp(context: Context, values: Sequence[Value], at: ast.AST) -> Value:
    require_count(context, values, 3, "clamp", at)
    x, low, high = values
    return INTRINSICS["minimum"](context, [INTRINSICS["maximum"](context, [x, low], at), high], at)


@intrinsic("mix")
def _mix(context: Context, values: Sequence[Value], at: ast.AST) -> Value:
    require_count(context, values, 3, "mix", at)
    a, b, t = values
    offset = apply_binary(context, ast.Mult(), apply_binary(context, ast.Sub(), b, a, at), t, at)
    return apply_binary(context, ast.Add(), a, offset, at)


@intrinsic("step")
def _step(context: Context, values: Sequence[Value], at: ast.AST) -> Value:
    require_count(context, values, 2, "step", at)
    type, edge, x = unify(context, values[0], values[1], at, "step")
    ones = filled(1.0, type)
    return shaped_result(context, elementwise.select(x < edge, zero(type), ones), [], at)


@intrinsic("smoothstep")
def _smoothstep(context: Context, values: Sequence[Value], at: ast.AST) -> Value:
    require_count(context, values, 3, "smoothstep", at)
    low, high, x = values
    width = apply_binary(context, ast.Sub(), high, low, at)
    t = _clamp(context, [apply_binary(context, ast.Div(), apply_binary(context, ast.Sub(), x, low, at), width, at),
                         static(0.0), static(1.0)], at)  # fmt: skip
    factor = apply_binary(context, ast.Sub(), static(3.0), apply_binary(context, ast.Mult(), static(2.0), t, at), at)
    return apply_binary(context, ast.Mult(), apply_binary(context, ast.Mult(), t, t, at), factor, at)


def _vectors(context: Context, values: Sequence[Value], name: str, at: ast.AST) -> list[Node]:
    nodes = []
    scalar: ir.Scalar | None = None
    for value in values:
        if isinstance(value.type, ArrayType):
            value = array_of(context, [value], at)
        if not isinstance(value.type, ir.Vector):
            raise context.error("LG201", f"`{name}` takes vectors", at, found=", ".join(map(name_of, values)))
        element = value.type.element
        scalar = element if scalar is None else promote(scalar, False, element, value.weak)
        nodes.append(node_of(value, context.span(at)))
    assert scalar is not None
    nodes = [as_scalar_type(Value(_shaped(node), node), scalar, context.span(at)) for node in nodes]
    if any(node.type is not nodes[0].type for node in nodes):
        raise context.error("LG201", f"`{name}` takes vectors of equal size", at, found=", ".join(map(name_of, values)))
    return nodes


def _shaped(node: Node) -> Shaped:
    assert isinstance(node.type, Shaped)
    return node.type


def _register_vector_op(name: str, op: Op, count: int) -> None:
    @intrinsic(name)
    def handler(context: Context, values: Sequence[Value], at: ast.AST) -> Value:
        require_count(context, values, count, name, at)
        try:
            return shaped_result(context, op(*_vectors(context, values, name, at)), values, at)
        except LivegradError as error:
            raise context.error("LG201", f"`{name}`: {error.what}", at) from None


for _name, _operation, _operands in (
    ("dot", vector.dot, 2),
    ("cross", vector.cross, 2),
    ("length", vector.length, 1),
    ("normalize", vector.normalize, 1),
):
    _register_vector_op(_name, _operation, _operands)


def _register_matrix_op(name: str, op: Op) -> None:
    @intrinsic(name)
    def handler(context: Context, values: Sequence[Value], at: ast.AST) -> Value:
        require_count(context, values, 1, name, at)
        (value,) = values
        if not isinstance(value.type, ir.Matrix):
            raise context.error("LG201", f"`{name}` takes a matrix", at, found=name_of(value))
        return shaped_result(context, op(node_of(value, context.span(at))), values, at)


for _name, _operation in (
    ("determinant", vector.determinant), ("inverse", vector.inverse), ("transpose", vector.matrix_transpose),
):  # fmt: skip
    _register_matrix_op(_name, _operation)


@intrinsic("dist")
def _dist(context: Context, values: Sequence[Value], at: ast.AST) -> Value:
    require_count(context, values, 2, "dist", at)
    vectors = [array_of(context, [v], at) if not isinstance(v.type, ir.Vector) else v for v in values]
    return INTRINSICS["length"](context, [apply_binary(context, ast.Sub(), vectors[0], vectors[1], at)], at)


@intrinsic("detach")
def _detach(context: Context, values: Sequence[Value], at: ast.AST) -> Value:
    """Drops the derivative of a value."""
    require_count(context, values, 1, "detach", at)
    (value,) = values
    if value.items is not None:
        return tuple_value([_detach(context, [item], at) for item in value.items])
    if value.node is None or value.type is None:
        return value
    cut = with_aliases(runtime(value.type, detach_value(value.node), weak=value.weak), value.aliases)
    return context.with_flow(cut, "cut", [value], at)


@intrinsic("type_name")
def _type_name(context: Context, values: Sequence[Value], at: ast.AST) -> Value:
    return static(describe(values[0].type) if values[0].type is not None else name_of(values[0]))
