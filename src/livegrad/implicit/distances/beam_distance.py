"""Signed distances to beam lattices in the value IR, with a bounding volume hierarchy over beams and balls.

`to_ir` builds the tables of a lattice and the nodes that read them. A beam is a frustum with caps, as in the 3MF
specification: flat, a hemisphere, or a sphere, which protrudes from the side of a narrowing frustum.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from livegrad import ops
from livegrad.implicit.distances.bvh import (
    Point,
    build_boxes,
    count_leaves,
    distance_to_box,
    find_nearest,
    morton_order,
)
from livegrad.implicit.nodes.errors import AssemblyError
from livegrad.implicit.nodes.resources import CAPS, BeamLattice, require_representable
from livegrad.ir.leaves import constant
from livegrad.ir.node import Node
from livegrad.ir.types import Scalar, Tensor, i32
from livegrad.ops.aggregate import members_of
from livegrad.ops.rules import filled

_SPHERE, _HEMISPHERE, _BUTT = (float(CAPS.index(cap)) for cap in ("sphere", "hemisphere", "butt"))


@dataclass(frozen=True)
class BeamTables:
    """Beams as tensors: the boxes of their tree (`bvh`), and ten numbers per beam (ends, radii, caps)."""

    boxes: NDArray[np.floating]
    beams: NDArray[np.floating]

    def arrays(self) -> list[tuple[str, NDArray[np.generic]]]:
        return [(name, getattr(self, name)) for name in ("boxes", "beams")]

    @staticmethod
    def of(lattice: BeamLattice, element: Scalar) -> BeamTables:
        require_representable(lattice.vertices, element, "a beam lattice")
        ends, radii, caps = _collect_beams(lattice)
        if not len(ends):
            raise AssemblyError("a lattice without beams has no distance")
        order = morton_order(ends.mean(1))
        ends, radii, caps = ends[order], radii[order], caps[order]
        low, high = (ends - radii[:, :, None]).min(1), (ends + radii[:, :, None]).max(1)
        leaves = count_leaves(len(order))
        padded = np.minimum(np.arange(leaves), len(order) - 1)
        rows = np.concatenate([ends.reshape(-1, 6), radii, caps], axis=1)[padded]
        boxes = build_boxes(low, high).astype(element.dtype)
        return BeamTables(boxes, rows.astype(element.dtype))


def _collect_beams(lattice: BeamLattice) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """The ends, radii and caps of beams of at least the minimum length. A ball is a beam of length zero."""
    ends = lattice.vertices[lattice.beams]
    is_long = np.linalg.norm(ends[:, 1] - ends[:, 0], axis=-1) >= lattice.min_length
    centres = lattice.vertices[lattice.balls]
    caps = np.searchsorted(np.sort(CAPS), lattice.caps[is_long])
    codes = np.argsort(CAPS)[caps].astype(np.float64).reshape(-1, 2)
    return (
        np.concatenate([ends[is_long], np.stack([centres, centres], 1)]),
        np.concatenate([lattice.radii[is_long], np.stack([lattice.ball_radii] * 2, 1)]),
        np.concatenate([codes, np.full((len(centres), 2), _SPHERE)]),
    )


def beam_distance(position: Node, boxes: Node, beams: Node) -> Node:
    """The signed distance to the surface of the nearest beam."""
    type = beams.type
    assert isinstance(type, Tensor)
    x, y, z = members_of(position)
    detached = (ops.detach(x), ops.detach(y), ops.detach(z))
    nearest = find_nearest(
        int(type.shape[0]),  # type: ignore[arg-type]
        lambda node: distance_to_box(detached, boxes, node),
        lambda beam: _distance_to_beam(detached, beams, beam),
    )
    return _distance_to_beam((x, y, z), beams, nearest)


def _distance_to_beam(p: Point, beams: Node, beam: Node) -> Node:
    """The signed distance to the union of a frustum and its spherical caps, in the plane of the axis."""
    values = [ops.detach(ops.lookup(beams, beam, constant(index, i32))) for index in range(10)]
    start, end, radii, caps = values[:3], values[3:6], values[6:8], values[8:10]
    axis = ops.make_vector(*[b - a for a, b in zip(start, end, strict=True)])
    offset = ops.make_vector(*[value - a for value, a in zip(p, start, strict=True)])
    height = ops.length(axis)
    divisor = ops.select(height > 0.0, height, filled(1.0, height.type))
    axial = ops.dot(offset, axis) / divisor
    radial = ops.length(offset - ops.splat(axial / divisor, type=axis.type) * axis)
    end_distances = [ops.length(offset), ops.length(offset - axis)]
    balls = [end_distance - radius for end_distance, radius in zip(end_distances, radii, strict=True)]
    distance = _distance_to_frustum(radial, axial, divisor, radii, caps, balls)
    for ball, cap in zip(balls, caps, strict=True):
        distance = ops.select(cap < 0.5, ops.min(distance, ball), distance)
    return ops.select(height > 0.0, distance, ops.min(*balls))


def _distance_to_frustum(
    radial: Node, axial: Node, height: Node, radii: list[Node], caps: list[Node], balls: list[Node]
) -> Node:
    """The signed distance to a frustum with flat or hemispherical ends: to the nearest segment of its outline.

    `radial` and `axial` are the coordinates of the point, `balls` its distances to spheres around the ends.
    """
    first, second = radii
    radius_change = second - first
    length = ops.sqrt(height * height + radius_change * radius_change)
    radial_offset = radial - first
    side_distance = (radial_offset * height - axial * radius_change) / length  # signed, to the line through the side
    side_position = (radial_offset * radius_change + axial * height) / (length * length)
    rims = [
        _length(radial - radius, axial_offset)
        for radius, axial_offset in zip(radii, (axial, axial - height), strict=True)
    ]
    distance = ops.select(
        side_position < 0.0, rims[0], ops.select(side_position > 1.0, rims[1], _absolute(side_distance))
    )
    inside = (side_distance < 0.0) & (axial > 0.0) & (axial < height)
    for radius, cap, ball, rim, overshoot in zip(radii, caps, balls, rims, (-axial, axial - height), strict=True):
        butt = ops.select(radial < radius, _absolute(overshoot), rim)
        hemisphere = ops.select(overshoot > 0.0, _absolute(ball), rim)
        is_hemisphere = (cap > 0.5) & (cap < 1.5)
        distance = ops.min(distance, ops.select(is_hemisphere, hemisphere, butt))
        inside = inside | (is_hemisphere & (overshoot >= 0.0) & (ball < 0.0))
    return ops.select(inside, -distance, distance)


def _absolute(x: Node) -> Node:
    """|x| with a nonzero derivative at 0, so that the surface has a normal."""
    return ops.select(x < 0.0, -x, x)


def _length(x: Node, y: Node) -> Node:
    return ops.length(ops.make_vector(x, y, filled(0.0, x.type)))
