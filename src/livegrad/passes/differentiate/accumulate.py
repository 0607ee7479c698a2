"""Adds up the cotangents of a value, where the parts of a tensor that they belong to allow less than a whole addition.

`transpose.py` calls `accumulate` for each contribution.
"""

from __future__ import annotations

from livegrad.ir.node import Node, make_node
from livegrad.ir.types import Type, shape_of
from livegrad.ops.elementwise import add
from livegrad.ops.indexing import scatter_add
from livegrad.ops.movement import concatenate, index_along, pad
from livegrad.ops.rules import add_values, is_zero_node
from livegrad.passes.differentiate.guards import add_guarded, as_summand
from livegrad.passes.differentiate.tangents import Tangent

_MOST_SUMMANDS = 8  # of a sum, in which the other part of a tensor is looked for


def accumulate(total: Tangent, part: Tangent, primal: Type) -> Tangent:
    """The sum of two cotangents of a value of type `primal`.

    What belongs to every second element, say, is added to these elements alone: a loop does so in place, and no tensor
    of zeros and gaps is stored. The cotangents of the two parts of a roll are concatenated.
    """
    if isinstance(part, Node):
        part = _without_zeros_added(part)
        if isinstance(total, Node) and _is_padded_with_zeros(part):
            joined = _add_padded(total, part)
            if joined is not None:
                return joined
    return add_guarded(total, part, primal)


def add_to_total(total: Node, part: Node) -> Node:
    """The sum of the cotangents of a captured value over the iterations of a loop."""
    summand = as_summand(_without_zeros_added(part))
    assert isinstance(summand, Node)
    return add_values(total, summand)


def _without_zeros_added(part: Node) -> Node:
    """A scatter into zeros whose guarded values leave elements as they are where the guard does not hold."""
    if part.op is not scatter_add or not is_zero_node(part.operands[0]):
        return part
    zeros, updates, *indices = part.operands
    summand = as_summand(updates)
    assert isinstance(summand, Node)
    return make_node(scatter_add, (zeros, summand, *indices), part.attributes)


def _is_padded_with_zeros(node: Node) -> bool:
    """Whether a node is the cotangent of a slice, of sizes that are known."""
    if node.op is not pad or not is_zero_node(node.operands[1]):
        return False
    return all(isinstance(size, int) for size in (*shape_of(node.operands[0].type), *shape_of(node.type)))


def _add_padded(total: Node, part: Node) -> Node | None:
    """Adds the cotangent of a slice to elements, or joins it with that of the slice beside it; None for neither."""
    if any(part.attribute("interior")):
        shape = shape_of(part.operands[0].type)
        spacing = zip(part.attribute("low"), part.attribute("interior"), strict=True)
        indices = [index_along(shape, axis) * (gap + 1) + first for axis, (first, gap) in enumerate(spacing)]
        return scatter_add(total, part.operands[0], *indices)
    return _join_in_sum(total, part, _MOST_SUMMANDS)


def _join_in_sum(total: Node, part: Node, most: int) -> Node | None:
    """The sum with the part beside this one, if it is a summand, replaced by both."""
    joined = _join_adjacent(total, part)
    if joined is not None or total.op is not add or not most:
        return joined
    rest, last = total.operands
    joined = _join_adjacent(last, part)
    if joined is not None:
        return add(rest, joined)
    joined = _join_in_sum(rest, part, most - 1)
    return None if joined is None else add(joined, last)


def _join_adjacent(first: Node, second: Node) -> Node | None:
    """The sum of two padded tensors that lie side by side along one axis, as one tensor; None if they do not."""
    if not _is_padded_with_zeros(first) or any(first.attribute("interior")):
        return None
    shape, lows = shape_of(first.type), (first.attribute("low"), second.attribute("low"))
    sizes = [shape_of(node.operands[0].type) for node in (first, second)]
    axes = [axis for axis in range(len(shape)) if (lows[0][axis], sizes[0][axis]) != (lows[1][axis], sizes[1][axis])]
    if len(axes) != 1 or 0 in shape:
        return None
    (axis,) = axes
    if lows[0][axis] > lows[1][axis]:
        return _join_adjacent(second, first)
    if lows[0][axis] + sizes[0][axis] != lows[1][axis]:
        return None
    values = concatenate(first.operands[0], second.operands[0], axis=axis)
    low, high = first.attribute("low"), second.attribute("high")
    if not any(low) and not any(high):
        return values
    return pad(values, first.operands[1], low=low, high=high, interior=first.attribute("interior"))
