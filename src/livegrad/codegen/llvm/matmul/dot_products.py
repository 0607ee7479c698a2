"""Emits matrix products as dot products, for operands that are both contiguous along the inner dimension.

Called by `matmul_module.py`. Four rows by four columns are summed at once, so that each loaded vector is used four
times; only two rows if there are not enough registers. The summation order of an element does not depend on its tile.
"""

from __future__ import annotations

from livegrad.codegen.llvm.counted_loops import OpenLoop
from livegrad.codegen.llvm.matmul.tile_shapes import TileShapes
from livegrad.codegen.llvm.matmul.tile_vectors import (
    BATCH_SLOTS,
    OPERAND_SLOTS,
    column_masks,
    find_matrices,
    load_vector,
    multiply_add,
)
from livegrad.codegen.llvm.registers import Register, pointer
from livegrad.codegen.llvm.values import LlvmModule, PoolKernel, Procedure, Value, call, counting, smallest
from livegrad.ir.types import i64

DOT_SLOTS = {
    **OPERAND_SLOTS,
    "rows": i64, "columns": i64, "inner": i64, "left_row": i64, "right_column": i64, "out_row": i64, "out_matrix": i64,
    "row_block": i64, "row_blocks": i64, "column_block": i64, "column_blocks": i64,
    **BATCH_SLOTS,
}  # fmt: skip
DOT_WIDTHS = (4, 2, 1)  # columns of a tile
_PARAMETERS = {
    "left": pointer, "left_row": i64, "right": pointer, "right_column": i64, "out": pointer, "out_row": i64,
    "inner": i64,
}  # fmt: skip


def dot_kernel(module: LlvmModule, shapes: TileShapes) -> None:
    """Defines the kernel and its tiles. An item is a block of rows and columns of a matrix."""
    for height in shapes.dot_heights:
        for width in DOT_WIDTHS:
            _define_tile(module, shapes, height, width)
    kernel = PoolKernel(module, "dot")
    w = kernel.arguments(DOT_SLOTS)
    with counting(kernel.begin, kernel.end) as item:
        number, rest = item % w["column_blocks"], item // w["column_blocks"]
        row_number, matrix = rest % w["row_blocks"], rest // w["row_blocks"]
        left, right = find_matrices(w, matrix)
        out = w["out"] + matrix * w["out_matrix"]
        column = number * w["column_block"]
        last_column = smallest(column + w["column_block"], w["columns"])
        first_row = row_number * w["row_block"]
        last_row = smallest(first_row + w["row_block"], w["rows"])
        for width in DOT_WIDTHS:
            column_end = _whole_end(column, last_column, width)
            with counting(column, column_end, width) as tile_column:
                tile_right = right + tile_column * w["right_column"]
                row = first_row
                for height in shapes.dot_heights:
                    row_end = _whole_end(row, last_row, height)
                    with counting(row, row_end, height) as tile_row:
                        tile_left = left + tile_row * w["left_row"]
                        tile_out = out + tile_row * w["out_row"] + tile_column * shapes.bytes
                        call(
                            f"@dot_{height}x{width}", tile_left, w["left_row"], tile_right, w["right_column"], tile_out,
                            w["out_row"], w["inner"],
                        )  # fmt: skip
                    row = row_end
            column = column_end
    kernel.finish(exported=True)


def _whole_end(first: Value, last: Value, unit: int) -> Value:
    """The end of the whole units from `first` on."""
    return first + ((last - first) & -unit)


def _define_tile(module: LlvmModule, shapes: TileShapes, height: int, width: int) -> None:
    """Defines the dot products of some rows and columns: whole vectors, then the remainder under a mask."""
    function = Procedure(module, f"dot_{height}x{width}", _PARAMETERS)
    builder, p = function.builder, function.parameters
    lefts = [p["left"] + p["left_row"] * row if row else p["left"] for row in range(height)]
    rights = [p["right"] + p["right_column"] * column if column else p["right"] for column in range(width)]
    whole = p["inner"] & -shapes.lanes
    zero = builder.zero(shapes.type, shapes.lanes)
    loop = OpenLoop(builder, [builder.constant(0, i64), *[zero] * (height * width)])
    position, *sums = (Value(builder, register) for register in loop.carried)
    builder.branch((position < whole).register, loop.body, loop.done)
    builder.begin(loop.body)
    following = _add_products(shapes, lefts, rights, position, None, sums)
    loop.close([(position + shapes.lanes).register, *[sum_.register for sum_ in following]])
    (mask,) = column_masks(shapes, p["inner"] - whole, 1)
    sums = _add_products(shapes, lefts, rights, whole, mask, sums)
    for row in range(height):
        out = p["out"] + p["out_row"] * row if row else p["out"]
        for total in _totals(shapes, sums[row * width : (row + 1) * width]):
            builder.store(total, out.register, shapes.bytes)
            out = out + total.lanes * shapes.bytes
    function.finish(attributes="#1")


def _add_products(
    shapes: TileShapes, lefts: list[Value], rights: list[Value], position: Value, mask: Value | None, sums: list[Value]
) -> list[Value]:
    loaded_lefts, loaded_rights = (
        [load_vector(shapes, address + position * shapes.bytes, mask=mask) for address in side]
        for side in (lefts, rights)
    )
    pairs = [(left, right) for left in loaded_lefts for right in loaded_rights]
    return [multiply_add(shapes, *pair, sum_) for pair, sum_ in zip(pairs, sums, strict=True)]


def _totals(shapes: TileShapes, values: list[Value]) -> list[Register]:
    """The sum of the lanes of each vector, packed into vectors.

    Neighbouring lanes are always added first, so a sum does not depend on how many are computed at once.
    """
    builder, vectors = values[0].builder, [value.register for value in values]
    lanes_per_total = shapes.lanes
    while lanes_per_total > 1:
        pairs = list(zip(vectors[::2], vectors[1::2], strict=True)) if len(vectors) > 1 else [(vectors[0], None)]
        vectors = []
        for first, second in pairs:
            lanes = range(0, first.lanes if second is None else 2 * first.lanes, 2)
            even, odd = (builder.shuffle(first, [lane + offset for lane in lanes], second) for offset in (0, 1))
            vectors.append(builder.apply("fadd", shapes.type, even, odd))
        lanes_per_total //= 2
    return vectors
