"""The `merge_updates` pass: additions to the same elements become one, and an addition to cleared elements a write.

The backward pass of a write clears the cotangents of the elements that it overwrote, then adds what the written value
makes of them. Additions commute, so those at equal indices meet although additions elsewhere lie between them.
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
from livegrad.passes.functions import count_uses, rewrite_functions, rewrite_to_fixpoint, uses_any


def merge_updates(function: Function) -> Function:
    """The function, and those inside it, with fewer additions by index."""
    if not uses_any([function], (scatter_add,)):
        return function
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
    """The addition together with an update of the same elements before it, if only additions lie between them."""
    base, value, *indices = addition.operands
    between: list[Node] = []
    while uses[base] == 1 and base.op in (scatter_add, assign):
        before, earlier, *index = base.operands
        if index == indices and earlier.type is value.type and (base.op is scatter_add or _are_distinct(indices)):
            changed = _update(base, before, _sum(earlier, value), indices)
            for node in reversed(between):
                changed = make_node(node.op, (changed, *node.operands[1:]), node.attributes)
            return changed
        if base.op is assign:
            return None
        between.append(base)
        base = before
    return None


def _update(node: Node, tensor: Node, value: Node, indices: Sequence[Node]) -> Node:
    """The same kind of update with another value; the tensor itself if the elements stay as they are."""
    if node.op is assign and value.op is lookup and value.operands == (tensor, *indices):
        return tensor
    return make_node(node.op, (tensor, value, *indices), node.attributes)


def _sum(first: Node, second: Node) -> Node:
    """The sum of two cotangents, for which the sign of a zero has no meaning."""
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
    """Whether indices name each element once: along every dimension of theirs, one of them counts."""
    counted = {node.attribute("axis") for node in indices if node.op is iota}
    return len(counted) == len(shape_of(indices[0].type))
