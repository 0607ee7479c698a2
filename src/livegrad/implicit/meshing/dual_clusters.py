"""Simplifies dual contouring by vertex clustering: merges cells whose tangent planes meet in a point, up an octree.

In: the faces and the planes around each vertex, from `meshing`. Out: a tree of vertices, from single cells upwards.
Merged cells contain one piece of surface without holes, so the mesh stays closed and its sheets stay separate.
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
from livegrad.implicit.meshing.dual_vertices import PlanesOf, Quadrics, chunks
from livegrad.implicit.meshing.surface_points import Points, intersect_planes
from livegrad.ir.function import make_function
from livegrad.ir.leaves import input_node
from livegrad.ir.node import Key
from livegrad.ir.types import f64
from livegrad.ops.maps import map_over
from livegrad.runtime.cpu import compile_function
from livegrad.state import memo

_WEAKEST = 1e-3
_SHARP = 0.02
_LEVELS = 12
_ROW = {(0, 0): 0, (0, 1): 1, (0, 2): 2, (1, 1): 3, (1, 2): 4, (2, 2): 5}


@dataclass
class VertexTree:
    """The vertices of single cells, then merged vertices, level by level. `parent` is -1 for a root.

    `position` and `smooth` describe the merged vertices. `split` marks merged vertices that are not used, although an
    ancestor may be. `starts` has the first vertex of each level; parents come after their children.
    """

    parent: Indices
    position: Points
    smooth: NDArray[np.bool_]
    split: NDArray[np.bool_]
    starts: tuple[int, ...]

    def highest_vertices(self) -> Indices:
        """For each vertex of a single cell, the highest vertex that replaces it."""
        top = np.where(self.split, -1, np.arange(len(self.parent), dtype=np.int32))
        for first, last in reversed(list(pairwise(self.starts))):
            above = self.parent[first:last]
            higher = np.where(above >= 0, top[above], -1)
            top[first:last] = np.where(higher >= 0, higher, top[first:last])
        return top[: self.starts[1]]

    def split_vertices(self, vertices: Indices) -> None:
        """Splits these merged vertices and all their ancestors."""
        while len(vertices):
            self.split[vertices] = True
            vertices = np.unique(self.parent[vertices])
            vertices = vertices[vertices >= 0]


@dataclass(frozen=True)
class _Level:
    """The pieces of surface of one level: tree node, cell, sums over planes, and whether a piece may still be merged.

    `inner` is twice the Euler characteristic of a piece, without the contribution of `faces`.
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

    A vertex outside its cell is not used, but may be merged further: a sharp edge that leaves a cell may return to a
    larger cell.
    """

    position: Points
    smooth: NDArray[np.bool_]
    outside: NDArray[np.bool_]


def cluster_vertices(faces: Faces, planes: PlanesOf, *, error: float, sharp: bool) -> VertexTree:
    """Builds the tree of vertices. A merged vertex is within `error` cells of the planes of the vertices it replaces.

    Without `sharp`, cells are not merged across sharp edges of the part.
    """
    vertex_count = len(faces.cells)
    parents = [np.full(vertex_count, -1, np.int32)]
    levels, starts = [_MergedVertices(np.empty((0, 3)), np.empty(0, bool), np.empty(0, bool))], [0, vertex_count]
    has_normals = np.empty(vertex_count, bool)
    for chunk in chunks(vertex_count):
        piece_planes = planes(chunk)
        # A plane without a normal has no information and must not count as consistent with all others.
        has_normals[chunk] = piece_planes[0] + piece_planes[3] + piece_planes[5] > piece_planes[13] - 0.5
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
        level, group, merged = _merge_level(level, 1 << depth, error, starts[-1], sharp)
        if not len(merged.position):
            break
        above = level.node[group]
        is_new = above >= starts[-1]
        for first, parent in zip(starts, parents, strict=False):
            rows = is_new & (before >= first) & (before < first + len(parent))
            parent[before[rows] - first] = above[rows]
        parents.append(np.full(len(merged.position), -1, np.int32))
        levels.append(merged)
        starts.append(starts[-1] + len(merged.position))
    split = np.concatenate([np.zeros(vertex_count, bool), *(merged.outside for merged in levels)])
    position, smooth = (
        np.concatenate([merged.position for merged in levels]),
        np.concatenate([merged.smooth for merged in levels]),
    )
    return VertexTree(np.concatenate(parents), position, smooth, split, tuple(starts))


def _merge_level(
    level: _Level, size: int, error: float, next_node: int, sharp: bool
) -> tuple[_Level, Indices, _MergedVertices]:
    """Merges to cells of twice the size: the new level, the new piece of each old piece, and the merged vertices."""
    cell = level.cell >> 1
    group, count = _find_pieces(cell, level.faces)
    faces = group[level.faces]
    sums = _sum_planes(level, size // 2, group, count)
    inner = np.bincount(group, level.inner, count).astype(np.int64)
    can_merge = (np.bincount(group, ~level.open, count) == 0) & (inner + _count_face_contributions(faces, count) == 2)
    candidates = np.flatnonzero(can_merge)
    *positions, residual, strength = intersect_planes([row[candidates] for row in sums], _WEAKEST)
    fits = residual <= error * error
    if not sharp:
        fits &= strength <= _SHARP
    can_merge[candidates] = fits
    # A piece with one vertex keeps the tree node of that vertex.
    node = np.full(count, -1, np.int32)
    node[group] = level.node
    corner = np.zeros((count, 3), np.int32)
    corner[group] = cell
    merges = (np.bincount(group, minlength=count) > 1)[candidates] & fits
    merged = candidates[merges]
    node[merged] = next_node + np.arange(len(merged), dtype=np.int32)
    above = _Level(
        node, corner, lambda rows: [row[rows] for row in sums], can_merge, *_drop_faces(faces, inner, can_merge)
    )
    position = corner[merged] * size + np.stack(positions, -1)[merges]
    return (
        above,
        group,
        _MergedVertices(position, strength[merges] <= _SHARP, ~_are_within_cell(positions, size)[merges]),
    )


def _are_within_cell(position: Sequence[NDArray[np.float64]], size: int) -> NDArray[np.bool_]:
    x, y, z = ((axis >= 0.0) & (axis <= size) for axis in position)
    return x & y & z


def _find_pieces(cell: Indices, faces: Indices) -> tuple[Indices, int]:
    """The piece of each vertex, and the number of pieces: connected components of the vertices in each cell, joined by
    edges of faces."""
    key = cell[:, 0].astype(np.int64)
    for axis in (1, 2):
        key <<= 20
        key |= cell[:, axis]
    pairs = []
    for corner in range(4):
        first, second = faces[corner], faces[(corner + 1) % 4]
        # Every edge occurs in both directions.
        edges = np.flatnonzero((key[first] == key[second]) & (first < second))
        pairs.append((first[edges], second[edges]))
    del key
    first, second = (np.concatenate(side) for side in zip(*pairs, strict=True))
    root = np.arange(len(cell), dtype=np.int32)
    while len(first):
        first, second = root[first], root[second]
        differ = first != second
        first, second = first[differ], second[differ]
        np.minimum.at(root, np.maximum(first, second), np.minimum(first, second))
        while not np.array_equal(root, grandparent := root[root]):
            root = grandparent
    is_root = root == np.arange(len(cell))
    return (np.cumsum(is_root, dtype=np.int32) - 1)[root], int(is_root.sum())


def _sum_planes(level: _Level, half: int, group: Indices, count: int) -> Quadrics:
    """Sums over the planes of all members of each group, relative to the low corner of the larger cell.

    Chunks are added in order to one running sum, so the result does not depend on the chunk size.
    """
    sums = [np.zeros(count) for _ in range(14)]
    for chunk in chunks(len(group)):
        steps = [(level.cell[chunk, axis] & 1) * float(half) for axis in range(3)]
        for total, row in zip(sums, run_in_batches(_move_planes(), [*level.planes(chunk), *steps], ()), strict=True):
            np.add.at(total, group[chunk], row)
    return sums


@memo(1)
def _move_planes() -> Any:
    """Native code: (sums over planes, step) → the sums after all points move by the step."""
    planes = [input_node(Key(str(index)), f64) for index in range(14)]
    steps = [input_node(Key(axis), f64) for axis in "xyz"]
    matrix = [[planes[_ROW[min(i, j), max(i, j)]] for j in range(3)] for i in range(3)]
    changes = [sum((matrix[i][j] * steps[j] for j in (1, 2)), matrix[i][0] * steps[0]) for i in range(3)]
    heights = planes[9]
    for step, right, change in zip(steps, planes[6:9], changes, strict=True):
        heights = heights + step * (right * 2.0 + change)
    right = [value + change for value, change in zip(planes[6:9], changes, strict=True)]
    sums = [total + planes[13] * step for total, step in zip(planes[10:13], steps, strict=True)]
    function = make_function("moved_planes", [*planes, *steps], [*planes[:6], *right, heights, *sums, planes[13]])
    return compile_function(map_over(function))


def _count_face_contributions(faces: Indices, count: int) -> Indices:
    """The contribution of faces to twice the Euler characteristic of each piece.

    In the dual surface, a face is a vertex, and the edges between its corners are edges, each counted at both ends.
    """
    total = np.zeros(count)
    for corner, vertices in enumerate(faces):
        weight = (vertices == faces[(corner + 1) % 4]) - 2.0
        is_first = np.ones(len(vertices), bool)
        for earlier in faces[:corner]:
            is_first &= earlier != vertices
        total += np.bincount(vertices, weight + 2.0 * is_first, count)
    return total.astype(np.int64)


def _drop_faces(faces: Indices, inner: Indices, can_merge: NDArray[np.bool_]) -> tuple[Indices, Indices]:
    """Drops faces inside one piece, whose contribution moves to `inner`, and faces between pieces that are final."""
    a, b, c, d = faces
    is_internal = (a == b) & (b == c) & (c == d)
    inner = inner - 2 * np.bincount(a[is_internal], minlength=len(inner))
    return inner, faces[:, ~is_internal & (can_merge[a] | can_merge[b] | can_merge[c] | can_merge[d])]
