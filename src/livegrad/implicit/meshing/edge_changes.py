"""Repairs triangles by flipping or collapsing edges.

Called by `dual_triangles` for inverted or degenerate triangles, which occur where vertices are ordered differently from
their cells. The mesh stays closed.
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
_SHORT = 1.0  # cells: longer edges are not collapsed
Faults = NDArray[np.integer]
FaultsOf = Callable[[Indices], Faults]  # the fault of each column of three vertices; 0 is good


def change_edges(
    positions: Points, triangles: Indices, faults: Faults, faults_of: FaultsOf, severe: int
) -> tuple[Indices, Faults]:
    """Collapses and flips edges in turn while that reduces faults; returns the triangles and their faults."""
    while True:
        before = faults.sum()
        triangles, faults = collapse_edges(positions, triangles, faults, faults_of, severe)
        triangles, faults = flip_edges(triangles, faults, len(positions), faults_of)
        if faults.sum() in (0, before):
            return triangles, faults


def flip_edges(triangles: Indices, faults: Faults, vertex_count: int, faults_of: FaultsOf) -> tuple[Indices, Faults]:
    """Flips edges while that reduces faults; returns the triangles and their faults.

    >>> thin = np.array([[0, 1, 2], [0, 2, 3]]).T  # a flat square whose first triangle is to go
    >>> flip_edges(thin, np.array([1, 0]), 4, lambda made: np.zeros(made.shape[1], int))[0].T.tolist()
    [[2, 3, 1], [3, 0, 1]]
    """
    triangles, faults = triangles.copy(), faults.copy()
    for _ in range(_ROUNDS):
        if not faults.any():
            break
        first, other, flipped = _candidates(triangles, np.flatnonzero(faults), vertex_count)
        left = faults_of(flipped.reshape(3, -1)).reshape(2, -1)
        gain = faults[first] + faults[other] - left.sum(0)
        order = np.argsort(-gain, kind="stable")
        chosen = _choose_disjoint(first, other, flipped, order[gain[order] > 0])
        if not len(chosen):
            break
        for side, indices in enumerate((first[chosen], other[chosen])):
            triangles[:, indices], faults[indices] = flipped[:, side, chosen], left[side, chosen]
    return triangles, faults


def _candidates(triangles: Indices, bad: Indices, vertex_count: int) -> tuple[Indices, Indices, Indices]:
    """The possible flips of edges of bad triangles: the indices of both triangles, and their replacements."""
    a, b, c = (np.concatenate([triangles[(k + turn) % 3, bad] for turn in range(3)]) for k in range(3))
    first, wanted = np.tile(bad, 3), b.astype(np.int64) * vertex_count + a
    order = np.argsort(wanted)
    ranked = wanted[order]
    neighbour, tip = np.full(len(wanted), -1), np.zeros(len(wanted), triangles.dtype)
    for at, corner, rank in _edges_among(triangles, ranked, vertex_count):
        neighbour[order[rank]] = at
        tip[order[rank]] = triangles[(corner + 2) % 3, at]
    valid = np.flatnonzero((neighbour >= 0) & (tip != c))
    first, neighbour, a, b, c, tip = (row[valid] for row in (first, neighbour, a, b, c, tip))
    flipped = np.stack([np.stack([a, tip, c]), np.stack([tip, b, c])], axis=1)
    is_new = ~_are_edges(triangles, tip, c, vertex_count)
    return first[is_new], neighbour[is_new], flipped[:, :, is_new]


def _are_edges(triangles: Indices, first: Indices, second: Indices, vertex_count: int) -> NDArray[np.bool_]:
    """Whether pairs of vertices are already joined by an edge."""
    both = np.stack([first.astype(np.int64) * vertex_count + second, second.astype(np.int64) * vertex_count + first])
    ranked = np.unique(both)
    seen = np.zeros(len(ranked), bool)
    for _, _, rank in _edges_among(triangles, ranked, vertex_count):
        seen[rank] = True
    forward, backward = seen[np.searchsorted(ranked, both)]
    return forward | backward


def _edges_among(triangles: Indices, ranked: Indices, vertex_count: int) -> Iterator[tuple[Indices, int, Indices]]:
    """The edges that are among the ranked ones: their triangles, the corner where they start, and their ranks.

    Works in chunks of triangles, because the keys of all edges take more memory than the mesh.
    """
    if not len(ranked):
        return
    for start in range(0, triangles.shape[1], _CHUNK):
        some = triangles[:, start : start + _CHUNK]
        for corner in range(3):
            edges = some[corner].astype(np.int64) * vertex_count + some[(corner + 1) % 3]
            rank = np.minimum(np.searchsorted(ranked, edges), len(ranked) - 1)
            hits = np.flatnonzero(ranked[rank] == edges)
            yield start + hits, corner, rank[hits]


def _choose_disjoint(firsts: Indices, other: Indices, flipped: Indices, flips: Indices) -> Indices:
    """The flips that share no triangle and no new edge with an earlier one."""
    taken: set[int] = set()
    edges: set[tuple[int, int]] = set()
    chosen = []
    for flip in flips.tolist():
        first, second = int(firsts[flip]), int(other[flip])
        ends = sorted((int(flipped[1, 0, flip]), int(flipped[2, 0, flip])))
        edge = (ends[0], ends[1])
        if first not in taken and second not in taken and edge not in edges:
            taken |= {first, second}
            edges.add(edge)
            chosen.append(flip)
    return np.array(chosen, np.int64)


# --- collapses -------------------------------------------------------------------------------------------------------


def collapse_edges(
    positions: Points, triangles: Indices, faults: Faults, faults_of: FaultsOf, severe: int
) -> tuple[Indices, Faults]:
    """Collapses edges of triangles with severe faults to one of their ends; returns the triangles and their faults.

    Only short edges are collapsed, and only if no remaining fault is severe, because a collapse removes detail.
    """
    triangles, faults = triangles.copy(), faults.copy()
    while faults.any():
        bad = np.flatnonzero(faults >= severe)
        if not len(bad):
            break
        touched = np.zeros(int(triangles.max()) + 1, bool)
        touched[triangles[:, bad]] = True
        around = _around(triangles, np.flatnonzero(touched[triangles].any(0)), touched)
        tries = list(_tries(positions, triangles[:, bad].T.tolist(), around))
        if not tries:
            break
        ends = np.cumsum([replaced.shape[1] for _, _, replaced in tries])
        left = np.split(faults_of(np.concatenate([replaced for _, _, replaced in tries], axis=1)), ends[:-1])
        gains = [faults[list(around[tries[at][0]])].sum() - left[at].sum() for at in range(len(tries))]
        removed = np.zeros(triangles.shape[1], bool)
        busy: set[int] = set()
        for at in np.argsort(-np.array(gains), kind="stable"):
            gone, kept, replaced = tries[at]
            near = {corner for vertex in (gone, kept) for corners in around[vertex].values() for corner in corners}
            if left[at].max() >= severe or gains[at] <= 0 or not busy.isdisjoint(near):
                continue
            busy |= near
            stay = [column for column, corners in around[gone].items() if kept not in corners]
            triangles[:, stay], faults[stay] = replaced, left[at]
            removed[[column for column, corners in around[gone].items() if kept in corners]] = True
        if not busy:
            break
        triangles, faults = triangles[:, ~removed], faults[~removed]
    return triangles, faults


_Around = dict[int, dict[int, tuple[int, ...]]]  # vertex → index of a triangle around it → its corners


def _around(triangles: Indices, near: Indices, touched: NDArray[np.bool_]) -> _Around:
    around: _Around = defaultdict(dict)
    for column, corners in zip(near.tolist(), triangles[:, near].T.tolist(), strict=True):
        for corner in corners:
            if touched[corner]:
                around[corner][column] = tuple(corners)
    return around


def _tries(positions: Points, bad: list[list[int]], around: _Around) -> Iterator[tuple[int, int, Indices]]:
    """The possible collapses of edges of bad triangles: the removed vertex, the kept vertex, and the new triangles.

    An edge whose ends have more common neighbours than the two beside it is skipped: collapsing it would join sheets.
    """
    seen: set[tuple[int, int]] = set()
    for corners in bad:
        for removed, kept in ((corners[i], corners[j]) for i in range(3) for j in range(3) if i != j):
            first, second = (
                {corner for triangle in around[end].values() for corner in triangle} for end in (removed, kept)
            )
            too_long = np.abs(positions[removed] - positions[kept]).max() > _SHORT
            if too_long or (removed, kept) in seen or len((first & second) - {removed, kept}) != 2:
                continue
            seen.add((removed, kept))
            replaced = [
                [kept if corner == removed else corner for corner in triangle]
                for triangle in around[removed].values()
                if kept not in triangle
            ]
            if replaced:
                yield removed, kept, np.array(replaced, np.int32).T
