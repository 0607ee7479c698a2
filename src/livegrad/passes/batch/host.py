"""The batch rule of host calls: a loop that makes one call for each member, in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from livegrad.diagnostics import UsageError
from livegrad.ir.dimension import Size
from livegrad.ir.leaves import constant
from livegrad.ir.node import Function, Node, make_node
from livegrad.ir.op import Op
from livegrad.ir.types import Array, Scalar, Struct, Tensor, Tuple, Type, components, i64, shape_of
from livegrad.ops.aggregate import get, make, member
from livegrad.ops.control import for_loop, parameters_of
from livegrad.ops.host import host_call
from livegrad.ops.indexing import lookup, scatter_add
from livegrad.ops.movement import broadcast, iota
from livegrad.ops.reduction import reduce
from livegrad.ops.rules import filled, zero
from livegrad.passes.batch.values import batched_type
from livegrad.passes.batch.walk import BatchRule, Context, Operand, OperandTree, Parts, flags_of, nodes_in
from livegrad.passes.differentiate.tangents import result_nodes


def _host_call(node: Node, operands: Sequence[Operand], context: Context) -> OperandTree:
    result_types: tuple[Type, ...] = node.attribute("results")
    start = [zero(batched_type(type, context.size)) for type in result_types]
    types = [i64, *(value.type for value in (*start, *nodes_in(operands)))]
    index, *parameters = parameters_of(types)
    results, captured = parameters[: len(start)], parameters[len(start) :]
    arguments = tuple(
        _read_member(value, operand.type, index, node) if flag else value
        for value, operand, flag in zip(captured, node.operands, flags_of(operands), strict=True)
    )
    member_results = result_nodes(make_node(node.op, arguments, node.attributes), len(result_types))
    updated = [_write_member(result, value, index, node) for result, value in zip(results, member_results, strict=True)]
    body = Function("members", (index, *parameters), tuple(updated))
    iterations = _member_count(context.size)
    loop = for_loop(iterations, *start, *nodes_in(operands), body=body, carried=len(start), reverse=False)
    parts = tuple(Operand(get(loop, index=position), True) for position in range(len(start)))
    return parts[0] if len(parts) == 1 else Parts(node.type, parts)


def _member_count(size: Size) -> Node:
    """The size of the batch as a node."""
    return (
        constant(size, i64)
        if isinstance(size, int)
        else lookup(reduce(filled(1, Tensor(i64, (size,))), kind="sum", axes=(0,)))
    )


def _multi_index(shape: tuple[Size, ...], index: Node) -> list[Node]:
    if not shape:
        return [index]
    return [
        broadcast(index, shape=shape, axes=()),
        *(iota(shape=shape, axis=axis, type=i64) for axis in range(len(shape))),
    ]


def _read_member(value: Node, type: Type, index: Node, node: Node) -> Node:
    """The value of one member of a batch; `type` is the type of that value."""
    if isinstance(type, Scalar | Tensor):
        return lookup(value, *_multi_index(shape_of(type), index))
    if not isinstance(type, Struct | Tuple | Array):
        raise _unsupported(type, node)
    parts = components(type)
    return make(
        *(_read_member(member(value, position), part, index, node) for position, part in enumerate(parts)), type=type
    )


def _write_member(batch: Node, value: Node, index: Node, node: Node) -> Node:
    """Writes the value of a member into the batch, where it is still zero."""
    if isinstance(value.type, Scalar | Tensor):
        return scatter_add(batch, value, *_multi_index(shape_of(value.type), index))
    if not isinstance(value.type, Struct | Tuple | Array):
        raise _unsupported(value.type, node)
    members = range(len(components(value.type)))
    parts = [_write_member(member(batch, position), member(value, position), index, node) for position in members]
    return make(*parts, type=batch.type)


def _unsupported(type: Type, node: Node) -> UsageError:
    return UsageError(f"a host call beside tensors has no rule for a batch of {type}", where=node.origin)


HOST_RULES: Mapping[Op, BatchRule] = MappingProxyType({host_call: _host_call})
