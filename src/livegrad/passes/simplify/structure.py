"""Rules of aggregates, tensor movement and tapes: cancel construction followed by access, and compose movements."""

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

_MAX_ROW_DEPTH = 8  # of ops between iotas and a row that is recomputed from them

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
    """make(get(x, 0), get(x, 1), ...) = x."""
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


def set_of_set(node: Node) -> Node | None:
    """Drops the first of two writes to one member."""
    target, value = node.operands
    if target.op is not set_ or target.attribute("index") != node.attribute("index"):
        return None
    return set_(target.operands[0], value, index=node.attribute("index"))


def set_to_same_member(node: Node) -> Node | None:
    target, value = node.operands
    is_same = value.op is get and value.operands[0] is target and value.attribute("index") == node.attribute("index")
    return target if is_same else None


def constant_index(node: Node) -> Node | None:
    """`get_at` and `set_at` with a constant index in range are `get` and `set`."""
    target, index, *value = node.operands
    if index.op is not constant_op or not 0 <= index.attribute("value") < len(components(target.type)):
        return None
    position = index.attribute("value")
    return get(target, index=position) if node.op is get_at else set_(target, *value, index=position)


# --- tensors ---------------------------------------------------------------------------------------------------------


def move_to_same_shape(node: Node) -> Node | None:
    """Removes a broadcast or reshape to the same shape."""
    (x,) = node.operands
    return x if x.type is node.type else None


def move_broadcast_scalar(node: Node) -> Node | None:
    """A movement of a broadcast scalar is a broadcast to the new shape."""
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


def broadcast_of_added_dimensions(node: Node) -> Node | None:
    """Skips a reshape that adds dimensions of 1 only to broadcast them."""
    source = _source_of_added_dimensions(node.operands[0])
    if source is None or 1 in shape_of(source.type):
        return None
    source_axes = [axis for axis, size in enumerate(shape_of(node.operands[0].type)) if size != 1]
    outer = node.attribute("axes")
    return broadcast(source, shape=node.attribute("shape"), axes=tuple(outer[axis] for axis in source_axes))


def reshape_of_reshape(node: Node) -> Node | None:
    (x,) = node.operands
    return reshape(x.operands[0], shape=node.attribute("shape")) if x.op is reshape else None


def sink_added_dimensions(node: Node) -> Node | None:
    """Computes an elementwise op before its operands get dimensions of 1, as from reductions with `keepdims`.

    Values of rows then have the shape of the reduction, and are computed in the same kernel.
    """
    if not isinstance(node.type, Tensor):
        return None
    shape: tuple[Size, ...] | None = None
    for operand in node.operands:
        if _is_broadcast_scalar(operand):
            continue
        source = _source_of_added_dimensions(operand)
        if source is None or shape not in (None, shape_of(source.type)):
            return None
        shape = shape_of(source.type)
    if shape is None:
        return None
    operands = tuple(_remove_dimensions(operand, shape) for operand in node.operands)
    return reshape(make_node(node.op, operands, node.attributes), shape=shape_of(node.type))


def _is_broadcast_scalar(x: Node) -> bool:
    return x.op is broadcast and not x.attribute("axes")


def _source_of_added_dimensions(x: Node) -> Node | None:
    """The source of a reshape that only adds dimensions of 1."""
    if x.op is not reshape:
        return None
    (source,) = x.operands
    before, after = shape_of(source.type), shape_of(x.type)
    if len(before) >= len(after) or not before:
        return None
    return source if [n for n in before if n != 1] == [n for n in after if n != 1] else None


def _remove_dimensions(x: Node, shape: tuple[Size, ...]) -> Node:
    return broadcast(x.operands[0], shape=shape, axes=()) if _is_broadcast_scalar(x) else x.operands[0]


def permute_by_identity(node: Node) -> Node | None:
    axes = node.attribute("axes")
    return node.operands[0] if axes == tuple(range(len(axes))) else None


def permute_of_permute(node: Node) -> Node | None:
    (x,) = node.operands
    if x.op is not permute:
        return None
    inner = x.attribute("axes")
    return permute(x.operands[0], axes=tuple(inner[axis] for axis in node.attribute("axes")))


def slice_of_everything(node: Node) -> Node | None:
    (x,) = node.operands
    whole = all(start == 0 for start in node.attribute("start")) and all(step == 1 for step in node.attribute("step"))
    return x if whole and x.type is node.type else None


def slice_of_slice(node: Node) -> Node | None:
    (x,) = node.operands
    if x.op is not slice_:
        return None
    first, stride, size = x.attribute("start"), x.attribute("step"), node.attribute("size")
    # An empty slice after the last element is allowed; with a step, its start would be outside of the source.
    if any(s != 1 and not isinstance(n, int) for s, n in zip(stride, size, strict=True)):
        return None
    starts = zip(first, node.attribute("start"), stride, size, strict=True)
    return slice_(
        x.operands[0],
        start=tuple(0 if n == 0 else a + b * s for a, b, s, n in starts),
        size=size,
        step=tuple(a * b for a, b in zip(stride, node.attribute("step"), strict=True)),
    )


def pad_by_zero(node: Node) -> Node | None:
    widths = (*node.attribute("low"), *node.attribute("high"), *node.attribute("interior"))
    return node.operands[0] if all(width == 0 for width in widths) else None


def flip_no_axes(node: Node) -> Node | None:
    return None if node.attribute("axes") else node.operands[0]


def flip_of_flip(node: Node) -> Node | None:
    (x,) = node.operands
    if x.op is not flip:
        return None
    return flip(x.operands[0], axes=tuple(sorted(set(node.attribute("axes")) ^ set(x.attribute("axes")))))


def concatenate_single(node: Node) -> Node | None:
    return node.operands[0] if len(node.operands) == 1 else None


def reduce_over_no_axes(node: Node) -> Node | None:
    return None if node.attribute("axes") else node.operands[0]


def lookup_in_broadcast_scalar(node: Node) -> Node | None:
    """lookup(broadcast(x)) = x for a tensor of rank 0."""
    x, *indices = node.operands
    if indices or x.op is not broadcast or isinstance(x.operands[0].type, Tensor):
        return None
    return x.operands[0]


# --- tapes ----------------------------------------------------------------------------------------------------------


def read_after_write(node: Node) -> Node | None:
    """Reads the value at the index that was just written, or skips a write at another constant index."""
    tape, index = node.operands
    if tape.op is not tape_set:
        return None
    previous, written_index, value = tape.operands
    if written_index is index:
        return value
    are_constant = written_index.op is constant_op and index.op is constant_op
    return tape_get(previous, index) if are_constant else None


def read_row_of_indices(node: Node) -> Node | None:
    """Recomputes a row of an unstacked tensor that depends only on iotas, such as `arange(n)`, from the row index.

    Valid because tapes are only read at indices in range.
    """
    tape, index = node.operands
    return _compute_row(tape.operands[0], index, _MAX_ROW_DEPTH) if tape.op is tape_unstack else None


def _compute_row(tensor: Node, index: Node, depth: int) -> Node | None:
    """The row of a tensor at an index; None unless it is computed from iotas and values that all rows share."""
    row_shape = shape_of(tensor.type)[1:]
    if tensor.op is iota:
        axis, type = tensor.attribute("axis"), tensor.attribute("type")
        if axis:
            return iota(axis=axis - 1, shape=row_shape, type=type)
        return broadcast(index if type is i64 else cast(index, type=type), axes=(), shape=row_shape)
    if tensor.op is broadcast and 0 not in tensor.attribute("axes"):
        axes = tuple([axis - 1 for axis in tensor.attribute("axes")])
        return broadcast(tensor.operands[0], axes=axes, shape=row_shape)
    if not tensor.op.elementwise or tensor.may_fail or not depth:
        return None
    rows = [_compute_row(operand, index, depth - 1) for operand in tensor.operands]
    parts = tuple([row for row in rows if row is not None])
    return make_node(tensor.op, parts, tensor.attributes) if len(parts) == len(rows) else None


def read_empty_tape(node: Node) -> Node | None:
    return zero(node.type) if node.operands[0].op is tape_new else None


def overwrite_row(node: Node) -> Node | None:
    tape, index, value = node.operands
    return tape_set(tape.operands[0], index, value) if tape.op is tape_set and tape.operands[1] is index else None


def add_empty_tape(node: Node) -> Node | None:
    a, b = node.operands
    return a if b.op is tape_new else (b if a.op is tape_new else None)
