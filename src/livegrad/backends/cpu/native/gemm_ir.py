"""LLVM IR text of matrix products. Comes in: an element type and what the processor has; goes out: a module's text.

Called by `gemm.py`, which compiles it once. The code serves all sizes and strides: they are words of the argument
block.

Every element is summed in the same order whichever tile it falls in, so results depend on nothing but the operands.
The left operand is read where it lies, or blocks of it are packed for one item. The right one is read where it lies
when its rows are consecutive and few tiles read it; otherwise it is packed first, into panels as wide as a tile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from livegrad.backends.cpu.native.gemm_pack_ir import Panel, call_pack, pack_kernel, pack_panel, turn_squares
from livegrad.backends.cpu.native.gemm_tile_ir import PackedTile, Tile
from livegrad.backends.cpu.native.vector_ir import (
    Text,
    TileShapes,
    column_masks,
    kernel_text,
    load_vector,
    multiply_add,
)

# Matrices are numbered over two dimensions; `_matrix` is the distance along the inner one, `_outer` along the other.
_BATCH_WORDS = ("left_matrix", "left_outer", "right_matrix", "right_outer", "inner_matrices")
MULTIPLY_WORDS = (
    "left", "right", "out", "rows", "columns", "inner",
    "left_row", "left_step",  # in bytes, as all distances here
    "right_step", "right_panel", "out_row", "out_matrix",  # right_panel 0: read where it lies
    *_BATCH_WORDS,
    "row_block", "row_blocks", "column_block", "column_blocks", "depth", "panel",
    "scratch", "scratch_bytes",  # of each worker, to pack blocks of the left operand; 0 bytes: it is read where it lies
)  # fmt: skip
Tiles = tuple[tuple[int, int], ...]  # rows and vectors, by falling height
DOT_WORDS = (
    "left", "right", "out", "rows", "columns", "inner", "left_row", "right_column", "out_row", "out_matrix",
    "column_block", "column_blocks", *_BATCH_WORDS,
)  # fmt: skip


# Products of few rows have a module of their own, so that who needs none does not wait for it to be compiled.
KERNELS = {"tiles": ("multiply", "pack"), "few_rows": ("multiply_few", "dot")}


def module_text(shapes: TileShapes, part: str) -> str:
    """The kernels of a module, with the tiles that they call."""
    vector = f"<{shapes.lanes} x {shapes.element}>"
    suffix = f"v{shapes.lanes}f{shapes.bytes * 8}"
    width = shapes.vector_bytes * 8
    parts = [
        "declare i64 @llvm.smin.i64(i64, i64)",
        "declare i64 @llvm.smax.i64(i64, i64)",
        "declare void @llvm.prefetch.p0(ptr, i32, i32, i32)",
        f"declare {vector} @llvm.fma.{suffix}({vector}, {vector}, {vector})",
        f"declare {vector} @llvm.masked.load.{suffix}.p0(ptr, i32, <{shapes.lanes} x i1>, {vector})",
        f"declare void @llvm.masked.store.{suffix}.p0({vector}, ptr, i32, <{shapes.lanes} x i1>)",
        f"declare {vector} @llvm.masked.gather.{suffix}.v{shapes.lanes}p0(<{shapes.lanes} x ptr>, i32,"
        f" <{shapes.lanes} x i1>, {vector})",
        f"declare {shapes.element} @llvm.vector.reduce.fadd.{suffix}({shapes.element}, {vector})",
    ]
    tiles = shapes.wide if part == "few_rows" else tuple((height, 2) for height in shapes.heights)
    parts += [Tile(shapes, rows, vectors).function() for rows, vectors in tiles]
    names = [f"tile_{rows}x{vectors}" for rows, vectors in tiles]
    parts.append(_table("tiles", tiles, names))
    if part == "few_rows":
        parts += [_multiply("multiply_few", shapes, tiles), _dot(shapes)]
    else:
        parts.append(PackedTile(shapes, *tiles[0]).function())
        parts.append(_table("packed_tiles", tiles, [names[0].replace("tile", "packed"), *names[1:]]))
        parts += [_multiply("multiply", shapes, tiles), turn_squares(shapes), pack_panel(shapes), pack_kernel(shapes)]
    common = f'nounwind "prefer-vector-width"="{width}" "min-legal-vector-width"="{width}"'
    parts += [f'attributes #0 = {{ {common} "stackrealign" }}', f"attributes #1 = {{ {common} }}"]  # tiles do not spill
    return "\n".join(parts)


def _multiply(name: str, shapes: TileShapes, tiles: Tiles) -> str:
    """Item i is a block of rows and columns of a matrix: blocks of columns first, then of rows, then matrices."""
    text = Text()
    w = text.words(MULTIPLY_WORDS)
    scratch = text.moved(w["scratch"], ("%worker", w["scratch_bytes"]))
    packs = text.value(f"icmp ne i64 {w['scratch_bytes']}, 0")
    reads_panels = text.value(f"icmp ne i64 {w['right_panel']}, 0")
    panel_bytes = text.value(f"mul i64 {w['panel']}, {shapes.bytes}")
    next_panel = text.value(f"select i1 {reads_panels}, i64 {w['right_panel']}, i64 {panel_bytes}")
    with text.loop("%begin", "%end", 1) as item:
        column_number = text.value(f"urem i64 {item}, {w['column_blocks']}")
        rest = text.value(f"udiv i64 {item}, {w['column_blocks']}")
        row_number = text.value(f"urem i64 {rest}, {w['row_blocks']}")
        matrix = text.value(f"udiv i64 {rest}, {w['row_blocks']}")
        first_row = text.value(f"mul i64 {row_number}, {w['row_block']}")
        rows = text.least(w["row_block"], text.value(f"sub i64 {w['rows']}, {first_row}"))
        left, right = _matrices(text, w, matrix)
        left = text.moved(left, (first_row, w["left_row"]))
        out = text.moved(w["out"], (matrix, w["out_matrix"]), (first_row, w["out_row"]))
        shift = _shift(text, shapes, w, right, reads_panels)
        first_column = text.value(f"mul i64 {column_number}, {w['column_block']}")
        last = text.value(f"add i64 {first_column}, {w['column_block']}")
        last_column = text.least(last, text.value(f"add i64 {w['columns']}, {shift}"))
        with text.loop("0", w["inner"], w["depth"]) as inner:
            depth = text.least(w["depth"], text.value(f"sub i64 {w['inner']}, {inner}"))
            adds = text.value(f"icmp ne i64 {inner}, 0")
            left_here = text.moved(left, (inner, w["left_step"]))
            if name == "multiply":
                block = _left_block(text, shapes, w, left_here, scratch, packs, rows, depth)
            else:
                block = _LeftBlock(left_here, w["left_row"], w["left_row"], w["left_step"], "@tiles")
            right_here = text.moved(right, (inner, w["right_step"]))
            with text.loop(first_column, last_column, w["panel"]) as place:
                # Places count from before the first column where its row does not begin at a cache line.
                column = text.most(text.value(f"sub i64 {place}, {shift}"), "0")
                panel_end = text.value(f"sub i64 {text.value(f'add i64 {place}, ' + w['panel'])}, {shift}")
                width = text.value(f"sub i64 {text.least(panel_end, w['columns'])}, {column}")
                in_place = text.moved(right_here, (column, shapes.bytes))
                panel = text.value(f"udiv i64 {column}, {w['panel']}")
                in_panel = text.moved(right_here, (panel, w["right_panel"]))
                panel_at = text.value(f"select i1 {reads_panels}, ptr {in_panel}, ptr {in_place}")
                out_at = text.moved(out, (column, shapes.bytes))
                call = _TileCall(w, block, panel_at, out_at, depth, width, next_panel, adds)
                _rows_of_tiles(text, len(tiles), call, rows)
    return kernel_text(name, text)


def _matrices(text: Text, w: dict[str, str], number: str) -> tuple[str, str]:
    """Where the matrices of both operands begin."""
    inner = text.value(f"urem i64 {number}, {w['inner_matrices']}")
    outer = text.value(f"udiv i64 {number}, {w['inner_matrices']}")
    left, right = (
        text.moved(w[side], (inner, w[f"{side}_matrix"]), (outer, w[f"{side}_outer"])) for side in ("left", "right")
    )
    return left, right


def _shift(text: Text, shapes: TileShapes, w: dict[str, str], right: str, reads_panels: str) -> str:
    """How many columns the first panel lacks, so that the others begin at cache lines: half of all loads would
    otherwise read two. Only where every row begins at the same distance from one."""
    line = shapes.vector_bytes
    address = text.value(f"ptrtoint ptr {right} to i64")
    past = text.value(f"urem i64 {address}, {line}")
    columns = text.value(f"udiv i64 {past}, {shapes.bytes}")
    uneven = text.value(f"urem i64 {w['right_step']}, {line}")
    odd = text.value(f"urem i64 {past}, {shapes.bytes}")
    either = text.value(f"or i64 {uneven}, {odd}")
    few = text.value(f"icmp ule i64 {w['columns']}, {w['panel']}")
    never = text.value(f"or i1 {text.value(f'icmp ne i64 {either}, 0')}, {reads_panels}")
    return text.value(f"select i1 {text.value(f'or i1 {never}, {few}')}, i64 0, i64 {columns}")


@dataclass(frozen=True)
class _LeftBlock:
    """Where a block of rows of the left operand lies: in place, or packed into panels as high as the highest tile."""

    start: str
    tile_row: str  # bytes from row to row between tiles of full height
    row: str  # and within a tile
    step: str  # from one inner element to the next
    tiles: str  # the table of tiles for it


def _left_block(
    text: Text, shapes: TileShapes, w: dict[str, str], source: str, scratch: str, packs: str, rows: str, depth: str
) -> _LeftBlock:
    height = shapes.heights[0]
    pack, done = text.label("pack"), text.label("packed")
    text.line(f"br i1 {packs}, label %{pack}, label %{done}")
    text.open(pack)
    packed_row = text.value(f"mul i64 {depth}, {shapes.bytes}")
    with text.loop("0", rows, height) as row:
        panel = Panel(
            text.moved(source, (row, w["left_row"])), w["left_step"], w["left_row"],
            text.least(text.value(f"sub i64 {rows}, {row}"), str(height)), depth,
            text.moved(scratch, (row, packed_row)), str(height * shapes.bytes),
        )  # fmt: skip
        call_pack(text, panel)
    text.line(f"br label %{done}")
    text.open(done)
    row_bytes = text.value(f"mul i64 {depth}, {shapes.bytes}")
    return _LeftBlock(
        text.value(f"select i1 {packs}, ptr {scratch}, ptr {source}"),
        text.value(f"select i1 {packs}, i64 {row_bytes}, i64 {w['left_row']}"),
        text.value(f"select i1 {packs}, i64 {shapes.bytes}, i64 {w['left_row']}"),
        text.value(f"select i1 {packs}, i64 {height * shapes.bytes}, i64 {w['left_step']}"),
        text.value(f"select i1 {packs}, ptr @packed_tiles, ptr @tiles"),
    )


@dataclass(frozen=True)
class _TileCall:
    """What a tile is called with, but for its rows."""

    words: dict[str, str]
    left: _LeftBlock
    right: str
    out: str
    depth: str
    width: str
    next_panel: str
    adds: str


def _table(table: str, tiles: Tiles, names: Sequence[str]) -> str:
    """Tiles by falling height, with their functions."""
    pairs = zip(tiles, names, strict=True)
    entries = ", ".join(f"{{ i64, ptr }} {{ i64 {rows}, ptr @{name} }}" for (rows, _), name in pairs)
    return f"@{table} = internal constant [{len(tiles)} x {{ i64, ptr }}] [{entries}]"


def _rows_of_tiles(text: Text, count: int, call: _TileCall, rows: str) -> None:
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
    some = text.value(f"icmp slt i64 {number}, {count}")
    text.line(f"br i1 {some}, label %{tiles}.entry, label %{done}")
    text.open(f"{tiles}.entry")
    entry = text.moved(call.left.tiles, (number, 16))
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
    begins = text.value(f"icmp eq i64 {row}.here, 0")
    ahead = text.value(f"select i1 {begins}, i64 {call.next_panel}, i64 0")
    text.line(
        f"call void {function}(ptr {left}.here, i64 {call.left.row}, i64 {call.left.step}, ptr {call.right},"
        f" i64 {w['right_step']}, ptr {out}, i64 {w['out_row']}, i64 {call.depth}, i64 {call.width}, i64 {ahead},"
        f" i1 {call.adds})"
    )
    text.line(f"{left}.next = getelementptr i8, ptr {left}.here, i64 {move}")
    text.line(f"br label %{tiles}")
    text.open(after)
    text.line(f"{number}.next = add i64 {number}, 1")
    text.line(f"br label %{head}")
    text.open(done)


# --- few rows times columns ------------------------------------------------------------------------------------------


def _dot(shapes: TileShapes) -> str:
    """Few rows times a matrix whose columns lie along memory: item i is a block of columns."""
    text = Text()
    vector = f"<{shapes.lanes} x {shapes.element}>"
    w = text.words(DOT_WORDS)
    with text.loop("%begin", "%end", 1) as item:
        number = text.value(f"urem i64 {item}, {w['column_blocks']}")
        matrix = text.value(f"udiv i64 {item}, {w['column_blocks']}")
        first = text.value(f"mul i64 {number}, {w['column_block']}")
        last = text.least(text.value(f"add i64 {first}, {w['column_block']}"), w["columns"])
        left, matrix_at = _matrices(text, w, matrix)
        out = text.moved(w["out"], (matrix, w["out_matrix"]))
        with text.loop(first, last, 1) as column:
            right = text.moved(matrix_at, (column, w["right_column"]))
            with text.loop("0", w["rows"], 1) as row:
                left_row = text.moved(left, (row, w["left_row"]))
                total = _dot_product(text, shapes, left_row, right, w["inner"])
                value = text.value(
                    f"call reassoc {shapes.element} @llvm.vector.reduce.fadd.v{shapes.lanes}f{shapes.bytes * 8}"
                    f"({shapes.element} 0.0, {vector} {total})"
                )
                place = text.moved(out, (row, w["out_row"]), (column, shapes.bytes))
                text.line(f"store {shapes.element} {value}, ptr {place}")
    return kernel_text("dot", text)


_DOT_VECTORS = 4  # sums side by side, so that none waits for the one before


def _dot_product(text: Text, shapes: TileShapes, left: str, right: str, inner: str) -> str:
    """The vector of sums of two lines of numbers: whole steps, then what is left under masks."""
    vector, step = f"<{shapes.lanes} x {shapes.element}>", _DOT_VECTORS * shapes.lanes
    whole = text.value(f"sub i64 {inner}, {step - 1}")
    before, head, body, rest, last = text.block, *(text.label(hint) for hint in ("head", "body", "rest", "last"))
    row, sums = f"%{head}.row", [f"%{head}.sum{number}" for number in range(_DOT_VECTORS)]
    text.go(head)
    text.line(f"{row} = phi i64 [ 0, %{before} ], [ {row}.next, %{body} ]")
    for own in sums:
        text.line(f"{own} = phi {vector} [ zeroinitializer, %{before} ], [ {own}.next, %{body} ]")
    text.line(f"br i1 {text.value(f'icmp slt i64 {row}, {whole}')}, label %{body}, label %{rest}")
    text.open(body)
    _add_products(text, shapes, (left, right), row, sums, [f"{own}.next" for own in sums], None)
    text.line(f"{row}.next = add i64 {row}, {step}")
    text.line(f"br label %{head}")
    text.open(rest)
    masks = column_masks(text, shapes, text.value(f"sub i64 {inner}, {row}"), _DOT_VECTORS)
    ends = [f"%{last}.sum{number}" for number in range(_DOT_VECTORS)]
    _add_products(text, shapes, (left, right), row, sums, ends, masks)
    while len(ends) > 1:
        ends = [text.value(f"fadd {vector} {a}, {b}") for a, b in zip(ends[::2], ends[1::2], strict=True)]
    return ends[0]


def _add_products(
    text: Text, shapes: TileShapes, pointers: tuple[str, str], row: str, sums: list[str], results: list[str],
    masks: list[str] | None,
) -> None:  # fmt: skip
    left, right = (text.moved(pointer, (row, shapes.bytes)) for pointer in pointers)
    for number, (own, result) in enumerate(zip(sums, results, strict=True)):
        a, b = (load_vector(text, shapes, at, number, masks) for at in (left, right))
        multiply_add(text, shapes, a, b, own, result)
