"""The differential protocol: the `Differential` of each differentiable type, with `dzero`, `dadd` and `dmul`.

Structs may define these operations themselves; otherwise they apply to each member.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from operator import itemgetter
from typing import Any

import numpy as np

from livegrad.diagnostics import UsageError, caller_origin
from livegrad.frontend.differentiable.differentials import TaggedType, differential_field
from livegrad.frontend.function.calls import call_value
from livegrad.frontend.function.compile_state import Context
from livegrad.frontend.function.compile_values import Value, as_scalar_type, convert, node_of, runtime
from livegrad.frontend.function.function_errors import FunctionError
from livegrad.frontend.function.function_types import (
    ArrayType,
    FrontType,
    RecordType,
    TupleType,
    describe,
    differential_type,
    ir_of,
)
from livegrad.frontend.function.type_reading import plain_type
from livegrad.frontend.function.vectors import VectorValue
from livegrad.ir import types as ir
from livegrad.ir.node import Node
from livegrad.ops.aggregate import make, member
from livegrad.ops.rules import add_values, zero


class Differentiable:
    """The bound for type variables that accept any differentiable type.

    >>> import livegrad as lg
    >>> @lg.differentiable
    ... class Spring:
    ...     stiffness: lg.f32
    >>> Spring.Differential(stiffness=2.0)
    Spring.Differential(stiffness=2.0)
    """


def require_differential(type: FrontType) -> FrontType:
    """The Differential of a type; raises if it has none.

    >>> require_differential(ir.f32)
    f32
    """
    differential = differential_type(type)
    if differential is None:
        raise FunctionError(
            "LG306", f"{describe(type)} is not differentiable", help="a differentiable type contains a float"
        )
    return differential


# --- operations in captured functions --------------------------------------------------------------------------------


def _custom_operation(type: FrontType, name: str) -> Any:
    """The custom `dzero`, `dadd` or `dmul` of a struct, or None."""
    return type.methods.get(name) if isinstance(type, RecordType) else None


def has_custom_operation(type: FrontType, name: str) -> bool:
    """Whether a type defines its own `dzero`, `dadd` or `dmul`."""
    return _custom_operation(type, name) is not None


def has_custom_sum(type: FrontType) -> bool:
    """Whether a type, or a type inside it, defines its own `dadd`."""
    if has_custom_operation(type, "dadd"):
        return True
    inner = (
        type.payload_types()
        if isinstance(type, TaggedType)
        else [member_type for _, member_type in _members(type) or []]
    )
    return any(map(has_custom_sum, inner))


def _unwrap_static(method: Any) -> Any:
    return method.__func__ if isinstance(method, staticmethod) else method


def zero_node(context: Context, type: FrontType, at: ast.AST) -> Value:
    """`dzero` of a type in a captured function."""
    differential = require_differential(type)
    method = _custom_operation(type, "dzero")
    if method is not None:
        return convert(call_value(context, _unwrap_static(method), [], {}, at), differential, context.span(at), "dzero")
    if isinstance(type, TaggedType):
        return runtime(differential, type.zero_differential())
    return runtime(differential, zero(ir_of(differential)))


def add_nodes(context: Context, type: FrontType, first: Value, second: Value, at: ast.AST) -> Value:
    """`dadd` of a type in a captured function."""
    differential = require_differential(type)
    span = context.span(at)
    first, second = convert(first, differential, span, "the first"), convert(second, differential, span, "the second")
    method = _custom_operation(type, "dadd")
    if method is not None:
        return call_value(context, _unwrap_static(method), [first, second], {}, at)
    if isinstance(type, TaggedType):

        def add(payload: FrontType, a: Node, b: Node) -> Node:
            inner = require_differential(payload)
            return node_of(add_nodes(context, payload, runtime(inner, a), runtime(inner, b), at), span)

        nodes = node_of(first, span), node_of(second, span)
        added = type.add_payloads(add, *nodes) if has_custom_sum(type) else type.add_differentials(*nodes)
        return context.result(differential, added, [first, second], at)
    inner = _members(type)
    if inner is None:
        return context.result(
            differential, add_values(node_of(first, span), node_of(second, span)), [first, second], at
        )
    sums = {
        index: add_nodes(
            context,
            part,
            _member(context, differential, first, index, at),
            _member(context, differential, second, index, at),
            at,
        )
        for index, part in inner
    }
    return _assemble(context, differential, sums, [first, second], at)


def scale_nodes(context: Context, type: FrontType, factor: Value, value: Value, at: ast.AST) -> Value:
    """`dmul` of a type in a captured function: multiplies a differential by a real number."""
    differential = require_differential(type)
    span = context.span(at)
    value = convert(value, differential, span, "the differential")
    method = _custom_operation(type, "dmul")
    if method is not None:
        return call_value(context, _unwrap_static(method), [factor, value], {}, at)
    if not isinstance(factor.type, ir.Scalar) or factor.type.kind not in ("float", "signed", "unsigned"):
        raise context.error("LG202", "dmul takes a real number as its factor", at)
    if isinstance(type, TaggedType):
        scaled_node = type.scale_differential(lambda to: as_scalar_type(factor, to, span), node_of(value, span))
        return context.result(differential, scaled_node, [factor, value], at)
    inner = _members(type)
    if inner is None:
        node = node_of(value, span)
        scalar = ir.scalar_of(node.type)
        assert scalar is not None
        scaled = as_scalar_type(factor, scalar, span)
        factors = scaled if node.type is scalar else make(*[scaled] * len(ir.components(node.type)), type=node.type)
        return context.result(differential, factors * node, [factor, value], at)
    parts = {
        index: scale_nodes(context, part, factor, _member(context, differential, value, index, at), at)
        for index, part in inner
    }
    return _assemble(context, differential, parts, [factor, value], at)


def _members(type: FrontType) -> list[tuple[int, FrontType]] | None:
    """The types of members with differentials, by index in the Differential; None for numbers and vectors."""
    if isinstance(type, RecordType):
        types_by_index = {differential_field(type, field): field.type for field in type.fields}
        return sorted(
            ((index, member_type) for index, member_type in types_by_index.items() if index is not None),
            key=itemgetter(0),
        )
    if isinstance(type, TupleType):
        return [
            (k, member_type)
            for k, member_type in enumerate(type.elements)
            if differential_type(member_type) is not None
        ]
    if isinstance(type, ArrayType):
        return [(k, type.element) for k in range(type.size)]
    return None


def _member(context: Context, type: FrontType, value: Value, index: int, at: ast.AST) -> Value:
    if value.items is not None:
        return value.items[index]
    part_type = member_type(type, index)
    return context.result(part_type, member(node_of(value, context.span(at)), index), [value], at)


def member_type(type: FrontType, index: int) -> FrontType:
    """The type of a member of a composite."""
    if isinstance(type, RecordType):
        return type.fields[index].type
    if isinstance(type, TupleType):
        return type.elements[index]
    assert isinstance(type, ArrayType)
    return type.element


def _assemble(context: Context, type: FrontType, parts: dict[int, Value], inputs: list[Value], at: ast.AST) -> Value:
    """Assembles a value from some of its members; the others are zero."""
    span = context.span(at)
    part_nodes = {index: node_of(part, span) for index, part in parts.items()}
    types = ir.components(ir_of(type))
    nodes = [part_nodes[index] if index in part_nodes else zero(part_type) for index, part_type in enumerate(types)]
    return context.result(type, make(*nodes, type=ir_of(type)), inputs, at)


# --- operations on Python values -------------------------------------------------------------------------------------


def dzero(type: Any) -> Any:
    """The zero of a type's Differential, from which sums of derivatives start.

    >>> float(dzero(float))
    0.0
    """
    primal_type = plain_type(type)
    return zero_of(primal_type)


def zero_of(type: FrontType) -> Any:
    """`dzero` of a type, as a Python value."""
    differential = require_differential(type)
    method = _custom_operation(type, "dzero")
    if method is not None:
        return _unwrap_static(method)()
    if isinstance(type, TaggedType):
        return type.zero_value()
    if isinstance(differential, RecordType):
        assert isinstance(type, RecordType)
        parts = {differential.fields[index].name: zero_of(part) for index, part in _members(type) or []}
        return differential.make(**_fill_with_zeros(differential, parts))
    if isinstance(type, TupleType):
        return tuple(None if differential_type(part) is None else zero_of(part) for part in type.elements)
    if isinstance(type, ArrayType):
        return [zero_of(type.element) for _ in range(type.size)]
    if isinstance(differential, ir.Scalar):
        return (
            differential.dtype.type(0) if differential not in (ir.f64, ir.c128) else differential.dtype.type(0).item()
        )
    assert isinstance(differential, ir.Vector | ir.Matrix)
    shape = (differential.size,) if isinstance(differential, ir.Vector) else (differential.rows, differential.columns)
    return np.zeros(shape, differential.element.dtype).view(VectorValue)


def dadd(type: Any, first: Any, second: Any) -> Any:
    """The sum of two differentials of a type.

    >>> dadd(float, 1.0, 2.0)
    3.0
    """
    return combine(plain_type(type), [first, second], lambda a, b: a + b, "dadd", ())


def dmul(type: Any, factor: Any, value: Any) -> Any:
    """Multiplies a differential of a type by a real number.

    >>> dmul(float, 2.0, 3.0)
    6.0
    """
    return combine(plain_type(type), [value], lambda a: _scale(factor, a), "dmul", (factor,))


def _scale(factor: Any, value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return np.multiply(value.dtype.type(factor), value)
    # The result has the precision of the differential, not that of the factor.
    return (factor.item() if isinstance(factor, np.generic) else factor) * value


def combine(type: FrontType, values: list[Any], leaf: Callable[..., Any], name: str, first: tuple[Any, ...]) -> Any:
    """Applies `dadd` or `dmul` to Python values, member by member: `leaf` on numbers and vectors, or the custom
    operation `name` on `first` and the values.
    """
    differential = require_differential(type)
    method = _custom_operation(type, name)
    if method is not None:
        return _unwrap_static(method)(*first, *values)
    if isinstance(type, TaggedType):
        return type.combine_values(values, leaf, name, first)
    if isinstance(differential, RecordType):
        assert isinstance(type, RecordType)
        _require_members(differential, values, name)
        names = [(differential.fields[index].name, part) for index, part in _members(type) or []]
        parts = {n: combine(part, [getattr(value, n) for value in values], leaf, name, first) for n, part in names}
        return differential.make(**_fill_with_zeros(differential, parts))
    if isinstance(type, TupleType):
        return tuple(
            None if differential_type(part) is None else combine(part, [v[k] for v in values], leaf, name, first)
            for k, part in enumerate(type.elements)
        )
    if isinstance(type, ArrayType):
        return [combine(type.element, [v[k] for v in values], leaf, name, first) for k in range(type.size)]
    return leaf(*values)


def _require_members(differential: RecordType, values: list[Any], name: str) -> None:
    for value in values:
        if not all(hasattr(value, field.name) for field in differential.fields):
            raise UsageError(
                f"{name} takes differentials", where=caller_origin(), expected=describe(differential), found=repr(value)
            )


def _fill_with_zeros(differential: RecordType, parts: dict[str, Any]) -> dict[str, Any]:
    """Adds zeros for the members of a Differential that belong to no field."""
    missing = [field for field in differential.fields if field.name not in parts]
    return parts | {
        field.name: 0 if differential_type(field.type) is None else zero_of(field.type) for field in missing
    }


class ProtocolCall:
    """`T.dzero`, `T.dadd` and `T.dmul`, or `dzero(T)` with the type first, for Python and captured functions.

    >>> import livegrad as lg
    >>> lg.dzero(lg.vec2), lg.dadd(float, 1.0, 2.0), lg.dmul(float, 0.5, 4.0)
    (VectorValue([0., 0.], dtype=float32), 3.0, 2.0)
    """

    def __init__(self, name: str, type: FrontType | None = None) -> None:
        self.name, self.type = name, type
        self.__name__ = name

    def __repr__(self) -> str:
        return f"<{self.name}>" if self.type is None else f"<{self.name} of {self.type}>"

    def __call__(self, *arguments: Any) -> Any:
        operands = arguments if self.type is None else (self.type, *arguments)
        return {"dzero": dzero, "dadd": dadd, "dmul": dmul}[self.name](*operands)

    def __livegrad_call__(
        self, context: Context, positional: list[Value], keywords: dict[str, Value], at: ast.AST
    ) -> Value:
        values = list(positional)
        type = self.type
        if type is None:
            if not values:
                raise context.error("LG108", f"`{self.name}` takes a type first", at)
            type = plain_type(values.pop(0).static)
        count = {"dzero": 0, "dadd": 2, "dmul": 2}[self.name]
        if len(values) != count or keywords:
            raise context.error("LG108", f"`{self.name}` takes {count} values", at, found=str(len(values)))
        operation: Any = {"dzero": zero_node, "dadd": add_nodes, "dmul": scale_nodes}[self.name]
        return operation(context, type, *values, at)


OPERATIONS = {name: ProtocolCall(name) for name in ("dzero", "dadd", "dmul")}
