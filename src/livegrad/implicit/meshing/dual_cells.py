"""Manifold dual contouring, topology: closed quad meshes from the signs of a lattice, one face around each crossed
edge.

In: the crossed cells, from `meshing`. Out: one vertex for each sheet of the surface in a cell, without a position yet.
Sheets are distinguished by the loops that they form on the sides of the cell, so every edge joins two faces and the
faces around a vertex form one fan.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from livegrad.implicit.nodes.errors import AssemblyError

Indices = NDArray[np.integer[Any]]

# A corner of a cell is 4 x + 2 y + z. Its edges along axis d are numbered 4 d + 2 a + b, where a and b (0 or 1) are the
# coordinates along the two axes that follow d.
_BITS = (4, 2, 1)
_AROUND = ((0, 0), (1, 0), (1, 1), (0, 1))  # the cells around an edge, counterclockwise as seen from its end


@dataclass(frozen=True)
class CrossedCells:
    """Cells whose corners differ in sign, by index; bit k of `code` is set if corner k is inside."""

    cells: Indices
    code: NDArray[np.uint8]


@dataclass(frozen=True)
class Faces:
    """Quadrilateral faces as four rows of corners, counterclockwise as seen from outside.

    Those around lattice edges along x come first, then y and z, `counts` of each; face k surrounds the edge that starts
    at point `start[k]`. `cells` has the cell of each vertex, and `edges` the 1-based index of the face around each of
    the cell's twelve edges, or 0.
    """

    corners: NDArray[np.int32]
    start: Indices
    counts: tuple[int, ...]
    cells: Indices
    edges: NDArray[np.int32]


def edge_ends(edge: int) -> tuple[int, int]:
    """The corners at which an edge of a cell starts and ends."""
    axis, a, b = edge // 4, edge // 2 % 2, edge % 2
    low = a * _BITS[(axis + 1) % 3] + b * _BITS[(axis + 2) % 3]
    return low, low + _BITS[axis]


def _side_edges(side: int) -> list[int]:
    """The edges of a cell's side (2 axis + 0 or 1), in cyclic order."""
    axis, far = side // 2, side % 2
    first, second = (axis + 1) % 3, (axis + 2) % 3
    round_trip = [(0, 0), (1, 0), (1, 1), (0, 1), (0, 0)]
    corners = [far * _BITS[axis] + a * _BITS[first] + b * _BITS[second] for a, b in round_trip]
    numbers = {frozenset(edge_ends(edge)): edge for edge in range(12)}
    return [numbers[frozenset(pair)] for pair in pairwise(corners)]


_SIDES = [_side_edges(side) for side in range(6)]


@cache
def loops_of(code: int, flipped: int = 0) -> tuple[tuple[int, ...], int]:
    """The loop of each edge of a cell, or -1; and a bit mask of the sides that one loop crosses twice.

    On a side with alternating corners (the ambiguous case), the inside corners are separated, or joined if the side is
    in `turned`.
    """
    crossed = [(code >> low & 1) != (code >> high & 1) for low, high in map(edge_ends, range(12))]
    joined = list(range(12))
    twice: list[tuple[int, int, int]] = []
    for side, edges in enumerate(_SIDES):
        used = [edge for edge in edges if crossed[edge]]
        if len(used) == 4:
            shared = set(edge_ends(used[0])) & set(edge_ends(used[1]))
            corner_inside = bool(code >> shared.pop() & 1)
            # Edges 0 and 1 of the side meet in one corner, 1 and 2 in the next.
            if corner_inside == bool(flipped >> side & 1):
                used = [*used[1:], used[0]]
            twice.append((side, used[0], used[2]))
        for first, second in zip(used[::2], used[1::2], strict=True):
            old, new = joined[second], joined[first]
            joined = [new if loop == old else loop for loop in joined]
    names = {loop: name for name, loop in enumerate(dict.fromkeys(joined[e] for e in range(12) if crossed[e]))}
    loops = tuple(names[joined[edge]] if crossed[edge] else -1 for edge in range(12))
    bits = sum(1 << side for side, first, second in twice if loops[first] == loops[second])
    return loops, bits


_LOOPS = np.array([loops_of(code)[0] for code in range(256)], np.int8)
_COUNTS = _LOOPS.max(1) + 1
_TWICE = np.array([loops_of(code)[1] for code in range(256)], np.uint8)


class _Rows:
    """Cells in the order of their keys, and the rows of their neighbours."""

    def __init__(self, crossed: CrossedCells) -> None:
        cells = crossed.cells
        extent = cells.max(0, initial=0).astype(np.int64) + 2
        self._strides = (int(extent[1] * extent[2]), int(extent[2]), 1)
        keys = (cells[:, 0] * extent[1] + cells[:, 1]) * extent[2] + cells[:, 2]  # in 64 bits, as the extent
        # Neighbours of consecutive rows are consecutive too, which makes the search fast.
        order = np.argsort(keys)
        self._keys = keys[order]
        self.cells, self.code = cells[order], crossed.code[order]

    def before(self, rows: NDArray[np.int64], step: list[int]) -> NDArray[np.int64]:
        """The row of the cell one step away from each of these rows, or -1 if that cell is not crossed."""
        wanted = self._keys[rows] - sum(a * b for a, b in zip(step, self._strides, strict=True))
        row = np.minimum(np.searchsorted(self._keys, wanted), len(self._keys) - 1)
        return np.where(self._keys[row] == wanted, row, -1)


def faces_of(crossed: CrossedCells) -> Faces:
    """The faces around all lattice edges that change sign."""
    rows = _Rows(crossed)
    loops, counts = _separate_loops(rows)
    first = np.cumsum(counts, dtype=np.int32) - counts.astype(np.int32)
    edges = np.zeros((12, int(counts.sum())), np.int32)
    corners, starts = [], []
    at = 1
    for axis in range(3):
        ends = rows.code >> np.uint8(_BITS[axis]) & 1
        owner = np.flatnonzero(ends != rows.code & 1)
        face_indices = np.arange(at, at + len(owner), dtype=np.int32)
        at += len(owner)
        face = np.empty((4, len(owner)), np.int32)
        for corner, (a, b) in enumerate(_AROUND):
            step = [0, 0, 0]
            step[(axis + 1) % 3], step[(axis + 2) % 3] = a, b
            row = rows.before(owner, step) if a or b else owner
            if (row < 0).any():
                raise AssemblyError("the interval bounds of the part do not contain its values: a neighbour is missing")
            edge = 4 * axis + 2 * a + b
            face[corner] = first[row] + loops[row, edge]
            edges[edge, face[corner]] = face_indices
        inwards = np.flatnonzero(ends[owner])
        face[:, inwards] = face[::-1, inwards]
        corners.append(face)
        starts.append(rows.cells[owner])
    cells = rows.cells if counts.max() == 1 else np.repeat(rows.cells, counts, axis=0)
    return Faces(np.concatenate(corners, 1), np.concatenate(starts), tuple(map(len, starts)), cells, edges)


def _separate_loops(rows: _Rows) -> tuple[NDArray[np.int8], NDArray[np.int64]]:
    """The loop of each edge of each cell, and the number of loops per cell. No two sheets meet in two edges.

    If one loop crosses a side twice in both adjacent cells, two edges of the mesh would join the same two vertices.
    Then the side's corners are joined the other way, which splits the loop in both cells.
    """
    loops, counts = _LOOPS[rows.code], _COUNTS[rows.code].astype(np.int64)
    twice = _TWICE[rows.code]
    if not twice.any():
        return loops, counts
    flipped = np.zeros(len(twice), np.int64)
    pairs = []
    for axis in range(3):
        low = np.flatnonzero(twice >> np.uint8(2 * axis + 1) & 1)
        step = [0, 0, 0]
        step[axis] = -1
        high = rows.before(low, step)
        pairs += [np.stack([low, high, np.full(len(low), axis)], -1)[high >= 0]]
    sides = np.concatenate(pairs)
    while True:
        low, high, axis = sides.T
        sides = sides[(twice[low] >> (2 * axis + 1) & 1).astype(bool) & (twice[high] >> (2 * axis) & 1).astype(bool)]
        if not len(sides):
            return loops, counts
        # One side of a cell at a time: turning a side splits a loop, and may have resolved another side too.
        first = np.full(len(twice), len(sides))
        low, high, axis = sides.T
        for row in (low, high):
            np.minimum.at(first, row, np.arange(len(sides)))
        chosen = np.flatnonzero((first[low] == np.arange(len(sides))) & (first[high] == np.arange(len(sides))))
        flipped[low[chosen]] ^= 1 << (2 * axis[chosen] + 1)
        flipped[high[chosen]] ^= 1 << (2 * axis[chosen])
        for row in np.concatenate([low[chosen], high[chosen]]).tolist():
            new_loops, bits = loops_of(int(rows.code[row]), int(flipped[row]))
            loops[row], counts[row], twice[row] = new_loops, max(new_loops) + 1, bits
