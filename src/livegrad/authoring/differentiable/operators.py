"""`fwd_diff` and `bwd_diff`: functions to functions.

A derivative is resolved like any call: the overloads of its function are looked at with the derivative's signature,
the one that fits is specialised, and the derivative becomes an IR function of its own, which can be differentiated
again.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from livegrad.authoring.differentiable.pair import PairType, pair, pair_type
from livegrad.authoring.differentiable.protocol import OPERATIONS, lower_differential, raise_differential
from livegrad.authoring.function import captured
from livegrad.authoring.function.captured import CapturedFunction
from livegrad.authoring.function.context import Context
from livegrad.authoring.function.intrinsics import intrinsic
from livegrad.authoring.function.known_calls import KnownCall, key_of
from livegrad.authoring.function.library import known_as
from livegrad.authoring.function.overloads import Match, choose
from livegrad.authoring.function.problems import FunctionError, Span
from livegrad.authoring.function.running import abstract_argument, call_span, execute_function, is_lifted, run_prepared
from livegrad.authoring.function.signature import Default
from livegrad.authoring.function.types import (
    NONE,
    FrontType,
    TensorPattern,
    TupleType,
    describe,
    differential_type,
    ir_of,
)
from livegrad.authoring.function.values import Value, convert, from_python, name_of, node_of, runtime, static
from livegrad.ir import types as ir
from livegrad.ir.function import make_function
from livegrad.ir.leaves import input_node
from livegrad.ir.node import Function, Key, Node
from livegrad.ir.text import print_function
from livegrad.ops.aggregate import make, member
from livegrad.ops.control import call as call_op
from livegrad.ops.differential import bwd_diff as bwd_op
from livegrad.ops.differential import fwd_diff as fwd_op
from livegrad.ops.rules import zero
from livegrad.passes.differentiate.forward import jvp
from livegrad.passes.differentiate.reverse import vjp


@dataclass(frozen=True)
class Argument:
    """One parameter of a resolved function that is passed when it runs."""

    name: str
    type: FrontType
    no_diff: bool

    @property
    def active(self) -> bool:
        return not self.no_diff and differential_type(self.type) is not None


@dataclass(eq=False)
class Resolved:
    """A function, or a derivative of one, for arguments of certain types."""

    name: str
    function: Function
    arguments: list[Argument]
    result: FrontType
    result_no_diff: bool
    is_current: Callable[[], bool]
    types: Mapping[FrontType, FrontType]

    def with_currency(self, inner: Resolved) -> Resolved:
        """The same, current as long as what it was derived from is."""
        return replace(self, is_current=inner.is_current, types=inner.types)


class Derivative:
    """A derivative of a captured function; calling it compiles and runs it."""

    def __init__(self, target: CapturedFunction | Derivative, mode: str) -> None:
        self.target, self.mode = target, mode
        self.__name__ = f"{mode}({target.__name__})"
        self.__doc__ = target.__doc__
        self._made: dict[Any, Resolved] = {}
        self._known_calls: dict[tuple[Any, ...], KnownCall] = {}

    def __repr__(self) -> str:
        return f"<{self.__name__}>"

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else lambda *a, **k: self(instance, *a, **k)

    # --- from Python ---

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        if keywords:
            raise FunctionError("LG310", f"`{self.__name__}` takes its arguments by position", call_span())
        key = key_of(self._overloads(), arguments, {})
        known = None if key is None else self._known_calls.get(key)
        if known is not None and known.is_current():
            return known(arguments)
        expected = expected_types(self)
        values = [
            abstract_argument(value, expected[index] if index < len(expected) else None)
            for index, value in enumerate(arguments)
        ]
        found, given = resolve(self, values, call_span())
        kept = [_supplied(arguments, place) for place in given]
        types = [argument.type for argument in found.arguments]
        lifted = [is_lifted(type, value) for type, value in zip(types, kept, strict=True)]
        if key is not None and not any(lifted):
            run = execute_function(found.function)
            self._known_calls[key] = KnownCall(run, given, types, found.result, found.is_current)
        return run_prepared(found.function, kept, lifted, types, found.result)

    def _overloads(self) -> int:
        target = self.target
        while isinstance(target, Derivative):
            target = target.target
        return len(target.overloads)

    def __livegrad_transform__(self, name: str, lazily: Callable[..., Any], **options: Any) -> Any:
        return captured.TRANSFORM[0](self, name, lazily, **options)

    def resolve_call(self, values: Sequence[Value], span: Span) -> tuple[Resolved, Given]:
        """The derivative for arguments of these types, and which value goes to which of its arguments."""
        return (_resolve_forward if self.mode == "fwd_diff" else _resolve_backward)(self, values, span)

    # --- from captured functions ---

    def __livegrad_call__(
        self, context: Context, positional: list[Value], keywords: dict[str, Value], at: ast.AST
    ) -> Value:
        span = context.span(at)
        if keywords:
            raise context.error("LG310", f"`{self.__name__}` takes its arguments by position", at)
        found, given = resolve(self, positional, span)
        context.dependencies.callees.append(found.is_current)
        context.dependencies.types.update(found.types)
        values = []
        for argument, place in zip(found.arguments, given, strict=True):
            value = from_python(place.value, span) if isinstance(place, Default) else positional[place]
            values.append(convert(value, argument.type, span, f"`{argument.name}`"))
        node = call_op(*[node_of(value, span) for value in values], function=found.function)
        carrying = [value for value, argument in zip(values, found.arguments, strict=True) if argument.active]
        for value in carrying:
            context.expect(value)
        return context.with_flow(runtime(found.result, node), "operation", carrying, at, self.__name__)

    # --- looking ---

    def ir(self, *types: Any) -> str:
        """The text of the derivative's IR, for the primal types given or those of the signature."""
        base = self
        while isinstance(base, Derivative):
            base = base.target
        made = base.specialization_for(*types)
        function = made.function
        chain: list[str] = []
        current: CapturedFunction | Derivative = self
        while isinstance(current, Derivative):
            chain.insert(0, current.mode)
            current = current.target
        for mode in chain:
            function = jvp(function) if mode == "fwd_diff" else vjp(function)
        return print_function(function)

    def _repr_html_(self) -> str:
        escaped = self.ir().replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        return f"<pre>{escaped}</pre>"


def _supplied(arguments: Sequence[Any], place: Any) -> Any:
    return place.value if isinstance(place, Default) else arguments[place]


def expected_types(function: CapturedFunction | Derivative) -> list[FrontType | TensorPattern | None]:
    """The annotated types of the parameters, with pairs where the derivative has pairs."""
    if isinstance(function, CapturedFunction):
        if len(function.overloads) > 1:
            return []
        return [parameter.annotation.expected for parameter in function.signature.parameters]
    inner = expected_types(function.target)
    if function.mode == "bwd_diff":
        if isinstance(function.target, CapturedFunction):
            return [*inner, function.target.signature.result.type]
        return inner
    return inner


# --- resolution ------------------------------------------------------------------------------------------------------

Given = list[Any]  # for each argument that is passed: which of the values it is, or a default


def resolve(function: CapturedFunction | Derivative, values: Sequence[Value], span: Span) -> tuple[Resolved, Given]:
    """The function for arguments of these types, and which value goes to which of its arguments."""
    if isinstance(function, CapturedFunction):
        return _resolve_captured(function, values, span, lambda match: None)
    return function.resolve_call(values, span)


def _resolve_captured(
    function: CapturedFunction, values: Sequence[Value], span: Span, refuse: Callable[[Match], str | None]
) -> tuple[Resolved, Given]:
    found = choose(function, values, {}, span, refuse)
    made = found.function.specialize(found.slots)
    bound = found.function.signature.bind(list(range(len(values))), {})
    assert not isinstance(bound, str)
    arguments, given = [], []
    for parameter, slot in zip(found.function.signature.parameters, found.slots, strict=True):
        if slot.type is not None:
            arguments.append(Argument(parameter.name, slot.type, slot.no_diff))
            given.append(bound[parameter.name])
    resolved = Resolved(
        function.__name__,
        made.function,
        arguments,
        made.result_type,
        made.result_no_diff,
        made.is_current,
        made.dependencies.types,
    )
    if not found.function.differentiable:
        raise FunctionError(
            "LG305", f"`{function.__name__}` is not differentiable", span, help="decorate it with @differentiable"
        )
    return resolved, given


def _primal(value: Value) -> Value:
    """What a pair is a pair of."""
    if isinstance(value.type, PairType):
        return Value(value.type.primal, weak=value.weak)
    return value


class PairProblem(str):
    """Why an argument does not fit a derivative."""

    code = "LG310"


def _resolve_inner(
    function: Derivative, values: Sequence[Value], span: Span, primals: Sequence[Value], paired: Sequence[bool]
) -> tuple[Resolved, Given]:
    target = function.target
    if isinstance(target, Derivative):
        return resolve(target, primals, span)

    def refuse(match: Match) -> str | None:
        bound = match.function.signature.bind(list(range(len(primals))), {})
        assert not isinstance(bound, str)
        for parameter, slot in zip(match.function.signature.parameters, match.slots, strict=True):
            place = bound[parameter.name]
            if slot.type is None or isinstance(place, Default):
                continue
            active = not slot.no_diff and differential_type(slot.type) is not None
            if paired[place] and not active:
                return PairProblem(f"`{parameter.name}` has no derivative and takes no pair")
            if active and not paired[place] and function.mode == "fwd_diff":
                found = name_of(values[place])
                return PairProblem(f"`{parameter.name}` expects a pair of {describe(slot.type)}, found {found}")
        return None

    return _resolve_captured(target, primals, span, refuse)


def _resolve_forward(function: Derivative, values: Sequence[Value], span: Span) -> tuple[Resolved, Given]:
    # The pairs of an inner derivative are ordinary structs here: only the outermost pair is taken off.
    primals = [_primal(value) for value in values]
    paired = [isinstance(value.type, PairType) for value in values]
    inner, given = _resolve_inner(function, values, span, primals, paired)
    key = resolution_key(inner)
    made = function._made.get(key)
    if made is None:
        made = function._made[key] = _forward(function, inner)
    for argument, place in zip(inner.arguments, given, strict=True):
        if not isinstance(place, Default) and argument.active and not paired[place]:
            raise FunctionError(
                "LG310",
                f"`{function.__name__}`: `{argument.name}` expects a pair",
                span,
                expected=f"Pair[{describe(argument.type)}]",
                found=name_of(values[place]),
                help=f"pass pair({argument.name}, d{argument.name})",
            )
    at_rest = [
        Default(pair(place.value, OPERATIONS["dzero"](argument.type)))
        if isinstance(place, Default) and argument.active
        else place
        for argument, place in zip(inner.arguments, given, strict=True)
    ]
    return made.with_currency(inner), at_rest


def resolution_key(inner: Resolved) -> Any:
    """Functions may be equal and yet be of different structs, which people see."""
    return inner.function, tuple(inner.arguments), inner.result, inner.result_no_diff


def _forward(function: Derivative, inner: Resolved) -> Resolved:
    """(pairs and plain values) → a pair of the result, as an IR function."""
    inputs: list[Node] = []
    primals: list[Node] = []
    tangents: list[Node] = []
    arguments: list[Argument] = []
    for argument in inner.arguments:
        plain = ir.differential_of(ir_of(argument.type))
        if argument.active:
            type = pair_type(argument.type)
            node = input_node(Key(argument.name), type.ir)
            primals.append(member(node, 0))
            tangents.append(lower_differential(argument.type, member(node, 1), primals[-1]))
            arguments.append(Argument(argument.name, type, False))
        else:
            node = input_node(Key(argument.name), ir_of(argument.type))
            primals.append(node)
            tangents.append(zero(plain))
            arguments.append(argument)
        inputs.append(node)
    both = fwd_op(*primals, *tangents, function=inner.function)
    value = member(both, 0)
    result = inner.result
    if differential_type(result) is not None and not inner.result_no_diff:
        result = pair_type(inner.result)
        value = make(value, raise_differential(inner.result, member(both, 1), value), type=result.ir)
    made = make_function(function.__name__, inputs, [value])
    return Resolved(function.__name__, made, arguments, result, False, inner.is_current, inner.types)


def _resolve_backward(function: Derivative, values: Sequence[Value], span: Span) -> tuple[Resolved, Given]:
    if not values:
        raise FunctionError("LG310", f"`{function.__name__}` takes the differential of the result last", span)
    inner, given = _resolve_inner(function, values, span, list(values[:-1]), [False] * len(values))
    return backward_of(function, inner, span), [*given, len(values) - 1]


def backward_of(function: Derivative, inner: Resolved, span: Span) -> Resolved:
    """The backward derivative of a function for the types that it was resolved for."""
    key = resolution_key(inner)
    made = function._made.get(key)
    if made is None:
        made = function._made[key] = _backward(function, inner, span)
    return made.with_currency(inner)


def _backward(function: Derivative, inner: Resolved, span: Span) -> Resolved:
    """(arguments, the result's differential) → a differential for each argument, as an IR function."""
    own = differential_type(inner.result)
    if own is None or inner.result_no_diff:
        raise FunctionError(
            "LG306",
            f"the result of `{inner.name}` has no derivative",
            span,
            found=describe(inner.result),
        )
    inputs = [input_node(Key(argument.name), ir_of(argument.type)) for argument in inner.arguments]
    seed = input_node(Key("d_result"), ir_of(own))
    lowered = lower_differential(inner.result, seed, _primal_result(inner, inputs))
    parts = bwd_op(*inputs, lowered, function=inner.function)
    results: list[Node] = []
    types: list[FrontType] = []
    for index, argument in enumerate(inner.arguments):
        node = parts if len(inner.arguments) == 1 else member(parts, index)
        differential = differential_type(argument.type)
        if not argument.active or differential is None:
            results.append(make(type=ir.UNIT))
            types.append(NONE)
        else:
            results.append(raise_differential(argument.type, node, inputs[index]))
            types.append(differential)
    result = TupleType(tuple(types))
    made = make_function(function.__name__, [*inputs, seed], [make(*results, type=result.ir)])
    arguments = [*inner.arguments, Argument("d_result", own, False)]
    return Resolved(function.__name__, made, arguments, result, False, inner.is_current, inner.types)


def _primal_result(inner: Resolved, inputs: list[Node]) -> Node:
    """The result, for differentials that must fit it; gone again where nobody looks at it."""
    return call_op(*inputs, function=inner.function)


# --- what people write -----------------------------------------------------------------------------------------------


def _derivative(target: Any, mode: str) -> Derivative:
    inner = getattr(target, "__livegrad_method__", target)
    if isinstance(inner, CapturedFunction | Derivative):
        return _known_derivative(inner, mode)
    raise FunctionError(
        "LG305",
        f"{getattr(target, '__name__', repr(target))} is not differentiable",
        call_span(),
        help="decorate the function with @differentiable",
    )


def _known_derivative(target: CapturedFunction | Derivative, mode: str) -> Derivative:
    known = target.__dict__.setdefault("_derivatives", {})
    if mode not in known:
        known[mode] = Derivative(target, mode)
    return known[mode]


@known_as("fwd_diff")
def fwd_diff(function: Any) -> Derivative:
    """The forward derivative: from pairs (and plain values for what has no derivative) to a pair.

    >>> from livegrad.authoring.differentiable import differentiable, pair
    >>> from livegrad.authoring.function.source import run_source
    >>> square = differentiable(run_source("def square(x: float): return x * x")["square"])
    >>> fwd_diff(square)(pair(3.0, 1.0))
    Pair(primal=9.0, differential=6.0)
    """
    return _derivative(function, "fwd_diff")


@known_as("bwd_diff")
def bwd_diff(function: Any) -> Derivative:
    """The backward derivative: from the arguments and the result's differential to a differential for each argument.

    >>> from livegrad.authoring.differentiable import differentiable
    >>> from livegrad.authoring.function.source import run_source
    >>> product = differentiable(run_source("def product(x: float, y: float): return x * y")["product"])
    >>> bwd_diff(product)(3.0, 5.0, 1.0)
    (5.0, 3.0)
    """
    return _derivative(function, "bwd_diff")


def _operator(mode: str) -> Any:
    def handler(context: Context, values: Sequence[Value], at: ast.AST) -> Value:
        if len(values) != 1 or not values[0].is_static:
            raise context.error("LG108", f"`{mode}` takes one function", at)
        target = values[0].static
        bound = getattr(target, "run", None)
        if bound is not None and getattr(target, "target", None) is not None:
            raise context.error(
                "LG305",
                f"`{mode}` takes the method of a type",
                at,
                help="write fwd_diff(Type.method)(pair(self, ...), ...)",
            )
        try:
            return static(_derivative(target, mode))
        except FunctionError as error:
            raise context.error("LG305", error.what, at, help=error.help) from None

    return handler


for _mode in ("fwd_diff", "bwd_diff"):
    intrinsic(_mode)(_operator(_mode))
