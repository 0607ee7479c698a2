"""Call dispatch from Python: resolves the overload, specialises it and runs it; arrays are mapped over.

In: a function and Python arguments. Out: Python values, or NumPy arrays with one value per point.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from livegrad.diagnostics import Origin, UsageError, caller_origin
from livegrad.frontend.function.array_patterns import Pattern, TensorPattern, TuplePattern
from livegrad.frontend.function.call_cache import CachedCall
from livegrad.frontend.function.captured import CapturedFunction, Specialization
from livegrad.frontend.function.compile_values import Value, convertible, static
from livegrad.frontend.function.execution import compile_cached, is_lifted, run_prepared
from livegrad.frontend.function.function_errors import Span
from livegrad.frontend.function.function_types import (
    NONE,
    ArrayType,
    Composite,
    FrontType,
    TupleType,
)
from livegrad.frontend.function.overloads import Match, choose
from livegrad.frontend.function.signature import Default
from livegrad.frontend.function.type_reading import type_of_value
from livegrad.frontend.function.vectors import VectorValue
from livegrad.ir import types as ir


@dataclass
class PreparedCall:
    """A resolved call: the specialisation, its arguments, and whether each is lifted (has one value per point)."""

    specialization: Specialization
    arguments: list[Any]
    lifted: list[bool]


def run_now(
    function: CapturedFunction, positional: tuple[Any, ...], keywords: dict[str, Any], key: tuple[Any, ...] | None
) -> Any:
    """Calls a captured function with Python values, and caches the resolved call under `key` if it is not None."""
    match = _choose_overload(function, positional, keywords)
    prepared = _specialize_call(match, positional, keywords)
    specialization = prepared.specialization
    types = [slot.type for slot in specialization.runtime_slots if slot.type is not None]
    if key is not None and not any(prepared.lifted):
        function.call_cache[key] = CachedCall(
            compile_cached(specialization.function),
            _argument_sources(match, positional, keywords),
            types,
            specialization.result_type,
            specialization.is_current,
        )
    return run_prepared(specialization.function, prepared.arguments, prepared.lifted, types, specialization.result_type)


def choose_overload(
    function: CapturedFunction, positional: tuple[Any, ...], keywords: dict[str, Any]
) -> CapturedFunction:
    """The overload that matches these arguments."""
    return _choose_overload(function, positional, keywords).function


def _argument_sources(match: Match, positional: tuple[Any, ...], keywords: dict[str, Any]) -> list[int | Default]:
    """For each run-time argument, the index of the passed value, or its default."""
    indices = range(len(positional) + len(keywords))
    named = dict(zip(keywords, indices[len(positional) :], strict=True))
    bound = match.function.signature.bind(indices[: len(positional)], named)
    assert not isinstance(bound, str)
    parameters = zip(match.function.signature.parameters, match.slots, strict=True)
    return [bound[parameter.name] for parameter, slot in parameters if slot.type is not None]


def prepare(function: CapturedFunction, positional: tuple[Any, ...], keywords: dict[str, Any]) -> PreparedCall:
    """Resolves a call with Python arguments: the overload, the specialisation and its arguments."""
    return _specialize_call(_choose_overload(function, positional, keywords), positional, keywords)


def _choose_overload(function: CapturedFunction, positional: tuple[Any, ...], keywords: dict[str, Any]) -> Match:
    overloaded = len(function.overloads) > 1
    values = [
        abstract_argument(value, _annotated_type(function, index, value), overloaded)
        for index, value in enumerate(positional)
    ]
    keyword_values = {
        name: abstract_argument(value, _annotated_type(function, name, value), overloaded)
        for name, value in keywords.items()
    }
    return choose(function, values, keyword_values, call_span())


def _specialize_call(match: Match, positional: tuple[Any, ...], keywords: dict[str, Any]) -> PreparedCall:
    bound = match.function.signature.bind(positional, keywords)
    assert not isinstance(bound, str)
    specialization = match.function.specialize(match.slots)
    if specialization.updating is not None:
        specialization.require_inouts_returned(call_span())
    arguments, lifted = [], []
    for parameter, slot in zip(match.function.signature.parameters, match.slots, strict=True):
        if slot.type is None:
            continue
        value = bound[parameter.name]
        if isinstance(value, Default):
            value = value.value
        arguments.append(value)
        lifted.append(is_lifted(slot.type, value))
    return PreparedCall(specialization, arguments, lifted)


def call_span() -> Span:
    """Returns the line of the user's program that called livegrad."""
    return CallSpan(caller_origin())


class CallSpan(Span):
    """The line of a call from Python, looked up only when an error needs it."""

    def __init__(self, origin: Origin | None) -> None:
        object.__setattr__(self, "_origin", origin)

    def __getattr__(self, name: str) -> Any:
        origin: Origin | None = self.__dict__["_origin"]
        if name == "text":
            return ""
        if name == "file":
            return "<python>" if origin is None else origin.file
        if name == "line":
            return 0 if origin is None else origin.line
        if name in ("column", "end_column"):
            column = 1 if origin is None else origin.column or 1
            return column if name == "column" else column + 1
        raise AttributeError(name)


def abstract_argument(value: Any, expected: Pattern | None, weak_numbers: bool = False) -> Value:
    """The abstract value of a Python argument: its type, which determines the overload.

    Python numbers are weakly typed, so they match parameters of every width. Without an expected type, NumPy scalars
    are weak only if `weak_numbers` is set.
    """
    abstract = getattr(value, "__livegrad_abstract__", None)
    if abstract is not None and not isinstance(value, type):
        return abstract(abstract_argument, expected, weak_numbers)
    if _is_static_argument(value):
        return static(value)
    if isinstance(expected, TuplePattern) and isinstance(value, tuple) and len(value) == len(expected.elements):
        parts = [abstract_argument(item, pattern) for item, pattern in zip(value, expected.elements, strict=True)]
        return Value(TupleType(tuple(part.type or NONE for part in parts)))
    expected = None if isinstance(expected, TuplePattern) else expected
    if expected is not None and not isinstance(expected, TensorPattern) and is_lifted(expected, value):
        return Value(expected)
    try:
        if isinstance(expected, TensorPattern):
            return Value(expected.type_of(value))
        argument = argument_type(value, expected)
    except TypeError as error:
        raise UsageError("cannot find a type for this argument", where=caller_origin(), help=str(error)) from None
    # NumPy's default numbers, such as elements of arrays, count as Python numbers; `np.float64` is a subclass of float.
    weak = isinstance(value, bool | int | float | complex) or value.__class__ is np.int64
    if expected is None and not weak_numbers:
        weak = weak and not isinstance(value, np.generic)  # without an annotation, the NumPy type is binding
    return Value(argument, weak=weak)


def _is_static_argument(value: Any) -> bool:
    return (
        value is None
        or isinstance(value, str | CapturedFunction)
        or (callable(value) and not hasattr(value, "__livegrad_type__") and not isinstance(value, np.generic))
    )


def _annotated_type(function: CapturedFunction, which: int | str, value: Any) -> Pattern | None:
    if len(function.overloads) > 1:
        return None
    for index, parameter in enumerate(function.signature.parameters):
        if which in (index, parameter.name):
            return parameter.annotation.expected_for(value)
    return None


def argument_type(value: Any, expected: FrontType | None) -> FrontType:
    """The type of a Python argument: the expected type if the argument matches it, else the type of the value."""
    if expected is not None and _matches_type(expected, value):
        return expected
    if isinstance(value, np.ndarray) and not isinstance(value, VectorValue) and value.ndim and expected is None:
        return ir.scalar_of_dtype(value.dtype)  # lifted: one number per point
    return type_of_value(value)


def _matches_type(type: FrontType, value: Any) -> bool:
    if isinstance(type, ir.Vector | ir.Matrix):
        shape = (type.size,) if isinstance(type, ir.Vector) else (type.rows, type.columns)
        try:
            return isinstance(value, list | tuple | np.ndarray) and np.shape(value) == shape
        except ValueError:  # lists of different lengths
            return False
    if isinstance(type, ArrayType):
        return (
            isinstance(value, list | tuple | np.ndarray)
            and len(value) == type.size
            and all(_matches_type(type.element, item) or _is_element(type.element, item) for item in value)
        )
    if isinstance(type, TupleType):
        return isinstance(value, tuple) and len(value) == len(type.elements)
    return False


def _is_element(type: FrontType, item: Any) -> bool:
    if not isinstance(type, ir.Scalar):
        return isinstance(type, Composite) and type.accepts(item)
    try:
        return convertible(Value(type_of_value(item), weak=True), type)
    except TypeError:
        return False
