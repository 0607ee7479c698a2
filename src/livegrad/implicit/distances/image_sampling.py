"""Samples image stacks in the value IR, with the tile styles and the nearest and linear filters of 3MF.

`to_ir` builds the body of an `ImageFunction` with it. The samples are a tensor of shape (sheets, rows, columns, 4).
"""

from __future__ import annotations

from livegrad import ops
from livegrad.implicit.nodes.node_graph import ImageFunction
from livegrad.ir.leaves import constant
from livegrad.ir.node import Node
from livegrad.ir.types import Tensor, i32
from livegrad.ops.aggregate import members_of
from livegrad.ops.rules import filled

Axis = tuple[Node, Node, Node]  # the indices of two neighbouring samples, and the weight of the second


def sample_image(function: ImageFunction, position: Node, samples: Node) -> list[Node]:
    """The colour, red, green, blue and alpha of an image stack at coordinates from 0 to 1."""
    type = samples.type
    assert isinstance(type, Tensor)
    sheets, rows, columns, _ = (int(size) for size in type.shape)  # type: ignore[arg-type]
    u, v, w = members_of(position)
    u, v, w = (_apply_tile_style(c, style) for c, style in zip((u, v, w), function.tile_styles, strict=True))
    # Rows run from the back of the stack to its front, so v is 0 at the last row.
    dimensions = [(w, sheets, 2), (1.0 - v, rows, 1), (u, columns, 0)]
    if function.filter == "nearest":
        axes = [_nearest_sample(c, size) for c, size, _ in dimensions]
    else:
        axes = [_linear_neighbours(c, size, function.tile_styles[axis]) for c, size, axis in dimensions]
    zero, one = filled(0.0, u.type), filled(1.0, u.type)
    # Samples and their interpolations are between 0 and 1; the clamp makes that visible to interval bounds.
    sampled = [ops.clamp(_interpolate(samples, axes, channel), zero, one) for channel in range(4)]
    values = [sample * function.scale + function.offset for sample in sampled]
    return [ops.make_vector(*values[:3]), *values]


def _apply_tile_style(coordinate: Node, style: str) -> Node:
    """Maps a coordinate to the interval from 0 to 1 by its tile style."""
    if style == "wrap":
        return ops.fract(coordinate)
    if style == "mirror":
        return 1.0 - ops.abs(coordinate - 2.0 * ops.floor(coordinate * 0.5) - 1.0)
    return ops.clamp(coordinate, filled(0.0, coordinate.type), filled(1.0, coordinate.type))


def _to_index(integral: Node) -> Node:
    return ops.cast(integral, type=i32)


def _clamp_index(integral: Node, size: int) -> Node:
    """Clamps an integral float to valid indices; NaN becomes 0."""
    last = filled(float(size - 1), integral.type)
    return ops.min(ops.max(filled(0.0, integral.type), integral), last)


def _nearest_sample(coordinate: Node, size: int) -> Axis:
    """The sample whose cell contains the coordinate; on a border between cells, the lower index."""
    # ceil(x) - 1 is x - 1 on a border, where floor(x) is x.
    index = _to_index(_clamp_index(ops.ceil(ops.detach(coordinate) * float(size)) - 1.0, size))
    return index, index, filled(0.0, coordinate.type)


def _linear_neighbours(coordinate: Node, size: int, style: str) -> Axis:
    """The two neighbouring sample centres. Beyond the last sample, the tile style determines the neighbour."""
    scaled = coordinate * float(size) - 0.5
    first = ops.floor(scaled)
    weight = scaled - first
    low, high = ops.detach(first), ops.detach(first) + 1.0
    if style == "wrap":
        below = ops.select(low < 0.0, filled(float(size - 1), low.type), low)
        above = ops.select(high >= float(size), filled(0.0, high.type), high)
        return _to_index(_clamp_index(below, size)), _to_index(_clamp_index(above, size)), weight
    return _to_index(_clamp_index(low, size)), _to_index(_clamp_index(high, size)), weight


def _interpolate(samples: Node, axes: list[Axis], channel: int) -> Node:
    """Interpolates one channel linearly along each axis."""

    def read(*indices: Node) -> Node:
        return ops.lookup(samples, *indices, constant(channel, i32))

    def interpolate_from(axis: int, indices: tuple[Node, ...]) -> Node:
        if axis == len(axes):
            return read(*indices)
        low, high, weight = axes[axis]
        low_value = interpolate_from(axis + 1, (*indices, low))
        if low is high:
            return low_value
        return low_value + weight * (interpolate_from(axis + 1, (*indices, high)) - low_value)

    return interpolate_from(0, ())
