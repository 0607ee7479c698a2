"""Exact distances to triangle meshes, in the value IR: a bounding-volume hierarchy in tensors, walked by a loop.

`to_ir` makes the tables of a mesh and the nodes that read them; so every backend computes the same distance. The
search finds the nearest triangle; the distance to that one is an ordinary expression, with its exact derivative.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from livegrad import ops
from livegrad.authoring.assembly.box_tree import (
    Point,
    along_curve,
    find_nearest,
    leaves_for,
    square_to_box,
    tree_boxes,
    tree_skips,
)
from livegrad.authoring.assembly.errors import AssemblyError
from livegrad.authoring.assembly.resources import TriangleMesh, require_reach
from livegrad.ir.leaves import constant
from livegrad.ir.node import Node
from livegrad.ir.types import Scalar, Tensor, i32
from livegrad.ops.aggregate import members_of
from livegrad.ops.rules import filled

FACE, CORNERS, EDGES = 0, (1, 2, 3), (4, 5, 6)  # the features of a triangle: face, corners a b c, edges ab bc ca


@dataclass(frozen=True)
class MeshTables:
    """A mesh as tensors: boxes of a complete binary tree, corners of triangles, pseudonormals of their features.

    The tree is that of `box_tree`: its last `len(corners)` nodes are triangles.
    """

    boxes: NDArray[np.floating]
    skips: NDArray[np.int32]
    corners: NDArray[np.floating]
    normals: NDArray[np.floating]

    def arrays(self) -> list[tuple[str, NDArray[np.generic]]]:
        return [(name, getattr(self, name)) for name in ("boxes", "skips", "corners", "normals")]

    @staticmethod
    def of(mesh: TriangleMesh, element: Scalar) -> MeshTables:
        require_reach(mesh.vertices, element, "a mesh")
        triangles = mesh.vertices[mesh.triangles]
        area = np.linalg.norm(np.cross(triangles[:, 1] - triangles[:, 0], triangles[:, 2] - triangles[:, 0]), axis=1)
        kept = np.flatnonzero(area > 0)
        if not len(kept):
            raise AssemblyError("a mesh without area has no distance", found=f"{len(triangles)} triangles")
        kept = kept[along_curve(triangles[kept].mean(1))]
        leaves = leaves_for(len(kept))
        padded = np.concatenate([kept, np.full(leaves - len(kept), kept[-1])])
        corners = triangles[padded].reshape(leaves, 9)
        normals = pseudonormals(mesh)[padded].reshape(leaves, 21)
        return MeshTables(
            tree_boxes(triangles[kept].min(1), triangles[kept].max(1)).astype(element.dtype),
            tree_skips(leaves),
            corners.astype(element.dtype),
            normals.astype(element.dtype),
        )


def pseudonormals(mesh: TriangleMesh) -> NDArray[np.float64]:
    """For each triangle, normals of its face, corners and edges, whose dot product tells inside from outside.

    An edge has the sum of the normals on both sides, a corner the sum weighted by angle: with those the sign of the
    distance is right at every point, also next to edges.
    """
    triangles = mesh.vertices[mesh.triangles]
    faces = _unit(np.cross(triangles[:, 1] - triangles[:, 0], triangles[:, 2] - triangles[:, 0]))
    # Vertices at one place are one: files often repeat them for each triangle.
    _, merged = np.unique(mesh.vertices, axis=0, return_inverse=True)
    indices = merged.reshape(-1)[mesh.triangles]
    at_corners = np.zeros((len(mesh.vertices), 3))
    ends = np.stack([np.sort(indices[:, [i, (i + 1) % 3]], axis=1) for i in range(3)], 1)
    for corner in range(3):
        first = _unit(triangles[:, (corner + 1) % 3] - triangles[:, corner])
        second = _unit(triangles[:, (corner + 2) % 3] - triangles[:, corner])
        angle = np.arccos(np.clip((first * second).sum(1), -1.0, 1.0))
        np.add.at(at_corners, indices[:, corner], faces * angle[:, None])
    keys = ends[..., 0] * (indices.max() + 1) + ends[..., 1]
    _, edge = np.unique(keys, return_inverse=True)
    edge = edge.reshape(keys.shape)
    at_edges = np.zeros((edge.max() + 1, 3))
    np.add.at(at_edges, edge, np.broadcast_to(faces[:, None], (len(faces), 3, 3)))
    return np.concatenate([faces[:, None], at_corners[indices], at_edges[edge]], axis=1)


def _unit(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    length = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return vectors / np.where(length > 0, length, 1.0)


# --- in the value IR -------------------------------------------------------------------------------------------------


def unsigned_distance(position: Node, boxes: Node, skips: Node, corners: Node, normals: Node) -> Node:
    """The distance to the nearest triangle."""
    offset, _, _ = _nearest(position, boxes, skips, corners)
    return ops.length(ops.make_vector(*offset))


def signed_distance(position: Node, boxes: Node, skips: Node, corners: Node, normals: Node) -> Node:
    """The distance to the surface, negative inside of it."""
    offset, feature, triangle = _nearest(position, boxes, skips, corners)
    base = feature * constant(3, i32)
    normal = tuple(ops.detach(ops.lookup(normals, triangle, base + constant(axis, i32))) for axis in range(3))
    along = _dot(offset, normal)
    length = ops.length(ops.make_vector(*offset))
    # Over a face the distance is the height above its plane, which has a slope also on the surface itself.
    edge_or_corner = ops.select(along < 0.0, -length, length)
    return ops.select(ops.equal(feature, constant(FACE, i32)), along, edge_or_corner)


def _nearest(position: Node, boxes: Node, skips: Node, corners: Node) -> tuple[Point, Node, Node]:
    """From the closest point of the mesh to the position; the feature it lies on; the triangle."""
    x, y, z = members_of(position)
    still = (ops.detach(x), ops.detach(y), ops.detach(z))
    triangle = _search(still, boxes, skips, corners)
    closest, feature = _closest_on_triangle(still, _corners_of(corners, triangle))
    # The closest point moves along the surface, at a right angle to the offset: it adds nothing to the derivative.
    offset = (x - closest[0], y - closest[1], z - closest[2])
    return offset, feature, triangle


def _search(position: Point, boxes: Node, skips: Node, corners: Node) -> Node:
    type = corners.type
    assert isinstance(type, Tensor)
    return find_nearest(
        int(type.shape[0]),  # type: ignore[arg-type]
        skips,
        lambda node: square_to_box(position, boxes, node),
        lambda triangle: _triangle_distance(position, corners, triangle),
    )


def _corners_of(corners: Node, triangle: Node) -> tuple[Point, Point, Point]:
    values = [ops.detach(ops.lookup(corners, triangle, constant(index, i32))) for index in range(9)]
    a, b, c = (tuple(values[3 * corner : 3 * corner + 3]) for corner in range(3))
    return a, b, c  # type: ignore[return-value]


def _triangle_distance(position: Point, corners: Node, triangle: Node) -> Node:
    closest, _ = _closest_on_triangle(position, _corners_of(corners, triangle))
    offset = _minus(position, closest)
    return _dot(offset, offset)


def _minus(a: Point, b: Point) -> Point:
    return a[0] - b[0], a[1] - b[1], a[2] - b[2]


def _dot(a: tuple[Node, ...], b: tuple[Node, ...]) -> Node:
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]


def _closest_on_triangle(p: Point, corners: tuple[Point, Point, Point]) -> tuple[Point, Node]:
    """The closest point of a triangle and the feature it lies on, by the regions of barycentric coordinates."""
    a, b, c = corners
    ab, ac = _minus(b, a), _minus(c, a)
    from_a, from_b, from_c = _minus(p, a), _minus(p, b), _minus(p, c)
    d1, d2 = _dot(ab, from_a), _dot(ac, from_a)
    d3, d4 = _dot(ab, from_b), _dot(ac, from_b)
    d5, d6 = _dot(ab, from_c), _dot(ac, from_c)
    va, vb, vc = d3 * d6 - d5 * d4, d5 * d2 - d1 * d6, d1 * d4 - d3 * d2
    nothing, one = filled(0.0, d1.type), filled(1.0, d1.type)

    def share(part: Node, whole: Node) -> Node:
        return part / ops.select(ops.equal(whole, 0.0), one, whole)

    total = va + vb + vc
    along_ab, along_ac = share(d1, d1 - d3), share(d2, d2 - d6)
    along_bc = share(d4 - d3, (d4 - d3) + (d5 - d6))
    # From the region that is asked last to the one that is asked first.
    regions = (
        ((va <= 0.0) & (d4 >= d3) & (d5 >= d6), one - along_bc, along_bc, EDGES[1]),
        ((vb <= 0.0) & (d2 >= 0.0) & (d6 <= 0.0), nothing, along_ac, EDGES[2]),
        ((d6 >= 0.0) & (d5 <= d6), nothing, one, CORNERS[2]),
        ((vc <= 0.0) & (d1 >= 0.0) & (d3 <= 0.0), along_ab, nothing, EDGES[0]),
        ((d3 >= 0.0) & (d4 <= d3), one, nothing, CORNERS[1]),
        ((d1 <= 0.0) & (d2 <= 0.0), nothing, nothing, CORNERS[0]),
    )
    v, w, feature = share(vb, total), share(vc, total), constant(FACE, i32)
    for inside, region_v, region_w, number in regions:
        v, w = ops.select(inside, region_v, v), ops.select(inside, region_w, w)
        feature = ops.select(inside, constant(number, i32), feature)
    closest = tuple(start + v * first + w * second for start, first, second in zip(a, ab, ac, strict=True))
    return closest, feature  # type: ignore[return-value]
