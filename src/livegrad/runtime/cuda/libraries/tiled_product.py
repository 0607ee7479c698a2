"""Matrix products without cuBLAS, captured like library calls: convolutions, and all products if cuBLAS is missing.

If there are too few tiles to fill the device, blocks share the inner dimension (split-K), and a second kernel sums
their parts in a fixed order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from livegrad.ir.types import Scalar
from livegrad.runtime.cuda.device_memory import DeviceMemory
from livegrad.runtime.cuda.libraries.library_call import launch_blocks
from livegrad.runtime.cuda.libraries.tiled_product_kernels import TILE_COLUMNS, TILE_ROWS, TILE_THREADS, source_of
from livegrad.runtime.cuda.modules import load_function

_MIN_TILED_ROWS = 8  # with fewer rows, a tile would be mostly empty
_WANTED_BLOCKS, _WANTED_THREADS = 512, 1 << 17
_MIN_CHUNK = 128  # inner elements of a block
_MAX_PARTIAL_BYTES = 1 << 28
_THREADS, _MAX_BLOCKS = 256, 8192


@dataclass(frozen=True)
class Left:
    """The strides of the left operand, in elements."""

    row: int
    inner: int
    group: int


class TiledProduct:
    """For each group, the product of a matrix of `rows` rows and one whose element [k, n] is at `row[k] + column[n]`.

    The result has the shape [columns / points, groups, rows, points].
    """

    def __init__(
        self,
        element: Scalar,
        rows: int,
        points: int,
        groups: int,
        left: Left,
        row: np.ndarray[Any, Any],
        column: np.ndarray[Any, Any],
        right_group: int,
        along_inner: bool,
    ) -> None:
        self.element, self.rows, self.points, self.groups = element, rows, points, groups
        self.inner, self.columns = row.size, column.size
        self.size = self.columns * groups * rows
        self._left, self._right_group = left, right_group
        wide = int(row[-1]) + int(column[-1]) >= 1 << 31
        self._tables = np.concatenate([row, column]).astype(np.int64 if wide else np.int32)
        self._text = source_of(element, wide, along_inner)
        self.uses_tiles = rows >= _MIN_TILED_ROWS
        self.chunk, self.splits = self._choose_splits()
        self._memory: DeviceMemory | None = None
        self._partials: DeviceMemory | None = None

    def _choose_splits(self) -> tuple[int, int]:
        """The inner elements of a block, a multiple of the depth of tiles, and the number of parts."""
        available, wanted = (self._tiles, _WANTED_BLOCKS) if self.uses_tiles else (self.size, _WANTED_THREADS)
        result_bytes = self.size * self.element.dtype.itemsize
        most = max(1, min(self.inner // _MIN_CHUNK, _MAX_PARTIAL_BYTES // result_bytes))
        splits = min(most, -(-wanted // available))
        chunk = -(-self.inner // splits // 16) * 16
        return chunk, -(-self.inner // chunk)

    @property
    def _tiles(self) -> int:
        return -(-self.rows // TILE_ROWS) * -(-self.columns // TILE_COLUMNS) * self.groups

    @property
    def name(self) -> str:
        return f"product {self.groups}x{self.rows}x{self.inner}x{self.columns}"

    def prepare(self) -> None:
        """Uploads the tables, allocates memory for parts, and loads the kernels."""
        load_function(self._text, "product", "tiles")
        if self._memory is None:
            self._memory = DeviceMemory(self._tables.nbytes)
            self._memory.upload(self._tables)
            if self.splits > 1:
                self._partials = DeviceMemory(self.splits * self.size * self.element.dtype.itemsize)

    def enqueue(self, stream: Any, operands: Sequence[int], result: int) -> None:
        """Enqueues the product of the left and the right operand, and the sum of its parts if it is split."""
        left, right = operands
        assert self._memory is not None
        row = self._memory.address
        column = row + self.inner * self._tables.itemsize
        target = result if self._partials is None else self._partials.address
        strides = (self._left.row, self._left.inner, self._left.group)
        sizes = (self.rows, self.columns, self.inner, self.points, *strides, self.groups, self._right_group)
        slots = (left, right, target, row, column, *sizes, self.splits, self.chunk, self.size)
        if self.uses_tiles:
            tiles = load_function(self._text, "product", "tiles")
            launch_blocks(tiles, stream, self._tiles * self.splits, TILE_THREADS, slots)
        else:
            self._launch_elementwise("elements", stream, self.size * self.splits, slots)
        if self._partials is not None:
            slots = (0, target, result, 0, 0, *sizes, self.splits, self.chunk, self.size)
            self._launch_elementwise("sum_splits", stream, self.size, slots)

    def _launch_elementwise(self, symbol: str, stream: Any, count: int, slots: Sequence[int]) -> None:
        blocks = min(_MAX_BLOCKS, -(-count // _THREADS))
        launch_blocks(load_function(self._text, "product", symbol), stream, blocks, _THREADS, slots)
