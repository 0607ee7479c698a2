"""Parts as closed triangle meshes: lattice cells that the surface crosses, cut into tetrahedra.

`mesh` is for people; writers of `formats` take what it gives. Every edge of the lattice that changes sign has one
vertex, so the mesh is closed and every edge joins two triangles; sharp edges of the part are found by exact normals.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import permutations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from livegrad import ops
from livegrad.authoring.assembly.batches import in_batches
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
    part: Part, *, feature_size: float | None = None, sharp: bool = True, progress: Progress = silent
) -> TriangleMesh:
    """The surface of a part as a closed mesh that keeps what is as large as `feature_size` (a fiftieth unless told).

    Cells are half that size, and no triangle is further from the surface than that. Time and memory grow with the
    surface, not with the volume. With `sharp`, vertices near edges and corners of the part move onto them. `progress`
    is told what is being done, and how far it is from 0 to 1.

    >>> from livegrad.authoring.assembly.assembly import Assembly
    >>> from livegrad.authoring.assembly.expression import add_expression
    >>> from livegrad.authoring.assembly.part import part_of_function
    >>> shapes = add_expression(Assembly(), "ball", "length(pos) - 1", {"pos": "vector"})
    >>> ball = mesh(part_of_function(shapes, "ball", ((-1, -1, -1), (1, 1, 1))), feature_size=0.25)
    >>> ball.is_closed()
    True
    """
    progress("compiling", 0.0)
    part = fit_bounds(part)
    cell = _cell_size(part, feature_size)
    counts = np.ceil((part.high - part.low) / cell).astype(np.int64) + 2
    # Half a cell off the bounds: flat sides of the domain are then no lattice planes, where values are all zero.
    lattice = Lattice(part.low - 0.75 * cell, np.full(3, cell), tuple(int(c) for c in counts), _BLOCK)
    progress("looking for the surface", 0.0)
    found = find_blocks(bounded(part.function, part.arguments, part.element.dtype), lattice)
    cells, values = _crossed_cells(part, lattice, found.crossed, progress)
    if not len(cells):
        return TriangleMesh(np.empty((0, 3)), np.empty((0, 3), np.int64), part.name)
    keys, triangles = _tetrahedra_triangles(cells, values, lattice)
    progress("finding vertices", 0.6)
    vertices = _vertices_on_edges(part, lattice, keys)
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
    cell = (feature_size if feature_size is not None else extent / 50.0) / 2
    if not np.isfinite(cell) or cell <= 0 or extent / cell > 1 << 16:
        raise AssemblyError(
            "not a feature size",
            where=caller_origin(),
            expected=f"between {extent / (1 << 15):.3g} and the size of the part",
            found=repr(feature_size),
        )
    return float(cell)


def _crossed_cells(
    part: Part, lattice: Lattice, blocks: NDArray[np.int64], progress: Progress
) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """The cells whose corners differ in sign, by index, with the values at their eight corners."""
    side = np.arange(_BLOCK + 1)
    steps = np.stack(np.meshgrid(side, side, side, indexing="ij"), -1).reshape(-1, 3)
    kept_cells, kept_values = [np.empty((0, 3), np.int64)], [np.empty((0, 8), part.element.dtype)]
    for at in range(0, len(blocks), _BLOCKS_AT_ONCE):
        first = blocks[at : at + _BLOCKS_AT_ONCE] * _BLOCK
        index = (first[:, None] + steps).reshape(-1, 3)
        points = lattice.origin + index * lattice.cell
        x, y, z = (np.ascontiguousarray(points[:, axis], part.element.dtype) for axis in range(3))
        values = part.evaluate(x, y, z).reshape(-1, _BLOCK + 1, _BLOCK + 1, _BLOCK + 1)
        corners = [values[:, i : i + _BLOCK, j : j + _BLOCK, k : k + _BLOCK] for i, j, k in _CORNERS]
        count = np.sum([corner < 0 for corner in corners], axis=0)
        block, *place = np.nonzero((count > 0) & (count < 8))
        kept_cells.append(first[block] + np.stack(place, -1))
        kept_values.append(np.stack([corner[block, place[0], place[1], place[2]] for corner in corners], -1))
        progress("looking for the surface", 0.1 + 0.5 * (at + len(first)) / max(len(blocks), 1))
    return np.concatenate(kept_cells), np.concatenate(kept_values)


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


_PATHS, _CASES = _paths(), _cases()


def _tetrahedra_triangles(
    cells: NDArray[np.int64], values: NDArray[Any], lattice: Lattice
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The lattice edges that have a vertex, each once, and triangles as indices of those.

    An edge is its lower corner's number times eight plus the corner of the unit cell that it goes to.
    """
    strides = _strides(lattice)
    base = cells @ strides
    offsets = _CORNERS @ strides
    inside = values < 0
    rows: list[NDArray[np.int64]] = [np.empty((0, 3), np.int64)]
    for path in _PATHS:
        code = sum(inside[:, corner].astype(np.int64) << place for place, corner in enumerate(path))
        for number in range(1, 15):
            chosen = base[code == number]
            for triangle in _CASES[number]:
                rows.append(np.stack([_edge_keys(chosen, offsets, path, edge) for edge in triangle], -1))
    keys, triangles = np.unique(np.concatenate(rows), return_inverse=True)
    return keys, triangles.reshape(-1, 3)


def _strides(lattice: Lattice) -> NDArray[np.int64]:
    """How far apart the numbers of neighbouring lattice points are, along each axis."""
    _, rows, points = lattice.blocks * lattice.block + 1
    return np.array([rows * points, points, 1])


def _edge_keys(
    base: NDArray[np.int64], offsets: NDArray[np.int64], path: tuple[int, ...], edge: tuple[int, int]
) -> NDArray[np.int64]:
    first, second = sorted((path[edge[0]], path[edge[1]]))
    return (base + offsets[first]) * 8 + (second - first)


def _vertices_on_edges(part: Part, lattice: Lattice, keys: NDArray[np.int64]) -> NDArray[np.float64]:
    corner, direction = keys // 8, keys % 8
    along_x, along_y, _ = _strides(lattice)
    index = np.stack([corner // along_x, corner % along_x // along_y, corner % along_y], -1)
    start = lattice.origin + index * lattice.cell
    step = _CORNERS[direction] * lattice.cell
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
    slope = at_low - at_high
    flat = ops.equal(slope, 0.0)
    share = ops.clamp(at_low / ops.select(flat, one, slope), nothing, one)
    root = low + ops.select(flat, constant(0.5, element), share) * (high - low)
    made = make_function(f"{function.name}.root", [*ends, *others], [root])
    return compile_function(map_over(made, (*[True] * 6, *[False] * len(others))))
