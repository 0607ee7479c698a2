"""Convolutions on the device, captured like library calls: products of matrices that never store the windows.

The image is padded before (`lower_windows`). Where there are too few tiles for the device, as for the gradient of
kernels, blocks share the inner dimension, and a second kernel adds what they found, in a fixed order.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from livegrad.ir.types import Scalar, Tensor, f32, f64
from livegrad.ops.movement import permute, sizes
from livegrad.runtime.cuda.device_memory import DeviceMemory
from livegrad.runtime.cuda.libraries.convolution_kernels import TILE_COLUMNS, TILE_ROWS, TILE_THREADS, source_of
from livegrad.runtime.cuda.libraries.library_call import LibraryCall, launch_blocks
from livegrad.runtime.cuda.modules import load_function
from livegrad.schedule.plan import Buffer, HostStep

_FEW_ROWS = 8  # a tile would be mostly empty
_WANTED_BLOCKS, _WANTED_THREADS = 512, 1 << 17
_LEAST_CHUNK = 128  # of the inner dimension, for a block
_MOST_PARTIAL_BYTES = 1 << 28
_SIMPLE_THREADS, _MOST_SIMPLE_BLOCKS = 256, 8192


class Convolution:
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
        self.element, self.groups, self.rows = element, groups, outputs // groups
        self.inner, self.points = channels * prod(window), prod(counts)
        self.columns, self.whole = image[0] * self.points, image[0] * outputs * self.points
        steps = [prod(image[axis + 1 :]) for axis in range(len(image))]
        self.group_step = channels * steps[1]
        self._offset_type = np.dtype(np.int64 if prod(image) >= 1 << 31 else np.int32)
        gaps = [steps[1], *[step * gap for step, gap in zip(steps[2:], dilation, strict=True)]]
        moves = [steps[0], *[step * stride for step, stride in zip(steps[2:], strides, strict=True)]]
        self._window = self._offsets((channels, *window), gaps)
        self._start = self._offsets((image[0], *counts), moves)
        # Neighbouring threads read neighbouring numbers of the image: along a row of windows, or of window elements.
        along_inner = counts[-1] < window[-1]
        self._text = source_of(element, self._offset_type.itemsize == 8, along_inner)
        self.uses_tiles = self.rows >= _FEW_ROWS
        self.chunk, self.splits = self._choose_splits()
        self._tables: DeviceMemory | None = None
        self._partials: DeviceMemory | None = None

    def _offsets(self, extents: Sequence[int], steps: Sequence[int]) -> np.ndarray[Any, Any]:
        offsets = np.zeros((), np.int64)
        for extent, step in zip(extents, steps, strict=True):
            offsets = offsets[..., None] + np.arange(extent) * step
        return offsets.ravel().astype(self._offset_type)

    def _choose_splits(self) -> tuple[int, int]:
        """How much of the inner dimension a block takes, a multiple of the depth of tiles, and how many parts that
        makes."""
        have, wanted = (self._tiles, _WANTED_BLOCKS) if self.uses_tiles else (self.whole, _WANTED_THREADS)
        bytes = max(1, self.whole * self.element.dtype.itemsize)
        most = max(1, min(self.inner // _LEAST_CHUNK, _MOST_PARTIAL_BYTES // bytes))
        splits = min(most, -(-wanted // have))
        chunk = -(-self.inner // splits // 16) * 16
        return chunk, -(-self.inner // chunk)

    @property
    def _tiles(self) -> int:
        return -(-self.rows // TILE_ROWS) * -(-self.columns // TILE_COLUMNS) * self.groups

    @property
    def name(self) -> str:
        return f"convolve {self.groups}x{self.rows}x{self.inner}x{self.columns}"

    def prepare(self) -> None:
        """Uploads the tables, allocates memory for parts, and loads the kernels."""
        load_function(self._text, "convolve", "tiles")
        if self._tables is None:
            tables = np.concatenate([self._window, self._start])
            self._tables = DeviceMemory(tables.nbytes)
            self._tables.upload(tables)
            if self.splits > 1:
                self._partials = DeviceMemory(self.splits * self.whole * self.element.dtype.itemsize)

    def enqueue(self, stream: Any, operands: Sequence[int], result: int) -> None:
        """Enqueues the product, and the sum of its parts if there are some."""
        image, kernels = operands
        assert self._tables is not None
        window = self._tables.address
        start = window + self._window.nbytes
        target = result if self._partials is None else self._partials.address
        sizes = (self.rows, self.columns, self.inner, self.points, self.groups, self.group_step)
        slots = (kernels, image, target, window, start, *sizes, self.splits, self.chunk, self.whole)
        if self.uses_tiles:
            tiles = load_function(self._text, "convolve", "tiles")
            launch_blocks(tiles, stream, self._tiles * self.splits, TILE_THREADS, slots)
        else:
            self._launch_simple("numbers", stream, self.whole * self.splits, slots)
        if self._partials is not None:
            slots = (0, target, result, 0, 0, *sizes, self.splits, self.chunk, self.whole)
            self._launch_simple("sum_splits", stream, self.whole, slots)

    def _launch_simple(self, symbol: str, stream: Any, count: int, slots: Sequence[int]) -> None:
        blocks = min(_MOST_SIMPLE_BLOCKS, -(-count // _SIMPLE_THREADS))
        launch_blocks(load_function(self._text, "convolve", symbol), stream, blocks, _SIMPLE_THREADS, slots)


def convolution_call(step: HostStep) -> LibraryCall | None:
    """The convolution of a step; None if it is empty, or of a type or a layout that the kernels do not read."""
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
