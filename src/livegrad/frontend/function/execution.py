"""Executes IR functions on Python values: once, or mapped over the points of arrays.

Called by `dispatch` and by derivatives; `lazy_calls` maps functions over tensors with `apply_mapped`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial, reduce
from itertools import chain
from typing import Any

import numpy as np

from livegrad.diagnostics import UsageError, caller_origin
from livegrad.frontend.function.function_types import (
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
from livegrad.ir import types as ir
from livegrad.ir.node import Function, Node
from livegrad.ops.aggregate import make, member
from livegrad.ops.maps import make_map, map_over
from livegrad.ops.movement import broadcast_to
from livegrad.runtime.cpu import compile_function
from livegrad.tensors.broadcasting import join_shapes
from livegrad.tensors.errors import ShapeError


def run_prepared(
    function: Function, arguments: Sequence[Any], lifted: Sequence[bool], types: Sequence[Any], result: FrontType
) -> Any:
    """Runs an IR function on Python arguments of the given types; `lifted` arguments have one value per point."""
    if any(lifted):
        return run_mapped(function, arguments, lifted, types, result)
    converted = [to_argument(type, value) for type, value in zip(types, arguments, strict=True)]
    return from_result(result, compile_cached(function)(*converted))


@lru_cache(maxsize=1024)
def compile_cached(function: Function) -> Any:
    """Compiles a function to native code."""
    return compile_function(function)


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
    """Runs the function at every point; leading shapes are broadcast against each other."""
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
    return _unflatten_points(result, compile_cached(mapped)(*operands), domain)


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
    """The leading shape of an array that holds one value of this type per point: vectors take the last axis.

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
    """Casts the values of an array to another element type of the same kind; the cast may lose precision.

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
    """Maps a function over points on IR nodes: arguments are tensors where its parameters are scalars or vectors.

    An argument of the parameter's own type is shared by all points; leading shapes of the others are broadcast.

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
