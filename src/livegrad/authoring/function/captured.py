"""Captured functions: Python functions that run as native code, compiled for the types they are called with.

`function` (and `differentiable.differentiable`) make them; each keeps its specialisations and knows when one is out of
date because a constant or a function that it used has changed.
"""

from __future__ import annotations

import ast
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, update_wrapper
from types import FrameType, FunctionType
from typing import Any, TypeVar

import numpy as np

from livegrad.authoring.function.context import Context, Dependencies
from livegrad.authoring.function.effects import add_effects_of_call
from livegrad.authoring.function.problems import FunctionError, Span
from livegrad.authoring.function.signature import Default, Parameter, Signature
from livegrad.authoring.function.source import Source, capture
from livegrad.authoring.function.types import NONE, ArrayType, FrontType, TensorType, describe
from livegrad.authoring.function.values import Value, convert, convertible, from_python, name_of, node_of, runtime
from livegrad.ir import types as ir
from livegrad.ir.node import Function, Node
from livegrad.ir.text import print_function
from livegrad.ops.control import call as call_op


@dataclass(frozen=True)
class Slot:
    """What one parameter is specialised for: a type, or (`static`) a function or other value known now."""

    type: FrontType | None
    no_diff: bool = False
    weak: bool = False
    static: Any = None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Slot):
            return NotImplemented
        mine, theirs = (s.static for s in (self, other))
        same = mine is theirs or (type(mine) is type(theirs) and isinstance(mine, str | int | float) and mine == theirs)
        return same and (self.type, self.no_diff, self.weak) == (other.type, other.no_diff, other.weak)

    def __hash__(self) -> int:
        return hash((self.type, self.no_diff, self.weak))


@dataclass(eq=False)
class Specialization:
    """A function compiled for one list of slots."""

    owner: CapturedFunction
    slots: tuple[Slot, ...]
    function: Function
    result_type: FrontType
    result_no_diff: bool
    dependencies: Dependencies
    context: Context
    edition: int = 0

    @property
    def runtime_slots(self) -> list[Slot]:
        return [slot for slot in self.slots if slot.type is not None]

    def is_current(self) -> bool:
        """Whether everything that it was made from is as it was."""
        source, dependencies = self.owner.source, self.dependencies
        return (
            self.edition == self.owner.edition
            and all(unchanged(source.lookup(name), value) for name, value in dependencies.names.items())
            and all(unchanged(getattr(owner, name, None), value) for owner, name, value in dependencies.attributes)
            and all(current() for current in dependencies.callees)
        )


def unchanged(now: Any, then: Any) -> bool:
    """Whether a value from around a function is what it was."""
    if now is then and not isinstance(now, list | np.ndarray):
        return True
    if type(now) is not type(then):
        return False
    if isinstance(now, np.ndarray):
        return np.array_equal(now, then, equal_nan=now.dtype.kind in "fc")
    if isinstance(now, list | tuple):
        return len(now) == len(then) and all(map(unchanged, now, then))
    if isinstance(now, float):
        return now == then or (now != now and then != then)
    return isinstance(now, bool | int | str | complex | np.generic) and bool(now == then)


class CapturedFunction:
    """A Python function that is compiled on demand; calling it runs native code.

    >>> from livegrad.authoring.function.source import run_source
    >>> square = CapturedFunction(run_source("def square(x):\\n    return x * x")["square"])
    >>> square(3.0), square(3)
    (9.0, 9)
    """

    differentiable = False
    __name__: str

    def __init__(self, function: FunctionType) -> None:
        self.python_function = function
        self._own: dict[tuple[Slot, ...], Specialization] = {}
        self.overloads: list[CapturedFunction] = [self]
        self._frames = frames_around(function)  # until the annotations are read
        self.known_calls: dict[tuple[Any, ...], Any] = {}  # by the kinds of their arguments
        self.edition = 0  # how often what it was made from has been changed by decorators
        self.compile_count = 0  # how often a body was compiled: for tests of what an edit costs
        update_wrapper(self, function)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.python_function.__qualname__}>"

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return self
        return lambda *arguments, **keywords: self(instance, *arguments, **keywords)

    @cached_property
    def source(self) -> Source:
        return capture(self.python_function)

    @cached_property
    def signature(self) -> Signature:
        names: dict[str, Any] = {}
        for frame in reversed(self._frames):
            names.update(frame.f_locals)
        signature = Signature(self.source, names)
        self._frames.clear()
        return signature

    def overload(self, function: Callable[..., Any]) -> CapturedFunction:
        """Adds a definition for other parameter types; a call takes the one that fits.

        >>> from livegrad.authoring.function.source import run_source
        >>> names = run_source("def f(x: float): return x / 2.0\\ndef g(x: int): return x // 2")
        >>> f = CapturedFunction(names["f"])
        >>> _ = f.overload(names["g"])
        >>> f(3.0), f(3)
        (1.5, 1)
        """
        inner = function.python_function if isinstance(function, CapturedFunction) else function
        added = type(self)(inner)  # type: ignore[arg-type]
        self.overloads.append(added)
        return self

    # --- running ---

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        return self._run_plainly(arguments, keywords) if _plain.depth else RUN[0](self, arguments, keywords)

    def python(self, *arguments: Any, **keywords: Any) -> Any:
        """Runs the same source, and that of the functions it calls, under plain Python, where a debugger can follow."""
        _plain.depth += 1
        try:
            return self._run_plainly(arguments, keywords)
        finally:
            _plain.depth -= 1

    def _run_plainly(self, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        # Arguments are values: what a function does to its own shows nowhere else.
        own = [value.copy() if isinstance(value, list | np.ndarray) else value for value in arguments]
        function = self if len(self.overloads) == 1 else CHOOSE[0](self, arguments, keywords)
        return PLAINLY[0](function.python_function)(*own, **keywords)

    def __livegrad_transform__(self, name: str, lazily: Callable[..., Any], **options: Any) -> Any:
        """What `lg.grad` and the other transforms of tensor code do to this function."""
        return TRANSFORM[0](self, name, lazily, **options)

    # --- compiling ---

    def verify(self, context: Context) -> None:
        """What a kind of function demands of its body, beyond that it compiles."""

    def called(self, result: Node) -> Node:
        """What a kind of function makes of the result where another function calls it."""
        return result

    def specialize(self, slots: tuple[Slot, ...]) -> Specialization:
        """The function for these slots: compiled now, or kept from before if it is still current."""
        found = self._own.get(slots)
        if found is not None and found.is_current():
            return found
        self.compile_count += 1
        made = COMPILE[0](self, slots)
        made.edition = self.edition
        self._own[slots] = made
        return made

    def forget_specializations(self) -> None:
        """Compiles the function anew when it is next called, and what was made from it."""
        self._own.clear()
        self.edition += 1

    def ir(self, *types: Any) -> str:
        """The text of the IR for these parameter types (those of the signature unless told)."""
        return print_function(self.specialization_for(*types).function)

    def specialization_for(self, *types: Any) -> Specialization:
        """The specialisation for parameter types; those of the signature unless told."""
        slots = []
        for index, parameter in enumerate(self.signature.parameters):
            annotation = parameter.annotation
            own = types[index] if index < len(types) else annotation.type
            if own is None:
                raise FunctionError(
                    "LG108",
                    f"`{self.__name__}` needs a type for `{parameter.name}`",
                    parameter.span,
                    help="annotate the parameter, or name the types",
                )
            slots.append(Slot(own, annotation.no_diff))
        return self.specialize(tuple(slots))

    def _repr_html_(self) -> str:
        try:
            text = self.ir()
        except FunctionError as error:
            text = str(error)
        escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        return f"<pre>{escaped}</pre>"


class _Plain(threading.local):
    """How many calls of `python` this thread is in."""

    depth = 0


_plain = _Plain()

# Put in by the modules that stand on this one.
PLAINLY: list[Callable[[FunctionType], Callable[..., Any]]] = []
CHOOSE: list[Callable[[CapturedFunction, tuple[Any, ...], dict[str, Any]], CapturedFunction]] = []
COMPILE: list[Callable[[CapturedFunction, tuple[Slot, ...]], Specialization]] = []
RUN: list[Callable[[CapturedFunction, tuple[Any, ...], dict[str, Any]], Any]] = []
TRANSFORM: list[Callable[..., Any]] = []  # (function, name of the transform, the same by tensor code, options)


# --- choosing an overload and calling it from a captured function ----------------------------------------------------


@dataclass
class Match:
    """An overload that fits, its arguments in order, and how many of them must be converted."""

    function: CapturedFunction
    values: list[Value]
    slots: tuple[Slot, ...]
    conversions: int


def match(
    function: CapturedFunction, positional: Sequence[Value], keywords: Mapping[str, Value], span: Span
) -> Match | str:
    """How arguments fit one overload, or why they do not."""
    bound = function.signature.bind(positional, keywords)
    if isinstance(bound, str):
        return bound
    values, slots, conversions = [], [], 0
    variables: dict[TypeVar, FrontType] = {}
    for parameter in function.signature.parameters:
        given = bound[parameter.name]
        value = from_python(given.value, span) if isinstance(given, Default) else given
        slot = slot_for(parameter, value, variables)
        if isinstance(slot, str):
            return slot
        if slot.type is not None and slot.type != value.type:
            conversions += 1
        values.append(value)
        slots.append(slot)
    return Match(function, values, tuple(slots), conversions)


def slot_for(parameter: Parameter, value: Value, variables: dict[TypeVar, FrontType]) -> Slot | str:
    """What a parameter is specialised for when it is given this value, or why it cannot take it."""
    annotation = parameter.annotation
    expected = annotation.type
    if annotation.listed is not None and isinstance(value.type, ArrayType):
        expected = ArrayType(annotation.listed, value.type.size)
    if annotation.tensor is not None:
        pattern, found = annotation.tensor, value.type
        fits = isinstance(found, TensorType) and found.element is pattern.element and len(found.shape) == pattern.rank
        return (
            Slot(found, annotation.no_diff)
            if fits
            else f"`{parameter.name}` expects {pattern!r}, found {name_of(value)}"
        )
    if annotation.variable is not None:
        problem = bind_variable(annotation.variable, value, variables)
        if problem is not None:
            return BoundProblem(f"`{parameter.name}` {problem}")
        expected = variables[annotation.variable]
    if expected is not None:
        if not convertible(value, expected):
            return f"`{parameter.name}` expects {describe(expected)}, found {name_of(value)}"
        return Slot(expected, annotation.no_diff)
    if value.type is None:
        return Slot(None, static=value.static) if value.items is None else "a tuple with values that are known only now"
    if value.static is None:
        return Slot(None, static=None)
    return Slot(value.type, annotation.no_diff, value.weak and isinstance(value.type, ir.Scalar))


class BoundProblem(str):
    """Why a type cannot stand for a type variable."""

    code = "LG402"


def bind_variable(variable: TypeVar, value: Value, variables: dict[TypeVar, FrontType]) -> str | None:
    """Gives a type variable the type of an argument; what is wrong if that cannot be."""
    known = variables.get(variable)
    if known is not None:
        return None if convertible(value, known) else f"expects {describe(known)}, found {name_of(value)}"
    if value.type is None:
        return f"expects a value, found {name_of(value)}"
    for rule in BOUNDS:
        problem = rule(variable, value.type)
        if problem is not None:
            return problem
    variables[variable] = value.type
    return None


# What a type must satisfy to stand for a type variable; added by the modules that define bounds.
BOUNDS: list[Callable[[TypeVar, FrontType], str | None]] = []


def choose(
    function: CapturedFunction,
    positional: Sequence[Value],
    keywords: Mapping[str, Value],
    span: Span,
    refuse: Callable[[Match], str | None] | None = None,
) -> Match:
    """The overload that fits with the fewest conversions; `refuse` may say why one that fits is not wanted."""
    tried: list[tuple[CapturedFunction, Match | str]] = []
    for overload in function.overloads:
        found = match(overload, positional, keywords, span)
        problem = refuse(found) if refuse is not None and isinstance(found, Match) else None
        tried.append((overload, problem or found))
    fitting = [found for _, found in tried if isinstance(found, Match)]
    if not fitting:
        if len(tried) == 1:
            code = getattr(tried[0][1], "code", "LG108")
            raise FunctionError(code, f"`{function.__name__}`: {tried[0][1]}", span, expected=str(function.signature))
        reasons = "; ".join(f"{overload.signature}: {why}" for overload, why in tried)
        raise FunctionError(
            "LG205",
            f"no overload of `{function.__name__}` fits",
            span,
            found=_shown(positional, keywords),
            help=reasons,
        )
    least = min(found.conversions for found in fitting)
    best = [found for found in fitting if found.conversions == least]
    if len(best) > 1:
        raise FunctionError(
            "LG206",
            f"more than one overload of `{function.__name__}` fits",
            span,
            found=_shown(positional, keywords),
            help="; ".join(str(found.function.signature) for found in best),
        )
    return best[0]


def _shown(positional: Sequence[Value], keywords: Mapping[str, Value]) -> str:
    parts = [name_of(value) for value in positional] + [f"{n}={name_of(v)}" for n, v in keywords.items()]
    return ", ".join(parts)


def argument_nodes(found: Match, span: Span) -> tuple[list[Value], list[Node]]:
    """The arguments that are passed when the function runs, converted to their parameters' types."""
    values, nodes = [], []
    for parameter, value, slot in zip(found.function.signature.parameters, found.values, found.slots, strict=True):
        if slot.type is None:
            continue
        converted = convert(value, slot.type, span, f"`{parameter.name}`")
        values.append(converted)
        nodes.append(node_of(converted, span))
    return values, nodes


def call_captured(
    context: Context,
    function: CapturedFunction,
    positional: Sequence[Value],
    keywords: Mapping[str, Value],
    at: ast.AST,
) -> Value:
    """A call of one captured function from another."""
    span = context.span(at)
    found = choose(function, positional, keywords, span)
    made = found.function.specialize(found.slots)
    context.dependencies.callees.append(made.is_current)
    context.dependencies.types.update(made.dependencies.types)
    values, nodes = argument_nodes(found, span)
    node = found.function.called(call_op(*nodes, function=made.function))
    if made.context.has_effects:
        add_effects_of_call(context, node if made.result_type is NONE else None, made.context.prints)
    result = runtime(made.result_type, node)
    carrying = [value for value, slot in zip(values, made.runtime_slots, strict=True) if not slot.no_diff]
    if not found.function.differentiable:
        return context.with_flow(result, "call", values, at, function.__name__)
    for value in carrying:
        context.expect(value)
    if made.result_no_diff:
        return context.with_flow(result, "cut", values, at)
    return context.with_flow(result, "operation", carrying, at, function.__name__)


def frames_around(function: FunctionType) -> list[FrameType]:
    """The frames of the functions in which another one is being defined: its annotations may name their locals."""
    texts = [value for value in function.__annotations__.values() if isinstance(value, str)]
    if "<locals>" not in function.__qualname__ or not texts:
        return []
    frames = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_globals is function.__globals__ and frame.f_code.co_name != "<module>":
            frames.append(frame)
        frame = frame.f_back
    return frames


_capturing: dict[FunctionType, CapturedFunction] = {}


def captured_plain(function: FunctionType) -> CapturedFunction:
    """A plain Python function as a captured one: it can be called, and is not differentiable."""
    found = _capturing.get(function)
    if found is None:
        found = _capturing[function] = CapturedFunction(function)
    return found


def function(target: Callable[..., Any]) -> CapturedFunction:
    """Captures a function without making it differentiable.

    >>> from livegrad.authoring.function.source import run_source
    >>> function(run_source("def twice(x: int): return 2 * x")["twice"])(4)
    8
    """
    if not isinstance(target, FunctionType):
        raise FunctionError("LG109", f"{target!r} is no Python function", help="decorate a def")
    return CapturedFunction(target)
