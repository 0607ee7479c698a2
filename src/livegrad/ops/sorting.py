"""Sorting along an axis, binary search in sorted sequences, and gathers along one axis.

On the CPU, NumPy sorts. NaN counts as the largest number: last in ascending, first in descending order.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from livegrad.diagnostics import TypeRuleError, caller_origin
from livegrad.ir.dimension import Size
from livegrad.ir.node import Node
from livegrad.ir.op import Op
from livegrad.ir.types import Tensor, Type, i64, shape_of
from livegrad.ops.indexing import lookup
from livegrad.ops.movement import broadcast_to, index_along, require_tensor, slice_
from livegrad.ops.rules import REALS, filled, zero_tangent

_SORTABLE = ("bool", *REALS)
_SHORT = 256


def _require_axis(source: Type, axis: int) -> Tensor:
    tensor = require_tensor(source)
    if tensor.element.kind not in _SORTABLE:
        raise TypeRuleError(f"{tensor.element} has no order", expected=" or ".join(_SORTABLE))
    if not 0 <= axis < tensor.rank:
        raise TypeRuleError(f"no axis {axis} in {tensor}", expected=f"0 to {tensor.rank - 1}")
    return tensor


def _sort_type(source: Type, *, axis: int, descending: bool, stable: bool) -> Type:
    return _require_axis(source, axis)


def _argsort_type(source: Type, *, axis: int, descending: bool, stable: bool) -> Type:
    return Tensor(i64, _require_axis(source, axis).shape)


def _has_both_zeros(value: Any) -> bool:
    """Whether an array has zeros of both signs, the only equal elements that can be distinguished."""
    if value.dtype.kind != "f":
        return False
    negative = np.signbit(value[value == 0])
    return bool(np.any(negative)) and not np.all(negative)


def _evaluate_sort(value: Any, *, axis: int, descending: bool, stable: bool) -> Any:
    stable = stable and _has_both_zeros(value)  # NumPy's unstable sort is several times faster
    if not descending:
        return np.sort(value, axis=axis, stable=stable)
    # Flip before and after, so that equal elements keep their order.
    return np.flip(np.sort(np.flip(value, axis), axis=axis, stable=stable), axis)


def _argsort(value: Any, axis: int, stable: bool) -> Any:
    """Tries an unstable sort first: floats are rarely equal, and without ties every order is stable."""
    if not stable or value.dtype.kind != "f":
        return np.argsort(value, axis=axis, stable=stable)
    order = np.argsort(value, axis=axis)
    ranked = np.moveaxis(np.take_along_axis(value, order, axis), axis, 0)
    before, after = ranked[:-1], ranked[1:]
    ties = (before == after) | np.isnan(before)  # after a NaN come only NaN
    return np.argsort(value, axis=axis, stable=True) if np.any(ties) else order


def _evaluate_argsort(value: Any, *, axis: int, descending: bool, stable: bool) -> Any:
    if not descending:
        return _argsort(value, axis, stable)
    order = np.flip(_argsort(np.flip(value, axis), axis, stable), axis)
    return value.shape[axis] - 1 - order


def _sort_jvp(y: Node, dx: Node | None) -> Node | None:
    """The tangents in the order of the values. Ties follow the stable order."""
    if dx is None:
        return None
    axis = y.attribute("axis")
    order = argsort(y.operands[0], axis=axis, descending=y.attribute("descending"), stable=True)
    return take_along_axis(dx, order, axis)


sort = Op("sort", type_of=_sort_type, evaluate=_evaluate_sort, jvp=_sort_jvp, cost=50.0)
argsort = Op(
    "argsort",
    type_of=_argsort_type,
    evaluate=_evaluate_argsort,
    jvp=zero_tangent,
    differentiable=False,
    cost=50.0,
)


def _searchsorted_type(ordered: Type, values: Type, *, side: str) -> Type:
    first = _require_axis(ordered, 0)
    element = values.element if isinstance(values, Tensor) else values
    if first.rank != 1:
        raise TypeRuleError("the sorted operand must have one dimension", found=str(first))
    if first.element is not element:
        raise TypeRuleError("operands of different types", help="cast one of them: nothing is promoted silently")
    if side not in ("left", "right"):
        raise TypeRuleError(f"no side `{side}`", expected="left or right")
    return Tensor(i64, values.shape) if isinstance(values, Tensor) else i64


# The index at which to insert each value to keep the sequence sorted: before equal elements (left) or after (right).
searchsorted = Op(
    "searchsorted",
    type_of=_searchsorted_type,
    evaluate=lambda ordered, values, *, side: np.searchsorted(ordered, values, side),
    jvp=zero_tangent,
    differentiable=False,
    cost=20.0,
)


def take_along_axis(x: Node, indices: Node, axis: int) -> Node:
    """Gathers the elements of `x` at `indices` along one axis. The other dimensions broadcast. The derivative is a
    scatter-add.

    >>> from livegrad.ir.leaves import parameter
    >>> from livegrad.ir.types import f32
    >>> x, order = parameter(0, Tensor(f32, (4, 9))), parameter(1, Tensor(i64, (4, 2)))
    >>> take_along_axis(x, order, 1).type
    tensor<f32, [4, 2]>
    """
    sizes, index_sizes = shape_of(x.type), shape_of(indices.type)
    if len(sizes) != len(index_sizes) or not 0 <= axis < len(sizes):
        raise TypeRuleError(
            "`take_along_axis` takes a tensor and indices with the same number of dimensions",
            where=caller_origin(),
            found=f"{x.type} and {indices.type} along axis {axis}",
        )
    pairs = enumerate(zip(sizes, index_sizes, strict=True))
    shape = tuple(m if i == axis else _broadcast_size(n, m) for i, (n, m) in pairs)
    index_type = Tensor(i64, shape)
    positions = [
        broadcast_to(indices, shape)
        if i == axis
        # A dimension of 1 is read at index 0, so it needs no broadcast.
        else (filled(0, index_type) if size == 1 else index_along(shape, i))
        for i, size in enumerate(sizes)
    ]
    if not isinstance(indices.type, Tensor) or indices.type.element is not i64:
        raise TypeRuleError("indices must be a tensor of i64", where=caller_origin(), found=str(indices.type))
    return lookup(x, *positions)


def _broadcast_size(first: Size, second: Size) -> Size:
    if first != second and 1 not in (first, second):
        raise TypeRuleError(
            f"dimensions of {first} and {second} do not broadcast", where=caller_origin(), help="neither is 1"
        )
    return second if first == 1 else first


# --- partial sorts ---------------------------------------------------------------------------------------------------


def _top_positions_type(source: Type, *, axis: int, count: int, largest: bool) -> Type:
    tensor = _require_axis(source, axis)
    extent = tensor.shape[axis]
    if count < 0 or (isinstance(extent, int) and count > extent):
        raise TypeRuleError(f"cannot take {count} elements along axis {axis}", found=str(tensor))
    return Tensor(i64, tuple(count if i == axis else size for i, size in enumerate(tensor.shape)))


def _evaluate_top_positions(value: Any, *, axis: int, count: int, largest: bool) -> Any:
    """Partitions to find the last of the first `count` elements, selects by comparison with it, and sorts these."""
    rows = np.moveaxis(value, axis, -1)
    extent = rows.shape[-1]
    if 4 * count >= extent or count == 0:  # a full sort is as fast
        order = _evaluate_argsort(rows, axis=-1, descending=largest, stable=True)[..., :count]
        return np.moveaxis(order, -1, axis)
    rank = extent - count if largest else count - 1
    # Short rows sort faster than they partition.
    ranked = np.sort(rows, axis=-1) if extent <= _SHORT else np.partition(rows, rank, axis=-1)
    last = ranked[..., rank : rank + 1]
    selected = ~(rows < last) if largest else rows <= last
    if np.count_nonzero(selected) != count * (rows.size // extent):
        selected = _select_without_extra_ties(rows, last, count, largest)
    positions = np.flatnonzero(selected).reshape((*rows.shape[:-1], count)) % extent  # ascending
    order = _evaluate_argsort(np.take_along_axis(rows, positions, -1), axis=-1, descending=largest, stable=True)
    return np.moveaxis(np.take_along_axis(positions, order, -1), -1, axis)


def _select_without_extra_ties(rows: Any, last: Any, count: int, largest: bool) -> Any:
    """Selects the elements that precede `last`, and the first elements equal to it up to `count` in total.

    NaN is greater than every number.
    """
    better, equal = rows > last if largest else rows < last, rows == last
    if rows.dtype.kind == "f":
        is_nan, last_is_nan = np.isnan(rows), np.isnan(last)
        better |= (is_nan & ~last_is_nan) if largest else (~is_nan & last_is_nan)
        equal |= is_nan & last_is_nan
    room = count - np.count_nonzero(better, axis=-1, keepdims=True)
    return better | (equal & (np.cumsum(equal, axis=-1) <= room))


def _expand_top_positions(y: Node) -> Node:
    (x,), axis, rank = y.operands, y.attribute("axis"), len(shape_of(y.type))
    order = argsort(x, axis=axis, descending=y.attribute("largest"), stable=True)
    return slice_(order, start=(0,) * rank, size=shape_of(y.type), step=(1,) * rank)


# The positions of the first `count` elements in stable order, cheaper than a full sort.
top_positions = Op(
    "top_positions",
    type_of=_top_positions_type,
    evaluate=_evaluate_top_positions,
    expand=_expand_top_positions,
    jvp=zero_tangent,
    differentiable=False,
    cost=20.0,
)


def top_k(x: Node, k: int, axis: int, largest: bool = True) -> tuple[Node, Node]:
    """The k largest (or smallest) elements along an axis, in order, and their indices; the first ones on a tie.

    >>> from livegrad.ir.leaves import parameter
    >>> from livegrad.ir.types import f32
    >>> values, positions = top_k(parameter(0, Tensor(f32, (4, 9))), 3, axis=1)
    >>> values.type, positions.type
    (tensor<f32, [4, 3]>, tensor<i64, [4, 3]>)
    """
    first = top_positions(x, axis=axis, count=k, largest=largest)
    return take_along_axis(x, first, axis), first
