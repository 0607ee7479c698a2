"""Plans launches of matrix product kernels: splits the work into items, and fills the argument slots.

Called by `runtime/cpu/native/matmul.py`, which chooses the algorithm. All decisions depend only on sizes and strides.
"""

from __future__ import annotations

from typing import NamedTuple

from livegrad.codegen.llvm.matmul.dot_products import DOT_SLOTS
from livegrad.codegen.llvm.matmul.matmul_module import MULTIPLY_SLOTS
from livegrad.codegen.llvm.matmul.packing import PACK_SLOTS, ROW_PADDING, SUM_SLOTS
from livegrad.codegen.llvm.matmul.product import Launch, Launches, Operand, OperandName, Product
from livegrad.codegen.llvm.matmul.tile_shapes import TileShapes
from livegrad.ir.dimension import round_up

# Inner elements that a tile sums at once. It depends on sizes alone, because it determines how sums are rounded. Of a
# packed operand: as many as fit in the second-level cache with their panels. Of one read in place: fewer, because each
# is on another page; and very few if its rows are long, because memory is fastest when few rows are read side by side.
DEPTH, IN_PLACE_DEPTH, LONG_ROWS_DEPTH = 512, 128, 32
LONG_ROW_BYTES, SHORT_LINE_BYTES = 8192, 512
# A block of rows of the left operand stays in the second-level cache, and so do the panels that an item packs.
LEAST_ROWS, MOST_ROW_BYTES = 96, 1536
COLUMN_BYTES = 4096
MOST_PANELS, CHUNK = 4, 96
FEWEST_ITEMS = 6  # of a product that threads share
ONE_ITEM = 1 << 18  # multiplications: below this a second thread costs more than it saves
SUM_BLOCK = 4096
DOT_ROW_BYTES = 1 << 14  # of the left operand that an item of dot products reads once for each tile of columns


def dot(product: Product, shapes: TileShapes, along: bool, rows_of_item: int | None) -> Launches:
    if not along:
        return _dot_packed(product, shapes, rows_of_item)
    row_block, column_block, grain = _dot_items(product, shapes, rows_of_item)
    row_blocks, column_blocks = -(-product.rows // row_block), -(-product.columns // column_block)
    values: dict[str, int | OperandName] = {
        "left": "left", "right": "right", "out": "out", "rows": product.rows, "columns": product.columns,
        "inner": product.inner, "left_row": product.left.row, "out_row": product.columns * shapes.bytes,
        "right_column": product.right.column,
        **_batch(product), "out_matrix": product.rows * product.columns * shapes.bytes,
        "row_block": row_block, "row_blocks": row_blocks,
        "column_block": column_block, "column_blocks": column_blocks,
    }  # fmt: skip
    total = product.matrices * row_blocks * column_blocks
    return Launches((Launch("dot", tuple([values[name] for name in DOT_SLOTS]), total, grain),))


def _dot_items(product: Product, shapes: TileShapes, rows_of_item: int | None) -> tuple[int, int, int]:
    """The rows and columns of an item, and how many items a thread takes at once."""
    if rows_of_item is not None:
        return rows_of_item, product.columns, 1
    rows, columns, inner = product.rows, product.columns, product.inner
    if rows > columns:
        most = -(-rows // min(64, rows * columns * inner // ONE_ITEM + 1))
        line = max(1, inner * shapes.bytes)
        if columns * line <= 2 * DOT_ROW_BYTES:
            # Each tile of columns reads all rows of its item: they stay in the first-level cache, beside the columns.
            most = min(most, DOT_ROW_BYTES // line)
        rows = min(rows, round_up(max(1, most), 4))
    elif rows * columns * inner > ONE_ITEM:
        columns = round_up(-(-columns // min(64, rows * columns * inner // ONE_ITEM + 1)), 4)
    return rows, columns, max(1, ONE_ITEM // max(1, rows * columns * inner))


def _dot_packed(product: Product, shapes: TileShapes, rows_of_item: int | None) -> Launches:
    """Transposes the right operand first."""
    line = product.inner * shapes.bytes
    matrix = product.columns * line
    copies = copies_of(product, matrix)
    copy = pack(
        "right", "workspace", lines=product.columns, columns=product.inner, matrices=copies.matrices, shapes=shapes,
        vectors=4, source=copies.source.transposed, step=line, panel=shapes.panel(4) * shapes.bytes, matrix=matrix,
    )  # fmt: skip
    packed = Operand(shapes.bytes, line, copies.matrix, copies.outer)
    run = dot(product._replace(right=packed), shapes, True, rows_of_item).steps[0]
    return Launches((copy, run.with_operands({"right": "workspace"})), copies.matrices * matrix)


class Copies(NamedTuple):
    """The distinct matrices of a right operand: their number, the source strides, and the strides of their copies."""

    matrices: int
    source: Operand
    matrix: int
    outer: int


def different_matrices(product: Product) -> int:
    """The number of distinct matrices of the right operand."""
    right, inner = product.right, product.inner_matrices
    return (inner if right.matrix else 1) * (product.matrices // inner if right.outer else 1)


def copies_of(product: Product, size: int) -> Copies:
    """The copies to pack: a matrix that is broadcast along a dimension of the batch is packed once."""
    right, inner = product.right, product.inner_matrices
    inner_count, outer_count = inner if right.matrix else 1, product.matrices // inner if right.outer else 1
    source = Operand(right.row, right.column, right.matrix or right.outer, 0)
    matrix, outer = size if inner_count > 1 else 0, size * inner_count if right.outer else 0
    return Copies(inner_count * outer_count, source, matrix, outer)


def multiply_packed(product: Product, shapes: TileShapes, vectors: int, row_block: int | None) -> Launches:
    """Packs the right operand into panels, then multiplies."""
    panels = -(-product.columns // shapes.panel(vectors))
    step = shapes.panel(vectors) * shapes.bytes
    panel, matrix = product.inner * step, panels * product.inner * step
    copies = copies_of(product, matrix)
    copy = pack(
        "right", "workspace", lines=product.inner, columns=product.columns, matrices=copies.matrices,
        shapes=shapes, vectors=vectors, source=copies.source, step=step, panel=panel, matrix=matrix,
    )  # fmt: skip
    packed = Operand(step, shapes.bytes, copies.matrix, copies.outer)
    items = items_of(product, shapes, vectors, row_block)
    run = multiply(product._replace(right=packed), shapes, vectors, items, "workspace", panel)
    return Launches((copy, *run.steps), copies.matrices * matrix, run.scratch)


def pack(
    source_name: OperandName, target: OperandName, *, lines: int, columns: int, matrices: int, shapes: TileShapes,
    vectors: int, source: Operand, step: int, panel: int, matrix: int,
) -> Launch:  # fmt: skip
    """Packs matrices panel by panel; `step`, `panel` and `matrix` are strides of the target."""
    wide = shapes.panel(vectors)
    panels = -(-columns // wide)
    values: dict[str, int | OperandName] = {
        "right": source_name, "packed": target, "columns": columns, "inner": lines,
        "right_step": source.row, "right_column": source.column, "right_matrix": source.matrix,
        "packed_step": step, "packed_panel": panel, "packed_matrix": matrix, "panel": wide, "panels": panels,
    }  # fmt: skip
    grain = max(1, (1 << 15) // max(1, lines * wide))
    return Launch("pack", tuple([values[name] for name in PACK_SLOTS]), panels * matrices, grain)


class Items(NamedTuple):
    """How the work of a product is split into items."""

    rows: int  # of one item
    columns: int
    chunk: int  # rows of a block of the left operand
    grain: int = 1  # items that a thread takes at once
    packs_right: bool = False  # each item packs its panels of the right operand


def multiply(
    product: Product, shapes: TileShapes, vectors: int, items: Items, right: OperandName = "right", panel_bytes: int = 0
) -> Launches:
    rows, columns, in_place = product.rows, product.columns, not panel_bytes and not items.packs_right
    depth, height = _depth(product, in_place), shapes.heights_of(vectors)[0]
    line = depth * shapes.bytes
    # Panels read in place may begin before the first column: see `_shift` of `matmul_module.py`.
    most = columns + shapes.lanes - 1 if in_place and columns > shapes.panel(vectors) else columns
    row_blocks, column_blocks = -(-rows // items.rows), -(-most // items.columns)
    left_bytes = right_bytes = 0
    if packs_left(product, shapes):
        left_bytes = round_up(max(round_up(items.chunk, height) * line, items.chunk * (line + ROW_PADDING)), 64)
    if items.packs_right:
        right_bytes = round_up(items.columns * line, 64)
    values: dict[str, int | OperandName] = {
        "left": "left", "right": right, "out": "out", "rows": rows, "columns": columns, "inner": product.inner,
        "left_row": product.left.row, "left_step": product.left.column,
        "right_step": product.right.row, "right_column": product.right.column, "right_panel": panel_bytes,
        **_batch(product),
        "out_row": columns * shapes.bytes, "out_matrix": rows * columns * shapes.bytes,
        "row_block": items.rows, "row_blocks": row_blocks,
        "column_block": items.columns, "column_blocks": column_blocks, "depth": depth, "chunk": items.chunk,
        "scratch": "scratch", "scratch_bytes": left_bytes + right_bytes,
        "left_bytes": left_bytes, "right_bytes": right_bytes,
    }  # fmt: skip
    total = product.matrices * row_blocks * column_blocks
    run = Launch(f"multiply_{vectors}", tuple([values[name] for name in MULTIPLY_SLOTS]), total, items.grain)
    return Launches((run,), 0, left_bytes + right_bytes)


def packs_left(product: Product, shapes: TileShapes) -> bool:
    """Whether blocks of the left operand are packed before they are read.

    They are if its rows are strided, unless lines are short; and if all rows map to the same sets of the cache.
    """
    left = product.left
    if product.rows == 1:
        return False
    if left.column != shapes.bytes:
        return left.row != shapes.bytes or left.column > SHORT_LINE_BYTES
    return left.row % 4096 == 0 and product.columns > 2 * shapes.lanes


def _depth(product: Product, in_place: bool) -> int:
    """The number of inner elements that a tile sums at once, about equal for all blocks."""
    reads_long = product.right.row >= LONG_ROW_BYTES
    most = DEPTH if not in_place else LONG_ROWS_DEPTH if reads_long else IN_PLACE_DEPTH
    return -(-product.inner // -(-product.inner // most))


def items_of(product: Product, shapes: TileShapes, vectors: int, row_block: int | None) -> Items:
    """Splits a product into items by its sizes alone, so that items do not depend on the number of threads."""
    rows, columns, panel = product.rows, product.columns, shapes.panel(vectors)
    all_columns = round_up(columns, panel) + panel
    if row_block is not None:
        return Items(row_block, all_columns, row_block)
    work = rows * columns * product.inner
    if work <= ONE_ITEM:
        return Items(rows, all_columns, rows, max(1, ONE_ITEM // max(1, work)))
    highest = shapes.heights_of(vectors)[0]
    column_block = min(round_up(columns, panel), round_up(COLUMN_BYTES // shapes.bytes, panel))
    column_blocks = product.matrices * -(-columns // column_block)
    # Items have many rows, because each reads all of the right operand, but there are enough items for some threads.
    most = min(MOST_ROW_BYTES // shapes.bytes, rows * column_blocks // (FEWEST_ITEMS + 2))
    row_blocks = -(-rows // max(LEAST_ROWS, most))
    if column_blocks * row_blocks < FEWEST_ITEMS:
        if rows >= columns or (packs_left(product, shapes) and rows >= FEWEST_ITEMS * highest):
            row_blocks = min(-(-FEWEST_ITEMS // column_blocks), -(-rows // highest))
        else:
            column_splits = -(-FEWEST_ITEMS // (product.matrices * row_blocks))
            column_block = round_up(-(-columns // column_splits), panel)
    item_rows = -(-rows // row_blocks)
    item_rows = min(rows, round_up(item_rows, highest if item_rows >= 4 * highest else 4))
    return Items(item_rows, column_block, item_rows)


def items_with_panels(product: Product, shapes: TileShapes, vectors: int) -> Items:
    """Splits a product into items that pack their own panels of the right operand.

    They have few columns, whose panels stay in the second-level cache, and many rows that read them.
    """
    rows, panels, highest = product.rows, -(-product.columns // shapes.panel(vectors)), shapes.heights_of(vectors)[0]
    item_panels = max(1, min(MOST_PANELS, product.matrices * panels // (FEWEST_ITEMS + 2)))
    column_blocks = product.matrices * -(-panels // item_panels)
    row_blocks = max(1, min(-(-FEWEST_ITEMS // column_blocks), rows // (2 * LEAST_ROWS)))
    row_block = min(rows, round_up(-(-rows // row_blocks), highest))
    return Items(row_block, item_panels * shapes.panel(vectors), min(row_block, round_up(CHUNK, highest)), 1, True)


def _batch(product: Product) -> dict[str, int | OperandName]:
    return {
        "left_matrix": product.left.matrix, "left_outer": product.left.outer,
        "right_matrix": product.right.matrix, "right_outer": product.right.outer,
        "inner_matrices": product.inner_matrices,
    }  # fmt: skip


def sum_of_parts(count: int, size: int, shapes: TileShapes) -> Launch:
    """Adds `count` consecutive partial products."""
    values: dict[str, int | OperandName] = {
        "packed": "between", "out": "out", "parts": count, "part": size * shapes.bytes, "size": size,
        "block": SUM_BLOCK,
    }  # fmt: skip
    return Launch("sum", tuple([values[name] for name in SUM_SLOTS]), -(-size // SUM_BLOCK), 1)
