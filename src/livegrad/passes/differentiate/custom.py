"""Custom derivatives: the rules of `custom_call` for both modes.

If the user defines a derivative for one mode only, the other mode uses its transpose.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from livegrad.diagnostics import DifferentiationError
from livegrad.ir.node import Function, Module, Node
from livegrad.ir.types import is_differentiable
from livegrad.ir.walk import nodes_of, rebuild
from livegrad.ops.control import call
from livegrad.ops.custom import custom_call, custom_linear
from livegrad.ops.rules import zero
from livegrad.passes.differentiate import forward, linearize
from livegrad.passes.differentiate.propagate import active_flags, active_nodes, spread
from livegrad.passes.differentiate.reverse import pull_back
from livegrad.passes.differentiate.tangents import Tangent, is_zero, materialize, result_nodes, result_tangent
from livegrad.passes.eliminate_dead_results import eliminate_dead_results


def _push_forward(node: Node, primals: tuple[Node, ...], tangents: tuple[Tangent, ...]) -> tuple[Node, Tangent]:
    primal = rebuild(node, primals)
    if not is_differentiable(node.type):
        return primal, None
    _require_no_captures(node, tangents)
    rule, backward, stand_in = (node.attribute(name) for name in ("forward", "backward", "stand_in"))
    if rule is not None:
        value = call(*primals, *_differentials(primals, tangents), function=rule)
        return primal, _result_tangent(node, result_nodes(value, len(rule.results)))
    if backward is not None:
        return primal, _result_tangent(node, _apply_transposed_backward(node, primals, tangents))
    return primal, forward.call_tangent(stand_in, primals, tangents)


def _linearize(node: Node, primals: tuple[Node, ...], tangents: tuple[Tangent, ...]) -> tuple[Node, Tangent]:
    primal = rebuild(node, primals)
    if not is_differentiable(node.type):
        return primal, None
    _require_no_captures(node, tangents)
    rule, backward, stand_in = (node.attribute(name) for name in ("forward", "backward", "stand_in"))
    if backward is not None:
        residuals = _residuals(node, primals)
        tangent_nodes = active_nodes(tangents, primals, active_flags(tangents))
        wanted = _restrict_to_active(backward, primals, tangents)
        value = custom_linear(*residuals, *tangent_nodes, backward=wanted, residuals=len(residuals))
        return primal, _result_tangent(node, result_nodes(value, len(wanted.parameters) - len(residuals)))
    if rule is not None:
        _require_linear(rule, _active_tangents(primals, tangents))
        return primal, _result_tangent(
            node, _split_tangent(_apply_forward_rule(rule, primals, tangents), len(rule.results))
        )
    return primal, linearize.call_tangent(stand_in, primals, tangents)


forward.RULES[custom_call] = _push_forward
linearize.RULES[custom_call] = _linearize


def _require_no_captures(node: Node, tangents: tuple[Tangent, ...]) -> None:
    """Raises if a captured value is differentiated: custom rules cover only arguments, and would silently give zero."""
    captures = dict(node.attributes).get("captures", 0)
    if captures and not all(map(is_zero, tangents[-captures:])):
        raise DifferentiationError(
            f"the derivative of `{node.attribute('function').name}` covers only its arguments, "
            "but it also uses an outer value that is differentiated",
            where=node.origin,
            help="pass that value as an argument, or use lg.stop_gradient on it",
        )


def _apply_forward_rule(rule: Function, primals: tuple[Node, ...], tangents: tuple[Tangent, ...]) -> Tangent:
    """The tangents of the results by a forward derivative, which is linear: its own derivative at zero tangents."""
    differentiable = [(p, t) for p, t in zip(primals, tangents, strict=True) if is_differentiable(p.type)]
    at_zero = [materialize(None, p.type) for p, _ in differentiable]
    return linearize.call_tangent(rule, (*primals, *at_zero), (*[None] * len(primals), *(t for _, t in differentiable)))


def _apply_transposed_backward(node: Node, primals: tuple[Node, ...], tangents: tuple[Tangent, ...]) -> list[Node]:
    """The tangents of the results by a backward derivative: the transpose of a transpose."""
    residuals = _residuals(node, primals)
    backward = _restrict_to_active(node.attribute("backward"), primals, tangents)
    active = tuple(index >= len(residuals) for index in range(len(backward.parameters)))
    _require_linear(backward, active)
    at_zero = [zero(type) for type in backward.parameter_types[len(residuals) :]]
    tangent_nodes = active_nodes(tangents, primals, active_flags(tangents))
    value = call(*residuals, *at_zero, *tangent_nodes, function=pull_back(backward, active))
    return result_nodes(value, len(at_zero))


def _residuals(node: Node, primals: tuple[Node, ...]) -> Sequence[Node]:
    """The arguments that the backward derivative takes before the cotangents."""
    save = node.attribute("save")
    return primals if save is None else result_nodes(call(*primals, function=save), len(save.results))


def _restrict_to_active(backward: Function, primals: Sequence[Node], tangents: Sequence[Tangent]) -> Function:
    """The backward derivative, restricted to the cotangents of operands that have a tangent."""
    flags = [not is_zero(t) for p, t in zip(primals, tangents, strict=True) if is_differentiable(p.type)]
    wanted = tuple(result for result, flag in zip(backward.results, flags, strict=True) if flag)
    return Function(backward.name, backward.parameters, wanted)


def _differentials(primals: Sequence[Node], tangents: Sequence[Tangent]) -> list[Node]:
    return active_nodes(tangents, primals, [is_differentiable(p.type) for p in primals])


def _active_tangents(primals: Sequence[Node], tangents: Sequence[Tangent]) -> tuple[bool, ...]:
    """A flag for each parameter of a forward derivative: whether it is a nonzero tangent."""
    active = [not is_zero(t) for p, t in zip(primals, tangents, strict=True) if is_differentiable(p.type)]
    return (*[False] * len(primals), *active)


def _split_tangent(tangent: Tangent, count: int) -> list[Tangent]:
    if count == 1 or tangent is None:
        return [tangent] * count
    return list(tangent) if isinstance(tangent, tuple) else [*result_nodes(tangent, count)]


def _result_tangent(node: Node, parts: Sequence[Tangent]) -> Tangent:
    """The tangent of the call, from those of its differentiable results."""
    results = node.attribute("function").result_types
    return result_tangent(spread(parts, [is_differentiable(type) for type in results]))


@lru_cache(maxsize=1024)
def _require_linear(rule: Function, active: tuple[bool, ...]) -> None:
    """Raises unless the rule is linear in the active parameters: its derivative must not depend on their values."""
    linear = linearize.linearize(rule, active)
    flags = linear.flags
    results = tuple(active_nodes(linear.tangents, linear.function.results, flags))
    parameters = (*linear.function.parameters, *linear.tangent_parameters)
    # Loops may carry values that the tangents do not depend on: remove them before looking.
    (derivative,) = eliminate_dead_results(Module((Function(rule.name, parameters, results),))).functions
    used = set(nodes_of(derivative))
    for index, (node, flag) in enumerate(zip(linear.function.parameters, active, strict=True)):
        if flag and node in used:
            raise DifferentiationError(
                f"the derivative `{rule.name}` is not linear in its parameter {index}",
                where=rule.results[0].origin if rule.results else None,
                expected="sums of tangents times values that do not depend on tangents",
                help="define a derivative for the other mode too: this one cannot be transposed",
            )
