"""A bounding volume hierarchy (BVH) in tensors, and the search for the nearest object as a loop of the value IR.

`mesh_distance` and `beam_distance` build and search it. Every backend runs the same loop and finds the same object.
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


def subtract(a: Point, b: Point) -> Point:
    """The vector from `b` to `a`."""
    return a[0] - b[0], a[1] - b[1], a[2] - b[2]


def dot(a: tuple[Node, ...], b: tuple[Node, ...]) -> Node:
    """The dot product of two vectors of three components."""
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]


def morton_order(centres: NDArray[np.float64]) -> NDArray[np.int64]:
    """The Morton order of points, in which neighbours in space are close: sorts by interleaved coordinate bits."""
    low, high = centres.min(0), centres.max(0)
    cells = ((centres - low) / np.maximum(high - low, 1e-300) * 1023.0).astype(np.int64)
    code = np.zeros(len(centres), np.int64)
    for bit in range(10):
        for axis in range(3):
            code |= ((cells[:, axis] >> bit) & 1) << (3 * bit + axis)
    return np.argsort(code, kind="stable")


def count_leaves(count: int) -> int:
    """The number of leaves of the complete binary tree over `count` objects."""
    return 1 << (count - 1).bit_length()


def build_boxes(low: NDArray[np.float64], high: NDArray[np.float64]) -> NDArray[np.float64]:
    """The low and high corners of all tree nodes, from those of the objects. Padding nodes are empty, infinitely far.

    The tree is complete: the root is node 1, the children of k are 2k and 2k + 1, and the leaves are the objects.
    """
    leaves = count_leaves(len(low))
    boxes = np.empty((2 * leaves, 6))
    boxes[:, :3], boxes[:, 3:] = np.inf, -np.inf
    boxes[leaves : leaves + len(low), :3] = low
    boxes[leaves : leaves + len(low), 3:] = high
    while leaves > 1:
        children = boxes[leaves : 2 * leaves].reshape(leaves // 2, 2, 6)
        leaves //= 2
        boxes[leaves : 2 * leaves, :3] = children[:, :, :3].min(1)
        boxes[leaves : 2 * leaves, 3:] = children[:, :, 3:].max(1)
    # Rounding to fewer bits must not shrink a box.
    return boxes + np.where(np.isfinite(boxes), np.abs(boxes), 0.0) * np.repeat([-2e-7, 2e-7], 3)


def build_skip_links(leaves: int) -> NDArray[np.int32]:
    """For each node, the next node in depth-first order if its subtree is skipped; 0 at the end."""
    next_nodes = np.arange(2 * leaves, dtype=np.int64) + 1
    while (is_even := (next_nodes % 2 == 0) & (next_nodes > 0)).any():
        next_nodes[is_even] //= 2
    next_nodes[next_nodes == 1] = 0
    return next_nodes.astype(np.int32)


# --- in the value IR -------------------------------------------------------------------------------------------------


def find_nearest(leaves: int, lower_bound: Callable[[Node], Node], distance: Callable[[Node], Node]) -> Node:
    """The leaf with the smallest `distance`; `lower_bound` bounds the distances of all leaves below a tree node.

    Depth-first, nearer child first. Instead of a stack, the bits of an integer mark pending siblings, from the current
    level upwards.
    """
    one, two, first_leaf = constant(1, i32), constant(2, i32), constant(leaves, i32)
    zero = constant(0, i32)
    if leaves == 1:
        return zero

    def visit(index: Node, node: Node, pending: Node, best: Node, nearest: Node) -> tuple[Node, ...]:
        is_leaf = node >= first_leaf
        leaf = ops.select(is_leaf, node - first_leaf, nearest)
        leaf_distance = ops.make_cond(
            is_leaf,
            lambda leaf_index, best_so_far: distance(leaf_index),
            lambda leaf_index, best_so_far: best_so_far,
            leaf,
            best,
        )
        is_nearer = leaf_distance < best
        left_child = ops.select(is_leaf, one, node) * two
        left_bound, right_bound = lower_bound(left_child), lower_bound(left_child + one)
        is_right_first = right_bound < left_bound
        descends = ~is_leaf & (ops.min(left_bound, right_bound) < best)
        child = ops.select(is_right_first, left_child + one, left_child)
        sibling_bit = ops.select(ops.max(left_bound, right_bound) < best, one, zero)
        # Return to the deepest pending sibling: its level is the index of the lowest set bit.
        lowest_bit = ops.bit_and(pending, -pending)
        levels = _bit_index(lowest_bit)
        is_pending = ops.not_equal(lowest_bit, zero)
        sibling = ops.select(is_pending, ops.bit_xor(ops.shift_right(node, levels), one), zero)
        remaining = ops.shift_right(pending - lowest_bit, levels)
        return (
            ops.select(descends, child, sibling),
            ops.select(descends, pending * two + sibling_bit, remaining),
            ops.select(is_nearer, leaf_distance, best),
            ops.select(is_nearer, leaf, nearest),
        )

    infinite = filled(math.inf, lower_bound(one).type)
    state = ops.make_while_loop(
        lambda node, pending, best, nearest: ops.not_equal(node, zero), visit, one, zero, infinite, zero
    )
    return state[3]


def _bit_index(power: Node) -> Node:
    """The index of the only set bit. Bit k of the index is found with a mask of all positions whose bit k is set."""
    bit_index = constant(0, i32)
    for bit in range(5):
        mask = sum(1 << position for position in range(31) if position >> bit & 1)
        is_set = ops.not_equal(ops.bit_and(power, constant(mask, i32)), constant(0, i32))
        bit_index = bit_index + ops.select(is_set, constant(1 << bit, i32), constant(0, i32))
    return bit_index


def _distance_along_axis(position: Point, boxes: Node, node: Node, axis: int) -> Node:
    """The signed distance along an axis from a point to the box of a tree node."""
    low = ops.lookup(boxes, node, constant(axis, i32))
    high = ops.lookup(boxes, node, constant(axis + 3, i32))
    return ops.max(low - position[axis], position[axis] - high)


def squared_distance_to_box(position: Point, boxes: Node, node: Node) -> Node:
    """The squared distance to the box of a tree node."""
    total = None
    for axis in range(3):
        outside = _distance_along_axis(position, boxes, node, axis)
        outside = ops.max(outside, filled(0.0, outside.type))
        total = outside * outside if total is None else total + outside * outside
    assert total is not None
    return total


def distance_to_box(position: Point, boxes: Node, node: Node) -> Node:
    """The signed distance to the box of a tree node: a lower bound for distances to its objects."""
    outside = [_distance_along_axis(position, boxes, node, axis) for axis in range(3)]
    zero = filled(0.0, outside[0].type)
    square = sum((ops.max(value, zero) * ops.max(value, zero) for value in outside[1:]), zero)
    square = square + ops.max(outside[0], zero) * ops.max(outside[0], zero)
    return ops.sqrt(square) + ops.min(ops.max(ops.max(outside[0], outside[1]), outside[2]), zero)
