"""Folds over windows of tensors: pooling. What the padding adds never counts as a largest or smallest element.

Sums are linear, with a transpose of the same kind. Extrema hand their derivative to the first element that has the
value, as pooling layers do everywhere (a fold along whole axes shares it among equals instead).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from livegrad.diagnostics import TypeRuleError
from livegrad.ir.dimension import size_product
from livegrad.ir.node import Node
from livegrad.ir.op import Op
from livegrad.ir.types import Tensor, Type, i64, shape_of
from livegrad.ops.comparison import less
from livegrad.ops.convolution import Padding, require_windows, spread_windows, window_count
from livegrad.ops.elementwise import maximum, select
from livegrad.ops.indexing import lookup
from livegrad.ops.movement import require_tensor, reshape
from livegrad.ops.rules import NUMBERS, REALS, zero, zero_tangent

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
        raise TypeRuleError(f"no fold `{kind}` over windows", expected="one of " + ", ".join(_KINDS))
    if tensor.element.kind not in _KINDS[kind]:
        raise TypeRuleError(f"no {kind} of {tensor.element}", expected=" or ".join(_KINDS[kind]))
    return Tensor(tensor.element, require_windows(tensor.shape, window, strides, padding, dilation))


def _neutral(kind: str, dtype: Any) -> Any:
    """What padding is filled with: nothing for a sum, and what any element exceeds."""
    if kind == "sum":
        return dtype.type(0)
    if dtype.kind == "f":
        return dtype.type(-np.inf if kind == "max" else np.inf)
    return np.iinfo(dtype).min if kind == "max" else np.iinfo(dtype).max


def _shifts(x: Any, axis: int, window: int, stride: int, dilation: int) -> list[Any]:
    """Views of an array along one axis: for each place in the window, the elements that stand there."""
    count = window_count(x.shape[axis], window, stride, dilation)
    before = (slice(None),) * axis
    return [
        x[(*before, slice(place * dilation, place * dilation + (count - 1) * stride + 1 if count else 0, stride))]
        for place in range(window)
    ]


_FOLDS: dict[str, Any] = {"sum": np.add, "max": np.maximum, "min": np.minimum}


def _evaluate_reduce_window(x: Any, *, kind: str, window: Any, strides: Any, padding: Any, dilation: Any) -> Any:
    """One axis after the other: a window of 3 by 3 takes 6 passes, not 9."""
    wide = np.dtype(np.float32) if x.dtype == np.float16 and kind == "sum" else x.dtype
    value = np.pad(x.astype(wide, copy=False), padding, constant_values=_neutral(kind, wide))
    for axis, (extent, stride, step) in enumerate(zip(window, strides, dilation, strict=True)):
        if extent == stride == 1:
            continue
        first, *others = _shifts(value, axis, extent, stride, step)
        folded = first.copy()
        for other in others:
            _FOLDS[kind](folded, other, out=folded)
        value = folded
    return value.astype(x.dtype, copy=False)


def _evaluate_arg_reduce_window(x: Any, *, kind: str, window: Any, strides: Any, padding: Any, dilation: Any) -> Any:
    """The last axis first, so that of equals the one of the lowest index stays."""
    value = np.pad(x, padding, constant_values=_neutral(kind, x.dtype))
    place = np.pad(np.arange(x.size, dtype=np.int64).reshape(x.shape), padding, constant_values=-1)
    for axis in reversed(range(x.ndim)):
        extent, stride, step = window[axis], strides[axis], dilation[axis]
        pairs = zip(*(_shifts(array, axis, extent, stride, step) for array in (value, place)), strict=True)
        best, at = (array.copy() for array in next(pairs))
        for other, its_place in pairs:
            beats = (other > best) if kind == "max" else (other < best)
            beats |= np.isnan(other) & ~np.isnan(best)
            # Padding gives way even to an element of its own value.
            beats = (beats | (at < 0)) & (its_place >= 0)
            np.copyto(best, other, where=beats)
            np.copyto(at, its_place, where=beats)
        value, place = best, at
    return place


def _reduce_window_jvp(y: Node, dx: Node | None) -> Node | None:
    if dx is None:
        return None
    attributes = dict(y.attributes)
    if attributes["kind"] == "sum":
        return reduce_window(dx, **attributes)
    place = arg_reduce_window(y.operands[0], **attributes)
    elements = reshape(dx, shape=(size_product(shape_of(dx.type)),))
    if not any(width != 0 for widths in attributes["padding"] for width in widths):
        return lookup(elements, place)
    # A window of nothing but padding has no element to take a tangent from.
    nothing = less(place, 0)
    if 0 in shape_of(dx.type):
        return zero(y.type)
    return select(nothing, zero(y.type), lookup(elements, maximum(place, 0)))


def _reduce_window_transpose(y: Node, ct: Node, linear: bool) -> tuple[Node | None, ...]:
    x = require_tensor(y.operands[0].type)
    if 0 in shape_of(ct.type):
        return (zero(x),)
    window, dilation = y.attribute("window"), y.attribute("dilation")
    spread = spread_windows(ct, x.shape, window, y.attribute("strides"), y.attribute("padding"), dilation)
    none, ones = ((0, 0),) * x.rank, (1,) * x.rank
    return (reduce_window(spread, kind="sum", window=window, strides=ones, padding=none, dilation=dilation),)


# Windows, strides, padding and dilation are given for each dimension, batch and channels included.
reduce_window = Op(
    "reduce_window",
    type_of=_reduce_window_type,
    evaluate=_evaluate_reduce_window,
    jvp=_reduce_window_jvp,
    transpose=_reduce_window_transpose,
    linear_in=(0,),
    cost=20.0,
)


def _arg_reduce_window_type(x: Type, *, kind: str, **attributes: Any) -> Type:
    if kind not in ("max", "min"):
        raise TypeRuleError(f"no element is the {kind} of a window", expected="max or min")
    type = require_tensor(_reduce_window_type(x, kind=kind, **attributes))
    return Tensor(i64, type.shape)


# Where the extremum of each window stands in the tensor, counted in row-major order; -1 if all of it is padding.
arg_reduce_window = Op(
    "arg_reduce_window",
    type_of=_arg_reduce_window_type,
    evaluate=_evaluate_arg_reduce_window,
    jvp=zero_tangent,
    differentiable=False,
    cost=30.0,
)
