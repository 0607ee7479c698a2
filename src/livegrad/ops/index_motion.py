"""What is known of integer expressions without their values: how an index moves from point to point, and by how much
two numbers differ.

`tensors.index_keys` decides by it how long a slice with a computed start is; derivatives of writes and the scheduler
decide which points write different elements.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from livegrad.ir.dimension import Size
from livegrad.ir.node import Node
from livegrad.ir.types import scalar_of, shape_of
from livegrad.ir.walk import toposort
from livegrad.ops.failing import constant_integer

_INTEGERS = ("signed", "unsigned")
_MOST_DEPTH = 32  # of expressions that are looked through


class Motion(NamedTuple):
    """`start + step * (position along axis)`; without an axis the index moves along `others` alone.

    `start` is None where it is computed, from values that vary along the axes `others`.
    """

    axis: int | None
    start: int | None
    step: int
    others: frozenset[int] = frozenset()


def motion_of(index: Node, depth: int = _MOST_DEPTH) -> Motion:
    """How an index moves from point to point.

    >>> from livegrad.ops.movement import index_along
    >>> motion_of(index_along((3, 4), 1) * 2 + 5)
    Motion(axis=1, start=5, step=2, others=frozenset())
    """
    integer = constant_integer(index)
    if integer is not None:
        return Motion(None, integer, 0)
    if depth:
        match index.op.name:
            case "iota":
                return Motion(index.attribute("axis"), 0, 1)
            case "broadcast":
                return _spread(motion_of(index.operands[0], depth - 1), index)
            case "add":
                return _sum(*[motion_of(operand, depth - 1) for operand in index.operands])
            case "mul":
                first, second = (motion_of(operand, depth - 1) for operand in index.operands)
                factor, moving = (first, second) if first.axis is None else (second, first)
                if factor.axis is None and factor.start is not None and moving.start is not None:
                    return Motion(moving.axis, moving.start * factor.start, moving.step * factor.start)
            case _:
                pass
    return Motion(None, None, 0, frozenset(axis for axis, size in enumerate(shape_of(index.type)) if size != 1))


def _sum(first: Motion, second: Motion) -> Motion:
    others = first.others | second.others
    if first.axis is not None and second.axis is not None:
        return Motion(None, None, 0, others | {first.axis, second.axis})
    moving = first if second.axis is None else second
    start = None if first.start is None or second.start is None else first.start + second.start
    return Motion(moving.axis, start, moving.step, others)


def _spread(inner: Motion, broadcast: Node) -> Motion:
    """The same index at the points of a broadcast."""
    sizes, axes = shape_of(broadcast.operands[0].type), broadcast.attribute("axes")
    others = frozenset(axes[axis] for axis in inner.others)
    if inner.axis is None or sizes[inner.axis] == 1:
        return Motion(None, inner.start, 0, others)
    return Motion(axes[inner.axis], inner.start, inner.step, others)


def separating_axes(indices: Sequence[Node]) -> frozenset[int]:
    """Axes of the points that separate elements: two points that differ along one of them have different elements.

    >>> from livegrad.ops.movement import index_along
    >>> separating_axes([index_along((3, 4), 1), index_along((3, 4), 1) + 2])
    frozenset({1})
    """
    motions = [motion for motion in map(motion_of, indices) if motion.axis is not None and motion.step]
    axes: frozenset[int] = frozenset()
    while True:
        # An index separates points along its axis if all else that it depends on is the same at both.
        more = {motion.axis for motion in motions if motion.axis is not None and motion.others <= axes}
        if more <= axes:
            return axes
        axes |= more


def are_distinct(indices: Sequence[Node]) -> bool:
    """Whether all points surely have different elements."""
    sizes = shape_of(indices[0].type) if indices else ()
    several = {axis for axis, size in enumerate(sizes) if size != 1}
    return several <= separating_axes(indices)


def constant_difference(first: Node, second: Node) -> int | None:
    """`first - second`, if it is the same number for all values that the expressions may have.

    >>> from livegrad.ir.leaves import input_node
    >>> from livegrad.ir.node import Key
    >>> from livegrad.ir.types import i64
    >>> i = input_node(Key("i"), i64)
    >>> constant_difference(i * 3 + 5, i * 3), constant_difference(i * 2, i)
    (5, None)
    """
    factors: defaultdict[Node, int] = defaultdict(int)
    factors[first] += 1
    factors[second] -= 1
    total = 0
    for node in reversed(toposort([first, second], stop=lambda node: _linear_parts(node) is None)):
        factor = factors.pop(node, 0)
        integer = constant_integer(node)
        parts = _linear_parts(node)
        if not factor:
            continue
        if integer is not None:
            total += factor * integer
        elif parts is None:
            return None
        else:
            for operand, coefficient in parts:
                factors[operand] += factor * coefficient
    return total


def _linear_parts(node: Node) -> tuple[tuple[Node, int], ...] | None:
    """A sum of multiples of other numbers that a node is; None for any other."""
    operands = node.operands
    match node.op.name:
        case "add":
            return (operands[0], 1), (operands[1], 1)
        case "sub":
            return (operands[0], 1), (operands[1], -1)
        case "neg":
            return ((operands[0], -1),)
        case "mul":
            first, second = map(constant_integer, operands)
            if second is not None:
                return ((operands[0], second),)
            return None if first is None else ((operands[1], first),)
        case "broadcast" | "lookup" | "reshape" | "check" if shape_of(node.type) == () and len(operands) == 1 + (
            node.op.name == "check"
        ):
            return ((operands[0], 1),)
        case "cast":
            kinds = [scalar_of(value.type) for value in (node, operands[0])]
            return ((operands[0], 1),) if all(kind is not None and kind.kind in _INTEGERS for kind in kinds) else None
    return None


class Box(NamedTuple):
    """Evenly spaced elements along each dimension of a tensor, all inside; `axes` are the points' axes that move there,
    in order (None: one element)."""

    start: tuple[int, ...]
    size: tuple[int, ...]
    step: tuple[int, ...]
    axes: tuple[int | None, ...]

    @property
    def is_dense(self) -> bool:
        return all(step == 1 for step in self.step)


def box_of(shape: Sequence[Size], indices: Sequence[Node]) -> Box | None:
    """The box that the indices of all points fill, in the points' own order; None if they do not, or sizes are not
    known.

    >>> from livegrad.ops.movement import index_along
    >>> box_of((9,), [index_along((3,), 0) * 2 + 1])
    Box(start=(1,), size=(3,), step=(2,), axes=(0,))
    """
    points = shape_of(indices[0].type) if indices else ()
    if not all(isinstance(size, int) for size in (*shape, *points)):
        return None
    start, size, step, axes = [], [], [], []
    for extent, motion in zip(shape, map(motion_of, indices), strict=True):
        count = 1 if motion.axis is None else points[motion.axis]
        axis_step = 1 if motion.axis is None or count == 1 else motion.step
        if motion.start is None or motion.others or axis_step < 1 or motion.start < 0 or count == 0:
            return None
        if motion.start + (count - 1) * axis_step >= extent:  # type: ignore[operator]
            return None
        start.append(motion.start)
        size.append(count)
        step.append(axis_step)
        axes.append(None if count == 1 else motion.axis)
    moving = [axis for axis in axes if axis is not None]
    if moving != [axis for axis, count in enumerate(points) if count != 1]:
        return None
    return Box(tuple(start), tuple(size), tuple(step), tuple(axes))  # type: ignore[arg-type]
