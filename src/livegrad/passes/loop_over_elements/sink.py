"""Moves cheap tensors that loops and branches capture into them, so that they are computed where they are used.

In: a function of a nest. What is moved reads nothing that the nest writes and cannot fail: masks, counts, indices.
"""

from __future__ import annotations

from collections.abc import Container

from livegrad.ir.function import map_results
from livegrad.ir.node import Function, Node, make_node
from livegrad.ir.types import Tensor
from livegrad.ir.walk import exchanged_functions, substitute, toposort
from livegrad.ops.aggregate import get, make
from livegrad.ops.control import cond, for_loop, parameters_of, switch, while_loop
from livegrad.ops.movement import broadcast, flip, iota, permute, reshape, slice_

_REGIONS = (for_loop, while_loop, cond, switch)
_MOVED = frozenset({broadcast, flip, iota, permute, reshape, slice_})
_MOST_COST = 12.0  # of one element


def sink_into_regions(function: Function, constant_from: int) -> Function:
    """The function with such tensors computed inside its loops and branches.

    Nothing writes the parameters from `constant_from` on.
    """
    constant = frozenset(function.parameters[constant_from:])

    def rule(node: Node) -> Node | None:
        if node.op is get and node.operands[0].op is make:
            return node.operands[0].operands[node.attribute("index")]
        return _sunk(node, constant) if node.op in _REGIONS else None

    return map_results(function, rule)


def _sunk(node: Node, constant: Container[Node]) -> Node | None:
    first = 0 if node.op is while_loop else 1
    carried = node.attribute("carried") if node.op in (for_loop, while_loop) else 0
    captured = node.operands[first + carried :]
    leaves: dict[Node, list[Node]] = {}
    for operand in captured:
        found = _cheap_leaves(operand, constant)
        if found is not None:
            leaves[operand] = found
    if not leaves:
        return None
    kept = [operand for operand in captured if operand not in leaves]
    kept = list(dict.fromkeys([*kept, *[leaf for found in leaves.values() for leaf in found]]))
    exchange = {}
    for name, function in _functions(node):
        before = carried + (1 if name == "body" else 0)
        parameters = parameters_of([*function.parameter_types[:before], *[own.type for own in kept]])
        inside = dict(zip(kept, parameters[before:], strict=True))
        given = dict(zip(function.parameters[:before], parameters[:before], strict=True))
        for parameter, operand in zip(function.parameters[before:], captured, strict=True):
            given[parameter] = inside[operand] if operand in inside else substitute([operand], inside)[0]
        exchange[function] = Function(function.name, parameters, substitute(function.results, given, function.places))
    operands = (*node.operands[: first + carried], *kept)
    return make_node(node.op, operands, exchanged_functions(node.attributes, exchange))  # type: ignore[arg-type]


def _functions(node: Node) -> list[tuple[str, Function]]:
    found: list[tuple[str, Function]] = []
    for name, value in node.attributes:
        if isinstance(value, Function):
            found.append((name, value))
        elif isinstance(value, tuple):
            found += [(name, item) for item in value if isinstance(item, Function)]
    return found


def _cheap_leaves(tensor: Node, constant: Container[Node]) -> list[Node] | None:
    """The values that a cheap tensor is computed from; None for other tensors."""
    if not _is_array(tensor) or tensor in constant:
        return None
    cost, leaves = 0.0, list[Node]()
    for node in toposort([tensor], stop=lambda node: not _is_array(node) or node in constant):
        if not _is_array(node) or node in constant:
            if not isinstance(node.type, Tensor) and not node.operands and node.op.name == "constant":
                continue
            leaves.append(node)
        elif node.may_fail or not (node.op.elementwise or node.op in _MOVED):
            return None
        else:
            cost += node.op.cost
    return leaves if cost <= _MOST_COST else None


def _is_array(node: Node) -> bool:
    return isinstance(node.type, Tensor) and bool(node.type.shape)
