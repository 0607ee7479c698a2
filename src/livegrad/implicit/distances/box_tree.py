"""A bounding volume hierarchy stored in tensors, traversed by a loop of the value IR to find the nearest object to a
point.

`mesh_distance` and `beam_distance` build and search it, so every backend finds the same object.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from livegrad import ops
from livegrad.ir.leaves import constant
from livegrad.ir.node import Node
from livegrad.ir.types import i32
from livegrad.ops.rules import filled

Point = tuple[Node, Node, Node]


def along_curve(centres: NDArray[np.float64]) -> NDArray[np.int64]:
    """Morton order: sorts by the interleaved bits of the coordinates, so that neighbours in space are close."""
    low, high = centres.min(0), centres.max(0)
    cells = ((centres - low) / np.maximum(high - low, 1e-300) * 1023.0).astype(np.int64)
    code = np.zeros(len(centres), np.int64)
    for bit in range(10):
        for axis in range(3):
            code |= ((cells[:, axis] >> bit) & 1) << (3 * bit + axis)
    return np.argsort(code, kind="stable")


def leaves_for(count: int) -> int:
    """The number of leaves of the complete binary tree over `count` objects."""
    return 1 << (count - 1).bit_length()


def tree_boxes(low: NDArray[np.float64], high: NDArray[np.float64]) -> NDArray[np.float64]:
    """The low and high corner of every tree node, from those of the objects. Padding is empty and infinitely far.

    Nodes are numbered from 1, the children of k are 2k and 2k + 1; the last nodes are the objects.
    """
    leaves = leaves_for(len(low))
    boxes = np.empty((2 * leaves, 6))
    boxes[:, :3], boxes[:, 3:] = np.inf, -np.inf
    boxes[leaves : leaves + len(low), :3] = low
    boxes[leaves : leaves + len(low), 3:] = high
    while leaves > 1:
        below = boxes[leaves : 2 * leaves].reshape(leaves // 2, 2, 6)
        leaves //= 2
        boxes[leaves : 2 * leaves, :3] = below[:, :, :3].min(1)
        boxes[leaves : 2 * leaves, 3:] = below[:, :, 3:].max(1)
    # Rounding to fewer bits must not shrink a box.
    return boxes + np.where(np.isfinite(boxes), np.abs(boxes), 0.0) * np.repeat([-2e-7, 2e-7], 3)


def tree_skips(leaves: int) -> NDArray[np.int32]:
    """The next node after k if the subtree of k is skipped; 0 at the end."""
    following = np.arange(2 * leaves, dtype=np.int64) + 1
    while (even := (following % 2 == 0) & (following > 0)).any():
        following[even] //= 2
    following[following == 1] = 0
    return following.astype(np.int32)


# --- in the value IR -------------------------------------------------------------------------------------------------


def find_nearest(leaves: int, least: Callable[[Node], Node], measure: Callable[[Node], Node]) -> Node:
    """The leaf with the smallest `measure`; `least` gives a lower bound for all leaves below a tree node.

    The nearer of two children comes first. Pending siblings are bits of an integer, from the current level upwards, so
    a complete tree needs no stack.
    """
    one, two, first = constant(1, i32), constant(2, i32), constant(leaves, i32)
    nothing = constant(0, i32)
    if leaves == 1:
        return nothing

    def visit(index: Node, node: Node, waiting: Node, best: Node, chosen: Node) -> tuple[Node, ...]:
        is_leaf = node >= first
        leaf = ops.select(is_leaf, node - first, chosen)
        measured = ops.make_cond(
            is_leaf, lambda at, best_so_far: measure(at), lambda at, best_so_far: best_so_far, leaf, best
        )
        nearer = measured < best
        left = ops.select(is_leaf, one, node) * two
        at_left, at_right = least(left), least(left + one)
        swapped = at_right < at_left
        goes_down = ~is_leaf & (ops.min(at_left, at_right) < best)
        down = ops.select(swapped, left + one, left)
        also = ops.select(ops.max(at_left, at_right) < best, one, nothing)
        # Return to the deepest pending sibling: the lowest bit gives the number of levels above.
        lowest = ops.bit_and(waiting, -waiting)
        levels = _bit_index(lowest)
        is_pending = ops.not_equal(lowest, nothing)
        back = ops.select(is_pending, ops.bit_xor(ops.shift_right(node, levels), one), nothing)
        rest = ops.shift_right(waiting - lowest, levels)
        return (
            ops.select(goes_down, down, back),
            ops.select(goes_down, waiting * two + also, rest),
            ops.select(nearer, measured, best),
            ops.select(nearer, leaf, chosen),
        )

    infinite = filled(math.inf, least(one).type)
    carried = ops.make_while_loop(
        lambda node, waiting, best, chosen: ops.not_equal(node, nothing), visit, one, nothing, infinite, nothing
    )
    return carried[3]


def _bit_index(power: Node) -> Node:
    """The index of the only set bit: each bit of the index is set for half of the positions."""
    bit_index = constant(0, i32)
    for bit in range(5):
        mask = sum(1 << position for position in range(31) if position >> bit & 1)
        is_there = ops.not_equal(ops.bit_and(power, constant(mask, i32)), constant(0, i32))
        bit_index = bit_index + ops.select(is_there, constant(1 << bit, i32), constant(0, i32))
    return bit_index


def _outside(position: Point, boxes: Node, node: Node, axis: int) -> Node:
    """The distance of a coordinate from a tree node's box along an axis, negative inside."""
    low = ops.lookup(boxes, node, constant(axis, i32))
    high = ops.lookup(boxes, node, constant(axis + 3, i32))
    return ops.max(low - position[axis], position[axis] - high)


def square_to_box(position: Point, boxes: Node, node: Node) -> Node:
    """The square of the distance to a tree node's box."""
    total = None
    for axis in range(3):
        away = _outside(position, boxes, node, axis)
        away = ops.max(away, filled(0.0, away.type))
        total = away * away if total is None else total + away * away
    assert total is not None
    return total


def distance_to_box(position: Point, boxes: Node, node: Node) -> Node:
    """The signed distance to a tree node's box: a lower bound for the distance to everything in it."""
    away = [_outside(position, boxes, node, axis) for axis in range(3)]
    nothing = filled(0.0, away[0].type)
    square = sum((ops.max(value, nothing) * ops.max(value, nothing) for value in away[1:]), nothing)
    square = square + ops.max(away[0], nothing) * ops.max(away[0], nothing)
    return ops.sqrt(square) + ops.min(ops.max(ops.max(away[0], away[1]), away[2]), nothing)
