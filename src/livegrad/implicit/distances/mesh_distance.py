"""Exact distances to triangle meshes in the value IR, with a bounding volume hierarchy in tensors.

`to_ir` builds the tables of a mesh and the nodes that read them. The search finds the nearest triangle; the distance to
that triangle is an ordinary expression with an exact derivative.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from livegrad import ops
from livegrad.implicit.distances.bvh import (
    Point,
    build_boxes,
    build_skip_links,
    count_leaves,
    dot,
    find_nearest,
    morton_order,
    squared_distance_to_box,
    subtract,
)
from livegrad.implicit.distances.winding_number import build_dipoles, winding_number
from livegrad.implicit.meshing.embedded_mesh import is_embedded
from livegrad.implicit.nodes.errors import AssemblyError
from livegrad.implicit.nodes.resources import TriangleMesh, require_representable
from livegrad.ir.leaves import constant
from livegrad.ir.node import Node
from livegrad.ir.types import Scalar, Tensor, i32
from livegrad.ops.aggregate import members_of
from livegrad.ops.rules import filled

FACE, CORNERS, EDGES = 0, (1, 2, 3), (4, 5, 6)  # the features of a triangle: its face, corners a b c, edges ab bc ca
_UNRELIABLE_ULPS = 16  # ulps of the largest coordinate: closer to the surface, the winding number is not reliable


@dataclass(frozen=True)
class MeshTables:
    """A mesh as tensors, and the function that computes its distance from a position and these tensors.

    The leaves of the tree (`bvh`) are triangles.
    """

    rule: Callable[..., Node]
    arrays: tuple[tuple[str, NDArray[np.generic]], ...]

    @staticmethod
    def of(mesh: TriangleMesh, element: Scalar, *, signed: bool = True) -> MeshTables:
        require_representable(mesh.vertices, element, "a mesh")
        vertices, faces = _round_and_merge(mesh, element)
        triangles = vertices[faces]
        area = np.linalg.norm(np.cross(triangles[:, 1] - triangles[:, 0], triangles[:, 2] - triangles[:, 0]), axis=1)
        rows = np.flatnonzero(area > 0)
        if not len(rows):
            raise AssemblyError("a mesh without area has no distance", found=f"{len(mesh.triangles)} triangles")
        rows = rows[morton_order(triangles[rows].mean(1))]
        leaves = count_leaves(len(rows))
        padded = np.concatenate([rows, np.full(leaves - len(rows), rows[-1])])
        boxes = build_boxes(triangles[rows].min(1), triangles[rows].max(1))
        tables: dict[str, NDArray[np.float64]] = {"boxes": boxes, "corners": triangles[padded].reshape(leaves, 9)}
        rule: Callable[..., Node] = unsigned_distance
        skips = []
        if signed:
            rule = signed_distance
            tables["normals"] = pseudonormals(vertices, faces)[padded].reshape(leaves, 21)
            if not is_embedded(vertices, faces):
                rule = distance_by_winding
                tables["dipoles"] = build_dipoles(triangles[rows], leaves)
                skips = [("skips", build_skip_links(leaves))]
        return MeshTables(rule, (*((name, table.astype(element.dtype)) for name, table in tables.items()), *skips))


def _round_and_merge(mesh: TriangleMesh, element: Scalar) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Rounds vertices to the precision of the tables, and orients triangles outwards.

    Coincident vertices are merged, because files often repeat them for each triangle. Triangles that become degenerate
    are dropped.
    """
    rounded = mesh.vertices.astype(element.dtype).astype(np.float64) + 0.0  # turns -0 into +0
    vertices, merged = np.unique(rounded, axis=0, return_inverse=True)
    faces = merged.reshape(-1)[mesh.triangles]
    faces = faces[(faces != np.roll(faces, 1, axis=1)).all(1)]
    inverted = TriangleMesh(vertices, faces).volume() < 0
    return vertices, faces[:, ::-1] if inverted else faces


def pseudonormals(vertices: NDArray[np.float64], faces: NDArray[np.int64]) -> NDArray[np.float64]:
    """The pseudonormals of the face, corners and edges of each triangle, which give the sign of the distance.

    The pseudonormal of an edge is the sum of the normals on both sides, that of a corner the angle-weighted sum. For a
    mesh that bounds a body, the sign is correct at every point, including points whose closest point is on an edge.
    """
    triangles = vertices[faces]
    normals = _unit(np.cross(triangles[:, 1] - triangles[:, 0], triangles[:, 2] - triangles[:, 0]))
    corner_normals = np.zeros((len(vertices), 3))
    edge_vertices = np.stack([np.sort(faces[:, [i, (i + 1) % 3]], axis=1) for i in range(3)], 1)
    for corner in range(3):
        first = _unit(triangles[:, (corner + 1) % 3] - triangles[:, corner])
        second = _unit(triangles[:, (corner + 2) % 3] - triangles[:, corner])
        angle = np.arccos(np.clip((first * second).sum(1), -1.0, 1.0))
        np.add.at(corner_normals, faces[:, corner], normals * angle[:, None])
    keys = edge_vertices[..., 0] * (faces.max() + 1) + edge_vertices[..., 1]
    _, edge_index = np.unique(keys, return_inverse=True)
    edge_index = edge_index.reshape(keys.shape)
    edge_normals = np.zeros((edge_index.max() + 1, 3))
    np.add.at(edge_normals, edge_index, np.broadcast_to(normals[:, None], (len(normals), 3, 3)))
    return np.concatenate([normals[:, None], corner_normals[faces], edge_normals[edge_index]], axis=1)


def _unit(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    length = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return vectors / np.where(length > 0, length, 1.0)


# --- in the value IR -------------------------------------------------------------------------------------------------


def unsigned_distance(position: Node, boxes: Node, corners: Node) -> Node:
    """The distance to the nearest triangle."""
    offset, _, _ = _find_closest_point(position, boxes, corners)
    return ops.length(ops.make_vector(*offset))


def signed_distance(position: Node, boxes: Node, corners: Node, normals: Node) -> Node:
    """The signed distance to a mesh that bounds a body."""
    length, height, feature = _find_nearest_with_normal(position, boxes, corners, normals)
    return _apply_sign(length, height, feature, height < 0.0)


def distance_by_winding(position: Node, boxes: Node, corners: Node, normals: Node, dipoles: Node, skips: Node) -> Node:
    """The distance to the nearest triangle, negative where the winding number exceeds one half, for any mesh."""
    length, height, feature = _find_nearest_with_normal(position, boxes, corners, normals)
    x, y, z = (ops.detach(coordinate) for coordinate in members_of(position))
    winding = winding_number((x, y, z), _leaf_count(corners), skips, corners, dipoles)
    magnitude = ops.max(ops.max(ops.abs(x), ops.abs(y)), ops.abs(z))
    rounding = _UNRELIABLE_ULPS * float(np.finfo(magnitude.type.dtype).eps)  # type: ignore[attr-defined]
    is_near = ops.detach(length) <= magnitude * rounding
    return _apply_sign(length, height, feature, ops.select(is_near, height < 0.0, winding > 0.5))


def _find_nearest_with_normal(position: Node, boxes: Node, corners: Node, normals: Node) -> tuple[Node, Node, Node]:
    """The distance to the nearest triangle, the offset along its pseudonormal, and the closest feature."""
    offset, feature, triangle = _find_closest_point(position, boxes, corners)
    base = feature * constant(3, i32)
    normal = tuple(ops.detach(ops.lookup(normals, triangle, base + constant(axis, i32))) for axis in range(3))
    return ops.length(ops.make_vector(*offset)), dot(offset, normal), feature


def _apply_sign(length: Node, height: Node, feature: Node, inside: Node) -> Node:
    # Above a face, use the height above its plane, which is differentiable on the surface too.
    is_face = ops.equal(feature, constant(FACE, i32))
    distance = ops.select(is_face, ops.select(height < 0.0, -height, height), length)
    return ops.select(inside, -distance, distance)


def _find_closest_point(position: Node, boxes: Node, corners: Node) -> tuple[Point, Node, Node]:
    """The offset from the closest point of the mesh, the feature it lies on, and its triangle."""
    x, y, z = members_of(position)
    detached = (ops.detach(x), ops.detach(y), ops.detach(z))
    triangle = _find_nearest_triangle(detached, boxes, corners)
    closest, feature = _closest_on_triangle(detached, _read_corners(corners, triangle))
    # The closest point moves orthogonally to the offset, so it does not contribute to the derivative.
    offset = (x - closest[0], y - closest[1], z - closest[2])
    return offset, feature, triangle


def _find_nearest_triangle(position: Point, boxes: Node, corners: Node) -> Node:
    return find_nearest(
        _leaf_count(corners),
        lambda node: squared_distance_to_box(position, boxes, node),
        lambda triangle: _squared_distance_to_triangle(position, corners, triangle),
    )


def _leaf_count(corners: Node) -> int:
    type = corners.type
    assert isinstance(type, Tensor)
    return int(type.shape[0])  # type: ignore[arg-type]


def _read_corners(corners: Node, triangle: Node) -> tuple[Point, Point, Point]:
    values = [ops.detach(ops.lookup(corners, triangle, constant(index, i32))) for index in range(9)]
    a, b, c = (tuple(values[3 * corner : 3 * corner + 3]) for corner in range(3))
    return a, b, c  # type: ignore[return-value]


def _squared_distance_to_triangle(position: Point, corners: Node, triangle: Node) -> Node:
    closest, _ = _closest_on_triangle(position, _read_corners(corners, triangle))
    offset = subtract(position, closest)
    return dot(offset, offset)


def _closest_on_triangle(p: Point, corners: tuple[Point, Point, Point]) -> tuple[Point, Node]:
    """The closest point of a triangle and the feature it lies on, by the Voronoi regions of its features."""
    a, b, c = corners
    ab, ac = subtract(b, a), subtract(c, a)
    from_a, from_b, from_c = subtract(p, a), subtract(p, b), subtract(p, c)
    d1, d2 = dot(ab, from_a), dot(ac, from_a)
    d3, d4 = dot(ab, from_b), dot(ac, from_b)
    d5, d6 = dot(ab, from_c), dot(ac, from_c)
    va, vb, vc = d3 * d6 - d5 * d4, d5 * d2 - d1 * d6, d1 * d4 - d3 * d2
    zero, one = filled(0.0, d1.type), filled(1.0, d1.type)

    def divide(numerator: Node, denominator: Node) -> Node:
        return numerator / ops.select(ops.equal(denominator, 0.0), one, denominator)

    total = va + vb + vc
    t_ab, t_ac = divide(d1, d1 - d3), divide(d2, d2 - d6)
    t_bc = divide(d4 - d3, (d4 - d3) + (d5 - d6))
    # Later regions have priority.
    regions = (
        ((va <= 0.0) & (d4 >= d3) & (d5 >= d6), one - t_bc, t_bc, EDGES[1]),
        ((vb <= 0.0) & (d2 >= 0.0) & (d6 <= 0.0), zero, t_ac, EDGES[2]),
        ((d6 >= 0.0) & (d5 <= d6), zero, one, CORNERS[2]),
        ((vc <= 0.0) & (d1 >= 0.0) & (d3 <= 0.0), t_ab, zero, EDGES[0]),
        ((d3 >= 0.0) & (d4 <= d3), one, zero, CORNERS[1]),
        ((d1 <= 0.0) & (d2 <= 0.0), zero, zero, CORNERS[0]),
    )
    v, w, feature = divide(vb, total), divide(vc, total), constant(FACE, i32)
    for inside, region_v, region_w, region_feature in regions:
        v, w = ops.select(inside, region_v, v), ops.select(inside, region_w, w)
        feature = ops.select(inside, constant(region_feature, i32), feature)
    closest = tuple(start + v * first + w * second for start, first, second in zip(a, ab, ac, strict=True))
    return closest, feature  # type: ignore[return-value]
