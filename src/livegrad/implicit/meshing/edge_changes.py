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
_AT_ONCE = 1 << 17  # triangles
_SHORT = 1.0  # cells: longer edges are not shrunk
Faults = NDArray[np.integer]
FaultsOf = Callable[[Indices], Faults]  # how bad each column of three vertices is, 0 where it is good


def change_edges(
    places: Points, triangles: Indices, faults: Faults, faults_of: FaultsOf, severe: int
) -> tuple[Indices, Faults]:
    """Triangles after edges were shrunk and flipped in turn, as long as that leaves less faults, and those."""
    while True:
        before = faults.sum()
        triangles, faults = collapse_edges(places, triangles, faults, faults_of, severe)
        triangles, faults = flip_edges(triangles, faults, len(places), faults_of)
        if faults.sum() in (0, before):
            return triangles, faults


def flip_edges(triangles: Indices, faults: Faults, number: int, faults_of: FaultsOf) -> tuple[Indices, Faults]:
    """Triangles of `number` vertices after flips that leave less faults, and those.

    >>> thin = np.array([[0, 1, 2], [0, 2, 3]]).T  # a flat square whose first triangle is to go
    >>> flip_edges(thin, np.array([1, 0]), 4, lambda made: np.zeros(made.shape[1], int))[0].T.tolist()
    [[2, 3, 1], [3, 0, 1]]
    """
    triangles, faults = triangles.copy(), faults.copy()
    for _ in range(_ROUNDS):
        if not faults.any():
            break
        own, other, made = _candidates(triangles, np.flatnonzero(faults), number)
        left = faults_of(made.reshape(3, -1)).reshape(2, -1)
        gain = faults[own] + faults[other] - left.sum(0)
        order = np.argsort(-gain, kind="stable")
        chosen = _chosen(own, other, made, order[gain[order] > 0])
        if not len(chosen):
            break
        for side, numbers in enumerate((own[chosen], other[chosen])):
            triangles[:, numbers], faults[numbers] = made[:, side, chosen], left[side, chosen]
    return triangles, faults


def _candidates(triangles: Indices, bad: Indices, number: int) -> tuple[Indices, Indices, Indices]:
    """Flips of the edges of bad triangles: the numbers of both triangles, and what they become."""
    a, b, c = (np.concatenate([triangles[(k + turn) % 3, bad] for turn in range(3)]) for k in range(3))
    own, wanted = np.tile(bad, 3), b.astype(np.int64) * number + a
    order = np.argsort(wanted)
    ranked = wanted[order]
    neighbour, tip = np.full(len(wanted), -1), np.zeros(len(wanted), triangles.dtype)
    for at, corner, place in _edges_among(triangles, ranked, number):
        neighbour[order[place]] = at
        tip[order[place]] = triangles[(corner + 2) % 3, at]
    known = np.flatnonzero((neighbour >= 0) & (tip != c))
    own, neighbour, a, b, c, tip = (row[known] for row in (own, neighbour, a, b, c, tip))
    made = np.stack([np.stack([a, tip, c]), np.stack([tip, b, c])], axis=1)
    is_new = ~_are_edges(triangles, tip, c, number)
    return own[is_new], neighbour[is_new], made[:, :, is_new]


def _are_edges(triangles: Indices, first: Indices, second: Indices, number: int) -> NDArray[np.bool_]:
    """Which pairs of vertices are joined already."""
    both = np.stack([first.astype(np.int64) * number + second, second.astype(np.int64) * number + first])
    ranked = np.unique(both)
    seen = np.zeros(len(ranked), bool)
    for _, _, place in _edges_among(triangles, ranked, number):
        seen[place] = True
    forward, backward = seen[np.searchsorted(ranked, both)]
    return forward | backward


def _edges_among(triangles: Indices, ranked: Indices, number: int) -> Iterator[tuple[Indices, int, Indices]]:
    """Edges that are among the ranked ones: their triangles, the corner where they start, and which they are.

    Some triangles at a time: numbers of all edges take more memory than the mesh.
    """
    if not len(ranked):
        return
    for start in range(0, triangles.shape[1], _AT_ONCE):
        some = triangles[:, start : start + _AT_ONCE]
        for corner in range(3):
            edges = some[corner].astype(np.int64) * number + some[(corner + 1) % 3]
            place = np.minimum(np.searchsorted(ranked, edges), len(ranked) - 1)
            hits = np.flatnonzero(ranked[place] == edges)
            yield start + hits, corner, place[hits]


def _chosen(own: Indices, other: Indices, made: Indices, flips: Indices) -> Indices:
    """Those of the flips that have no triangle and no new edge in common with one before."""
    taken: set[int] = set()
    edges: set[tuple[int, int]] = set()
    chosen = []
    for flip in flips.tolist():
        first, second = int(own[flip]), int(other[flip])
        ends = sorted((int(made[1, 0, flip]), int(made[2, 0, flip])))
        edge = (ends[0], ends[1])
        if first not in taken and second not in taken and edge not in edges:
            taken |= {first, second}
            edges.add(edge)
            chosen.append(flip)
    return np.array(chosen, np.int64)


# --- edges that shrink -----------------------------------------------------------------------------------------------


def collapse_edges(
    places: Points, triangles: Indices, faults: Faults, faults_of: FaultsOf, severe: int
) -> tuple[Indices, Faults]:
    """Triangles after edges of those with severe faults were shrunk to one of their ends, and faults that are left.

    Only short edges, and where no fault that is left is severe: this takes something of the mesh away.
    """
    triangles, faults = triangles.copy(), faults.copy()
    while faults.any():
        bad = np.flatnonzero(faults >= severe)
        if not len(bad):
            break
        touched = np.zeros(int(triangles.max()) + 1, bool)
        touched[triangles[:, bad]] = True
        around = _around(triangles, np.flatnonzero(touched[triangles].any(0)), touched)
        tries = list(_tries(places, triangles[:, bad].T.tolist(), around))
        if not tries:
            break
        ends = np.cumsum([made.shape[1] for _, _, made in tries])
        left = np.split(faults_of(np.concatenate([made for _, _, made in tries], axis=1)), ends[:-1])
        gains = [faults[list(around[tries[at][0]])].sum() - left[at].sum() for at in range(len(tries))]
        removed = np.zeros(triangles.shape[1], bool)
        busy: set[int] = set()
        for at in np.argsort(-np.array(gains), kind="stable"):
            gone, kept, made = tries[at]
            near = {corner for vertex in (gone, kept) for corners in around[vertex].values() for corner in corners}
            if left[at].max() >= severe or gains[at] <= 0 or not busy.isdisjoint(near):
                continue
            busy |= near
            stay = [column for column, corners in around[gone].items() if kept not in corners]
            triangles[:, stay], faults[stay] = made, left[at]
            removed[[column for column, corners in around[gone].items() if kept in corners]] = True
        if not busy:
            break
        triangles, faults = triangles[:, ~removed], faults[~removed]
    return triangles, faults


_Around = dict[int, dict[int, tuple[int, ...]]]  # of vertices: the numbers of their triangles, and those triangles


def _around(triangles: Indices, near: Indices, touched: NDArray[np.bool_]) -> _Around:
    found: _Around = defaultdict(dict)
    for column, corners in zip(near.tolist(), triangles[:, near].T.tolist(), strict=True):
        for corner in corners:
            if touched[corner]:
                found[corner][column] = tuple(corners)
    return found


def _tries(places: Points, bad: list[list[int]], around: _Around) -> Iterator[tuple[int, int, Indices]]:
    """Edges of bad triangles: the end that goes, the end that stays, and what triangles become of those around it.

    An edge whose ends have more neighbours in common than the two beside it would leave sheets joined.
    """
    seen: set[tuple[int, int]] = set()
    for corners in bad:
        for removed, kept in ((corners[i], corners[j]) for i in range(3) for j in range(3) if i != j):
            first, second = ({corner for own in around[end].values() for corner in own} for end in (removed, kept))
            too_long = np.abs(places[removed] - places[kept]).max() > _SHORT
            if too_long or (removed, kept) in seen or len((first & second) - {removed, kept}) != 2:
                continue
            seen.add((removed, kept))
            made = [
                [kept if corner == removed else corner for corner in own]
                for own in around[removed].values()
                if kept not in own
            ]
            if made:
                yield removed, kept, np.array(made, np.int32).T
