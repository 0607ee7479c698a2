"""Sinks broadcasts into the loops that capture them, so that the loops capture the smaller source.

Reverse mode then reduces the cotangent in each iteration; outside, the loop would accumulate a cotangent for every
copy. Called by `linearize`.
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
    """Moves the broadcasts of differentiable values that loops capture into those loops."""
    ops = ops_in(function)
    return function if ops.isdisjoint(LOOPS) or broadcast not in ops else map_results(function, _sink)


def _sink(node: Node) -> Node | None:
    """A loop that captures the sources of broadcasts; None if it captures no broadcast."""
    if node.op not in LOOPS:
        return None
    first = first_argument(node) + node.attribute("carried")
    chains = [_find_broadcast_chain(operand) for operand in node.operands[first:]]
    if not any(chains):
        return None
    captured = [chain[-1].operands[0] if chain else o for o, chain in zip(node.operands[first:], chains, strict=True)]
    region = region_of(node)
    assert region is not None
    operands = (*node.operands[:first], *captured)
    functions = [
        _apply_chains_inside(function, offset + node.attribute("carried"), chains)
        for function, offset in zip(region.functions, region.offsets, strict=True)
    ]
    arguments = range(len(operands) - len(region.leading))
    return region.rebuild(operands, functions, arguments, range(region.number))


def _find_broadcast_chain(value: Node) -> list[Node]:
    """The reshapes and the one broadcast that compute a value, outermost first; empty if no tensor is repeated."""
    if not is_differentiable(value.type):
        return []
    chain = [value]
    while chain[-1].op in (broadcast, reshape) and not _repeats_tensor(chain[-1]):
        chain.append(chain[-1].operands[0])
    if not _repeats_tensor(chain[-1]):
        return []
    while chain[-1].operands[0].op is reshape:
        chain.append(chain[-1].operands[0])
    return chain


def _repeats_tensor(node: Node) -> bool:
    if node.op is not broadcast:
        return False
    (source,) = node.operands
    return isinstance(source.type, Tensor) and isinstance(node.type, Tensor) and source.type.shape != node.type.shape


def _apply_chains_inside(function: Function, start: int, chains: list[list[Node]]) -> Function:
    """Replaces each parameter from `start` on by its chain, applied to a parameter for the chain's source."""
    types = list(function.parameter_types)
    for index, chain in enumerate(chains, start):
        types[index] = chain[-1].operands[0].type if chain else types[index]
    parameters = parameters_of(types)
    values = list(parameters)
    for index, chain in enumerate(chains, start):
        for link in reversed(chain):
            values[index] = make_node(link.op, (values[index],), link.attributes)
    return Function(function.name, parameters, inline(function, values))
