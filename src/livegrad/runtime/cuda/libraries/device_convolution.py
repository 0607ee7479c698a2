"""Convolutions on the device: products of the kernels and the windows of an image (implicit im2col).

In: a convolution without padding, which `lower_windows` has moved to a separate op. Windows are gathered from the image
while tiles are loaded, and never stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from livegrad.ir.types import Scalar, Tensor, f32, f64
from livegrad.ops.movement import permute, sizes
from livegrad.runtime.cuda.libraries.library_call import LibraryCall
from livegrad.runtime.cuda.libraries.tiled_product import Left, TiledProduct
from livegrad.schedule.plan import Buffer, HostStep


class Convolution(TiledProduct):
    """Kernels [groups * rows, inner] times the windows of an image [batch, groups * channels, *space]."""

    def __init__(
        self,
        element: Scalar,
        image: tuple[int, ...],
        kernels: tuple[int, ...],
        counts: tuple[int, ...],
        strides: Sequence[int],
        dilation: Sequence[int],
        groups: int,
    ) -> None:
        outputs, channels, *window = kernels
        rows, inner = outputs // groups, channels * prod(window)
        steps = [prod(image[axis + 1 :]) for axis in range(len(image))]
        gaps = [steps[1], *[step * gap for step, gap in zip(steps[2:], dilation, strict=True)]]
        moves = [steps[0], *[step * stride for step, stride in zip(steps[2:], strides, strict=True)]]
        super().__init__(
            element,
            rows,
            prod(counts),
            groups,
            Left(inner, 1, rows * inner),
            _offsets((channels, *window), gaps),
            _offsets((image[0], *counts), moves),
            right_group=channels * steps[1],
            # Adjacent threads read adjacent elements: along the windows, or along the elements of a window.
            along_inner=counts[-1] < window[-1],
        )

    def enqueue(self, stream: Any, operands: Sequence[int], result: int) -> None:
        """Enqueues the convolution of an image with kernels."""
        image, kernels = operands
        super().enqueue(stream, (kernels, image), result)


def _offsets(extents: Sequence[int], steps: Sequence[int]) -> np.ndarray[Any, Any]:
    """The offset of each element of a box, in row-major order."""
    offsets = np.zeros((), np.int64)
    for extent, step in zip(extents, steps, strict=True):
        offsets = offsets[..., None] + np.arange(extent) * step
    return offsets.ravel()


def convolution_call(step: HostStep) -> LibraryCall | None:
    """The convolution of a step; None if it is empty, padded, or of an unsupported type or layout."""
    node, result = step.function.results[0], step.result
    image, kernels = node.operands
    if not isinstance(result, Buffer) or not isinstance(image.type, Tensor) or permute in (image.op, kernels.op):
        return None
    element = image.type.element
    if element not in (f32, f64) and element.kind not in ("signed", "unsigned"):
        return None
    shapes = (sizes(image), sizes(kernels), result.shape)
    if any(width for widths in node.attribute("padding") for width in widths) or any(0 in shape for shape in shapes):
        return None
    strides, dilation = node.attribute("strides"), node.attribute("dilation")
    return Convolution(
        element, sizes(image), sizes(kernels), result.shape[2:], strides, dilation, node.attribute("groups")
    )
