"""Matrix products in native code. In: shapes and strides. Out: kernel launches with their argument slots.

Called by `runtime/cpu/step_calls.py`. Chooses, from sizes and strides only, which operands are packed, whether the
product is transposed, the width of tiles, and the partition into work items.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from livegrad.codegen.llvm.matmul.dot_products import DOT_WIDTHS
from livegrad.codegen.llvm.matmul.launches import (
    DEPTH,
    FEWEST_ITEMS,
    ONE_ITEM,
    different_matrices,
    dot,
    items_of,
    items_with_panels,
    multiply,
    multiply_packed,
    pack,
    packs_left,
    sum_of_parts,
)
from livegrad.codegen.llvm.matmul.matmul_module import module_text
from livegrad.codegen.llvm.matmul.product import Launches, Operand, Product
from livegrad.codegen.llvm.matmul.tile_shapes import TileShapes, tile_shapes
from livegrad.ir.symbolic_size import symbolic_within
from livegrad.ir.types import f32, f64
from livegrad.runtime.cpu.native.host_target import host_target
from livegrad.runtime.cpu.native.llvm_jit import NativeFunction, compile_library

# The kernels that multiply; `pack` and `sum` run before and after them.
PRODUCT_KERNELS = ("dot", *(f"{name}_{vectors}" for name in ("multiply", "convolve") for vectors in (4, 3, 2, 1)))

# Rows of the left operand from which it pays to pack a right operand with contiguous rows; fewer if its rows are a
# multiple of 4096 bytes apart and therefore alias in the cache.
MIN_PACKED_ROWS, MIN_PACKED_ROWS_ALIASED = 512, 16
MAX_WHOLE_PANEL_BYTES = 1 << 20  # a right operand up to this size is packed as a whole, before the product
# A transposed product must be cheaper by this factor, because it needs a temporary and cannot join a row chain.
TRANSPOSE_PENALTY = 1.25
FMA_LATENCY = 4.0  # cycles
# Split-K: the numbers of parts of a long inner dimension, in order of preference, and the minimum length of a part.
PART_COUNTS, MIN_PART = (8, 6, 10, 7, 9, 5, 4), 512


@lru_cache(maxsize=4)
def shapes_for(element: str) -> TileShapes:
    """The register tiles for this processor."""
    host = host_target()
    many = host.vector_bytes == 64 or host.triple.startswith(("aarch64", "arm64"))
    return tile_shapes({"float32": f32, "float64": f64}[element], host.vector_bytes, many, host.has_fma)


def library(element: str, kernel: str) -> NativeFunction:
    """The code of a kernel for one element type."""
    return compiled_module(shapes_for(element), kernel)


@lru_cache(maxsize=64)
def compiled_module(shapes: TileShapes, kernel: str) -> NativeFunction:
    """A kernel, compiled or read from the disk cache, and never freed."""
    exports, imports = (("pack_panel",) if kernel == "pack" else ()), {}
    if kernel.startswith(("multiply", "convolve")):
        imports = {"pack_panel": compiled_module(shapes, "pack").addresses["pack_panel"]}
    return compile_library(module_text(shapes, kernel), kernel, speed=1, also_export=exports, imports=imports)


def arrange(product: Product, shapes: TileShapes | None = None) -> Launches:
    """The launches that compute a product."""
    shapes = shapes or shapes_for(product.element)
    product = _merge_batch(product)
    if product.columns == 1 and product.rows > 1:
        # The column is the row of the transposed product, in the same memory.
        return _exchange_operands(arrange(_transpose(product), shapes))
    parts = _parts(product)
    if parts > 1:
        return _split_inner(product, shapes, parts)
    return _best_strategy(product, shapes).launches(None)


def is_row_independent(product: Product) -> bool:
    """Whether the cheapest strategy computes rows independently, so that blocks of rows cost the same in total."""
    product = _merge_batch(product)
    if product.columns == 1 or _parts(product) > 1:
        return False
    return _best_strategy(product, shapes_for(product.element)).by_rows


def arrange_rows(product: Product, row_block: int, shapes: TileShapes | None = None) -> Launches:
    """The launches that compute a product by blocks of rows. The last launch has a work item for each block."""
    return _best_by_rows(_merge_batch(product), shapes or shapes_for(product.element)).launches(row_block)


def _best_by_rows(product: Product, shapes: TileShapes) -> _Strategy:
    strategies = _direct_strategies(product, shapes, product.left.column == shapes.bytes or product.inner == 1)
    return min(strategies, key=_cost_of)


def _merge_batch(product: Product) -> Product:
    """Merges a batch that shares its right operand into one product, if all rows are evenly spaced."""
    left, right, inner = product.left, product.right, product.inner_matrices
    outer = product.matrices // inner
    evenly_spaced = left.matrix == product.rows * left.row and (outer == 1 or left.outer == inner * left.matrix)
    if product.matrices == 1 or right.matrix or right.outer or not evenly_spaced:
        return product
    rows = product.rows * product.matrices
    return product._replace(matrices=1, inner_matrices=1, rows=rows, left=left._replace(matrix=0, outer=0))


# --- strategies ------------------------------------------------------------------------------------------------------


class _Strategy(NamedTuple):
    """A strategy for a product: its estimated cycles on one processor, and its launches for a block size."""

    cost: float
    by_rows: bool  # whether it computes rows independently
    launches: Callable[[int | None], Launches]


def _best_strategy(product: Product, shapes: TileShapes) -> _Strategy:
    if symbolic_within(product) is not None:
        return min(_strategies(product, shapes), key=_cost_of)  # comparisons of symbolic sizes record guards
    return _best_of_sizes(product, shapes)


@lru_cache(maxsize=1024)
def _best_of_sizes(product: Product, shapes: TileShapes) -> _Strategy:
    """Cached, because a plan pass asks before the launches are built, and layers repeat their sizes."""
    return min(_strategies(product, shapes), key=_cost_of)


def _cost_of(strategy: _Strategy) -> float:
    return strategy.cost


def _strategies(product: Product, shapes: TileShapes) -> list[_Strategy]:
    strategies = _direct_strategies(product, shapes, product.left.column == shapes.bytes or product.inner == 1)
    if product.columns > 1 and product.rows > 1:
        back = 0.6 * product.rows * product.columns
        transposed = min(_transposed_strategies(product, shapes), key=_cost_of)
        cost = TRANSPOSE_PENALTY * (back + transposed.cost)
        strategies.append(_Strategy(cost, False, lambda _: _transpose_back(product, shapes, transposed)))
    return strategies


def _transposed_strategies(product: Product, shapes: TileShapes) -> list[_Strategy]:
    transposed = _transpose(product)
    return _direct_strategies(transposed, shapes, transposed.left.column == shapes.bytes)


def _direct_strategies(product: Product, shapes: TileShapes, has_dots: bool) -> list[_Strategy]:
    """Register tiles, and dot products if the rows of the left operand are contiguous."""
    tiled = _tiled(product, shapes)
    return [tiled, _by_dots(product, shapes)] if has_dots else [tiled]


def _tiled(product: Product, shapes: TileShapes) -> _Strategy:
    rows, columns, inner = product.rows, product.columns, product.inner
    cost, vectors = best_tiles(rows, columns, inner, shapes)
    cost += 0.1 * rows * columns * -(-inner // DEPTH)
    consecutive = product.right.column == shapes.bytes or columns == 1
    readers = product.matrices // different_matrices(product)  # of each matrix that is packed
    min_rows = MIN_PACKED_ROWS_ALIASED if product.right.row % 4096 == 0 else MIN_PACKED_ROWS
    packs = not consecutive or rows * readers >= min_rows
    if packs:
        cost += (0.2 if consecutive else 0.45) * inner * columns / readers
    if packs_left(product, shapes):
        cost += (0.15 if product.left.column == shapes.bytes else 0.25) * rows * inner

    def launches(row_block: int | None) -> Launches:
        large = inner * columns * shapes.bytes > MAX_WHOLE_PANEL_BYTES and rows * readers < MIN_PACKED_ROWS
        if packs and large and row_block is None and product.left.column == shapes.bytes:
            return multiply(product, shapes, vectors, items_with_panels(product, shapes, vectors))
        if packs:
            return multiply_packed(product, shapes, vectors, row_block)
        return multiply(product, shapes, vectors, items_of(product, shapes, vectors, row_block))

    return _Strategy(cost, True, launches)


def best_tiles(rows: int, columns: int, inner: int, shapes: TileShapes) -> tuple[float, int]:
    """The cycles of the best tile width, and its vectors: full tiles, then lower ones for the remaining rows."""
    best, width = float("inf"), 0
    for vectors, panel, tiles in _tile_costs(shapes):
        left, each = rows, 0.0
        for height, cost in tiles:
            if left >= height:
                each += left // height * cost
                left %= height
        total = each * inner * -(-columns // panel)
        if total < best:
            best, width = total, vectors
    return best, width


@lru_cache(maxsize=8)
def _tile_costs(shapes: TileShapes) -> list[tuple[int, int, list[tuple[int, float]]]]:
    """For each tile width: its vectors, its columns, and the cycles per inner element of tiles of each height."""
    # With few registers, tiles have few rows and read panels often, and wide panels do not stay in the L1 cache.
    load = 0.25 if shapes.dot_heights[0] > 2 else 0.5
    return [
        (
            vectors,
            shapes.panel(vectors),
            [(h, max(0.5 * h * vectors, h + 0.5 * vectors, 4.0) + load * vectors) for h in heights],
        )
        for vectors, heights in shapes.heights
    ]


def _by_dots(product: Product, shapes: TileShapes) -> _Strategy:
    cost = _dot_cost(product.rows, product.columns, product.inner, shapes)
    contiguous_columns = product.right.row == shapes.bytes or product.inner == 1
    if not contiguous_columns:
        cost += 0.6 * product.inner * product.columns / (product.matrices // different_matrices(product))
    return _Strategy(cost, True, lambda row_block: dot(product, shapes, contiguous_columns, row_block))


def _dot_cost(rows: int, columns: int, inner: int, shapes: TileShapes) -> float:
    """The cycles of dot products by tiles of rows and columns. Each multiplication waits for the previous one of its
    sum, and a tile loads a vector of each row and each column."""
    steps = -(-inner // shapes.lanes) + 1
    cycles, rows_left = 0.0, rows
    for height in shapes.dot_heights:
        row_tiles, rows_left = divmod(rows_left, height)
        columns_left = columns
        for width in DOT_WIDTHS if row_tiles else ():
            tiles, columns_left = divmod(columns_left, width)
            step = 1.1 * max(0.5 * height * width, 0.5 * (height + width), FMA_LATENCY)
            cycles += row_tiles * tiles * (steps * step + 2.5 * height * width)
    return cycles


def _transpose(product: Product) -> Product:
    """The product of the transposed operands in reverse order, which is the transposed product."""
    left, right = product.right.transposed, product.left.transposed
    return product._replace(rows=product.columns, columns=product.rows, left=left, right=right)


def _exchange_operands(launches: Launches) -> Launches:
    return launches._replace(steps=tuple([step.with_operands_exchanged() for step in launches.steps]))


def _transpose_back(product: Product, shapes: TileShapes, transposed: _Strategy) -> Launches:
    """Computes the transposed product into a temporary, and transposes it into the result."""
    launches = _exchange_operands(transposed.launches(None))
    rows, columns = product.rows, product.columns
    steps = tuple(step.with_operands({"out": "between"}) for step in launches.steps)
    back = pack(
        "between", "out", lines=rows, columns=columns, matrices=product.matrices, shapes=shapes, vectors=4,
        source=Operand(shapes.bytes, rows * shapes.bytes, rows * columns * shapes.bytes, 0),
        step=columns * shapes.bytes, panel=shapes.panel(4) * shapes.bytes, matrix=rows * columns * shapes.bytes,
    )  # fmt: skip
    between = product.matrices * rows * columns * shapes.bytes
    return Launches((*steps, back), launches.workspace, launches.scratch, between)


def _parts(product: Product) -> int:
    """The number of parts of the inner dimension (split-K): more than 1 if only that dimension is large enough to share
    among threads."""
    rows, columns, inner = product.rows, product.columns, product.inner
    if product.matrices > 1 or min(rows, columns) == 1 or inner < 16 * max(rows, columns):
        return 1
    if rows * columns * inner < FEWEST_ITEMS * ONE_ITEM:
        return 1
    return next((count for count in PART_COUNTS if inner % count == 0 and inner // count >= MIN_PART), 1)


def _split_inner(product: Product, shapes: TileShapes, count: int) -> Launches:
    """Computes parts of the inner dimension as a batch of products, and their sum."""
    each, size = product.inner // count, product.rows * product.columns
    left, right = product.left, product.right
    batch = product._replace(
        matrices=count, inner_matrices=count, inner=each,
        left=left._replace(matrix=each * left.column), right=right._replace(matrix=each * right.row),
    )  # fmt: skip
    launches = _best_by_rows(batch, shapes).launches(None)
    steps = tuple(step.with_operands({"out": "between"}) for step in launches.steps)
    total = sum_of_parts(count, size, shapes)
    return Launches((*steps, total), launches.workspace, launches.scratch, count * size * shapes.bytes)
