"""Overload resolution of derivatives: selects and specialises the primal function by the derivative's arguments.

`derivative_operators` uses it for calls from Python and from captured functions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from livegrad.frontend.differentiable.custom_sums import custom_zero
from livegrad.frontend.differentiable.optional import OptionalType
from livegrad.frontend.differentiable.pair import Pair, PairType, pair_type
from livegrad.frontend.differentiable.protocol import OPERATIONS
from livegrad.frontend.differentiable.resolved import (
    Argument,
    DerivativeProtocol,
    Resolved,
    backward_derivative,
    forward_derivative,
    resolution_key,
)
from livegrad.frontend.function.captured import CapturedFunction
from livegrad.frontend.function.compile_values import Value, name_of
from livegrad.frontend.function.function_errors import FunctionError, Span
from livegrad.frontend.function.function_types import (
    NONE,
    FrontType,
    RecordType,
    TupleType,
    describe,
    differential_type,
)
from livegrad.frontend.function.overloads import Match, choose
from livegrad.frontend.function.signature import Default
from livegrad.ir import types as ir

ArgumentSources = list[Any]  # for each run-time argument: the index of the passed value, or a default


def resolve(
    function: CapturedFunction | DerivativeProtocol, values: Sequence[Value], span: Span
) -> tuple[Resolved, ArgumentSources]:
    """Resolves a function for arguments of these types; returns it with the source of each of its arguments."""
    if isinstance(function, CapturedFunction):
        return _resolve_captured(function, values, span, lambda match: None)
    return function.resolve_call(values, span)


def _resolve_captured(
    function: CapturedFunction, values: Sequence[Value], span: Span, reject: Callable[[Match], str | None]
) -> tuple[Resolved, ArgumentSources]:
    match = choose(function, values, {}, span, reject)
    specialization = match.function.specialize(match.slots)
    specialization.require_inouts_returned(span)
    bound = match.function.signature.bind(list(range(len(values))), {})
    assert not isinstance(bound, str)
    arguments, sources = [], []
    for parameter, slot in zip(match.function.signature.parameters, match.slots, strict=True):
        if slot.type is not None:
            arguments.append(Argument(parameter.name, slot.type, slot.no_diff))
            sources.append(bound[parameter.name])
    resolved = Resolved(
        function.__name__,
        specialization.function,
        arguments,
        specialization.result_type,
        specialization.result_no_diff,
        specialization.is_current,
        specialization.dependencies.types,
    )
    if not match.function.differentiable:
        raise FunctionError(
            "LG305", f"`{function.__name__}` is not differentiable", span, help="decorate it with @differentiable"
        )
    return resolved, sources


def _primal(value: Value) -> Value:
    """The abstract primal of a pair; other values are returned unchanged."""
    if isinstance(value.type, PairType):
        return Value(value.type.primal, weak=value.weak)
    return value


class PairProblem(str):
    """The reason why an argument does not match a derivative."""

    code = "LG310"


def _resolve_inner(
    function: DerivativeProtocol, values: Sequence[Value], span: Span, primals: Sequence[Value], paired: Sequence[bool]
) -> tuple[Resolved, ArgumentSources]:
    target = function.target
    if not isinstance(target, CapturedFunction):
        return resolve(target, primals, span)

    def reject(match: Match) -> str | None:
        bound = match.function.signature.bind(list(range(len(primals))), {})
        assert not isinstance(bound, str)
        for parameter, slot in zip(match.function.signature.parameters, match.slots, strict=True):
            position = bound[parameter.name]
            if slot.type is None or isinstance(position, Default):
                continue
            active = not slot.no_diff and differential_type(slot.type) is not None
            if paired[position] and not active:
                return PairProblem(f"`{parameter.name}` has no derivative and takes no pair")
            needs_pair = active and function.mode == "fwd_diff" and not _is_absent(values[position], slot.type)
            if needs_pair and not paired[position]:
                found = name_of(values[position])
                return PairProblem(f"`{parameter.name}` expects a pair of {describe(slot.type)}, found {found}")
        return None

    return _resolve_captured(target, primals, span, reject)


def resolve_forward(
    function: DerivativeProtocol, values: Sequence[Value], span: Span
) -> tuple[Resolved, ArgumentSources]:
    # Only the outermost pair belongs to this derivative: to it, pairs of an inner derivative are ordinary structs.
    primals = [_primal(value) for value in values]
    paired = [isinstance(value.type, PairType) for value in values]
    inner, sources = _resolve_inner(function, values, span, primals, paired)
    key = resolution_key(inner)
    derivative = function._resolved.get(key)
    if derivative is None:
        derivative = function._resolved[key] = forward_derivative(function.__name__, inner)
    for argument, source in zip(inner.arguments, sources, strict=True):
        if isinstance(source, Default) or not argument.active or paired[source]:
            continue
        if not _is_absent(values[source], argument.type):
            raise FunctionError(
                "LG310",
                f"`{function.__name__}`: `{argument.name}` expects a pair",
                span,
                expected=f"Pair[{describe(argument.type)}]",
                found=name_of(values[source]),
                help=f"pass pair({argument.name}, d{argument.name})",
            )
    pairs = zip(inner.arguments, sources, strict=True)
    return derivative.with_dependencies_of(inner), [_with_pair(argument, source, paired) for argument, source in pairs]


def _is_absent(value: Value, type: FrontType) -> bool:
    """Whether None was passed for an optional, which then has no differential."""
    return value.type is NONE and isinstance(type, OptionalType)


def _with_pair(argument: Argument, source: Any, paired: Sequence[bool]) -> Any:
    """The source of an argument; a default or absent value becomes a pair with a zero differential."""
    is_default = isinstance(source, Default)
    if not argument.active or (not is_default and paired[source]):
        return source
    primal = source.value if is_default else None
    return Default(Pair(primal, OPERATIONS["dzero"](argument.type), pair_type(argument.type)))


def resolve_backward(
    function: DerivativeProtocol, values: Sequence[Value], span: Span
) -> tuple[Resolved, ArgumentSources]:
    _require_count(function, len(values), span)
    inner, sources = _resolve_inner(function, values, span, list(values[:-1]), [False] * len(values))
    derivative = backward_of(function, inner, span)
    _require_seed(function, values[-1], derivative.arguments[-1].type, span)
    return derivative, [*sources, len(values) - 1]


def _require_count(function: DerivativeProtocol, count: int, span: Span) -> None:
    """Raises unless there is one argument more than the function takes. The differential of the result, which comes
    last, is easily forgotten.
    """
    target = function.target
    single = target if isinstance(target, CapturedFunction) and len(target.overloads) == 1 else None
    if count and (single is None or not isinstance(single.signature.bind([None] * (count - 1), {}), str)):
        return
    raise FunctionError(
        "LG310",
        f"`{function.__name__}` takes the arguments of `{target.__name__}`, then the differential of its result",
        span,
        expected=None if single is None else f"the arguments of {single.signature} and one more",
        found=f"{count} argument{'s' * (count != 1)}",
        help="if the function returns one number, pass 1.0 last",
    )


def _require_seed(function: DerivativeProtocol, value: Value, type: FrontType, span: Span) -> None:
    """Raises if the differential of a struct or tuple is a number. Conversion checks other values."""
    if isinstance(type, TupleType | RecordType) and isinstance(value.type, ir.Scalar):
        raise FunctionError(
            "LG310",
            f"`{function.__name__}` takes the differential of the result as its last argument",
            span,
            expected=describe(type),
            found=name_of(value),
        )


def backward_of(function: DerivativeProtocol, inner: Resolved, span: Span) -> Resolved:
    """The backward derivative of a resolved function, from the cache or generated now."""
    zeros = [custom_zero(base_of(function), argument.type) for argument in inner.arguments]
    key = resolution_key(inner), tuple(zeros)
    derivative = function._resolved.get(key)
    if derivative is None:
        derivative = function._resolved[key] = backward_derivative(function.__name__, base_of(function), inner, span)
    return derivative.with_dependencies_of(inner)


def base_of(function: CapturedFunction | DerivativeProtocol) -> CapturedFunction:
    """The captured function that a derivative, of any order, differentiates."""
    while not isinstance(function, CapturedFunction):
        function = function.target
    return function
