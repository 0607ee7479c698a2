"""Slices parts: closed contours at a height, and pictures of the cross section.

`slice_part` and `draw_plane` are public. Only blocks that the contour may cross are evaluated.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from xml.sax.saxutils import quoteattr

import numpy as np
from numpy.typing import NDArray

from livegrad.implicit.bodies.batches import run_in_batches
from livegrad.implicit.bodies.clipping import clip_and_fit, require_part
from livegrad.implicit.bodies.masking import is_inside, repeat_masks
from livegrad.implicit.bodies.part import Part
from livegrad.implicit.bodies.pruning import (
    IntervalBounds,
    Lattice,
    Progress,
    PrunedBlocks,
    find_blocks,
    ignore_progress,
)
from livegrad.implicit.meshing.feature_size import choose_cell_size, require_resolved
from livegrad.implicit.meshing.surface_points import compile_roots
from livegrad.implicit.meshing.thin_walls import find_cells, warn_about_losses
from livegrad.implicit.nodes.shape_arguments import finite_number

_BLOCK = 16
_PIXEL_BLOCK = 4  # side of a block of a picture
_CHUNK = 1 << 16
_MAX_BLOCKS = 1 << 17  # that a contour may cross; they are evaluated together
# The two triangles of a cell, by corner (2 * x + y), counterclockwise.
_TRIANGLES = ((0, 2, 3), (0, 3, 1))
_STEPS = np.array([(0, 0), (0, 1), (1, 0), (1, 1)])


@dataclass(frozen=True)
class Slice:
    """Closed contours at one height: arrays of shape (n, 2), each with the body on its left.

    >>> import livegrad as lg
    >>> ball = lg.shapes.sphere(1.0).part(((-1.5, -1.5, -1.5), (1.5, 1.5, 1.5)))
    >>> cut = lg.slice(ball, 0.0)
    >>> len(cut.contours), round(cut.area(), 2)
    (1, 3.14)
    """

    height: float
    contours: tuple[NDArray[np.float64], ...]
    low: NDArray[np.float64]
    high: NDArray[np.float64]

    def __repr__(self) -> str:
        return f"<slice at {self.height:g}: {len(self.contours)} contours, area {self.area():.6g}>"

    def to_svg(self, fill: str = "#1f497d") -> str:
        """Returns the contours as an SVG drawing in the units of the part, with y up."""
        low, size, top = self.low, self.high - self.low, self.high[1]
        outlines = []
        for contour in self.contours:
            points = " L".join(f"{x:.6g},{top - y:.6g}" for x, y in contour.tolist())
            outlines.append(f"M{points} Z")
        view = quoteattr(f"{low[0]:.6g} 0 {size[0]:.6g} {size[1]:.6g}")
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox={view}>\n'
            f'<path fill-rule="evenodd" fill={quoteattr(fill)} d={quoteattr(" ".join(outlines))}/>\n</svg>\n'
        )

    def _repr_svg_(self) -> str:
        return self.to_svg()

    def area(self) -> float:
        """The area of the body in the plane."""
        return float(
            sum(0.5 * (c[:, 0] * np.roll(c[:, 1], -1) - np.roll(c[:, 0], -1) * c[:, 1]).sum() for c in self.contours)
        )


def slice_part(
    part: Part, height: float, *, feature_size: float | None = None, progress: Progress = ignore_progress
) -> Slice:
    """Returns the contours of a part at z = `height`. They resolve features as large as `feature_size`.

    The default feature size is a fiftieth of the part, or less if its walls are thinner. A `PartWarning` reports a
    slice whose area differs from the area of the part, which is estimated by sampling.

    >>> from livegrad.implicit.nodes.assembly import Assembly
    >>> from livegrad.implicit.nodes.expression import add_expression
    >>> from livegrad.implicit.bodies.part import part_of_function
    >>> shapes = add_expression(Assembly(), "ball", "length(pos) - 1", {"pos": "vector"})
    >>> ball = part_of_function(shapes, "ball", ((-1, -1, -1), (1, 1, 1)))
    >>> round(slice_part(ball, 0.0).area(), 2)
    3.14
    """
    require_part(part)
    height = finite_number(height, "height")
    progress("compiling", 0.0)
    part = clip_and_fit(part)
    cell = choose_cell_size(part, feature_size)
    bounds = IntervalBounds(part.function, part.arguments, part.element.dtype, height)
    cells = find_cells(
        bounds,
        lambda points: part(np.insert(points, 2, height, axis=1)) < 0,
        lambda size: _make_lattice(part, size),
        cell,
        finer=feature_size is None,
        max_boxes=_MAX_BLOCKS,
    )
    lattice, blocks = cells.lattice, cells.blocks
    progress("following the contour", 0.4)
    starts, ends = _find_segments(part, lattice, blocks, height)
    if not len(starts) and part.low[2] <= height <= part.high[2]:
        require_resolved(part, bounds, part.low[:2], part.high[:2], float(lattice.cell[0]))
    keys, point_indices = np.unique(np.concatenate([starts, ends]), return_inverse=True)
    points = _locate_crossings(part, lattice, keys, height)
    progress("joining segments", 0.9)
    loops = _join_loops(point_indices[: len(starts)], point_indices[len(starts) :], len(keys))
    progress("done", 1.0)
    contours = Slice(float(height), tuple(points[loop] for loop in loops), part.low[:2].copy(), part.high[:2].copy())
    warn_about_losses("slice", "an area of", contours.area(), cells)
    return contours


def _make_lattice(part: Part, cell: float) -> Lattice:
    counts = np.ceil((part.high[:2] - part.low[:2]) / cell).astype(np.int64) + 2
    return Lattice(part.low[:2] - 0.75 * cell, np.full(2, cell), tuple(int(c) for c in counts), _BLOCK)


def _find_segments(
    part: Part, lattice: Lattice, pruned: PrunedBlocks, height: float
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The segments of contours in triangles, as the keys of the lattice edges where they start and end."""
    blocks, side = pruned.crossed, np.arange(_BLOCK + 1)
    steps = np.stack(np.meshgrid(side, side, indexing="ij"), -1).reshape(-1, 2)
    index = (blocks[:, None] * _BLOCK + steps).reshape(-1, 2)
    points = lattice.origin + index * lattice.cell
    x, y = (np.ascontiguousarray(points[:, axis], part.element.dtype) for axis in range(2))
    masks = None if pruned.masks is None else repeat_masks(pruned.masks, (_BLOCK + 1) ** 2)
    signs = is_inside(part.function, part.arguments, (x, y, np.full_like(x, height)), masks)
    signs = signs.reshape(-1, _BLOCK + 1, _BLOCK + 1)
    corners = np.stack([signs[:, i : i + _BLOCK, j : j + _BLOCK] for i, j in _STEPS], -1)
    count = corners.sum(-1)
    block, column, row = np.nonzero((count > 0) & (count < 4))
    inside = corners[block, column, row]
    cells = blocks[block] * _BLOCK + np.stack([column, row], -1)
    base = cells[:, 0] * (_points_per_column(lattice)) + cells[:, 1]
    offsets = _STEPS @ np.array([_points_per_column(lattice), 1])
    starts, ends = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for triangle in _TRIANGLES:
        for rotation in range(3):
            a, b, c = (triangle[(rotation + offset) % 3] for offset in range(3))
            # One corner inside: a segment between the two edges at that corner, which is on its left.
            one_inside = inside[:, a] & ~inside[:, b] & ~inside[:, c]
            starts.append(_edge_key(base[one_inside], offsets, a, b))
            ends.append(_edge_key(base[one_inside], offsets, a, c))
            two_inside = ~inside[:, a] & inside[:, b] & inside[:, c]
            starts.append(_edge_key(base[two_inside], offsets, a, c))
            ends.append(_edge_key(base[two_inside], offsets, a, b))
    return np.concatenate(starts), np.concatenate(ends)


def _points_per_column(lattice: Lattice) -> int:
    """The number of lattice points in a column."""
    return int(lattice.blocks[1]) * lattice.block + 1


def _edge_key(base: NDArray[np.int64], offsets: NDArray[np.int64], first: int, second: int) -> NDArray[np.int64]:
    low_corner, high_corner = sorted((first, second))
    return (base + offsets[low_corner]) * 4 + (high_corner - low_corner)


def _locate_crossings(part: Part, lattice: Lattice, keys: NDArray[np.int64], height: float) -> NDArray[np.float64]:
    """Where the surface crosses lattice edges, given by key."""
    corner, direction = keys // 4, keys % 4
    width = _points_per_column(lattice)
    start = lattice.origin + np.stack([corner // width, corner % width], -1) * lattice.cell
    step = _STEPS[direction] * lattice.cell
    dtype = part.element.dtype
    level = np.full(len(keys), height, dtype)
    sides = [
        *(np.ascontiguousarray(start[:, axis], dtype) for axis in range(2)),
        level,
        *(np.ascontiguousarray((start + step)[:, axis], dtype) for axis in range(2)),
        level,
    ]
    fraction = run_in_batches(compile_roots(part.function), sides, part.arguments).astype(np.float64)
    return start + step * np.clip(fraction, 1e-3, 1.0 - 1e-3)[:, None]


def _join_loops(starts: NDArray[np.int64], ends: NDArray[np.int64], point_count: int) -> list[NDArray[np.int64]]:
    """Joins segments to loops. Every point ends one segment and starts another."""
    next_points = np.full(point_count, -1, np.int64)
    next_points[starts] = ends
    successors = next_points.tolist()
    loops = []
    for first in range(point_count):
        if successors[first] < 0:
            continue
        loop, point = [], first
        while successors[point] >= 0:
            loop.append(point)
            successors[point], point = -1, successors[point]
        loops.append(np.array(loop))
    return loops


def draw_plane(part: Part, height: float = 0.0, *, size: int = 1024, pruned: bool = True) -> NDArray[np.bool_]:
    """Draws a cross section: True inside the part, `size` pixels along the longer side, y up.

    `pruned=False` evaluates every pixel, with the same result.

    >>> import livegrad as lg
    >>> ball = lg.shapes.sphere(1.0).part(((-1.5, -1.5, -1.5), (1.5, 1.5, 1.5)))
    >>> picture = draw_plane(ball, size=32)
    >>> picture.shape, bool(picture[16, 16]), bool(picture[0, 0])
    ((32, 32), True, False)
    """
    extent = part.high[:2] - part.low[:2]
    counts = np.maximum(np.rint(extent / extent.max() * size).astype(int), 1)
    axes = [np.linspace(part.low[axis], part.high[axis], counts[axis]).astype(part.element.dtype) for axis in range(2)]
    if not pruned:
        x, y = (np.ascontiguousarray(grid.reshape(-1)) for grid in np.meshgrid(*axes, indexing="ij"))
        filled = part.evaluate(x, y, np.full_like(x, height)) < 0
        return filled.reshape(counts[0], counts[1]).T[::-1]
    lattice = _Pixels(np.zeros(2), np.ones(2), (int(counts[0]), int(counts[1])), _PIXEL_BLOCK, tuple(axes))
    blocks = find_blocks(IntervalBounds(part.function, part.arguments, part.element.dtype, height), lattice)
    filled = _flag_inside_blocks(blocks, lattice)
    columns, rows = filled.shape
    # Four pixels are written as one 32-bit integer.
    packed = (filled * np.uint32(0x01010101)).view(bool)[:, None]
    picture = np.broadcast_to(packed, (columns, _PIXEL_BLOCK, rows * _PIXEL_BLOCK)).reshape(columns * _PIXEL_BLOCK, -1)
    _fill_crossed_blocks(part, picture, axes, blocks, height)
    return picture[: counts[0], : counts[1]].T[::-1]


@dataclass(frozen=True)
class _Pixels(Lattice):
    """A lattice of pixels with explicit coordinates. A block ends at its last pixel, not at the next block."""

    axes: tuple[NDArray[Any], ...]

    def ends(self, axis: int) -> tuple[NDArray[Any], NDArray[Any]]:
        starts = np.arange(self.blocks[axis] + 1) * self.block
        return tuple(np.take(self.axes[axis], indices, mode="clip") for indices in (starts, starts - 1))  # type: ignore[return-value]


def _flag_inside_blocks(blocks: PrunedBlocks, lattice: Lattice) -> NDArray[np.bool_]:
    """Flags the blocks that are certainly inside, from large boxes to small boxes, each level twice as fine."""
    boxes = {side: first for first, side in blocks.inside}
    side = max(boxes, default=1)
    inside = np.zeros(tuple(-(-lattice.blocks // side)), bool)
    while True:
        if side in boxes:
            column, row = (boxes[side] // side).T
            inside[column, row] = True
        if side == 1:
            return inside
        side //= 2
        columns, rows = -(-lattice.blocks // side)
        inside = inside.repeat(2, 0).repeat(2, 1)[:columns, :rows]


def _fill_crossed_blocks(
    part: Part, picture: NDArray[np.bool_], axes: list[NDArray[Any]], blocks: PrunedBlocks, height: float
) -> None:
    """Evaluates the pixels of crossed blocks. Blocks are evaluated completely, even if they are partly visible."""
    side = np.arange(_PIXEL_BLOCK)
    packed = picture.view(np.uint32)
    for start in range(0, len(blocks.crossed), _CHUNK):
        rows = slice(start, start + _CHUNK)
        column, row = blocks.crossed[rows].T
        columns = column[:, None] * _PIXEL_BLOCK + side
        x = np.repeat(np.take(axes[0], columns, mode="clip"), _PIXEL_BLOCK)
        y = np.repeat(np.take(axes[1], row[:, None] * _PIXEL_BLOCK + side, mode="clip"), _PIXEL_BLOCK, axis=0).reshape(
            -1
        )
        masks = None if blocks.masks is None else repeat_masks(blocks.masks[:, rows], _PIXEL_BLOCK * _PIXEL_BLOCK)
        values = is_inside(part.function, part.arguments, (x, y, np.full_like(x, height)), masks)
        packed[columns, row[:, None]] = values.reshape(-1, _PIXEL_BLOCK).view(np.uint32).reshape(-1, _PIXEL_BLOCK)
