"""Intrinsics that create arrays: `arange`, `zeros`, `ones`, `empty`, `full` and `_like` forms, with static shapes.

Importing the module adds them to `SPECIAL_FORMS`.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from livegrad.frontend.function.compile_state import Context
from livegrad.frontend.function.compile_values import Value, as_scalar_type, cast_to, name_of, static
from livegrad.frontend.function.function_types import TensorType
from livegrad.frontend.function.intrinsics import SPECIAL_FORMS
from livegrad.ir import types as ir
from livegrad.ops.movement import broadcast_to, iota
from livegrad.ops.rules import filled, zero


def _arguments(context: Context, node: ast.Call, name: str, names: Sequence[str]) -> dict[str, Value]:
    """Evaluates the arguments of a call and returns them by parameter name."""
    arguments = dict(zip(names, map(context.evaluate, node.args), strict=False))
    for keyword in node.keywords:
        parameter = keyword.arg
        if parameter is None or parameter not in names or parameter in arguments:
            raise context.error("LG108", f"`{name}` takes {', '.join(names)}", node, found=f"`{parameter}`")
        arguments[parameter] = context.evaluate(keyword.value)
    if len(node.args) > len(names) or names[0] not in arguments:
        raise context.error("LG108", f"`{name}` takes {', '.join(names)}", node, found=f"{len(node.args)} arguments")
    return arguments


def _shape(context: Context, value: Value, at: ast.AST) -> tuple[int, ...]:
    parts = value.items if value.items is not None else (value,)
    sizes = [part.static for part in parts]
    if not all(isinstance(size, int) and not isinstance(size, bool) and size >= 0 for size in sizes):
        raise context.error(
            "LG107",
            "the shape of a new array must be known at compile time",
            at,
            help='use sizes of parameters: `n` of `a: lg.array[float, "n"]`, or `a.shape`',
        )
    return tuple(sizes)


def scalar_type(context: Context, value: Value | None, default: ir.Scalar, at: ast.AST) -> ir.Scalar:
    """The element type that a `dtype` argument names."""
    dtype: Any = None if value is None else value.static
    if dtype is None:
        return default
    if isinstance(dtype, ir.Scalar):
        return dtype
    try:
        return ir.scalar_of_dtype(np.dtype(dtype))
    except (TypeError, KeyError, ValueError):
        raise context.error("LG202", "not a numeric type", at, found=repr(dtype)) from None


def _make_filled(context: Context, shape: tuple[int, ...], element: ir.Scalar, fill: Any, at: ast.AST) -> Value:
    type = ir.Tensor(element, shape)
    is_integer = element.kind in ("bool", "signed", "unsigned")
    node = zero(type) if not fill else filled(True if element is ir.bool_ else 1 if is_integer else 1.0, type)
    return context.result(TensorType(element, shape), node, [], at)


def _register_filled(name: str, fill: int) -> None:
    def make(context: Context, node: ast.Call) -> Value:
        arguments = _arguments(context, node, name, ("shape", "dtype"))
        element = scalar_type(context, arguments.get("dtype"), ir.f64, node)
        return _make_filled(context, _shape(context, arguments["shape"], node), element, fill, node)

    def make_like(context: Context, node: ast.Call) -> Value:
        arguments = _arguments(context, node, f"{name}_like", ("a", "dtype"))
        like = _require_array(context, arguments["a"], node)
        return _make_filled(
            context, like.shape, scalar_type(context, arguments.get("dtype"), like.element, node), fill, node
        )

    SPECIAL_FORMS[name], SPECIAL_FORMS[f"{name}_like"] = make, make_like


def _require_array(context: Context, value: Value, at: ast.AST) -> TensorType:
    if not isinstance(value.type, TensorType):
        raise context.error("LG202", "expected an array", at, found=name_of(value))
    return value.type


for _name, _fill in (("zeros", 0), ("empty", 0), ("ones", 1)):
    _register_filled(_name, _fill)


def _full(context: Context, node: ast.Call, like: bool) -> Value:
    first = "a" if like else "shape"
    arguments = _arguments(context, node, "full_like" if like else "full", (first, "fill_value", "dtype"))
    number = arguments.get("fill_value")
    if number is None or not isinstance(number.type, ir.Scalar):
        raise context.error("LG202", "an array can only be filled with a number", node)
    like_type = _require_array(context, arguments["a"], node) if like else None
    shape = like_type.shape if like_type is not None else _shape(context, arguments[first], node)
    element = scalar_type(
        context, arguments.get("dtype"), like_type.element if like_type is not None else number.type, node
    )
    filling = broadcast_to(as_scalar_type(number, element, context.span(node)), shape)
    return context.result(TensorType(element, shape), filling, [number], node)


SPECIAL_FORMS["full"] = lambda context, node: _full(context, node, like=False)
SPECIAL_FORMS["full_like"] = lambda context, node: _full(context, node, like=True)


def _arange(context: Context, node: ast.Call) -> Value:
    """`arange(stop)` or `arange(start, stop, step)`. The numbers are `start + index * step`, as in NumPy."""
    arguments = _arguments(context, node, "arange", ("start", "stop", "step", "dtype"))
    if "stop" not in arguments:
        arguments |= {"start": static(0), "stop": arguments["start"]}
    bounds: list[Any] = [arguments.get(name, static(1)).static for name in ("start", "stop", "step")]
    if not all(isinstance(bound, int | float) and not isinstance(bound, bool) for bound in bounds) or bounds[2] == 0:
        raise context.error(
            "LG107",
            "the range of a new array must be known at compile time",
            node,
            help='use sizes of parameters: `n` of `a: lg.array[float, "n"]`; the step cannot be 0',
        )
    start, stop, step = bounds
    integers = all(isinstance(bound, int) for bound in bounds)
    count = max(0, -((start - stop) // step) if integers else math.ceil((stop - start) / step))
    number = ir.i64 if integers else ir.f64
    type = ir.Tensor(number, (count,))
    positions = cast_to(iota(shape=(count,), axis=0, type=ir.i64), number)
    numbers = positions if step == 1 else positions * filled(step if integers else float(step), type)
    numbers = numbers if start == 0 else numbers + filled(start if integers else float(start), type)
    element = scalar_type(context, arguments.get("dtype"), number, node)
    return context.result(TensorType(element, (count,)), cast_to(numbers, element), [], node)


SPECIAL_FORMS["arange"] = _arange
