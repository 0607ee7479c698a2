"""Convolutions in native code. In: sizes and strides. Out: kernel launches with their argument slots.

Called by `runtime/cpu/step_calls.py`, like `matmul.py`. A convolution is the product of its kernels and the matrix of
all windows of the image (implicit im2col): a *line* of that matrix is an element of all windows, a *column* is a
window. Only panels of that matrix are in memory at a time. The partition depends only on sizes, so results do not
depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import Literal, NamedTuple

from livegrad.codegen.llvm.matmul.convolution_module import CONVOLVE_SLOTS, SPACINGS
from livegrad.codegen.llvm.matmul.launches import ONE_ITEM, pack, sum_of_parts
from livegrad.codegen.llvm.matmul.packing import ROW_PADDING
from livegrad.codegen.llvm.matmul.product import Launch, Launches, Operand, OperandName
from livegrad.codegen.llvm.matmul.tile_shapes import TileShapes
from livegrad.ir.dimension import round_up
from livegrad.runtime.cpu.native.matmul import best_tiles, shapes_for

_DEPTH = 256  # lines that a tile sums at once, so that their panel and a block of the kernels stay in the L1 cache
_MAX_ROWS, _MAX_PANELS = 512, 16  # of a work item
_ITEM_WORK = 1 << 20  # multiplications in a work item
_WANTED_ITEMS = 16  # work items, to share among threads
_COPY_COST = 0.6  # cycles to copy an element
_MAX_SPATIAL_DIMENSIONS = 3  # the kernels have tables for three


class Line(NamedTuple):
    """One dimension of a window: channels or a spatial dimension, with strides of both operands in bytes."""

    extent: int
    left: int
    right: int


class Column(NamedTuple):
    """One dimension of the windows' positions: images or a spatial dimension, with the stride in the image in bytes."""

    extent: int
    right: int


@dataclass(frozen=True)
class Convolution:
    """The sizes and strides of a convolution without padding. Kernels are the left operand, the image the right one."""

    element: str  # float32 or float64
    groups: int
    rows: int  # outputs of a group
    left_row: int
    left_group: int
    right_group: int
    lines: tuple[Line, ...]
    images: Column
    space: tuple[Column, ...]


def is_native(convolution: Convolution) -> bool:
    """Whether native code supports a convolution: at most three spatial dimensions, and kernels that are evenly strided
    except for the outermost dimension."""
    flat = _is_left_flat(_merge_lines(convolution.lines)[1:])
    return len(convolution.space) <= _MAX_SPATIAL_DIMENSIONS and flat


def arrange_convolution(convolution: Convolution, shapes: TileShapes | None = None) -> Launches:
    """The launches that compute a convolution."""
    shapes = shapes or shapes_for(convolution.element)
    positions = prod(column.extent for column in convolution.space)
    lines, images = prod(line.extent for line in convolution.lines), convolution.images.extent
    apart = images * best_tiles(convolution.rows, positions, lines, shapes)[0]
    joined = best_tiles(convolution.rows, images * positions, lines, shapes)[0]
    joined += _COPY_COST * convolution.rows * images * positions
    return _Arrangement(convolution, shapes, images > 1 and joined < apart).launches()


class _Partition(NamedTuple):
    """The partition of a convolution into work items: blocks of rows and columns, and parts of the lines."""

    row_block: int
    row_blocks: int
    column_block: int
    column_blocks: int
    part_blocks: int
    parts: int
    items: int
    grain: int


class _Arrangement:
    """A convolution as products: one for each image or, if `joined`, one with the windows of all images as its columns,
    whose rows are then copied to the images."""

    def __init__(self, convolution: Convolution, shapes: TileShapes, joined: bool) -> None:
        self.convolution, self.shapes, self.joined = convolution, shapes, joined
        self.lines = _merge_lines(convolution.lines)
        self.columns = _merge_columns((*([convolution.images] if joined else []), *convolution.space))
        self.column_count = prod(column.extent for column in self.columns)
        self.images = 1 if joined else convolution.images.extent
        is_flat = _is_left_flat(self.lines)
        self.stretches = 1 if is_flat else self.lines[0].extent
        self.inner = prod(line.extent for line in self.lines) // self.stretches
        self.depth = -(-self.inner // -(-self.inner // _DEPTH))
        self.blocks = self.stretches * -(-self.inner // self.depth)
        _, self.vectors = best_tiles(convolution.rows, self.column_count, self.inner, shapes)
        self.cut = self._partition()

    def _partition(self) -> _Partition:
        """Splits columns, then rows, then sums, until there are enough work items for threads."""
        rows, panel = self.convolution.rows, self.shapes.panel(self.vectors)
        panels, highest = -(-self.column_count // panel), self.shapes.heights_of(self.vectors)[0]
        others = self.images * self.convolution.groups
        row_blocks = -(-rows // _MAX_ROWS)
        work = -(-rows // row_blocks) * self.inner * self.stretches * panel  # of a panel
        every = work * panels * row_blocks * others
        wanted = min(_WANTED_ITEMS, every // ONE_ITEM)
        most = min(_MAX_PANELS, _ITEM_WORK // work, panels * others * row_blocks // max(1, wanted))
        column_block = -(-panels // -(-panels // max(1, most))) * panel
        column_blocks = -(-self.column_count // column_block)
        missing = -(-wanted // (others * column_blocks * row_blocks))
        row_blocks = max(row_blocks, min(row_blocks * missing, rows // (4 * highest)))
        least = -(-rows // row_blocks)
        row_block = min(rows, round_up(least, highest))
        row_blocks = -(-rows // row_block)
        items = others * column_blocks * row_blocks
        parts = max(1, min(-(-wanted // items), self.blocks))
        part_blocks = -(-self.blocks // parts)
        parts = -(-self.blocks // part_blocks)
        grain = max(1, ONE_ITEM * items * parts // every)
        return _Partition(row_block, row_blocks, column_block, column_blocks, part_blocks, parts, items * parts, grain)

    def launches(self) -> Launches:
        run, scratch = self._run()
        total = self.convolution.groups * self.convolution.rows * self.column_count * self.images
        size = total * self.shapes.bytes
        moves = self.joined and self.convolution.groups * self.convolution.rows > 1
        steps = [run.with_operands({"out": "between"}) if self.cut.parts > 1 else run]
        if self.cut.parts > 1:
            steps.append(sum_of_parts(self.cut.parts, total, self.shapes))
        if moves:
            steps[-1] = steps[-1].with_operands({"out": "workspace"})
            steps.append(self._move())
        return Launches(tuple(steps), size if moves else 0, scratch, self.cut.parts * size if self.cut.parts > 1 else 0)

    def _run(self) -> tuple[Launch, int]:
        """The launch of the product, and the bytes of scratch memory of each worker."""
        convolution, size, flat = self.convolution, self.shapes.bytes, self.lines
        stretch = self.lines[0].left if self.stretches > 1 else 0
        role, spacing = self._runs()
        columns = self.columns[:-1] if role == "column" else self.columns
        lines = self.lines[:-1] if role == "line" else self.lines
        group = convolution.rows * self.column_count * size
        left_bytes = self._left_bytes()
        right_bytes = self.depth * self.shapes.panel(self.vectors) * size
        line_bytes = _round_to_cache_line(8 * (self.depth + 2))
        scratch = _round_to_cache_line(
            left_bytes + right_bytes + line_bytes + 8 * (self.cut.column_block + 2 + self.shapes.lanes)
        )
        values: dict[str, int | OperandName] = {
            "left": "left", "right": "right", "out": "out", "rows": convolution.rows, "columns": self.column_count,
            "inner": self.inner, "stretches": self.stretches, "depth": self.depth,
            "left_row": convolution.left_row, "left_step": flat[-1].left if flat else size, "left_stretch": stretch,
            "left_group": convolution.left_group, "right_group": convolution.right_group,
            "right_matrix": 0 if self.joined else convolution.images.right,
            "out_row": self.column_count * size, "out_group": group, "out_matrix": group * convolution.groups,
            "out_part": group * convolution.groups * self.images,
            "groups": convolution.groups, "matrices": self.images, "part_blocks": self.cut.part_blocks,
            "row_block": self.cut.row_block, "row_blocks": self.cut.row_blocks,
            "column_block": self.cut.column_block, "column_blocks": self.cut.column_blocks,
            "line_run": self.lines[-1].extent if role == "line" else 1, "line_spacing": spacing * (role == "line"),
            "column_run": self.columns[-1].extent if role == "column" else 1,
            "column_spacing": spacing * (role == "column"),
            **_table("line", [(line.extent, line.right) for line in lines]), **_table("column", columns),
            "scratch": "scratch", "scratch_bytes": scratch,
            "left_bytes": left_bytes, "right_bytes": right_bytes, "line_bytes": line_bytes,
        }  # fmt: skip
        run = Launch(
            f"convolve_{self.vectors}", tuple([values[name] for name in CONVOLVE_SLOTS]), self.cut.items, self.cut.grain
        )
        return run, scratch

    def _left_bytes(self) -> int:
        """The bytes of a packed block of the kernels; 0 if they are read in place. They are packed if their rows are
        not contiguous, or alias in the cache because their distance is a multiple of 4096 bytes."""
        step = self.lines[-1].left if self.lines else self.shapes.bytes
        if self.cut.row_block == 1 or (step == self.shapes.bytes and self.convolution.left_row % 4096):
            return 0
        highest, line = self.shapes.heights_of(self.vectors)[0], self.depth * self.shapes.bytes
        return _round_to_cache_line((self.cut.row_block + highest) * (line + ROW_PADDING))

    def _runs(self) -> tuple[Literal["column", "line", "none"], int]:
        """The fastest way to pack panels by estimate: runs of columns, runs of lines, or single elements; and the
        spacing of a run's elements."""
        lanes = self.shapes.lanes
        costs: dict[tuple[Literal["column", "line", "none"], int], float] = {("none", 0): 1.1 * lanes}
        for spacing in SPACINGS:
            if self.columns and self.columns[-1].right == spacing * self.shapes.bytes:
                costs["column", spacing] = max(1.5 * spacing, (2 + spacing) * lanes / self.columns[-1].extent)
            if self.lines and self.lines[-1].right == spacing * self.shapes.bytes:
                run = self.lines[-1].extent
                costs["line", spacing] = (4.0 + spacing) * lanes * -(-run // lanes) / run
        return min(costs, key=lambda packing: costs[packing])

    def _move(self) -> Launch:
        """The launch that copies the rows of a joined product to the images."""
        size, images = self.shapes.bytes, self.convolution.images.extent
        positions, rows = self.column_count // images, self.convolution.groups * self.convolution.rows
        return pack(
            "workspace", "out", lines=rows, columns=positions, matrices=images, shapes=self.shapes, vectors=4,
            source=Operand(self.column_count * size, size, positions * size, 0),
            step=positions * size, panel=self.shapes.panel(4) * size, matrix=rows * positions * size,
        )  # fmt: skip


def _merge_lines(lines: Sequence[Line]) -> tuple[Line, ...]:
    """Drops dimensions of size 1, and merges dimensions that are contiguous in both operands."""
    merged: list[Line] = []
    for line in lines:
        if line.extent == 1:
            continue
        if merged and _is_left_flat((merged[-1], line)) and merged[-1].right == line.extent * line.right:
            merged[-1] = Line(merged[-1].extent * line.extent, line.left, line.right)
        else:
            merged.append(line)
    return tuple(merged)


def _merge_columns(columns: Sequence[Column]) -> tuple[Column, ...]:
    merged: list[Column] = []
    for column in columns:
        if column.extent == 1:
            continue
        if merged and merged[-1].right == column.extent * column.right:
            merged[-1] = Column(merged[-1].extent * column.extent, column.right)
        else:
            merged.append(column)
    return tuple(merged)


def _is_left_flat(lines: Sequence[Line]) -> bool:
    """Whether the left operand is evenly strided."""
    return all(a.left == b.extent * b.left for a, b in pairwise(lines))


def _table(role: str, dimensions: Sequence[tuple[int, int]]) -> dict[str, int | OperandName]:
    """The argument slots of a table of offsets: the extents of all dimensions but the first, and the strides."""
    padded = [*[(1, 0)] * (4 - len(dimensions)), *dimensions]
    extents: dict[str, int | OperandName] = {f"{role}_extent{axis}": padded[axis][0] for axis in (1, 2, 3)}
    return extents | {f"{role}_step{axis}": step for axis, (_, step) in enumerate(padded)}


def _round_to_cache_line(size: int) -> int:
    return round_up(size, 64)
