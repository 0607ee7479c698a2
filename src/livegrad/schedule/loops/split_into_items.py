"""Splits a loop nest into work items for threads, by the cost of a point."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

from livegrad.ir.dimension import round_up
from livegrad.ir.symbolic_size import compute_for_sizes
from livegrad.passes.regions import LOOPS
from livegrad.schedule.loops.cost_model import (
    BRIEF_COST,
    CHUNK_COST,
    FEWEST_ITEMS,
    ITEM_COST,
    LEAST_BLOCK,
    MOST_BLOCK,
    POINT_COST,
    kernel_cost,
)
from livegrad.schedule.loops.nest import LoopNest, RowTile


def split_into_items(nest: LoopNest) -> LoopNest:
    """Decides the number of points in an item, and of items that a thread takes at once; in a chain, by tiles."""
    domain, inner = nest.dimensions.domain, nest.dimensions.inner
    if nest.tile is not None:
        block, total, grain = _items_of_tile(nest, domain, nest.tile)
        return nest.change(nest.rows, step=block, extent=total, grain=grain, brief=False)
    stages = nest.step.kernel.stages
    row, point = (kernel_cost([s.body for s in stages if s.level == level]) for level in ("row", "point"))
    chunk, lanes = nest.step.chunk if nest.is_split else 0, nest.lanes if nest.across else 0
    costs = _Costs(row, point, is_estimate=not nest.ops.isdisjoint(LOOPS))
    block, total, grain, brief = compute_for_sizes(_count_items, costs, chunk, lanes, tuple(domain), tuple(inner))
    return nest.change(nest.rows, step=block, extent=total, grain=grain, brief=brief)


def _items_of_tile(nest: LoopNest, domain: Sequence[int], rows: RowTile) -> tuple[int, int, int]:
    """The block size, the number of items, and the number of items in a tile of rows."""
    if not nest.across:
        return 1, rows.rows, rows.block
    row = nest.step.domain[-1]
    if domain and prod(domain[:-1]) * row == prod(domain) and domain[-1] == row:
        return row, rows.rows, rows.block  # each row is an item
    return rows.block * row, rows.count, 1


class _Costs(NamedTuple):
    """The costs of a row and of a point, and whether they are only estimates, because a stage has loops."""

    row: float
    point: float
    is_estimate: bool


def _count_items(
    costs: _Costs, chunk: int, lanes: int, domain: tuple[int, ...], inner: tuple[int, ...]
) -> tuple[int, int, int, int]:
    """The block size, the number of items, the number dispatched at once, and 1 if the whole work is brief, else 0.

    `chunk` is 0 if rows are not split, `lanes` is 0 if lanes run along rows.
    """
    points = max(1, min(chunk, inner[0]) * prod(inner[1:]) if chunk else prod(inner))
    cost = max(costs.row + costs.point * points + POINT_COST, points * POINT_COST)
    block, items, grain = _items(cost, lanes, domain, inner)
    return block, items, grain, int(items > grain and cost * prod(domain) < BRIEF_COST and not costs.is_estimate)


def _items(cost: float, lanes: int, domain: tuple[int, ...], inner: tuple[int, ...]) -> tuple[int, int, int]:
    """The block size, the number of items, and the number dispatched at once."""
    rows = prod(domain)
    chunks = _count_chunks(cost * rows)
    if not lanes:
        return 1, rows, max(1, min(int(ITEM_COST / cost), -(-rows // chunks)))
    if not domain:
        return 1, 1, 1
    target = max(LEAST_BLOCK, min(MOST_BLOCK, int(ITEM_COST / cost)))
    if prod(inner) > 1:
        target = max(lanes, min(target, int(ITEM_COST / cost)))
    lines, length = prod(domain[:-1]), domain[-1]
    if chunks > lines:  # lines have to be split
        target = max(lanes, min(target, -(-length * max(1, lines) // chunks)))
    block = round_up(target, lanes)
    items = lines * -(-length // block)
    return block, items, max(1, min(block // max(1, length), -(-items // chunks)))


def _count_chunks(cost: float) -> int:
    """The least number of chunks of equal size, a power of two."""
    chunks = 1
    while chunks < FEWEST_ITEMS and cost >= 2 * chunks * CHUNK_COST:
        chunks *= 2
    return chunks
