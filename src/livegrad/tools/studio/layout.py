"""Places the blocks of a graph that have no position: in columns along the connections, in rows with few crossings.

In: blocks, their connections, and the positions so far. Out: a position for each block. Called by `describe.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from types import MappingProxyType

from livegrad.live.graph.block import Block, State

Position = tuple[float, float]
COLUMN_WIDTH = 290.0
_GAP = 36.0
_HEADER, _INPUT, _OUTPUT = 54.0, 29.0, 58.0


def height_of(block: Block) -> float:
    """The height of a node in the page, roughly: outputs may be pictures."""
    return _HEADER + _INPUT * len(block.inputs) + _OUTPUT * len(block.outputs)


def place_blocks(
    blocks: Sequence[Block],
    edges: Sequence[tuple[Block, Block]],
    placed: Mapping[Block, Position],
    sizes: Mapping[Block, float] = MappingProxyType({}),
) -> dict[Block, Position]:
    """Positions for all blocks. Those in `placed` stay; a new block goes to the right of what feeds it.

    `sizes` has the heights of nodes, as far as they are known.
    """
    positions = {block: placed[block] for block in blocks if block in placed}
    unplaced = [block for block in blocks if block not in positions]
    if not unplaced:
        return positions
    columns = _columns(blocks, edges)
    if not positions:
        return _place_in_columns(blocks, edges, columns, sizes)
    for block in unplaced:
        sources = [source for source, target in edges if target is block and source in positions]
        x = max((positions[source][0] for source in sources), default=min(x for x, _ in positions.values()))
        x += COLUMN_WIDTH if sources else 0.0
        bottoms = [y + height_of(other) for other, (left, y) in positions.items() if abs(left - x) < COLUMN_WIDTH]
        positions[block] = (x, max(bottoms, default=0.0) + (_GAP if bottoms else 0.0))
    return positions


def _columns(blocks: Sequence[Block], edges: Sequence[tuple[Block, Block]]) -> dict[Block, int]:
    """The longest path to each block. Connections to states lead back, and do not count."""
    predecessors: dict[Block, list[Block]] = {block: [] for block in blocks}
    for source, target in edges:
        if not isinstance(target, State) and source is not target:
            predecessors[target].append(source)
    try:
        order = list(TopologicalSorter(predecessors).static_order())
    except CycleError:  # a problem that the engine reports
        order, predecessors = list(blocks), {block: [] for block in blocks}
    columns: dict[Block, int] = {}
    for block in order:
        columns[block] = max((columns[source] + 1 for source in predecessors[block]), default=0)
    return columns


def _place_in_columns(
    blocks: Sequence[Block],
    edges: Sequence[tuple[Block, Block]],
    columns: Mapping[Block, int],
    sizes: Mapping[Block, float],
) -> dict[Block, Position]:
    """Columns from left to right. In each, blocks are ordered by the mean height of what feeds them."""
    neighbours: dict[Block, list[Block]] = {block: [] for block in blocks}
    for source, target in edges:
        if columns[source] < columns[target]:
            neighbours[target].append(source)
    positions: dict[Block, Position] = {}
    for column in range(max(columns.values(), default=-1) + 1):
        members = [block for block in blocks if columns[block] == column]
        centres = {block: _mean_height(neighbours[block], positions) for block in members}
        members.sort(key=lambda block: centres[block])
        y = 0.0
        for block in members:
            positions[block] = (column * COLUMN_WIDTH, y)
            y += sizes.get(block, height_of(block)) + _GAP
    return positions


def _mean_height(blocks: Sequence[Block], positions: Mapping[Block, Position]) -> float:
    heights = [positions[block][1] for block in blocks if block in positions]
    return sum(heights) / len(heights) if heights else 0.0
