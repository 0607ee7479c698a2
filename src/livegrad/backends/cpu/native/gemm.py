"""Matrix products by our own code: shapes and strides come in, kernel launches with their argument words go out.

Called by the plan compiler, which puts the launches among a plan's kernels. Everything is decided here, by sizes and
strides alone: what is packed, which operand is turned, and how the work is cut into items.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

from livegrad.backends.cpu.native.compiler import NativeFunction, compile_kernel, host_target
from livegrad.backends.cpu.native.gemm_ir import DOT_WORDS, KERNELS, MULTIPLY_WORDS, module_text
from livegrad.backends.cpu.native.gemm_pack_ir import PACK_WORDS
from livegrad.backends.cpu.native.vector_ir import TileShapes, tile_shapes

KernelName = Literal["multiply", "pack", "multiply_few", "dot"]
PRODUCT_KERNELS = ("multiply", "multiply_few", "dot")  # one of these for each product; the other prepares
Place = Literal["left", "right", "out", "workspace", "between", "scratch"]

PACKED_FROM = 96  # rows: from here on it pays to pack a right operand whose rows are consecutive
PANELS_THAT_PAY = 8  # read the left operand so often, and packing it costs less than it saves
FEW_ROWS = 4  # so many rows times columns that lie along memory are scalar products, one by one
# A panel of the right operand and the rows of a tile stay in the first-level cache, a block of rows in the second.
FIRST_LEVEL_BYTES = {64: 45_056, 32: 30_720, 16: 30_720}  # by the width of vectors: what such processors have
FEW_ROWS_DEPTH = 64  # rows of a right operand that are read side by side, each from end to end
LEAST_ROWS, MOST_ROW_BYTES = 96, 1536
COLUMN_BYTES = 4096
FEWEST_ITEMS = 6  # of a product that is worth sharing
ONE_ITEM = 1 << 18  # multiplications: below this a second thread costs more than it saves


@dataclass(frozen=True)
class Operand:
    """Where the elements of a batch of matrices lie: distances in bytes from row to row, column to column, and from
    one matrix to the next along both dimensions of the batch (0 where all are the same)."""

    row: int
    column: int
    matrix: int
    outer: int

    @property
    def turned(self) -> Operand:
        return Operand(self.column, self.row, self.matrix, self.outer)


@dataclass(frozen=True)
class Product:
    """The sizes of a batch of products, and where its operands lie."""

    element: str  # float32 or float64
    matrices: int
    inner_matrices: int  # of the inner one of the batch's two dimensions
    rows: int
    columns: int
    inner: int
    left: Operand
    right: Operand


@dataclass(frozen=True)
class Launch:
    """One run of one of the kernels. Words are numbers, or places whose addresses are known later."""

    kernel: KernelName
    words: tuple[int | Place, ...]
    total: int
    grain: int

    def with_operands_exchanged(self) -> Launch:
        return self.with_places({"left": "right", "right": "left"})

    def with_places(self, places: Mapping[Place, Place]) -> Launch:
        def placed(word: int | Place) -> int | Place:
            return word if isinstance(word, int) else places.get(word, word)

        return replace(self, words=tuple(map(placed, self.words)))


@dataclass(frozen=True)
class Launches:
    """What a product takes, in order, and the bytes of memory that they use in between."""

    steps: tuple[Launch, ...]
    workspace: int = 0
    scratch: int = 0  # for each worker
    between: int = 0


@lru_cache(maxsize=4)
def shapes_for(element: str) -> TileShapes:
    """The tiles for this processor."""
    host = host_target()
    many = host.vector_bytes == 64 or host.triple.startswith(("aarch64", "arm64"))
    return tile_shapes({"float32": "float", "float64": "double"}[element], host.vector_bytes, many, host.has_fma)


def library(element: str, kernel: str) -> NativeFunction:
    """The module that has a kernel for one element."""
    return compiled_module(shapes_for(element), next(part for part, names in KERNELS.items() if kernel in names))


@lru_cache(maxsize=32)
def compiled_module(shapes: TileShapes, part: str) -> NativeFunction:
    """A module's kernels, compiled once or read from the disk cache; they stay for the process's life."""
    first, *others = KERNELS[part]
    made = compile_kernel(module_text(shapes, part), first, speed=1, also_export=tuple(others))
    made.make_immortal()
    return made


def arrange(product: Product, shapes: TileShapes | None = None) -> Launches:
    """The launches that compute a product."""
    shapes = shapes or shapes_for(product.element)
    if product.columns == 1 and product.rows > 1:
        # A column is a row of the turned product, and lies in memory like one.
        return _exchanged(arrange(_turned(product), shapes))
    consecutive = product.right.column == shapes.bytes or product.columns == 1
    if product.rows <= FEW_ROWS and not consecutive and product.right.row == shapes.bytes == product.left.column:
        return Launches((_dot(product, shapes),))
    if product.columns > 1 and _cost(_turned(product), shapes) + product.rows * product.columns < _cost(
        product, shapes
    ):
        return _turned_back(product, shapes)
    if not consecutive or product.rows >= PACKED_FROM:
        return _packed(product, shapes)
    wide = product.rows <= shapes.wide[0][0] and product.columns > shapes.panel
    panel = shapes.wide[0][1] * shapes.lanes if wide else shapes.panel
    return _multiply(product, shapes, "right", 0, panel)


def goes_by_rows(product: Product) -> bool:
    """Whether a product is best computed as it stands: it may then as well be, block by block of rows."""
    return not arrange(product).between and product.columns > 1


def arrange_rows(product: Product, row_block: int, shapes: TileShapes | None = None) -> Launches:
    """The launches for a product that is computed block by block of rows: the last has an item for each block."""
    shapes = shapes or shapes_for(product.element)
    consecutive = product.right.column == shapes.bytes or product.columns == 1
    if not consecutive or product.rows * product.matrices >= PACKED_FROM:
        return _packed(product, shapes, row_block)
    return _multiply(product, shapes, "right", 0, shapes.panel, row_block)


def _turned(product: Product) -> Product:
    """The same numbers as columns times rows."""
    left, right = product.right.turned, product.left.turned
    return replace(product, rows=product.columns, columns=product.rows, left=left, right=right)


def _exchanged(launches: Launches) -> Launches:
    steps = tuple(step.with_operands_exchanged() for step in launches.steps)
    return Launches(steps, launches.workspace, launches.scratch)


def _cost(product: Product, shapes: TileShapes) -> float:
    """About how long a product takes as it stands, in the time that moving one number takes."""
    rows, columns, inner = product.rows, product.columns, product.inner
    padded = -(-columns // shapes.panel) * shapes.panel
    cost = rows * padded * inner / (2.0 * shapes.lanes)
    if product.right.column != shapes.bytes and columns > 1:
        cost += inner * columns
    elif rows >= PACKED_FROM:
        cost += inner * columns / 4
    if _packs_left(product, shapes):
        cost += rows * inner / 2
    return cost


def _turned_back(product: Product, shapes: TileShapes) -> Launches:
    """The turned product into memory of its own, from where it is copied, turned again, to its place."""
    found = _exchanged(arrange(_turned(product), shapes))
    rows, columns = product.rows, product.columns
    steps = tuple(step.with_places({"out": "between"}) for step in found.steps)
    back = _pack(
        "between", "out", lines=rows, columns=columns, matrices=product.matrices, shapes=shapes,
        source=Operand(shapes.bytes, rows * shapes.bytes, rows * columns * shapes.bytes, 0),
        step=columns * shapes.bytes, panel=shapes.panel * shapes.bytes, matrix=rows * columns * shapes.bytes,
    )  # fmt: skip
    between = product.matrices * rows * columns * shapes.bytes
    return Launches((*steps, back), found.workspace, found.scratch, between)


def _dot(product: Product, shapes: TileShapes) -> Launch:
    block = max(8, min(product.columns, ONE_ITEM // max(1, product.inner * product.rows)))
    blocks = -(-product.columns // block)
    values: dict[str, int | Place] = {
        "left": "left", "right": "right", "out": "out", "rows": product.rows, "columns": product.columns,
        "inner": product.inner, "left_row": product.left.row, "out_row": product.columns * shapes.bytes,
        "right_column": product.right.column,
        **_batch(product), "out_matrix": product.rows * product.columns * shapes.bytes,
        "column_block": block, "column_blocks": blocks,
    }  # fmt: skip
    return Launch("dot", tuple(values[name] for name in DOT_WORDS), product.matrices * blocks, 1)


def _packed(product: Product, shapes: TileShapes, row_block: int | None = None) -> Launches:
    panels = _whole(product.columns, shapes.panel) // shapes.panel
    step = shapes.panel * shapes.bytes
    panel, matrix = product.inner * step, panels * product.inner * step
    # Matrices that are the same for a whole dimension of the batch are packed once.
    right, inner = product.right, product.inner_matrices
    inner_count, outer_count = inner if right.matrix else 1, product.matrices // inner if right.outer else 1
    source = Operand(right.row, right.column, right.matrix or right.outer, 0)
    pack = _pack(
        "right", "workspace", lines=product.inner, columns=product.columns, matrices=inner_count * outer_count,
        shapes=shapes, source=source, step=step, panel=panel, matrix=matrix,
    )  # fmt: skip
    packed = Operand(step, shapes.bytes, matrix if inner_count > 1 else 0, matrix * inner_count if right.outer else 0)
    run = _multiply(replace(product, right=packed), shapes, "workspace", panel, shapes.panel, row_block)
    return Launches((pack, *run.steps), inner_count * outer_count * matrix, run.scratch)


def _pack(
    source_place: Place, target: Place, *, lines: int, columns: int, matrices: int, shapes: TileShapes,
    source: Operand, step: int, panel: int, matrix: int,
) -> Launch:  # fmt: skip
    """Copies matrices panel by panel; `step`, `panel` and `matrix` are distances in the target."""
    panels = -(-columns // shapes.panel)
    values: dict[str, int | Place] = {
        "right": source_place, "packed": target, "columns": columns, "inner": lines,
        "right_step": source.row, "right_column": source.column, "right_matrix": source.matrix,
        "packed_step": step, "packed_panel": panel, "packed_matrix": matrix, "panels": panels,
    }  # fmt: skip
    grain = max(1, (1 << 15) // max(1, lines * shapes.panel))
    return Launch("pack", tuple(values[name] for name in PACK_WORDS), panels * matrices, grain)


def _multiply(
    product: Product, shapes: TileShapes, right: Place, panel_bytes: int, panel: int, rows_of_item: int | None = None
) -> Launches:
    rows, columns, work = product.rows, product.columns, product.rows * product.columns * product.inner
    row_block, column_block, grain = rows, _whole(columns, panel) + panel, max(1, ONE_ITEM // max(1, work))
    packs_left = panel == shapes.panel and _packs_left(product, shapes)
    if rows_of_item is not None:
        row_block, grain = rows_of_item, 1
    elif work > ONE_ITEM:
        row_block, column_block = _blocks(product, shapes, panel, packs_left)
    # Panels that are read in place may begin before the first column: see `_shift`.
    most = columns + shapes.lanes - 1 if not panel_bytes and columns > panel else columns
    row_blocks, column_blocks = -(-rows // row_block), -(-most // column_block)
    deepest = _deepest(shapes) if panel == shapes.panel else FEW_ROWS_DEPTH
    depth = -(-product.inner // -(-product.inner // deepest))
    height = shapes.heights[0]
    scratch = -(-row_block // height) * height * depth * shapes.bytes if packs_left else 0
    values: dict[str, int | Place] = {
        "left": "left", "right": right, "out": "out", "rows": rows, "columns": columns, "inner": product.inner,
        "left_row": product.left.row, "left_step": product.left.column,
        "right_step": product.right.row, "right_panel": panel_bytes,
        **_batch(product),
        "out_row": columns * shapes.bytes, "out_matrix": rows * columns * shapes.bytes,
        "row_block": row_block, "row_blocks": row_blocks,
        "column_block": column_block, "column_blocks": column_blocks, "depth": depth, "panel": panel,
        "scratch": "scratch", "scratch_bytes": scratch,
    }  # fmt: skip
    total = product.matrices * row_blocks * column_blocks
    kernel: KernelName = "multiply" if panel == shapes.panel else "multiply_few"
    run = Launch(kernel, tuple(values[name] for name in MULTIPLY_WORDS), total, grain)
    return Launches((run,), 0, scratch)


def _whole(size: int, unit: int) -> int:
    return -(-size // unit) * unit


def _packs_left(product: Product, shapes: TileShapes) -> bool:
    """Whether blocks of the left operand are packed before they are read: where its rows lie across memory, or so that
    all fall on the same lines of the cache, and where many panels read the copy, from which tiles are fastest."""
    if product.rows == 1:
        return False
    if product.left.column != shapes.bytes or (product.left.row % 4096 == 0 and product.columns > shapes.panel):
        return True
    return product.columns >= PANELS_THAT_PAY * shapes.panel and product.rows >= 2 * shapes.heights[0]


def _blocks(product: Product, shapes: TileShapes, panel: int, packs_left: bool) -> tuple[int, int]:
    """Rows and columns of one item: by the sizes alone, so that items do not depend on the number of threads."""
    rows, columns = product.rows, product.columns
    column_block = min(_whole(columns, panel), COLUMN_BYTES // shapes.bytes)
    column_blocks = product.matrices * -(-columns // column_block)
    # Many rows to an item, for each reads all of the right operand; but enough items for some threads.
    most = min(MOST_ROW_BYTES // shapes.bytes, rows * column_blocks // (FEWEST_ITEMS + 2))
    row_blocks = -(-rows // max(LEAST_ROWS, most))
    if column_blocks * row_blocks < FEWEST_ITEMS:
        if rows >= columns or (packs_left and rows >= FEWEST_ITEMS * shapes.heights[0]):
            row_blocks = min(-(-FEWEST_ITEMS // column_blocks), -(-rows // shapes.heights[0]))
        else:
            wanted = -(-FEWEST_ITEMS // (product.matrices * row_blocks))
            column_block = _whole(-(-columns // wanted), panel)
    row_block = -(-rows // row_blocks)
    height = shapes.heights[0] if row_block >= 4 * shapes.heights[0] else 4
    return min(rows, _whole(row_block, height)), column_block


def _deepest(shapes: TileShapes) -> int:
    """How many inner elements a tile sums at once: by the processor alone, for it decides how sums are rounded."""
    wide = (shapes.panel + shapes.heights[0]) * shapes.bytes
    return max(64, FIRST_LEVEL_BYTES[shapes.vector_bytes] // wide // 64 * 64)


def _batch(product: Product) -> dict[str, int | Place]:
    return {
        "left_matrix": product.left.matrix, "left_outer": product.left.outer,
        "right_matrix": product.right.matrix, "right_outer": product.right.outer,
        "inner_matrices": product.inner_matrices,
    }  # fmt: skip


# --- from strides ----------------------------------------------------------------------------------------------------


def product_of(
    element: str, out: tuple[int, ...], left: tuple[int, ...], right: tuple[int, ...], inner: int
) -> Product | None:
    """The product of operands with these strides in bytes, repeated (0) over the batch of a result of shape `out`.

    None where a batch lies in memory so that two dimensions cannot number its matrices.
    """
    merged: list[tuple[int, int, int]] = []  # extents and strides of the batch, inner dimensions first
    for extent, first, second in reversed(list(zip(out[:-2], left[:-2], right[:-2], strict=True))):
        if extent == 1:
            continue
        if merged:
            size, own, other = merged[-1]
            if first == own * size and second == other * size:
                merged[-1] = (size * extent, own, other)
                continue
        merged.append((extent, first, second))
    if len(merged) > 2:
        return None
    (count, *inner_steps), (outer_count, *outer_steps) = [*merged, (1, 0, 0), (1, 0, 0)][:2]
    operands = [
        Operand(strides[-2], strides[-1], step, outer)
        for strides, step, outer in zip((left, right), inner_steps, outer_steps, strict=True)
    ]
    # Packed matrices are numbered along one dimension.
    if any(o.matrix and o.outer and o.outer != o.matrix * count for o in operands):
        return None
    return Product(element, count * outer_count, count, out[-2], out[-1], inner, *operands)
