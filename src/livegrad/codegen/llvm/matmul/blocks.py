"""Blocks of a matrix product as LLVM IR: where tiles read both operands, and the tiles over a panel.

Called by `matmul_module.py` and `convolution_module.py`, which locate and pack the right operand differently.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from livegrad.codegen.llvm.matmul.matmul_tiles import Tile
from livegrad.codegen.llvm.matmul.packing import padded_row
from livegrad.codegen.llvm.vector_builder import Text, TileShapes

LINE = 64


@dataclass(frozen=True)
class LeftBlock:
    """Where a block of rows of the left operand lies: in place, or packed."""

    start: str
    tile_row: str  # bytes from row to row between tiles of full height
    row: str  # and within a tile
    step: str  # from one inner element to the next


def left_block(
    text: Text, shapes: TileShapes, w: dict[str, str], source: str, scratch: str, rows: str, depth: str, height: int
) -> LeftBlock:
    packs = text.value(f"icmp ne i64 {w['left_bytes']}, 0")
    pack, done = text.label("pack"), text.label("packed")
    text.line(f"br i1 {packs}, label %{pack}, label %{done}")
    text.open(pack)
    text.line(
        f"call void @pack_block(ptr {source}, i64 {w['left_row']}, i64 {w['left_step']}, i64 {rows}, i64 {depth},"
        f" ptr {scratch})"
    )
    text.line(f"br label %{done}")
    text.open(done)
    along = text.value(f"icmp eq i64 {w['left_step']}, {shapes.bytes}")
    row_bytes = text.value(f"mul i64 {depth}, {shapes.bytes}")
    padded = padded_row(text, shapes, depth)

    def chosen(in_rows: str, in_panels: str, in_place: str) -> str:
        packed = text.value(f"select i1 {along}, i64 {in_rows}, i64 {in_panels}")
        return text.value(f"select i1 {packs}, i64 {packed}, i64 {in_place}")

    return LeftBlock(
        text.value(f"select i1 {packs}, ptr {scratch}, ptr {source}"),
        chosen(padded, row_bytes, w["left_row"]),
        chosen(padded, str(shapes.bytes), w["left_row"]),
        chosen(str(shapes.bytes), str(height * shapes.bytes), w["left_step"]),
    )


@dataclass(frozen=True)
class TileCall:
    """The arguments of a tile, except for its rows."""

    words: dict[str, str]
    left: LeftBlock
    right: str  # the panel
    right_panel: str  # bytes from panel to panel
    right_step: str  # and from one inner element to the next
    out: str
    depth: str
    width: str
    adds: str


def table_of(tiles: Sequence[Tile]) -> str:
    """Tiles by falling height, with their functions."""
    entries = ", ".join(f"{{ i64, ptr }} {{ i64 {tile.rows}, ptr @{tile.name} }}" for tile in tiles)
    return f"@tiles = internal constant [{len(tiles)} x {{ i64, ptr }}] [{entries}]"


def rows_of_tiles(text: Text, heights: Sequence[int], call: TileCall, rows: str, lines: int) -> None:
    """All tiles of a panel: the highest there are, then lower ones for the rows that are left."""
    w = call.words
    before, head, tiles, tile, after, done = (
        text.block, *(text.label(hint) for hint in ("heights", "tiles", "tile", "after", "done"))
    )  # fmt: skip
    number, row, left = f"%{head}.number", f"%{head}.row", f"%{head}.left"
    text.go(head)
    for name, kind, first in ((number, "i64", "0"), (row, "i64", "0"), (left, "ptr", call.left.start)):
        following = f"{name}.next" if name == number else f"{name}.here"
        text.line(f"{name} = phi {kind} [ {first}, %{before} ], [ {following}, %{after} ]")
    some = text.value(f"icmp slt i64 {number}, {len(heights)}")
    text.line(f"br i1 {some}, label %{tiles}.entry, label %{done}")
    text.open(f"{tiles}.entry")
    entry = text.moved("@tiles", (number, 16))
    height = text.value(f"load i64, ptr {entry}")
    function = text.value(f"load ptr, ptr {text.moved(entry, ('8', 1))}")
    # The highest tiles begin a panel of the packed left operand each; lower ones lie below each other in the last.
    is_first = text.value(f"icmp eq i64 {number}, 0")
    row_bytes = text.value(f"select i1 {is_first}, i64 {call.left.tile_row}, i64 {call.left.row}")
    move = text.value(f"mul i64 {row_bytes}, {height}")
    text.go(tiles)
    for name, kind in ((row, "i64"), (left, "ptr")):
        text.line(f"{name}.here = phi {kind} [ {name}, %{tiles}.entry ], [ {name}.next, %{tile} ]")
    text.line(f"{row}.next = add i64 {row}.here, {height}")
    fits = text.value(f"icmp sle i64 {row}.next, {rows}")
    text.line(f"br i1 {fits}, label %{tile}, label %{after}")
    text.open(tile)
    out = text.moved(call.out, (f"{row}.here", w["out_row"]))
    # Each of the first tiles asks for one line of every row of the panel that comes next: more at once would cost time.
    line = text.value(f"udiv i64 {row}.here, {heights[0]}")
    following = text.moved(call.right, (call.right_panel, 1), (line, LINE))
    asks = text.value(f"icmp ult i64 {line}, {lines}")
    ahead = text.value(f"select i1 {asks}, ptr {following}, ptr {call.right}")
    text.line(
        f"call void {function}(ptr {left}.here, i64 {call.left.row}, i64 {call.left.step}, ptr {call.right},"
        f" i64 {call.right_step}, ptr {out}, i64 {w['out_row']}, i64 {call.depth}, i64 {call.width}, ptr {ahead},"
        f" i1 {call.adds})"
    )
    text.line(f"{left}.next = getelementptr i8, ptr {left}.here, i64 {move}")
    text.line(f"br label %{tiles}")
    text.open(after)
    text.line(f"{number}.next = add i64 {number}, 1")
    text.line(f"br label %{head}")
    text.open(done)
