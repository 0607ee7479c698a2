"""Matrix products as LLVM IR. In: an element type and the processor features. Out: the text of a module.

Called by `matmul.py`, which compiles it once. The code serves all sizes and strides, which are argument slots.

The summation order of an element does not depend on its tile, so results depend only on the operands. Operands are read
in place, or packed so that tiles read contiguous memory: blocks of the left operand by each work item; panels of the
right operand, as wide as a tile, before the product or by each work item.
"""

from __future__ import annotations

from dataclasses import dataclass

from livegrad.codegen.llvm.matmul.blocks import LINE, TileCall, left_block, rows_of_tiles, table_of
from livegrad.codegen.llvm.matmul.convolution_module import convolve_kernel
from livegrad.codegen.llvm.matmul.dot_products import dot_kernel
from livegrad.codegen.llvm.matmul.matmul_tiles import Tile
from livegrad.codegen.llvm.matmul.packing import (
    PANEL_PARAMETERS,
    Panel,
    call_pack,
    pack_block,
    pack_kernel,
    pack_panel,
    sum_kernel,
    turn_squares,
)
from livegrad.codegen.llvm.vector_builder import BATCH_WORDS, Text, TileShapes, find_matrices, kernel_text

MULTIPLY_WORDS = (
    "left", "right", "out", "rows", "columns", "inner",
    "left_row", "left_step",  # in bytes, as all distances here
    "right_step", "right_column", "right_panel", "out_row", "out_matrix",  # right_panel 0: not packed beforehand
    *BATCH_WORDS,
    "row_block", "row_blocks", "column_block", "column_blocks", "depth", "chunk",  # rows of a block taken at once
    "scratch", "scratch_bytes",  # of each worker, to pack blocks of the operands; for 0 bytes they are read in place
    "left_bytes", "right_bytes",
)  # fmt: skip


def module_text(shapes: TileShapes, kernel: str) -> str:
    """One kernel, with all that it calls: `pack`, `sum`, `dot`, or `multiply_` or `convolve_` and how many vectors
    wide its tiles are.
    Each is a module of its own, so that who needs only one does not wait for the others to be compiled; the last ones
    import `pack_panel` from the first."""
    vector, lanes, suffix = shapes.vector, shapes.lanes, shapes.suffix
    width = shapes.vector_bytes * 8
    parts = [
        "declare i64 @llvm.smin.i64(i64, i64)",
        "declare i64 @llvm.smax.i64(i64, i64)",
        "declare void @llvm.prefetch.p0(ptr, i32, i32, i32)",
        f"declare {vector} @llvm.fma.{suffix}({vector}, {vector}, {vector})",
        f"declare {vector} @llvm.masked.load.{suffix}.p0(ptr, i32, <{lanes} x i1>, {vector})",
        f"declare void @llvm.masked.store.{suffix}.p0({vector}, ptr, i32, <{lanes} x i1>)",
        f"declare {vector} @llvm.masked.gather.{suffix}.v{lanes}p0(<{lanes} x ptr>, i32, <{lanes} x i1>, {vector})",
    ]
    if kernel == "pack":
        parts += [turn_squares(shapes), pack_panel(shapes), pack_kernel(shapes)]
    elif kernel == "sum":
        parts.append(sum_kernel(shapes))
    elif kernel == "dot":
        parts += dot_kernel(shapes)
    else:
        name, width_of_tiles = kernel.split("_")
        vectors = int(width_of_tiles)
        heights = shapes.heights_of(vectors)
        tiles = [Tile(shapes, height, vectors) for height in heights]
        parts += [tile.function() for tile in tiles]
        parts += [table_of(tiles), f"declare void @pack_panel({PANEL_PARAMETERS})", pack_block(shapes, heights[0])]
        windows = name == "convolve"
        parts += convolve_kernel(kernel, shapes, vectors) if windows else [_multiply(kernel, shapes, vectors)]
    common = f'nounwind "prefer-vector-width"="{width}" "min-legal-vector-width"="{width}"'
    parts += [f'attributes #0 = {{ {common} "stackrealign" }}', f"attributes #1 = {{ {common} }}"]  # tiles do not spill
    return "\n".join(parts)


def _multiply(name: str, shapes: TileShapes, vectors: int) -> str:
    """Item i is a block of rows and columns of a matrix: blocks of columns first, then of rows, then matrices."""
    text, wide, heights = Text(), shapes.panel(vectors), shapes.heights_of(vectors)
    w = text.words(MULTIPLY_WORDS)
    scratch = text.moved(w["scratch"], ("%worker", w["scratch_bytes"]))
    reads_panels = text.value(f"icmp ne i64 {w['right_panel']}, 0")
    with text.loop("%begin", "%end", 1) as item:
        column_number = text.value(f"urem i64 {item}, {w['column_blocks']}")
        rest = text.value(f"udiv i64 {item}, {w['column_blocks']}")
        row_number = text.value(f"urem i64 {rest}, {w['row_blocks']}")
        matrix = text.value(f"udiv i64 {rest}, {w['row_blocks']}")
        first_row = text.value(f"mul i64 {row_number}, {w['row_block']}")
        last_row = text.least(w["rows"], text.value(f"add i64 {first_row}, {w['row_block']}"))
        left, right = find_matrices(text, w, matrix)
        out = text.moved(w["out"], (matrix, w["out_matrix"]))
        shift = _shift(text, shapes, w, right, reads_panels, wide)
        first_column = text.value(f"mul i64 {column_number}, {w['column_block']}")
        last = text.value(f"add i64 {first_column}, {w['column_block']}")
        last_column = text.least(last, text.value(f"add i64 {w['columns']}, {shift}"))
        with text.loop("0", w["inner"], w["depth"]) as inner:
            depth = text.least(w["depth"], text.value(f"sub i64 {w['inner']}, {inner}"))
            adds = text.value(f"icmp ne i64 {inner}, 0")
            right_here = text.moved(right, (inner, w["right_step"]))
            panels = _right_block(text, shapes, w, right_here, scratch, (first_column, last_column), depth, wide)
            with text.loop(first_row, last_row, w["chunk"]) as chunk:
                rows = text.least(w["chunk"], text.value(f"sub i64 {last_row}, {chunk}"))
                left_here = text.moved(left, (chunk, w["left_row"]), (inner, w["left_step"]))
                block = left_block(text, shapes, w, left_here, scratch, rows, depth, heights[0])
                with text.loop(first_column, last_column, wide) as place:
                    # Places count from before the first column where its row does not begin at a cache line.
                    column = text.most(text.value(f"sub i64 {place}, {shift}"), "0")
                    panel_end = text.value(f"sub i64 {text.value(f'add i64 {place}, {wide}')}, {shift}")
                    width = text.value(f"sub i64 {text.least(panel_end, w['columns'])}, {column}")
                    panel_at = panels.place(text, shapes, column, wide)
                    out_at = text.moved(out, (chunk, w["out_row"]), (column, shapes.bytes))
                    call = TileCall(w, block, panel_at, panels.panel, panels.step, out_at, depth, width, adds)
                    rows_of_tiles(text, heights, call, rows, -(-wide * shapes.bytes // LINE))
    return kernel_text(name, text)


@dataclass(frozen=True)
class _RightBlock:
    """Where panels of the right operand lie: in place, or packed."""

    in_place: str
    packed: str
    is_packed: str
    first_column: str  # of the packed panels
    panel: str  # bytes from panel to panel
    step: str  # and from one inner element to the next

    def place(self, text: Text, shapes: TileShapes, column: str, wide: int) -> str:
        in_place = text.moved(self.in_place, (column, shapes.bytes))
        number = text.value(f"udiv i64 {text.value(f'sub i64 {column}, {self.first_column}')}, {wide}")
        packed = text.moved(self.packed, (number, self.panel))
        return text.value(f"select i1 {self.is_packed}, ptr {packed}, ptr {in_place}")


def _right_block(
    text: Text, shapes: TileShapes, w: dict[str, str], source: str, scratch: str, columns: tuple[str, str], depth: str,
    wide: int,
) -> _RightBlock:  # fmt: skip
    """The panels of an item's columns; those that are not read in place nor packed beforehand are packed here."""
    first, last = columns
    packs = text.value(f"icmp ne i64 {w['right_bytes']}, 0")
    reads_panels = text.value(f"icmp ne i64 {w['right_panel']}, 0")
    line = wide * shapes.bytes
    size = text.value(f"mul i64 {depth}, {line}")
    target = text.moved(scratch, (w["left_bytes"], 1))
    pack, done = text.label("pack"), text.label("packed")
    text.line(f"br i1 {packs}, label %{pack}, label %{done}")
    text.open(pack)
    with text.loop(first, last, wide) as column:
        number = text.value(f"udiv i64 {text.value(f'sub i64 {column}, {first}')}, {wide}")
        count = text.least(text.value(f"sub i64 {last}, {column}"), str(wide))
        panel = Panel(
            text.moved(source, (column, w["right_column"])), w["right_step"], w["right_column"], count, depth,
            text.moved(target, (number, size)), str(line),
        )  # fmt: skip
        call_pack(text, panel)
    text.line(f"br label %{done}")
    text.open(done)
    beforehand = text.value(f"select i1 {reads_panels}, i64 {w['right_panel']}, i64 {line}")
    return _RightBlock(
        source,
        text.value(f"select i1 {packs}, ptr {target}, ptr {source}"),
        text.value(f"or i1 {packs}, {reads_panels}"),
        text.value(f"select i1 {packs}, i64 {first}, i64 0"),
        text.value(f"select i1 {packs}, i64 {size}, i64 {beforehand}"),
        text.value(f"select i1 {packs}, i64 {line}, i64 {w['right_step']}"),
    )


def _shift(text: Text, shapes: TileShapes, w: dict[str, str], right: str, reads_panels: str, wide: int) -> str:
    """How many columns the first panel lacks, so that the others begin at cache lines: half of all loads would
    otherwise read two. Only where every row begins at the same distance from one."""
    line = shapes.vector_bytes
    address = text.value(f"ptrtoint ptr {right} to i64")
    past = text.value(f"urem i64 {address}, {line}")
    columns = text.value(f"udiv i64 {past}, {shapes.bytes}")
    uneven = text.value(f"urem i64 {w['right_step']}, {line}")
    odd = text.value(f"urem i64 {past}, {shapes.bytes}")
    either = text.value(f"or i64 {uneven}, {odd}")
    few = text.value(f"icmp ule i64 {w['columns']}, {wide}")
    is_copied = text.value("icmp ne i64 " + w["right_bytes"] + ", 0")
    packs = text.value(f"or i1 {reads_panels}, {is_copied}")
    never = text.value(f"or i1 {text.value(f'icmp ne i64 {either}, 0')}, {packs}")
    return text.value(f"select i1 {text.value(f'or i1 {never}, {few}')}, i64 0, i64 {columns}")
