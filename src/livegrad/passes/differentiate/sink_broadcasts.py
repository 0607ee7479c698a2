"""Loops that capture a broadcast capture what it repeats: reverse mode then sums its cotangent in each iteration.

Outside, the loop would accumulate a cotangent for every copy. Called by `linearize`, for loops in its function.
"""

from __future__ import annotations

from livegrad.ir.function import inline, map_results
from livegrad.ir.node import Function, Node, make_node
from livegrad.ir.types import Tensor, is_differentiable
from livegrad.ir.walk import ops_in
from livegrad.ops.control import parameters_of
from livegrad.ops.movement import broadcast, reshape
from livegrad.passes.regions import LOOPS, first_argument, region_of


def sink_broadcasts(function: Function) -> Function:
    """The function with the broadcasts of differentiable values that its loops capture inside those loops."""
    ops = ops_in(function)
    return function if ops.isdisjoint(LOOPS) or broadcast not in ops else map_results(function, _sink)


def _sink(node: Node) -> Node | None:
    """A loop with sources of broadcasts in the place of those among its captured values."""
    if node.op not in LOOPS:
        return None
    first = first_argument(node) + node.attribute("carried")
    chains = [_repeating(operand) for operand in node.operands[first:]]
    if not any(chains):
        return None
    captured = [chain[-1].operands[0] if chain else o for o, chain in zip(node.operands[first:], chains, strict=True)]
    region = region_of(node)
    assert region is not None
    operands = (*node.operands[:first], *captured)
    functions = [
        _with_chains(own, offset + node.attribute("carried"), chains)
        for own, offset in zip(region.functions, region.offsets, strict=True)
    ]
    kept = range(len(operands) - len(region.leading))
    return region.rebuild(operands, functions, kept, range(region.number))


def _repeating(value: Node) -> list[Node]:
    """The broadcast that a value is, and reshapes around it, the outermost first; nothing if it repeats no tensor."""
    if not is_differentiable(value.type):
        return []
    chain = [value]
    while chain[-1].op in (broadcast, reshape) and not _repeats(chain[-1]):
        chain.append(chain[-1].operands[0])
    if not _repeats(chain[-1]):
        return []
    while chain[-1].operands[0].op is reshape:
        chain.append(chain[-1].operands[0])
    return chain


def _repeats(node: Node) -> bool:
    if node.op is not broadcast:
        return False
    (source,) = node.operands
    return isinstance(source.type, Tensor) and isinstance(node.type, Tensor) and source.type.shape != node.type.shape


def _with_chains(function: Function, start: int, chains: list[list[Node]]) -> Function:
    """The function with the sources of these chains for its parameters from `start` on."""
    types = list(function.parameter_types)
    for number, chain in enumerate(chains, start):
        types[number] = chain[-1].operands[0].type if chain else types[number]
    parameters = parameters_of(types)
    values = list(parameters)
    for number, chain in enumerate(chains, start):
        for link in reversed(chain):
            values[number] = make_node(link.op, (values[number],), link.attributes)
    return Function(function.name, parameters, inline(function, values))
