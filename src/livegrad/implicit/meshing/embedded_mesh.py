"""Checks whether a triangle mesh bounds a body: closed, without folds and without self-intersections.

`mesh_distance` calls it: only for such a mesh, the normal at the closest point distinguishes inside from outside.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from livegrad.implicit.distances.bvh import build_boxes, count_leaves, morton_order

Points = NDArray[np.float64]
Indices = NDArray[np.int64]
_MIN_COSINE = 0.2  # least cosine between the normal of a vertex and the normals of its triangles
_MIN_ANGLE = 1e-3  # radians: triangles at a smaller angle count as folded onto each other
_MIN_GAP = 1e-9  # the least gap between two triangles, relative to the larger triangle
_ROUNDING = 1e-12
_CHUNK = 1 << 16
_MOST_PAIRS = 200  # overlapping boxes per triangle; with more, the search would take too long


def is_embedded(vertices: Points, triangles: Indices) -> bool:
    """Whether a mesh is the boundary of a body. Its vertices must be distinct.

    >>> from livegrad.implicit.nodes.resources import TriangleMesh
    >>> box = TriangleMesh.box((0, 0, 0), (1, 2, 3))
    >>> is_embedded(box.vertices, box.triangles), is_embedded(box.vertices, box.triangles[1:])
    (True, False)
    """
    if not _is_manifold(triangles):
        return False
    mesh = _Mesh(vertices, triangles)
    return all(_are_disjoint(mesh, first, second) for first, second in _find_overlapping_pairs(mesh))


class _Mesh:
    """Triangles with four candidate separating planes each, and the vertices whose triangles cannot overlap."""

    def __init__(self, vertices: Points, triangles: Indices) -> None:
        self.triangles = triangles
        self.corners = vertices[triangles]
        edges = np.roll(self.corners, -1, axis=1) - self.corners
        normal = _normalise(np.cross(edges[:, 0], edges[:, 1]))
        # Normals of the planes: the triangle's, and those of the orthogonal planes through its edges.
        self.planes = np.concatenate([normal[:, None], _normalise(np.cross(normal[:, None], edges))], axis=1)
        self.is_even = self._find_even_vertices(len(vertices), _normalise(edges), normal)

    def _find_even_vertices(self, vertex_count: int, edge_directions: Points, normal: Points) -> NDArray[np.bool_]:
        """Flags vertices whose triangles face the same way and wind around the vertex once, so that none overlap."""
        cosines = -(edge_directions * np.roll(edge_directions, 1, axis=1)).sum(-1)
        angle = np.arccos(np.clip(cosines, -1.0, 1.0))
        total_angle = np.bincount(self.triangles.reshape(-1), angle.reshape(-1), vertex_count)
        weighted = [(angle * axis[:, None]).reshape(-1) for axis in normal.T]
        sums = [np.bincount(self.triangles.reshape(-1), row, vertex_count) for row in weighted]
        mean = np.stack(sums, -1).astype(np.float64, copy=False)
        is_aligned = np.einsum("ijk,ik->ij", _normalise(mean)[self.triangles], normal) > _MIN_COSINE
        uneven = np.bincount(self.triangles[~is_aligned], minlength=vertex_count) > 0
        return ~uneven & (total_angle < 3 * np.pi)


def _is_manifold(triangles: Indices) -> bool:
    """Whether every edge joins two triangles in opposite directions, and the triangles around a vertex form one fan."""
    vertex_count = int(triangles.max()) + 1
    starts, ends = triangles.reshape(-1), np.roll(triangles, -1, axis=1).reshape(-1)
    forward, backward = starts * vertex_count + ends, ends * vertex_count + starts
    order = np.argsort(forward)
    sorted_keys = forward[order]
    if (starts == ends).any() or (sorted_keys[1:] == sorted_keys[:-1]).any():
        return False
    rank = np.minimum(np.searchsorted(sorted_keys, backward), len(sorted_keys) - 1)
    if not np.array_equal(sorted_keys[rank], backward):
        return False
    # Step from a corner across the edge that starts there to the corner of the next triangle at the same vertex.
    opposite = order[rank]
    next_corner = opposite - opposite % 3 + (opposite + 1) % 3
    label = np.arange(len(next_corner))
    step = next_corner
    for _ in range(len(next_corner).bit_length()):
        label = np.minimum(label, label[step])
        step = step[step]
    return len(np.unique(label)) == len(np.unique(triangles))


def _find_overlapping_pairs(mesh: _Mesh) -> Iterator[tuple[Indices, Indices]]:
    """Pairs of triangles whose boxes overlap, in chunks."""
    order = morton_order(mesh.corners.mean(1))
    boxes = build_boxes(mesh.corners[order].min(1), mesh.corners[order].max(1))
    leaves = count_leaves(len(order))
    pending = [np.ones((2, 1), np.int64)]
    budget = _MOST_PAIRS * len(order) + 1000
    while pending:
        pairs = pending.pop()
        budget -= pairs.shape[1]
        if pairs[0, 0] >= leaves:
            yield tuple(order[pairs - leaves])  # type: ignore[misc]
            continue
        if budget < 0:
            yield order[:1], order[:1]  # too many pairs: reject the mesh by a pair of equal triangles
            return
        child_pairs = np.concatenate([2 * pairs + [[a], [b]] for a, b in ((0, 0), (0, 1), (1, 1), (1, 0))], axis=1)
        is_duplicate = np.tile(pairs[0] == pairs[1], 4)
        is_duplicate[: 3 * pairs.shape[1]] = (
            False  # for a pair of equal nodes, visit each pair of different children once
        )
        child_pairs = child_pairs[:, ~is_duplicate & ((child_pairs[0] != child_pairs[1]) | (child_pairs[0] < leaves))]
        overlap = np.ones(child_pairs.shape[1], bool)
        for axis in range(3):
            low, high = boxes[:, axis][child_pairs], boxes[:, axis + 3][child_pairs]
            overlap &= (low[0] <= high[1]) & (low[1] <= high[0])
        child_pairs = child_pairs[:, overlap]
        pending += [child_pairs[:, start : start + _CHUNK] for start in range(0, child_pairs.shape[1], _CHUNK)]


def _are_disjoint(mesh: _Mesh, first: Indices, second: Indices) -> bool:
    """Whether pairs of triangles intersect at most in a shared vertex or edge."""
    equal = mesh.triangles[first][:, :, None] == mesh.triangles[second][:, None, :]
    is_shared = equal.any(2)
    shared = is_shared.sum(1)
    if (shared == 3).any():
        return False
    # Pairs that share a vertex whose triangles cannot overlap need no further check.
    needs_check = ~(is_shared & mesh.is_even[mesh.triangles[first]]).any(1)
    for shared_count in (0, 1, 2):
        rows = np.flatnonzero((shared == shared_count) & needs_check)
        if not len(rows):
            continue
        # The shared vertex comes first, or the shared edge.
        a = _rotate_shared_first(mesh.corners[first[rows]], is_shared[rows], shared_count)
        b = _rotate_shared_first(mesh.corners[second[rows]], equal[rows].any(1), shared_count)
        planes = np.concatenate([mesh.planes[first[rows]], mesh.planes[second[rows]]], axis=1)
        if not (_form_angles(a, b) if shared_count == 2 else _are_separated(a, b, planes, shared_count == 1)).all():
            return False
    return True


def _rotate_shared_first(corners: Points, is_shared: NDArray[np.bool_], shared_count: int) -> Points:
    """Rotates the corners of triangles so that shared vertices come first."""
    if shared_count == 0:
        return corners
    start = np.argmax(is_shared, 1) if shared_count == 1 else (np.argmin(is_shared, 1) + 1) % 3
    return np.take_along_axis(corners, ((start[:, None] + np.arange(3)) % 3)[:, :, None], axis=1)


def _form_angles(a: Points, b: Points) -> NDArray[np.bool_]:
    """Whether the two triangles at a shared edge form an angle, and neither is degenerate."""
    edge_direction = _normalise(a[:, 1] - a[:, 0])
    sides = []
    for corners in (a, b):
        offset = corners[:, 2] - a[:, 0]
        sides.append(offset - np.einsum("ij,ij->i", offset, edge_direction)[:, None] * edge_direction)
    edge_length = np.linalg.norm(a[:, 1] - a[:, 0], axis=1)
    is_thick = np.minimum(*(np.linalg.norm(side, axis=1) for side in sides)) > _MIN_GAP * edge_length
    u, v = map(_normalise, sides)
    return is_thick & ((np.einsum("ij,ij->i", u, v) < 0) | (np.linalg.norm(np.cross(u, v), axis=1) > _MIN_ANGLE))


def _are_separated(a: Points, b: Points, planes: Points, at_vertex: bool) -> NDArray[np.bool_]:
    """Whether a plane separates two triangles. If they share their first vertex, the plane goes through it.

    The candidates are the planes of both triangles, and the planes parallel to an edge of each.
    """
    is_separated = np.zeros(len(a), bool)
    rows = np.arange(len(a))
    a, b = a - a[:, :1], b - a[:, :1]
    size = np.maximum(np.abs(a).max((1, 2)), np.ptp(b, axis=1).max(1))
    edges_a, edges_b = (_normalise(np.roll(corners, -1, axis=1) - corners) for corners in (a, b))
    for axis in range(8 + 9):
        k, j = divmod(axis - 8, 3)
        direction = planes[rows, axis] if axis < 8 else _normalise(np.cross(edges_a[rows, k], edges_b[rows, j]))
        heights = [np.einsum("ijk,ik->ij", corners[rows], direction)[:, int(at_vertex) :] for corners in (a, b)]
        is_apart = _separates(*heights, size[rows], at_vertex)
        is_separated[rows[is_apart]] = True
        rows = rows[~is_apart]
        if not len(rows):
            break
    return is_separated


def _separates(
    first: NDArray[np.float64], second: NDArray[np.float64], size: NDArray[np.float64], at_vertex: bool
) -> NDArray[np.bool_]:
    """Whether the heights of corners above a plane separate two triangles. A shared vertex has height 0."""
    is_apart = np.zeros(len(first), bool)
    for low, high in ((first.max(1), second.min(1)), (second.max(1), first.min(1))):
        if at_vertex:
            touches = (low <= _ROUNDING * size) & (high >= -_ROUNDING * size)
            is_apart |= touches & ((low < -_MIN_GAP * size) | (high > _MIN_GAP * size))
        else:
            is_apart |= low + _MIN_GAP * size < high
    return is_apart


def _normalise(vectors: Points) -> Points:
    """Normalises vectors; very short ones become zero."""
    length = np.sqrt(np.einsum("...i,...i->...", vectors, vectors))[..., None]
    return np.where(length > 1e-150, vectors / np.maximum(length, 1e-300), 0.0)
