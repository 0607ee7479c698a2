"""The loop pass that splits a nest into work items for threads, by the cost of a point."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from livegrad.schedule.loops.cost_model import (
    FEWEST_ITEMS,
    ITEM_COST,
    LEAST_BLOCK,
    MOST_BLOCK,
    POINT_COST,
    SHARED_COST,
    kernel_cost,
)
from livegrad.schedule.loops.nest import LoopNest, RowTile


def split_into_items(nest: LoopNest) -> LoopNest:
    """Decides how many points are an item of work, and how many items a thread takes at once; in a chain, by tiles."""
    domain, inner = nest.dimensions.domain, nest.dimensions.inner
    if nest.tile is not None:
        block, total, grain = _row_items(nest, domain, nest.tile)
    else:
        block, total, grain = _items(nest, domain, inner)
    return nest.change(nest.rows, step=block, extent=total, grain=grain)


def _row_items(nest: LoopNest, domain: Sequence[int], rows: RowTile) -> tuple[int, int, int]:
    """The block word, the number of items, and how many items are a block of rows."""
    if not nest.across:
        return 1, rows.rows, rows.block
    row = nest.step.domain[-1]
    if domain and prod(domain[:-1]) * row == prod(domain) and domain[-1] == row:
        return row, rows.rows, rows.block  # each row is a line of its own
    return rows.block * row, rows.count, 1


def _items(nest: LoopNest, domain: list[int], inner: list[int]) -> tuple[int, int, int]:
    """The block word, the number of items, and how many are handed out at once."""
    step, lanes = nest.step, nest.lanes
    points = max(1, min(step.chunk, inner[0]) * prod(inner[1:]) if nest.is_split else prod(inner))
    point = kernel_cost([s.body for s in step.kernel.stages if s.level == "point"]) * points
    cost = kernel_cost([s.body for s in step.kernel.stages if s.level == "row"]) + point + POINT_COST
    cost = max(cost, points * POINT_COST)
    if not nest.across:
        rows = prod(domain)
        return 1, rows, min(max(1, int(ITEM_COST / cost)), max(1, rows))
    if not domain:
        return 1, 1, 1
    wanted = max(LEAST_BLOCK, min(MOST_BLOCK, int(ITEM_COST / cost)))
    if prod(inner) > 1:
        wanted = max(lanes, min(wanted, int(ITEM_COST / cost)))
        if cost * prod(domain) > SHARED_COST:
            wanted = max(lanes, min(wanted, prod(domain) // FEWEST_ITEMS))
    block = -(-wanted // lanes) * lanes
    lines, length = prod(domain[:-1]), domain[-1]
    blocks = -(-length // block)
    return block, lines * blocks, max(1, block // max(1, length))
