"""Exact distances to triangle meshes in the value IR, with a bounding volume hierarchy stored in tensors.

`to_ir` builds the tables of a mesh and the nodes that read them, so every backend computes the same distance. The
search finds the nearest triangle; the distance to it is an ordinary expression with an exact derivative.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from livegrad import ops
from livegrad.implicit.distances.box_tree import (
    Point,
    along_curve,
    find_nearest,
    leaves_for,
    square_to_box,
    tree_boxes,
    tree_skips,
)
from livegrad.implicit.distances.winding_number import tree_dipoles, winding_number
from livegrad.implicit.meshing.embedded_mesh import is_embedded
from livegrad.implicit.nodes.errors import AssemblyError
from livegrad.implicit.nodes.resources import TriangleMesh, require_representable
from livegrad.ir.leaves import constant
from livegrad.ir.node import Node
from livegrad.ir.types import Scalar, Tensor, i32
from livegrad.ops.aggregate import members_of
from livegrad.ops.rules import filled

FACE, CORNERS, EDGES = 0, (1, 2, 3), (4, 5, 6)  # the features of a triangle: face, corners a b c, edges ab bc ca
_NEAR = 16  # in units of rounding of the largest coordinate: closer to the surface, the sum has no reliable sign


@dataclass(frozen=True)
class MeshTables:
    """A mesh as tensors, and its distance as a function of a position and these tensors.

    The tree is a `box_tree` whose last nodes are triangles.
    """

    rule: Callable[..., Node]
    arrays: tuple[tuple[str, NDArray[np.generic]], ...]

    @staticmethod
    def of(mesh: TriangleMesh, element: Scalar, *, signed: bool = True) -> MeshTables:
        require_representable(mesh.vertices, element, "a mesh")
        vertices, faces = _round_and_merge(mesh, element)
        triangles = vertices[faces]
        area = np.linalg.norm(np.cross(triangles[:, 1] - triangles[:, 0], triangles[:, 2] - triangles[:, 0]), axis=1)
        kept = np.flatnonzero(area > 0)
        if not len(kept):
            raise AssemblyError("a mesh without area has no distance", found=f"{len(mesh.triangles)} triangles")
        kept = kept[along_curve(triangles[kept].mean(1))]
        leaves = leaves_for(len(kept))
        padded = np.concatenate([kept, np.full(leaves - len(kept), kept[-1])])
        boxes = tree_boxes(triangles[kept].min(1), triangles[kept].max(1))
        tables: dict[str, NDArray[np.float64]] = {"boxes": boxes, "corners": triangles[padded].reshape(leaves, 9)}
        rule: Callable[..., Node] = unsigned_distance
        skips = []
        if signed:
            rule = signed_distance
            tables["normals"] = pseudonormals(vertices, faces)[padded].reshape(leaves, 21)
            if not is_embedded(vertices, faces):
                rule = distance_by_winding
                tables["dipoles"] = tree_dipoles(triangles[kept], leaves)
                skips = [("skips", tree_skips(leaves))]
        return MeshTables(rule, (*((name, table.astype(element.dtype)) for name, table in tables.items()), *skips))


def _round_and_merge(mesh: TriangleMesh, element: Scalar) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Vertices in the precision of the tables, and triangles that face outwards.

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
    """For each triangle, pseudonormals of its face, corners and edges, which give the sign of the distance.

    An edge has the sum of the normals on both sides, a corner the sum weighted by angle. With these, the sign is
    correct at every point near a mesh that bounds a body, including points near edges.
    """
    triangles = vertices[faces]
    normals = _unit(np.cross(triangles[:, 1] - triangles[:, 0], triangles[:, 2] - triangles[:, 0]))
    at_corners = np.zeros((len(vertices), 3))
    ends = np.stack([np.sort(faces[:, [i, (i + 1) % 3]], axis=1) for i in range(3)], 1)
    for corner in range(3):
        first = _unit(triangles[:, (corner + 1) % 3] - triangles[:, corner])
        second = _unit(triangles[:, (corner + 2) % 3] - triangles[:, corner])
        angle = np.arccos(np.clip((first * second).sum(1), -1.0, 1.0))
        np.add.at(at_corners, faces[:, corner], normals * angle[:, None])
    keys = ends[..., 0] * (faces.max() + 1) + ends[..., 1]
    _, edge = np.unique(keys, return_inverse=True)
    edge = edge.reshape(keys.shape)
    at_edges = np.zeros((edge.max() + 1, 3))
    np.add.at(at_edges, edge, np.broadcast_to(normals[:, None], (len(normals), 3, 3)))
    return np.concatenate([normals[:, None], at_corners[faces], at_edges[edge]], axis=1)


def _unit(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    length = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return vectors / np.where(length > 0, length, 1.0)


# --- in the value IR -------------------------------------------------------------------------------------------------


def unsigned_distance(position: Node, boxes: Node, corners: Node) -> Node:
    """The distance to the nearest triangle."""
    offset, _, _ = _nearest(position, boxes, corners)
    return ops.length(ops.make_vector(*offset))


def signed_distance(position: Node, boxes: Node, corners: Node, normals: Node) -> Node:
    """The distance to the surface, negative inside, for a mesh that bounds a body."""
    length, along, feature = _by_normals(position, boxes, corners, normals)
    return _signed(length, along, feature, along < 0.0)


def distance_by_winding(position: Node, boxes: Node, corners: Node, normals: Node, dipoles: Node, skips: Node) -> Node:
    """The distance to the nearest triangle, negative where the winding number exceeds one half, for any triangles."""
    length, along, feature = _by_normals(position, boxes, corners, normals)
    x, y, z = (ops.detach(coordinate) for coordinate in members_of(position))
    winding = winding_number((x, y, z), _leaves(corners), skips, corners, dipoles)
    size = ops.max(ops.max(ops.abs(x), ops.abs(y)), ops.abs(z))
    rounding = _NEAR * float(np.finfo(size.type.dtype).eps)  # type: ignore[attr-defined]
    is_near = ops.detach(length) <= size * rounding
    return _signed(length, along, feature, ops.select(is_near, along < 0.0, winding > 0.5))


def _by_normals(position: Node, boxes: Node, corners: Node, normals: Node) -> tuple[Node, Node, Node]:
    """The distance to the nearest triangle, the offset along its pseudonormal, and the nearest feature."""
    offset, feature, triangle = _nearest(position, boxes, corners)
    base = feature * constant(3, i32)
    normal = tuple(ops.detach(ops.lookup(normals, triangle, base + constant(axis, i32))) for axis in range(3))
    return ops.length(ops.make_vector(*offset)), _dot(offset, normal), feature


def _signed(length: Node, along: Node, feature: Node, inside: Node) -> Node:
    # Over a face, the distance is the height above its plane, which is differentiable on the surface too.
    is_face = ops.equal(feature, constant(FACE, i32))
    size = ops.select(is_face, ops.select(along < 0.0, -along, along), length)
    return ops.select(inside, -size, size)


def _nearest(position: Node, boxes: Node, corners: Node) -> tuple[Point, Node, Node]:
    """The offset from the closest point of the mesh, its feature, and its triangle."""
    x, y, z = members_of(position)
    still = (ops.detach(x), ops.detach(y), ops.detach(z))
    triangle = _search(still, boxes, corners)
    closest, feature = _closest_on_triangle(still, _corners_of(corners, triangle))
    # The closest point moves along the surface, orthogonal to the offset, so it does not affect the derivative.
    offset = (x - closest[0], y - closest[1], z - closest[2])
    return offset, feature, triangle


def _search(position: Point, boxes: Node, corners: Node) -> Node:
    return find_nearest(
        _leaves(corners),
        lambda node: square_to_box(position, boxes, node),
        lambda triangle: _triangle_distance(position, corners, triangle),
    )


def _leaves(corners: Node) -> int:
    type = corners.type
    assert isinstance(type, Tensor)
    return int(type.shape[0])  # type: ignore[arg-type]


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
    # In increasing priority.
    regions = (
        ((va <= 0.0) & (d4 >= d3) & (d5 >= d6), one - along_bc, along_bc, EDGES[1]),
        ((vb <= 0.0) & (d2 >= 0.0) & (d6 <= 0.0), nothing, along_ac, EDGES[2]),
        ((d6 >= 0.0) & (d5 <= d6), nothing, one, CORNERS[2]),
        ((vc <= 0.0) & (d1 >= 0.0) & (d3 <= 0.0), along_ab, nothing, EDGES[0]),
        ((d3 >= 0.0) & (d4 <= d3), one, nothing, CORNERS[1]),
        ((d1 <= 0.0) & (d2 <= 0.0), nothing, nothing, CORNERS[0]),
    )
    v, w, feature = share(vb, total), share(vc, total), constant(FACE, i32)
    for inside, region_v, region_w, region_feature in regions:
        v, w = ops.select(inside, region_v, v), ops.select(inside, region_w, w)
        feature = ops.select(inside, constant(region_feature, i32), feature)
    closest = tuple(start + v * first + w * second for start, first, second in zip(a, ab, ac, strict=True))
    return closest, feature  # type: ignore[return-value]
