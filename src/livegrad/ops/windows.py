"""Reductions over windows of tensors (pooling). Padding is never a maximum or minimum.

Sums are linear, and their transpose is a window op too. The derivative of an extremum goes to the first element with
that value, as usual in pooling layers; a reduction along whole axes shares it among ties instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from livegrad.diagnostics import TypeRuleError
from livegrad.ir.dimension import Size
from livegrad.ir.node import Node
from livegrad.ir.op import Op
from livegrad.ir.types import Tensor, Type, f16, f32, i32, scalar_of, shape_of
from livegrad.ops.conversion import cast
from livegrad.ops.convolution import Padding, require_windows, spread_windows, window_count
from livegrad.ops.movement import require_tensor
from livegrad.ops.rules import NUMBERS, REALS, zero, zero_tangent
from livegrad.ops.window_taps import (
    Windows,
    find_in_windows,
    fold_windows,
    neutral,
    repeat_windows,
    scatter_to_taps,
    take_at_taps,
    windows_of_node,
)

_KINDS = {"sum": NUMBERS, "max": REALS, "min": REALS}


def _reduce_window_type(
    x: Type,
    *,
    kind: str,
    window: tuple[int, ...],
    strides: tuple[int, ...],
    padding: Padding,
    dilation: tuple[int, ...],
) -> Type:
    tensor = require_tensor(x)
    if kind not in _KINDS:
        raise TypeRuleError(f"no reduction `{kind}` over windows", expected="one of " + ", ".join(_KINDS))
    if tensor.element.kind not in _KINDS[kind]:
        raise TypeRuleError(f"no {kind} of {tensor.element}", expected=" or ".join(_KINDS[kind]))
    return Tensor(tensor.element, require_windows(tensor.shape, window, strides, padding, dilation))


def _shifts(x: Any, axis: int, window: int, stride: int, dilation: int) -> list[Any]:
    """Views of an array along one axis: for each tap, its elements in all windows."""
    count = window_count(x.shape[axis], window, stride, dilation)
    before = (slice(None),) * axis
    return [
        x[(*before, slice(tap * dilation, tap * dilation + (count - 1) * stride + 1 if count else 0, stride))]
        for tap in range(window)
    ]


_FOLDS: dict[str, Any] = {"sum": np.add, "max": np.maximum, "min": np.minimum}


def _evaluate_reduce_window(x: Any, *, kind: str, window: Any, strides: Any, padding: Any, dilation: Any) -> Any:
    """Reduces axis by axis: a window of 3 by 3 takes 6 passes instead of 9."""
    wide = np.dtype(np.float32) if x.dtype == np.float16 and kind == "sum" else x.dtype
    value = np.pad(x.astype(wide, copy=False), padding, constant_values=neutral(kind, wide))
    for axis, (extent, stride, step) in enumerate(zip(window, strides, dilation, strict=True)):
        if extent == stride == 1:
            continue
        first, *others = _shifts(value, axis, extent, stride, step)
        total = first.copy()
        for other in others:
            _FOLDS[kind](total, other, out=total)
        value = total
    return value.astype(x.dtype, copy=False)


def _evaluate_arg_reduce_window(x: Any, *, kind: str, **attributes: Any) -> Any:
    """Compares tap by tap, so that the first one wins on a tie."""
    windows = Windows(**attributes)
    value = np.pad(x, windows.padding, constant_values=neutral(kind, x.dtype))
    is_element = np.pad(np.ones(x.shape, bool), windows.padding)
    best = at = None
    for tap_index, views in enumerate(zip(_views(value, windows), _views(is_element, windows), strict=True)):
        other, inside = views
        if best is None or at is None:
            best, at = other.copy(), np.where(inside, 0, -1).astype(np.int32)
            continue
        beats = (other > best) if kind == "max" else (other < best)
        beats |= np.isnan(other) & ~np.isnan(best)
        # Any element beats padding, even one with the padding's value.
        beats = (beats | (at < 0)) & inside
        np.copyto(best, other, where=beats)
        np.copyto(at, tap_index, where=beats)
    return at


def _views(padded: Any, windows: Windows) -> Iterator[Any]:
    """For each tap, its elements in all windows."""
    axes = zip(padded.shape, windows.window, windows.strides, windows.dilation, strict=True)
    counts: Any = [window_count(*axis) for axis in axes]
    for tap in windows.taps:
        ranges = zip(windows.first(tap), counts, windows.strides, strict=True)
        yield padded[tuple(slice(a, a + (n - 1) * s + 1 if n else a, s) for a, n, s in ranges)]


def _reduce_window_jvp(y: Node, dx: Node | None) -> Node | None:
    if dx is None:
        return None
    attributes = dict(y.attributes)
    if attributes.pop("kind") == "sum":
        return reduce_window(dx, **dict(y.attributes))
    return take_window(dx, arg_reduce_window(y.operands[0], **dict(y.attributes)), **attributes)


def _expand_reduce_window(y: Node) -> Node:
    if scalar_of(y.type) is f16 and y.attribute("kind") == "sum":
        return cast(reduce_window(cast(y.operands[0], type=f32), **dict(y.attributes)), type=f16)
    return fold_windows(y)


def _reduce_window_transpose(y: Node, ct: Node, linear: bool) -> tuple[Node | None, ...]:
    x = require_tensor(y.operands[0].type)
    if 0 in shape_of(ct.type):
        return (zero(x),)
    windows = windows_of_node(y)
    if windows.side_by_side:
        return (repeat_windows(ct, windows, x.shape),)
    window, dilation = y.attribute("window"), y.attribute("dilation")
    spread = spread_windows(ct, x.shape, window, y.attribute("strides"), y.attribute("padding"), dilation)
    none, ones = ((0, 0),) * x.rank, (1,) * x.rank
    return (reduce_window(spread, kind="sum", window=window, strides=ones, padding=none, dilation=dilation),)


# Windows, strides, padding and dilation have a value for each dimension, including batch and channels.
reduce_window = Op(
    "reduce_window",
    type_of=_reduce_window_type,
    evaluate=_evaluate_reduce_window,
    jvp=_reduce_window_jvp,
    transpose=_reduce_window_transpose,
    linear_in=(0,),
    expand=_expand_reduce_window,
    cost=20.0,
)


def _arg_reduce_window_type(x: Type, *, kind: str, **attributes: Any) -> Type:
    if kind not in ("max", "min"):
        raise TypeRuleError(f"no index of the {kind} of a window", expected="max or min")
    type = require_tensor(_reduce_window_type(x, kind=kind, **attributes))
    return Tensor(i32, type.shape)


# The row-major index of the tap with the extremum of each window; -1 if the window is all padding.
arg_reduce_window = Op(
    "arg_reduce_window",
    type_of=_arg_reduce_window_type,
    evaluate=_evaluate_arg_reduce_window,
    jvp=zero_tangent,
    differentiable=False,
    expand=find_in_windows,
    cost=30.0,
)


def _require_taps(tap_indices: Type, counts: tuple[Size, ...]) -> None:
    if tap_indices is not Tensor(i32, counts):
        raise TypeRuleError("each window needs a tap index", expected=str(Tensor(i32, counts)), found=str(tap_indices))


def _take_window_type(x: Type, tap_indices: Type, **attributes: Any) -> Type:
    type = require_tensor(_reduce_window_type(x, kind="sum", **attributes))
    _require_taps(tap_indices, type.shape)
    return type


def _evaluate_take_window(x: Any, tap_indices: Any, **attributes: Any) -> Any:
    windows = Windows(**attributes)
    result = np.zeros(tap_indices.shape, x.dtype)
    for tap, view in enumerate(_views(np.pad(x, windows.padding), windows)):
        np.copyto(result, view, where=tap_indices == tap)
    return result


# The element at one tap of each window; 0 for a tap on padding, and for the tap -1.
take_window = Op(
    "take_window",
    type_of=_take_window_type,
    evaluate=_evaluate_take_window,
    jvp=lambda y, dx, _: None if dx is None else take_window(dx, y.operands[1], **dict(y.attributes)),
    transpose=lambda y, ct, x, _: (
        put_window(ct, y.operands[1], shape=shape_of(y.operands[0].type), **dict(y.attributes)) if x else None,
        None,
    ),
    linear_in=(0,),
    expand=take_at_taps,
    cost=20.0,
)


def _put_window_type(values: Type, tap_indices: Type, *, shape: tuple[Size, ...], **attributes: Any) -> Type:
    tensor = require_tensor(values)
    result = Tensor(tensor.element, shape)
    window_values = require_tensor(_reduce_window_type(result, kind="sum", **attributes))
    if window_values is not tensor:
        raise TypeRuleError("each window needs a value", expected=str(window_values), found=str(values))
    _require_taps(tap_indices, tensor.shape)
    return result


def _evaluate_put_window(values: Any, tap_indices: Any, *, shape: Any, **attributes: Any) -> Any:
    windows = Windows(**attributes)
    wide = np.dtype(np.float32) if values.dtype == np.float16 else values.dtype
    sizes = [low + size + high for size, (low, high) in zip(shape, windows.padding, strict=True)]
    padded = np.zeros(sizes, wide)
    for tap, view in enumerate(_views(padded, windows)):
        view += np.where(tap_indices == tap, values, values.dtype.type(0))
    inner = tuple(slice(low, low + size) for size, (low, _) in zip(shape, windows.padding, strict=True))
    return padded[inner].astype(values.dtype)


def _put_window_transpose(y: Node, ct: Node, values: bool, _: bool) -> tuple[Node | None, ...]:
    attributes = {name: value for name, value in y.attributes if name != "shape"}
    return (take_window(ct, y.operands[1], **attributes) if values else None, None)


def _expand_put_window(y: Node) -> Node:
    values, tap_indices = y.operands
    if scalar_of(y.type) is f16:
        return cast(put_window(cast(values, type=f32), tap_indices, **dict(y.attributes)), type=f16)
    return scatter_to_taps(y)


# A tensor of `shape` with the value of each window added at its tap.
put_window = Op(
    "put_window",
    type_of=_put_window_type,
    evaluate=_evaluate_put_window,
    jvp=lambda y, dvalues, _: None if dvalues is None else put_window(dvalues, y.operands[1], **dict(y.attributes)),
    transpose=_put_window_transpose,
    linear_in=(0,),
    expand=_expand_put_window,
    cost=20.0,
)
