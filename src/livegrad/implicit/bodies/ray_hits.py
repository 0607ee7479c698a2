"""Finds where rays hit a surface between two samples: at silhouettes, and in walls thinner than a pixel.

`rendering` samples rays one pixel apart; this module bisects the intervals that interval bounds do not exclude.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from livegrad.implicit.bodies.masking import Masks, full_masks
from livegrad.implicit.bodies.pruning import IntervalBounds, Lattice, PrunedBlocks

_MIN_LENGTH = 1 / 16  # of a pixel: thinner walls along the ray may be missed
_HALVINGS = 16
_MAX_INTERVALS = 1 << 21  # intervals evaluated together


@dataclass(frozen=True)
class Hits:
    """The hit of each pixel: a layer outside and a layer inside on its ray; both are the depth if the ray misses."""

    front: NDArray[np.float64]
    back: NDArray[np.float64]


@dataclass(frozen=True)
class _Intervals:
    """Intervals of rays: pixel index, start and end layer, and the index of the block that contains them."""

    pixel: NDArray[np.int64]
    start: NDArray[np.float64]
    end: NDArray[np.float64]
    block: NDArray[np.int64]

    def select(self, rows: NDArray[Any]) -> _Intervals:
        return _Intervals(self.pixel[rows], self.start[rows], self.end[rows], self.block[rows])

    def halve(self, middle: NDArray[np.float64]) -> _Intervals:
        pixel, block = np.tile(self.pixel, 2), np.tile(self.block, 2)
        return _Intervals(pixel, np.concatenate([self.start, middle]), np.concatenate([middle, self.end]), block)


def find_hits(bounds: IntervalBounds, lattice: Lattice, blocks: PrunedBlocks, first: NDArray[np.int64]) -> Hits:
    """The first hit on the ray of each pixel: the first sample inside, or a thin wall before it."""
    width, height, depth = lattice.shape
    back = first.astype(np.float64).reshape(-1)
    front = np.where(back < depth, back - 1.0, float(depth))
    intervals = _initial_intervals(lattice, blocks, back)
    while len(intervals.pixel) and len(intervals.pixel) <= _MAX_INTERVALS:
        intervals = intervals.select(_may_cross(bounds, lattice, blocks.masks, intervals))
        middle = (intervals.start + intervals.end) / 2
        short = np.flatnonzero(intervals.end - intervals.start <= 1.0)
        if len(short):
            inside = _are_inside(bounds, lattice, blocks.masks, intervals.select(short), middle[short])
            hits = short[inside]
            hits = hits[np.argsort(-middle[hits], kind="stable")]  # nearest last, so that it is kept
            front[intervals.pixel[hits]], back[intervals.pixel[hits]] = intervals.start[hits], middle[hits]
        intervals = intervals.halve(middle)
        length = intervals.end - intervals.start
        # An interval of one layer that ends at the hit contains the hit itself.
        is_hit_interval = (intervals.end >= back[intervals.pixel]) & (length <= 1.0)
        intervals = intervals.select(
            (intervals.start < back[intervals.pixel]) & ~is_hit_interval & (length >= _MIN_LENGTH)
        )
    return Hits(front.reshape(width, height), back.reshape(width, height))


def read_masks(
    lattice: Lattice, blocks: PrunedBlocks, column: NDArray[Any], row: NDArray[Any], layer: NDArray[np.float64]
) -> Masks | None:
    """The masks of the blocks at lattice positions. Outside crossed blocks, all choices are enabled."""
    if blocks.masks is None:
        return None
    if not len(blocks.crossed):
        return full_masks(len(blocks.masks), len(column))
    block_index = np.stack([column, row, np.floor(layer).astype(np.int64)], -1) // lattice.block
    keys, requested = (
        np.ravel_multi_index(_clip_blocks(indices, lattice.blocks), lattice.blocks)
        for indices in (blocks.crossed, block_index)
    )
    order = np.argsort(keys)
    rank = np.minimum(np.searchsorted(keys[order], requested), len(order) - 1)
    is_crossed = (keys[order[rank]] == requested) & (block_index >= 0).all(1)
    return np.where(is_crossed, blocks.masks[:, order[rank]], np.uint32(0xFFFFFFFF))


def _clip_blocks(blocks: NDArray[np.int64], counts: NDArray[np.int64]) -> tuple[NDArray[np.int64], ...]:
    return tuple(np.clip(blocks, 0, counts - 1).T)


def bisect(
    bounds: IntervalBounds, front: NDArray[np.float64], back: NDArray[np.float64], masks: Masks | None
) -> NDArray[np.float64]:
    """Bisects segments from `front` (outside) to `back` (inside): the fraction at which the sign changes."""
    low, high = np.zeros(len(front)), np.ones(len(front))
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        inside = bounds.is_inside(list((front + (back - front) * middle[:, None]).T), masks)
        low, high = np.where(inside, low, middle), np.where(inside, middle, high)
    return (low + high) / 2


def find_visible_blocks(lattice: Lattice, crossed: NDArray[np.int64], first: NDArray[Any]) -> NDArray[np.int64]:
    """The indices of blocks, given by their first cells, that are in front of the hit of at least one pixel."""
    (columns, rows, _), side = lattice.blocks, lattice.block
    farthest_hit = np.zeros((columns * side, rows * side), first.dtype)
    farthest_hit[: first.shape[0], : first.shape[1]] = first
    farthest_hit = farthest_hit.reshape(columns, side, rows, side).max((1, 3))
    return np.flatnonzero(crossed[:, 2] < farthest_hit[crossed[:, 0] // side, crossed[:, 1] // side])


def _initial_intervals(lattice: Lattice, blocks: PrunedBlocks, back: NDArray[np.float64]) -> _Intervals:
    """The intervals of rays in crossed blocks, up to the hits."""
    width, height, _ = lattice.shape
    side = np.arange(lattice.block)
    crossed = blocks.crossed * lattice.block
    visible_blocks = find_visible_blocks(lattice, crossed, back.reshape(width, height))
    crossed = crossed[visible_blocks]
    shape = (len(crossed), lattice.block, lattice.block)
    column = np.broadcast_to(crossed[:, 0, None, None] + side[:, None], shape).reshape(-1)
    row = np.broadcast_to(crossed[:, 1, None, None] + side, shape).reshape(-1)
    block = np.repeat(np.arange(len(crossed)), lattice.block**2)
    layer = crossed[block, 2].astype(np.float64)
    visible = (column < width) & (row < height)
    pixel = np.where(visible, column * height + row, 0)
    rows = np.flatnonzero(visible & (layer < back[pixel]))
    pixel, layer = pixel[rows], layer[rows]
    end = np.minimum(layer + lattice.block, back[pixel])
    intervals = _Intervals(pixel, layer, end, visible_blocks[block[rows]])
    return intervals.select(~((end >= back[pixel]) & (end - layer <= 1.0)))


def _coordinates(lattice: Lattice, intervals: _Intervals, *depths: NDArray[np.float64]) -> list[NDArray[np.float64]]:
    column, row = np.divmod(intervals.pixel, lattice.shape[1])
    return [
        lattice.origin[axis] + position * lattice.cell[axis]
        for axis, position in ((0, column), (1, row), *((2, depth) for depth in depths))
    ]


def _select_masks(masks: Masks | None, intervals: _Intervals) -> Masks | None:
    return None if masks is None else np.ascontiguousarray(masks[:, intervals.block])


def _may_cross(
    bounds: IntervalBounds, lattice: Lattice, masks: Masks | None, intervals: _Intervals
) -> NDArray[np.bool_]:
    x, y, start, end = _coordinates(lattice, intervals, intervals.start, intervals.end)
    low, _, _ = bounds([x, x, y, y, start, end], _select_masks(masks, intervals))
    return ~(low > 0)


def _are_inside(
    bounds: IntervalBounds, lattice: Lattice, masks: Masks | None, intervals: _Intervals, depth: NDArray[np.float64]
) -> NDArray[np.bool_]:
    return bounds.is_inside(_coordinates(lattice, intervals, depth), _select_masks(masks, intervals))
