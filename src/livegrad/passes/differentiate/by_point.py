"""Loop interchange before reverse mode: a loop of elementwise ops becomes a map of loops.

The linear part of a map recomputes each point, so its tape holds a few points and stays in the cache. The tape of a
loop over whole tensors is as large as all its states together. Called for tensor programs of constant sizes.
"""

from __future__ import annotations

from math import prod

from livegrad.ir.node import Function, Module, Node
from livegrad.ir.propagate_lines import cached_derivation
from livegrad.ir.types import Tensor, is_differentiable, shape_of
from livegrad.ir.walk import nodes_of, ops_in
from livegrad.ops.control import parameters_of
from livegrad.ops.maps import map_, map_domain
from livegrad.ops.members import members_call
from livegrad.passes.differentiate.tangents import result_nodes
from livegrad.passes.interchange_elementwise_loops import interchange_elementwise_loops
from livegrad.passes.interchange_point_loops import interchange_point_loops
from livegrad.passes.privatise_map_sums import count_workers
from livegrad.passes.regions import LOOPS
from livegrad.passes.simplify import Simplify


@cached_derivation(256)
def loops_by_point(function: Function) -> Function:
    """Simplifies a function with loops, and turns loops of maps into maps of loops where reverse mode gains by it."""
    function = _simplify_loops(function)
    if not _has_loops(function) or interchange_elementwise_loops(function) is not function:
        return function  # that pass later joins these loops with those of their backward pass
    interchanged = interchange_point_loops(function)
    new = _new_maps(interchanged, function)
    return interchanged if new and not any(_count_summed(node) for node in new) else function


@cached_derivation(256)
def loops_by_point_with_sums(function: Function) -> Function | None:
    """Maps of loops whose points share small tensors: their cotangents are sums over all points and iterations.

    None if there are none. Only targets with `privatise_map_sums` gain by this form.
    """
    function = _simplify_loops(function)
    if not _has_loops(function):
        return None
    for interchange in (interchange_elementwise_loops, interchange_point_loops):
        interchanged = interchange(function)
        new = _new_maps(interchanged, function)
        if any(_count_summed(node) for node in new):
            return interchanged if all(map(_has_small_sums, new)) else None
        if new:
            return None
    return None


def call_by_point(function: Function, by_point: Function) -> Function:
    """A function in two forms. Targets without private sums run loops over whole tensors."""
    parameters = parameters_of(function.parameter_types)
    value = members_call(*parameters, function=function, in_turn=by_point)
    return Function(function.name, parameters, tuple(result_nodes(value, len(function.results))))


def _simplify_loops(function: Function) -> Function:
    """The simplified function if it has loops: a value that is spelt in two ways would be stored twice."""
    if ops_in(function).isdisjoint(LOOPS):
        return function
    return Simplify()(Module((function,))).functions[0]


def _has_loops(function: Function) -> bool:
    """Whether a function over constant sizes has loops."""
    sizes = [size for node in function.parameters for size in shape_of(node.type)]
    return not ops_in(function).isdisjoint(LOOPS) and all(isinstance(size, int) for size in sizes)


def _new_maps(interchanged: Function, function: Function) -> list[Node]:
    before = set(nodes_of(function))
    return [node for node in nodes_of(interchanged) if node.op is map_ and node not in before]


def _count_summed(node: Node) -> int:
    """The elements of differentiable tensors that the points of a map share: every point adds to their cotangents."""
    shared = [o.type for o, lifted in zip(node.operands, node.attribute("lifted"), strict=True) if not lifted]
    sizes = [shape_of(t) for t in shared if isinstance(t, Tensor) and t.rank and is_differentiable(t)]
    return sum(prod(size) for size in sizes)  # type: ignore[arg-type]  # only maps of constant sizes are made


def _has_small_sums(node: Node) -> bool:
    function: Function = node.attribute("function")
    domain = map_domain([operand.type for operand in node.operands], function, node.attribute("lifted"))
    return count_workers(prod(domain), _count_summed(node)) > 1  # type: ignore[arg-type]
