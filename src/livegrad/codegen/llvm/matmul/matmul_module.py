"""Emits matrix products as LLVM IR. In: an element type and the processor's features. Out: the text of a module.

`runtime/cpu/native/matmul.py` compiles each module once: sizes and strides are argument slots.

The summation order of an element does not depend on its tile, so results depend only on the operands. Operands are read
in place, or packed so that tiles read contiguous memory: each work item packs blocks of the left operand; panels of the
right operand, as wide as a tile, are packed before the product or by each work item.
"""

from __future__ import annotations

from dataclasses import dataclass

from livegrad.codegen.llvm.matmul.blocks import LINE, TileCall, define_table, left_block, rows_of_tiles
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
    transpose_squares,
)
from livegrad.codegen.llvm.matmul.tile_shapes import TileShapes
from livegrad.codegen.llvm.matmul.tile_vectors import BATCH_SLOTS, OPERAND_SLOTS, Slots, find_matrices
from livegrad.codegen.llvm.registers import llvm_element, pointer
from livegrad.codegen.llvm.values import LlvmModule, PoolKernel, Value, counting, integer, largest, smallest, when
from livegrad.ir.types import i64

MULTIPLY_SLOTS = {
    **OPERAND_SLOTS, "rows": i64, "columns": i64, "inner": i64,
    "left_row": i64, "left_step": i64,  # in bytes, like all strides here
    "right_step": i64, "right_column": i64,
    "right_panel": i64,  # 0: not packed beforehand
    "out_row": i64, "out_matrix": i64,
    **BATCH_SLOTS,
    "row_block": i64, "row_blocks": i64, "column_block": i64, "column_blocks": i64, "depth": i64,
    "chunk": i64,  # rows of a block taken at once
    # Memory of each worker for packed blocks; an operand with 0 bytes is read in place.
    "scratch": pointer, "scratch_bytes": i64, "left_bytes": i64, "right_bytes": i64,
}  # fmt: skip


def module_text(shapes: TileShapes, kernel: str) -> str:
    """The module of one kernel: `pack`, `sum`, `dot`, or `multiply_` or `convolve_` and the width of tiles in vectors.

    Each kernel has a module of its own, so that a product compiles only the code it needs. `multiply_` and `convolve_`
    import `pack_panel` from `pack`.
    """
    module = LlvmModule()
    if kernel == "pack":
        transpose_squares(module, shapes)
        pack_panel(module, shapes)
        pack_kernel(module)
    elif kernel == "sum":
        sum_kernel(module, shapes)
    elif kernel == "dot":
        dot_kernel(module, shapes)
    else:
        name, width_of_tiles = kernel.split("_")
        vectors = int(width_of_tiles)
        heights = shapes.heights_of(vectors)
        define_table(module, [Tile(module, shapes, height, vectors) for height in heights])
        parameters = ", ".join(map(llvm_element, PANEL_PARAMETERS.values()))
        module.declarations.add(f"declare void @pack_panel({parameters})")
        pack_block(module, shapes, heights[0])
        write = convolve_kernel if name == "convolve" else _multiply_kernel
        write(module, kernel, shapes, vectors)
    width = shapes.vector_bytes * 8
    common = f'nounwind "prefer-vector-width"="{width}" "min-legal-vector-width"="{width}"'
    # Tiles do not spill, so their stack needs no alignment.
    return module.text(f'attributes #0 = {{ {common} "stackrealign" }}', f"attributes #1 = {{ {common} }}")


def _multiply_kernel(module: LlvmModule, name: str, shapes: TileShapes, vectors: int) -> None:
    """Defines the kernel. Items are blocks of rows and columns of a matrix; column blocks are numbered first."""
    kernel, wide, heights = PoolKernel(module, name), shapes.panel(vectors), shapes.heights_of(vectors)
    w = kernel.arguments(MULTIPLY_SLOTS)
    scratch = w["scratch"] + kernel.worker * w["scratch_bytes"]
    reads_panels = w["right_panel"].compare("ne", 0)
    with counting(kernel.begin, kernel.end) as item:
        column_number, rest = item % w["column_blocks"], item // w["column_blocks"]
        row_number, matrix = rest % w["row_blocks"], rest // w["row_blocks"]
        first_row = row_number * w["row_block"]
        last_row = smallest(w["rows"], first_row + w["row_block"])
        left, right = find_matrices(w, matrix)
        out = w["out"] + matrix * w["out_matrix"]
        shift = _shift(shapes, w, right, reads_panels, wide)
        first_column = column_number * w["column_block"]
        last = first_column + w["column_block"]
        last_column = smallest(last, w["columns"] + shift)
        with counting(0, w["inner"], w["depth"]) as inner:
            depth = smallest(w["depth"], w["inner"] - inner)
            adds = inner.compare("ne", 0)
            right_start = right + inner * w["right_step"]
            panels = _right_block(shapes, w, right_start, scratch, (first_column, last_column), depth, wide)
            with counting(first_row, last_row, w["chunk"]) as chunk:
                rows = smallest(w["chunk"], last_row - chunk)
                left_start = left + chunk * w["left_row"] + inner * w["left_step"]
                block = left_block(shapes, w, left_start, scratch, rows, depth, heights[0])
                with counting(first_column, last_column, wide) as first_of_tile:
                    # If rows do not begin at cache lines, the first tile begins `shift` columns before the matrix.
                    column = largest(first_of_tile - shift, 0)
                    width = smallest(first_of_tile + wide - shift, w["columns"]) - column
                    panel = panels.address(shapes, column, wide)
                    out_start = out + chunk * w["out_row"] + column * shapes.bytes
                    call = TileCall(w, block, panel, panels.panel, panels.step, out_start, depth, width, adds)
                    rows_of_tiles(heights, call, rows, -(-wide * shapes.bytes // LINE))
    kernel.finish(exported=True)


@dataclass(frozen=True)
class _RightBlock:
    """Panels of the right operand, in place or packed."""

    unpacked: Value
    packed: Value
    is_packed: Value
    first_column: Value  # of the packed panels
    panel: Value  # bytes from panel to panel
    step: Value  # bytes from one inner element to the next

    def address(self, shapes: TileShapes, column: Value, wide: int) -> Value:
        unpacked = self.unpacked + column * shapes.bytes
        packed = self.packed + (column - self.first_column) // wide * self.panel
        return self.is_packed.select(packed, unpacked)


def _right_block(
    shapes: TileShapes, w: Slots, source: Value, scratch: Value, columns: tuple[Value, Value], depth: Value, wide: int
) -> _RightBlock:
    """The panels of an item's columns; packs them unless they are read in place or were packed before the product."""
    first, last = columns
    packs = w["right_bytes"].compare("ne", 0)
    reads_panels = w["right_panel"].compare("ne", 0)
    line = integer(depth.builder, wide * shapes.bytes)
    size = depth * line
    target = scratch + w["left_bytes"]
    with when(packs), counting(first, last, wide) as column:
        number = (column - first) // wide
        count = smallest(last - column, wide)
        start = source + column * w["right_column"]
        call_pack(Panel(start, w["right_step"], w["right_column"], count, depth, target + number * size, line))
    beforehand = reads_panels.select(w["right_panel"], line)
    return _RightBlock(
        source,
        packs.select(target, source),
        packs | reads_panels,
        packs.select(first, 0),
        packs.select(size, beforehand),
        packs.select(line, w["right_step"]),
    )


def _shift(shapes: TileShapes, w: Slots, right: Value, reads_panels: Value, wide: int) -> Value:
    """The number of columns by which the first panel is shorter, so that the others begin at cache lines.

    Otherwise half of all loads would cross a line. It is 0 unless all rows have the same offset from a line.
    """
    line = shapes.vector_bytes
    offset = right.convert("ptrtoint", i64) % line
    columns = offset // shapes.bytes
    misaligned = (w["right_step"] % line) | (offset % shapes.bytes)
    few = w["columns"].compare("ule", wide)
    packs = reads_panels | w["right_bytes"].compare("ne", 0)
    never = misaligned.compare("ne", 0) | packs
    return (never | few).select(integer(offset.builder, 0), columns)
