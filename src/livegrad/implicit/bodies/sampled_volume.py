"""Estimates the volume of a body from boxes that are certainly inside and samples of boxes that a surface may cross."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from livegrad.implicit.bodies.pruning import IntervalBounds, Lattice, find_blocks, tight_bounds

_PLASTIC = 1.2207440846057596  # the root of x**4 = x + 1
_BOXES = 64  # along each axis


def estimate_volume(bounds: IntervalBounds, low: NDArray[np.float64], high: NDArray[np.float64], samples: int) -> float:
    """Estimates the volume of the negative region between two corners from `samples` points.

    Only blocks that the surface may cross are sampled, because the body may fill a small part of the box.
    """
    low, high = tight_bounds(bounds, low, high)
    lattice = Lattice(low, (high - low) / _BOXES, (_BOXES,) * 3, 1)
    blocks = find_blocks(bounds, lattice)
    block_volume = float(np.prod(lattice.cell))
    inside_volume = block_volume * sum(len(first) * width**3 for first, width in blocks.inside)
    if not len(blocks.crossed):
        return inside_volume
    index = np.arange(samples)
    block_index = index * len(blocks.crossed) // samples
    # A Kronecker sequence: its error is proportional to 1 / n, that of random points to 1 / sqrt(n).
    offsets = np.stack([np.modf(0.5 + index * _PLASTIC**-power)[0] for power in (1, 2, 3)], -1)
    points = low + (blocks.crossed[block_index] + offsets) * lattice.cell
    masks = None if blocks.masks is None else np.ascontiguousarray(blocks.masks[:, block_index])
    fraction = float(bounds.is_inside(list(points.T), masks).mean())
    return inside_volume + block_volume * len(blocks.crossed) * fraction
