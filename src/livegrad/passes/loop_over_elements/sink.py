"""Sinks cheap tensors into the loops and branches that capture them, so that they need no memory.

In: a function of a loop nest. Such tensors (masks, counts, indices) cannot fail, and read nothing that the nest writes.
"""

from __future__ import annotations

from collections.abc import Container

from livegrad.ir.function import map_results
from livegrad.ir.node import Function, Node, make_node
from livegrad.ir.types import Tensor
from livegrad.ir.walk import exchanged_functions, substitute, toposort
from livegrad.ops.control import parameters_of
from livegrad.ops.movement import broadcast, flip, iota, permute, reshape, slice_
from livegrad.passes.flatten_signature import get_of_make
from livegrad.passes.loop_over_elements.versions import is_array
from livegrad.passes.regions import BRANCHES, LOOPS, region_of

_MOVEMENTS = frozenset({broadcast, flip, iota, permute, reshape, slice_})
_MAX_COST = 12.0  # of one element


def sink_into_regions(function: Function, constant_from: int) -> Function:
    """Sinks cheap captured tensors of a function; nothing writes its parameters from `constant_from` on."""
    constant = frozenset(function.parameters[constant_from:])

    def rule(node: Node) -> Node | None:
        return _sink_captures(node, constant) if node.op in (*LOOPS, *BRANCHES) else get_of_make(node)

    return map_results(function, rule)


def _sink_captures(node: Node, constant: Container[Node]) -> Node | None:
    region = region_of(node)
    assert region is not None
    carried = region.number if region.is_loop else 0
    captured = region.arguments[carried:]
    leaves: dict[Node, list[Node]] = {}
    for operand in captured:
        cheap = _find_cheap_leaves(operand, constant)
        if cheap is not None:
            leaves[operand] = cheap
    if not leaves:
        return None
    new_captures = [operand for operand in captured if operand not in leaves]
    new_captures = list(dict.fromkeys([*new_captures, *[leaf for cheap in leaves.values() for leaf in cheap]]))
    exchange = {}
    for function, offset in zip(region.functions, region.offsets, strict=True):
        before = offset + carried
        parameters = parameters_of([*function.parameter_types[:before], *[value.type for value in new_captures]])
        inside = dict(zip(new_captures, parameters[before:], strict=True))
        replacements = dict(zip(function.parameters[:before], parameters[:before], strict=True))
        for parameter, operand in zip(function.parameters[before:], captured, strict=True):
            replacements[parameter] = inside[operand] if operand in inside else substitute([operand], inside)[0]
        exchange[function] = Function(
            function.name, parameters, substitute(function.results, replacements, function.source_locations)
        )
    operands = (*region.leading, *region.arguments[:carried], *new_captures)
    return make_node(node.op, operands, exchanged_functions(node.attributes, exchange))  # type: ignore[arg-type]


def _find_cheap_leaves(tensor: Node, constant: Container[Node]) -> list[Node] | None:
    """The values that a cheap tensor is computed from; None if it is not cheap."""
    if not is_array(tensor.type) or tensor in constant:
        return None
    cost, leaves = 0.0, list[Node]()
    for node in toposort([tensor], stop=lambda node: not is_array(node.type) or node in constant):
        if not is_array(node.type) or node in constant:
            if not isinstance(node.type, Tensor) and not node.operands and node.op.name == "constant":
                continue
            leaves.append(node)
        elif node.may_fail or not (node.op.elementwise or node.op in _MOVEMENTS):
            return None
        else:
            cost += node.op.cost
    return leaves if cost <= _MAX_COST else None
