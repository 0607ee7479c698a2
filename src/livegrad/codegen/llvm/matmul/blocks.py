"""Emits the macro-kernel of matrix products as LLVM IR: packs blocks of the left operand, runs the tiles of a panel.

Called by `matmul_module.py` and `convolution_module.py`, which locate and pack the right operand differently.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from livegrad.codegen.llvm.counted_loops import OpenLoop
from livegrad.codegen.llvm.matmul.matmul_tiles import Tile
from livegrad.codegen.llvm.matmul.packing import padded_row
from livegrad.codegen.llvm.matmul.tile_shapes import TileShapes
from livegrad.codegen.llvm.matmul.tile_vectors import Slots
from livegrad.codegen.llvm.registers import Register, pointer
from livegrad.codegen.llvm.values import LlvmModule, Value, call, when
from livegrad.ir.types import i64

LINE = 64


@dataclass(frozen=True)
class LeftBlock:
    """A block of rows of the left operand, in place or packed."""

    start: Value
    tile_row: Value  # bytes from row to row between tiles of full height
    row: Value  # bytes from row to row within a tile
    step: Value  # bytes from one inner element to the next


def left_block(
    shapes: TileShapes, w: Slots, source: Value, scratch: Value, rows: Value, depth: Value, height: int
) -> LeftBlock:
    packs = w["left_bytes"].compare("ne", 0)
    with when(packs):
        call("@pack_block", source, w["left_row"], w["left_step"], rows, depth, scratch)
    contiguous = w["left_step"].equals(shapes.bytes)
    row_bytes = depth * shapes.bytes
    padded = padded_row(shapes, depth)

    def choose(in_rows: Value | int, in_panels: Value | int, in_place: Value) -> Value:
        packed = contiguous.select(depth.wrap(depth.register_of(in_rows)), in_panels)
        return packs.select(packed, in_place)

    return LeftBlock(
        packs.select(scratch, source),
        choose(padded, row_bytes, w["left_row"]),
        choose(padded, shapes.bytes, w["left_row"]),
        choose(shapes.bytes, height * shapes.bytes, w["left_step"]),
    )


@dataclass(frozen=True)
class TileCall:
    """The arguments of a tile, except for its rows."""

    slots: Slots
    left: LeftBlock
    right: Value  # the panel
    right_panel: Value  # bytes from panel to panel
    right_step: Value  # bytes from one inner element to the next
    out: Value
    depth: Value
    width: Value
    adds: Value


def define_table(module: LlvmModule, tiles: Sequence[Tile]) -> None:
    """Defines a table of the tiles, in descending order of height, and their functions."""
    entries = ", ".join(f"{{ i64, ptr }} {{ i64 {tile.rows}, ptr {tile.symbol} }}" for tile in tiles)
    module.definitions.append(f"@tiles = internal constant [{len(tiles)} x {{ i64, ptr }}] [{entries}]")


def rows_of_tiles(heights: Sequence[int], tile: TileCall, rows: Value, lines: int) -> None:
    """Runs all tiles of a panel: the highest first, then lower ones for the remaining rows."""
    builder, w = rows.builder, tile.slots
    zero = builder.constant(0, i64)
    by_height = OpenLoop(builder, [zero, zero, tile.left.start.register])
    number, row, left = (Value(builder, register) for register in by_height.carried)
    builder.branch((number < len(heights)).register, by_height.body, by_height.done)
    builder.begin(by_height.body)
    entry = Value(builder, Register("@tiles", pointer, 1)) + number * 16
    height = entry.load(i64)
    function = (entry + 8).load(pointer)
    # Each of the highest tiles begins a panel of the packed left operand; lower ones share the last panel.
    row_bytes = number.equals(0).select(tile.left.tile_row, tile.left.row)
    move = row_bytes * height
    by_row = OpenLoop(builder, [row.register, left.register])
    row, left = (Value(builder, register) for register in by_row.carried)
    next_row = row + height
    builder.branch((next_row <= rows).register, by_row.body, by_row.done)
    builder.begin(by_row.body)
    out = tile.out + row * w["out_row"]
    # Each of the first tiles prefetches one line of every row of the next panel: more at once would cost time.
    line = row // heights[0]
    following = tile.right + tile.right_panel + line * LINE
    ahead = line.compare("ult", lines).select(following, tile.right)
    call(
        function.text, left, tile.left.row, tile.left.step, tile.right, tile.right_step, out, w["out_row"], tile.depth,
        tile.width, ahead, tile.adds,
    )  # fmt: skip
    by_row.close([next_row.register, (left + move).register])
    by_height.close([(number + 1).register, row.register, left.register])
