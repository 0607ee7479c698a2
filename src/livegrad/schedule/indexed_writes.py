"""Scatters (`scatter_add` and `assign`) as selects in element expressions.

If no two points can write the same element, each element selects between its old value and the written one
(`ElementSelect`, which `expression` builds). Otherwise a kernel updates memory in place (`write_steps`).
"""

from __future__ import annotations

from typing import NamedTuple

from livegrad.ir.node import Node
from livegrad.ir.types import shape_of
from livegrad.ops.assignment import UPDATES, assign, written_box
from livegrad.ops.index_motion import Box, motion_of
from livegrad.ops.movement import broadcast, sizes
from livegrad.schedule.views import FIXED_ZERO, Affine, Index, bound_index, compose_affine


class ElementSelect(NamedTuple):
    """A write that changes each element at most once.

    `dimensions[axis]` is the dimension of the tensor along which an axis of the points runs, from `starts[axis]` in
    steps of `steps[axis]`; None for an axis of size 1. In `indexed_dimensions`, an index selects the element.
    """

    dimensions: tuple[int | None, ...]
    starts: tuple[int, ...]
    steps: tuple[int, ...]
    indexed_dimensions: tuple[int, ...]


def assigned_box(node: Node) -> Box | None:
    """The box of elements that a node assigns; None for writes at computed indices and for other nodes."""
    if node.op is not assign or 0 in shape_of(node.type):
        return None
    return written_box(node.operands[0], node.operands[1], node.operands[2:])


def as_element_select(node: Node) -> ElementSelect | None:
    """A write as a select at each element; None if that is impossible, and for other nodes."""
    if node.op not in UPDATES or 0 in shape_of(node.type):
        return None
    _, updates, *indices = node.operands
    sizes, positions = shape_of(node.type), list(map(affine_position, indices))
    dimensions: list[int | None] = []
    for axis, extent in enumerate(shape_of(updates.type)):
        spanned = [d for d, position in enumerate(positions) if position == Affine(axis, 0, 1) and sizes[d] == extent]
        if extent != 1 and not spanned:
            return _box_as_element_select(node)
        dimensions.append(spanned[0] if extent != 1 else None)
    indexed_dimensions = tuple(d for d in range(len(sizes)) if d not in dimensions)
    return ElementSelect(tuple(dimensions), (0,) * len(dimensions), (1,) * len(dimensions), indexed_dimensions)


def _box_as_element_select(node: Node) -> ElementSelect | None:
    box, updates = assigned_box(node), node.operands[1]
    if box is None or not (box.is_dense or is_uniform(updates)):
        return None
    axes = range(len(shape_of(updates.type)))
    dimensions = tuple(None if axis not in box.axes else box.axes.index(axis) for axis in axes)
    starts, steps = (tuple(0 if d is None else field[d] for d in dimensions) for field in (box.start, box.step))
    return ElementSelect(dimensions, starts, steps, tuple(d for d, axis in enumerate(box.axes) if axis is None))


def index_into_update(node: Node, choice: ElementSelect, index: tuple[Index, ...]) -> tuple[Index, ...] | None:
    """The index into the updates of a write for an element. It may be out of bounds if the element may not be written;
    None if a computed index may be.
    """
    update_index: list[Index] = []
    updates = node.operands[1]
    uniform = is_uniform(updates)
    for dimension, start, extent in zip(choice.dimensions, choice.starts, sizes(updates), strict=True):
        if dimension is not None and extent == shape_of(node.type)[dimension]:
            update_index.append(index[dimension])
        elif dimension is None or uniform:
            update_index.append(FIXED_ZERO)
        else:
            coordinate = compose_affine(index[dimension], -start, 1)
            if not isinstance(coordinate, Affine):
                return None
            update_index.append(bound_index(coordinate, extent) or coordinate._replace(may_exceed=True))
    return tuple(update_index)


def is_uniform(node: Node) -> bool:
    """Whether all elements of a tensor are provably equal."""
    while node.op is broadcast:
        (node,) = node.operands
    return all(size == 1 for size in shape_of(node.type))


def affine_position(index: Node) -> Affine | None:
    """An index as an affine function of the points' coordinate along one axis; None if it is computed.

    >>> from livegrad.ops.movement import index_along
    >>> affine_position(index_along((3, 4), 1) + 2)[:3]
    (1, 2, 1)
    """
    motion = motion_of(index)
    return None if motion.start is None else Affine(motion.axis, motion.start, motion.step)
