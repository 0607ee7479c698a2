"""A bounding-volume hierarchy in tensors, walked by a loop of the value IR: the nearest of many things to a point.

`mesh_distance` and `beam_distance` make the tables of one and search it; so every backend finds the same thing.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from livegrad import ops
from livegrad.ir.leaves import constant
from livegrad.ir.node import Node
from livegrad.ir.types import i32, i64
from livegrad.ops.rules import filled

Point = tuple[Node, Node, Node]


def along_curve(centres: NDArray[np.float64]) -> NDArray[np.int64]:
    """An order in which neighbours in space are mostly neighbours: by the interleaved bits of the coordinates."""
    low, high = centres.min(0), centres.max(0)
    cells = ((centres - low) / np.maximum(high - low, 1e-300) * 1023.0).astype(np.int64)
    code = np.zeros(len(centres), np.int64)
    for bit in range(10):
        for axis in range(3):
            code |= ((cells[:, axis] >> bit) & 1) << (3 * bit + axis)
    return np.argsort(code, kind="stable")


def leaves_for(number: int) -> int:
    """How many leaves the complete binary tree over so many things has."""
    return 1 << (number - 1).bit_length()


def tree_boxes(low: NDArray[np.float64], high: NDArray[np.float64]) -> NDArray[np.float64]:
    """Low and high corner of every tree node, given those of the things; what is padding is empty, infinitely far away.

    Nodes are numbered from 1, the children of k are 2k and 2k + 1; the last ones are the things.
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
    """Which node comes after k when nothing below k matters, 0 at the end."""
    following = np.arange(2 * leaves, dtype=np.int64) + 1
    while (even := (following % 2 == 0) & (following > 0)).any():
        following[even] //= 2
    following[following == 1] = 0
    return following.astype(np.int32)


# --- in the value IR -------------------------------------------------------------------------------------------------


def find_nearest(leaves: int, skips: Node, least: Callable[[Node], Node], measure: Callable[[Node], Node]) -> Node:
    """The leaf with the smallest `measure`; `least` gives what no leaf below a tree node comes under."""
    one, two = constant(1, i32), constant(2, i32)
    depth = leaves.bit_length() - 1

    def descend(index: Node, node: Node) -> Node:
        left = node * two
        return ops.select(least(left + one) < least(left), left + one, left)

    # One way down to a near leaf gives a bound that cuts off most of the tree.
    start = one
    if depth:
        (start,) = ops.make_for_loop(constant(depth, i64), descend, one)
    first = start - constant(leaves, i32)

    def visit(index: Node, node: Node, best: Node, chosen: Node) -> tuple[Node, ...]:
        further = least(node) >= best
        is_leaf = node >= constant(leaves, i32)
        at_leaf = ops.select(is_leaf, node - constant(leaves, i32), chosen)
        measured = ops.make_cond(
            is_leaf & ~further, lambda leaf, known: measure(leaf), lambda leaf, known: known, at_leaf, best
        )
        nearer = measured < best
        following = ops.select(further | is_leaf, ops.lookup(skips, node), node * two)
        return following, ops.select(nearer, measured, best), ops.select(nearer, at_leaf, chosen)

    carried = ops.make_while_loop(
        lambda node, best, chosen: ops.not_equal(node, constant(0, i32)), visit, one, measure(first), first
    )
    return carried[2]


def _outside(position: Point, boxes: Node, node: Node, axis: int) -> Node:
    """How far a coordinate is outside of a tree node's box along an axis, negative inside."""
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
    """The distance to a tree node's box, negative inside: no more than that of whatever is in it."""
    away = [_outside(position, boxes, node, axis) for axis in range(3)]
    nothing = filled(0.0, away[0].type)
    square = sum((ops.max(value, nothing) * ops.max(value, nothing) for value in away[1:]), nothing)
    square = square + ops.max(away[0], nothing) * ops.max(away[0], nothing)
    return ops.sqrt(square) + ops.min(ops.max(ops.max(away[0], away[1]), away[2]), nothing)
