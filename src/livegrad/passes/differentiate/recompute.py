"""The rules of `recompute_call`, which reverse mode recomputes instead of storing its residuals.

The linear part of such a call is the gradient of its function, over operands that are available only `after` the
cotangents, so that values computed from them are not merged with those of the forward pass. Values marked as `kept`
inside are stored like the operands.
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
    """Value and tangent are computed together, and computed again by a reverse mode around this one."""
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
    # What is marked inside is remembered beside the operands, and not computed again.
    marked, number = _marked_as_kept(function), len(function.results)
    wide = Function(function.name, function.parameters, (*function.results, *marked))
    nodes = result_nodes(recompute_call(*primals, function=wide), number + len(marked))
    active = active_flags(tangents)
    tangent_nodes = active_nodes(tangents, primals, active)
    value = recompute_linear(*primals, *nodes[number:], *tangent_nodes, function=wide, results=number, active=active)
    parts = spread(result_nodes(value, sum(differentiable)), differentiable)
    return pack_results(nodes[:number]), result_tangent(parts)


def _transpose(node: Node, cotangent: Tangent, linear: tuple[bool, ...]) -> list[Tangent]:
    """The gradient of only the results with a cotangent: zero times an overflowed value would be NaN."""
    wide, number, active = (node.attribute(name) for name in ("function", "results", "active"))
    differentiable = [result for result in wide.results[:number] if is_differentiable(result.type)]
    parts = (
        [cotangent]
        if len(differentiable) == 1
        else [tangent_member(cotangent, node.type, i) for i in range(len(differentiable))]
    )
    wanted = [(part, result) for part, result in zip(parts, differentiable, strict=True) if not is_zero(part)]
    function = Function(wide.name, wide.parameters, tuple(result for _, result in wanted))
    gradient = _recomputing_gradient(function, wide.results[number:], active)
    cotangents = [materialize(part, differential_of(result.type)) for part, result in wanted]
    residuals = len(wide.parameters) + len(wide.results) - number
    value = recompute_call(*node.operands[:residuals], *cotangents, function=gradient)
    cotangents_of_operands = [*[None] * residuals, *result_nodes(value, sum(active))]
    return [part if flag else None for part, flag in zip(cotangents_of_operands, linear, strict=True)]


def _marked_as_kept(function: Function) -> tuple[Node, ...]:
    marked = dict.fromkeys(node.operands[0] for node in nodes_of(function) if node.op is kept)
    return tuple(node for node in marked if node.operands)


@cached_derivation(1024)
def _recomputing_gradient(function: Function, marked: tuple[Node, ...], active: tuple[bool, ...]) -> Function:
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
    gradient = _with_values(pull_back(function, active), marked)
    value = recompute_call(*later, *seeds, *stored, function=gradient)
    return Function(gradient.name, parameters, tuple(result_nodes(value, sum(active))))


def _with_values(gradient: Function, marked: Sequence[Node]) -> Function:
    """The gradient with the values of these nodes for further parameters."""
    if not marked:
        return gradient
    types = [*gradient.parameter_types, *(node.type for node in marked)]
    parameters = parameters_of(types)
    values = parameters[len(gradient.parameters) :]
    return Function(gradient.name, parameters, substitute(gradient.results, dict(zip(marked, values, strict=True))))


forward.RULES[recompute_call] = _push_forward
linearize.RULES[recompute_call] = _linearize
transpose.RULES[recompute_linear] = _transpose
