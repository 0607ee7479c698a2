"""The `lower_windows` pass: window reductions become reductions of strided views, and convolutions get padded images.

Ops that NumPy computes as a whole (complex numbers, integer convolutions, large overlapping windows) stay.
"""

from __future__ import annotations

from livegrad.ir.function import map_results
from livegrad.ir.node import Function, Node
from livegrad.ir.propagate_lines import propagates_lines
from livegrad.ir.types import Tensor, f16, f32
from livegrad.ir.walk import nodes_of
from livegrad.ops.conversion import cast
from livegrad.ops.convolution import convolve
from livegrad.ops.movement import pad, permute
from livegrad.ops.rules import zero
from livegrad.ops.window_taps import has_few_taps
from livegrad.ops.windows import arg_reduce_window, put_window, reduce_window, take_window
from livegrad.passes.expand import expand_ops

WINDOW_REDUCTIONS = (reduce_window, arg_reduce_window, take_window, put_window)


def lower_windows(function: Function) -> Function:
    """Expands window reductions into reductions of views, and makes the padding of convolutions explicit."""
    ops = {node.op for node in nodes_of(function)}
    if not ops.isdisjoint(WINDOW_REDUCTIONS):
        function = expand_ops(function, _is_lowered)
    return _pad_images(function) if convolve in ops else function


def _is_lowered(node: Node) -> bool:
    if node.op not in WINDOW_REDUCTIONS:
        return False
    assert isinstance(node.type, Tensor)
    return node.type.element.kind != "complex" and has_few_taps(node)


@propagates_lines
def _pad_images(function: Function) -> Function:
    return map_results(function, _pad_image)


def _pad_image(node: Node) -> Node | None:
    """Pads the image of a convolution, and computes half precision in single: libraries support nothing else.

    Returns None if the convolution needs neither.
    """
    if node.op is not convolve or not isinstance(node.type, Tensor) or node.type.element.kind == "complex":
        return None
    if node.type.element is f16:
        single = convolve(*(cast(operand, type=f32) for operand in node.operands), **dict(node.attributes))
        padded = _pad_image(single)
        return cast(single if padded is None else padded, type=f16)
    padding = ((0, 0), (0, 0), *node.attribute("padding"))
    if not any(width != 0 for widths in padding for width in widths):
        return None
    image, kernel = node.operands
    # Pad below a permutation of the image, so that users of other layouts share the padded image.
    axes = image.attribute("axes") if image.op is permute else tuple(range(len(padding)))
    source = image.operands[0] if image.op is permute else image
    low, high = (tuple(padding[axes.index(axis)][side] for axis in range(len(axes))) for side in (0, 1))
    padded = pad(source, zero(node.type.element), low=low, high=high, interior=(0,) * len(axes))
    permuted = permute(padded, axes=axes) if image.op is permute else padded
    return convolve(permuted, kernel, **{**dict(node.attributes), "padding": ((0, 0),) * (len(axes) - 2)})
