"""Scatters (`scatter_add` and `assign`), as selects inside expressions or as separate kernels.

If no two points can write to the same element, each element selects between its old value and the written one
(`expression` requests the `Choice`). Otherwise a kernel updates memory in place, point by point (see `write_steps`).
"""

from __future__ import annotations

from typing import NamedTuple

from livegrad.ir.node import Node
from livegrad.ir.types import shape_of
from livegrad.ops.assignment import UPDATES, assign, written_box
from livegrad.ops.index_motion import Box, motion_of
from livegrad.ops.movement import broadcast, sizes
from livegrad.schedule.views import FIXED_ZERO, Affine, Index, bounded, shifted


class Choice(NamedTuple):
    """Writes of which each element takes one at most.

    `moved_by[axis]` is the dimension of the tensor along which the points' axis moves (None for an axis of one), from
    element `starts[axis]` by `steps[axis]`; `chosen` are the other dimensions, where the index says which element is
    meant.
    """

    moved_by: tuple[int | None, ...]
    starts: tuple[int, ...]
    steps: tuple[int, ...]
    chosen: tuple[int, ...]


def assigned_box(node: Node) -> Box | None:
    """The box of elements that a node assigns to; None for writes by computed index and for other nodes."""
    if node.op is not assign or 0 in shape_of(node.type):
        return None
    return written_box(node.operands[0], node.operands[1], node.operands[2:])


def choice_of(node: Node) -> Choice | None:
    """A write as a choice at each element; None for any other node."""
    if node.op not in UPDATES or 0 in shape_of(node.type):
        return None
    _, updates, *indices = node.operands
    sizes, positions = shape_of(node.type), list(map(affine_position, indices))
    moved_by: list[int | None] = []
    for axis, extent in enumerate(shape_of(updates.type)):
        along = [d for d, position in enumerate(positions) if position == Affine(axis, 0, 1) and sizes[d] == extent]
        if extent != 1 and not along:
            return _choice_of_box(node)
        moved_by.append(along[0] if extent != 1 else None)
    chosen = tuple(d for d in range(len(sizes)) if d not in moved_by)
    return Choice(tuple(moved_by), (0,) * len(moved_by), (1,) * len(moved_by), chosen)


def _choice_of_box(node: Node) -> Choice | None:
    box, updates = assigned_box(node), node.operands[1]
    if box is None or not (box.is_dense or is_uniform(updates)):
        return None
    axes = range(len(shape_of(updates.type)))
    moved_by = tuple(None if axis not in box.axes else box.axes.index(axis) for axis in axes)
    starts, steps = (tuple(0 if d is None else of[d] for d in moved_by) for of in (box.start, box.step))
    return Choice(moved_by, starts, steps, tuple(d for d, axis in enumerate(box.axes) if axis is None))


def index_into_update(node: Node, choice: Choice, index: tuple[Index, ...]) -> tuple[Index, ...] | None:
    """The index into the updates of a write for an element, loose where the element may not be written; None
    where a computed index may."""
    update_index: list[Index] = []
    updates = node.operands[1]
    uniform = is_uniform(updates)
    for dimension, start, extent in zip(choice.moved_by, choice.starts, sizes(updates), strict=True):
        if dimension is not None and extent == shape_of(node.type)[dimension]:
            update_index.append(index[dimension])
        elif dimension is None or uniform:
            update_index.append(FIXED_ZERO)
        else:
            coordinate = shifted(index[dimension], -start, 1)
            if not isinstance(coordinate, Affine):
                return None
            update_index.append(bounded(coordinate, extent) or coordinate._replace(loose=True))
    return tuple(update_index)


def is_uniform(node: Node) -> bool:
    """Whether all elements of a tensor surely are the same."""
    while node.op is broadcast:
        (node,) = node.operands
    return all(size == 1 for size in shape_of(node.type))


def affine_position(index: Node) -> Affine | None:
    """An index at each point as an affine function of the point's coordinate along one axis; None if it is computed.

    >>> from livegrad.ops.movement import index_along
    >>> affine_position(index_along((3, 4), 1) + 2)[:3]
    (1, 2, 1)
    """
    motion = motion_of(index)
    return None if motion.start is None else Affine(motion.axis, motion.start, motion.step)
