"""Samples image stacks in the value IR: tile styles, nearest and trilinear filters, as the 3MF specification defines
them.

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

Axis = tuple[Node, Node, Node]  # the two neighbouring samples, and the share of the second


def sample_image(function: ImageFunction, position: Node, samples: Node) -> list[Node]:
    """Colour, red, green, blue and alpha at coordinates from 0 to 1."""
    type = samples.type
    assert isinstance(type, Tensor)
    sheets, rows, columns, _ = (int(size) for size in type.shape)  # type: ignore[arg-type]
    u, v, w = members_of(position)
    u, v, w = (_tile(c, style) for c, style in zip((u, v, w), function.tile_styles, strict=True))
    # Rows run from the back of the stack to its front, so v is 0 at the last row.
    dimensions = [(w, sheets, 2), (1.0 - v, rows, 1), (u, columns, 0)]
    if function.filter == "nearest":
        axes = [_nearest(c, size) for c, size, _ in dimensions]
    else:
        axes = [_linear(c, size, function.tile_styles[axis]) for c, size, axis in dimensions]
    nothing, one = filled(0.0, u.type), filled(1.0, u.type)
    # Samples and their interpolations are between 0 and 1. The clamp tells interval bounds so.
    sampled = [ops.clamp(_interpolate(samples, axes, channel), nothing, one) for channel in range(4)]
    values = [sample * function.scale + function.offset for sample in sampled]
    return [ops.make_vector(*values[:3]), *values]


def _tile(coordinate: Node, style: str) -> Node:
    """Maps a coordinate to the interval from 0 to 1."""
    if style == "wrap":
        return ops.fract(coordinate)
    if style == "mirror":
        return 1.0 - ops.abs(coordinate - 2.0 * ops.floor(coordinate * 0.5) - 1.0)
    return ops.clamp(coordinate, filled(0.0, coordinate.type), filled(1.0, coordinate.type))


def _index(whole: Node) -> Node:
    return ops.cast(whole, type=i32)


def _clamp_index(whole: Node, size: int) -> Node:
    """Clamps an integral float to valid indices; NaN becomes 0."""
    last = filled(float(size - 1), whole.type)
    return ops.min(ops.max(filled(0.0, whole.type), whole), last)


def _nearest(coordinate: Node, size: int) -> Axis:
    """The sample whose cell contains the coordinate; on a border, the one with the lower index."""
    # ceil(x) - 1 is x - 1 on a border, where floor(x) is x.
    index = _index(_clamp_index(ops.ceil(ops.detach(coordinate) * float(size)) - 1.0, size))
    return index, index, filled(0.0, coordinate.type)


def _linear(coordinate: Node, size: int, style: str) -> Axis:
    """The neighbouring sample centres. Beyond the last one, the tile style determines the next."""
    scaled = coordinate * float(size) - 0.5
    first = ops.floor(scaled)
    share = scaled - first
    low, high = ops.detach(first), ops.detach(first) + 1.0
    if style == "wrap":
        below = ops.select(low < 0.0, filled(float(size - 1), low.type), low)
        above = ops.select(high >= float(size), filled(0.0, high.type), high)
        return _index(_clamp_index(below, size)), _index(_clamp_index(above, size)), share
    return _index(_clamp_index(low, size)), _index(_clamp_index(high, size)), share


def _interpolate(samples: Node, axes: list[Axis], channel: int) -> Node:
    def read(*indices: Node) -> Node:
        return ops.lookup(samples, *indices, constant(channel, i32))

    def along(axis: int, chosen: tuple[Node, ...]) -> Node:
        if axis == len(axes):
            return read(*chosen)
        low, high, share = axes[axis]
        first = along(axis + 1, (*chosen, low))
        if low is high:
            return first
        return first + share * (along(axis + 1, (*chosen, high)) - first)

    return along(0, ())
