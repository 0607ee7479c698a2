"""Loop interchange before reverse mode: a loop of elementwise ops becomes a map of loops.

The linear part of a map recomputes each point, so its tape holds a few points and stays in the cache. The tape of a
loop over whole tensors is as large as all its states together. Called for tensor programs of constant sizes.
"""

from __future__ import annotations

from livegrad.ir.node import Function, Module, Node
from livegrad.ir.propagate_lines import cached_derivation
from livegrad.ir.types import Tensor, is_differentiable, shape_of
from livegrad.ir.walk import nodes_of, ops_in
from livegrad.ops.control import map_
from livegrad.passes.interchange_elementwise_loops import interchange_elementwise_loops
from livegrad.passes.interchange_point_loops import interchange_point_loops
from livegrad.passes.regions import LOOPS
from livegrad.passes.simplify import Simplify


@cached_derivation(256)
def loops_by_point(function: Function) -> Function:
    """Simplifies a function with loops, and turns loops of maps into maps of loops where reverse mode gains by it."""
    sizes = [size for node in function.parameters for size in shape_of(node.type)]
    if ops_in(function).isdisjoint(LOOPS):
        return function
    # A value that is spelt in two ways, such as `x[i]` twice, would be stored twice.
    (function,) = Simplify()(Module((function,))).functions
    if not all(isinstance(size, int) for size in sizes):
        return function
    if interchange_elementwise_loops(function) is not function:
        return function  # that pass later joins these loops with those of their backward pass
    interchanged = interchange_point_loops(function)
    before = set(nodes_of(function))
    new = [node for node in nodes_of(interchanged) if node.op is map_ and node not in before]
    return interchanged if new and not any(map(_sums_tensors, new)) else function


def _sums_tensors(node: Node) -> bool:
    """Whether the points of a map share a differentiable tensor: every point would add to its cotangent."""
    shared = [o.type for o, lifted in zip(node.operands, node.attribute("lifted"), strict=True) if not lifted]
    return any(isinstance(type, Tensor) and type.rank and is_differentiable(type) for type in shared)
