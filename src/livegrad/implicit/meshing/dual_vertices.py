"""Positions the vertices of dual contouring where the tangent planes around them meet.

In: faces and the crossings of their lattice edges, from `meshing`. Vertices are placed on the surface, or on sharp
edges and corners of the part; each stays in its cell. Lengths are in cells.
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
from livegrad.implicit.meshing.surface_points import (
    Points,
    find_roots,
    intersect_planes,
    is_at_surface,
    project_to_surface,
)
from livegrad.ir.dimension import Dimension
from livegrad.ir.function import make_function
from livegrad.ir.leaves import constant, input_node
from livegrad.ir.node import Key, Node
from livegrad.ir.types import Tensor, f64, i32
from livegrad.ops.maps import map_over
from livegrad.runtime.cpu import compile_function
from livegrad.state import memo

Quadrics = list[NDArray[np.float64]]  # sums over planes: fourteen rows, the input of `intersect_planes`
PlanesOf = Callable[[slice | Indices], Quadrics]
_CHUNK = 1 << 16
_MIN_STRENGTH = 0.04  # least strength of an edge: planes that differ by less than about 25 degrees are a smooth surface
_SAMPLE_FRACTIONS = (0.3, 0.1)  # the surface beside a sharp edge is sampled at these fractions of the way to it
_LONGEST = 0.25
_SLACK = 1e-3
_MIN_COSINE = np.cos(np.radians(25.0))
_ROUNDS = 4
_CLOSE = 0.05  # cells: a vertex moves out of its cell only if the surface is this close to its new position
_FEW = 1 << 14  # as many pairs of neighbours are always checked
_MAX_MOVE = 0.9  # cells: the largest move of a vertex out of its cell


@dataclass(frozen=True)
class Crossings:
    """The crossing of the surface with the lattice edge of each face, and the normal there.

    `tables` has four rows: the fraction of the edge, and the normal. Face k is in column k + 1; column 0 is for edges
    that the surface does not cross.
    """

    faces: Faces
    tables: NDArray[np.float64]

    @property
    def normal(self) -> Points:
        """The normal at each crossing."""
        return self.tables[1:, 1:].T

    def position(self, rows: Indices) -> Points:
        """The crossings of faces, in cells from the origin of the lattice."""
        position = self.faces.start[rows].astype(np.float64)
        axis = np.searchsorted(np.cumsum(self.faces.counts), rows, side="right")
        position[np.arange(len(rows)), axis] += self.tables[0, 1:][rows]
        return position


@dataclass(frozen=True)
class Space:
    """A part in lattice coordinates: points are in cells from the origin of the lattice."""

    part: Part
    lattice: Lattice

    @property
    def cell(self) -> float:
        return float(self.lattice.cell[0])

    def to_part(self, points: Points) -> Points:
        """Converts points to the coordinates of the part."""
        return self.lattice.origin + points * self.lattice.cell

    def project(self, points: Points) -> tuple[Points, Points, NDArray[np.bool_]]:
        """Projects points to the surface: positions, normals, and whether the surface was reached."""
        positions, normals, reached = project_to_surface(self.part, self.to_part(points), _LONGEST * self.cell)
        return (positions - self.lattice.origin) / self.lattice.cell, normals, reached

    def is_inside(self, points: Points) -> NDArray[np.bool_]:
        return self.part(self.to_part(points)) < 0

    def is_at_surface(self, points: Points, outward: Points, reach: float) -> NDArray[np.bool_]:
        return is_at_surface(self.part, self.to_part(points), outward, reach * self.cell)


def find_crossings(space: Space, faces: Faces) -> Crossings:
    """Finds where the surface crosses the lattice edge of each face. Crossings are kept away from lattice points."""
    face_count = len(faces.start)
    tables = np.zeros((4, face_count + 1))
    for chunk in chunks(face_count):
        position = faces.start[chunk].astype(np.float64)
        axis = np.searchsorted(np.cumsum(faces.counts), np.arange(chunk.start, chunk.stop), side="right")
        coordinate = np.arange(len(position)), axis
        low = space.to_part(position)
        high = low.copy()
        high[coordinate] += space.cell
        fraction, normal = find_roots(space.part, low, high)
        tables[0, 1:][chunk] = np.clip(np.nan_to_num(fraction, nan=0.5), 1e-3, 1 - 1e-3)
        for table, row in zip(tables[1:, 1:], normal, strict=True):
            table[chunk] = np.nan_to_num(row, posinf=0.0, neginf=0.0)
    return Crossings(faces, tables)


def chunks(count: int) -> list[slice]:
    """Splits `count` rows into slices, because temporaries for all rows would take more memory than the rows."""
    return [slice(at, min(at + _CHUNK, count)) for at in range(0, count, _CHUNK)]


def sum_planes_around(faces: Faces, crossings: Crossings) -> PlanesOf:
    """Returns a function that sums the planes around vertices, relative to the low corner of their cells."""
    return lambda vertices: list(
        run_in_batches(_compile_plane_sums(), list(_take_columns(faces.edges, vertices)), list(crossings.tables))
    )


def _take_columns(table: NDArray[Any], columns: slice | Indices) -> NDArray[Any]:
    return table[:, columns] if isinstance(columns, slice) else np.take(table, columns, axis=1)


@memo(1)
def _compile_plane_sums() -> Any:
    """Native code: (the columns of the twelve edges of a cell, or 0, tables) → sums over the planes at crossings."""
    edges = [input_node(Key(f"edge{edge}"), i32) for edge in range(12)]
    tables = [input_node(Key(name), Tensor(f64, (Dimension.symbol("edges"),))) for name in ("share", "x", "y", "z")]
    zero, one = constant(0.0, f64), constant(1.0, f64)
    sums: list[Node] = [zero] * 14
    for edge, column in enumerate(edges):
        fraction, x, y, z = (ops.lookup(table, column) for table in tables)
        is_crossed = column > constant(0, i32)
        axis, first, second = edge // 4, edge // 2 % 2, edge % 2
        position = [zero] * 3
        position[axis], position[(axis + 1) % 3], position[(axis + 2) % 3] = (
            fraction,
            (zero, one)[first],
            (zero, one)[second],
        )
        height = x * position[0] + y * position[1] + z * position[2]
        rows = [x * x, x * y, x * z, y * y, y * z, z * z, x * height, y * height, z * height, height * height]
        rows += [ops.select(is_crossed, value, zero) for value in (*position, one)]
        sums = [total + row for total, row in zip(sums, rows, strict=True)]
    function = make_function("planes", [*edges, *tables], sums)
    return compile_function(map_over(function, (*[True] * 12, *[False] * 4)))


@dataclass
class VertexPositions:
    """The positions of vertices, the normals of the surface there, and whether vertices are on a sharp edge instead.

    `moved` has the original positions of vertices that were moved to a sharp edge outside their cells. Vertices in
    `stays` are not moved again. `seen` has the keys of pairs of neighbours that were searched for edges.
    """

    position: Points
    normal: Points
    on_edge: NDArray[np.bool_]
    moved: dict[int, Points] = field(default_factory=dict)
    stays: set[int] = field(default_factory=set)
    seen: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))

    def move_back(self, vertices: Indices) -> bool:
        """Restores vertices that were moved out of their cells, permanently; returns whether there were any."""
        outside = [vertex for vertex in vertices.tolist() if vertex in self.moved]
        for vertex in outside:
            self.position[vertex] = self.moved.pop(vertex)
            self.on_edge[vertex] = False
        self.stays.update(outside)
        return bool(outside)


def place_vertices(
    space: Space, faces: Faces, crossings: Crossings, vertices: Indices, planes: Quadrics, sharp: bool
) -> VertexPositions:
    """Positions vertices from the planes around them: on the surface, or on nearby sharp edges."""
    cells = faces.cells[vertices].astype(np.float64)
    mean = np.stack([row / np.maximum(planes[13], 1.0) for row in planes[10:13]], -1) + cells
    result = VertexPositions(mean.copy(), np.zeros_like(mean), np.zeros(len(mean), bool))
    if sharp:
        *meeting_point, _, strength = intersect_planes(planes, _MIN_STRENGTH)
        result.position = np.stack(meeting_point, -1) + cells
        candidates = np.flatnonzero(strength >= _MIN_STRENGTH)
        if len(candidates):
            edges = faces.edges[:, vertices[candidates]]
            moved = _snap_to_edges(space, edges, crossings, cells[candidates], result.position[candidates])
            result.position[candidates], result.on_edge[candidates] = moved
    others = np.flatnonzero(~result.on_edge)
    start = np.where(
        _are_within_cells(result.position[others], cells[others])[:, None], result.position[others], mean[others]
    )
    projected, result.normal[others], reached = space.project(start)
    reached &= _are_within_cells(projected, cells[others], _LONGEST)
    result.position[others] = np.where(reached[:, None], projected, start)
    return result


def _snap_to_edges(
    space: Space, edges: NDArray[np.int32], crossings: Crossings, cells: Points, position: Points
) -> tuple[Points, NDArray[np.bool_]]:
    """Moves vertices between planes of different directions to where the planes meet, if that is a sharp edge.

    Returns the positions and whether each is accepted. On a curved surface, nearby planes are almost equal, so none is.
    """
    _, vertex = np.nonzero(edges)
    crossing = edges[edges > 0] - 1
    position = np.clip(position, cells, cells + 1.0)
    meeting, strength, outward = _refine_meeting_points(
        space, vertex, position, crossings.position(crossing), crossings.normal[crossing], cells, _SLACK
    )
    accepted = (strength >= _MIN_STRENGTH) & _are_within_cells(meeting, cells)
    return meeting, accepted & space.is_at_surface(meeting, outward, _LONGEST)


def snap_to_missed_edges(space: Space, vertices: VertexPositions, neighbours: Iterable[Indices], leaves: int) -> None:
    """Moves the nearer of two neighbouring vertices to the sharp edge that passes between them.

    A sharp edge may pass through a cell without crossing its lattice edges, so the cell alone cannot detect it.
    """
    pairs = _find_new_pairs(vertices, neighbours, leaves)
    for _ in range(_ROUNDS):
        pairs = pairs[:, ~vertices.on_edge[pairs].any(0)]
        pair_count = pairs.shape[1]
        if not pair_count:
            return
        pair_index, vertex = np.tile(np.arange(pair_count), 2), pairs.reshape(-1)
        ends, normals = vertices.position[vertex], vertices.normal[vertex]
        base = np.floor(ends[:pair_count])
        *meeting_point, _, _ = intersect_planes(
            _sum_planes(pair_index, pair_count, ends - base[pair_index], normals), _MIN_STRENGTH
        )
        start = np.nan_to_num(np.stack(meeting_point, -1)) + base
        position, strength, outward = _refine_meeting_points(space, pair_index, start, ends, normals, base, np.inf)
        is_edge = (strength >= _MIN_STRENGTH) & space.is_at_surface(position, outward, _CLOSE)
        distance = np.linalg.norm(ends - position[pair_index], axis=1)
        distance[
            (vertex >= leaves) | ~is_edge[pair_index] | (distance > _MAX_MOVE) | np.isin(vertex, list(vertices.stays))
        ] = np.inf
        # An edge takes the nearer vertex of its pair; a vertex goes to its nearest edge, which is written last.
        moves = np.flatnonzero((distance <= np.roll(distance, pair_count)) & (distance < np.inf))
        moves = moves[np.argsort(-distance[moves])]
        for move in moves:
            vertices.moved.setdefault(int(vertex[move]), ends[move])
        vertices.position[vertex[moves]] = position[pair_index[moves]]
        vertices.on_edge[vertex[moves]] = True
        # Other pairs have no edge within reach; further rounds skip them.
        pairs = pairs[:, np.isfinite(distance).reshape(2, -1).any(0)]


def _find_new_pairs(vertices: VertexPositions, neighbours: Iterable[Indices], leaves: int) -> Indices:
    """The pairs of neighbours whose normals differ and that were not searched before; `neighbours` come in chunks."""
    vertex_count, limit = len(vertices.position), max(leaves, _FEW)
    new_keys, remaining = [np.empty(0, np.int64)], limit
    for first, second in neighbours:
        is_candidate = ~vertices.on_edge[first] & ~vertices.on_edge[second] & (np.minimum(first, second) < leaves)
        first, second = first[is_candidate], second[is_candidate]
        differs = np.einsum("ij,ij->i", vertices.normal[first], vertices.normal[second]) < _MIN_COSINE
        new_keys.append(first[differs].astype(np.int64) * vertex_count + second[differs])
        remaining -= len(new_keys[-1])
        # If normals differ nearly everywhere, the surface is finer than the cells, and the search cannot succeed.
        if remaining < 0:
            return np.empty((2, 0), np.int64)
    keys = np.setdiff1d(np.concatenate(new_keys), vertices.seen)
    vertices.seen = np.union1d(vertices.seen, keys)
    return np.stack(np.divmod(keys, vertex_count))


def _refine_meeting_points(
    space: Space,
    at: Indices,
    position: Points,
    ends: Points,
    normals: Points,
    base: Points,
    slack: float,
) -> tuple[Points, NDArray[np.float64], Points]:
    """Refines where planes meet, with planes sampled on the segments from a position to several ends.

    `at` has the index of the position of each end, `normals` the normals at the ends. Positions stay in the cells at
    `base`, within `slack`. Returns positions, the strength of the second principal direction, and mean normals.
    """
    meeting, strength, sampled_normals = position, np.zeros(len(position)), normals
    for fraction in _SAMPLE_FRACTIONS:
        points, projected_normals, reached = space.project(position[at] + fraction * (ends - position[at]))
        points, sampled_normals = (
            np.where(reached[:, None], points, ends),
            np.where(reached[:, None], projected_normals, normals),
        )
        *meeting_point, _, strength = intersect_planes(
            _sum_planes(at, len(position), points - base[at], sampled_normals), _MIN_STRENGTH
        )
        meeting = np.nan_to_num(np.stack(meeting_point, -1), nan=0.5) + base
        position = np.clip(meeting, base - slack, base + (1.0 + slack))
    outward = np.stack([sum_by_index(at, axis, len(position)) for axis in sampled_normals.T], -1)
    return meeting, strength, outward / np.maximum(np.linalg.norm(outward, axis=1, keepdims=True), 1e-300)


def _are_within_cells(position: Points, cells: Points, slack: float = _SLACK) -> NDArray[np.bool_]:
    return np.all((position > cells - slack) & (position < cells + (1.0 + slack)), axis=-1)  # type: ignore[return-value]


def _sum_planes(at: Indices, count: int, points: Points, normals: Points) -> Quadrics:
    """Sums over planes through points, for each index in `at`."""
    x, y, z = np.ascontiguousarray(normals.T)
    height = np.einsum("ij,ij->i", normals, points)
    rows = [x * x, x * y, x * z, y * y, y * z, z * z, x * height, y * height, z * height, height * height]
    rows += [*np.ascontiguousarray(points.T), np.ones(len(points))]
    return [sum_by_index(at, row, count) for row in rows]


def sum_by_index(at: Indices, row: NDArray[Any], count: int) -> NDArray[np.float64]:
    """Sums the values of a row for each index in `at`."""
    return np.bincount(at, row, count).astype(np.float64, copy=False)
