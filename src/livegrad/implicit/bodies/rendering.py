"""Renders parts: the first surface behind each pixel, shaded by its exact normal.

`render` is public. The view is a lattice of cubes as wide as pixels. Cubes that no surface crosses are never evaluated,
and a new view or parameter compiles nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from livegrad.diagnostics import caller_origin
from livegrad.implicit.bodies.clipping import close_body
from livegrad.implicit.bodies.masking import Masks, spread, surface_normals
from livegrad.implicit.bodies.part import Part
from livegrad.implicit.bodies.pruning import Bounded, Lattice, Progress, PrunedBlocks, View, find_blocks, silent
from livegrad.implicit.bodies.thin_chords import Hits, bisect, look_between, masks_at, not_hidden
from livegrad.implicit.nodes.errors import AssemblyError
from livegrad.implicit.nodes.shape_arguments import unit_vector

_BLOCK = 4
_BACKGROUND = (0.96, 0.965, 0.975)
_PAINT = (0.93, 0.66, 0.28)


def render(
    part: Part,
    *,
    size: tuple[int, int] = (512, 512),
    direction: Any = (-0.6, 0.75, -0.5),
    color: Any = _PAINT,
    background: Any = _BACKGROUND,
    oversample: int = 1,
    progress: Progress = silent,
) -> NDArray[np.float64]:
    """Draws a part; returns an array of shape (height, width, 3) with values from 0 to 1.

    The view is an orthographic projection along `direction`, with z up. Colours of the part are shown. `oversample=n`
    averages n × n samples per pixel for smooth edges, and takes about n² times as long.

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
    part = close_body(part)
    frame = _view_axes(direction)
    centre = (part.low + part.high) / 2
    corners = _corners(part) - centre
    reach = np.abs(corners @ frame.T).max(0)
    pixel = float(max(2 * reach[0] / width, 2 * reach[1] / height)) * 1.05
    depth = int(np.ceil(2 * reach[2] / pixel)) + 2
    origin = np.array([-(width - 1) / 2 * pixel, -(height - 1) / 2 * pixel, -reach[2] - pixel])
    lattice = Lattice(origin, np.full(3, pixel), (width, height, depth), _BLOCK)
    bounds = Bounded(part.function, part.arguments, part.element.dtype, view=View(frame, centre))
    blocks, hit = _first_inside(bounds, lattice, progress)
    progress("shading", 0.9)
    colors = np.asarray(color, float), np.asarray(background, float)
    picture = _shade(part, bounds, frame, lattice, blocks, hit, *colors)
    progress("done", 1.0)
    if oversample == 1:
        return picture
    return picture.reshape(height // oversample, oversample, width // oversample, oversample, 3).mean((1, 3))


def _check_size(size: Any, oversample: Any) -> tuple[int, int]:
    """The width and height before oversampled pixels are averaged."""
    values: list[Any] = [*size, oversample] if isinstance(size, tuple | list) else []
    most = 1 << 14
    whole = len(values) == 3 and all(isinstance(value, int | np.integer) and value > 0 for value in values)
    if not whole or max(values[:2]) * oversample > most:
        raise AssemblyError(
            "invalid picture size",
            where=caller_origin(),
            expected=f"two integers, times oversample up to {most}",
            found=f"{size!r}, oversample {oversample!r}",
        )
    width, height, scale = map(int, values)
    return width * scale, height * scale


def _view_axes(direction: Any) -> NDArray[np.float64]:
    """Right, up and forward, as rows."""
    forward = unit_vector(direction, "a direction")
    upwards = np.array([0.0, 0, 1]) if abs(forward[2]) < 0.99 else np.array([0.0, 1, 0])
    right = np.cross(forward, upwards)
    right /= np.linalg.norm(right)
    return np.stack([right, np.cross(right, forward), forward])


def _corners(part: Part) -> NDArray[np.float64]:
    ends = np.stack([part.low, part.high])
    return np.array([[ends[i, 0], ends[j, 1], ends[k, 2]] for i in (0, 1) for j in (0, 1) for k in (0, 1)])


def _first_inside(bounds: Bounded, lattice: Lattice, progress: Progress) -> tuple[PrunedBlocks, Hits]:
    """The blocks that a surface may cross, and an interval with the first hit of each pixel's ray."""
    blocks = find_blocks(bounds, lattice)
    first = _first_block_inside(blocks, lattice)
    order = np.argsort(blocks.crossed[:, 2], kind="stable")
    crossed = blocks.crossed[order] * _BLOCK
    for at in range(0, len(crossed), 1 << 14):
        # Blocks are sorted from front to back, so hidden ones can be skipped.
        some = at + not_hidden(lattice, crossed[at : at + (1 << 14)], first)
        masks = None if blocks.masks is None else blocks.masks[:, order[some]]
        _look_into_blocks(bounds, lattice, crossed[some], masks, first)
        progress("looking for the surface", 0.1 + 0.8 * min(1.0, (at + (1 << 14)) / len(crossed)))
    return blocks, look_between(bounds, lattice, blocks, first)


def _look_into_blocks(
    bounds: Bounded, lattice: Lattice, corners: NDArray[np.int64], masks: Masks | None, first: NDArray[np.int64]
) -> None:
    """Writes the layer of the first sample inside to `first`, for all pixels of blocks. `corners` are first cells."""
    width, height, _ = lattice.shape
    steps = np.arange(_BLOCK)
    shape = (len(corners), _BLOCK, _BLOCK)
    column = np.broadcast_to(corners[:, 0, None, None] + steps[:, None], shape)
    row = np.broadcast_to(corners[:, 1, None, None] + steps, shape)
    layer = corners[:, 2, None] + steps
    visible = (column < width) & (row < height)
    pixel = np.where(visible, column * height + row, 0)
    flat = first.reshape(-1)
    before = np.where(visible, flat[pixel], 0)
    seen = np.flatnonzero(layer[:, None, None, :] < before[..., None])
    offsets = np.stack(np.meshgrid(*[steps] * 3, indexing="ij")).reshape(3, -1)
    positions = [
        (lattice.origin[axis] + (corners[:, axis, None] + offsets[axis]) * lattice.cell[axis]).reshape(-1)[seen]
        for axis in range(3)
    ]
    sample_masks = None if masks is None else spread(masks, _BLOCK**3)[:, seen]
    inside = np.zeros(len(corners) * _BLOCK**3, bool)
    inside[seen] = bounds.is_inside(positions, sample_masks)
    inside = inside.reshape(*shape, _BLOCK)
    hit = np.nonzero(inside.any(-1))
    np.minimum.at(flat, pixel[hit], corners[hit[0], 2] + inside[hit].argmax(-1))


def _first_block_inside(blocks: PrunedBlocks, lattice: Lattice) -> NDArray[np.int64]:
    """For each pixel, the start of the first box that is certainly inside, or the depth if there is none.

    From large boxes to small ones, each level twice as fine.
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
    bounds: Bounded,
    frame: NDArray[np.float64],
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
        masks = masks_at(lattice, blocks, column, row, hits.front[column, row])
        positions = front + (back - front) * bisect(bounds, front, back, masks)[:, None]
        coordinates = bounds.coordinates(list(positions.T))
        normals = surface_normals(part.function, part.arguments, coordinates, masks).astype(np.float64)
        painted = part.colors(np.stack(coordinates, -1))
        paint = color if painted is None else encode_srgb(painted.astype(np.float64))
        picture[column, row] = _light(paint, normals, frame)
    return picture.transpose(1, 0, 2)[::-1]


def encode_srgb(linear: NDArray[np.float64]) -> NDArray[np.float64]:
    """Encodes linear colours as sRGB.

    >>> encode_srgb(np.array([0.0, 0.5, 1.0])).round(3)
    array([0.   , 0.735, 1.   ])
    """
    return np.where(linear <= 0.0031308, linear * 12.92, 1.055 * np.maximum(linear, 0.0031308) ** (1 / 2.4) - 0.055)


def _light(paint: NDArray[np.float64], normals: NDArray[np.float64], frame: NDArray[np.float64]) -> NDArray[np.float64]:
    """A key light from the upper left, a weaker light from the right, and ambient light."""
    right, up, forward = frame
    light = -forward * 0.7 + up * 0.6 - right * 0.45
    fill = -forward * 0.4 + right * 0.8
    main = np.clip(normals @ (light / np.linalg.norm(light)), 0, None)
    side = np.clip(normals @ (fill / np.linalg.norm(fill)), 0, None)
    glance = 1.0 - np.clip(-(normals @ forward), 0, 1)
    shade = 0.22 + 0.68 * main + 0.16 * side
    return np.clip(paint * shade[:, None] + 0.06 * glance[:, None] ** 2, 0.0, 1.0)
