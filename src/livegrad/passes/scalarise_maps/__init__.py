"""The `scalarise_maps` pass: maps over aggregates and tensors become maps over scalars, which kernels run.

Aggregate operands and results of a map are decomposed; maps inside its function become loops (`inner_maps`); a sum of
tensors, as in gradients of lookups, becomes a scatter-add (`tensor_sums`).
"""

from __future__ import annotations

from collections.abc import Iterator

from livegrad.ir.function import map_results
from livegrad.ir.node import Function, Node
from livegrad.ir.types import Array, Struct, Tuple, Type, components
from livegrad.ir.walk import ops_in
from livegrad.ops.aggregate import get, make, make_tuple, member
from livegrad.ops.control import map_
from livegrad.ops.elementwise import detach
from livegrad.passes.flatten_signature import flatten_signature, leaf_types, leaves_of
from livegrad.passes.scalarise_maps.inner_maps import without_inner_maps
from livegrad.passes.scalarise_maps.tensor_sums import without_tensor_sums


def scalarise_maps(function: Function) -> Function:
    """The function with each of its maps scalarised; maps inside loops are handled with the loops."""
    return map_results(function, _prepared) if not ops_in(function).isdisjoint((get, detach, map_)) else function


def _prepared(node: Node) -> Node | None:
    if node.op is get and node.operands[0].op is make:
        return node.operands[0].operands[node.attribute("index")]
    if node.op is detach:
        return node.operands[0]  # all derivatives have been taken
    if node.op is not map_:
        return None
    apart = _flatten_map(node)
    return _in_scalars(node) if apart is None else apart


def _flatten_map(node: Node) -> Node | None:
    """A map of leaves, and its results put together again."""
    function: Function = node.attribute("function")
    flat = flatten_signature(function)
    if flat is function:
        return None
    operands = [leaf for operand in node.operands for leaf in leaves_of(operand)]
    lifted = _repeated(node.attribute("lifted"), function.parameter_types)
    summed = _repeated(node.attribute("summed"), function.result_types)
    leafwise = map_(*operands, function=flat, lifted=lifted, summed=summed)
    prepared = _in_scalars(leafwise)
    value = leafwise if prepared is None else prepared
    leaves = [value] if len(summed) == 1 else [member(value, index) for index in range(len(summed))]
    number = len(function.results)
    result_types = (node.type,) if number == 1 else components(node.type)
    supply = iter(leaves)
    results = [_assembled(type, supply) for type in result_types]
    return results[0] if number == 1 else make(*results, type=node.type)


def _repeated(flags: tuple[bool, ...], types: tuple[Type, ...]) -> tuple[bool, ...]:
    return tuple(flag for flag, type in zip(flags, types, strict=True) for _ in leaf_types(type))


def _assembled(type: Type, leaves: Iterator[Node]) -> Node:
    if not isinstance(type, Struct | Tuple | Array):
        return next(leaves)
    return make(*[_assembled(part, leaves) for part in components(type)], type=type)


def _in_scalars(node: Node) -> Node | None:
    """The map without tensors at its points; None if it has none."""
    function: Function = node.attribute("function")
    flat = without_inner_maps(function)
    if flat is not function:
        node = map_(*node.operands, function=flat, lifted=node.attribute("lifted"), summed=node.attribute("summed"))
    results = without_tensor_sums(node)
    if results is not None:
        return results[0] if len(results) == 1 else make_tuple(*results)
    return None if flat is function else node
