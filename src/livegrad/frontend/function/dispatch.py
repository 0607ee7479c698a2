"""Dispatches calls of captured functions from Python: scalar arguments run immediately, arrays are mapped over.

In: a function and Python arguments. Out: Python values, or NumPy arrays with one value per point.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, partial, reduce
from itertools import chain
from typing import Any

import numpy as np

from livegrad.diagnostics import Origin, UsageError, caller_origin
from livegrad.frontend.function.array_patterns import Pattern, TensorPattern, TuplePattern
from livegrad.frontend.function.call_cache import CachedCall
from livegrad.frontend.function.captured import CapturedFunction, Specialization
from livegrad.frontend.function.compile_values import Value, convertible, static
from livegrad.frontend.function.function_errors import Span
from livegrad.frontend.function.function_types import (
    NONE,
    ArrayType,
    Composite,
    FrontType,
    RecordType,
    TupleType,
    describe,
    from_result,
    ir_of,
    to_argument,
)
from livegrad.frontend.function.overloads import Match, choose
from livegrad.frontend.function.signature import Default
from livegrad.frontend.function.type_reading import type_of_value
from livegrad.frontend.function.vectors import VectorValue
from livegrad.ir import types as ir
from livegrad.ir.node import Function, Node
from livegrad.ops.aggregate import make, member
from livegrad.ops.control import make_map, map_over
from livegrad.ops.movement import broadcast_to
from livegrad.runtime.cpu import compile_function
from livegrad.tensors.handle import ShapeError, join_shapes


@dataclass
class PreparedCall:
    """A prepared call from Python: the specialisation, its arguments, and which of them have one value per point."""

    specialization: Specialization
    arguments: list[Any]
    lifted: list[bool]


def run_now(
    function: CapturedFunction, positional: tuple[Any, ...], keywords: dict[str, Any], key: tuple[Any, ...] | None
) -> Any:
    """Calls a captured function with Python values; `key` names the kinds of its arguments, for the next such call."""
    match = _choose_overload(function, positional, keywords)
    prepared = _specialize_call(match, positional, keywords)
    specialization = prepared.specialization
    types = [slot.type for slot in specialization.runtime_slots if slot.type is not None]
    if key is not None and not any(prepared.lifted):
        function.call_cache[key] = CachedCall(
            execute_function(specialization.function),
            _argument_sources(match, positional, keywords),
            types,
            specialization.result_type,
            specialization.is_current,
        )
    return run_prepared(specialization.function, prepared.arguments, prepared.lifted, types, specialization.result_type)


def choose_overload(
    function: CapturedFunction, positional: tuple[Any, ...], keywords: dict[str, Any]
) -> CapturedFunction:
    """The overload that fits these arguments."""
    return _choose_overload(function, positional, keywords).function


def _argument_sources(match: Match, positional: tuple[Any, ...], keywords: dict[str, Any]) -> list[int | Default]:
    """For each run-time argument, the index of the value that was passed, or its default."""
    indices = range(len(positional) + len(keywords))
    named = dict(zip(keywords, indices[len(positional) :], strict=True))
    bound = match.function.signature.bind(indices[: len(positional)], named)
    assert not isinstance(bound, str)
    parameters = zip(match.function.signature.parameters, match.slots, strict=True)
    return [bound[parameter.name] for parameter, slot in parameters if slot.type is not None]


def run_prepared(
    function: Function, arguments: Sequence[Any], lifted: Sequence[bool], types: Sequence[Any], result: FrontType
) -> Any:
    """Runs an IR function on Python arguments of the given types; `lifted` ones have one value a point."""
    if any(lifted):
        return run_mapped(function, arguments, lifted, types, result)
    converted = [to_argument(type, value) for type, value in zip(types, arguments, strict=True)]
    return from_result(result, execute_function(function)(*converted))


@lru_cache(maxsize=1024)
def execute_function(function: Function) -> Any:
    """A function as native code."""
    return compile_function(function)


def prepare(function: CapturedFunction, positional: tuple[Any, ...], keywords: dict[str, Any]) -> PreparedCall:
    """Chooses the overload and the specialisation for Python arguments."""
    return _specialize_call(_choose_overload(function, positional, keywords), positional, keywords)


def _choose_overload(function: CapturedFunction, positional: tuple[Any, ...], keywords: dict[str, Any]) -> Match:
    many = len(function.overloads) > 1
    values = [abstract_argument(v, _annotated_type(function, index, v), many) for index, v in enumerate(positional)]
    named = {name: abstract_argument(v, _annotated_type(function, name, v), many) for name, v in keywords.items()}
    return choose(function, values, named, call_span())


def _specialize_call(match: Match, positional: tuple[Any, ...], keywords: dict[str, Any]) -> PreparedCall:
    bound = match.function.signature.bind(positional, keywords)
    assert not isinstance(bound, str)
    specialization = match.function.specialize(match.slots)
    if specialization.updating is not None:
        specialization.require_inouts_returned(call_span())
    arguments, lifted = [], []
    for parameter_, slot in zip(match.function.signature.parameters, match.slots, strict=True):
        if slot.type is None:
            continue
        value = bound[parameter_.name]
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


def abstract_argument(value: Any, expected: Pattern | None, fitting: bool = False) -> Value:
    """What is known of a Python argument: its type, by which the overload is chosen.

    Python's own numbers fit parameters of every width, if there is one expected or they are `fitting` to any.
    """
    abstract = getattr(value, "__livegrad_abstract__", None)
    if abstract is not None and not isinstance(value, type):
        return abstract(abstract_argument, expected, fitting)
    if _is_static_argument(value):
        return static(value)
    if isinstance(expected, TuplePattern) and isinstance(value, tuple) and len(value) == len(expected.elements):
        parts = [abstract_argument(item, abstract) for item, abstract in zip(value, expected.elements, strict=True)]
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
    # NumPy's own default numbers, elements of arrays for one, are as good as Python's.
    weak = isinstance(value, bool | int | float | complex) or value.__class__ is np.int64
    if expected is None and not fitting:
        weak = weak and not isinstance(value, np.generic)  # without an annotation, a type of NumPy's decides
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
    for index, parameter_ in enumerate(function.signature.parameters):
        if which in (index, parameter_.name):
            return parameter_.annotation.expected_for(value)
    return None


def argument_type(value: Any, expected: FrontType | None) -> FrontType:
    """The type of a Python argument; what fits the expected type as it is counts as that type."""
    if expected is not None and _matches_type(expected, value):
        return expected
    if isinstance(value, np.ndarray) and not isinstance(value, VectorValue) and value.ndim and expected is None:
        return ir.scalar_of_dtype(value.dtype)  # one number a point
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


# --- one value a point -----------------------------------------------------------------------------------------------


def is_lifted(type: FrontType, value: Any) -> bool:
    """Whether an argument has one value for each point of an array."""
    if isinstance(type, RecordType):
        return any(is_lifted(field.type, getattr(value, field.name, None)) for field in type.fields)
    if isinstance(type, TupleType):
        return isinstance(value, tuple) and any(map(is_lifted, type.elements, value))
    if isinstance(type, Composite):
        return False
    rank = 0 if isinstance(type, ir.Scalar) else (1 if isinstance(type, ir.Vector) else 2)
    return not isinstance(value, list | tuple) and np.ndim(value) > rank if hasattr(value, "__array__") else False


def run_mapped(
    function: Function, arguments: Sequence[Any], lifted: Sequence[bool], types: Sequence[Any], result: FrontType
) -> Any:
    """The function at every point; leading shapes are broadcast against each other."""
    what = f"an argument of `{function.name}`"
    leaves = [
        _point_shapes(type, value, what) if flag else []
        for type, value, flag in zip(types, arguments, lifted, strict=True)
    ]
    domain: tuple[Any, ...] = reduce(partial(join_shapes, function.name), chain.from_iterable(leaves), ())
    count = int(np.prod(domain))
    operands = [
        _flatten_points(type, value, domain, count) if flag else to_argument(type, value)
        for type, value, flag in zip(types, arguments, lifted, strict=True)
    ]
    mapped = _map_function(function, tuple(lifted))
    return _unflatten_points(result, execute_function(mapped)(*operands), domain)


@lru_cache(maxsize=1024)
def _map_function(function: Function, lifted: tuple[bool, ...]) -> Function:
    return map_over(function, lifted)


def _point_shapes(type: FrontType, value: Any, what: str) -> list[tuple[int, ...]]:
    if isinstance(type, RecordType):
        return [s for field in type.fields for s in _point_shapes(field.type, getattr(value, field.name), what)]
    if isinstance(type, TupleType):
        return [
            s for element, item in zip(type.elements, value, strict=True) for s in _point_shapes(element, item, what)
        ]
    return [points_of(type, np.shape(value), what)]


def points_of(type: FrontType, shape: tuple[Any, ...], what: str) -> tuple[Any, ...]:
    """The shape of the points at each of which an array has a value of this type: vectors take its last axis.

    >>> points_of(ir.Vector(ir.f32, 3), (4, 5, 3), "p")
    (4, 5)
    """
    point_shape = _component_shape(type)
    start = len(shape) - len(point_shape)
    if start < 0 or shape[start:] != point_shape:
        raise ShapeError(
            f"{what} takes {describe(type)}",
            where=caller_origin(),
            expected=f"shape (..., {', '.join(map(str, point_shape))})",
            found=str(shape),
        )
    return shape[:start]


def _component_shape(type: FrontType) -> tuple[int, ...]:
    if isinstance(type, ir.Scalar):
        return ()
    if isinstance(type, ir.Vector):
        return (type.size,)
    if isinstance(type, ir.Matrix):
        return (type.rows, type.columns)
    raise UsageError(f"values of type {type!r} cannot be mapped over", where=caller_origin())


def _flatten_points(type: FrontType, value: Any, domain: tuple[int, ...], count: int) -> Any:
    if isinstance(type, RecordType):
        return tuple(_flatten_points(field.type, getattr(value, field.name), domain, count) for field in type.fields)
    if isinstance(type, TupleType):
        return tuple(
            _flatten_points(shape, item, domain, count) for shape, item in zip(type.elements, value, strict=True)
        )
    shape = _component_shape(type)
    scalar = ir.scalar_of(ir_of(type))
    assert scalar is not None
    array = cast_array(value, scalar)
    return np.ascontiguousarray(np.broadcast_to(array, domain + shape)).reshape((count, *shape))


def cast_array(value: Any, scalar: ir.Scalar) -> np.ndarray:
    """Values at points as elements of another type of the same kind: what is cast may lose digits, but nothing else.

    >>> cast_array([1, 2], ir.f32)
    array([1., 2.], dtype=float32)
    """
    array = np.asarray(value)
    if array.dtype == scalar.dtype:
        return array
    if not np.can_cast(array.dtype, scalar.dtype, "same_kind"):
        raise UsageError(
            "an array of the wrong type", where=caller_origin(), expected=str(scalar), found=str(array.dtype),
            help=f"pass an array of {scalar.dtype}",
        )  # fmt: skip
    return array.astype(scalar.dtype)


def _unflatten_points(type: FrontType, value: Any, domain: tuple[int, ...]) -> Any:
    if isinstance(type, RecordType):
        parts = {f.name: _unflatten_points(f.type, v, domain) for f, v in zip(type.fields, value, strict=True)}
        return type.make(**parts)
    if isinstance(type, TupleType):
        return tuple(
            _unflatten_points(element, item, domain) for element, item in zip(type.elements, value, strict=True)
        )
    if isinstance(type, ArrayType):
        return [_unflatten_points(type.element, item, domain) for item in value]
    if isinstance(type, Composite):
        return None
    return np.asarray(value).reshape(domain + _component_shape(type))


def apply_mapped(function: Function, arguments: Sequence[Node]) -> Node:
    """The function at every point, on IR nodes: tensors where its parameters are scalars, vectors or structs.

    Arguments of a parameter's own type are shared by all points; the leading shapes of the others are broadcast.

    >>> from livegrad.ir.function import trace
    >>> from livegrad.ir.leaves import parameter
    >>> square = trace(lambda x: x * x, ir.f32)
    >>> apply_mapped(square, [parameter(0, ir.Tensor(ir.f32, (4, 5)))]).type
    tensor<f32, [4, 5]>
    """
    lifted = [node.type is not type for node, type in zip(arguments, function.parameter_types, strict=True)]
    if not any(lifted):
        raise UsageError("nothing to map over: every argument is a single value", where=caller_origin())
    domains = [
        _tensor_domain(node.type, type)
        for node, type, flag in zip(arguments, function.parameter_types, lifted, strict=True)
        if flag
    ]
    domain = reduce(partial(join_shapes, function.name), domains)
    spread = [
        _broadcast_points(node, type, domain) if flag else node
        for node, type, flag in zip(arguments, function.parameter_types, lifted, strict=True)
    ]
    return make_map(function, *spread)


def _tensor_domain(type: ir.Type, point: ir.Type) -> tuple[Any, ...]:
    while isinstance(point, ir.Struct | ir.Tuple) and isinstance(type, ir.Struct | ir.Tuple):
        type, point = ir.components(type)[0], ir.components(point)[0]
    assert isinstance(type, ir.Tensor)
    depth = {ir.Vector: 1, ir.Matrix: 2}.get(point.__class__, 0)
    return type.shape[: type.rank - depth]


def _broadcast_points(node: Node, point: ir.Type, domain: tuple[Any, ...]) -> Node:
    if isinstance(node.type, ir.Struct) and isinstance(point, ir.Struct):
        parts = [_broadcast_points(member(node, k), type, domain) for k, type in enumerate(ir.components(point))]
        named = tuple((name, part.type) for (name, _), part in zip(point.fields, parts, strict=True))
        return make(*parts, type=ir.Struct(point.name, named))
    if not isinstance(node.type, ir.Tensor):
        return node
    depth = {ir.Vector: 1, ir.Matrix: 2}.get(point.__class__, 0)
    components = node.type.shape[node.type.rank - depth :]
    shape = (*domain, *components)
    return node if node.type.shape == shape else broadcast_to(node, shape)
