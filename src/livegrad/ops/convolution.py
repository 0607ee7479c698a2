"""Convolutions over any number of spatial dimensions, as matrix products over windows.

Images are [batch, channels, *space], kernels [outputs, channels / groups, *window]. The kernel is not flipped, as usual
in machine learning. The op is linear in both operands, and its transposes are convolutions again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from livegrad.diagnostics import TypeRuleError
from livegrad.ir.dimension import Dimension, Size, divide_exactly
from livegrad.ir.node import Node
from livegrad.ir.op import Op
from livegrad.ir.types import Tensor, Type, shape_of
from livegrad.ops.movement import flip, pad, permute, require_tensor, reshape, slice_
from livegrad.ops.rules import NUMBERS, add_tangents, zero

Padding = tuple[tuple[Size, Size], ...]
_CHUNK_BYTES = 1 << 25  # most memory for the windows of one chunk of the batch


def window_count(size: Size, window: Size, stride: int, dilation: int) -> Size:
    """The number of windows that fit into a padded extent."""
    room = size - (window - 1) * dilation - 1
    if isinstance(room, Dimension):
        steps = divide_exactly(room, stride)
        if steps is None:
            raise TypeRuleError(
                f"a stride of {stride} over an extent of {size} has no symbolic count of windows",
                help="pass the extent as a number, or as a multiple of the stride plus the size of a window",
            )
        return steps + 1
    return max(room // stride + 1, 0)


def require_windows(
    shape: tuple[Size, ...],
    window: tuple[Size, ...],
    strides: tuple[int, ...],
    padding: Padding,
    dilation: tuple[int, ...],
) -> tuple[Size, ...]:
    """The number of windows along each dimension. Raises if the windows are not valid."""
    if not len(shape) == len(window) == len(strides) == len(padding) == len(dilation):
        raise TypeRuleError(
            f"strides, padding and dilation need a value for each of {len(shape)} dimensions",
            found=f"strides {strides}, padding {padding}, dilation {dilation}, window {window}",
        )
    values = [*strides, *dilation, *(size for size in window if isinstance(size, int))]
    if any(value < 1 for value in values):
        raise TypeRuleError(
            "windows, strides and dilations must be at least 1", found=f"{window}, {strides}, {dilation}"
        )
    if any(isinstance(width, int) and width < 0 for widths in padding for width in widths):
        raise TypeRuleError("padding cannot be negative", found=str(padding), help="use slice to crop")
    return tuple(
        window_count(size + low + high, extent, stride, step)
        for size, extent, stride, (low, high), step in zip(shape, window, strides, padding, dilation, strict=True)
    )


def _convolve_type(
    x: Type, w: Type, *, strides: tuple[int, ...], padding: Padding, dilation: tuple[int, ...], groups: int
) -> Type:
    image, kernel = require_tensor(x), require_tensor(w)
    if image.element is not kernel.element or image.element.kind not in NUMBERS:
        raise TypeRuleError("a convolution takes operands of one type", help="cast one of them")
    if image.rank != kernel.rank or image.rank < 3:
        raise TypeRuleError(
            "a convolution takes [batch, channels, *space] and [outputs, channels / groups, *window]",
            found=f"{image} and {kernel}",
        )
    if groups < 1 or kernel.shape[1] * groups != image.shape[1]:
        raise TypeRuleError(f"{image.shape[1]} channels in {groups} groups do not fit kernels of {kernel.shape[1]}")
    if groups > 1 and divide_exactly(kernel.shape[0], groups) is None:
        raise TypeRuleError(f"{kernel.shape[0]} outputs cannot be shared by {groups} groups")
    space = require_windows(image.shape[2:], kernel.shape[2:], strides, padding, dilation)
    return Tensor(image.element, (image.shape[0], kernel.shape[0], *space))


def windows_of(x: Any, window: Any, strides: Any, dilation: Any) -> Any:
    """A view of the windows of an array's last dimensions: [..., *counts, *window]."""
    extents = [(n - 1) * d + 1 for n, d in zip(window, dilation, strict=True)]
    rank = len(window)
    axes = tuple(range(x.ndim - rank, x.ndim))
    view = np.lib.stride_tricks.sliding_window_view(x, extents, axes)
    steps = (*(slice(None, None, s) for s in strides), *(slice(None, None, d) for d in dilation))
    return view[(..., *steps)]


def _evaluate_convolve(x: Any, w: Any, *, strides: Any, padding: Any, dilation: Any, groups: int) -> Any:
    """im2col and a matrix product per group, chunk by chunk over the batch."""
    batch, outputs, window = x.shape[0], w.shape[0], w.shape[2:]
    padded = np.pad(x, ((0, 0), (0, 0), *padding))
    axes = zip(padded.shape[2:], window, strides, dilation, strict=True)
    counts: Any = tuple(window_count(*axis) for axis in axes)
    result = np.empty((batch, outputs, *counts), x.dtype)
    if 0 in result.shape or x.shape[1] == 0:
        return np.zeros_like(result)
    kernels = w.reshape(groups, outputs // groups, -1)
    depth, positions = kernels.shape[-1], int(np.prod(counts))
    chunk = max(1, _CHUNK_BYTES // max(1, groups * depth * positions * x.itemsize))
    rank = len(window)
    for start in range(0, batch, chunk):
        view = windows_of(padded[start : start + chunk], window, strides, dilation)
        # [batch, channels, *counts, *window] to [batch, groups, channels of a group and window, positions]
        order = (0, 1, *range(2 + rank, 2 + 2 * rank), *range(2, 2 + rank))
        columns = view.transpose(order).reshape(view.shape[0], groups, depth, positions)
        result[start : start + chunk] = np.matmul(kernels, columns).reshape(view.shape[0], outputs, *counts)
    return result


def _convolve_jvp(y: Node, dx: Node | None, dw: Node | None) -> Node | None:
    x, w = y.operands
    attributes = dict(y.attributes)
    return add_tangents(
        None if dx is None else convolve(dx, w, **attributes), None if dw is None else convolve(x, dw, **attributes)
    )


def _move_groups(x: Node, axis: int, groups: int, to: int) -> Node:
    """Moves the groups of one dimension to another, where they become the outermost part."""
    if groups == 1:
        return x
    shape = shape_of(x.type)
    inner = divide_exactly(shape[axis], groups)
    assert inner is not None
    split = reshape(x, shape=(*shape[:axis], groups, inner, *shape[axis + 1 :]))
    axes = [i for i in range(len(shape) + 1) if i != axis]
    target = axes.index(to if to < axis else to + 1)
    permuted = permute(split, axes=(*axes[:target], axis, *axes[target:]))
    sizes = shape_of(permuted.type)
    return reshape(permuted, shape=(*sizes[:target], sizes[target] * sizes[target + 1], *sizes[target + 2 :]))


def _swap_first(x: Node) -> Node:
    return permute(x, axes=(1, 0, *range(2, len(shape_of(x.type)))))


def spaced(x: Node, low: Sequence[Size], high: Sequence[Size], interior: Sequence[int]) -> Node:
    """Pads with zeros around and between the elements of each dimension. A negative width crops."""
    assert isinstance(x.type, Tensor)
    widths = [tuple(max(n, 0) if isinstance(n, int) else n for n in side) for side in (low, high)]
    if not any(interior) and all(isinstance(n, int) and n == 0 for n in (*low, *high)):
        return x
    padded = pad(x, zero(x.type.element), low=widths[0], high=widths[1], interior=tuple(interior))
    start, end = (tuple(-n if isinstance(n, int) and n < 0 else 0 for n in side) for side in (low, high))
    size = tuple(n - a - b for n, a, b in zip(shape_of(padded.type), start, end, strict=True))
    return slice_(padded, start=start, size=size, step=(1,) * x.type.rank)


def spread_windows(
    ct: Node,
    shape: tuple[Size, ...],
    window: tuple[Size, ...],
    strides: tuple[int, ...],
    padding: Padding,
    dilation: tuple[int, ...],
) -> Node:
    """Spreads one value per window with zeros, so that windows of stride 1 over it match the elements of `shape`."""
    low: list[Size] = []
    high: list[Size] = []
    for size, extent, count, stride, (before, _), step in zip(
        shape, window, shape_of(ct.type), strides, padding, dilation, strict=True
    ):
        low.append((extent - 1) * step - before)
        high.append(size + before - ((count - 1) * stride + 1))
    return spaced(ct, low, high, [stride - 1 for stride in strides])


def _image_cotangent(y: Node, ct: Node) -> Node:
    """The cotangent of the image: a transposed convolution, with the kernels flipped and channels swapped."""
    x, w = y.operands
    strides, dilation, groups = y.attribute("strides"), y.attribute("dilation"), y.attribute("groups")
    window = shape_of(w.type)[2:]
    if 0 in shape_of(ct.type):
        return zero(x.type)
    if any(stride > 1 for stride in strides) and all(isinstance(size, int) for size in shape_of(x.type)[2:] + window):
        return _image_cotangent_by_phase(y, ct)
    single = (1, 1)  # batch and channels have windows of size 1
    spread = spread_windows(
        ct,
        (*shape_of(ct.type)[:2], *shape_of(x.type)[2:]),
        single + window,
        single + strides,
        ((0, 0), (0, 0), *y.attribute("padding")),
        single + dilation,
    )
    flipped = flip(_swap_first(_move_groups(w, 0, groups, 1)), axes=tuple(range(2, 2 + len(window))))
    none = ((0, 0),) * len(window)
    return convolve(spread, flipped, strides=(1,) * len(window), padding=none, dilation=dilation, groups=groups)


def _image_cotangent_by_phase(y: Node, ct: Node) -> Node:
    """The cotangent of the image for strides above 1, as a sub-pixel (phase) convolution.

    Elements `stride` apart meet the same taps of the kernel. Each phase convolves the cotangents with every stride-th
    tap. The phases are additional outputs of one convolution, so they read the cotangents once. Inserting zeros between
    the cotangents instead would multiply the work by the stride.
    """
    x, w = y.operands
    strides, groups, rank = y.attribute("strides"), y.attribute("groups"), len(shape_of(x.type)) - 2
    space: Any = shape_of(x.type)[2:]
    low = tuple(before for before, _ in y.attribute("padding"))
    kernel = _taps_by_phase(w, strides, y.attribute("dilation"), groups)
    taps: Any = shape_of(kernel.type)[2:]
    steps = [-(-(size + before) // stride) for size, before, stride in zip(space, low, strides, strict=True)]
    high = [count - n for count, n in zip(steps, shape_of(ct.type)[2:], strict=True)]
    padded = spaced(ct, (0, 0, *(tap - 1 for tap in taps)), (0, 0, *high), (0,) * (rank + 2))
    ones, none = (1,) * rank, ((0, 0),) * rank
    phases = convolve(padded, kernel, strides=ones, padding=none, dilation=ones, groups=groups)
    # [batch, groups * phases * channels, *steps] to [batch, channels of all groups, *(steps, phases)]
    batch, channels = shape_of(x.type)[0], shape_of(w.type)[1]
    by_phase = reshape(phases, shape=(batch, groups, *strides, channels, *steps))
    pairs = [axis for dimension in range(rank) for axis in (3 + rank + dimension, 2 + dimension)]
    interleaved = permute(by_phase, axes=(0, 1, 2 + rank, *pairs))
    sizes = [count * stride for count, stride in zip(steps, strides, strict=True)]
    image = reshape(interleaved, shape=(batch, shape_of(x.type)[1], *sizes))
    return slice_(image, start=(0, 0, *low), size=shape_of(x.type), step=(1,) * (rank + 2))


def _taps_by_phase(w: Node, strides: tuple[int, ...], dilation: tuple[int, ...], groups: int) -> Node:
    """Flipped kernels [groups * phases * channels, outputs / groups, *taps], one per phase of each channel."""
    rank, (_, channels, *window) = len(strides), shape_of(w.type)
    spread: Any = [(extent - 1) * step + 1 for extent, step in zip(window, dilation, strict=True)]
    taps = [-(-extent // stride) for extent, stride in zip(spread, strides, strict=True)]
    padding = [tap * stride - extent for tap, stride, extent in zip(taps, strides, spread, strict=True)]
    dilated = spaced(w, (0,) * (rank + 2), (0, 0, *padding), (0, 0, *(step - 1 for step in dilation)))
    outputs = divide_exactly(shape_of(w.type)[0], groups)
    assert outputs is not None
    pairs = [size for pair in zip(taps, strides, strict=True) for size in pair]
    by_phase = reshape(dilated, shape=(groups, outputs, channels, *pairs))
    tap_axes, phase_axes = range(3, 3 + 2 * rank, 2), range(4, 4 + 2 * rank, 2)
    flipped = permute(flip(by_phase, axes=tuple(tap_axes)), axes=(0, *phase_axes, 2, 1, *tap_axes))
    phases = math.prod(strides)
    return reshape(flipped, shape=(groups * phases * channels, outputs, *taps))


def _kernel_cotangent(y: Node, ct: Node) -> Node:
    """The cotangent of the kernel: the image convolved with the cotangents, with batch and channels swapped, and
    strides and dilations swapped."""
    x, w = y.operands
    strides, dilation, groups = y.attribute("strides"), y.attribute("dilation"), y.attribute("groups")
    if 0 in shape_of(ct.type):
        return zero(w.type)
    # [batch, groups * channels] to [channels, groups * batch]; the cotangents to [outputs, batch]
    image = _swap_first(_move_groups(x, 1, groups, 0))
    swapped = convolve(
        image, _swap_first(ct), strides=dilation, padding=y.attribute("padding"), dilation=strides, groups=groups
    )
    gradient = _swap_first(swapped)
    # If the last window ends before the image does, the convolution has additional outputs.
    return slice_(
        gradient, start=(0,) * len(shape_of(w.type)), size=shape_of(w.type), step=(1,) * len(shape_of(w.type))
    )


convolve = Op(
    "convolve",
    type_of=_convolve_type,
    evaluate=_evaluate_convolve,
    jvp=_convolve_jvp,
    transpose=lambda y, ct, x, w: (_image_cotangent(y, ct) if x else None, _kernel_cotangent(y, ct) if w else None),
    linear_in=(0, 1),
    cost=100.0,
)
