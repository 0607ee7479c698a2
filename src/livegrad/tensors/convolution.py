"""Convolution and pooling for `lg.nn`, in any number of spatial dimensions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from livegrad.diagnostics import UsageError, caller_origin
from livegrad.ir.dimension import Size
from livegrad.ir.node import Node
from livegrad.ir.types import Tensor as TensorType
from livegrad.ops.convolution import convolve
from livegrad.ops.movement import broadcast_to
from livegrad.ops.rules import filled
from livegrad.ops.windows import reduce_window
from livegrad.tensors.errors import ShapeError
from livegrad.tensors.handle import Tensor, node_of, wrap
from livegrad.tensors.operands import element_of, float_node, require_integer, require_kinds
from livegrad.tensors.products import promote_numeric_operands, shape_of_node

Padding = str | int | Sequence[int | tuple[int, int]]


def conv(
    x: Any,
    kernel: Any,
    /,
    *,
    strides: int | Sequence[int] = 1,
    padding: Padding = "valid",
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> Tensor:
    """The convolution of images [batch, channels, *space] with kernels [outputs, channels / groups, *window].

    As usual in machine learning, the kernel is not flipped. There may be any number of spatial dimensions. `padding` is
    "valid" (none), "same" (one result for every `strides` positions), a width, or a pair of widths for each dimension.

    >>> import livegrad as lg
    >>> lg.nn.conv(lg.ones((1, 3, 8, 8)), lg.ones((16, 3, 3, 3)), padding="same", strides=2).shape
    (1, 16, 4, 4)
    """
    image, weights = promote_numeric_operands("conv", x, kernel)
    shape, kernel_shape = shape_of_node(image), shape_of_node(weights)
    if len(shape) < 3 or len(kernel_shape) != len(shape):
        raise ShapeError(
            "`conv` takes images [batch, channels, *space] and kernels [outputs, channels / groups, *window]",
            where=caller_origin(),
            found=f"shapes {shape} and {kernel_shape}",
        )
    rank = len(shape) - 2
    steps, dilations = (
        _per_dimension(strides, rank, "strides", "conv"),
        _per_dimension(dilation, rank, "dilation", "conv"),
    )
    padding_widths = _padding(padding, shape[2:], kernel_shape[2:], steps, dilations, "conv")
    group_count = require_integer(groups, "conv", "groups", minimum=1)
    return wrap(convolve(image, weights, strides=steps, padding=padding_widths, dilation=dilations, groups=group_count))


def max_pool(
    x: Any, window: int | Sequence[int], /, *, strides: int | Sequence[int] | None = None, padding: Padding = "valid"
) -> Tensor:
    """The maximum of each window of images [batch, channels, *space]. By default windows do not overlap; see `strides`.

    >>> import livegrad as lg
    >>> lg.nn.max_pool(lg.reshape(lg.asarray([1.0, 5.0, 2.0, 3.0]), (1, 1, 4)), 2)
    Tensor([[[5., 3.]]], dtype=float32)
    """
    node = require_kinds(node_of(x, "max_pool"), "max_pool", "signed", "unsigned", "float")
    return wrap(_pool(node, "max", window, strides, padding, "max_pool"))


def average_pool(
    x: Any,
    window: int | Sequence[int],
    /,
    *,
    strides: int | Sequence[int] | None = None,
    padding: Padding = "valid",
    count_padding: bool = False,
) -> Tensor:
    """The mean of each window of images [batch, channels, *space]. Padding is excluded by default.

    >>> import livegrad as lg
    >>> lg.nn.average_pool(lg.reshape(lg.asarray([1.0, 5.0, 2.0, 4.0]), (1, 1, 4)), 2)
    Tensor([[[3., 3.]]], dtype=float32)
    """
    node = float_node(x, "average_pool")
    total = _pool(node, "sum", window, strides, padding, "average_pool")
    if count_padding or padding == "valid":
        sizes = _per_dimension(window, len(shape_of_node(node)) - 2, "window", "average_pool")
        return wrap(total / filled(float(math.prod(sizes)), total.type))
    ones = filled(1.0, TensorType(element_of(node), (1, 1, *shape_of_node(node)[2:])))
    count = _pool(ones, "sum", window, strides, padding, "average_pool")
    return wrap(total / broadcast_to(count, shape_of_node(total)))


def _pool(node: Node, kind: str, window: Any, strides: Any, padding: Padding, user: str) -> Node:
    shape = shape_of_node(node)
    rank = len(shape) - 2
    if rank < 1:
        raise ShapeError(
            f"`{user}` takes images [batch, channels, *space]", where=caller_origin(), found=f"shape {shape}"
        )
    sizes = _per_dimension(window, rank, "window", user)
    steps = sizes if strides is None else _per_dimension(strides, rank, "strides", user)
    ones = (1,) * rank
    padding_widths = _padding(padding, shape[2:], sizes, steps, ones, user)
    return reduce_window(
        node,
        kind=kind,
        window=(1, 1, *sizes),
        strides=(1, 1, *steps),
        padding=((0, 0), (0, 0), *padding_widths),
        dilation=(1, 1, *ones),
    )


def _per_dimension(value: Any, rank: int, role: str, user: str) -> tuple[int, ...]:
    """Returns one number per spatial dimension, from one number or a sequence."""
    numbers = (value,) * rank if isinstance(value, int) else tuple(value)
    if len(numbers) != rank or any(isinstance(n, bool) or not isinstance(n, int) or n < 1 for n in numbers):
        raise UsageError(
            f"`{user}` takes one number for {role}, or one for each of {rank} dimensions",
            where=caller_origin(),
            found=repr(value),
        )
    return numbers


def _padding(
    padding: Any,
    space: tuple[Size, ...],
    window: tuple[Size, ...],
    strides: tuple[int, ...],
    dilation: tuple[int, ...],
    user: str,
) -> tuple[tuple[int, int], ...]:
    """Returns the padding widths before and after each spatial dimension."""
    rank = len(space)
    if padding == "valid":
        return ((0, 0),) * rank
    if padding == "same":
        return tuple(_same_padding(*each, user) for each in zip(space, window, strides, dilation, strict=True))
    widths = (padding,) * rank if isinstance(padding, int) else padding
    if isinstance(widths, list | tuple) and len(widths) == rank:
        pairs = tuple((each, each) if isinstance(each, int) else tuple(each) for each in widths)
        if all(len(pair) == 2 and all(isinstance(n, int) and n >= 0 for n in pair) for pair in pairs):
            return pairs  # type: ignore[return-value]
    raise UsageError(
        f"`{user}`: invalid padding",
        where=caller_origin(),
        expected=f"'valid', 'same', a width, or a width or pair of widths for each of {rank} dimensions",
        found=repr(padding),
    )


def _same_padding(size: Size, window: Size, stride: int, dilation: int, user: str) -> tuple[int, int]:
    """Returns the padding that gives one result per `stride` elements; an odd total adds one more at the end."""
    if not isinstance(window, int) or not (isinstance(size, int) or stride == 1):
        raise UsageError(
            f"`{user}` does not support padding='same' for symbolic sizes", where=caller_origin(), found=f"{size}"
        )
    extent = (window - 1) * dilation + 1
    total = extent - 1 if not isinstance(size, int) else max(0, (-(-size // stride) - 1) * stride + extent - size)
    return total // 2, total - total // 2
