"""Tangents and cotangents during differentiation: symbolic zeros, and aggregates as tuples.

`None` is identically zero. The tangent of an aggregate may be a tuple with an entry for each member, so that each
member may be zero. `materialize` converts any tangent to a node.
"""

from __future__ import annotations

from livegrad.ir.node import Node
from livegrad.ir.types import Struct, Tuple, Type, components, differential_of, is_differentiable
from livegrad.ops.aggregate import differential_index, make, member
from livegrad.ops.rules import add_values, zero

Tangent = Node | None | tuple["Tangent", ...]


def materialize(tangent: Tangent, primal: Type) -> Node:
    """A tangent of a value of type `primal` as one node."""
    if isinstance(tangent, Node):
        return tangent
    type = differential_of(primal)
    if tangent is None:
        return zero(type)
    members = components(primal)
    nodes = [materialize(part, member_type) for part, member_type in zip(tangent, members, strict=True)]
    if isinstance(primal, Struct):
        nodes = [node for node, member_type in zip(nodes, members, strict=True) if is_differentiable(member_type)]
    return make(*nodes, type=type)


def tangent_member(tangent: Tangent, primal: Type, index: int) -> Tangent:
    """The tangent of one member of an aggregate."""
    if tangent is None or not is_differentiable(components(primal)[index]):
        return None
    if isinstance(tangent, tuple):
        return tangent[index]
    return member(tangent, differential_index(primal, index))


def is_zero(tangent: Tangent) -> bool:
    """Whether a tangent is identically zero in all its members."""
    return tangent is None or (isinstance(tangent, tuple) and all(map(is_zero, tangent)))


def add(first: Tangent, second: Tangent, primal: Type) -> Tangent:
    """The sum of two tangents of values of type `primal`."""
    if first is None or second is None:
        return second if first is None else first
    if isinstance(first, tuple) or isinstance(second, tuple):
        return tuple(
            add(tangent_member(first, primal, index), tangent_member(second, primal, index), member_type)
            for index, member_type in enumerate(components(primal))
        )
    return add_values(first, second)


def result_tangent(parts: list[Tangent]) -> Tangent:
    """Packs the tangents of a call's results into the tangent of its value."""
    return parts[0] if len(parts) == 1 else tuple(parts)


def result_nodes(value: Node, count: int) -> list[Node]:
    """The results of a call as a list of nodes."""
    return [value] if count == 1 else [member(value, index) for index in range(count)]


def pack_results(nodes: list[Node]) -> Node:
    """Packs results into the value of a call: the only result, or a tuple."""
    return nodes[0] if len(nodes) == 1 else make(*nodes, type=Tuple(tuple(node.type for node in nodes)))
