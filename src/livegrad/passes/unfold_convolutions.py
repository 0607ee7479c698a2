"""The `unfold_convolutions` pass: integer convolutions become matrix products with a column for each window (im2col).

For the CPU. Convolution kernels take floats, and NumPy multiplies integers element by element. Integer products become
reductions, which use lanes and all threads (`lower_matmuls.py`).
"""

from __future__ import annotations

from itertools import product
from math import prod

from livegrad.ir.function import map_results
from livegrad.ir.node import Function, Node
from livegrad.ir.propagate_lines import propagates_lines
from livegrad.ir.types import Tensor
from livegrad.ir.walk import ops_in
from livegrad.ops.convolution import convolve
from livegrad.ops.linalg import matmul
from livegrad.ops.movement import concatenate, pad, reshape, sizes, slice_
from livegrad.ops.rules import zero

_MAX_TAPS = 49  # of a window: the columns take that many times the memory of the image


def unfold_convolutions(function: Function) -> Function:
    """Replaces integer convolutions by matrix products."""
    return _rewrite(function) if convolve in ops_in(function) else function


@propagates_lines
def _rewrite(function: Function) -> Function:
    return map_results(function, _unfold)


def _unfold(node: Node) -> Node | None:
    if node.op is not convolve or not isinstance(node.type, Tensor):
        return None
    image, kernels = node.operands
    outputs, channels, *window = sizes(kernels)
    if node.type.element.kind not in ("signed", "unsigned") or prod(window) > _MAX_TAPS:
        return None
    if 0 in (*sizes(node), *sizes(image), *sizes(kernels)):
        return None
    groups, (batch, _, *counts) = node.attribute("groups"), sizes(node)
    taps = [reshape(tap, shape=(batch, groups, channels, 1, prod(counts))) for tap in _slice_taps(node, window)]
    inner = channels * len(taps)
    columns = taps[0] if len(taps) == 1 else concatenate(*taps, axis=3)
    left = reshape(kernels, shape=(groups, outputs // groups, inner))
    result = matmul(left, reshape(columns, shape=(batch, groups, inner, prod(counts))))
    return reshape(result, shape=sizes(node))


def _slice_taps(node: Node, window: list[int]) -> list[Node]:
    """For each element of a window, in order, the elements of the padded image that it is multiplied by."""
    image, (batch, _, *counts) = node.operands[0], sizes(node)
    low, high = ((0, 0, *(widths[side] for widths in node.attribute("padding"))) for side in (0, 1))
    if any((*low, *high)):
        image = pad(image, zero(node.type.element), low=low, high=high, interior=(0,) * len(low))  # type: ignore[attr-defined]
    size, step = (batch, sizes(image)[1], *counts), (1, 1, *node.attribute("strides"))
    starts = [
        (0, 0, *(index * gap for index, gap in zip(tap, node.attribute("dilation"), strict=True)))
        for tap in product(*map(range, window))
    ]
    return [slice_(image, start=start, size=size, step=step) for start in starts]
