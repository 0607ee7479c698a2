"""Repairs triangle meshes by edge flips and edge collapses; the mesh stays closed.

`dual_triangles` calls it for inverted or degenerate triangles, which occur where the order of vertices along an axis
differs from the order of their cells.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from livegrad.implicit.meshing.dual_cells import Indices
from livegrad.implicit.meshing.surface_points import Points

_ROUNDS = 6
_CHUNK = 1 << 17  # triangles
_MAX_LENGTH = 1.0  # cells: longer edges are not collapsed
Faults = NDArray[np.integer]
FaultsOf = Callable[[Indices], Faults]  # the fault of each triangle, given as columns of three vertices; 0 is good


def repair_triangles(
    positions: Points, triangles: Indices, faults: Faults, faults_of: FaultsOf, severe: int
) -> tuple[Indices, Faults]:
    """Alternates collapses and flips while that reduces faults; returns the triangles and their faults."""
    while True:
        before = faults.sum()
        triangles, faults = collapse_edges(positions, triangles, faults, faults_of, severe)
        triangles, faults = flip_edges(triangles, faults, len(positions), faults_of)
        if faults.sum() in (0, before):
            return triangles, faults


def flip_edges(triangles: Indices, faults: Faults, vertex_count: int, faults_of: FaultsOf) -> tuple[Indices, Faults]:
    """Flips edges while that reduces faults; returns the triangles and their faults.

    >>> thin = np.array([[0, 1, 2], [0, 2, 3]]).T  # a flat square whose first triangle is bad
    >>> flip_edges(thin, np.array([1, 0]), 4, lambda triangles: np.zeros(triangles.shape[1], int))[0].T.tolist()
    [[2, 3, 1], [3, 0, 1]]
    """
    triangles, faults = triangles.copy(), faults.copy()
    for _ in range(_ROUNDS):
        if not faults.any():
            break
        first, second, flipped = _find_flips(triangles, np.flatnonzero(faults), vertex_count)
        new_faults = faults_of(flipped.reshape(3, -1)).reshape(2, -1)
        gain = faults[first] + faults[second] - new_faults.sum(0)
        order = np.argsort(-gain, kind="stable")
        selected = _select_disjoint(first, second, flipped, order[gain[order] > 0])
        if not len(selected):
            break
        for side, indices in enumerate((first[selected], second[selected])):
            triangles[:, indices], faults[indices] = flipped[:, side, selected], new_faults[side, selected]
    return triangles, faults


def _find_flips(triangles: Indices, bad: Indices, vertex_count: int) -> tuple[Indices, Indices, Indices]:
    """The possible flips of edges of bad triangles: the indices of both triangles, and their replacements."""
    a, b, c = (np.concatenate([triangles[(k + rotation) % 3, bad] for rotation in range(3)]) for k in range(3))
    first, reverse_keys = np.tile(bad, 3), b.astype(np.int64) * vertex_count + a
    order = np.argsort(reverse_keys)
    ranked = reverse_keys[order]
    neighbour, tip = np.full(len(reverse_keys), -1), np.zeros(len(reverse_keys), triangles.dtype)
    for triangle, corner, rank in _match_edges(triangles, ranked, vertex_count):
        neighbour[order[rank]] = triangle
        tip[order[rank]] = triangles[(corner + 2) % 3, triangle]
    valid = np.flatnonzero((neighbour >= 0) & (tip != c))
    first, neighbour, a, b, c, tip = (row[valid] for row in (first, neighbour, a, b, c, tip))
    flipped = np.stack([np.stack([a, tip, c]), np.stack([tip, b, c])], axis=1)
    is_new = ~_are_edges(triangles, tip, c, vertex_count)
    return first[is_new], neighbour[is_new], flipped[:, :, is_new]


def _are_edges(triangles: Indices, first: Indices, second: Indices, vertex_count: int) -> NDArray[np.bool_]:
    """Whether pairs of vertices are joined by an edge."""
    keys = np.stack([first.astype(np.int64) * vertex_count + second, second.astype(np.int64) * vertex_count + first])
    ranked = np.unique(keys)
    exists = np.zeros(len(ranked), bool)
    for _, _, rank in _match_edges(triangles, ranked, vertex_count):
        exists[rank] = True
    forward, backward = exists[np.searchsorted(ranked, keys)]
    return forward | backward


def _match_edges(triangles: Indices, ranked: Indices, vertex_count: int) -> Iterator[tuple[Indices, int, Indices]]:
    """Searches sorted edge keys: yields the triangles with such edges, the corner where they start, and their ranks.

    Works in chunks of triangles, because the keys of all edges take more memory than the mesh.
    """
    if not len(ranked):
        return
    for start in range(0, triangles.shape[1], _CHUNK):
        chunk = triangles[:, start : start + _CHUNK]
        for corner in range(3):
            edges = chunk[corner].astype(np.int64) * vertex_count + chunk[(corner + 1) % 3]
            rank = np.minimum(np.searchsorted(ranked, edges), len(ranked) - 1)
            matches = np.flatnonzero(ranked[rank] == edges)
            yield start + matches, corner, rank[matches]


def _select_disjoint(firsts: Indices, seconds: Indices, flipped: Indices, flips: Indices) -> Indices:
    """Selects flips greedily: none shares a triangle or a new edge with an earlier flip."""
    used_triangles: set[int] = set()
    edges: set[tuple[int, int]] = set()
    selected = []
    for flip in flips.tolist():
        first, second = int(firsts[flip]), int(seconds[flip])
        ends = sorted((int(flipped[1, 0, flip]), int(flipped[2, 0, flip])))
        edge = (ends[0], ends[1])
        if first not in used_triangles and second not in used_triangles and edge not in edges:
            used_triangles |= {first, second}
            edges.add(edge)
            selected.append(flip)
    return np.array(selected, np.int64)


# --- collapses -------------------------------------------------------------------------------------------------------


def collapse_edges(
    positions: Points, triangles: Indices, faults: Faults, faults_of: FaultsOf, severe: int
) -> tuple[Indices, Faults]:
    """Collapses edges of triangles with severe faults to one of their ends; returns the triangles and their faults.

    Only short edges are collapsed, and only if the remaining faults are not severe, because a collapse removes detail.
    """
    triangles, faults = triangles.copy(), faults.copy()
    while faults.any():
        bad = np.flatnonzero(faults >= severe)
        if not len(bad):
            break
        touched = np.zeros(int(triangles.max()) + 1, bool)
        touched[triangles[:, bad]] = True
        rings = _collect_rings(triangles, np.flatnonzero(touched[triangles].any(0)), touched)
        collapses = list(_find_collapses(positions, triangles[:, bad].T.tolist(), rings))
        if not collapses:
            break
        ends = np.cumsum([replaced.shape[1] for _, _, replaced in collapses])
        new_faults = np.split(faults_of(np.concatenate([replaced for _, _, replaced in collapses], axis=1)), ends[:-1])
        gains = [
            faults[list(rings[collapses[index][0]])].sum() - new_faults[index].sum() for index in range(len(collapses))
        ]
        removed = np.zeros(triangles.shape[1], bool)
        locked: set[int] = set()
        for index in np.argsort(-np.array(gains), kind="stable"):
            vertex, target, replaced = collapses[index]
            neighbours = {corner for end in (vertex, target) for corners in rings[end].values() for corner in corners}
            if new_faults[index].max() >= severe or gains[index] <= 0 or not locked.isdisjoint(neighbours):
                continue
            locked |= neighbours
            changed = [column for column, corners in rings[vertex].items() if target not in corners]
            triangles[:, changed], faults[changed] = replaced, new_faults[index]
            removed[[column for column, corners in rings[vertex].items() if target in corners]] = True
        if not locked:
            break
        triangles, faults = triangles[:, ~removed], faults[~removed]
    return triangles, faults


_Rings = dict[int, dict[int, tuple[int, ...]]]  # vertex → index of a triangle around it → corners of that triangle


def _collect_rings(triangles: Indices, columns: Indices, is_relevant: NDArray[np.bool_]) -> _Rings:
    rings: _Rings = defaultdict(dict)
    for column, corners in zip(columns.tolist(), triangles[:, columns].T.tolist(), strict=True):
        for corner in corners:
            if is_relevant[corner]:
                rings[corner][column] = tuple(corners)
    return rings


def _find_collapses(positions: Points, bad: list[list[int]], rings: _Rings) -> Iterator[tuple[int, int, Indices]]:
    """The possible collapses of edges of bad triangles: the removed vertex, the kept vertex, and the changed triangles.

    An edge whose ends have more than two common neighbours is skipped, because collapsing it would join sheets.
    """
    tried_edges: set[tuple[int, int]] = set()
    for corners in bad:
        for removed, target in ((corners[i], corners[j]) for i in range(3) for j in range(3) if i != j):
            first, second = (
                {corner for triangle in rings[end].values() for corner in triangle} for end in (removed, target)
            )
            too_long = np.abs(positions[removed] - positions[target]).max() > _MAX_LENGTH
            if too_long or (removed, target) in tried_edges or len((first & second) - {removed, target}) != 2:
                continue
            tried_edges.add((removed, target))
            replaced = [
                [target if corner == removed else corner for corner in triangle]
                for triangle in rings[removed].values()
                if target not in triangle
            ]
            if replaced:
                yield removed, target, np.array(replaced, np.int32).T
