"""Index arithmetic of loops over elements: index maps of movement ops, bounds checks, and loop nests."""

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


def integer(value: int) -> Node:
    return constant(value, i64)


def scale_index(index: Node, start: int, step: int) -> Node:
    """`start + step * index`, simplified."""
    if index.op is constant_op:
        return integer(start + step * index.attribute("value"))
    if step == -1:
        return start - index
    scaled = index if step == 1 else index * step
    return scaled if start == 0 else scaled + start


def map_index(node: Node, index: Index) -> Index:
    """Maps an index into the result of a movement op to the index into its operand."""
    source = sizes(node.operands[0]) if isinstance(node.operands[0].type, Tensor) else ()
    if node.op is broadcast:
        axes = node.attribute("axes")
        return tuple([integer(0) if size == 1 else index[axis] for size, axis in zip(source, axes, strict=True)])
    if node.op is permute:
        axes = node.attribute("axes")
        return tuple([index[axes.index(axis)] for axis in range(len(axes))])
    if node.op is slice_:
        starts, steps = node.attribute("start"), node.attribute("step")
        return tuple([scale_index(i, a, s) for i, a, s in zip(index, starts, steps, strict=True)])
    if node.op is flip:
        flipped = node.attribute("axes")
        return tuple([scale_index(i, source[axis] - 1, -1) if axis in flipped else i for axis, i in enumerate(index)])
    assert node.op is reshape
    target = sizes(node)
    target_axes = squeezed_axes(source, target)
    if target_axes is not None:
        return tuple([integer(0) if axis is None else index[axis] for axis in target_axes])
    position = index[0] if index else integer(0)
    for coordinate, size in zip(index[1:], target[1:], strict=True):
        position = position * size + coordinate
    coordinates: list[Node] = []
    for size in reversed(source[1:]):
        coordinates.append(position % size)
        position = position // size
    return (position, *reversed(coordinates)) if source else ()


def merge_index(index: Index, axes: Sequence[int], inner: Index) -> Index:
    """The index into the operand of a reduction: `inner` along reduced axes, `index` along the others."""
    remaining, reduced = iter(index), dict(zip(axes, inner, strict=True))
    rank = len(index) + len(axes)
    return tuple([reduced[axis] if axis in reduced else next(remaining) for axis in range(rank)])


def check_index(index: Node, size: int, axis: int) -> Node:
    """Casts an index to i64 and adds a bounds check; constants in range need none."""
    constant = constant_integer(index)
    if constant is not None and 0 <= constant < size:
        return integer(constant)
    wide = index if index.type is i64 else cast(index, type=i64)
    inside = greater_equal(wide, 0) & less(wide, size)
    return check(wide, inside, message=f"index out of range for axis {axis}")


def build_loop_nest(
    extents: Sequence[int], body: Callable[[Index, State], State], start: State, lanes: int = 1
) -> State:
    """Builds a loop nest over an index space in row-major order: `state = body(index, state)` at each point.

    The innermost loop may be a reduction with several lanes.
    """

    def build_level(axis: int, index: Index, state: tuple[Node, ...]) -> tuple[Node, ...]:
        if axis == len(extents):
            return body(index, state)
        if extents[axis] == 1:
            return build_level(axis + 1, (*index, integer(0)), state)

        def run_iteration(position: Node, *inner: Node) -> tuple[Node, ...]:
            return build_level(axis + 1, (*index, position), inner)

        innermost = axis == len(extents) - 1
        return make_for_loop(integer(extents[axis]), run_iteration, *state, lanes=lanes if innermost else 1)

    return start if 0 in extents else build_level(0, (), start)
