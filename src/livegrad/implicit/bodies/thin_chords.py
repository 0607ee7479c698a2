"""Finds surfaces between two samples of a ray: at the edges of a body, and in walls thinner than a pixel.

`rendering` samples each ray one pixel apart; this module bisects the intervals that bounds cannot exclude.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from livegrad.implicit.bodies.masking import Masks, everything
from livegrad.implicit.bodies.pruning import Bounded, Lattice, PrunedBlocks

_SHORTEST = 1 / 16  # of a pixel: thinner walls along the ray may be missed
_HALVINGS = 16
_MOST = 1 << 21  # intervals at once


@dataclass(frozen=True)
class Hits:
    """For each pixel, a layer outside and a layer inside on its ray; both are the depth if the ray misses."""

    front: NDArray[np.float64]
    back: NDArray[np.float64]


@dataclass(frozen=True)
class _Intervals:
    """Intervals of rays: the pixel index, start and end, and the block that contains them."""

    pixel: NDArray[np.int64]
    start: NDArray[np.float64]
    end: NDArray[np.float64]
    block: NDArray[np.int64]

    def select(self, chosen: NDArray[Any]) -> _Intervals:
        return _Intervals(self.pixel[chosen], self.start[chosen], self.end[chosen], self.block[chosen])

    def halve(self, middle: NDArray[np.float64]) -> _Intervals:
        pixel, block = np.tile(self.pixel, 2), np.tile(self.block, 2)
        return _Intervals(pixel, np.concatenate([self.start, middle]), np.concatenate([middle, self.end]), block)


def look_between(bounds: Bounded, lattice: Lattice, blocks: PrunedBlocks, first: NDArray[np.int64]) -> Hits:
    """The first hit of each pixel's ray: the first sample inside, or a thin wall before it."""
    width, height, depth = lattice.shape
    back = first.astype(np.float64).reshape(-1)
    front = np.where(back < depth, back - 1.0, float(depth))
    open_ = _columns(lattice, blocks, back)
    while len(open_.pixel) and len(open_.pixel) <= _MOST:
        open_ = open_.select(_may_cross(bounds, lattice, blocks.masks, open_))
        middle = (open_.start + open_.end) / 2
        short = np.flatnonzero(open_.end - open_.start <= 1.0)
        if len(short):
            inside = _inside(bounds, lattice, blocks.masks, open_.select(short), middle[short])
            hits = short[inside]
            hits = hits[np.argsort(-middle[hits], kind="stable")]  # writes the nearest last
            front[open_.pixel[hits]], back[open_.pixel[hits]] = open_.start[hits], middle[hits]
        open_ = open_.halve(middle)
        length = open_.end - open_.start
        # An interval of one layer that ends at the hit contains the hit itself.
        is_hit_interval = (open_.end >= back[open_.pixel]) & (length <= 1.0)
        open_ = open_.select((open_.start < back[open_.pixel]) & ~is_hit_interval & (length >= _SHORTEST))
    return Hits(front.reshape(width, height), back.reshape(width, height))


def masks_at(
    lattice: Lattice, blocks: PrunedBlocks, column: NDArray[Any], row: NDArray[Any], layer: NDArray[np.float64]
) -> Masks | None:
    """The masks of the blocks at these lattice positions. All choices are enabled outside of crossed blocks."""
    if blocks.masks is None:
        return None
    if not len(blocks.crossed):
        return everything(len(blocks.masks), len(column))
    block_index = np.stack([column, row, np.floor(layer).astype(np.int64)], -1) // lattice.block
    keys, wanted = (
        np.ravel_multi_index(_within(some, lattice.blocks), lattice.blocks) for some in (blocks.crossed, block_index)
    )
    order = np.argsort(keys)
    at = np.minimum(np.searchsorted(keys[order], wanted), len(order) - 1)
    is_crossed = (keys[order[at]] == wanted) & (block_index >= 0).all(1)
    return np.where(is_crossed, blocks.masks[:, order[at]], np.uint32(0xFFFFFFFF))


def _within(blocks: NDArray[np.int64], counts: NDArray[np.int64]) -> tuple[NDArray[np.int64], ...]:
    return tuple(np.clip(blocks, 0, counts - 1).T)


def bisect(
    bounds: Bounded, front: NDArray[np.float64], back: NDArray[np.float64], masks: Masks | None
) -> NDArray[np.float64]:
    """The fraction of the way from points outside to points inside at which the sign changes, by bisection."""
    low, high = np.zeros(len(front)), np.ones(len(front))
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        inside = bounds.is_inside(list((front + (back - front) * middle[:, None]).T), masks)
        low, high = np.where(inside, low, middle), np.where(inside, middle, high)
    return (low + high) / 2


def not_hidden(lattice: Lattice, crossed: NDArray[np.int64], first: NDArray[Any]) -> NDArray[np.int64]:
    """The indices of blocks, given by their first cells, that are in front of some pixel's hit."""
    (columns, rows, _), side = lattice.blocks, lattice.block
    furthest = np.zeros((columns * side, rows * side), first.dtype)
    furthest[: first.shape[0], : first.shape[1]] = first
    furthest = furthest.reshape(columns, side, rows, side).max((1, 3))
    return np.flatnonzero(crossed[:, 2] < furthest[crossed[:, 0] // side, crossed[:, 1] // side])


def _columns(lattice: Lattice, blocks: PrunedBlocks, back: NDArray[np.float64]) -> _Intervals:
    """The intervals of rays through crossed blocks, up to their hits."""
    width, height, _ = lattice.shape
    side = np.arange(lattice.block)
    crossed = blocks.crossed * lattice.block
    near = not_hidden(lattice, crossed, back.reshape(width, height))
    crossed = crossed[near]
    shape = (len(crossed), lattice.block, lattice.block)
    column = np.broadcast_to(crossed[:, 0, None, None] + side[:, None], shape).reshape(-1)
    row = np.broadcast_to(crossed[:, 1, None, None] + side, shape).reshape(-1)
    block = np.repeat(np.arange(len(crossed)), lattice.block**2)
    layer = crossed[block, 2].astype(np.float64)
    visible = (column < width) & (row < height)
    pixel = np.where(visible, column * height + row, 0)
    seen = np.flatnonzero(visible & (layer < back[pixel]))
    pixel, layer = pixel[seen], layer[seen]
    end = np.minimum(layer + lattice.block, back[pixel])
    every = _Intervals(pixel, layer, end, near[block[seen]])
    return every.select(~((end >= back[pixel]) & (end - layer <= 1.0)))


def _coordinates(lattice: Lattice, some: _Intervals, *depths: NDArray[np.float64]) -> list[NDArray[np.float64]]:
    column, row = np.divmod(some.pixel, lattice.shape[1])
    return [
        lattice.origin[axis] + position * lattice.cell[axis]
        for axis, position in ((0, column), (1, row), *((2, depth) for depth in depths))
    ]


def _masks(masks: Masks | None, some: _Intervals) -> Masks | None:
    return None if masks is None else np.ascontiguousarray(masks[:, some.block])


def _may_cross(bounds: Bounded, lattice: Lattice, masks: Masks | None, some: _Intervals) -> NDArray[np.bool_]:
    x, y, start, end = _coordinates(lattice, some, some.start, some.end)
    low, _, _ = bounds([x, x, y, y, start, end], _masks(masks, some))
    return ~(low > 0)


def _inside(
    bounds: Bounded, lattice: Lattice, masks: Masks | None, some: _Intervals, depth: NDArray[np.float64]
) -> NDArray[np.bool_]:
    return bounds.is_inside(_coordinates(lattice, some, depth), _masks(masks, some))
