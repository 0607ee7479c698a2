"""Producer–consumer tiling on the CPU: chooses the tile size of a chain of steps, or not to tile it.

`schedule/tile_row_chains.py` finds chains that are legal and asks `rows_of_tile`, which is part of the `CPU` target.
"""

from __future__ import annotations

from math import prod

from livegrad.codegen.llvm.matmul.product import Product
from livegrad.ir.dimension import round_up
from livegrad.ir.symbolic_size import compute_for_sizes, symbolic_within
from livegrad.runtime.cpu.matmul_steps import native_product
from livegrad.runtime.cpu.native.caches import second_level_bytes
from livegrad.runtime.cpu.native.matmul import is_row_independent
from livegrad.runtime.cpu.native.pool import default_threads
from livegrad.schedule.loops.cost_model import (
    FEWEST_TILES,
    LEAST_TILE_ROWS,
    MOST_TILE_ROWS,
    PRODUCT_ROWS,
    SHORT_ROW,
    TILE_SHARE,
    TILES_A_THREAD,
)
from livegrad.schedule.loops.nest import RowTile
from livegrad.schedule.plan import HostStep, RowChain


def rows_of_tile(chain: RowChain) -> int | None:
    """The rows of a tile; None if products are slower by rows, or there are too few tiles for the threads.

    A tile never spans two matrices of a batch.
    """
    total, rows = prod(chain.rows), chain.rows[-1]
    if not total:
        return None
    if symbolic_within(chain.rows) is not None and chain.row_bytes * total <= second_level_bytes():
        return None  # little to gain, and the choices for products would need guards on the sizes
    products = tuple([native_product(step) for step in chain.steps if isinstance(step, HostStep)])
    return compute_for_sizes(_tile_size, total, rows, chain.longest_row, chain.row_bytes, products) or None


def _tile_size(total: int, rows: int, longest_row: int, row_bytes: int, products: tuple[Product | None, ...]) -> int:
    """The rows of a tile; 0 if there is none."""
    if longest_row <= SHORT_ROW:
        return 0  # alone, kernels vectorise across such rows, which a chain cannot
    # Results do not depend on the tiles, because each row is computed in the same way in any tile.
    processors = default_threads()
    fewest = max(FEWEST_TILES, TILES_A_THREAD * processors)
    most = min(MOST_TILE_ROWS, second_level_bytes() // (TILE_SHARE * max(1, row_bytes)), total // fewest)
    if total == rows:
        # The same number of tiles of about the same size for each processor, in whole register tiles of products.
        count = round_up(-(-total // max(1, most)), processors)
        block = min(most, round_up(-(-total // count), PRODUCT_ROWS))
    else:
        block = max((size for size in range(4, most + 1, 4) if rows % size == 0), default=0)
    native = all(product is not None and is_row_independent(product) for product in products)
    return block if block >= LEAST_TILE_ROWS and native else 0


def row_tile(chain: RowChain) -> RowTile:
    return RowTile(prod(chain.rows), chain.tile)
