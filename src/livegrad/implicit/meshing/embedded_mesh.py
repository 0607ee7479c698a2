"""Checks whether a triangle mesh bounds a body: closed, without folds, and free of self-intersections.

Called by `mesh_distance`: only for such a mesh does the normal at the nearest point distinguish inside from outside.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from livegrad.implicit.distances.bvh import build_boxes, count_leaves, morton_order

Points = NDArray[np.float64]
Indices = NDArray[np.int64]
_EVEN = 0.2  # the least cosine between the normal at a vertex and the normals around it
_FLAT = 1e-3  # radians: triangles at a smaller angle are folded onto each other
_CLEAR = 1e-9  # the least gap between two triangles, relative to the larger one
_ROUNDING = 1e-12
_CHUNK = 1 << 16
_MOST_PAIRS = 200  # overlapping boxes per triangle: with more, the search takes too long


def is_embedded(vertices: Points, triangles: Indices) -> bool:
    """Whether the mesh, which must have distinct vertices, is the boundary of a body.

    >>> from livegrad.implicit.nodes.resources import TriangleMesh
    >>> box = TriangleMesh.box((0, 0, 0), (1, 2, 3))
    >>> is_embedded(box.vertices, box.triangles), is_embedded(box.vertices, box.triangles[1:])
    (True, False)
    """
    if not _is_manifold(triangles):
        return False
    mesh = _Mesh(vertices, triangles)
    return all(_are_apart(mesh, first, second) for first, second in _near_pairs(mesh))


class _Mesh:
    """Triangles with four separating planes each, and the vertices whose triangles do not overlap."""

    def __init__(self, vertices: Points, triangles: Indices) -> None:
        self.triangles = triangles
        self.corners = vertices[triangles]
        edges = np.roll(self.corners, -1, axis=1) - self.corners
        normal = _unit(np.cross(edges[:, 0], edges[:, 1]))
        # Normals of the planes: the triangle's, and those of the orthogonal planes through its edges.
        self.planes = np.concatenate([normal[:, None], _unit(np.cross(normal[:, None], edges))], axis=1)
        self.is_even = self._even_vertices(len(vertices), _unit(edges), normal)

    def _even_vertices(self, vertex_count: int, ways: Points, normal: Points) -> NDArray[np.bool_]:
        """The vertices whose triangles face the same way and wind around once, so that no two overlap."""
        turns = -(ways * np.roll(ways, 1, axis=1)).sum(-1)
        angle = np.arccos(np.clip(turns, -1.0, 1.0))
        around = np.bincount(self.triangles.reshape(-1), angle.reshape(-1), vertex_count)
        weighted = [(angle * axis[:, None]).reshape(-1) for axis in normal.T]
        sums = [np.bincount(self.triangles.reshape(-1), row, vertex_count) for row in weighted]
        mean = np.stack(sums, -1).astype(np.float64, copy=False)
        agrees = np.einsum("ijk,ik->ij", _unit(mean)[self.triangles], normal) > _EVEN
        uneven = np.bincount(self.triangles[~agrees], minlength=vertex_count) > 0
        return ~uneven & (around < 3 * np.pi)


def _is_manifold(triangles: Indices) -> bool:
    """Whether every edge joins two triangles in opposite directions, and the triangles around a vertex form one fan."""
    vertex_count = int(triangles.max()) + 1
    starts, ends = triangles.reshape(-1), np.roll(triangles, -1, axis=1).reshape(-1)
    forward, backward = starts * vertex_count + ends, ends * vertex_count + starts
    order = np.argsort(forward)
    ranked = forward[order]
    if (starts == ends).any() or (ranked[1:] == ranked[:-1]).any():
        return False
    rank = np.minimum(np.searchsorted(ranked, backward), len(ranked) - 1)
    if not np.array_equal(ranked[rank], backward):
        return False
    # Steps from a corner across the edge that starts there to the next triangle's corner at the same vertex.
    opposite = order[rank]
    following = opposite - opposite % 3 + (opposite + 1) % 3
    label = np.arange(len(following))
    step = following
    for _ in range(len(following).bit_length()):
        label = np.minimum(label, label[step])
        step = step[step]
    return len(np.unique(label)) == len(np.unique(triangles))


def _near_pairs(mesh: _Mesh) -> Iterator[tuple[Indices, Indices]]:
    """The indices of triangles whose boxes overlap, in chunks of pairs."""
    order = morton_order(mesh.corners.mean(1))
    boxes = build_boxes(mesh.corners[order].min(1), mesh.corners[order].max(1))
    leaves = count_leaves(len(order))
    pending = [np.ones((2, 1), np.int64)]
    left = _MOST_PAIRS * len(order) + 1000
    while pending:
        pairs = pending.pop()
        left -= pairs.shape[1]
        if pairs[0, 0] >= leaves:
            yield tuple(order[pairs - leaves])  # type: ignore[misc]
            continue
        if left < 0:
            yield order[:1], order[:1]  # too many pairs: reported as a duplicate triangle
            return
        below = np.concatenate([2 * pairs + [[a], [b]] for a, b in ((0, 0), (0, 1), (1, 1), (1, 0))], axis=1)
        again = np.tile(pairs[0] == pairs[1], 4)
        again[: 3 * pairs.shape[1]] = False  # a pair of equal nodes has each pair of different children only once
        below = below[:, ~again & ((below[0] != below[1]) | (below[0] < leaves))]
        overlap = np.ones(below.shape[1], bool)
        for axis in range(3):
            low, high = boxes[:, axis][below], boxes[:, axis + 3][below]
            overlap &= (low[0] <= high[1]) & (low[1] <= high[0])
        below = below[:, overlap]
        pending += [below[:, at : at + _CHUNK] for at in range(0, below.shape[1], _CHUNK)]


def _are_apart(mesh: _Mesh, first: Indices, second: Indices) -> bool:
    """Whether pairs of triangles intersect at most in a shared vertex or edge."""
    equal = mesh.triangles[first][:, :, None] == mesh.triangles[second][:, None, :]
    is_shared = equal.any(2)
    shared = is_shared.sum(1)
    if (shared == 3).any():
        return False
    # Triangles that share a vertex whose triangles do not overlap need no further check.
    open_ = ~(is_shared & mesh.is_even[mesh.triangles[first]]).any(1)
    for shared_count in (0, 1, 2):
        rows = np.flatnonzero((shared == shared_count) & open_)
        if not len(rows):
            continue
        # The shared vertex comes first, or the shared edge.
        a = _shared_first(mesh.corners[first[rows]], is_shared[rows], shared_count)
        b = _shared_first(mesh.corners[second[rows]], equal[rows].any(1), shared_count)
        planes = np.concatenate([mesh.planes[first[rows]], mesh.planes[second[rows]]], axis=1)
        if not (_edges_open(a, b) if shared_count == 2 else _are_separated(a, b, planes, shared_count == 1)).all():
            return False
    return True


def _shared_first(corners: Points, is_shared: NDArray[np.bool_], shared_count: int) -> Points:
    """Rotates triangles so that shared vertices come first."""
    if shared_count == 0:
        return corners
    start = np.argmax(is_shared, 1) if shared_count == 1 else (np.argmin(is_shared, 1) + 1) % 3
    return np.take_along_axis(corners, ((start[:, None] + np.arange(3)) % 3)[:, :, None], axis=1)


def _edges_open(a: Points, b: Points) -> NDArray[np.bool_]:
    """Whether the two triangles at a shared edge form an angle, and neither is degenerate."""
    along = _unit(a[:, 1] - a[:, 0])
    sides = []
    for corners in (a, b):
        up = corners[:, 2] - a[:, 0]
        sides.append(up - np.einsum("ij,ij->i", up, along)[:, None] * along)
    size = np.linalg.norm(a[:, 1] - a[:, 0], axis=1)
    thick = np.minimum(*(np.linalg.norm(side, axis=1) for side in sides)) > _CLEAR * size
    u, v = map(_unit, sides)
    return thick & ((np.einsum("ij,ij->i", u, v) < 0) | (np.linalg.norm(np.cross(u, v), axis=1) > _FLAT))


def _are_separated(a: Points, b: Points, planes: Points, at_vertex: bool) -> NDArray[np.bool_]:
    """Whether a plane separates two triangles; it goes through the first vertex of both if they share one.

    The candidates are the triangles' own planes, and the planes parallel to an edge of each.
    """
    is_separated = np.zeros(len(a), bool)
    rows = np.arange(len(a))
    a, b = a - a[:, :1], b - a[:, :1]
    size = np.maximum(np.abs(a).max((1, 2)), np.ptp(b, axis=1).max(1))
    edges_a, edges_b = (_unit(np.roll(corners, -1, axis=1) - corners) for corners in (a, b))
    for axis in range(8 + 9):
        k, j = divmod(axis - 8, 3)
        direction = planes[rows, axis] if axis < 8 else _unit(np.cross(edges_a[rows, k], edges_b[rows, j]))
        heights = [np.einsum("ijk,ik->ij", corners[rows], direction)[:, int(at_vertex) :] for corners in (a, b)]
        apart = _on_two_sides(*heights, size[rows], at_vertex)
        is_separated[rows[apart]] = True
        rows = rows[~apart]
        if not len(rows):
            break
    return is_separated


def _on_two_sides(
    first: NDArray[np.float64], other: NDArray[np.float64], size: NDArray[np.float64], at_vertex: bool
) -> NDArray[np.bool_]:
    """Whether the heights of corners above a plane separate two triangles. A shared vertex has height 0."""
    apart = np.zeros(len(first), bool)
    for low, high in ((first.max(1), other.min(1)), (other.max(1), first.min(1))):
        if at_vertex:
            divided = (low <= _ROUNDING * size) & (high >= -_ROUNDING * size)
            apart |= divided & ((low < -_CLEAR * size) | (high > _CLEAR * size))
        else:
            apart |= low + _CLEAR * size < high
    return apart


def _unit(vectors: Points) -> Points:
    """Normalises vectors; very short ones become zero."""
    length = np.sqrt(np.einsum("...i,...i->...", vectors, vectors))[..., None]
    return np.where(length > 1e-150, vectors / np.maximum(length, 1e-300), 0.0)
