"""Expands window ops into slices, selects and reductions, for the records of `windows.py`.

A *tap* is a position in the window. The elements at one tap of all windows are a strided view of the tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import reduce as folded
from itertools import product
from math import prod
from typing import Any, NamedTuple

import numpy as np

from livegrad.ir.dimension import Size
from livegrad.ir.leaves import constant
from livegrad.ir.node import Node
from livegrad.ir.types import Scalar, Tensor, i32, shape_of
from livegrad.ops.comparison import bit_not, equal, greater, greater_equal, is_nan, less
from livegrad.ops.convolution import spaced, spread_windows
from livegrad.ops.elementwise import maximum, minimum, select
from livegrad.ops.movement import broadcast, iota, pad, reshape, slice_
from livegrad.ops.reduction import reduce
from livegrad.ops.rules import filled, zero

_FOLDS: dict[str, Callable[[Node, Node], Node]] = {
    "sum": lambda a, b: a + b,
    "max": lambda a, b: maximum(a, b),
    "min": lambda a, b: minimum(a, b),
}
MAX_TAPS = 49  # windows with more taps are not unrolled
_SHORT_LINE = 4  # with fewer windows along an axis, reduce inside each window


class Windows(NamedTuple):
    """Windows over all dimensions of a tensor."""

    window: tuple[int, ...]
    strides: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    dilation: tuple[int, ...]

    @property
    def taps(self) -> Iterator[tuple[int, ...]]:
        """The multi-indices of all taps, in row-major order."""
        return product(*map(range, self.window))

    @property
    def side_by_side(self) -> bool:
        """Whether the windows tile the tensor: they touch and do not overlap."""
        axes = zip(self.window, self.strides, self.dilation, strict=True)
        return all(extent == stride and (step == 1 or extent == 1) for extent, stride, step in axes)

    @property
    def is_padded(self) -> bool:
        return any(width != 0 for widths in self.padding for width in widths)

    def first(self, tap: Sequence[int]) -> tuple[int, ...]:
        """The position of a tap in the first window."""
        return tuple(position * step for position, step in zip(tap, self.dilation, strict=True))


def windows_of_node(node: Node) -> Windows:
    return Windows(*(node.attribute(name) for name in Windows._fields))


def neutral(kind: str, dtype: Any) -> Any:
    """The neutral element of the reduction, the value of padding."""
    if kind == "sum":
        return dtype.type(0)
    if dtype.kind == "f":
        return dtype.type(-np.inf if kind == "max" else np.inf)
    return np.iinfo(dtype).min if kind == "max" else np.iinfo(dtype).max


def _pad_for_windows(x: Node, value: Any, windows: Windows) -> Node:
    if not windows.is_padded:
        return x
    low, high = (tuple(widths[side] for widths in windows.padding) for side in (0, 1))
    return pad(x, constant(value, _element(x)), low=low, high=high, interior=(0,) * len(low))


def _element(x: Node) -> Scalar:
    assert isinstance(x.type, Tensor)
    return x.type.element


def _at_tap(padded: Node, windows: Windows, tap: Sequence[int], counts: tuple[Size, ...]) -> Node:
    return slice_(padded, start=windows.first(tap), size=counts, step=windows.strides)


def has_few_taps(node: Node) -> bool:
    """Whether windows are unrolled: large ones only if they tile the tensor and no tap is selected."""
    windows = windows_of_node(node)
    is_tiling = node.op.name in ("reduce_window", "put_window") and windows.side_by_side
    return is_tiling or prod(windows.window) <= MAX_TAPS


# --- reductions ------------------------------------------------------------------------------------------------------


def fold_windows(y: Node) -> Node:
    """Reduces windows: over the views of all taps, or along the axes of large windows."""
    (x,), windows, kind = y.operands, windows_of_node(y), y.attribute("kind")
    counts = shape_of(y.type)
    if 0 in counts:
        return zero(y.type)
    padded = _pad_for_windows(x, neutral(kind, _element(x).dtype), windows)
    lasts = [count for count, extent in zip(counts, windows.window, strict=True) if extent > 1][-1:]
    few = any(isinstance(count, int) and count < _SHORT_LINE for count in lasts)
    if windows.side_by_side and (few or prod(windows.window) > MAX_TAPS):
        return _reduce_blocks(padded, kind, windows.window, counts)

    def fold(axis: int, tap: tuple[int, ...]) -> Node:
        """Reduces the taps along the dimensions up to `axis`, one dimension after the other."""
        if axis < 0:
            return _at_tap(padded, windows, tap, counts)
        return folded(_FOLDS[kind], [fold(axis - 1, (position, *tap)) for position in range(windows.window[axis])])

    return fold(len(counts) - 1, ())


def _reduce_blocks(padded: Node, kind: str, window: tuple[int, ...], counts: tuple[Size, ...]) -> Node:
    covered_shape = tuple(count * extent for count, extent in zip(counts, window, strict=True))
    covered = padded
    if shape_of(padded.type) != covered_shape:
        covered = slice_(padded, start=(0,) * len(window), size=covered_shape, step=(1,) * len(window))
    for axis in reversed(range(len(window))):
        if window[axis] > 1:
            shape = shape_of(covered.type)
            blocks = reshape(covered, shape=(*shape[:axis], counts[axis], window[axis], *shape[axis + 1 :]))
            covered = reduce(blocks, kind=kind, axes=(axis + 1,))
    return covered


def find_in_windows(y: Node) -> Node:
    """The index of the tap with the extremum; -1 if all are padding. NaN beats numbers, the first tap wins a tie."""
    (x,), windows, kind = y.operands, windows_of_node(y), y.attribute("kind")
    counts, is_float = shape_of(y.type), _element(x).kind == "float"
    if 0 in counts:
        return zero(y.type)
    padded = _pad_for_windows(x, neutral(kind, _element(x).dtype), windows)
    best = at = None
    for tap_index, tap in enumerate(windows.taps):
        value, here = _at_tap(padded, windows, tap, counts), filled(tap_index, y.type)
        inside = _is_inside(x, windows, tap, counts)
        if best is None or at is None:
            best, at = value, here if inside is None else select(inside, here, filled(-1, y.type))
            continue
        beats = (greater if kind == "max" else less)(value, best)
        if is_float:
            beats = beats | (is_nan(value) & bit_not(is_nan(best)))
        if windows.is_padded:
            beats = beats | less(at, 0)  # any element beats padding, even one with the padding's value
        if inside is not None:
            beats = beats & inside
        best, at = select(beats, value, best), select(beats, here, at)
    assert at is not None
    return at


def _is_inside(x: Node, windows: Windows, tap: Sequence[int], counts: tuple[Size, ...]) -> Node | None:
    """Where a tap reads an element rather than padding; None means everywhere."""
    sizes: Any = (shape_of(x.type), counts)
    axes = zip(windows.first(tap), windows.strides, windows.padding, *sizes, strict=True)
    conditions = []
    for axis, (first, stride, (low, _), size, count) in enumerate(axes):
        start = iota(shape=counts, axis=axis, type=i32) * stride
        if first - low < 0:
            conditions.append(greater_equal(start, low - first))
        if first + (count - 1) * stride - low >= size:
            conditions.append(less(start, size + low - first))
    return folded(lambda a, b: a & b, conditions) if conditions else None


# --- one element of each window --------------------------------------------------------------------------------------


def take_at_taps(y: Node) -> Node:
    """The element at each window's tap: a select among the views of all taps."""
    x, tap_indices = y.operands
    windows, counts = windows_of_node(y), shape_of(y.type)
    if 0 in counts:
        return zero(y.type)
    padded = _pad_for_windows(x, 0, windows)
    result = zero(y.type)
    for tap_index, tap in enumerate(windows.taps):
        result = select(equal(tap_indices, tap_index), _at_tap(padded, windows, tap, counts), result)
    return result


def scatter_to_taps(y: Node) -> Node:
    """Adds the value of each window at its tap: by a select if windows do not overlap, else by a sum over taps."""
    ct, tap_indices = y.operands
    windows, shape = windows_of_node(y), shape_of(y.type)
    if 0 in shape_of(ct.type):
        return zero(y.type)
    if windows.side_by_side:
        values = _repeat_over_windows(ct, windows)
        at_tap = equal(_repeat_over_windows(tap_indices, windows), _tap_indices(windows, shape_of(values.type)))
        return _join_blocks(select(at_tap, values, zero(values.type)), windows, shape)
    spread = spread_windows(ct, shape, *windows)
    spread_indices = spread_windows(tap_indices + 1, shape, *windows)  # 0 where there is no window
    total = None
    for tap_index, tap in enumerate(windows.taps):
        # An element at this tap of a window reads that window at the opposite tap.
        start = windows.first([extent - 1 - at for extent, at in zip(windows.window, tap, strict=True)])
        ones = (1,) * len(shape)
        value, here = (slice_(side, start=start, size=shape, step=ones) for side in (spread, spread_indices))
        share = select(equal(here, tap_index + 1), value, zero(y.type))
        total = share if total is None else total + share
    assert total is not None
    return total


def repeat_windows(ct: Node, windows: Windows, shape: tuple[Size, ...]) -> Node:
    """Broadcasts the values of windows that do not overlap over their elements; 0 outside all windows."""
    return _join_blocks(_repeat_over_windows(ct, windows), windows, shape)


def _block_shape(windows: Windows, counts: tuple[Size, ...]) -> tuple[Size, ...]:
    return tuple(size for pair in zip(counts, windows.window, strict=True) for size in pair)


def _tap_indices(windows: Windows, blocks: tuple[Size, ...]) -> Node:
    """The tap index of each element of all windows."""
    tap_index, weight = None, 1
    for axis in reversed(range(len(windows.window))):
        if windows.window[axis] > 1:
            along_axis = iota(shape=blocks, axis=2 * axis + 1, type=i32) * weight
            tap_index = along_axis if tap_index is None else tap_index + along_axis
            weight *= windows.window[axis]
    return filled(0, Tensor(i32, blocks)) if tap_index is None else tap_index


def _repeat_over_windows(value: Node, windows: Windows) -> Node:
    """Broadcasts [*counts] to [*(counts, window)]."""
    counts = shape_of(value.type)
    return broadcast(value, shape=_block_shape(windows, counts), axes=tuple(range(0, 2 * len(counts), 2)))


def _join_blocks(blocks: Node, windows: Windows, shape: tuple[Size, ...]) -> Node:
    """Joins [*(counts, window)] to the tensor that the windows cover."""
    sizes = shape_of(blocks.type)
    joined = tuple(a * b for a, b in zip(sizes[::2], sizes[1::2], strict=True))
    low = [-before for before, _ in windows.padding]
    high = [size + before - extent for size, (before, _), extent in zip(shape, windows.padding, joined, strict=True)]
    return spaced(reshape(blocks, shape=joined), low, high, (0,) * len(shape))
