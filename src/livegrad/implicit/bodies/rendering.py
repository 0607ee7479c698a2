"""Renders parts by ray casting: the first surface behind each pixel, shaded with its exact normal.

`render` is public. The view is a lattice of cubes as wide as a pixel. Cubes that no surface can cross are never
evaluated, and a new view or new parameter values compile nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from livegrad.diagnostics import caller_origin
from livegrad.implicit.bodies.clipping import clip_and_fit
from livegrad.implicit.bodies.masking import Masks, repeat_masks, surface_normals
from livegrad.implicit.bodies.part import Part
from livegrad.implicit.bodies.pruning import (
    CoordinateSystem,
    IntervalBounds,
    Lattice,
    Progress,
    PrunedBlocks,
    find_blocks,
    ignore_progress,
)
from livegrad.implicit.bodies.ray_hits import Hits, bisect, find_hits, find_visible_blocks, read_masks
from livegrad.implicit.nodes.errors import AssemblyError
from livegrad.implicit.nodes.shape_arguments import unit_vector

_BLOCK = 4
_BACKGROUND = (0.96, 0.965, 0.975)
_DEFAULT_COLOR = (0.93, 0.66, 0.28)


def render(
    part: Part,
    *,
    size: tuple[int, int] = (512, 512),
    direction: Any = (-0.6, 0.75, -0.5),
    color: Any = _DEFAULT_COLOR,
    background: Any = _BACKGROUND,
    oversample: int = 1,
    progress: Progress = ignore_progress,
) -> NDArray[np.float64]:
    """Draws a part; returns an array of shape (height, width, 3) with values from 0 to 1.

    The view is an orthographic projection along `direction`, with z up. The colours of the part, if any, replace
    `color`. `oversample=n` averages n × n samples per pixel for smooth edges, and takes about n² times as long.

    >>> from livegrad.implicit.nodes.assembly import Assembly
    >>> from livegrad.implicit.nodes.expression import add_expression
    >>> from livegrad.implicit.bodies.part import part_of_function
    >>> shapes = add_expression(Assembly(), "ball", "length(pos) - 1", {"pos": "vector"})
    >>> ball = part_of_function(shapes, "ball", ((-1, -1, -1), (1, 1, 1)))
    >>> render(ball, size=(32, 24)).shape
    (24, 32, 3)
    """
    width, height = _check_size(size, oversample)
    progress("compiling", 0.0)
    part = clip_and_fit(part)
    view_axes = _view_axes(direction)
    centre = (part.low + part.high) / 2
    corners = _corners(part) - centre
    half_extent = np.abs(corners @ view_axes.T).max(0)
    pixel = float(max(2 * half_extent[0] / width, 2 * half_extent[1] / height)) * 1.05
    depth = int(np.ceil(2 * half_extent[2] / pixel)) + 2
    origin = np.array([-(width - 1) / 2 * pixel, -(height - 1) / 2 * pixel, -half_extent[2] - pixel])
    lattice = Lattice(origin, np.full(3, pixel), (width, height, depth), _BLOCK)
    bounds = IntervalBounds(part.function, part.arguments, part.element.dtype, view=CoordinateSystem(view_axes, centre))
    blocks, hits = _find_surface(bounds, lattice, progress)
    progress("shading", 0.9)
    colors = np.asarray(color, float), np.asarray(background, float)
    picture = _shade(part, bounds, view_axes, lattice, blocks, hits, *colors)
    progress("done", 1.0)
    if oversample == 1:
        return picture
    return picture.reshape(height // oversample, oversample, width // oversample, oversample, 3).mean((1, 3))


def _check_size(size: Any, oversample: Any) -> tuple[int, int]:
    """Validates the size; returns the width and height in samples."""
    values: list[Any] = [*size, oversample] if isinstance(size, tuple | list) else []
    limit = 1 << 14
    is_valid = len(values) == 3 and all(isinstance(value, int | np.integer) and value > 0 for value in values)
    if not is_valid or max(values[:2]) * oversample > limit:
        raise AssemblyError(
            "invalid picture size",
            where=caller_origin(),
            expected=f"two integers, times oversample up to {limit}",
            found=f"{size!r}, oversample {oversample!r}",
        )
    width, height, scale = map(int, values)
    return width * scale, height * scale


def _view_axes(direction: Any) -> NDArray[np.float64]:
    """The axes of the view as rows: right, up and forward."""
    forward = unit_vector(direction, "a direction")
    upwards = np.array([0.0, 0, 1]) if abs(forward[2]) < 0.99 else np.array([0.0, 1, 0])
    right = np.cross(forward, upwards)
    right /= np.linalg.norm(right)
    return np.stack([right, np.cross(right, forward), forward])


def _corners(part: Part) -> NDArray[np.float64]:
    ends = np.stack([part.low, part.high])
    return np.array([[ends[i, 0], ends[j, 1], ends[k, 2]] for i in (0, 1) for j in (0, 1) for k in (0, 1)])


def _find_surface(bounds: IntervalBounds, lattice: Lattice, progress: Progress) -> tuple[PrunedBlocks, Hits]:
    """The blocks that a surface may cross, and the interval with the first hit of each pixel."""
    blocks = find_blocks(bounds, lattice)
    first = _find_inside_blocks(blocks, lattice)
    order = np.argsort(blocks.crossed[:, 2], kind="stable")
    crossed = blocks.crossed[order] * _BLOCK
    for start in range(0, len(crossed), 1 << 14):
        # Blocks are sorted from front to back, so hidden blocks can be skipped.
        rows = start + find_visible_blocks(lattice, crossed[start : start + (1 << 14)], first)
        masks = None if blocks.masks is None else blocks.masks[:, order[rows]]
        _sample_blocks(bounds, lattice, crossed[rows], masks, first)
        progress("looking for the surface", 0.1 + 0.8 * min(1.0, (start + (1 << 14)) / len(crossed)))
    return blocks, find_hits(bounds, lattice, blocks, first)


def _sample_blocks(
    bounds: IntervalBounds, lattice: Lattice, corners: NDArray[np.int64], masks: Masks | None, first: NDArray[np.int64]
) -> None:
    """Samples blocks and lowers `first`, the layer of the first sample inside, for their pixels.

    `corners` are the first cells of the blocks.
    """
    width, height, _ = lattice.shape
    steps = np.arange(_BLOCK)
    shape = (len(corners), _BLOCK, _BLOCK)
    column = np.broadcast_to(corners[:, 0, None, None] + steps[:, None], shape)
    row = np.broadcast_to(corners[:, 1, None, None] + steps, shape)
    layer = corners[:, 2, None] + steps
    visible = (column < width) & (row < height)
    pixel = np.where(visible, column * height + row, 0)
    flat_first = first.reshape(-1)
    current = np.where(visible, flat_first[pixel], 0)
    undecided = np.flatnonzero(layer[:, None, None, :] < current[..., None])
    offsets = np.stack(np.meshgrid(*[steps] * 3, indexing="ij")).reshape(3, -1)
    positions = [
        (lattice.origin[axis] + (corners[:, axis, None] + offsets[axis]) * lattice.cell[axis]).reshape(-1)[undecided]
        for axis in range(3)
    ]
    sample_masks = None if masks is None else repeat_masks(masks, _BLOCK**3)[:, undecided]
    inside = np.zeros(len(corners) * _BLOCK**3, bool)
    inside[undecided] = bounds.is_inside(positions, sample_masks)
    inside = inside.reshape(*shape, _BLOCK)
    hit_columns = np.nonzero(inside.any(-1))
    np.minimum.at(flat_first, pixel[hit_columns], corners[hit_columns[0], 2] + inside[hit_columns].argmax(-1))


def _find_inside_blocks(blocks: PrunedBlocks, lattice: Lattice) -> NDArray[np.int64]:
    """For each pixel, the start of the first box that is certainly inside, or the depth if there is none.

    Boxes are processed from large to small; each level is twice as fine as the one before.
    """
    width, height, depth = lattice.shape
    boxes = {side: first for first, side in blocks.inside}
    side = max(boxes, default=1)
    first = np.full(tuple(-(-lattice.blocks[:2] // side)), depth, np.int64)
    while True:
        if side in boxes:
            column, row, layer = boxes[side].T
            np.minimum.at(first, (column // side, row // side), layer * _BLOCK)
        if side == 1:
            return np.ascontiguousarray(first.repeat(_BLOCK, 0).repeat(_BLOCK, 1)[:width, :height])
        side //= 2
        columns, rows = -(-lattice.blocks[:2] // side)
        first = first.repeat(2, 0).repeat(2, 1)[:columns, :rows]


def _shade(
    part: Part,
    bounds: IntervalBounds,
    view_axes: NDArray[np.float64],
    lattice: Lattice,
    blocks: PrunedBlocks,
    hits: Hits,
    color: NDArray[np.float64],
    background: NDArray[np.float64],
) -> NDArray[np.float64]:
    width, height, depth = lattice.shape
    picture = np.broadcast_to(background, (width, height, 3)).copy()
    column, row = np.nonzero(hits.back < depth)
    if len(column):
        front, back = (
            lattice.origin + np.stack([column, row, layer[column, row]], -1) * lattice.cell
            for layer in (hits.front, hits.back)
        )
        masks = read_masks(lattice, blocks, column, row, hits.front[column, row])
        positions = front + (back - front) * bisect(bounds, front, back, masks)[:, None]
        coordinates = bounds.coordinates(list(positions.T))
        normals = surface_normals(part.function, part.arguments, coordinates, masks).astype(np.float64)
        part_colors = part.colors(np.stack(coordinates, -1))
        paint = color if part_colors is None else encode_srgb(part_colors.astype(np.float64))
        picture[column, row] = _light_surface(paint, normals, view_axes)
    return picture.transpose(1, 0, 2)[::-1]


def encode_srgb(linear: NDArray[np.float64]) -> NDArray[np.float64]:
    """Encodes linear colours as sRGB.

    >>> encode_srgb(np.array([0.0, 0.5, 1.0])).round(3)
    array([0.   , 0.735, 1.   ])
    """
    return np.where(linear <= 0.0031308, linear * 12.92, 1.055 * np.maximum(linear, 0.0031308) ** (1 / 2.4) - 0.055)


def _light_surface(
    paint: NDArray[np.float64], normals: NDArray[np.float64], view_axes: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Shades surface points: a key light from the upper left, a fill light from the right, ambient and rim light."""
    right, up, forward = view_axes
    key_direction = -forward * 0.7 + up * 0.6 - right * 0.45
    fill_direction = -forward * 0.4 + right * 0.8
    key = np.clip(normals @ (key_direction / np.linalg.norm(key_direction)), 0, None)
    fill = np.clip(normals @ (fill_direction / np.linalg.norm(fill_direction)), 0, None)
    rim = 1.0 - np.clip(-(normals @ forward), 0, 1)
    shade = 0.22 + 0.68 * key + 0.16 * fill
    return np.clip(paint * shade[:, None] + 0.06 * rim[:, None] ** 2, 0.0, 1.0)
