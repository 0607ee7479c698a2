"""The batch rule of maps: the domain gets one more dimension.

An argument that is shared by the points of a member, but differs between members, is broadcast over the points. Tensors
that points read by index get the member as their first index.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from livegrad.diagnostics import UsageError
from livegrad.ir.dimension import Size
from livegrad.ir.node import Function, Node, make_node
from livegrad.ir.op import Op
from livegrad.ir.propagate_lines import cached_derivation
from livegrad.ir.source_lines import originating_from
from livegrad.ir.types import Tensor, Type, i64, shape_of
from livegrad.ir.walk import nodes_of
from livegrad.ops.aggregate import get, make
from livegrad.ops.assignment import assign
from livegrad.ops.control import parameters_of
from livegrad.ops.elementwise import add, neg, select, sub
from livegrad.ops.indexing import lookup, lookup_or, scatter_add
from livegrad.ops.maps import map_, map_domain
from livegrad.ops.movement import broadcast
from livegrad.ops.reduction import reduce
from livegrad.ops.rules import is_zero_node, zero
from livegrad.passes.batch.values import along_batch, batched_type, holds_tensors, zip_leaves
from livegrad.passes.batch.walk import BatchRule, Context, Operand, OperandTree, Parts
from livegrad.passes.differentiate.tangents import result_nodes
from livegrad.passes.regions import region_of

_ZERO_PRESERVING = (add, sub, neg, select, get, make)


def _map(node: Node, operands: Sequence[Operand], context: Context) -> OperandTree:
    function, lifted, summed = (node.attribute(name) for name in ("function", "lifted", "summed"))
    domain = map_domain([operand.type for operand in node.operands], function, lifted)
    tensors = tuple(
        operand.batched and not flag and holds_tensors(type)
        for operand, flag, type in zip(operands, lifted, function.parameter_types, strict=True)
    )
    values, flags = _batch_arguments(operands, lifted, tensors, domain, context)
    scattered = [flag and holds_tensors(type) for flag, type in zip(summed, function.result_types, strict=True)]
    if any(tensors) or any(scattered):
        function = _add_member_index(function, tensors, context.size)
        values.append(along_batch(context.size, domain))
        flags.append(True)
    value = map_(*values, function=function, lifted=tuple(flags), summed=tuple(scattered))
    parts = []
    for result, flag, whole in zip(result_nodes(value, len(summed)), summed, scattered, strict=True):
        axes = tuple(range(1, 1 + len(domain)))
        parts.append(_sum_over(result, axes) if flag and not whole else result)
    results = tuple(Operand(part, True) for part in parts)
    return results[0] if len(results) == 1 else Parts(node.type, results)


def _batch_arguments(
    operands: Sequence[Operand],
    lifted: Sequence[bool],
    tensors: Sequence[bool],
    domain: tuple[Size, ...],
    context: Context,
) -> tuple[list[Node], list[bool]]:
    """The operands of the batched map, and which of them have a value for each point."""
    values, flags = [], []
    for operand, flag, tensor in zip(operands, lifted, tensors, strict=True):
        if flag:
            values.append(context.batch(operand))
        elif operand.batched and not tensor:
            values.append(zip_leaves(lambda leaf: _broadcast_over_points(leaf, domain), operand.value))
        else:
            values.append(operand.value)
        flags.append(flag or (operand.batched and not tensor))
    return values, flags


def _broadcast_over_points(value: Node, domain: tuple[Size, ...]) -> Node:
    """Repeats each member's value at each of its points; components stay last."""
    size, *components = shape_of(value.type)
    axes = (0, *range(1 + len(domain), 1 + len(domain) + len(components)))
    return broadcast(value, shape=(size, *domain, *components), axes=axes)


def _sum_over(value: Node, axes: tuple[int, ...]) -> Node:
    return zip_leaves(lambda leaf: reduce(leaf, kind="sum", axes=axes), value)


MAP_RULES: Mapping[Op, BatchRule] = MappingProxyType({map_: _map})

# --- tensors inside a map's function ---------------------------------------------------------------------------------


@cached_derivation(1024)
def _add_member_index(function: Function, flags: tuple[bool, ...], size: Size) -> Function:
    """The function with the member index as last parameter; flagged tensors are read and written at that index.

    A new tensor has a row for each member, and is zero except in this member's row: summed over all points, such
    tensors are the batch.
    """
    types: list[Type] = [
        batched_type(type, size) if flag else type for type, flag in zip(function.parameter_types, flags, strict=True)
    ]
    parameters = parameters_of([*types, i64])
    replacements: dict[Node, Node] = dict(zip(function.parameters, parameters, strict=False))
    for node in nodes_of(function):
        if node not in replacements:
            with originating_from(node.origins):
                replacements[node] = _index_member(
                    node, [replacements[operand] for operand in node.operands], parameters[-1], size
                )
    return Function(function.name, parameters, tuple(replacements[result] for result in function.results))


def _index_member(node: Node, operands: list[Node], index: Node, size: Size) -> Node:
    if isinstance(node.type, Tensor) and is_zero_node(node):
        return zero(batched_type(node.type, size))
    changed = [new.type is not old.type for new, old in zip(operands, node.operands, strict=True)]
    region = region_of(node)
    if region is not None:
        return _index_member_in_region(node, operands, changed, index, size)
    if node.op in (lookup, lookup_or, scatter_add, assign) and changed[0]:
        first_index = 1 if node.op is lookup else 2
        return node.op(*operands[:first_index], index, *operands[first_index:])
    if any(changed) and node.op is make:
        return make(*operands, type=batched_type(node.type, size))
    is_tensor = isinstance(node.type, Tensor) and node.op is not lookup
    if (any(changed) and node.op not in _ZERO_PRESERVING) or (is_tensor and not any(changed)):
        raise UsageError(f"`{node.op.name}` on a tensor inside a map has no rule for batches", where=node.origin)
    return make_node(node.op, tuple(operands), node.attributes)


def _index_member_in_region(node: Node, operands: list[Node], changed: list[bool], index: Node, size: Size) -> Node:
    region = region_of(node)
    assert region is not None
    leading = len(region.leading)
    functions = [
        _add_member_index(function, (*[False] * offset, *changed[leading:]), size)
        for function, offset in zip(region.functions, region.offsets, strict=True)
    ]
    arguments = range(len(region.arguments) + 1)
    return region.rebuild([*operands, index], functions, arguments, range(region.number))
