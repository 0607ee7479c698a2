"""Scatters (`scatter_add` and `assign`), as selects inside expressions or as separate kernels.

If no two points can write to the same element, each element selects between its old value and the written one
(`expression` requests the `Choice`). Otherwise a kernel updates memory in place, point by point (see `write_steps`).
"""

from __future__ import annotations

from typing import NamedTuple

from livegrad.ir.node import Node
from livegrad.ir.types import shape_of
from livegrad.ops.assignment import assign
from livegrad.ops.index_motion import motion_of
from livegrad.ops.indexing import lookup, lookup_or, scatter_add
from livegrad.schedule.views import Affine

WRITES = (scatter_add, assign)


def indices_of(node: Node) -> tuple[Node, ...]:
    """The indices by which a node uses a tensor, its first operand; none for other ops."""
    if node.op is lookup:
        return node.operands[1:]
    return node.operands[2:] if node.op in (lookup_or, *WRITES) else ()


class Choice(NamedTuple):
    """Writes of which each element takes one at most.

    `moved_by[axis]` is the dimension of the tensor along which the points' axis moves (None for an axis of one);
    `chosen` are the other dimensions, where the index says which element is meant.
    """

    moved_by: tuple[int | None, ...]
    chosen: tuple[int, ...]


def choice_of(node: Node) -> Choice | None:
    """A write as a choice at each element; None for any other node."""
    if node.op not in WRITES or 0 in shape_of(node.type):
        return None
    _, updates, *indices = node.operands
    sizes, places = shape_of(node.type), list(map(place_of, indices))
    moved_by: list[int | None] = []
    for axis, extent in enumerate(shape_of(updates.type)):
        along = [d for d, place in enumerate(places) if place == Affine(axis, 0, 1) and sizes[d] == extent]
        if extent != 1 and not along:
            return None
        moved_by.append(along[0] if extent != 1 else None)
    return Choice(tuple(moved_by), tuple(d for d in range(len(sizes)) if d not in moved_by))


def place_of(index: Node) -> Affine | None:
    """An index at each point as an affine function of the point's place along one axis; None where it is computed.

    >>> from livegrad.ops.movement import index_along
    >>> place_of(index_along((3, 4), 1) + 2)[:3]
    (1, 2, 1)
    """
    motion = motion_of(index)
    return None if motion.start is None else Affine(motion.axis, motion.start, motion.step)
