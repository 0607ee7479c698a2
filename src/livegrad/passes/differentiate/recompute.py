"""The rules of `recompute_call`: reverse mode recomputes its residuals instead of storing them.

The linear part of such a call is the gradient of its function. Its operands are ordered `after` the cotangents, so that
recomputed values are not merged with those of the forward pass. Values marked as `kept` inside are stored like the
operands.
"""

from __future__ import annotations

from collections.abc import Sequence

from livegrad.ir.node import Function, Node
from livegrad.ir.propagate_lines import cached_derivation
from livegrad.ir.types import differential_of, is_differentiable
from livegrad.ir.walk import nodes_of, rebuild, substitute
from livegrad.ops.control import parameters_of
from livegrad.ops.custom import recompute_call, recompute_linear
from livegrad.ops.order import each_after, kept
from livegrad.passes.differentiate import forward, linearize, transpose
from livegrad.passes.differentiate.propagate import active_flags, active_nodes, spread
from livegrad.passes.differentiate.reverse import pull_back
from livegrad.passes.differentiate.tangents import (
    Tangent,
    is_zero,
    materialize,
    pack_results,
    result_nodes,
    result_tangent,
    tangent_member,
)


def _push_forward(node: Node, primals: tuple[Node, ...], tangents: tuple[Tangent, ...]) -> tuple[Node, Tangent]:
    """Computes value and tangent in one `recompute_call`, which an enclosing reverse mode recomputes."""
    function: Function = node.attribute("function")
    active = active_flags(tangents)
    derived, flags = forward.push_forward(function, active)
    value = recompute_call(*primals, *active_nodes(tangents, primals, active), function=derived)
    return forward.split_results(value, len(function.results), flags)


def _linearize(node: Node, primals: tuple[Node, ...], tangents: tuple[Tangent, ...]) -> tuple[Node, Tangent]:
    function: Function = node.attribute("function")
    differentiable = [is_differentiable(type) for type in function.result_types]
    if not any(differentiable):
        return rebuild(node, primals), None
    # Values marked as kept are stored beside the operands, and not recomputed.
    marked, count = _find_kept_values(function), len(function.results)
    wide = Function(function.name, function.parameters, (*function.results, *marked))
    nodes = result_nodes(recompute_call(*primals, function=wide), count + len(marked))
    active = active_flags(tangents)
    tangent_nodes = active_nodes(tangents, primals, active)
    value = recompute_linear(*primals, *nodes[count:], *tangent_nodes, function=wide, results=count, active=active)
    parts = spread(result_nodes(value, sum(differentiable)), differentiable)
    return pack_results(nodes[:count]), result_tangent(parts)


def _transpose(node: Node, cotangent: Tangent, linear: tuple[bool, ...]) -> list[Tangent]:
    """Only results with a cotangent enter the gradient: zero times an overflowed value would be NaN."""
    wide, count, active = (node.attribute(name) for name in ("function", "results", "active"))
    differentiable = [result for result in wide.results[:count] if is_differentiable(result.type)]
    parts = (
        [cotangent]
        if len(differentiable) == 1
        else [tangent_member(cotangent, node.type, i) for i in range(len(differentiable))]
    )
    wanted = [(part, result) for part, result in zip(parts, differentiable, strict=True) if not is_zero(part)]
    function = Function(wide.name, wide.parameters, tuple(result for _, result in wanted))
    gradient = _build_recomputing_gradient(function, wide.results[count:], active)
    cotangents = [materialize(part, differential_of(result.type)) for part, result in wanted]
    residuals = len(wide.parameters) + len(wide.results) - count
    value = recompute_call(*node.operands[:residuals], *cotangents, function=gradient)
    cotangents_of_operands = [*[None] * residuals, *result_nodes(value, sum(active))]
    return [part if flag else None for part, flag in zip(cotangents_of_operands, linear, strict=True)]


def _find_kept_values(function: Function) -> tuple[Node, ...]:
    marked = dict.fromkeys(node.operands[0] for node in nodes_of(function) if node.op is kept)
    return tuple(node for node in marked if node.operands)


@cached_derivation(1024)
def _build_recomputing_gradient(function: Function, marked: tuple[Node, ...], active: tuple[bool, ...]) -> Function:
    """(arguments, kept values, cotangents of the results) → cotangents of the active arguments."""
    count = len(function.parameters)
    cotangents = map(differential_of, function.result_types)
    parameters = parameters_of([*function.parameter_types, *(node.type for node in marked), *cotangents])
    arguments, stored, seeds = (
        parameters[:count],
        parameters[count : count + len(marked)],
        parameters[count + len(marked) :],
    )
    later = [each_after(argument, *seeds) for argument in arguments]
    gradient = _parametrise_values(pull_back(function, active), marked)
    value = recompute_call(*later, *seeds, *stored, function=gradient)
    return Function(gradient.name, parameters, tuple(result_nodes(value, sum(active))))


def _parametrise_values(gradient: Function, marked: Sequence[Node]) -> Function:
    """Replaces these nodes in the gradient by further parameters."""
    if not marked:
        return gradient
    types = [*gradient.parameter_types, *(node.type for node in marked)]
    parameters = parameters_of(types)
    values = parameters[len(gradient.parameters) :]
    return Function(gradient.name, parameters, substitute(gradient.results, dict(zip(marked, values, strict=True))))


forward.RULES[recompute_call] = _push_forward
linearize.RULES[recompute_call] = _linearize
transpose.RULES[recompute_linear] = _transpose
