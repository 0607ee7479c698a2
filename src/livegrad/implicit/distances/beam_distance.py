"""Distances to beam lattices in the value IR: the nearest beam or ball, found with a bounding volume hierarchy.

`to_ir` builds the tables of a lattice and the nodes that read them. A beam is a frustum with caps, as in the 3MF
specification: flat, a hemisphere, or a full sphere, which protrudes beside a narrowing frustum.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from livegrad import ops
from livegrad.implicit.distances.box_tree import (
    Point,
    along_curve,
    distance_to_box,
    find_nearest,
    leaves_for,
    tree_boxes,
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
    """Beams as tensors: the boxes of their tree (`box_tree`), and ten numbers per beam: ends, radii and caps."""

    boxes: NDArray[np.floating]
    beams: NDArray[np.floating]

    def arrays(self) -> list[tuple[str, NDArray[np.generic]]]:
        return [(name, getattr(self, name)) for name in ("boxes", "beams")]

    @staticmethod
    def of(lattice: BeamLattice, element: Scalar) -> BeamTables:
        require_representable(lattice.vertices, element, "a beam lattice")
        ends, radii, caps = _beams_and_balls(lattice)
        if not len(ends):
            raise AssemblyError("a lattice without beams has no distance")
        order = along_curve(ends.mean(1))
        ends, radii, caps = ends[order], radii[order], caps[order]
        low, high = (ends - radii[:, :, None]).min(1), (ends + radii[:, :, None]).max(1)
        leaves = leaves_for(len(order))
        padded = np.minimum(np.arange(leaves), len(order) - 1)
        rows = np.concatenate([ends.reshape(-1, 6), radii, caps], axis=1)[padded]
        boxes = tree_boxes(low, high).astype(element.dtype)
        return BeamTables(boxes, rows.astype(element.dtype))


def _beams_and_balls(lattice: BeamLattice) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """The ends, radii and caps of beams that are long enough. A ball is a beam of length zero."""
    ends = lattice.vertices[lattice.beams]
    long = np.linalg.norm(ends[:, 1] - ends[:, 0], axis=-1) >= lattice.min_length
    centres = lattice.vertices[lattice.balls]
    caps = np.searchsorted(np.sort(CAPS), lattice.caps[long])
    codes = np.argsort(CAPS)[caps].astype(np.float64).reshape(-1, 2)
    return (
        np.concatenate([ends[long], np.stack([centres, centres], 1)]),
        np.concatenate([lattice.radii[long], np.stack([lattice.ball_radii] * 2, 1)]),
        np.concatenate([codes, np.full((len(centres), 2), _SPHERE)]),
    )


def beam_distance(position: Node, boxes: Node, beams: Node) -> Node:
    """The distance to the surface of the nearest beam, negative inside of it."""
    type = beams.type
    assert isinstance(type, Tensor)
    x, y, z = members_of(position)
    still = (ops.detach(x), ops.detach(y), ops.detach(z))
    chosen = find_nearest(
        int(type.shape[0]),  # type: ignore[arg-type]
        lambda node: distance_to_box(still, boxes, node),
        lambda beam: _distance_to_beam(still, beams, beam),
    )
    return _distance_to_beam((x, y, z), beams, chosen)


def _distance_to_beam(p: Point, beams: Node, beam: Node) -> Node:
    """The union of a frustum and its spherical caps, in the plane of the axis."""
    values = [ops.detach(ops.lookup(beams, beam, constant(index, i32))) for index in range(10)]
    start, end, radii, caps = values[:3], values[3:6], values[6:8], values[8:10]
    axis = ops.make_vector(*[b - a for a, b in zip(start, end, strict=True)])
    offset = ops.make_vector(*[value - a for value, a in zip(p, start, strict=True)])
    height = ops.length(axis)
    whole = ops.select(height > 0.0, height, filled(1.0, height.type))
    along = ops.dot(offset, axis) / whole
    across = ops.length(offset - ops.splat(along / whole, type=axis.type) * axis)
    from_ends = [ops.length(offset), ops.length(offset - axis)]
    balls = [distance - radius for distance, radius in zip(from_ends, radii, strict=True)]
    nearest = _frustum(across, along, whole, radii, caps, balls)
    for ball, cap in zip(balls, caps, strict=True):
        nearest = ops.select(cap < 0.5, ops.min(nearest, ball), nearest)
    return ops.select(height > 0.0, nearest, ops.min(*balls))


def _frustum(across: Node, along: Node, height: Node, radii: list[Node], caps: list[Node], balls: list[Node]) -> Node:
    """The distance to a frustum with flat or hemispherical ends: to the nearest segment of its outline."""
    first, second = radii
    narrowing = second - first
    length = ops.sqrt(height * height + narrowing * narrowing)
    outside = across - first
    aside = (outside * height - along * narrowing) / length  # of the side's line
    share = (outside * narrowing + along * height) / (length * length)
    rims = [_length(across - radius, way) for radius, way in zip(radii, (along, along - height), strict=True)]
    side = ops.select(share < 0.0, rims[0], ops.select(share > 1.0, rims[1], _size(aside)))
    inside = (aside < 0.0) & (along > 0.0) & (along < height)
    for radius, cap, ball, rim, beyond in zip(radii, caps, balls, rims, (-along, along - height), strict=True):
        flat = ops.select(across < radius, _size(beyond), rim)
        half = ops.select(beyond > 0.0, _size(ball), rim)
        rounded = (cap > 0.5) & (cap < 1.5)
        side = ops.min(side, ops.select(rounded, half, flat))
        inside = inside | (rounded & (beyond >= 0.0) & (ball < 0.0))
    return ops.select(inside, -side, side)


def _size(x: Node) -> Node:
    """|x| with a nonzero derivative at 0, so that the surface has a normal."""
    return ops.select(x < 0.0, -x, x)


def _length(x: Node, y: Node) -> Node:
    return ops.length(ops.make_vector(x, y, filled(0.0, x.type)))
