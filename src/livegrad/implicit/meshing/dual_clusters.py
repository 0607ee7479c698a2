"""Clusters vertices that one vertex can replace: where the surrounding planes meet in a point, cells are merged.

In: the faces and the planes around each vertex, from `meshing`. Out: a tree of vertices, from single cells upwards.
Merged cells form one piece of surface without holes, so the mesh stays closed and its sheets stay separate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from livegrad.implicit.bodies.batches import run_in_batches
from livegrad.implicit.meshing.dual_cells import Faces, Indices
from livegrad.implicit.meshing.dual_vertices import PlanesOf, Quadrics, pieces
from livegrad.implicit.meshing.surface_points import Points, meeting_points
from livegrad.ir.function import make_function
from livegrad.ir.leaves import input_node
from livegrad.ir.node import Key
from livegrad.ir.types import f64
from livegrad.ops.control import map_over
from livegrad.runtime.cpu import compile_function
from livegrad.state import memo

_WEAKEST = 1e-3
_SHARP = 0.02
_LEVELS = 12
_ROW = {(0, 0): 0, (0, 1): 1, (0, 2): 2, (1, 1): 3, (1, 2): 4, (2, 2): 5}


@dataclass
class VertexTree:
    """Vertices of single cells first, then merged vertices; `parent` is -1 if there is none.

    `position` and `smooth` describe the merged vertices. `split` marks merged vertices that are not used themselves,
    although an ancestor may be. `starts` gives the start of each level: parents come after their children.
    """

    parent: Indices
    position: Points
    smooth: NDArray[np.bool_]
    split: NDArray[np.bool_]
    starts: tuple[int, ...]

    def tops(self) -> Indices:
        """For each vertex of a single cell, the highest merged vertex that replaces it."""
        top = np.where(self.split, -1, np.arange(len(self.parent), dtype=np.int32))
        for first, last in reversed(list(pairwise(self.starts))):
            above = self.parent[first:last]
            higher = np.where(above >= 0, top[above], -1)
            top[first:last] = np.where(higher >= 0, higher, top[first:last])
        return top[: self.starts[1]]

    def take_apart(self, vertices: Indices) -> None:
        """Splits these merged vertices and all their ancestors."""
        while len(vertices):
            self.split[vertices] = True
            vertices = np.unique(self.parent[vertices])
            vertices = vertices[vertices >= 0]


@dataclass(frozen=True)
class _Level:
    """Pieces of surface of one level: their tree node, cell, planes, and whether they may still be merged.

    `inner` is twice the Euler characteristic of a piece, from the faces that have been dropped so far.
    """

    node: Indices
    cell: Indices
    planes: PlanesOf
    open: NDArray[np.bool_]
    inner: Indices
    faces: Indices


@dataclass(frozen=True)
class _MergedVertices:
    """Merged vertices: their positions, whether the surface is smooth there, and whether they are outside their cell.

    A vertex outside its cell replaces nothing, but may be merged further: a sharp edge that leaves a cell may return
    to a larger one.
    """

    position: Points
    smooth: NDArray[np.bool_]
    outside: NDArray[np.bool_]


def join_vertices(faces: Faces, planes: PlanesOf, *, error: float, sharp: bool) -> VertexTree:
    """The tree of vertices. A merged vertex is at most `error` cells away from the planes of the vertices it replaces.

    Without `sharp`, no cells are merged across sharp edges of the part.
    """
    vertex_count = len(faces.cells)
    parents = [np.full(vertex_count, -1, np.int32)]
    joined, starts = [_MergedVertices(np.empty((0, 3)), np.empty(0, bool), np.empty(0, bool))], [0, vertex_count]
    has_normals = np.empty(vertex_count, bool)
    for some in pieces(vertex_count):
        piece_planes = planes(some)
        # A plane without a normal carries no information, and must not count as one that agrees with all others.
        has_normals[some] = piece_planes[0] + piece_planes[3] + piece_planes[5] > piece_planes[13] - 0.5
    level = _Level(
        np.arange(vertex_count, dtype=np.int32),
        faces.cells,
        planes,
        has_normals,
        np.full(vertex_count, 2),
        faces.corners,
    )
    for depth in range(1, _LEVELS + 1 if error > 0 else 1):
        before = level.node
        level, group, merged = _one_level_up(level, 1 << depth, error, starts[-1], sharp)
        if not len(merged.position):
            break
        above = level.node[group]
        new = above >= starts[-1]
        for first, parent in zip(starts, parents, strict=False):
            rows = new & (before >= first) & (before < first + len(parent))
            parent[before[rows] - first] = above[rows]
        parents.append(np.full(len(merged.position), -1, np.int32))
        joined.append(merged)
        starts.append(starts[-1] + len(merged.position))
    split = np.concatenate([np.zeros(vertex_count, bool), *(merged.outside for merged in joined)])
    position, smooth = (
        np.concatenate([merged.position for merged in joined]),
        np.concatenate([merged.smooth for merged in joined]),
    )
    return VertexTree(np.concatenate(parents), position, smooth, split, tuple(starts))


def _one_level_up(
    level: _Level, size: int, error: float, next_node: int, sharp: bool
) -> tuple[_Level, Indices, _MergedVertices]:
    """Pieces of surface in cells of twice the size; the new piece of each old piece; and the merged vertices."""
    cell = level.cell >> 1
    group, count = _pieces(cell, level.faces)
    faces = group[level.faces]
    gathered = _gather(level, size // 2, group, count)
    inner = np.bincount(group, level.inner, count).astype(np.int64)
    good = (np.bincount(group, ~level.open, count) == 0) & (inner + _outer(faces, count) == 2)
    tried = np.flatnonzero(good)
    *positions, left, strength = meeting_points([row[tried] for row in gathered], _WEAKEST)
    fits = left <= error * error
    if not sharp:
        fits &= strength <= _SHARP
    good[tried] = fits
    # Pieces with one vertex keep its tree node.
    node = np.full(count, -1, np.int32)
    node[group] = level.node
    corner = np.zeros((count, 3), np.int32)
    corner[group] = cell
    several = (np.bincount(group, minlength=count) > 1)[tried] & fits
    merged = tried[several]
    node[merged] = next_node + np.arange(len(merged), dtype=np.int32)
    above = _Level(
        node, corner, lambda some: [row[some] for row in gathered], good, *_keep_open_faces(faces, inner, good)
    )
    position = corner[merged] * size + np.stack(positions, -1)[several]
    return above, group, _MergedVertices(position, strength[several] <= _SHARP, ~_within(positions, size)[several])


def _within(position: Sequence[NDArray[np.float64]], size: int) -> NDArray[np.bool_]:
    x, y, z = ((axis >= 0.0) & (axis <= size) for axis in position)
    return x & y & z


def _pieces(cell: Indices, faces: Indices) -> tuple[Indices, int]:
    """For each vertex the index of its piece (vertices of one cell that are joined by edges of faces), and the number
    of pieces."""
    key = cell[:, 0].astype(np.int64)
    for axis in (1, 2):
        key <<= 20
        key |= cell[:, axis]
    pairs = []
    for corner in range(4):
        first, second = faces[corner], faces[(corner + 1) % 4]
        # Every edge occurs twice, once in each direction.
        joins = np.flatnonzero((key[first] == key[second]) & (first < second))
        pairs.append((first[joins], second[joins]))
    del key
    first, second = (np.concatenate(side) for side in zip(*pairs, strict=True))
    root = np.arange(len(cell), dtype=np.int32)
    while len(first):
        first, second = root[first], root[second]
        apart = first != second
        first, second = first[apart], second[apart]
        np.minimum.at(root, np.maximum(first, second), np.minimum(first, second))
        while not np.array_equal(root, above := root[root]):
            root = above
    is_root = root == np.arange(len(cell))
    return (np.cumsum(is_root, dtype=np.int32) - 1)[root], int(is_root.sum())


def _gather(level: _Level, half: int, group: Indices, count: int) -> Quadrics:
    """The sums over planes of all members of each group, relative to the lowest corner of the larger cell.

    Chunks are added in order to one running sum, so the bits do not depend on the chunk size.
    """
    sums = [np.zeros(count) for _ in range(14)]
    for some in pieces(len(group)):
        steps = [(level.cell[some, axis] & 1) * float(half) for axis in range(3)]
        for total, row in zip(sums, run_in_batches(_move_planes(), [*level.planes(some), *steps], ()), strict=True):
            np.add.at(total, group[some], row)
    return sums


@memo(1)
def _move_planes() -> Any:
    """Native code: (sums over planes through points, a step) → the sums for the points after the step."""
    planes = [input_node(Key(str(index)), f64) for index in range(14)]
    steps = [input_node(Key(axis), f64) for axis in "xyz"]
    matrix = [[planes[_ROW[min(i, j), max(i, j)]] for j in range(3)] for i in range(3)]
    along = [sum((matrix[i][j] * steps[j] for j in (1, 2)), matrix[i][0] * steps[0]) for i in range(3)]
    heights = planes[9]
    for step, right, more in zip(steps, planes[6:9], along, strict=True):
        heights = heights + step * (right * 2.0 + more)
    right = [value + more for value, more in zip(planes[6:9], along, strict=True)]
    sums = [total + planes[13] * step for total, step in zip(planes[10:13], steps, strict=True)]
    moved = make_function("moved_planes", [*planes, *steps], [*planes[:6], *right, heights, *sums, planes[13]])
    return compile_function(map_over(moved))


def _outer(faces: Indices, count: int) -> Indices:
    """The contribution of faces to twice the Euler characteristic of each piece.

    In the dual surface, a face is a vertex, and the edges between its corners are edges, each counted from both ends.
    """
    total = np.zeros(count)
    for corner, vertices in enumerate(faces):
        weight = (vertices == faces[(corner + 1) % 4]) - 2.0
        is_first = np.ones(len(vertices), bool)
        for before in faces[:corner]:
            is_first &= before != vertices
        total += np.bincount(vertices, weight + 2.0 * is_first, count)
    return total.astype(np.int64)


def _keep_open_faces(faces: Indices, inner: Indices, good: NDArray[np.bool_]) -> tuple[Indices, Indices]:
    """The faces for the next level: those between pieces of which one may still be merged."""
    a, b, c, d = faces
    within = (a == b) & (b == c) & (c == d)
    inner = inner - 2 * np.bincount(a[within], minlength=len(inner))
    return inner, faces[:, ~within & (good[a] | good[b] | good[c] | good[d])]
