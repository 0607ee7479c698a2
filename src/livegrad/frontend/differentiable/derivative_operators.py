"""`fwd_diff` and `bwd_diff`: operators from functions to functions.

A derivative is resolved like any call: the overload that matches the derivative's signature is specialised. The result
is an IR function, which can be differentiated again.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from functools import partial
from itertools import zip_longest
from typing import Any

from livegrad.frontend.differentiable.differential_values import require_differential_value
from livegrad.frontend.differentiable.pair import Pair
from livegrad.frontend.differentiable.resolution import (
    ArgumentSources,
    base_of,
    resolve,
    resolve_backward,
    resolve_forward,
)
from livegrad.frontend.differentiable.resolved import (
    Resolved,
)
from livegrad.frontend.function.array_patterns import Pattern
from livegrad.frontend.function.call_cache import CachedCall, call_key
from livegrad.frontend.function.captured import CapturedFunction, unchanged
from livegrad.frontend.function.compile_state import Context, snapshot
from livegrad.frontend.function.compile_values import Value, convert, from_python, node_of, runtime, static
from livegrad.frontend.function.dispatch import abstract_argument, call_span
from livegrad.frontend.function.execution import compile_cached, is_lifted, run_prepared
from livegrad.frontend.function.function_errors import FunctionError, Span
from livegrad.frontend.function.function_library import named_intrinsic
from livegrad.frontend.function.function_types import FrontType, differential_type
from livegrad.frontend.function.intrinsics import intrinsic
from livegrad.frontend.function.lazy_calls import LazyArgument, abstract_lazily, call_lazily, contains_tensor
from livegrad.frontend.function.signature import Default
from livegrad.frontend.function.type_rules import rules
from livegrad.ir.text import print_function
from livegrad.ops.control import call as call_op
from livegrad.passes.differentiate.forward import jvp
from livegrad.passes.differentiate.reverse import vjp


class Derivative:
    """A derivative of a captured function; calling it compiles and runs it.

    >>> from livegrad.frontend.differentiable import differentiable
    >>> from livegrad.frontend.function.python_source import run_source
    >>> square = differentiable(run_source("def square(x: float): return x * x")["square"])
    >>> bwd_diff(square), bwd_diff(square)(3.0, 1.0)
    (<bwd_diff(square)>, (6.0,))
    """

    def __init__(self, target: CapturedFunction | Derivative, mode: str) -> None:
        self.target, self.mode = target, mode
        self.__name__ = f"{mode}({target.__name__})"
        self.__doc__ = target.__doc__
        self._resolved: dict[Any, Resolved] = {}
        self._call_cache: dict[tuple[Any, ...], CachedCall] = {}

    def __repr__(self) -> str:
        return f"<{self.__name__}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.target, self.mode)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else lambda *a, **k: self(instance, *a, **k)

    # --- from Python ---

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        if keywords:
            raise FunctionError("LG310", f"`{self.__name__}` takes its arguments by position", call_span())
        if any(map(contains_tensor, arguments)):
            return self._call_lazily(arguments)
        key = call_key(self._overloads(), (*self.bound_values(), *arguments), {})
        prepared = None if key is None else self._call_cache.get(key)
        if prepared is not None and prepared.is_current():
            return prepared(arguments)
        resolved, sources = resolve(self, abstract_arguments(self, arguments), call_span())
        values = [_argument_from(arguments, source) for source in sources]
        types = [argument.type for argument in resolved.arguments]
        lifted = [is_lifted(type, value) for type, value in zip(types, values, strict=True)]
        self._require_seed(types[-1], values[-1], any(lifted[:-1]))
        if key is not None and not any(lifted):
            run = compile_cached(resolved.function)
            self._call_cache[key] = CachedCall(run, sources, types, resolved.result, resolved.is_current)
        return run_prepared(resolved.function, values, lifted, types, resolved.result)

    def _call_lazily(self, arguments: Sequence[Any]) -> Any:
        """Builds the call as a node of the tensor graph, which can be differentiated again."""
        resolved, sources = resolve(self, abstract_arguments(self, arguments, abstract_lazily), call_span())
        values = [_argument_from(arguments, source) for source in sources]
        self._require_seed(resolved.arguments[-1].type, values[-1], lifted=not isinstance(values[-1], list | tuple))
        pairs = zip(resolved.arguments, values, strict=True)
        lazy = [LazyArgument(argument.name, argument.type, value) for argument, value in pairs]
        return call_lazily(resolved.function, lazy, resolved.result)

    def _require_seed(self, type: FrontType, value: Any, lifted: bool) -> None:
        """Raises if the last argument of a backward derivative is not a differential of the result."""
        if self.mode == "bwd_diff":
            what = f"`{self.__name__}` takes the differential of the result as its last argument"
            require_differential_value(type, value, what, lifted)

    def _overloads(self) -> int:
        return len(base_of(self).overloads)

    def bound_values(self) -> tuple[Any, ...]:
        """The values that are bound to the differentiated function, such as the instance of a method."""
        return self.target.bound_values() if isinstance(self.target, Derivative) else ()

    def __livegrad_transform__(self, name: str, lazily: Callable[..., Any], **options: Any) -> Any:
        return base_of(self).transform(self, name, lazily, **options)

    def resolve_call(self, values: Sequence[Value], span: Span) -> tuple[Resolved, ArgumentSources]:
        """Resolves the derivative for arguments of these types; returns it with the source of each of its arguments."""
        return (resolve_forward if self.mode == "fwd_diff" else resolve_backward)(self, values, span)

    # --- from captured functions ---

    def __livegrad_call__(
        self, context: Context, positional: list[Value], keywords: dict[str, Value], at: ast.AST
    ) -> Value:
        span = context.span(at)
        if keywords:
            raise context.error("LG310", f"`{self.__name__}` takes its arguments by position", at)
        resolved, sources = resolve(self, positional, span)
        context.dependencies.callees.append(resolved.is_current)
        for value in self.bound_values():
            if not isinstance(value, Value):
                context.dependencies.callees.append(partial(unchanged, value, snapshot(value)))
        context.dependencies.types.update(resolved.types)
        values = []
        for argument, source in zip(resolved.arguments, sources, strict=True):
            values.append(
                convert(_captured_argument(source, positional, span), argument.type, span, f"`{argument.name}`")
            )
        node = call_op(*[node_of(value, span) for value in values], function=resolved.function)
        pairs = zip(values, resolved.arguments, strict=True)
        active = [value for value, argument in pairs if argument.active or (argument.bound and value.flow)]
        for value in active:
            context.expect(value)
        return context.with_flow(runtime(resolved.result, node), "operation", active, at, self.__name__)

    # --- inspection ---

    def ir(self, *types: Any) -> str:
        """Returns the IR of the derivative as text, for these primal types or those of the signature."""
        specialization = base_of(self).specialization_for(*types)
        function = specialization.function
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


def _captured_argument(source: Any, positional: Sequence[Value], span: Span) -> Value:
    """The value of an argument inside a captured function; the instance of a method may be a run-time value."""
    if not isinstance(source, Default):
        return positional[source]
    return source.value if isinstance(source.value, Value) else from_python(source.value, span)


def _argument_from(arguments: Sequence[Any], source: Any) -> Any:
    return source.value if isinstance(source, Default) else arguments[source]


def abstract_arguments(
    function: CapturedFunction | Derivative,
    arguments: Sequence[Any],
    abstract: Callable[..., Value] = abstract_argument,
) -> list[Value]:
    """The abstract values of Python arguments; with overloads, Python numbers match parameters of any width."""
    if len(base_of(function).overloads) > 1:
        return [abstract(value, None, True) for value in arguments]
    expected = _expected_types(function)
    pairs = zip_longest(arguments, expected[: len(arguments)], fillvalue=_no_expected_type)
    return [abstract(value, expected_type(_innermost_primal(value))) for value, expected_type in pairs]


ExpectedType = Callable[[Any], Pattern | None]  # from a Python argument to the type that it is matched against


def _expected_types(function: CapturedFunction | Derivative) -> list[ExpectedType]:
    """The expected argument types of the derivative, from the annotations of a function without overloads."""
    if isinstance(function, CapturedFunction):
        return [parameter.annotation.expected_for for parameter in function.signature.parameters]
    inner = _expected_types(function.target)
    if function.mode == "bound":
        return inner[1:]
    of_function = isinstance(function.target, CapturedFunction) or function.target.mode == "bound"
    if function.mode == "bwd_diff" and of_function:
        result = base_of(function).signature.result.type
        return [*inner, lambda value: None if result is None else differential_type(result)]
    return inner


def _no_expected_type(value: Any) -> None:
    """The expected type of an argument without an annotation: none."""


def _innermost_primal(value: Any) -> Any:
    """The primal of a pair, or of nested pairs; other values are returned unchanged."""
    while isinstance(value, Pair):
        value = value.primal
    return value


# --- public operators ------------------------------------------------------------------------------------------------


def as_target(target: Any) -> Any:
    """Converts an object, such as a bound method, to a differentiable function; returns other objects unchanged."""
    return next((converted for rule in rules.derivative_target if (converted := rule(target)) is not None), target)


def _derivative(target: Any, mode: str) -> Derivative:
    inner = as_target(target)
    if isinstance(inner, CapturedFunction | Derivative):
        return _cached_derivative(inner, mode)
    raise FunctionError(
        "LG305",
        f"{getattr(target, '__name__', repr(target))} is not differentiable",
        call_span(),
        help="decorate the function with @differentiable",
    )


def _cached_derivative(target: CapturedFunction | Derivative, mode: str) -> Derivative:
    derivatives = target.__dict__.setdefault("_derivatives", {})
    if mode not in derivatives:
        derivatives[mode] = Derivative(target, mode)
    return derivatives[mode]


@named_intrinsic("fwd_diff")
def fwd_diff(function: Any) -> Derivative:
    """Returns the forward derivative. It takes a pair for each differentiable parameter, and returns a pair.

    >>> from livegrad.frontend.differentiable import differentiable, pair
    >>> from livegrad.frontend.function.python_source import run_source
    >>> square = differentiable(run_source("def square(x: float): return x * x")["square"])
    >>> fwd_diff(square)(pair(3.0, 1.0))
    Pair(primal=9.0, differential=6.0)
    """
    return _derivative(function, "fwd_diff")


@named_intrinsic("bwd_diff")
def bwd_diff(function: Any) -> Derivative:
    """Returns the backward derivative. It takes the arguments, then a differential of the result, and returns a
    differential for each argument.

    >>> from livegrad.frontend.differentiable import differentiable
    >>> from livegrad.frontend.function.python_source import run_source
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
        try:
            return static(_derivative(target, mode))
        except FunctionError as error:
            raise context.error("LG305", error.what, at, help=error.help) from None

    return handler


for _mode in ("fwd_diff", "bwd_diff"):
    intrinsic(_mode)(_operator(_mode))
