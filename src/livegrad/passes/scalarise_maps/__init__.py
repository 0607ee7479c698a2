"""The `scalarise_maps` pass: maps over aggregates and tensors become maps over scalars, which kernels run.

Aggregate operands and results of a map are decomposed, nested maps become loops (`inner_maps`), and sums of tensors, as
in gradients of lookups, become scatter-adds (`tensor_sums`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from livegrad.ir.function import map_results
from livegrad.ir.node import Function, Node
from livegrad.ir.types import Array, Struct, Tuple, Type, components
from livegrad.ir.walk import ops_in
from livegrad.ops.aggregate import get, make, make_tuple, member
from livegrad.ops.elementwise import detach
from livegrad.ops.maps import map_
from livegrad.passes.flatten_signature import flatten_signature, leaf_types, leaves_of
from livegrad.passes.scalarise_maps.inner_maps import convert_inner_maps
from livegrad.passes.scalarise_maps.tensor_sums import convert_tensor_sums


def scalarise_maps(function: Function) -> Function:
    """Scalarises the maps of a function; those in loop bodies are scalarised when the body is compiled."""
    return map_results(function, _scalarise_node) if not ops_in(function).isdisjoint((get, detach, map_)) else function


def _scalarise_node(node: Node) -> Node | None:
    if node.op is get and node.operands[0].op is make:
        return node.operands[0].operands[node.attribute("index")]
    if node.op is detach:
        return node.operands[0]  # all derivatives have been taken
    if node.op is not map_:
        return None
    return flatten_map(node, _remove_tensors)


def flatten_map(node: Node, rewrite: Callable[[Node], Node | None]) -> Node | None:
    """Decomposes a map over aggregates into a map over leaves, and rewrites that; None if neither changes anything."""
    function: Function = node.attribute("function")
    flat = flatten_signature(function)
    if flat is function:
        return rewrite(node)
    operands = [leaf for operand in node.operands for leaf in leaves_of(operand)]
    lifted = _repeat_for_leaves(node.attribute("lifted"), function.parameter_types)
    summed = _repeat_for_leaves(node.attribute("summed"), function.result_types)
    leafwise = map_(*operands, function=flat, lifted=lifted, summed=summed)
    rewritten = rewrite(leafwise)
    value = leafwise if rewritten is None else rewritten
    leaves = [value] if len(summed) == 1 else [member(value, index) for index in range(len(summed))]
    count = len(function.results)
    result_types = (node.type,) if count == 1 else components(node.type)
    supply = iter(leaves)
    results = [_assemble(type, supply) for type in result_types]
    return results[0] if count == 1 else make(*results, type=node.type)


def _repeat_for_leaves(flags: tuple[bool, ...], types: tuple[Type, ...]) -> tuple[bool, ...]:
    return tuple(flag for flag, type in zip(flags, types, strict=True) for _ in leaf_types(type))


def _assemble(type: Type, leaves: Iterator[Node]) -> Node:
    if not isinstance(type, Struct | Tuple | Array):
        return next(leaves)
    return make(*[_assemble(part, leaves) for part in components(type)], type=type)


def _remove_tensors(node: Node) -> Node | None:
    """Removes nested maps and sums of tensors from a map; returns None if it has neither."""
    function: Function = node.attribute("function")
    flat = convert_inner_maps(function)
    if flat is not function:
        node = map_(*node.operands, function=flat, lifted=node.attribute("lifted"), summed=node.attribute("summed"))
    results = convert_tensor_sums(node)
    if results is not None:
        return results[0] if len(results) == 1 else make_tuple(*results)
    return None if flat is function else node
