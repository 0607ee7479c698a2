"""The `transform_last_axes` pass: Fourier transforms along any axes become transforms along the last axes.

For devices, whose libraries transform contiguous rows. Axes are permuted before and after.
"""

from __future__ import annotations

from livegrad.ir.function import map_results
from livegrad.ir.node import Function, Node
from livegrad.ir.propagate_lines import propagates_lines
from livegrad.ir.types import Tensor
from livegrad.ir.walk import ops_in
from livegrad.ops.fourier import fft, irfft, rfft
from livegrad.ops.movement import permute

_TRANSFORMS = (fft, irfft, rfft)


def transform_last_axes(function: Function) -> Function:
    """Moves the axes of each Fourier transform last."""
    return function if ops_in(function).isdisjoint(_TRANSFORMS) else _rewrite(function)


@propagates_lines
def _rewrite(function: Function) -> Function:
    return map_results(function, _move_axes_last)


def _move_axes_last(node: Node) -> Node | None:
    if node.op not in _TRANSFORMS or not isinstance(node.type, Tensor):
        return None
    rank, attributes = node.type.rank, dict(node.attributes)
    axes: tuple[int, ...] = attributes["axes"] if node.op is fft else (attributes["axis"],)
    last = tuple(range(rank - len(axes), rank))
    if sorted(axes) == list(last):
        return None
    order = (*(axis for axis in range(rank) if axis not in axes), *axes)
    inverse_order = tuple(order.index(axis) for axis in range(rank))
    last_axes = {"axes": last} if node.op is fft else {"axis": rank - 1}
    return permute(node.op(permute(node.operands[0], axes=order), **attributes | last_axes), axes=inverse_order)
