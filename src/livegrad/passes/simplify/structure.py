"""Identities of aggregates, tapes and moved tensors: cancels construction followed by access."""

from __future__ import annotations

from livegrad.ir.dimension import Size
from livegrad.ir.leaves import constant_op
from livegrad.ir.node import Node, make_node
from livegrad.ir.types import Tensor, components, i64, shape_of
from livegrad.ops.aggregate import get, get_at, make, set_, splat
from livegrad.ops.conversion import cast
from livegrad.ops.movement import broadcast, flip, iota, permute, reshape, slice_
from livegrad.ops.rules import zero
from livegrad.ops.tape import tape_get, tape_new, tape_set, tape_unstack

_DEEPEST_ROW = 8  # operations between positions and a row that is computed from them

# --- aggregates ------------------------------------------------------------------------------------------------------


def get_of_make(node: Node) -> Node | None:
    (x,) = node.operands
    return x.operands[node.attribute("index")] if x.op is make else None


def get_of_set(node: Node) -> Node | None:
    (x,) = node.operands
    if x.op is not set_:
        return None
    target, value = x.operands
    index = node.attribute("index")
    return value if x.attribute("index") == index else get(target, index=index)


def get_of_splat(node: Node) -> Node | None:
    (x,) = node.operands
    return x.operands[0] if x.op is splat else None


def make_of_all_members(node: Node) -> Node | None:
    """make(get(x, 0), get(x, 1), ...) is x."""
    if not node.operands or node.operands[0].op is not get:
        return None
    (source,) = node.operands[0].operands
    if source.type is not node.type:
        return None
    for position, part in enumerate(node.operands):
        if part.op is not get or part.operands[0] is not source or part.attribute("index") != position:
            return None
    return source


def set_in_make(node: Node) -> Node | None:
    target, value = node.operands
    if target.op is not make:
        return None
    index = node.attribute("index")
    return make(*target.operands[:index], value, *target.operands[index + 1 :], type=node.type)


def set_again(node: Node) -> Node | None:
    """If a member is set twice, the second value wins."""
    target, value = node.operands
    if target.op is not set_ or target.attribute("index") != node.attribute("index"):
        return None
    return set_(target.operands[0], value, index=node.attribute("index"))


def set_to_same_member(node: Node) -> Node | None:
    target, value = node.operands
    same = value.op is get and value.operands[0] is target and value.attribute("index") == node.attribute("index")
    return target if same else None


def constant_index(node: Node) -> Node | None:
    """`get_at` and `set_at` with a constant index in range are `get` and `set`."""
    target, index, *value = node.operands
    if index.op is not constant_op or not 0 <= index.attribute("value") < len(components(target.type)):
        return None
    position = index.attribute("value")
    return get(target, index=position) if node.op is get_at else set_(target, *value, index=position)


# --- tensors ---------------------------------------------------------------------------------------------------------


def move_nothing(node: Node) -> Node | None:
    """A broadcast or reshape to the shape that is there."""
    (x,) = node.operands
    return x if x.type is node.type else None


def move_uniform(node: Node) -> Node | None:
    """A scalar spread over a tensor and then moved is that scalar spread over the new shape."""
    x = node.operands[0]
    if x.op is not broadcast or x.attribute("axes"):
        return None
    return broadcast(x.operands[0], shape=shape_of(node.type), axes=())


def broadcast_of_broadcast(node: Node) -> Node | None:
    (x,) = node.operands
    if x.op is not broadcast:
        return None
    outer = node.attribute("axes")
    return broadcast(
        x.operands[0], shape=node.attribute("shape"), axes=tuple(outer[axis] for axis in x.attribute("axes"))
    )


def broadcast_without_added_dimensions(node: Node) -> Node | None:
    """Dimensions of 1 that were added only to be broadcast are not needed."""
    source = _before_adding_dimensions(node.operands[0])
    if source is None or 1 in shape_of(source.type):
        return None
    kept = [axis for axis, size in enumerate(shape_of(node.operands[0].type)) if size != 1]
    outer = node.attribute("axes")
    return broadcast(source, shape=node.attribute("shape"), axes=tuple(outer[axis] for axis in kept))


def reshape_of_reshape(node: Node) -> Node | None:
    (x,) = node.operands
    return reshape(x.operands[0], shape=node.attribute("shape")) if x.op is reshape else None


def compute_before_adding_dimensions(node: Node) -> Node | None:
    """What an elementwise op computes from tensors that were given dimensions of 1 (a reduction with `keepdims`) is
    computed without them. So the values of a row, whatever their dimensions, are computed where the row is reduced."""
    if not isinstance(node.type, Tensor):
        return None
    shape: tuple[Size, ...] | None = None
    for operand in node.operands:
        if _is_uniform(operand):
            continue
        source = _before_adding_dimensions(operand)
        if source is None or shape not in (None, shape_of(source.type)):
            return None
        shape = shape_of(source.type)
    if shape is None:
        return None
    operands = tuple(_without_dimensions(operand, shape) for operand in node.operands)
    return reshape(make_node(node.op, operands, node.attributes), shape=shape_of(node.type))


def _is_uniform(x: Node) -> bool:
    return x.op is broadcast and not x.attribute("axes")


def _before_adding_dimensions(x: Node) -> Node | None:
    """The source of a reshape that only adds dimensions of 1."""
    if x.op is not reshape:
        return None
    (source,) = x.operands
    before, after = shape_of(source.type), shape_of(x.type)
    if len(before) >= len(after) or not before:
        return None
    return source if [n for n in before if n != 1] == [n for n in after if n != 1] else None


def _without_dimensions(x: Node, shape: tuple[Size, ...]) -> Node:
    return broadcast(x.operands[0], shape=shape, axes=()) if _is_uniform(x) else x.operands[0]


def permute_nothing(node: Node) -> Node | None:
    axes = node.attribute("axes")
    return node.operands[0] if axes == tuple(range(len(axes))) else None


def permute_of_permute(node: Node) -> Node | None:
    (x,) = node.operands
    if x.op is not permute:
        return None
    inner = x.attribute("axes")
    return permute(x.operands[0], axes=tuple(inner[axis] for axis in node.attribute("axes")))


def slice_everything(node: Node) -> Node | None:
    (x,) = node.operands
    whole = all(start == 0 for start in node.attribute("start")) and all(step == 1 for step in node.attribute("step"))
    return x if whole and x.type is node.type else None


def slice_of_slice(node: Node) -> Node | None:
    (x,) = node.operands
    if x.op is not slice_:
        return None
    first, stride, size = x.attribute("start"), x.attribute("step"), node.attribute("size")
    # Nothing may be taken from behind the last element; with a step, that would begin outside of the source.
    if any(s != 1 and not isinstance(n, int) for s, n in zip(stride, size, strict=True)):
        return None
    starts = zip(first, node.attribute("start"), stride, size, strict=True)
    return slice_(
        x.operands[0],
        start=tuple(0 if n == 0 else a + b * s for a, b, s, n in starts),
        size=size,
        step=tuple(a * b for a, b in zip(stride, node.attribute("step"), strict=True)),
    )


def pad_nothing(node: Node) -> Node | None:
    widths = (*node.attribute("low"), *node.attribute("high"), *node.attribute("interior"))
    return node.operands[0] if all(width == 0 for width in widths) else None


def flip_nothing(node: Node) -> Node | None:
    return None if node.attribute("axes") else node.operands[0]


def flip_of_flip(node: Node) -> Node | None:
    (x,) = node.operands
    if x.op is not flip:
        return None
    return flip(x.operands[0], axes=tuple(sorted(set(node.attribute("axes")) ^ set(x.attribute("axes")))))


def concatenate_one(node: Node) -> Node | None:
    return node.operands[0] if len(node.operands) == 1 else None


def reduce_over_no_axes(node: Node) -> Node | None:
    return None if node.attribute("axes") else node.operands[0]


def lookup_in_spread_scalar(node: Node) -> Node | None:
    """The only element of a scalar spread over no dimensions."""
    x, *indices = node.operands
    if indices or x.op is not broadcast or isinstance(x.operands[0].type, Tensor):
        return None
    return x.operands[0]


# --- tapes ----------------------------------------------------------------------------------------------------------


def read_what_was_written(node: Node) -> Node | None:
    """Reading the same index gives the value; reading another known index gives the previous contents."""
    tape, index = node.operands
    if tape.op is not tape_set:
        return None
    before, written, value = tape.operands
    if written is index:
        return value
    is_static = written.op is constant_op and index.op is constant_op
    return tape_get(before, index) if is_static else None


def read_row_of_indices(node: Node) -> Node | None:
    """A row of a tensor that is computed from positions alone, such as `arange(n)`: computed from the row's index.

    A tape is read at indices of its rows only.
    """
    tape, index = node.operands
    return _row_at(tape.operands[0], index, _DEEPEST_ROW) if tape.op is tape_unstack else None


def _row_at(tensor: Node, index: Node, depth: int) -> Node | None:
    """The row of a tensor at an index; None unless it is computed from iotas and from values that all rows share."""
    rest = shape_of(tensor.type)[1:]
    if tensor.op is iota:
        axis, type = tensor.attribute("axis"), tensor.attribute("type")
        if axis:
            return iota(axis=axis - 1, shape=rest, type=type)
        return broadcast(index if type is i64 else cast(index, type=type), axes=(), shape=rest)
    if tensor.op is broadcast and 0 not in tensor.attribute("axes"):
        axes = tuple([axis - 1 for axis in tensor.attribute("axes")])
        return broadcast(tensor.operands[0], axes=axes, shape=rest)
    if not tensor.op.elementwise or tensor.may_fail or not depth:
        return None
    rows = [_row_at(operand, index, depth - 1) for operand in tensor.operands]
    parts = tuple([row for row in rows if row is not None])
    return make_node(tensor.op, parts, tensor.attributes) if len(parts) == len(rows) else None


def read_empty_tape(node: Node) -> Node | None:
    return zero(node.type) if node.operands[0].op is tape_new else None


def write_again(node: Node) -> Node | None:
    tape, index, value = node.operands
    return tape_set(tape.operands[0], index, value) if tape.op is tape_set and tape.operands[1] is index else None


def sum_with_empty_tape(node: Node) -> Node | None:
    a, b = node.operands
    return a if b.op is tape_new else (b if a.op is tape_new else None)
