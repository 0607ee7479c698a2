"""Estimates the volume of a body: boxes that are certainly inside, and points in those that the surface may cross."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from livegrad.implicit.bodies.pruning import Bounded, Lattice, find_blocks, tight_bounds

_PLASTIC = 1.2207440846057596  # the root of x**4 = x + 1
_BOXES = 64  # along each axis


def sampled_volume(bounds: Bounded, low: NDArray[np.float64], high: NDArray[np.float64], samples: int) -> float:
    """The volume of the negative region between two corners, estimated from `samples` points.

    The body may fill a small part of the box, and its walls a small part of the body, so only blocks that the surface
    may cross are sampled.
    """
    low, high = tight_bounds(bounds, low, high)
    lattice = Lattice(low, (high - low) / _BOXES, (_BOXES,) * 3, 1)
    blocks = find_blocks(bounds, lattice)
    box = float(np.prod(lattice.cell))
    certain = box * sum(len(first) * width**3 for first, width in blocks.inside)
    if not len(blocks.crossed):
        return certain
    index = np.arange(samples)
    chosen = index * len(blocks.crossed) // samples
    # A Kronecker sequence: its error falls with the number of points; that of random points falls with the square root.
    shares = np.stack([np.modf(0.5 + index * _PLASTIC**-power)[0] for power in (1, 2, 3)], -1)
    points = low + (blocks.crossed[chosen] + shares) * lattice.cell
    masks = None if blocks.masks is None else np.ascontiguousarray(blocks.masks[:, chosen])
    share = float(bounds.is_inside(list(points.T), masks).mean())
    return certain + box * len(blocks.crossed) * share
