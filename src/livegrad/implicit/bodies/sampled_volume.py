"""Estimates the volume of a body: boxes that are certainly inside, and points in those that the surface may cross."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from livegrad.implicit.bodies.pruning import Bounded, Lattice, find_blocks, tight_bounds

_PLASTIC = 1.2207440846057596  # the root of x**4 = x + 1
_BOXES = 64  # along each axis


def sampled_volume(bounds: Bounded, low: NDArray[np.float64], high: NDArray[np.float64], samples: int) -> float:
    """The volume between two corners where a function is negative, from so many points.

    A body may fill a small part of the box between the corners, and its walls a small part of the body: points are
    spent only where the surface can be.
    """
    low, high = tight_bounds(bounds, low, high)
    lattice = Lattice(low, (high - low) / _BOXES, (_BOXES,) * 3, 1)
    found = find_blocks(bounds, lattice)
    box = float(np.prod(lattice.cell))
    certain = box * sum(len(first) * width**3 for first, width in found.inside)
    if not len(found.crossed):
        return certain
    index = np.arange(samples)
    chosen = index * len(found.crossed) // samples
    # A Kronecker sequence: its error falls with the number of points, that of random points with its root.
    shares = np.stack([np.modf(0.5 + index * _PLASTIC**-power)[0] for power in (1, 2, 3)], -1)
    points = low + (found.crossed[chosen] + shares) * lattice.cell
    masks = None if found.masks is None else np.ascontiguousarray(found.masks[:, chosen])
    share = float(bounds.is_inside(list(points.T), masks).mean())
    return certain + box * len(found.crossed) * share
