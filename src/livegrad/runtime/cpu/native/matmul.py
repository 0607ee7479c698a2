"""Matrix products in native code. In: shapes and strides. Out: kernel launches with their argument slots.

Called by the plan compiler. All decisions are made here, from sizes and strides only: what is packed, which operand is
transposed, the width of tiles, and the partition into work items.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from livegrad.codegen.llvm.matmul.launches import (
    DEPTH,
    FEWEST_ITEMS,
    ONE_ITEM,
    different_matrices,
    dot,
    items_of,
    items_with_panels,
    multiply,
    pack,
    packed,
    packs_left,
    sum_of_parts,
)
from livegrad.codegen.llvm.matmul.matmul_module import module_text
from livegrad.codegen.llvm.matmul.product import Launches, Operand, Product
from livegrad.codegen.llvm.matmul.tile_shapes import TileShapes, tile_shapes
from livegrad.ir.types import f32, f64
from livegrad.runtime.cpu.native.host_target import host_target
from livegrad.runtime.cpu.native.llvm_jit import NativeFunction, compile_library

# `pack` and `sum` prepare and end
PRODUCT_KERNELS = ("dot", *(f"{name}_{vectors}" for name in ("multiply", "convolve") for vectors in (4, 3, 2, 1)))

# Rows: from here on it pays to pack a right operand whose rows are consecutive; earlier where these are so far apart
# that all fall on the same lines of the cache.
PACKED_FROM, PACKED_FROM_ALIASED = 512, 16
WHOLE_PANELS = 1 << 20  # bytes of a right operand up to which it is packed as a whole, before the product
TRANSPOSED = 1.25  # a transposed product must be so much cheaper: it needs memory of its own and joins no row chain
PARTS, LEAST_PART = (8, 6, 10, 7, 9, 5, 4), 512  # of a long inner dimension


@lru_cache(maxsize=4)
def shapes_for(element: str) -> TileShapes:
    """The tiles for this processor."""
    host = host_target()
    many = host.vector_bytes == 64 or host.triple.startswith(("aarch64", "arm64"))
    return tile_shapes({"float32": f32, "float64": f64}[element], host.vector_bytes, many, host.has_fma)


def library(element: str, kernel: str) -> NativeFunction:
    """The module that has a kernel for one element."""
    return compiled_module(shapes_for(element), kernel)


@lru_cache(maxsize=64)
def compiled_module(shapes: TileShapes, kernel: str) -> NativeFunction:
    """A kernel, compiled once or read from the disk cache; it stays for the process's life."""
    exports, imports = (("pack_panel",) if kernel == "pack" else ()), {}
    if kernel.startswith(("multiply", "convolve")):
        imports = {"pack_panel": compiled_module(shapes, "pack").addresses["pack_panel"]}
    return compile_library(module_text(shapes, kernel), kernel, speed=1, also_export=exports, imports=imports)


def arrange(product: Product, shapes: TileShapes | None = None) -> Launches:
    """The launches that compute a product."""
    shapes = shapes or shapes_for(product.element)
    product = _folded(product)
    if product.columns == 1 and product.rows > 1:
        # A column is a row of the transposed product, and lies in memory like one.
        return _exchange_operands(arrange(_transpose(product), shapes))
    parts = _parts(product)
    if parts > 1:
        return _in_parts(product, shapes, parts)
    return _best_way(product, shapes).launches(None)


def goes_by_rows(product: Product) -> bool:
    """Whether a product is best computed as it stands: it may then as well be, block by block of rows."""
    product = _folded(product)
    if product.columns == 1 or _parts(product) > 1:
        return False
    return _best_way(product, shapes_for(product.element)).by_rows


def arrange_rows(product: Product, row_block: int, shapes: TileShapes | None = None) -> Launches:
    """The launches for a product that is computed block by block of rows: the last has an item for each block."""
    return _best_by_rows(_folded(product), shapes or shapes_for(product.element)).launches(row_block)


def _best_by_rows(product: Product, shapes: TileShapes) -> _Way:
    ways = _direct_ways(product, shapes, product.left.column == shapes.bytes or product.inner == 1)
    return min(ways, key=_cost_of)


def _folded(product: Product) -> Product:
    """A batch of which all matrices are multiplied by the same one, as one product of all their rows, if these lie in
    memory like rows of one matrix."""
    left, right, inner = product.left, product.right, product.inner_matrices
    outer = product.matrices // inner
    follow = left.matrix == product.rows * left.row and (outer == 1 or left.outer == inner * left.matrix)
    if product.matrices == 1 or right.matrix or right.outer or not follow:
        return product
    rows = product.rows * product.matrices
    return product._replace(matrices=1, inner_matrices=1, rows=rows, left=left._replace(matrix=0, outer=0))


# --- ways to compute a product ---------------------------------------------------------------------------------------


class _Way(NamedTuple):
    """About how long one way takes, in cycles of one processor, and its launches for blocks of so many rows."""

    cost: float
    by_rows: bool
    launches: Callable[[int | None], Launches]


def _best_way(product: Product, shapes: TileShapes) -> _Way:
    return min(_ways(product, shapes), key=_cost_of)


def _cost_of(way: _Way) -> float:
    return way.cost


def _ways(product: Product, shapes: TileShapes) -> list[_Way]:
    ways = _direct_ways(product, shapes, product.left.column == shapes.bytes or product.inner == 1)
    if product.columns > 1 and product.rows > 1:
        back = 0.6 * product.rows * product.columns
        transposed = min(_transposed_ways(product, shapes), key=_cost_of)
        cost = TRANSPOSED * (back + transposed.cost)
        ways.append(_Way(cost, False, lambda _: _transpose_back(product, shapes, transposed)))
    return ways


def _transposed_ways(product: Product, shapes: TileShapes) -> list[_Way]:
    transposed = _transpose(product)
    return _direct_ways(transposed, shapes, transposed.left.column == shapes.bytes)


def _direct_ways(product: Product, shapes: TileShapes, has_dots: bool) -> list[_Way]:
    """By tiles, and by the scalar products of rows and columns where the left operand's rows lie in memory as such."""
    tiled = _tiled(product, shapes)
    return [tiled, _by_dots(product, shapes)] if has_dots else [tiled]


def _tiled(product: Product, shapes: TileShapes) -> _Way:
    rows, columns, inner = product.rows, product.columns, product.inner
    cost, vectors = best_tiles(rows, columns, inner, shapes)
    cost += 0.1 * rows * columns * -(-inner // DEPTH)
    consecutive = product.right.column == shapes.bytes or columns == 1
    readers = product.matrices // different_matrices(product)  # of each matrix that is packed
    packs = not consecutive or rows * readers >= (PACKED_FROM_ALIASED if product.right.row % 4096 == 0 else PACKED_FROM)
    if packs:
        cost += (0.2 if consecutive else 0.45) * inner * columns / readers
    if packs_left(product, shapes):
        cost += (0.15 if product.left.column == shapes.bytes else 0.25) * rows * inner

    def launches(row_block: int | None) -> Launches:
        large = inner * columns * shapes.bytes > WHOLE_PANELS and rows * readers < PACKED_FROM
        if packs and large and row_block is None and product.left.column == shapes.bytes:
            return multiply(product, shapes, vectors, items_with_panels(product, shapes, vectors))
        if packs:
            return packed(product, shapes, vectors, row_block)
        return multiply(product, shapes, vectors, items_of(product, shapes, vectors, row_block))

    return _Way(cost, True, launches)


def best_tiles(rows: int, columns: int, inner: int, shapes: TileShapes) -> tuple[float, int]:
    """Whole tiles, then lower ones for the rows that are left: cycles, and vectors of the best width."""
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
    """For each width its vectors, its columns, and what tiles of each height cost for one inner element."""
    # Few rows to a tile, as where there are few registers, read a panel often, and wide panels do not stay close by.
    load = 0.25 if shapes.dot_heights[0] > 2 else 0.5
    return [
        (
            vectors,
            shapes.panel(vectors),
            [(h, max(0.5 * h * vectors, h + 0.5 * vectors, 4.0) + load * vectors) for h in heights],
        )
        for vectors, heights in shapes.heights
    ]


def _by_dots(product: Product, shapes: TileShapes) -> _Way:
    rows, columns = product.rows, product.columns
    steps = -(-product.inner // shapes.lanes) + 1
    each = 0.55 if shapes.dot_heights[0] > 2 else 0.8  # the more sums at once, the fewer loads for each
    cost = columns * (2.5 * rows + steps * (each * rows if rows > 1 else 1.0))
    along = product.right.row == shapes.bytes or product.inner == 1
    if not along:
        cost += 0.6 * product.inner * columns / (product.matrices // different_matrices(product))
    return _Way(cost, True, lambda row_block: dot(product, shapes, along, row_block))


def _transpose(product: Product) -> Product:
    """The same numbers as columns times rows."""
    left, right = product.right.transposed, product.left.transposed
    return product._replace(rows=product.columns, columns=product.rows, left=left, right=right)


def _exchange_operands(launches: Launches) -> Launches:
    return launches._replace(steps=tuple([step.with_operands_exchanged() for step in launches.steps]))


def _transpose_back(product: Product, shapes: TileShapes, transposed: _Way) -> Launches:
    """The transposed product into memory of its own, from where it is copied, transposed again, to its place."""
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
    """Into how many stretches the inner dimension is cut: where a product is small but for that, there is nothing else
    to share between threads. 1: it is not cut."""
    rows, columns, inner = product.rows, product.columns, product.inner
    if product.matrices > 1 or min(rows, columns) == 1 or inner < 16 * max(rows, columns):
        return 1
    if rows * columns * inner < FEWEST_ITEMS * ONE_ITEM:
        return 1
    return next((count for count in PARTS if inner % count == 0 and inner // count >= LEAST_PART), 1)


def _in_parts(product: Product, shapes: TileShapes, count: int) -> Launches:
    """Stretches of the inner dimension as a batch of products, and their sum."""
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
