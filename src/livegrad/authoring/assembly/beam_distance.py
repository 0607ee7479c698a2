"""Distances to beam lattices in the value IR: the nearest of all round cones, found by a loop over the beams.

`to_ir` makes the tables of a lattice and the nodes that read them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from livegrad import ops
from livegrad.authoring.assembly.errors import AssemblyError
from livegrad.authoring.assembly.resources import BeamLattice, require_reach
from livegrad.ir.leaves import constant
from livegrad.ir.node import Node
from livegrad.ir.types import Scalar, Tensor, i32, i64
from livegrad.ops.aggregate import members_of
from livegrad.ops.rules import filled


@dataclass(frozen=True)
class BeamTables:
    """Beams as a tensor: eight numbers each, both ends and both radii."""

    beams: NDArray[np.floating]

    def arrays(self) -> list[tuple[str, NDArray[np.generic]]]:
        return [("beams", self.beams)]

    @staticmethod
    def of(lattice: BeamLattice, element: Scalar) -> BeamTables:
        if not len(lattice.beams):
            raise AssemblyError("a lattice without beams has no distance")
        require_reach(lattice.vertices, element, "a beam lattice")
        ends = lattice.vertices[lattice.beams].reshape(-1, 6)
        return BeamTables(np.concatenate([ends, lattice.radii], axis=1).astype(element.dtype))


def beam_distance(position: Node, beams: Node) -> Node:
    """The distance to the surface of the nearest beam, negative inside of it."""
    type = beams.type
    assert isinstance(type, Tensor)
    x, y, z = members_of(position)
    still = (ops.detach(x), ops.detach(y), ops.detach(z))

    def nearer(index: Node, best: Node, chosen: Node) -> tuple[Node, ...]:
        number = ops.cast(index, type=i32)
        distance = _cone_distance(still, beams, number)
        closer = distance < best
        return ops.select(closer, distance, best), ops.select(closer, number, chosen)

    far = filled(float("inf"), x.type)
    count = constant(int(type.shape[0]), i64)  # type: ignore[arg-type]
    _, chosen = ops.make_for_loop(count, nearer, far, constant(0, i32))
    return _cone_distance((x, y, z), beams, chosen)


def _cone_distance(p: tuple[Node, Node, Node], beams: Node, beam: Node) -> Node:
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
