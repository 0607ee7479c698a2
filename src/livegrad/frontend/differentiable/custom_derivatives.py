"""Attaches custom derivatives to a specialisation: forward rules, backward rules and primal substitutes.

A function with a custom derivative is wrapped in a `custom_call` that carries its rules, so every use of the function,
also inside other derivatives, applies them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from livegrad.frontend.differentiable.custom_sums import use_custom_sums
from livegrad.frontend.differentiable.differentials import lower_differential, raise_differential
from livegrad.frontend.differentiable.pair import PairType, pair_type
from livegrad.frontend.function.captured import CapturedFunction, Specialization
from livegrad.frontend.function.compile_values import Value
from livegrad.frontend.function.function_errors import FunctionError, Span
from livegrad.frontend.function.function_types import NONE, FrontType, TupleType, describe, differential_type, ir_of
from livegrad.frontend.function.overloads import choose
from livegrad.ir import types as ir
from livegrad.ir.function import make_function
from livegrad.ir.leaves import input_node
from livegrad.ir.node import Function, Key, Node
from livegrad.ir.walk import rewrite
from livegrad.ops.aggregate import get, make, member
from livegrad.ops.control import call
from livegrad.ops.custom import custom_call, recompute_call
from livegrad.ops.order import kept
from livegrad.ops.rules import zero
from livegrad.passes.differentiate.budget import within_budget

if TYPE_CHECKING:
    from livegrad.frontend.differentiable.differentiable_function import DifferentiableFunction


def attach_custom_derivatives(owner: DifferentiableFunction, specialization: Specialization) -> Specialization:
    """Attaches the owner's custom derivatives, custom sums, byte budget and recompute policy to a specialisation."""
    function = specialization.function = use_custom_sums(owner, specialization)
    if owner.budget is not None:
        function = within_budget(function, owner.budget)
    if owner.forward_rule or owner.backward_rule or owner.substitute_rule:
        if specialization.updating is not None:
            raise FunctionError(
                "LG309",
                f"`{owner.__name__}` has `inout` parameters and a custom derivative",
                _span(owner),
                help="return a new array, so that callers get the derivative of every change",
            )
        function = _wrap_function(
            function,
            lambda *nodes: custom_call(
                *nodes,
                function=specialization.function,
                forward=None if owner.forward_rule is None else _forward(owner, owner.forward_rule, specialization),
                backward=None if owner.backward_rule is None else _backward(owner, owner.backward_rule, specialization),
                save=None,
                stand_in=None
                if owner.substitute_rule is None
                else _substitute(owner, owner.substitute_rule, specialization),
            ),
        )
    if specialization.updating is not None and owner.budget is not None:
        specialization.updating = within_budget(specialization.updating, owner.budget)
    if owner.recompute:
        function = _recompute_in_backward(function)
        specialization.updating = (
            None if specialization.updating is None else _recompute_in_backward(specialization.updating)
        )
    specialization.function = function
    return specialization


def _recompute_in_backward(function: Function) -> Function:
    return _wrap_function(function, lambda *nodes: recompute_call(*nodes, function=function))


def _wrap_function(function: Function, result: Callable[..., Node]) -> Function:
    """A function with the same parameters whose result is computed by `result`."""
    nodes = [input_node(Key(f"argument{k}"), type) for k, type in enumerate(function.parameter_types)]
    wrapper = make_function(function.name, nodes, [result(*nodes)])
    wrapper.source_locations.update(function.source_locations)
    return wrapper


def store_each_leaf(value: Node) -> Node:
    """Applies `kept` to each number, vector and matrix of a value, so that none of them is hidden in an aggregate."""
    if not isinstance(value.type, ir.Struct | ir.Tuple | ir.Array):
        return kept(value)
    parts = [store_each_leaf(member(value, index)) for index in range(len(ir.components(value.type)))]
    return make(*parts, type=value.type)


def _span(rule: CapturedFunction) -> Span:
    return rule.source.span(rule.source.definition)


def _specialize_rule(
    owner: CapturedFunction,
    rule: CapturedFunction,
    specialization: Specialization,
    types: Sequence[FrontType],
    role: str,
) -> Specialization:
    """Specialises a rule for these parameter types; raises if it does not accept them."""
    span = _span(rule)
    try:
        match = choose(rule, [Value(type) for type in types], {}, span)
    except FunctionError as error:
        raise FunctionError(
            "LG309",
            f"the {role} of `{owner.__name__}` has the wrong signature",
            span,
            expected=f"{rule.__name__}({', '.join(map(describe, types))})",
            found=str(rule.signature),
            help=error.what,
        ) from None
    specialized = match.function.specialize(match.slots)
    specialization.dependencies.callees.append(specialized.is_current)
    return specialized


def _result_type_error(
    owner: CapturedFunction, rule: CapturedFunction, role: str, expected: str, returned: str
) -> FunctionError:
    return FunctionError(
        "LG309",
        f"the {role} of `{owner.__name__}` returns the wrong type",
        _span(rule),
        expected=expected,
        found=returned,
    )


def _active_parameters(specialization: Specialization) -> list[bool]:
    return [
        slot.type is not None and not slot.no_diff and differential_type(slot.type) is not None
        for slot in specialization.runtime_slots
    ]


def _parameter_types(specialization: Specialization) -> list[FrontType]:
    return [slot.type for slot in specialization.runtime_slots if slot.type is not None]


def _forward(owner: CapturedFunction, rule: CapturedFunction, specialization: Specialization) -> Function:
    """(arguments, tangents of the differentiable ones) → the result's tangent."""
    types, active = _parameter_types(specialization), _active_parameters(specialization)
    rule_types: list[FrontType] = [pair_type(t) if flag else t for t, flag in zip(types, active, strict=True)]
    specialized = _specialize_rule(owner, rule, specialization, rule_types, "forward derivative")
    result = specialized.result_type
    if not isinstance(result, PairType) or result.primal != specialization.result_type:
        expected = f"Pair[{describe(specialization.result_type)}]"
        raise _result_type_error(owner, rule, "forward derivative", expected, describe(result))
    primals = [input_node(Key("primal"), ir_of(t)) for t in types]
    tangents: list[Node] = []
    arguments: list[Node] = []
    for type, flag, primal in zip(types, active, primals, strict=True):
        tangent = None
        if ir.is_differentiable(ir_of(type)):
            tangent = input_node(Key("tangent"), ir.differential_of(ir_of(type)))
            tangents.append(tangent)
        if flag and tangent is not None:
            type_of_pair = pair_type(type)
            arguments.append(make(primal, raise_differential(type, tangent, primal), type=type_of_pair.ir))
        else:
            arguments.append(primal)
    (result_pair,) = _inline_with_pairs(specialized.function, arguments)
    result_tangent = lower_differential(specialization.result_type, member(result_pair, 1), member(result_pair, 0))
    return make_function(rule.__name__, [*primals, *tangents], [result_tangent])


def _inline_with_pairs(function: Function, arguments: Sequence[Node]) -> tuple[Node, ...]:
    """Inlines the function and simplifies reads of pairs, so that its linearity in the tangents is visible."""

    def get_of_make(node: Node) -> Node | None:
        if node.op is get and node.operands[0].op is make:
            return node.operands[0].operands[node.attribute("index")]
        return None

    return rewrite(function.results, get_of_make, dict(zip(function.parameters, arguments, strict=True)))


def _backward(owner: CapturedFunction, rule: CapturedFunction, specialization: Specialization) -> Function:
    """(arguments, the result's cotangent) → cotangents of the differentiable arguments."""
    types, active = _parameter_types(specialization), _active_parameters(specialization)
    differential = differential_type(specialization.result_type)
    if differential is None:
        raise _result_type_error(
            owner, rule, "backward derivative", "a differentiable result", describe(specialization.result_type)
        )
    specialized = _specialize_rule(owner, rule, specialization, [*types, differential], "backward derivative")
    expected = TupleType(
        tuple((differential_type(t) or NONE) if flag else NONE for t, flag in zip(types, active, strict=True))
    )
    primals = [input_node(Key("primal"), ir_of(t)) for t in types]
    cotangent = input_node(Key("cotangent"), ir.differential_of(ir_of(specialization.result_type)))
    value = call(*primals, function=specialization.function)
    seed = raise_differential(specialization.result_type, cotangent, value, cotangent=True)
    returned = call(*primals, seed, function=specialized.function)
    parts = _returned_parts(owner, rule, specialized, expected, returned)
    results = [
        lower_differential(type, part, primal, cotangent=True) if flag else zero(ir.differential_of(ir_of(type)))
        for type, part, primal, flag in zip(types, parts, primals, active, strict=True)
        if ir.is_differentiable(ir_of(type))
    ]
    return make_function(rule.__name__, [*primals, cotangent], results)


def _returned_parts(
    owner: CapturedFunction, rule: CapturedFunction, specialized: Specialization, expected: TupleType, returned: Node
) -> list[Node]:
    """The differential of each argument, as `bwd_diff` returns them; a single one may be returned without a tuple."""
    if len(expected.elements) == 1 and specialized.result_type == expected.elements[0]:
        return [returned]
    if specialized.result_type != expected:
        raise _result_type_error(
            owner, rule, "backward derivative", describe(expected), describe(specialized.result_type)
        )
    return [member(returned, index) for index in range(len(expected.elements))]


def _substitute(owner: CapturedFunction, rule: CapturedFunction, specialization: Specialization) -> Function:
    specialized = _specialize_rule(owner, rule, specialization, _parameter_types(specialization), "primal substitute")
    if specialized.result_type != specialization.result_type:
        expected = describe(specialization.result_type)
        raise _result_type_error(owner, rule, "primal substitute", expected, describe(specialized.result_type))
    return specialized.function
