"""Meshes parts by dual contouring: a vertex in each lattice cell that the surface crosses, a face around each crossed
edge.

`mesh` is public; the writers in `formats` take its result. Sharp edges are found with exact normals. Where the surface
is flat, cells are merged into large triangles.
"""

from __future__ import annotations

import numpy as np

from livegrad.diagnostics import caller_origin, warn_caller
from livegrad.implicit.bodies.clipping import clip_and_fit
from livegrad.implicit.bodies.masking import is_inside, repeat_masks
from livegrad.implicit.bodies.part import Part
from livegrad.implicit.bodies.pruning import IntervalBounds, Lattice, Progress, PrunedBlocks, ignore_progress
from livegrad.implicit.meshing.dual_cells import CrossedCells, Faces, Indices, faces_of
from livegrad.implicit.meshing.dual_clusters import join_vertices
from livegrad.implicit.meshing.dual_triangles import triangles_of
from livegrad.implicit.meshing.dual_vertices import (
    Points,
    Space,
    VertexPositions,
    find_crossings,
    place_vertices,
    planes_around,
)
from livegrad.implicit.meshing.feature_size import cell_size, require_resolved
from livegrad.implicit.meshing.thin_walls import find_cells, warn_of_losses
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
    that is empty, or whose volume differs from that of the part, estimated by sampling.

    Cells are half of the feature size, and triangles are no further than that from the surface. Where the surface is
    flat within `tolerance` (by default a thirty-second of a feature), cells are merged into large triangles; a
    tolerance of 0 disables merging. Time and memory are proportional to the surface, not the volume: half a kilobyte
    per cell. More than `most_triangles` before merging is an error. `sharp` keeps edges and corners of the part.
    `progress` is called with the current task and its progress from 0 to 1.

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
    cell = cell_size(part, feature_size)
    error = _error(tolerance, cell)
    progress("looking for the surface", 0.0)
    bounds = IntervalBounds(part.function, part.arguments, part.element.dtype)
    cells = find_cells(
        bounds, lambda points: part(points) < 0, lambda size: _lattice(part, size), cell, finer=feature_size is None
    )
    if tolerance is not None:
        error *= cell / float(cells.lattice.cell[0])
    crossed = _crossed_cells(part, cells.lattice, cells.blocks, most_triangles, progress)
    if not len(crossed.cells):
        require_resolved(part, bounds, part.low, part.high, float(cells.lattice.cell[0]))
        warn_caller(f"part `{part.name}` has no body within its bounds: the mesh is empty", PartWarning)
        return TriangleMesh(np.empty((0, 3)), np.empty((0, 3), np.int64), part.name)
    progress("finding vertices", 0.6)
    faces = faces_of(crossed)
    del crossed
    vertices, triangles = _surface(Space(part, cells.lattice), faces, error, sharp, progress)
    del faces
    result = TriangleMesh(vertices, triangles.astype(np.int64, copy=False), part.name)
    del vertices, triangles
    warn_of_losses("mesh", "a volume of", result.volume(), cells)
    progress("done", 1.0)
    return result


def _lattice(part: Part, cell: float) -> Lattice:
    counts = np.ceil((part.high - part.low) / cell).astype(np.int64) + 2
    # Offset by half a cell, so that flat sides of the domain, where all values are zero, are not lattice planes.
    return Lattice(part.low - 0.75 * cell, np.full(3, cell), tuple(int(c) for c in counts), _BLOCK)


def _error(tolerance: float | None, cell: float) -> float:
    """The flatness tolerance for merging cells, in cells."""
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


def _surface(space: Space, faces: Faces, error: float, sharp: bool, progress: Progress) -> tuple[Points, Indices]:
    """Vertices in the part's coordinates, and triangles."""
    crossings = find_crossings(space, faces)
    progress("joining cells", 0.7)
    planes = planes_around(faces, crossings)
    tree = join_vertices(faces, planes, error=error, sharp=sharp)

    def position_some(vertices: Indices) -> VertexPositions:
        return place_vertices(space, faces, crossings, vertices, planes(vertices), sharp)

    progress("cutting faces", 0.9)
    vertices, triangles = triangles_of(position_some, space, faces, crossings, tree, error, sharp)
    return space.outside(vertices), triangles


def _crossed_cells(
    part: Part, lattice: Lattice, pruned: PrunedBlocks, most_triangles: int, progress: Progress
) -> CrossedCells:
    side, blocks = np.arange(_BLOCK + 1), pruned.crossed
    triangles = 0
    kept_cells, kept_codes = [np.empty((0, 3), np.int32)], [np.empty(0, np.uint8)]
    for at in range(0, len(blocks), _CHUNK):
        some = slice(at, at + _CHUNK)
        first = (blocks[some] * _BLOCK).astype(np.int32)  # a lattice has no more than that along an axis
        positions = lattice.origin + (first[:, None, :] + side[None, :, None]) * lattice.cell
        shape = (len(first), _BLOCK + 1, _BLOCK + 1, _BLOCK + 1)
        x, y, z = (
            np.broadcast_to(positions[:, :, axis].astype(part.element.dtype).reshape(extents), shape).reshape(-1)
            for axis, extents in enumerate(((-1, _BLOCK + 1, 1, 1), (-1, 1, _BLOCK + 1, 1), (-1, 1, 1, _BLOCK + 1)))
        )
        masks = None if pruned.masks is None else repeat_masks(pruned.masks[:, some], (_BLOCK + 1) ** 3)
        inside = is_inside(part.function, part.arguments, (x, y, z), masks).reshape(shape).view(np.uint8)
        code = inside[..., :-1] | inside[..., 1:] << np.uint8(1)
        code = code[:, :, :-1] | code[:, :, 1:] << np.uint8(2)
        code = code[:, :-1] | code[:, 1:] << np.uint8(4)
        where = np.flatnonzero((code != 0) & (code != 255))
        block, *offsets = np.unravel_index(where, code.shape)
        kept_cells.append(first[block] + np.stack(offsets, -1).astype(np.int32))
        kept_codes.append(code.reshape(-1)[where])
        triangles += 2 * len(where)
        if triangles > most_triangles:
            raise AssemblyError(
                f"the mesh would have more than {most_triangles:,} triangles",
                where=caller_origin(),
                help="use a larger feature_size, or raise most_triangles",
            )
        progress("looking for the surface", 0.1 + 0.5 * (at + len(first)) / max(len(blocks), 1))
    return CrossedCells(np.concatenate(kept_cells), np.concatenate(kept_codes))
