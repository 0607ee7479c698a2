"""Positions vertices where the surrounding tangent planes of the surface meet.

In: faces and their crossings of lattice edges, from `meshing`. Vertices are placed on the surface, and on sharp edges
and corners of the part; each stays in its cell. Lengths are in cells.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from livegrad import ops
from livegrad.implicit.bodies.batches import run_in_batches
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

Quadrics = list[NDArray[np.float64]]  # fourteen rows, the input of `meeting_points`
PlanesOf = Callable[[slice | Indices], Quadrics]
_CHUNK = 1 << 16
_WEAKEST = 0.04  # planes that differ by less than about 25 degrees belong to a smooth surface
_LOOKS = (0.3, 0.1)  # distances to a sharp edge at which the surface beside it is sampled, as shares of the way
_LONGEST = 0.25
_SLACK = 1e-3
_TURNED = np.cos(np.radians(25.0))
_ROUNDS = 4
_CLOSE = 0.05  # cells within which the surface must be found to move a vertex out of its cell
_FEW = 1 << 14  # pairs of neighbours that are always checked
_FAR = 0.9  # cells that a vertex may move out of its cell


@dataclass(frozen=True)
class Crossings:
    """The crossings of the surface with the lattice edge of each face, and the normals there.

    `tables` has four rows: the share of the edge at the crossing, and the normal. Face k is in column k + 1; column 0
    is for edges that the surface does not cross.
    """

    faces: Faces
    tables: NDArray[np.float64]

    @property
    def normal(self) -> Points:
        """The normal at each crossing."""
        return self.tables[1:, 1:].T

    def position(self, rows: Indices) -> Points:
        """The crossings of some faces, in cells from the lattice's origin."""
        position = self.faces.start[rows].astype(np.float64)
        axis = np.searchsorted(np.cumsum(self.faces.counts), rows, side="right")
        position[np.arange(len(rows)), axis] += self.tables[0, 1:][rows]
        return position


@dataclass(frozen=True)
class Space:
    """A part and its lattice. Points are measured in cells from the lattice's origin."""

    part: Part
    lattice: Lattice

    @property
    def cell(self) -> float:
        return float(self.lattice.cell[0])

    def outside(self, points: Points) -> Points:
        """Converts points to the part's coordinates."""
        return self.lattice.origin + points * self.lattice.cell

    def feet(self, points: Points) -> tuple[Points, Points, NDArray[np.bool_]]:
        """Nearby points of the surface, its normals there, and whether the surface was reached."""
        positions, normals, reached = feet(self.part, self.outside(points), _LONGEST * self.cell)
        return (positions - self.lattice.origin) / self.lattice.cell, normals, reached

    def is_inside(self, points: Points) -> NDArray[np.bool_]:
        return self.part(self.outside(points)) < 0

    def is_at_surface(self, points: Points, outward: Points, reach: float) -> NDArray[np.bool_]:
        return is_at_surface(self.part, self.outside(points), outward, reach * self.cell)


def find_crossings(space: Space, faces: Faces) -> Crossings:
    """The crossing of each face's lattice edge, kept away from the lattice points."""
    face_count = len(faces.start)
    tables = np.zeros((4, face_count + 1))
    for some in pieces(face_count):
        position = faces.start[some].astype(np.float64)
        axis = np.searchsorted(np.cumsum(faces.counts), np.arange(some.start, some.stop), side="right")
        along = np.arange(len(position)), axis
        low = space.outside(position)
        high = low.copy()
        high[along] += space.cell
        share, normal = crossings(space.part, low, high)
        tables[0, 1:][some] = np.clip(np.nan_to_num(share, nan=0.5), 1e-3, 1 - 1e-3)
        for table, row in zip(tables[1:, 1:], normal, strict=True):
            table[some] = np.nan_to_num(row, posinf=0.0, neginf=0.0)
    return Crossings(faces, tables)


def pieces(count: int) -> list[slice]:
    """Splits `count` rows into chunks, because temporaries take more memory than the rows."""
    return [slice(at, min(at + _CHUNK, count)) for at in range(0, count, _CHUNK)]


def planes_around(faces: Faces, crossings: Crossings) -> PlanesOf:
    """The sums over planes around vertices, relative to the lowest corner of their cells, computed on demand."""
    return lambda some: list(
        run_in_batches(_gather_planes(), list(_columns(faces.edges, some)), list(crossings.tables))
    )


def _columns(table: NDArray[Any], some: slice | Indices) -> NDArray[Any]:
    return table[:, some] if isinstance(some, slice) else np.take(table, some, axis=1)


@memo(1)
def _gather_planes() -> Any:
    """Native code: (table columns of a cell's twelve edges, or 0) → the sums over their planes."""
    edges = [input_node(Key(f"edge{edge}"), i32) for edge in range(12)]
    tables = [input_node(Key(name), Tensor(f64, (Dimension.symbol("edges"),))) for name in ("share", "x", "y", "z")]
    nothing, one = constant(0.0, f64), constant(1.0, f64)
    sums: list[Node] = [nothing] * 14
    for edge, column in enumerate(edges):
        share, x, y, z = (ops.lookup(table, column) for table in tables)
        used = column > constant(0, i32)
        axis, first, second = edge // 4, edge // 2 % 2, edge % 2
        position = [nothing] * 3
        position[axis], position[(axis + 1) % 3], position[(axis + 2) % 3] = (
            share,
            (nothing, one)[first],
            (nothing, one)[second],
        )
        height = x * position[0] + y * position[1] + z * position[2]
        rows = [x * x, x * y, x * z, y * y, y * z, z * z, x * height, y * height, z * height, height * height]
        rows += [ops.select(used, value, nothing) for value in (*position, one)]
        sums = [total + row for total, row in zip(sums, rows, strict=True)]
    function = make_function("planes", [*edges, *tables], sums)
    return compile_function(map_over(function, (*[True] * 12, *[False] * 4)))


@dataclass
class VertexPositions:
    """The positions of vertices, the normals of the surface there, and whether they are on a sharp edge instead.

    `moved` has the original positions of vertices that were moved to a sharp edge outside their cells; those in `stays`
    are not moved again. `seen` has the keys of pairs of neighbours that were searched for edges.
    """

    position: Points
    normal: Points
    on_edge: NDArray[np.bool_]
    moved: dict[int, Points] = field(default_factory=dict)
    stays: set[int] = field(default_factory=set)
    seen: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))

    def move_back(self, vertices: Indices) -> bool:
        """Permanently restores vertices that were moved out of their cells; returns whether there were any."""
        outside = [vertex for vertex in vertices.tolist() if vertex in self.moved]
        for vertex in outside:
            self.position[vertex] = self.moved.pop(vertex)
            self.on_edge[vertex] = False
        self.stays.update(outside)
        return bool(outside)


def place_vertices(
    space: Space, faces: Faces, crossings: Crossings, vertices: Indices, planes: Quadrics, sharp: bool
) -> VertexPositions:
    """The positions of some vertices, from the planes around them: on the surface, and on nearby sharp edges."""
    cells = faces.cells[vertices].astype(np.float64)
    mean = np.stack([row / np.maximum(planes[13], 1.0) for row in planes[10:13]], -1) + cells
    placed = VertexPositions(mean.copy(), np.zeros_like(mean), np.zeros(len(mean), bool))
    if sharp:
        *meeting, _, strength = meeting_points(planes, _WEAKEST)
        placed.position = np.stack(meeting, -1) + cells
        near = np.flatnonzero(strength >= _WEAKEST)
        if len(near):
            around = faces.edges[:, vertices[near]]
            moved = _onto_edges(space, around, crossings, cells[near], placed.position[near])
            placed.position[near], placed.on_edge[near] = moved
    rest = np.flatnonzero(~placed.on_edge)
    start = np.where(_within(placed.position[rest], cells[rest])[:, None], placed.position[rest], mean[rest])
    foot, placed.normal[rest], reached = space.feet(start)
    reached &= _within(foot, cells[rest], _LONGEST)
    placed.position[rest] = np.where(reached[:, None], foot, start)
    return placed


def _onto_edges(
    space: Space, edges: NDArray[np.int32], crossings: Crossings, cells: Points, position: Points
) -> tuple[Points, NDArray[np.bool_]]:
    """Moves vertices between planes of different directions to where these meet, if that is a sharp edge.

    On a surface that is only curved, nearby planes hardly differ, and nothing is accepted.
    """
    _, vertex = np.nonzero(edges)
    crossing = edges[edges > 0] - 1
    position = np.clip(position, cells, cells + 1.0)
    moved, strength, outward = _look_closer(
        space, vertex, position, crossings.position(crossing), crossings.normal[crossing], cells, _SLACK
    )
    accepted = (strength >= _WEAKEST) & _within(moved, cells)
    return moved, accepted & space.is_at_surface(moved, outward, _LONGEST)


def meet_missed_edges(space: Space, placed: VertexPositions, neighbours: Iterable[Indices], leaves: int) -> None:
    """Moves the nearer one of two neighbours to the sharp edge that passes between them.

    A sharp edge may pass through a cell without crossing its lattice edges, so the cell itself cannot detect it.
    """
    pairs = _new_pairs(placed, neighbours, leaves)
    for _ in range(_ROUNDS):
        pairs = pairs[:, ~placed.on_edge[pairs].any(0)]
        pair_count = pairs.shape[1]
        if not pair_count:
            return
        both, vertex = np.tile(np.arange(pair_count), 2), pairs.reshape(-1)
        ends, normals = placed.position[vertex], placed.normal[vertex]
        base = np.floor(ends[:pair_count])
        *meeting, _, _ = meeting_points(_planes(both, pair_count, ends - base[both], normals), _WEAKEST)
        start = np.nan_to_num(np.stack(meeting, -1)) + base
        position, strength, outward = _look_closer(space, both, start, ends, normals, base, np.inf)
        good = (strength >= _WEAKEST) & space.is_at_surface(position, outward, _CLOSE)
        away = np.linalg.norm(ends - position[both], axis=1)
        away[(vertex >= leaves) | ~good[both] | (away > _FAR) | np.isin(vertex, list(placed.stays))] = np.inf
        # Each edge takes its nearer vertex, and each vertex its nearest edge.
        chosen = np.flatnonzero((away <= np.roll(away, pair_count)) & (away < np.inf))
        chosen = chosen[np.argsort(-away[chosen])]
        for at in chosen:
            placed.moved.setdefault(int(vertex[at]), ends[at])
        placed.position[vertex[chosen]] = position[both[chosen]]
        placed.on_edge[vertex[chosen]] = True
        # The other pairs have no reachable edge between them, so further rounds skip them.
        pairs = pairs[:, np.isfinite(away).reshape(2, -1).any(0)]


def _new_pairs(placed: VertexPositions, neighbours: Iterable[Indices], leaves: int) -> Indices:
    """The pairs of neighbours whose normals differ and that were not checked before; `neighbours` come in chunks."""
    vertex_count, most = len(placed.position), max(leaves, _FEW)
    new_keys, left = [np.empty(0, np.int64)], most
    for first, second in neighbours:
        apart = ~placed.on_edge[first] & ~placed.on_edge[second] & (np.minimum(first, second) < leaves)
        first, second = first[apart], second[apart]
        opposes = np.einsum("ij,ij->i", placed.normal[first], placed.normal[second]) < _TURNED
        new_keys.append(first[opposes].astype(np.int64) * vertex_count + second[opposes])
        left -= len(new_keys[-1])
        # If normals differ nearly everywhere, the surface is finer than the cells, and edges cannot be found.
        if left < 0:
            return np.empty((2, 0), np.int64)
    keys = np.setdiff1d(np.concatenate(new_keys), placed.seen)
    placed.seen = np.union1d(placed.seen, keys)
    return np.stack(np.divmod(keys, vertex_count))


def _look_closer(
    space: Space,
    at: Indices,
    position: Points,
    ends: Points,
    normals: Points,
    base: Points,
    slack: float,
) -> tuple[Points, NDArray[np.float64], Points]:
    """Refines where the surface's planes meet, from points on the ways from a position to several ends.

    `at` gives the position of each end, `normals` the normals at the ends. Positions stay in the cells at `base`,
    within the slack. Returns the positions, the strength of the planes in the second direction, and the mean normals.
    """
    moved, strength, near = position, np.zeros(len(position)), normals
    for share in _LOOKS:
        points, there, reached = space.feet(position[at] + share * (ends - position[at]))
        points, near = np.where(reached[:, None], points, ends), np.where(reached[:, None], there, normals)
        *meeting, _, strength = meeting_points(_planes(at, len(position), points - base[at], near), _WEAKEST)
        moved = np.nan_to_num(np.stack(meeting, -1), nan=0.5) + base
        position = np.clip(moved, base - slack, base + (1.0 + slack))
    outward = np.stack([summed(at, axis, len(position)) for axis in near.T], -1)
    return moved, strength, outward / np.maximum(np.linalg.norm(outward, axis=1, keepdims=True), 1e-300)


def _within(position: Points, cells: Points, slack: float = _SLACK) -> NDArray[np.bool_]:
    return np.all((position > cells - slack) & (position < cells + (1.0 + slack)), axis=-1)  # type: ignore[return-value]


def _planes(at: Indices, count: int, points: Points, normals: Points) -> Quadrics:
    """Sums over the planes through points, for each index in `at`."""
    x, y, z = np.ascontiguousarray(normals.T)
    height = np.einsum("ij,ij->i", normals, points)
    rows = [x * x, x * y, x * z, y * y, y * z, z * z, x * height, y * height, z * height, height * height]
    rows += [*np.ascontiguousarray(points.T), np.ones(len(points))]
    return [summed(at, row, count) for row in rows]


def summed(at: Indices, row: NDArray[Any], count: int) -> NDArray[np.float64]:
    """The sum of a row's values for each index in `at`."""
    return np.bincount(at, row, count).astype(np.float64, copy=False)
