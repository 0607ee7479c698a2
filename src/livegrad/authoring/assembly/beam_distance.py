"""Distances to beam lattices in the value IR: the nearest of all round cones, found in a tree of boxes around them.

`to_ir` makes the tables of a lattice and the nodes that read them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from livegrad import ops
from livegrad.authoring.assembly.box_tree import (
    Point,
    along_curve,
    distance_to_box,
    find_nearest,
    leaves_for,
    tree_boxes,
    tree_skips,
)
from livegrad.authoring.assembly.errors import AssemblyError
from livegrad.authoring.assembly.resources import BeamLattice, require_reach
from livegrad.ir.leaves import constant
from livegrad.ir.node import Node
from livegrad.ir.types import Scalar, Tensor, i32
from livegrad.ops.aggregate import members_of
from livegrad.ops.rules import filled


@dataclass(frozen=True)
class BeamTables:
    """Beams as tensors: boxes of a tree over them (`box_tree`), and eight numbers each, both ends and both radii."""

    boxes: NDArray[np.floating]
    skips: NDArray[np.int32]
    beams: NDArray[np.floating]

    def arrays(self) -> list[tuple[str, NDArray[np.generic]]]:
        return [(name, getattr(self, name)) for name in ("boxes", "skips", "beams")]

    @staticmethod
    def of(lattice: BeamLattice, element: Scalar) -> BeamTables:
        if not len(lattice.beams):
            raise AssemblyError("a lattice without beams has no distance")
        require_reach(lattice.vertices, element, "a beam lattice")
        ends = lattice.vertices[lattice.beams]
        order = along_curve(ends.mean(1))
        ends, radii = ends[order], lattice.radii[order]
        low, high = (ends - radii[:, :, None]).min(1), (ends + radii[:, :, None]).max(1)
        leaves = leaves_for(len(order))
        padded = np.minimum(np.arange(leaves), len(order) - 1)
        rows = np.concatenate([ends.reshape(-1, 6), radii], axis=1)[padded]
        boxes = tree_boxes(low, high).astype(element.dtype)
        return BeamTables(boxes, tree_skips(leaves), rows.astype(element.dtype))


def beam_distance(position: Node, boxes: Node, skips: Node, beams: Node) -> Node:
    """The distance to the surface of the nearest beam, negative inside of it."""
    type = beams.type
    assert isinstance(type, Tensor)
    x, y, z = members_of(position)
    still = (ops.detach(x), ops.detach(y), ops.detach(z))
    chosen = find_nearest(
        int(type.shape[0]),  # type: ignore[arg-type]
        skips,
        lambda node: distance_to_box(still, boxes, node),
        lambda beam: _cone_distance(still, beams, beam),
    )
    return _cone_distance((x, y, z), beams, chosen)


def _cone_distance(p: Point, beams: Node, beam: Node) -> Node:
    """A cone between two spheres, seen in the plane of its axis: by which of the three is nearest."""
    values = [ops.detach(ops.lookup(beams, beam, constant(index, i32))) for index in range(8)]
    start, end, first, second = values[:3], values[3:6], values[6], values[7]
    axis = ops.make_vector(*[b - a for a, b in zip(start, end, strict=True)])
    offset = ops.make_vector(*[value - a for value, a in zip(p, start, strict=True)])
    height = ops.length(axis)
    one = filled(1.0, height.type)
    whole = ops.select(height > 0.0, height, one)
    along = ops.dot(offset, axis) / whole
    across = ops.length(offset - ops.splat(along / whole, type=axis.type) * axis)
    slope = (first - second) / whole
    sine = ops.clamp(slope, -one, one)
    cosine = ops.sqrt(one - sine * sine)
    turn = across * -sine + along * cosine
    to_first, to_second = ops.length(offset) - first, ops.length(offset - axis) - second
    on_cone = across * cosine + along * sine - first
    between = ops.select(turn < 0.0, to_first, ops.select(turn > cosine * height, to_second, on_cone))
    # One sphere inside the other, or both at one place: the larger is all there is.
    return ops.select(ops.abs(first - second) >= height, ops.min(to_first, to_second), between)
