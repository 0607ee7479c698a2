"""Batch rules of tensor ops: the batch is a new leading axis, so the axes in attributes increase by one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from livegrad.diagnostics import UsageError
from livegrad.ir.dimension import Size
from livegrad.ir.node import Node
from livegrad.ir.op import Op
from livegrad.ir.types import Tensor, bool_, shape_of
from livegrad.ops.assignment import assign
from livegrad.ops.elementwise import select
from livegrad.ops.indexing import lookup, lookup_or, scatter_add
from livegrad.ops.movement import broadcast, concatenate, flip, pad, permute, reshape, slice_
from livegrad.ops.reduction import arg_reduce, cumulative, recurrence, reduce
from livegrad.ops.rules import filled, zero
from livegrad.ops.tape import tape_add, tape_get, tape_set, tape_stack, tape_sum, tape_unstack
from livegrad.passes.batch.values import along_batch, choose
from livegrad.passes.batch.walk import BatchRule, Context, Operand


def _broadcast(node: Node, operands: Sequence[Operand], context: Context) -> Node:
    axes = (0, *(axis + 1 for axis in node.attribute("axes")))
    return broadcast(operands[0].value, shape=(context.size, *node.attribute("shape")), axes=axes)


def _reshape(node: Node, operands: Sequence[Operand], context: Context) -> Node:
    return reshape(operands[0].value, shape=(context.size, *node.attribute("shape")))


def _permute(node: Node, operands: Sequence[Operand], context: Context) -> Node:
    return permute(operands[0].value, axes=(0, *(axis + 1 for axis in node.attribute("axes"))))


def _flip(node: Node, operands: Sequence[Operand], context: Context) -> Node:
    return flip(operands[0].value, axes=tuple(axis + 1 for axis in node.attribute("axes")))


def _slice(node: Node, operands: Sequence[Operand], context: Context) -> Node:
    start, size, step = (node.attribute(name) for name in ("start", "size", "step"))
    return slice_(operands[0].value, start=(0, *start), size=(context.size, *size), step=(1, *step))


def _pad(node: Node, operands: Sequence[Operand], context: Context) -> Node:
    source, padding = operands
    widths = {name: (0, *node.attribute(name)) for name in ("low", "high", "interior")}
    if not padding.batched:
        return pad(context.batch(source), padding.value, **widths)
    # Each member has its own fill value: a mask of the source, padded too, selects it.
    value = context.batch(source)
    assert isinstance(value.type, Tensor)
    padded = pad(value, zero(value.type.element), **widths)
    inside = pad(filled(True, Tensor(bool_, value.type.shape)), zero(bool_), **widths)
    around = broadcast(padding.value, shape=shape_of(padded.type), axes=(0,))
    return select(inside, padded, around)


def shift_axis(node: Node, operands: Sequence[Operand], context: Context) -> Node:
    """The same op along the next axis, with all operands batched."""
    attributes = {**dict(node.attributes), "axis": node.attribute("axis") + 1}
    return node.op(*map(context.batch, operands), **attributes)


def _reduce(node: Node, operands: Sequence[Operand], context: Context) -> Node:
    axes = tuple(axis + 1 for axis in node.attribute("axes"))
    return reduce(operands[0].value, kind=node.attribute("kind"), axes=axes)


def _lookup(node: Node, operands: Sequence[Operand], context: Context) -> Node:
    tensor, *indices = operands
    if not indices:
        return tensor.value
    batched_indices = [context.batch(index) for index in indices]
    if not tensor.batched:
        return lookup(tensor.value, *batched_indices)
    return lookup(tensor.value, _member_index(batched_indices, context.size), *batched_indices)


def _lookup_or(node: Node, operands: Sequence[Operand], context: Context) -> Node:
    tensor, otherwise, *batched_indices = map(context.batch, operands)
    if not batched_indices:
        return tensor
    return lookup_or(tensor, otherwise, _member_index(batched_indices, context.size), *batched_indices)


def _member_index(indices: Sequence[Node], size: Size) -> Node:
    return along_batch(size, shape_of(indices[0].type)[1:])


def _scatter_add(node: Node, operands: Sequence[Operand], context: Context) -> Node:
    base, updates, *batched_indices = map(context.batch, operands)
    if not batched_indices:
        return base + updates
    return scatter_add(base, updates, _member_index(batched_indices, context.size), *batched_indices)


def _assign(node: Node, operands: Sequence[Operand], context: Context) -> Node:
    base, updates, *batched_indices = map(context.batch, operands)
    if not batched_indices:
        return updates
    return assign(base, updates, _member_index(batched_indices, context.size), *batched_indices)


# --- tapes ----------------------------------------------------------------------------------------------------------


def _require_shared_index(node: Node, index: Operand) -> Node:
    if index.batched:
        raise UsageError(f"`{node.op.name}` at an index that differs between the members of a batch", where=node.origin)
    return index.value


def _tape_get(node: Node, operands: Sequence[Operand], context: Context) -> Node:
    tape, index = operands
    return tape_get(context.batch(tape), _require_shared_index(node, index))


def _tape_set(node: Node, operands: Sequence[Operand], context: Context) -> Node:
    tape, index, value = (
        context.batch(operands[0]),
        _require_shared_index(node, operands[1]),
        context.batch(operands[2]),
    )
    if context.mask is not None:
        value = choose(context.mask, value, tape_get(tape, index))
    return tape_set(tape, index, value)


def _tape_add(node: Node, operands: Sequence[Operand], context: Context) -> Node:
    tape, index, value = (
        context.batch(operands[0]),
        _require_shared_index(node, operands[1]),
        context.batch(operands[2]),
    )
    if context.mask is not None:
        value = choose(context.mask, value, zero(value.type))
    return tape_add(tape, index, value)


def _tape_sum(node: Node, operands: Sequence[Operand], context: Context) -> Node:
    return tape_sum(*map(context.batch, operands))


def _tape_stack(node: Node, operands: Sequence[Operand], context: Context) -> Node:
    return _swap_leading_axes(tape_stack(context.batch(operands[0]), size=node.attribute("size")))


def _tape_unstack(node: Node, operands: Sequence[Operand], context: Context) -> Node:
    return tape_unstack(_swap_leading_axes(context.batch(operands[0])))


def _swap_leading_axes(value: Node) -> Node:
    """Swaps the axes of the iterations and of the batch."""
    return permute(value, axes=(1, 0, *range(2, len(shape_of(value.type)))))


TENSOR_RULES: Mapping[Op, BatchRule] = MappingProxyType(
    {
        broadcast: _broadcast,
        reshape: _reshape,
        permute: _permute,
        flip: _flip,
        slice_: _slice,
        pad: _pad,
        concatenate: shift_axis,
        arg_reduce: shift_axis,
        cumulative: shift_axis,
        recurrence: shift_axis,
        reduce: _reduce,
        lookup: _lookup,
        lookup_or: _lookup_or,
        scatter_add: _scatter_add,
        assign: _assign,
        tape_stack: _tape_stack,
        tape_unstack: _tape_unstack,
        tape_get: _tape_get,
        tape_set: _tape_set,
        tape_add: _tape_add,
        tape_sum: _tape_sum,
    }
)
