"""Positions vertices where the surrounding tangent planes of the surface meet.

In: faces and their crossings of lattice edges, from `meshing`. Vertices come to lie on the surface, and on sharp edges
and corners of the part; each stays in its cell. Lengths are in cells.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from livegrad import ops
from livegrad.implicit.bodies.batches import in_batches
from livegrad.implicit.bodies.part import Part
from livegrad.implicit.bodies.pruning import Lattice
from livegrad.implicit.meshing.dual_cells import Faces, Indices
from livegrad.implicit.meshing.surface_points import Points, crossings, feet, is_at_surface, meeting_points
from livegrad.ir.dimension import Dimension
from livegrad.ir.function import make_function
from livegrad.ir.leaves import constant, input_node
from livegrad.ir.node import Key, Node
from livegrad.ir.types import Tensor, f64, i32
from livegrad.ops.control import map_over
from livegrad.runtime.cpu import compile_function
from livegrad.state import memo

Quadrics = list[NDArray[np.float64]]  # fourteen rows: what `meeting_points` takes
PlanesOf = Callable[[slice | Indices], Quadrics]
_AT_ONCE = 1 << 16
_WEAKEST = 0.04  # planes that differ by less than some 25 degrees belong to a smooth surface
_LOOKS = (0.3, 0.1)  # how close to an edge the surface beside it is looked at, as shares of the way
_LONGEST = 0.25
_SLACK = 1e-3
_TURNED = np.cos(np.radians(25.0))
_ROUNDS = 4
_CLOSE = 0.05  # cells within which the surface must be met to move out of a cell
_FEW = 1 << 14  # pairs of neighbours that are looked at in any case
_FAR = 0.9  # how many cells a vertex may move for that


@dataclass(frozen=True)
class Crossings:
    """Where the surface crosses the lattice edge of each face, and its normal there.

    `tables` has four rows: how far on the edge the crossing lies, and the normal. Face k is in column k + 1; column 0
    stands for edges that the surface does not cross.
    """

    faces: Faces
    tables: NDArray[np.float64]

    @property
    def normal(self) -> Points:
        """The normal at each crossing."""
        return self.tables[1:, 1:].T

    def place(self, rows: Indices) -> Points:
        """The crossings of some faces, in cells from the lattice's origin."""
        place = self.faces.start[rows].astype(np.float64)
        axis = np.searchsorted(np.cumsum(self.faces.numbers), rows, side="right")
        place[np.arange(len(rows)), axis] += self.tables[0, 1:][rows]
        return place


@dataclass(frozen=True)
class Space:
    """A part and its lattice: a point is its place in cells from the lattice's origin."""

    part: Part
    lattice: Lattice

    @property
    def cell(self) -> float:
        return float(self.lattice.cell[0])

    def outside(self, points: Points) -> Points:
        """In the part's coordinates."""
        return self.lattice.origin + points * self.lattice.cell

    def feet(self, points: Points) -> tuple[Points, Points, NDArray[np.bool_]]:
        """The points of the surface near by, its normals there, and whether it was reached."""
        places, normals, reached = feet(self.part, self.outside(points), _LONGEST * self.cell)
        return (places - self.lattice.origin) / self.lattice.cell, normals, reached

    def is_inside(self, points: Points) -> NDArray[np.bool_]:
        return self.part(self.outside(points)) < 0

    def is_at_surface(self, points: Points, outward: Points, reach: float) -> NDArray[np.bool_]:
        return is_at_surface(self.part, self.outside(points), outward, reach * self.cell)


def find_crossings(space: Space, faces: Faces) -> Crossings:
    """The crossing of each face's lattice edge, kept off the lattice points."""
    number = len(faces.start)
    tables = np.zeros((4, number + 1))
    for some in pieces(number):
        place = faces.start[some].astype(np.float64)
        axis = np.searchsorted(np.cumsum(faces.numbers), np.arange(some.start, some.stop), side="right")
        along = np.arange(len(place)), axis
        low = space.outside(place)
        high = low.copy()
        high[along] += space.cell
        share, normal = crossings(space.part, low, high)
        tables[0, 1:][some] = np.clip(np.nan_to_num(share, nan=0.5), 1e-3, 1 - 1e-3)
        for table, row in zip(tables[1:, 1:], normal, strict=True):
            table[some] = np.nan_to_num(row, posinf=0.0, neginf=0.0)
    return Crossings(faces, tables)


def pieces(number: int) -> list[slice]:
    """So many rows, some at a time: what is worked out about them takes more memory than they do."""
    return [slice(at, min(at + _AT_ONCE, number)) for at in range(0, number, _AT_ONCE)]


def planes_around(faces: Faces, found: Crossings) -> PlanesOf:
    """The planes around vertices, seen from the lowest corner of their cells: gathered for those that are asked for."""
    return lambda some: list(in_batches(_gathered_planes(), list(_columns(faces.edges, some)), list(found.tables)))


def _columns(table: NDArray[Any], some: slice | Indices) -> NDArray[Any]:
    return table[:, some] if isinstance(some, slice) else np.take(table, some, axis=1)


@memo(1)
def _gathered_planes() -> Any:
    """Native code: the places in the tables of a cell's twelve edges, or 0, to the sums over their planes."""
    edges = [input_node(Key(f"edge{edge}"), i32) for edge in range(12)]
    tables = [input_node(Key(name), Tensor(f64, (Dimension.symbol("edges"),))) for name in ("share", "x", "y", "z")]
    nothing, one = constant(0.0, f64), constant(1.0, f64)
    sums: list[Node] = [nothing] * 14
    for edge, number in enumerate(edges):
        share, x, y, z = (ops.lookup(table, number) for table in tables)
        used = number > constant(0, i32)
        axis, first, second = edge // 4, edge // 2 % 2, edge % 2
        place = [nothing] * 3
        place[axis], place[(axis + 1) % 3], place[(axis + 2) % 3] = share, (nothing, one)[first], (nothing, one)[second]
        height = x * place[0] + y * place[1] + z * place[2]
        rows = [x * x, x * y, x * z, y * y, y * z, z * z, x * height, y * height, z * height, height * height]
        rows += [ops.select(used, value, nothing) for value in (*place, one)]
        sums = [total + row for total, row in zip(sums, rows, strict=True)]
    made = make_function("planes", [*edges, *tables], sums)
    return compile_function(map_over(made, (*[True] * 12, *[False] * 4)))


@dataclass
class Placed:
    """Where vertices are, the normal of the surface there, and whether they are on an edge of the part instead.

    `moved` has the places from which some were moved onto an edge, out of their cells; `stays` are not moved again.
    `seen` are the pairs of neighbours, as numbers, between which edges were looked for.
    """

    place: Points
    normal: Points
    on_edge: NDArray[np.bool_]
    moved: dict[int, Points] = field(default_factory=dict)
    stays: set[int] = field(default_factory=set)
    seen: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))

    def move_back(self, vertices: Indices) -> bool:
        """Takes those of the vertices back that were moved out of their cells, for good; whether there were any."""
        found = [vertex for vertex in vertices.tolist() if vertex in self.moved]
        for vertex in found:
            self.place[vertex] = self.moved.pop(vertex)
            self.on_edge[vertex] = False
        self.stays.update(found)
        return bool(found)


def place_vertices(
    space: Space, faces: Faces, found: Crossings, vertices: Indices, planes: Quadrics, sharp: bool
) -> Placed:
    """The places of some vertices, with the planes around them: on the surface, and on edges of the part near by."""
    cells = faces.cells[vertices].astype(np.float64)
    mean = np.stack([row / np.maximum(planes[13], 1.0) for row in planes[10:13]], -1) + cells
    placed = Placed(mean.copy(), np.zeros_like(mean), np.zeros(len(mean), bool))
    if sharp:
        *meeting, _, strength = meeting_points(planes, _WEAKEST)
        placed.place = np.stack(meeting, -1) + cells
        near = np.flatnonzero(strength >= _WEAKEST)
        if len(near):
            around = faces.edges[:, vertices[near]]
            moved = _onto_edges(space, around, found, cells[near], placed.place[near])
            placed.place[near], placed.on_edge[near] = moved
    rest = np.flatnonzero(~placed.on_edge)
    start = np.where(_within(placed.place[rest], cells[rest])[:, None], placed.place[rest], mean[rest])
    foot, placed.normal[rest], reached = space.feet(start)
    reached &= _within(foot, cells[rest], _LONGEST)
    placed.place[rest] = np.where(reached[:, None], foot, start)
    return placed


def _onto_edges(
    space: Space, edges: NDArray[np.int32], found: Crossings, cells: Points, place: Points
) -> tuple[Points, NDArray[np.bool_]]:
    """Vertices that planes in different directions surround: where those meet, and whether that is an edge.

    On a surface that is only bent, the planes close by hardly differ, and nothing is accepted.
    """
    _, vertex = np.nonzero(edges)
    crossing = edges[edges > 0] - 1
    place = np.clip(place, cells, cells + 1.0)
    moved, strength, outward = _look_closer(
        space, vertex, place, found.place(crossing), found.normal[crossing], cells, _SLACK
    )
    accepted = (strength >= _WEAKEST) & _within(moved, cells)
    return moved, accepted & space.is_at_surface(moved, outward, _LONGEST)


def meet_missed_edges(space: Space, placed: Placed, neighbours: Iterable[Indices], leaves: int) -> None:
    """Moves one of two neighbours onto the edge of the part that passes between them, the nearer one.

    An edge may cross a cell of which it leaves all lattice edges alone, and nothing in there knows of it.
    """
    pairs = _new_pairs(placed, neighbours, leaves)
    for _ in range(_ROUNDS):
        pairs = pairs[:, ~placed.on_edge[pairs].any(0)]
        number = pairs.shape[1]
        if not number:
            return
        both, vertex = np.tile(np.arange(number), 2), pairs.reshape(-1)
        ends, normals = placed.place[vertex], placed.normal[vertex]
        base = np.floor(ends[:number])
        *meeting, _, _ = meeting_points(_planes(both, number, ends - base[both], normals), _WEAKEST)
        start = np.nan_to_num(np.stack(meeting, -1)) + base
        place, strength, outward = _look_closer(space, both, start, ends, normals, base, np.inf)
        good = (strength >= _WEAKEST) & space.is_at_surface(place, outward, _CLOSE)
        away = np.linalg.norm(ends - place[both], axis=1)
        away[(vertex >= leaves) | ~good[both] | (away > _FAR) | np.isin(vertex, list(placed.stays))] = np.inf
        # Each edge takes its nearer end, and each end the edge that is nearest.
        chosen = np.flatnonzero((away <= np.roll(away, number)) & (away < np.inf))
        chosen = chosen[np.argsort(-away[chosen])]
        for at in chosen:
            placed.moved.setdefault(int(vertex[at]), ends[at])
        placed.place[vertex[chosen]] = place[both[chosen]]
        placed.on_edge[vertex[chosen]] = True
        # Between the others is no edge that one of them could go to, however often this is asked.
        pairs = pairs[:, np.isfinite(away).reshape(2, -1).any(0)]


def _new_pairs(placed: Placed, neighbours: Iterable[Indices], leaves: int) -> Indices:
    """Pairs between which the surface turns, and that were not looked at before; `neighbours` come some at a time."""
    number, most = len(placed.place), max(leaves, _FEW)
    found, left = [np.empty(0, np.int64)], most
    for first, second in neighbours:
        apart = ~placed.on_edge[first] & ~placed.on_edge[second] & (np.minimum(first, second) < leaves)
        first, second = first[apart], second[apart]
        turned = np.einsum("ij,ij->i", placed.normal[first], placed.normal[second]) < _TURNED
        found.append(first[turned].astype(np.int64) * number + second[turned])
        left -= len(found[-1])
        # Where the surface turns nearly everywhere, it is finer than cells, and there are no edges to be found.
        if left < 0:
            return np.empty((2, 0), np.int64)
    keys = np.setdiff1d(np.concatenate(found), placed.seen)
    placed.seen = np.union1d(placed.seen, keys)
    return np.stack(np.divmod(keys, number))


def _look_closer(
    space: Space,
    at: Indices,
    place: Points,
    ends: Points,
    normals: Points,
    base: Points,
    slack: float,
) -> tuple[Points, NDArray[np.float64], Points]:
    """Where the surface's planes meet, as seen from points between a place and several ends, nearer and nearer.

    `at` says to which place an end belongs, `normals` are those at the ends; places stay in the cells at `base`, give
    or take the slack. With what the planes say in the second direction, and the mean normal.
    """
    moved, strength, near = place, np.zeros(len(place)), normals
    for share in _LOOKS:
        points, there, reached = space.feet(place[at] + share * (ends - place[at]))
        points, near = np.where(reached[:, None], points, ends), np.where(reached[:, None], there, normals)
        *meeting, _, strength = meeting_points(_planes(at, len(place), points - base[at], near), _WEAKEST)
        moved = np.nan_to_num(np.stack(meeting, -1), nan=0.5) + base
        place = np.clip(moved, base - slack, base + (1.0 + slack))
    outward = np.stack([summed(at, axis, len(place)) for axis in near.T], -1)
    return moved, strength, outward / np.maximum(np.linalg.norm(outward, axis=1, keepdims=True), 1e-300)


def _within(place: Points, cells: Points, slack: float = _SLACK) -> NDArray[np.bool_]:
    return np.all((place > cells - slack) & (place < cells + (1.0 + slack)), axis=-1)  # type: ignore[return-value]


def _planes(at: Indices, number: int, points: Points, normals: Points) -> Quadrics:
    """Sums over the planes through points, for each of the numbers in `at`."""
    x, y, z = np.ascontiguousarray(normals.T)
    height = np.einsum("ij,ij->i", normals, points)
    rows = [x * x, x * y, x * z, y * y, y * z, z * z, x * height, y * height, z * height, height * height]
    rows += [*np.ascontiguousarray(points.T), np.ones(len(points))]
    return [summed(at, row, number) for row in rows]


def summed(at: Indices, row: NDArray[Any], number: int) -> NDArray[np.float64]:
    """The numbers of a row added up for each of the numbers in `at`."""
    return np.bincount(at, row, number).astype(np.float64, copy=False)
