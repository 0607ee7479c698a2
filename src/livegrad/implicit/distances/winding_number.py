"""The generalised winding number of a triangle mesh in the value IR.

`mesh_distance` uses its sign for meshes whose normals do not determine the inside. Triangles near a point contribute
their solid angle, distant groups of triangles a dipole: Barill et al., "Fast Winding Numbers for Soups and Clouds",
2018.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from livegrad import ops
from livegrad.implicit.distances.bvh import Point, dot, subtract
from livegrad.ir.leaves import constant
from livegrad.ir.node import Node
from livegrad.ir.types import i32
from livegrad.ops.rules import filled

_REACH = 2.0  # in radii of a group: closer to its centre, the group is not approximated by a dipole


def build_dipoles(triangles: NDArray[np.float64], leaves: int) -> NDArray[np.float64]:
    """Seven numbers for each tree node: its centre, its area vector, and the square of its reach.

    Padding nodes have zero area and zero reach.
    """
    areas = np.zeros((2 * leaves, 3))
    weighted = np.zeros((2 * leaves, 4))  # the area-weighted sum of centres, and the sum of areas
    count = len(triangles)
    vectors = np.cross(triangles[:, 1] - triangles[:, 0], triangles[:, 2] - triangles[:, 0]) / 2
    size = np.maximum(np.linalg.norm(vectors, axis=1), 1e-300)
    areas[leaves : leaves + count] = vectors
    weighted[leaves : leaves + count, :3] = triangles.mean(1) * size[:, None]
    weighted[leaves : leaves + count, 3] = size
    first = leaves
    while first > 1:
        for table in (areas, weighted):
            table[first // 2 : first] = table[first : 2 * first].reshape(first // 2, 2, -1).sum(1)
        first //= 2
    centres = weighted[:, :3] / np.maximum(weighted[:, 3:], 1e-300)
    reach = _REACH * _radii(triangles, centres, leaves)
    return np.concatenate([centres, areas, reach[:, None] ** 2], axis=1)


def _radii(triangles: NDArray[np.float64], centres: NDArray[np.float64], leaves: int) -> NDArray[np.float64]:
    """The radius of each tree node: the largest distance from its centre to a corner of its triangles."""
    radii = np.zeros(2 * leaves)
    node = leaves + np.arange(len(triangles))
    while node[0]:
        distance = np.linalg.norm(triangles - centres[node][:, None], axis=-1).max(1)
        np.maximum.at(radii, node, distance)
        node = node // 2
    return radii


# --- in the value IR -------------------------------------------------------------------------------------------------


def winding_number(position: Point, leaves: int, skips: Node, corners: Node, dipoles: Node) -> Node:
    """About 1 inside a closed surface that faces outwards, about 0 outside, and between 0 and 1 near a gap."""
    zero = filled(0.0, position[0].type)

    def visit(index: Node, node: Node, total: Node) -> tuple[Node, Node]:
        row = [ops.lookup(dipoles, node, constant(column, i32)) for column in range(7)]
        offset = subtract((row[0], row[1], row[2]), position)
        square = dot(offset, offset)
        is_far = square > row[6]
        is_leaf = node >= constant(leaves, i32)
        # Far away, a group of triangles is a dipole: area vector · offset / distance³.
        dipole = dot(offset, (row[3], row[4], row[5])) / (square * ops.sqrt(square))
        leaf = ops.select(is_leaf, node - constant(leaves, i32), constant(0, i32))
        solid_angle = ops.make_cond(
            is_leaf & ~is_far,
            lambda triangle: _solid_angle(position, corners, triangle),
            lambda triangle: zero,
            leaf,
        )
        next_node = ops.select(is_far | is_leaf, ops.lookup(skips, node), node * constant(2, i32))
        return next_node, total + ops.select(is_far, dipole, solid_angle)

    state = ops.make_while_loop(
        lambda node, total: ops.not_equal(node, constant(0, i32)), visit, constant(1, i32), zero
    )
    return state[1] * (0.25 / math.pi)


def _solid_angle(position: Point, corners: Node, triangle: Node) -> Node:
    """The solid angle of a triangle seen from a point, positive from behind (van Oosterom and Strackee)."""
    values = [ops.lookup(corners, triangle, constant(column, i32)) for column in range(9)]
    a, b, c = (subtract((values[k], values[k + 1], values[k + 2]), position) for k in (0, 3, 6))
    la, lb, lc = (ops.sqrt(dot(side, side)) for side in (a, b, c))
    normal = a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]
    denominator = la * lb * lc + dot(a, b) * lc + dot(b, c) * la + dot(c, a) * lb
    return ops.atan2(dot(normal, c), denominator) * 2.0
