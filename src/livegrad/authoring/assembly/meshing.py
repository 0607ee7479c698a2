"""Parts as closed triangle meshes: lattice cells that the surface crosses, cut into tetrahedra.

`mesh` is for people; writers of `formats` take what it gives. Every edge of the lattice that changes sign has one
vertex, so the mesh is closed and every edge joins two triangles; sharp edges of the part are found by exact normals.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from itertools import permutations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from livegrad import ops
from livegrad.authoring.assembly.batches import in_batches
from livegrad.authoring.assembly.clipping import clipped
from livegrad.authoring.assembly.errors import AssemblyError
from livegrad.authoring.assembly.part import Part
from livegrad.authoring.assembly.pruning import Lattice, Progress, bounded, find_blocks, fit_bounds, silent
from livegrad.authoring.assembly.resources import TriangleMesh
from livegrad.authoring.assembly.sharpen import sharpen
from livegrad.backends.cpu import compile_function
from livegrad.diagnostics import caller_origin
from livegrad.ir.function import make_function
from livegrad.ir.leaves import constant, input_node
from livegrad.ir.node import Function, Key, Node
from livegrad.ir.types import f32, i64, scalar_of
from livegrad.ops.aggregate import make_vector
from livegrad.ops.control import map_over

_BLOCK = 8
_BLOCKS_AT_ONCE = 2048
_HALVINGS = 8
_CORNERS = np.array([(i, j, k) for i in (0, 1) for j in (0, 1) for k in (0, 1)])


def mesh(
    part: Part,
    *,
    feature_size: float | None = None,
    sharp: bool = True,
    most_triangles: int = 1 << 25,
    progress: Progress = silent,
) -> TriangleMesh:
    """The surface of a part as a closed mesh that keeps what is as large as `feature_size` (a fiftieth unless told).

    Cells are half that size, and no triangle is further from the surface than that. Time and memory grow with the
    surface, not with the volume: some hundred bytes a triangle, and more of them than `most_triangles` are refused.
    With `sharp`, vertices near edges and corners of the part move onto them. `progress` is told what is being done, and
    how far it is from 0 to 1.

    >>> from livegrad.authoring.assembly.assembly import Assembly
    >>> from livegrad.authoring.assembly.expression import add_expression
    >>> from livegrad.authoring.assembly.part import part_of_function
    >>> shapes = add_expression(Assembly(), "ball", "length(pos) - 1", {"pos": "vector"})
    >>> ball = mesh(part_of_function(shapes, "ball", ((-1, -1, -1), (1, 1, 1))), feature_size=0.25)
    >>> ball.is_closed()
    True
    """
    progress("compiling", 0.0)
    part = clipped(fit_bounds(part))
    cell = _cell_size(part, feature_size)
    counts = np.ceil((part.high - part.low) / cell).astype(np.int64) + 2
    # Half a cell off the bounds: flat sides of the domain are then no lattice planes, where values are all zero.
    lattice = Lattice(part.low - 0.75 * cell, np.full(3, cell), tuple(int(c) for c in counts), _BLOCK)
    progress("looking for the surface", 0.0)
    found = find_blocks(bounded(part.function, part.arguments, part.element.dtype), lattice)
    crossed = _crossed_cells(part, lattice, found.crossed, most_triangles, progress)
    if not len(crossed.cells):
        return TriangleMesh(np.empty((0, 3)), np.empty((0, 3), np.int64), part.name)
    progress("finding vertices", 0.6)
    edges = _edges_with_vertices(crossed)
    triangles = _triangles(crossed, edges, lattice)
    vertices = _vertices_on_edges(part, lattice, crossed.cells[edges.owner], edges.direction)
    if sharp:
        progress("sharpening", 0.8)
        vertices = sharpen(part, vertices, triangles, cell)
    progress("done", 1.0)
    return TriangleMesh(vertices, triangles, part.name)


def _cell_size(part: Part, feature_size: float | None) -> float:
    """Half a feature: what is as large as a feature then holds a lattice point, whatever its place.

    The vertices of a triangle lie on the surface and in one cell, √3 of its sides apart at most. So no point of the
    triangle is further from the nearest of them than a cell's side, which is half a feature.
    """
    extent = float((part.high - part.low).max())
    given = extent / 50.0 if feature_size is None else feature_size
    cell = given / 2 if isinstance(given, int | float | np.number) else math.nan
    if not np.isfinite(cell) or cell <= 0 or extent / cell > 1 << 16:
        raise AssemblyError(
            "not a feature size",
            where=caller_origin(),
            expected=f"between {extent / (1 << 15):.3g} and the size of the part",
            found=repr(feature_size),
        )
    return float(cell)


@dataclass(frozen=True)
class _Crossed:
    """Cells whose corners differ in sign, by index; bit k of `code` says that corner k is inside."""

    cells: NDArray[np.int64]
    code: NDArray[np.uint8]


def _crossed_cells(
    part: Part, lattice: Lattice, blocks: NDArray[np.int64], most_triangles: int, progress: Progress
) -> _Crossed:
    side = np.arange(_BLOCK + 1)
    triangles = 0
    kept_cells, kept_codes = [np.empty((0, 3), np.int64)], [np.empty(0, np.uint8)]
    for at in range(0, len(blocks), _BLOCKS_AT_ONCE):
        first = blocks[at : at + _BLOCKS_AT_ONCE] * _BLOCK
        places = lattice.origin + (first[:, None, :] + side[None, :, None]) * lattice.cell
        shape = (len(first), _BLOCK + 1, _BLOCK + 1, _BLOCK + 1)
        x, y, z = (
            np.broadcast_to(places[:, :, axis].astype(part.element.dtype).reshape(own), shape).reshape(-1)
            for axis, own in enumerate(((-1, _BLOCK + 1, 1, 1), (-1, 1, _BLOCK + 1, 1), (-1, 1, 1, _BLOCK + 1)))
        )
        inside = (part.evaluate(x, y, z) < 0).reshape(shape).view(np.uint8)
        code = np.zeros((len(first), _BLOCK, _BLOCK, _BLOCK), np.uint8)
        for corner, (i, j, k) in enumerate(_CORNERS):
            code |= inside[:, i : i + _BLOCK, j : j + _BLOCK, k : k + _BLOCK] << np.uint8(corner)
        where = np.flatnonzero((code != 0) & (code != 255))
        block, *place = np.unravel_index(where, code.shape)
        kept_cells.append(first[block] + np.stack(place, -1))
        kept_codes.append(code.reshape(-1)[where])
        triangles += int(_COUNTS[kept_codes[-1]].sum())
        if triangles > most_triangles:
            raise AssemblyError(
                f"the mesh would have more than {most_triangles:,} triangles",
                where=caller_origin(),
                help="ask for larger features, or raise most_triangles",
            )
        progress("looking for the surface", 0.1 + 0.5 * (at + len(first)) / max(len(blocks), 1))
    return _Crossed(np.concatenate(kept_cells), np.concatenate(kept_codes))


# --- tetrahedra ------------------------------------------------------------------------------------------------------


def _paths() -> list[tuple[int, int, int, int]]:
    """The six tetrahedra around a cell's diagonal, as corners on the way from 0 to 7, all turning the same way."""
    found = []
    for axes in permutations(range(3)):
        corner, path = 0, [0]
        for axis in axes:
            corner |= 4 >> axis
            path.append(corner)
        points = _CORNERS[path].astype(np.float64)
        if np.linalg.det(points[1:] - points[0]) < 0:
            path[1], path[2] = path[2], path[1]
        found.append(tuple(path))
    return found


def _cases() -> list[list[tuple[tuple[int, int], ...]]]:
    """For each set of inside corners of a tetrahedron: triangles, as the tetrahedron's edges that they join."""
    points = np.array([(0.0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1)])
    cases = []
    for code in range(16):
        inside = [v for v in range(4) if code >> v & 1]
        outside = [v for v in range(4) if not code >> v & 1]
        if len(inside) == 2:
            (a, b), (c, d) = inside, outside
            found = [((a, c), (a, d), (b, d)), ((a, c), (b, d), (b, c))]
        else:
            found = [tuple((i, o) for i in inside for o in outside)] if inside and outside else []
        cases.append([_outward(triangle, points, inside, outside) for triangle in found])
    return cases


def _outward(
    triangle: tuple[tuple[int, int], ...], points: NDArray[np.float64], inside: list[int], outside: list[int]
) -> tuple[tuple[int, int], ...]:
    a, b, c = ((points[i] + points[j]) / 2 for i, j in triangle)
    normal = np.cross(b - a, c - a)
    away = points[outside].mean(0) - points[inside].mean(0)
    return triangle if normal @ away > 0 else (triangle[0], triangle[2], triangle[1])


# The edges of a cell's tetrahedra: a lower corner, and the corner of the unit cell in whose direction it goes.
_EDGES = [(low, high - low) for low in range(8) for high in range(low + 1, 8) if low & high == low]


def _cell_table() -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """For each set of inside corners of a cell: where its triangles start, and all triangles, as numbers of edges."""
    starts, rows = [0], []
    cases = _cases()
    for code in range(256):
        for path in _paths():
            within = sum((code >> corner & 1) << place for place, corner in enumerate(path))
            for triangle in cases[within]:
                ends = [sorted((path[a], path[b])) for a, b in triangle]
                rows.append([_EDGES.index((low, high - low)) for low, high in ends])
        starts.append(len(rows))
    return np.array(starts), np.array(rows)


_STARTS, _TRIANGLES = _cell_table()
_COUNTS = _STARTS[1:] - _STARTS[:-1]


@dataclass(frozen=True)
class _Edges:
    """Lattice edges that change sign, each once: the row of the cell whose lowest corner it starts at, and where to.

    `number[row, direction - 1]` is the edge's place in this list.
    """

    owner: NDArray[np.int64]
    direction: NDArray[np.int64]
    number: NDArray[np.int64]


def _edges_with_vertices(crossed: _Crossed) -> _Edges:
    """A cell that has an edge which changes sign is crossed, and so is the one that the edge belongs to."""
    lowest = crossed.code & 1
    changes = np.stack([(crossed.code >> np.uint8(direction) & 1) != lowest for direction in range(1, 8)], -1)
    owner, direction = np.nonzero(changes)
    number = np.cumsum(changes, axis=None).reshape(changes.shape) - 1
    return _Edges(owner, direction + 1, number)


def _triangles(crossed: _Crossed, edges: _Edges, lattice: Lattice) -> NDArray[np.int64]:
    """Triangles as numbers of edges that change sign."""
    _, lines, points = lattice.blocks * lattice.block + 1
    strides = np.array([lines * points, points, 1])
    base = crossed.cells @ strides
    order = np.argsort(base)
    sorted_base = base[order]
    own = np.empty((len(base), len(_EDGES)), np.int64)
    for corner in range(7):
        wanted = base + _CORNERS[corner] @ strides
        place = np.minimum(np.searchsorted(sorted_base, wanted[order]), len(base) - 1)
        # Where no such cell is crossed, no edge from this corner changes sign and nothing reads the number.
        neighbour = np.empty_like(order)
        neighbour[order] = order[place]
        for column, (low, direction) in enumerate(_EDGES):
            if low == corner:
                own[:, column] = edges.number[neighbour, direction - 1]
    counts = _COUNTS[crossed.code]
    ends = np.cumsum(counts)
    rows = np.repeat(_STARTS[crossed.code] - ends + counts, counts) + np.arange(ends[-1])
    places = np.take(_TRIANGLES, rows, axis=0)
    places += np.repeat(np.arange(len(base)) * len(_EDGES), counts)[:, None]
    return np.take(own, places)


def _vertices_on_edges(
    part: Part, lattice: Lattice, cells: NDArray[np.int64], direction: NDArray[np.int64]
) -> NDArray[np.float64]:
    start = lattice.origin + cells * lattice.cell
    step = (_CORNERS * lattice.cell)[direction]
    sides = [
        np.ascontiguousarray(side[:, axis], part.element.dtype) for side in (start, start + step) for axis in range(3)
    ]
    share = in_batches(_roots(part.function), sides, part.arguments).astype(np.float64)
    # Kept off the corners: vertices of different edges never meet, and triangles keep an area.
    return start + step * np.clip(share, 1e-3, 1.0 - 1e-3)[:, None]


@lru_cache(maxsize=64)
def _roots(function: Function) -> Any:
    """Native code: where on the way from one point to another the sign changes, as a share of the way."""
    element = scalar_of(function.parameter_types[0]) or f32
    ends = [input_node(Key(name), element) for name in ("ax", "ay", "az", "bx", "by", "bz")]
    others = [input_node(Key("argument"), type) for type in function.parameter_types[1:]]

    def value(share: Node) -> Node:
        point = [a + share * (b - a) for a, b in zip(ends[:3], ends[3:], strict=True)]
        return ops.call(make_vector(*point), *others, function=function)

    nothing, one = constant(0.0, element), constant(1.0, element)

    def halve(index: Node, low: Node, high: Node, at_low: Node, at_high: Node) -> tuple[Node, ...]:
        """The first two trips look at the ends, so that the function stands in the code only once."""
        is_low, is_high = ops.equal(index, constant(0, i64)), ops.equal(index, constant(1, i64))
        share = ops.select(is_low, nothing, ops.select(is_high, one, (low + high) * 0.5))
        found = value(share)
        keeps_low = is_low | (~is_high & ops.equal(found < 0.0, at_low < 0.0))
        return (
            ops.select(keeps_low, share, low),
            ops.select(keeps_low, high, share),
            ops.select(keeps_low, found, at_low),
            ops.select(keeps_low, at_high, found),
        )

    low, high, at_low, at_high = ops.make_for_loop(constant(_HALVINGS + 2, i64), halve, nothing, one, nothing, nothing)
    # Where one end has no value, there is no slope either: the middle is as near as halving comes.
    slope = at_low - at_high
    known = ops.abs(slope) > 0.0
    share = ops.clamp(at_low / ops.select(known, slope, one), nothing, one)
    root = low + ops.select(known, share, constant(0.5, element)) * (high - low)
    made = make_function(f"{function.name}.root", [*ends, *others], [root])
    return compile_function(map_over(made, (*[True] * 6, *[False] * len(others))))
