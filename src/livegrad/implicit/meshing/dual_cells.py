"""The topology of manifold dual contouring: closed quad meshes from the signs of a lattice, with one face around each
crossed edge.

In: the crossed cells, from `meshing`. Out: faces, and a vertex without a position for each sheet of the surface in a
cell. Sheets are distinguished by the loops that they form on the sides of the cell, so every edge joins two faces, and
the faces around a vertex form one fan.
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
_CELLS_AROUND_EDGE = ((0, 0), (1, 0), (1, 1), (0, 1))  # the cells around an edge, counterclockwise as seen from its end


@dataclass(frozen=True)
class CrossedCells:
    """The indices of cells whose corners differ in sign. Bit k of `code` is set if corner k is inside."""

    cells: Indices
    code: NDArray[np.uint8]


@dataclass(frozen=True)
class Faces:
    """Quadrilateral faces: four rows of vertices, counterclockwise as seen from outside.

    Faces around lattice edges along x come first, then y and z; `counts` has the number of each. Face k surrounds the
    edge that starts at lattice point `start[k]`. `cells` has the cell of each vertex, `edges` the 1-based index of the
    face around each of the twelve edges of that cell, or 0.
    """

    corners: NDArray[np.int32]
    start: Indices
    counts: tuple[int, ...]
    cells: Indices
    edges: NDArray[np.int32]


def edge_ends(edge: int) -> tuple[int, int]:
    """The corners where an edge of a cell starts and ends."""
    axis, a, b = edge // 4, edge // 2 % 2, edge % 2
    low = a * _BITS[(axis + 1) % 3] + b * _BITS[(axis + 2) % 3]
    return low, low + _BITS[axis]


def _side_edges(side: int) -> list[int]:
    """The edges of a side of a cell (2 axis + 0 or 1), in cyclic order."""
    axis, end = side // 2, side % 2
    first, second = (axis + 1) % 3, (axis + 2) % 3
    cycle = [(0, 0), (1, 0), (1, 1), (0, 1), (0, 0)]
    corners = [end * _BITS[axis] + a * _BITS[first] + b * _BITS[second] for a, b in cycle]
    edge_by_ends = {frozenset(edge_ends(edge)): edge for edge in range(12)}
    return [edge_by_ends[frozenset(pair)] for pair in pairwise(corners)]


_SIDES = [_side_edges(side) for side in range(6)]


@cache
def find_loops(code: int, flipped: int = 0) -> tuple[tuple[int, ...], int]:
    """The loop of each edge of a cell, or -1, and a bit mask of the sides that one loop crosses twice.

    On a side with alternating corners (the ambiguous case), the inside corners are separated, or joined if the bit of
    the side is set in `flipped`.
    """
    crossed = [(code >> low & 1) != (code >> high & 1) for low, high in map(edge_ends, range(12))]
    loop_of_edge = list(range(12))
    crossed_twice: list[tuple[int, int, int]] = []
    for side, edges in enumerate(_SIDES):
        side_edges = [edge for edge in edges if crossed[edge]]
        if len(side_edges) == 4:
            shared = set(edge_ends(side_edges[0])) & set(edge_ends(side_edges[1]))
            corner_inside = bool(code >> shared.pop() & 1)
            # Edges 0 and 1 of the side meet in one corner, 1 and 2 in the next.
            if corner_inside == bool(flipped >> side & 1):
                side_edges = [*side_edges[1:], side_edges[0]]
            crossed_twice.append((side, side_edges[0], side_edges[2]))
        for first, second in zip(side_edges[::2], side_edges[1::2], strict=True):
            old, new = loop_of_edge[second], loop_of_edge[first]
            loop_of_edge = [new if loop == old else loop for loop in loop_of_edge]
    loop_ids = {
        loop: loop_id for loop_id, loop in enumerate(dict.fromkeys(loop_of_edge[e] for e in range(12) if crossed[e]))
    }
    loops = tuple(loop_ids[loop_of_edge[edge]] if crossed[edge] else -1 for edge in range(12))
    bits = sum(1 << side for side, first, second in crossed_twice if loops[first] == loops[second])
    return loops, bits


_LOOPS = np.array([find_loops(code)[0] for code in range(256)], np.int8)
_COUNTS = _LOOPS.max(1) + 1
_CROSSED_TWICE = np.array([find_loops(code)[1] for code in range(256)], np.uint8)


class _CellTable:
    """Cells sorted by key, with a search for neighbours."""

    def __init__(self, crossed: CrossedCells) -> None:
        cells = crossed.cells
        extent = cells.max(0, initial=0).astype(np.int64) + 2
        self._strides = (int(extent[1] * extent[2]), int(extent[2]), 1)
        keys = (cells[:, 0] * extent[1] + cells[:, 1]) * extent[2] + cells[:, 2]  # in 64 bits, like the extent
        # Neighbours of consecutive rows are consecutive too, which makes the search fast.
        order = np.argsort(keys)
        self._keys = keys[order]
        self.cells, self.code = cells[order], crossed.code[order]

    def find_neighbours(self, rows: NDArray[np.int64], step: list[int]) -> NDArray[np.int64]:
        """The row of the cell at `-step` from the cell of each row, or -1 if that cell is not crossed."""
        keys = self._keys[rows] - sum(a * b for a, b in zip(step, self._strides, strict=True))
        row = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        return np.where(self._keys[row] == keys, row, -1)


def build_faces(crossed: CrossedCells) -> Faces:
    """Builds the faces around all lattice edges that change sign."""
    rows = _CellTable(crossed)
    loops, counts = _separate_loops(rows)
    first = np.cumsum(counts, dtype=np.int32) - counts.astype(np.int32)
    edges = np.zeros((12, int(counts.sum())), np.int32)
    corners, starts = [], []
    next_face = 1
    for axis in range(3):
        ends = rows.code >> np.uint8(_BITS[axis]) & 1
        owners = np.flatnonzero(ends != rows.code & 1)
        face_indices = np.arange(next_face, next_face + len(owners), dtype=np.int32)
        next_face += len(owners)
        face = np.empty((4, len(owners)), np.int32)
        for corner, (a, b) in enumerate(_CELLS_AROUND_EDGE):
            step = [0, 0, 0]
            step[(axis + 1) % 3], step[(axis + 2) % 3] = a, b
            row = rows.find_neighbours(owners, step) if a or b else owners
            if (row < 0).any():
                raise AssemblyError(
                    "the interval bounds of the part do not contain its values: a cell beside the surface is missing"
                )
            edge = 4 * axis + 2 * a + b
            face[corner] = first[row] + loops[row, edge]
            edges[edge, face[corner]] = face_indices
        reversed_faces = np.flatnonzero(ends[owners])
        face[:, reversed_faces] = face[::-1, reversed_faces]
        corners.append(face)
        starts.append(rows.cells[owners])
    cells = rows.cells if counts.max() == 1 else np.repeat(rows.cells, counts, axis=0)
    return Faces(np.concatenate(corners, 1), np.concatenate(starts), tuple(map(len, starts)), cells, edges)


def _separate_loops(rows: _CellTable) -> tuple[NDArray[np.int8], NDArray[np.int64]]:
    """The loop of each edge of each cell, and the number of loops per cell.

    If one loop crosses a side twice in both adjacent cells, two edges of the mesh would join the same two vertices.
    Then the corners of the side are joined the other way, which splits the loop in both cells.
    """
    loops, counts = _LOOPS[rows.code], _COUNTS[rows.code].astype(np.int64)
    twice = _CROSSED_TWICE[rows.code]
    if not twice.any():
        return loops, counts
    flipped = np.zeros(len(twice), np.int64)
    pairs = []
    for axis in range(3):
        low = np.flatnonzero(twice >> np.uint8(2 * axis + 1) & 1)
        step = [0, 0, 0]
        step[axis] = -1
        high = rows.find_neighbours(low, step)
        pairs += [np.stack([low, high, np.full(len(low), axis)], -1)[high >= 0]]
    sides = np.concatenate(pairs)
    while True:
        low, high, axis = sides.T
        sides = sides[(twice[low] >> (2 * axis + 1) & 1).astype(bool) & (twice[high] >> (2 * axis) & 1).astype(bool)]
        if not len(sides):
            return loops, counts
        # Flip one side of a cell at a time: it splits a loop, which may also resolve another side.
        first = np.full(len(twice), len(sides))
        low, high, axis = sides.T
        for row in (low, high):
            np.minimum.at(first, row, np.arange(len(sides)))
        selected = np.flatnonzero((first[low] == np.arange(len(sides))) & (first[high] == np.arange(len(sides))))
        flipped[low[selected]] ^= 1 << (2 * axis[selected] + 1)
        flipped[high[selected]] ^= 1 << (2 * axis[selected])
        for row in np.concatenate([low[selected], high[selected]]).tolist():
            new_loops, bits = find_loops(int(rows.code[row]), int(flipped[row]))
            loops[row], counts[row], twice[row] = new_loops, max(new_loops) + 1, bits
