"""The `merge_updates` pass: merges additions to the same elements, and turns additions to cleared elements into writes.

The backward pass of a write clears the cotangents of the overwritten elements, then adds to them. Additions commute, so
additions at equal indices are merged even if there are additions at other indices between them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from livegrad.ir.node import Function, Module, Node, make_node
from livegrad.ir.source_lines import originating_from
from livegrad.ir.types import shape_of
from livegrad.ir.walk import nodes_of
from livegrad.ops.assignment import assign
from livegrad.ops.elementwise import select
from livegrad.ops.indexing import lookup, scatter_add
from livegrad.ops.movement import iota
from livegrad.ops.rules import is_zero_node
from livegrad.passes.functions import count_uses, rewrite_functions, rewrite_to_fixpoint


def merge_updates(function: Function) -> Function:
    """Merges additions by index in a function and in its nested functions."""
    merged = rewrite_functions(Module((function,)), lambda inner: rewrite_to_fixpoint(inner, _next_change))
    return merged.functions[0]


def _next_change(function: Function) -> dict[Node, Node] | None:
    """An addition and its replacement; None if no additions can be merged."""
    uses = count_uses(function)
    for node in nodes_of(function):
        if node.op is scatter_add:
            with originating_from(node.origins):
                merged = _merge(node, uses)
            if merged is not None:
                return {node: merged}
    return None


def _merge(addition: Node, uses: Counter[Node]) -> Node | None:
    """Merges an addition into an earlier update of the same elements, if there are only additions between them."""
    base, value, *indices = addition.operands
    between: list[Node] = []
    while uses[base] == 1 and base.op in (scatter_add, assign):
        previous, first_value, *index = base.operands
        if index == indices and first_value.type is value.type and (base.op is scatter_add or _are_distinct(indices)):
            merged = _update(base, previous, _sum(first_value, value), indices)
            for node in reversed(between):
                merged = make_node(node.op, (merged, *node.operands[1:]), node.attributes)
            return merged
        if base.op is assign:
            return None
        between.append(base)
        base = previous
    return None


def _update(node: Node, tensor: Node, value: Node, indices: Sequence[Node]) -> Node:
    """The same update of `tensor` with another value; returns `tensor` if that changes nothing."""
    if node.op is assign and value.op is lookup and value.operands == (tensor, *indices):
        return tensor
    return make_node(node.op, (tensor, value, *indices), node.attributes)


def _sum(first: Node, second: Node) -> Node:
    """The sum of two cotangents; may change the sign of a zero, which does not matter for cotangents."""
    if is_zero_node(first) or is_zero_node(second):
        return second if is_zero_node(first) else first
    if first.op is select and second.op is select and first.operands[0] is second.operands[0]:
        condition, then, otherwise = first.operands
        _, other_then, other_otherwise = second.operands
        if (is_zero_node(then) or is_zero_node(other_then)) and (
            is_zero_node(otherwise) or is_zero_node(other_otherwise)
        ):
            then, otherwise = _sum(then, other_then), _sum(otherwise, other_otherwise)
            return then if then is otherwise else select(condition, then, otherwise)
    return first + second


def _are_distinct(indices: Sequence[Node]) -> bool:
    """Whether the indices are distinct: along each of their dimensions, one of them is an iota."""
    iota_axes = {node.attribute("axis") for node in indices if node.op is iota}
    return len(iota_axes) == len(shape_of(indices[0].type))
