"""Meshes parts by dual contouring: a vertex in each lattice cell that the surface crosses, and a face around each
crossed edge.

`mesh` is public; the writers in `formats` take its result. Exact normals locate sharp edges. Where the surface is flat,
cells are merged, which gives large triangles.
"""

from __future__ import annotations

import numpy as np

from livegrad.diagnostics import caller_origin, warn_caller
from livegrad.implicit.bodies.clipping import clip_and_fit
from livegrad.implicit.bodies.masking import is_inside, repeat_masks
from livegrad.implicit.bodies.part import Part
from livegrad.implicit.bodies.pruning import IntervalBounds, Lattice, Progress, PrunedBlocks, ignore_progress
from livegrad.implicit.meshing.dual_cells import CrossedCells, Faces, Indices, build_faces
from livegrad.implicit.meshing.dual_clusters import cluster_vertices
from livegrad.implicit.meshing.dual_triangles import triangulate
from livegrad.implicit.meshing.dual_vertices import (
    Points,
    Space,
    VertexPositions,
    find_crossings,
    place_vertices,
    sum_planes_around,
)
from livegrad.implicit.meshing.feature_size import choose_cell_size, require_resolved
from livegrad.implicit.meshing.thin_walls import find_cells, warn_about_losses
from livegrad.implicit.nodes.errors import AssemblyError, PartWarning
from livegrad.implicit.nodes.resources import TriangleMesh

_BLOCK = 8
_CHUNK = 2048
_TOLERANCE = 1 / 32  # of a feature


def mesh(
    part: Part,
    *,
    feature_size: float | None = None,
    tolerance: float | None = None,
    sharp: bool = True,
    most_triangles: int = 1 << 24,
    progress: Progress = ignore_progress,
) -> TriangleMesh:
    """Meshes the surface of a part. The mesh is closed and resolves features as large as `feature_size`.

    The default feature size is a fiftieth of the part, or less if its walls are thinner. A `PartWarning` reports a mesh
    that is empty, or whose volume differs from the volume of the part, which is estimated by sampling.

    Cells are half as wide as a feature, and triangles are at most a cell away from the surface. Where the surface is
    flat within `tolerance` (by default a thirty-second of a feature), cells are merged into large triangles; a
    tolerance of 0 disables merging. Time and memory are proportional to the surface, not the volume: half a kilobyte
    per cell. More than `most_triangles` before merging is an error. `sharp` preserves edges and corners of the part.
    `progress` is called with the current stage and its progress from 0 to 1.

    >>> from livegrad.implicit.nodes.assembly import Assembly
    >>> from livegrad.implicit.nodes.expression import add_expression
    >>> from livegrad.implicit.bodies.part import part_of_function
    >>> shapes = add_expression(Assembly(), "ball", "length(pos) - 1", {"pos": "vector"})
    >>> ball = mesh(part_of_function(shapes, "ball", ((-1, -1, -1), (1, 1, 1))), feature_size=0.25)
    >>> ball.is_closed()
    True
    """
    progress("compiling", 0.0)
    part = clip_and_fit(part)
    cell = choose_cell_size(part, feature_size)
    error = _tolerance_in_cells(tolerance, cell)
    progress("looking for the surface", 0.0)
    bounds = IntervalBounds(part.function, part.arguments, part.element.dtype)
    cells = find_cells(
        bounds,
        lambda points: part(points) < 0,
        lambda size: _make_lattice(part, size),
        cell,
        finer=feature_size is None,
    )
    if tolerance is not None:
        error *= cell / float(cells.lattice.cell[0])
    crossed = _find_crossed_cells(part, cells.lattice, cells.blocks, most_triangles, progress)
    if not len(crossed.cells):
        require_resolved(part, bounds, part.low, part.high, float(cells.lattice.cell[0]))
        warn_caller(f"part `{part.name}` has no body within its bounds: the mesh is empty", PartWarning)
        return TriangleMesh(np.empty((0, 3)), np.empty((0, 3), np.int64), part.name)
    progress("finding vertices", 0.6)
    faces = build_faces(crossed)
    del crossed
    vertices, triangles = _build_surface(Space(part, cells.lattice), faces, error, sharp, progress)
    del faces
    result = TriangleMesh(vertices, triangles.astype(np.int64, copy=False), part.name)
    del vertices, triangles
    warn_about_losses("mesh", "a volume of", result.volume(), cells)
    progress("done", 1.0)
    return result


def _make_lattice(part: Part, cell: float) -> Lattice:
    counts = np.ceil((part.high - part.low) / cell).astype(np.int64) + 2
    # Offset the lattice, because all values are zero on flat sides of the domain: they must not be lattice planes.
    return Lattice(part.low - 0.75 * cell, np.full(3, cell), tuple(int(c) for c in counts), _BLOCK)


def _tolerance_in_cells(tolerance: float | None, cell: float) -> float:
    """Validates the flatness tolerance for merging, and converts it to cells."""
    if tolerance is None:
        return 2 * _TOLERANCE
    if not isinstance(tolerance, int | float | np.number) or not 0 <= tolerance <= cell / 2:
        raise AssemblyError(
            "invalid tolerance",
            where=caller_origin(),
            expected=f"between 0 and a quarter of a feature, {cell / 2:.3g}",
            found=repr(tolerance),
        )
    return float(tolerance) / cell


def _build_surface(space: Space, faces: Faces, error: float, sharp: bool, progress: Progress) -> tuple[Points, Indices]:
    """Positions and triangulates faces: vertices in part coordinates, and triangles."""
    crossings = find_crossings(space, faces)
    progress("joining cells", 0.7)
    planes = sum_planes_around(faces, crossings)
    tree = cluster_vertices(faces, planes, error=error, sharp=sharp)

    def position_some(vertices: Indices) -> VertexPositions:
        return place_vertices(space, faces, crossings, vertices, planes(vertices), sharp)

    progress("triangulating faces", 0.9)
    vertices, triangles = triangulate(position_some, space, faces, crossings, tree, error, sharp)
    return space.to_part(vertices), triangles


def _find_crossed_cells(
    part: Part, lattice: Lattice, pruned: PrunedBlocks, most_triangles: int, progress: Progress
) -> CrossedCells:
    """Evaluates the lattice points of blocks, and returns the cells whose corners differ in sign."""
    side, blocks = np.arange(_BLOCK + 1), pruned.crossed
    triangles = 0
    cells, codes = [np.empty((0, 3), np.int32)], [np.empty(0, np.uint8)]
    for start in range(0, len(blocks), _CHUNK):
        rows = slice(start, start + _CHUNK)
        first = (blocks[rows] * _BLOCK).astype(np.int32)  # a lattice has fewer cells along an axis
        positions = lattice.origin + (first[:, None, :] + side[None, :, None]) * lattice.cell
        shape = (len(first), _BLOCK + 1, _BLOCK + 1, _BLOCK + 1)
        x, y, z = (
            np.broadcast_to(positions[:, :, axis].astype(part.element.dtype).reshape(extents), shape).reshape(-1)
            for axis, extents in enumerate(((-1, _BLOCK + 1, 1, 1), (-1, 1, _BLOCK + 1, 1), (-1, 1, 1, _BLOCK + 1)))
        )
        masks = None if pruned.masks is None else repeat_masks(pruned.masks[:, rows], (_BLOCK + 1) ** 3)
        inside = is_inside(part.function, part.arguments, (x, y, z), masks).reshape(shape).view(np.uint8)
        code = inside[..., :-1] | inside[..., 1:] << np.uint8(1)
        code = code[:, :, :-1] | code[:, :, 1:] << np.uint8(2)
        code = code[:, :-1] | code[:, 1:] << np.uint8(4)
        crossed = np.flatnonzero((code != 0) & (code != 255))
        block, *offsets = np.unravel_index(crossed, code.shape)
        cells.append(first[block] + np.stack(offsets, -1).astype(np.int32))
        codes.append(code.reshape(-1)[crossed])
        triangles += 2 * len(crossed)
        if triangles > most_triangles:
            raise AssemblyError(
                f"the mesh would have more than {most_triangles:,} triangles",
                where=caller_origin(),
                help="use a larger feature_size, or raise most_triangles",
            )
        progress("looking for the surface", 0.1 + 0.5 * (start + len(first)) / max(len(blocks), 1))
    return CrossedCells(np.concatenate(cells), np.concatenate(codes))
