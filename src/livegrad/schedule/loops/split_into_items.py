"""The loop pass that splits a nest into work items for threads, by the cost of a point."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

from livegrad.ir.symbolic_size import computed
from livegrad.ir.walk import ops_below
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
    """Decides how many points are an item of work, and how many items a thread takes at once; in a chain, by tiles."""
    domain, inner = nest.dimensions.domain, nest.dimensions.inner
    if nest.tile is not None:
        block, total, grain = _row_items(nest, domain, nest.tile)
        return nest.change(nest.rows, step=block, extent=total, grain=grain, brief=False)
    stages = nest.step.kernel.stages
    row, point = (kernel_cost([s.body for s in stages if s.level == level]) for level in ("row", "point"))
    chunk, lanes = nest.step.chunk if nest.is_split else 0, nest.lanes if nest.across else 0
    costs = _Costs(row, point, _has_loops(nest))
    block, total, grain, brief = computed(_count_items, costs, chunk, lanes, tuple(domain), tuple(inner))
    return nest.change(nest.rows, step=block, extent=total, grain=grain, brief=brief)


def _row_items(nest: LoopNest, domain: Sequence[int], rows: RowTile) -> tuple[int, int, int]:
    """The block word, the number of items, and how many items are a block of rows."""
    if not nest.across:
        return 1, rows.rows, rows.block
    row = nest.step.domain[-1]
    if domain and prod(domain[:-1]) * row == prod(domain) and domain[-1] == row:
        return row, rows.rows, rows.block  # each row is a line of its own
    return rows.block * row, rows.count, 1


def _has_loops(nest: LoopNest) -> bool:
    """Whether the cost of a point is only a guess."""
    return any(not ops_below(stage.body).isdisjoint(LOOPS) for stage in nest.step.kernel.stages)


class _Costs(NamedTuple):
    """The costs of a row and of a point in it, and whether they are only a guess."""

    row: float
    point: float
    guessed: bool


def _count_items(
    costs: _Costs, chunk: int, lanes: int, domain: tuple[int, ...], inner: tuple[int, ...]
) -> tuple[int, int, int, int]:
    """The block word, the number of items, how many are handed out at once, and 1 if all of it is brief, else 0.

    `chunk` is 0 for rows that are not split, `lanes` for lanes along rows.
    """
    points = max(1, min(chunk, inner[0]) * prod(inner[1:]) if chunk else prod(inner))
    cost = max(costs.row + costs.point * points + POINT_COST, points * POINT_COST)
    block, items, grain = _items(cost, lanes, domain, inner)
    return block, items, grain, int(items > grain and cost * prod(domain) < BRIEF_COST and not costs.guessed)


def _items(cost: float, lanes: int, domain: tuple[int, ...], inner: tuple[int, ...]) -> tuple[int, int, int]:
    """The block word, the number of items, and how many are handed out at once."""
    rows = prod(domain)
    chunks = _chunks(cost * rows)
    if not lanes:
        return 1, rows, max(1, min(int(ITEM_COST / cost), -(-rows // chunks)))
    if not domain:
        return 1, 1, 1
    wanted = max(LEAST_BLOCK, min(MOST_BLOCK, int(ITEM_COST / cost)))
    if prod(inner) > 1:
        wanted = max(lanes, min(wanted, int(ITEM_COST / cost)))
    lines, length = prod(domain[:-1]), domain[-1]
    if chunks > lines:  # lines are cut, too
        wanted = max(lanes, min(wanted, -(-length * max(1, lines) // chunks)))
    block = -(-wanted // lanes) * lanes
    items = lines * -(-length // block)
    return block, items, max(1, min(block // max(1, length), -(-items // chunks)))


def _chunks(cost: float) -> int:
    """How many chunks of work there are at least, of equal size: a power of two."""
    chunks = 1
    while chunks < FEWEST_ITEMS and cost >= 2 * chunks * CHUNK_COST:
        chunks *= 2
    return chunks
