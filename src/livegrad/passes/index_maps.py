"""Index arithmetic of loops over elements: where ops that move elements read, and loops over a space of points."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from livegrad.ir.leaves import constant, constant_op
from livegrad.ir.node import Node
from livegrad.ir.types import Tensor, i64
from livegrad.ops.comparison import greater_equal, less
from livegrad.ops.control import check, make_for_loop
from livegrad.ops.conversion import cast
from livegrad.ops.failing import constant_integer
from livegrad.ops.movement import broadcast, flip, permute, reshape, sizes, slice_, squeezed_axes

Index = tuple[Node, ...]
State = tuple[Node, ...]


def whole(number: int) -> Node:
    return constant(number, i64)


def shifted(index: Node, start: int, step: int) -> Node:
    """`start + step * index`, with few operations."""
    if index.op is constant_op:
        return whole(start + step * index.attribute("value"))
    if step == -1:
        return start - index
    scaled = index if step == 1 else index * step
    return scaled if start == 0 else scaled + start


def moved_index(node: Node, index: Index) -> Index:
    """The index into the operand of an op that only moves elements."""
    source = sizes(node.operands[0]) if isinstance(node.operands[0].type, Tensor) else ()
    if node.op is broadcast:
        axes = node.attribute("axes")
        return tuple([whole(0) if size == 1 else index[axis] for size, axis in zip(source, axes, strict=True)])
    if node.op is permute:
        axes = node.attribute("axes")
        return tuple([index[axes.index(axis)] for axis in range(len(axes))])
    if node.op is slice_:
        starts, steps = node.attribute("start"), node.attribute("step")
        return tuple([shifted(i, a, s) for i, a, s in zip(index, starts, steps, strict=True)])
    if node.op is flip:
        flipped = node.attribute("axes")
        return tuple([shifted(i, source[axis] - 1, -1) if axis in flipped else i for axis, i in enumerate(index)])
    assert node.op is reshape
    target = sizes(node)
    kept = squeezed_axes(source, target)
    if kept is not None:
        return tuple([whole(0) if axis is None else index[axis] for axis in kept])
    number = index[0] if index else whole(0)
    for coordinate, size in zip(index[1:], target[1:], strict=True):
        number = number * size + coordinate
    coordinates: list[Node] = []
    for size in reversed(source[1:]):
        coordinates.append(number % size)
        number = number // size
    return (number, *reversed(coordinates)) if source else ()


def merged_index(index: Index, axes: Sequence[int], inner: Index) -> Index:
    """The index into the operand of a reduction: `inner` along reduced axes, `index` along the others."""
    kept, reduced = iter(index), dict(zip(axes, inner, strict=True))
    rank = len(index) + len(axes)
    return tuple([reduced[axis] if axis in reduced else next(kept) for axis in range(rank)])


def checked_index(index: Node, size: int, axis: int) -> Node:
    """An index as an i64 that is checked to be in range."""
    constant = constant_integer(index)
    if constant is not None and 0 <= constant < size:
        return whole(constant)
    wide = index if index.type is i64 else cast(index, type=i64)
    inside = greater_equal(wide, 0) & less(wide, size)
    return check(wide, inside, message=f"index out of range for axis {axis}")


def loops_over(extents: Sequence[int], body: Callable[[Index, State], State], start: State, lanes: int = 1) -> State:
    """A nest of loops over a space, in row-major order: `state = body(index, state)` at each point.

    The innermost loop may be a reduction in lanes.
    """

    def level(axis: int, index: Index, state: tuple[Node, ...]) -> tuple[Node, ...]:
        if axis == len(extents):
            return body(index, state)
        if extents[axis] == 1:
            return level(axis + 1, (*index, whole(0)), state)

        def along(position: Node, *inner: Node) -> tuple[Node, ...]:
            return level(axis + 1, (*index, position), inner)

        innermost = axis == len(extents) - 1
        return make_for_loop(whole(extents[axis]), along, *state, lanes=lanes if innermost else 1)

    return start if 0 in extents else level(0, (), start)
