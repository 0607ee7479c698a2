"""Converts between the Differentials of frontend types and the differentials of IR types.

`lower_differential` and `raise_differential` map members of a Differential to differentials of fields, and back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from livegrad.frontend.function.function_types import (
    ArrayType,
    Composite,
    Field,
    FrontType,
    RecordType,
    TupleType,
    describe,
    differential_type,
    ir_of,
)
from livegrad.ir import types as ir
from livegrad.ir.leaves import constant
from livegrad.ir.node import Node
from livegrad.ops.aggregate import make, member, members_of
from livegrad.ops.rules import add_values, zero


def differential_field(record: RecordType, field: Field) -> int | None:
    """The index of a field's differential in the record's Differential; None for a field without one."""
    if field.no_diff or differential_type(field.type) is None:
        return None
    differential = record.differential
    assert isinstance(differential, RecordType)
    return differential.index_of(field.derivative_member or field.name)


def count_shared_members(record: RecordType) -> Counter[int]:
    """The number of fields that share each member of the record's Differential."""
    indices = [differential_field(record, field) for field in record.fields]
    return Counter(index for index in indices if index is not None)


def keeps_layout(type: FrontType) -> bool:
    """Whether the type's Differential has the layout of the IR's differential. Equal IR types are not enough, because
    members may be in another order.
    """
    if isinstance(type, TaggedType):
        return False
    if isinstance(type, RecordType):
        floats = [field for field in type.fields if ir.is_differentiable(ir_of(field.type))]
        indices = [differential_field(type, field) for field in floats]
        return indices == list(range(len(floats))) and all(keeps_layout(field.type) for field in floats)
    if isinstance(type, ArrayType):
        return keeps_layout(type.element)
    return not isinstance(type, TupleType) or all(map(keeps_layout, type.elements))


def lower_differential(type: FrontType, node: Node, primal: Node, cotangent: bool = False) -> Node:
    """Converts a differential of `primal` to the IR's differential; `no_diff` fields become zero.

    Fields that share a member each get the member's tangent, or an equal part of its cotangent.
    """
    target = ir.differential_of(ir_of(type))
    if node.type is target and keeps_layout(type):
        return node
    if isinstance(type, TaggedType):
        return type.lower_differential(node, primal, cotangent)
    if isinstance(type, RecordType):
        return _lower_record(type, node, primal, cotangent)
    parts = [
        lower_differential(part_type, part, value, cotangent) for part_type, part, value in _parts(type, node, primal)
    ]
    return make(*parts, type=target)


def _lower_record(type: RecordType, node: Node, primal: Node, cotangent: bool) -> Node:
    shared_counts = count_shared_members(type)
    parts: list[Node] = []
    for index, field in enumerate(type.fields):
        if not ir.is_differentiable(ir_of(field.type)):
            continue
        member_index = differential_field(type, field)
        if member_index is None:
            parts.append(zero(ir.differential_of(ir_of(field.type))))
        else:
            part = lower_differential(field.type, member(node, member_index), member(primal, index), cotangent)
            parts.append(divide_floats(part, shared_counts[member_index]) if cotangent else part)
    return make(*parts, type=ir.differential_of(type.ir))


def raise_differential(type: FrontType, node: Node, primal: Node, cotangent: bool = False) -> Node:
    """Converts the IR's differential of `primal` to the type's Differential.

    A member that several fields share gets the sum of their cotangents, or the mean of their tangents. The derivative
    of the identity is then the identity, and functions that move such fields together obey the chain rule.
    """
    differential = differential_type(type)
    if differential is None:
        return make(type=ir.UNIT)
    target = ir_of(differential)
    if node.type is target and keeps_layout(type):
        return node
    if isinstance(type, TaggedType):
        return type.raise_differential(node, primal, cotangent)
    if isinstance(type, RecordType):
        return _raise_record(type, differential, node, primal, cotangent)
    parts = [raise_differential(inner, part, value, cotangent) for inner, part, value in _parts(type, node, primal)]
    return make(*parts, type=target)


def _raise_record(type: RecordType, differential: FrontType, node: Node, primal: Node, cotangent: bool) -> Node:
    assert isinstance(differential, RecordType)
    shared_counts = count_shared_members(type)
    parts: list[Node | None] = [None] * len(differential.fields)
    next_member = 0
    for position, field in enumerate(type.fields):
        if not ir.is_differentiable(ir_of(field.type)):
            continue
        index = differential_field(type, field)
        if index is not None:
            part = raise_differential(field.type, member(node, next_member), member(primal, position), cotangent)
            part = part if cotangent else divide_floats(part, shared_counts[index])
            partial_sum = parts[index]
            parts[index] = part if partial_sum is None else add_values(partial_sum, part)
        next_member += 1
    pairs = zip(parts, differential.fields, strict=True)
    return make(*[zero(ir_of(field.type)) if part is None else part for part, field in pairs], type=differential.ir)


def divide_floats(node: Node, count: int) -> Node:
    """Divides each float in a value by a count."""
    return node if count == 1 else scale_floats(lambda scalar: constant(1.0 / count, scalar), node)


def scale_floats(factor: Callable[[ir.Scalar], Node], node: Node) -> Node:
    """Multiplies each float in a value by a factor of its type."""
    if isinstance(node.type, ir.Scalar):
        return factor(node.type) * node
    count = len(ir.components(node.type))
    return make(*[scale_floats(factor, member(node, index)) for index in range(count)], type=node.type)


class TaggedType(Composite):
    """A tagged union. Its differentials depend on the primal: on its presence (optionals) or its type (interfaces)."""

    def lower_differential(self, node: Node, primal: Node, cotangent: bool) -> Node:
        raise NotImplementedError

    def raise_differential(self, node: Node, primal: Node, cotangent: bool) -> Node:
        raise NotImplementedError

    def zero_differential(self) -> Node:
        raise NotImplementedError

    def add_differentials(self, first: Node, second: Node) -> Node:
        raise NotImplementedError

    def payload_types(self) -> list[FrontType]:
        """The types that a value of the union may contain."""
        return []

    def add_payloads(self, add: Callable[[FrontType, Node, Node], Node], first: Node, second: Node) -> Node:
        """Adds two differentials with the `dadd` of the types that they contain."""
        return self.add_differentials(first, second)

    def scale_differential(self, factor: Callable[[ir.Scalar], Node], node: Node) -> Node:
        raise NotImplementedError

    def combine_values(self, values: list[Any], leaf: Callable[..., Any], name: str, first: tuple[Any, ...]) -> Any:
        """`dadd` or `dmul` of Python values."""
        raise NotImplementedError

    def zero_value(self) -> Any:
        raise NotImplementedError


def _parts(type: FrontType, node: Node, primal: Node) -> list[tuple[FrontType, Node, Node]]:
    inner: Sequence[FrontType]
    if isinstance(type, ArrayType):
        inner = [type.element] * type.size
    elif isinstance(type, TupleType):
        inner = type.elements
    else:
        raise AssertionError(f"{describe(type)} has a custom differential")
    return list(zip(inner, members_of(node), members_of(primal), strict=True))
