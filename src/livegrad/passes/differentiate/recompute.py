"""Calls that reverse mode computes again instead of remembering what is inside: the rules of `recompute_call`.

The linear part of such a call is the gradient of its function, over operands that are there only `after` the
cotangents: what is computed from them is then not the same as what was computed on the way there.
"""

from __future__ import annotations

from functools import lru_cache

from livegrad.ir.node import Function, Node
from livegrad.ir.types import differential_of, is_differentiable
from livegrad.ir.walk import rebuild
from livegrad.ops.control import parameters_of
from livegrad.ops.custom import custom_linear, recompute_call
from livegrad.ops.order import each_after
from livegrad.ops.rules import zero
from livegrad.passes.differentiate import forward, linearize
from livegrad.passes.differentiate.propagate import active_flags, active_nodes, spread
from livegrad.passes.differentiate.reverse import pull_back
from livegrad.passes.differentiate.tangents import Tangent, result_nodes, result_tangent


def _push_forward(node: Node, primals: tuple[Node, ...], tangents: tuple[Tangent, ...]) -> tuple[Node, Tangent]:
    """Value and tangent are computed together, and computed again by a reverse mode around this one."""
    function: Function = node.attribute("function")
    active = active_flags(tangents)
    derived, flags = forward.push_forward(function, active)
    value = recompute_call(*primals, *active_nodes(tangents, primals, active), function=derived)
    return forward.split_results(value, len(function.results), flags)


def _linearize(node: Node, primals: tuple[Node, ...], tangents: tuple[Tangent, ...]) -> tuple[Node, Tangent]:
    function: Function = node.attribute("function")
    primal = rebuild(node, primals)
    differentiable = [is_differentiable(type) for type in function.result_types]
    if not any(differentiable):
        return primal, None
    active = active_flags(tangents)
    given = active_nodes(tangents, primals, active)
    value = custom_linear(*primals, *given, backward=_recomputing_gradient(function, active), residuals=len(primals))
    return primal, result_tangent(spread(result_nodes(value, sum(differentiable)), differentiable))


@lru_cache(maxsize=1024)
def _recomputing_gradient(function: Function, active: tuple[bool, ...]) -> Function:
    """(arguments, cotangents of the differentiable results) → cotangents of the active arguments."""
    gradient = pull_back(function, active)
    own = function.parameter_types
    cotangents = [differential_of(type) for type in function.result_types if is_differentiable(type)]
    parameters = parameters_of([*own, *cotangents])
    arguments, given = parameters[: len(own)], parameters[len(own) :]
    supply = iter(given)
    every = [next(supply) if is_differentiable(type) else zero(differential_of(type)) for type in function.result_types]
    later = [each_after(argument, *given) for argument in arguments]
    value = recompute_call(*later, *every, function=gradient)
    return Function(gradient.name, parameters, tuple(result_nodes(value, sum(active))))


forward.RULES[recompute_call] = _push_forward
linearize.RULES[recompute_call] = _linearize
