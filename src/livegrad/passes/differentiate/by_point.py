"""Loops whose points never meet become maps of loops before reverse mode differentiates them.

The linear part of a map computes each point again: its tape is that of a few points, and stays in the cache. The tape
of a loop over whole tensors is as large as all its states. Called for tensor programs, whose sizes are numbers.
"""

from __future__ import annotations

from livegrad.ir.node import Function, Node
from livegrad.ir.propagate_lines import cached_derivation
from livegrad.ir.types import Tensor, is_differentiable, shape_of
from livegrad.ir.walk import nodes_of, ops_in
from livegrad.ops.control import map_
from livegrad.passes.interchange_elementwise_loops import interchange_elementwise_loops
from livegrad.passes.interchange_point_loops import interchange_point_loops
from livegrad.passes.regions import LOOPS


@cached_derivation(256)
def loops_by_point(function: Function) -> Function:
    """The function with maps of loops in the place of loops of maps, where that is what reverse mode gains by."""
    sizes = [size for node in function.parameters for size in shape_of(node.type)]
    if ops_in(function).isdisjoint(LOOPS) or not all(isinstance(size, int) for size in sizes):
        return function
    if interchange_elementwise_loops(function) is not function:
        return function  # that pass joins such loops with those of their backward pass
    interchanged = interchange_point_loops(function)
    before = set(nodes_of(function))
    new = [node for node in nodes_of(interchanged) if node.op is map_ and node not in before]
    return interchanged if new and not any(map(_sums_tensors, new)) else function


def _sums_tensors(node: Node) -> bool:
    """Whether points share a tensor: its cotangent would be a tensor that every point adds to."""
    shared = [o.type for o, lifted in zip(node.operands, node.attribute("lifted"), strict=True) if not lifted]
    return any(isinstance(type, Tensor) and type.rank and is_differentiable(type) for type in shared)
