"""Parses index expressions `x[key]` into one entry per axis: spans, windows, index tensors and masks.

Used by `tensors.indexing`. `execute_mask` computes a mask, because the shape of the result depends on its data.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from livegrad.diagnostics import caller_origin
from livegrad.ir.dimension import Dimension, Size
from livegrad.ir.node import Node
from livegrad.ir.symbolic_size import as_integer, symbolic_within
from livegrad.ir.types import Scalar, i32, i64, shape_of
from livegrad.ir.types import Tensor as TensorType
from livegrad.lazy.eviction import count_shape_from_data
from livegrad.ops.comparison import less
from livegrad.ops.conversion import cast
from livegrad.ops.elementwise import minimum, select
from livegrad.ops.movement import broadcast_to, iota, require_tensor
from livegrad.ops.reduction import reduce
from livegrad.ops.rules import filled
from livegrad.tensors.array_handles import wrap_array
from livegrad.tensors.computed_slices import Window, window_of
from livegrad.tensors.creation import holds_tensors
from livegrad.tensors.errors import DtypeError, IndexRangeError
from livegrad.tensors.handle import Tensor, node_of
from livegrad.tensors.methods import namespace

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Span:
    """Evenly spaced positions along an axis: a slice, or an integer, which does not keep the axis."""

    start: Size
    count: Size
    step: int
    keeps_axis: bool = True

    def is_whole(self, size: Size) -> bool:
        return self.keeps_axis and self.start == 0 and self.step == 1 and self.count == size


@dataclass(frozen=True)
class Positions:
    """Positions along an axis from a tensor of integers. The op that uses them checks the range if it is not known."""

    node: Node


@dataclass(frozen=True)
class Mask:
    """A boolean index over the axes of `shape`, not executed yet."""

    value: Any
    shape: tuple[Size, ...]


@dataclass(frozen=True)
class Gap:
    """A `...` that stands for no axis, but still separates the index tensors before and after it."""


NEW_AXIS = Span(0, 1, 1)  # an axis of size one
Item = Span | Window | Positions | Mask | Gap
Entry = tuple[Item, Size | None]  # with the size of the axis; None for new axes, and for masks, which have a shape


def parse_key(key: Any, shape: tuple[Size, ...]) -> list[Entry]:
    """Parses a key into entries, one for each axis of the tensor and each new axis; a mask covers several axes."""
    items = [_classify_item(item) for item in (key if isinstance(key, tuple) else (key,))]
    axis_count = sum(_axes_used(item) for item in items)
    dots = [dots_at for dots_at, item in enumerate(items) if item is Ellipsis]
    if len(dots) > 1:
        raise IndexRangeError("an index can have only one `...`", where=caller_origin())
    if axis_count > len(shape):
        raise IndexRangeError(
            "too many indices", where=caller_origin(), expected=f"{len(shape)} for shape {shape}", found=str(axis_count)
        )
    dots_at = dots[0] if dots else len(items)
    has_index_arrays = any(isinstance(item, Mask | Node | np.ndarray) for item in items)
    filler: list[Any] = [slice(None)] * (len(shape) - axis_count)
    items[dots_at : dots_at + 1] = filler or ([Gap()] if dots and has_index_arrays else [])
    entries: list[Entry] = []
    axis = 0
    for item in items:
        if item is None:
            entries.append((NEW_AXIS, None))
        elif isinstance(item, Gap):
            entries.append((item, None))
        elif isinstance(item, Mask):
            entries.append((_check_mask_shape(item, shape[axis : axis + len(item.shape)]), None))
            axis += len(item.shape)
        else:
            entries.append((_parse_item(item, shape[axis], axis), shape[axis]))
            axis += 1
    return entries


def _classify_item(item: Any) -> Any:
    """Normalises an item of a key to None, Ellipsis, a slice, an int, an array or node of integers, or a mask."""
    if item is None or item is Ellipsis or item.__class__ in (slice, int):
        return item
    if isinstance(item, bool | np.bool):
        return Mask(np.asarray(item), ())
    if isinstance(item, Tensor):
        kind = item.dtype.kind
        if kind == "bool":
            return Mask(item, item.shape)
        if kind not in ("signed", "unsigned"):
            raise _not_an_index(str(item.dtype))
        return item.node
    if holds_tensors(item):
        return _classify_item(namespace().asarray(item))
    if isinstance(item, np.ndarray | list | tuple):
        array = np.asarray(item) if np.size(item) else np.asarray(item, getattr(item, "dtype", np.int64))
        if array.dtype == np.bool:
            return Mask(array, array.shape)
        if array.dtype.kind not in "iu":
            raise _not_an_index(str(array.dtype))
        return array
    try:
        return as_integer(item)
    except TypeError:
        raise _not_an_index(type(item).__name__) from None


def _not_an_index(description: str) -> DtypeError:
    return DtypeError(
        "this cannot be an index",
        where=caller_origin(),
        expected="integers, slices, None, `...`, or tensors of integers or booleans",
        found=description,
    )


def _axes_used(item: Any) -> int:
    if item is None or item is Ellipsis:
        return 0
    return len(item.shape) if isinstance(item, Mask) else 1


# --- one axis --------------------------------------------------------------------------------------------------------


def _parse_item(item: Any, size: Size, axis: int) -> Span | Window | Positions:
    if isinstance(item, slice):
        window = window_of(item, size, axis)
        return _slice_along(item, size) if window is None else _wrap_window_start(window, size)
    if isinstance(item, int):
        return _integer_along(item, size, axis)
    if isinstance(item, Node):
        return Positions(wrap_negative_indices(item, size))
    if isinstance(size, Dimension):
        return Positions(wrap_negative_indices(wrap_array(item.astype(np.int64)).node, size))
    wrong = (item < -size) | (item >= size)
    if wrong.any():
        raise _out_of_range(int(item[wrong].reshape(-1)[0]), size, axis)
    return Positions(wrap_array(np.where(item < 0, item + size, item).astype(np.int64)).node)


def _wrap_window_start(window: Window, size: Size) -> Window:
    """Returns a window whose negative start counts from the end, like computed indices."""
    start = wrap_negative_indices(window.start, size)
    return replace(window, start=start if element_type(start) is i64 else cast(start, type=i64))


def _integer_along(index: int, size: Size, axis: int) -> Span:
    if isinstance(size, int) and not -size <= index < size:
        raise _out_of_range(index, size, axis)
    return Span(index if index >= 0 else size + index, 1, 1, keeps_axis=False)


def _out_of_range(index: int, size: Size, axis: int) -> IndexRangeError:
    return IndexRangeError(f"index {index} is out of range for axis {axis} of size {size}", where=caller_origin())


def _slice_along(item: slice, size: Size) -> Span:
    try:
        if isinstance(size, int):
            if symbolic_within((item.start, item.stop, size)) is not None:
                return _span(item, size)
            start, stop, step = item.indices(size)
            return Span(start, len(range(start, stop, step)), step)
        return _symbolic_slice(item, size)
    except (TypeError, ValueError) as error:
        raise IndexRangeError(f"{item} cannot be an index: {error}", where=caller_origin()) from None


def _span(item: slice, size: int) -> Span:
    """Computes `slice.indices` with Python comparisons, because symbolic sizes record the comparisons as guards."""
    step = 1 if item.step is None else operator.index(item.step)
    if step == 0:
        raise ValueError("slice step cannot be zero")
    first, last = (0, size) if step > 0 else (-1, size - 1)

    def bounded(bound: int) -> int:
        if bound < 0:
            return max(bound + size, first)
        return min(bound, last)

    start = (first if step > 0 else last) if item.start is None else bounded(item.start)
    stop = (last if step > 0 else first) if item.stop is None else bounded(item.stop)
    count = -((start - stop) // step) if step > 0 else -((stop - start) // -step)
    return Span(start, max(0, count), step)


def _symbolic_slice(item: slice, size: Dimension) -> Span:
    """Returns the span of a slice along an axis of symbolic size; its bounds are checked when the size is known."""
    if item.step not in (None, 1, -1):
        raise ValueError("a slice of an axis of symbolic size needs a step of 1 or -1")
    if item.step == -1:
        if item.start is not None or item.stop is not None:
            raise ValueError("an axis of symbolic size can only be reversed as a whole")
        return Span(size - 1, size, -1)
    start, stop = (
        default if bound is None else _normalise_bound(operator.index(bound), size)
        for bound, default in ((item.start, 0), (item.stop, size))
    )
    return Span(start, stop - start, 1)


def _normalise_bound(bound: int, size: Size) -> Size:
    return bound if bound >= 0 else size + bound


def wrap_negative_indices(index: Node, size: Size) -> Node:
    """Converts indices to i64 or i32 and wraps negative ones; the op that uses them checks the range."""
    element = require_tensor(index.type).element
    if element.kind == "unsigned":
        if element.bits == 64:
            index = minimum(index, filled((1 << 63) - 1, index.type))  # larger indices stay out of range
        return cast(index, type=i64)
    counts_up = index.op is iota
    if element is not i64 and not (element is i32 and isinstance(size, int) and size < 1 << 31):
        index = cast(index, type=i64)
    return index if counts_up else select(less(index, 0), index + size_node(size, index.type), index)


def size_node(size: Size, like: Any) -> Node:
    """Broadcasts a size to an i64 tensor; a symbolic size is counted at run time."""
    if isinstance(size, int):
        return filled(size, like)
    return broadcast_to(reduce(filled(1, TensorType(i64, (size,))), kind="sum", axes=(0,)), shape_of(like))


# --- masks -----------------------------------------------------------------------------------------------------------


def _check_mask_shape(mask: Mask, sizes: tuple[Size, ...]) -> Mask:
    for mask_size, size in zip(mask.shape, sizes, strict=True):
        if mask_size not in (size, 0):
            raise IndexRangeError(
                f"a mask has the wrong shape {mask.shape}", where=caller_origin(), expected=f"shape {sizes}"
            )
    return mask


def execute_mask(mask: Mask) -> list[Node]:
    """Executes a mask and returns the indices of its true elements, one node for each of its axes."""
    value: Array = mask.value.numpy() if isinstance(mask.value, Tensor) else mask.value
    count_shape_from_data()
    return [wrap_array(np.ascontiguousarray(index, np.int64)).node for index in np.nonzero(value)]


def execute_scalar_mask(mask: Mask) -> bool:
    """Executes a zero-dimensional mask, which decides whether the new axis has one element or none."""
    value = bool(mask.value)
    count_shape_from_data()
    return value


def mask_node(mask: Mask) -> Node:
    """Returns a mask as a node, without executing it."""
    return node_of(mask.value, "index")


def element_type(node: Node) -> Scalar:
    """Returns the element type of a tensor's node."""
    return require_tensor(node.type).element
