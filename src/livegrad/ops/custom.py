"""Calls with custom derivatives: a rule for either mode, or another function to differentiate instead.

Frontends use `make_custom_call`. `passes.differentiate` applies the rules and leaves an ordinary call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from livegrad.diagnostics import TypeRuleError
from livegrad.ir.node import Function, Node
from livegrad.ir.op import ALL_OPERANDS, Op
from livegrad.ir.types import Type, differential_of, is_differentiable
from livegrad.ops.rules import tuple_of


def differentials(types: Sequence[Type]) -> tuple[Type, ...]:
    """The differential types of the differentiable types.

    >>> from livegrad.ir.types import f32, i32
    >>> differentials((f32, i32))
    (f32,)
    """
    return tuple(differential_of(type) for type in types if is_differentiable(type))


def _require(function: Function, role: str, parameters: Sequence[Type], results: Sequence[Type], rule: str) -> None:
    for side, expected, actual in (
        ("parameters", tuple(parameters), function.parameter_types),
        ("results", tuple(results), function.result_types),
    ):
        if expected != actual:
            raise TypeRuleError(
                f"the {role} `{function.name}` has the wrong {side}",
                expected=", ".join(map(str, expected)) or "none",
                found=", ".join(map(str, actual)) or "none",
                help=rule,
            )


def _custom_call_type(
    *types: Type,
    function: Function,
    forward: Function | None,
    backward: Function | None,
    save: Function | None,
    stand_in: Function | None,
    captures: int = 0,
) -> Type:
    results = function.result_types
    _require(function, "function", types, results, "it takes the operands")
    if forward is None and backward is None and stand_in is None:
        raise TypeRuleError(
            f"`{function.name}` has no custom rule", help="pass a forward or backward derivative, or use call"
        )
    if forward is not None:
        rule = (
            "it takes the arguments and a tangent for each differentiable argument, and returns the results' tangents"
        )
        _require(forward, "forward derivative", (*types, *differentials(types)), differentials(results), rule)
    if save is not None:
        if backward is None:
            raise TypeRuleError(f"`{save.name}` saves values for a backward derivative, but there is none")
        rule = "it takes the arguments and returns the residuals that the backward derivative takes"
        _require(save, "saving function", types, save.result_types, rule)
    if backward is not None:
        residuals = types if save is None else save.result_types
        first = "the arguments" if save is None else "the residuals"
        rule = f"it takes {first} and a cotangent for each differentiable result, and returns the arguments' cotangents"
        _require(backward, "backward derivative", (*residuals, *differentials(results)), differentials(types), rule)
    if stand_in is not None:
        if forward is not None or backward is not None:
            raise TypeRuleError(f"`{function.name}` has both a substitute and a custom derivative", help="give one")
        _require(stand_in, "stand-in", types, results, "it has the signature of the function it stands in for")
    return function.result_type


def _evaluate_custom_call(*values: Any, function: Any, **rules: Any) -> Any:
    return function(*values)


# function(*operands), with a user-defined derivative. Only differentiable operands and results have differentials:
# forward(*operands, *tangents) → tangents of the results;
# backward(*operands, *cotangents of the results) → cotangents of the operands, or, with
# save(*operands) → residuals, backward(*residuals, *cotangents);
# stand_in(*operands) → results is differentiated instead of the function.
# The rules do not cover the last `captures` operands: a derivative with respect to them is an error.
custom_call = Op("custom_call", type_of=_custom_call_type, evaluate=_evaluate_custom_call)


def make_custom_call(
    function: Function,
    *operands: Node,
    forward: Function | None = None,
    backward: Function | None = None,
    save: Function | None = None,
    stand_in: Function | None = None,
    captures: int = 0,
) -> Node:
    """Calls a function with custom derivatives. There is no derivative with respect to the last `captures` operands.

    A mode without a rule uses the transpose of the other mode's rule. Higher derivatives differentiate the given
    functions.

    >>> from livegrad.ir.function import trace
    >>> from livegrad.ir.leaves import parameter
    >>> from livegrad.ir.types import f64
    >>> step = trace(lambda x: (x - x) + 1.0, f64)
    >>> straight_through = trace(lambda x, dx: dx, f64, f64)
    >>> make_custom_call(step, parameter(0, f64), forward=straight_through).type
    f64
    """
    rules = {"forward": forward, "backward": backward, "save": save, "stand_in": stand_in}
    return custom_call(*operands, function=function, **rules, **({"captures": captures} if captures else {}))


# --- the linearisation of a backward derivative ----------------------------------------------------------------------


def _custom_linear_type(*types: Type, backward: Function, residuals: int) -> Type:
    saved, tangents = types[:residuals], types[residuals:]
    results = backward.parameter_types[residuals:]
    _require(backward, "backward derivative", (*saved, *results), tangents, "it returns a cotangent for each tangent")
    return tuple_of(results)


def _custom_linear_transpose(y: Node, ct: Node, *linear: bool) -> tuple[Node | None, ...]:
    backward, residuals = y.attribute("backward"), y.attribute("residuals")
    result_count = len(backward.parameters) - residuals
    get = Op.named("get")
    cotangents = [ct] if result_count == 1 else [get(ct, index=index) for index in range(result_count)]
    value = Op.named("call")(*y.operands[:residuals], *cotangents, function=backward)
    tangents = len(backward.results)
    parts = [value] if tangents == 1 else [get(value, index=index) for index in range(tangents)]
    flags = linear[residuals:]
    return (*[None] * residuals, *(part if flag else None for part, flag in zip(parts, flags, strict=True)))


# The linear map from tangents to tangents whose transpose is `backward`. It exists only between linearisation and
# transposition, and never runs.
custom_linear = Op(
    "custom_linear",
    type_of=_custom_linear_type,
    transpose=_custom_linear_transpose,
    linear_in=ALL_OPERANDS,
)

# --- recomputed calls (checkpointing) --------------------------------------------------------------------------------


def _recompute_call_type(*types: Type, function: Function) -> Type:
    _require(function, "function", types, function.result_types, "it takes the operands")
    return function.result_type


# function(*operands). Reverse mode keeps only the operands, and recomputes the other residuals in the backward pass,
# once it has the cotangents of the results.
recompute_call = Op(
    "recompute_call", type_of=_recompute_call_type, evaluate=lambda *values, function: function(*values)
)


def _recompute_linear_type(*types: Type, function: Function, results: int, active: tuple[bool, ...]) -> Type:
    parameter_types = function.parameter_types
    tangents = [differential_of(type) for type, flag in zip(parameter_types, active, strict=True) if flag]
    expected = (*parameter_types, *function.result_types[results:], *tangents)
    if types != expected:
        raise TypeRuleError(
            f"the linear part of `{function.name}` takes arguments, residuals and tangents",
            expected=", ".join(map(str, expected)),
            found=", ".join(map(str, types)),
        )
    return tuple_of(differentials(function.result_types[:results]))


# The linear part of a `recompute_call`: (arguments, residuals, tangents of the active arguments) → tangents of the
# differentiable results. `function` returns its `results`, then the residuals. Like `custom_linear`, it never runs.
recompute_linear = Op("recompute_linear", type_of=_recompute_linear_type)
