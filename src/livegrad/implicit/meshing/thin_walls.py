"""Finds walls between lattice points by random sampling, to refine the cells or to warn about lost volume.

`meshing` and `slicing` get their lattice here, in three or two dimensions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from livegrad.diagnostics import warn_caller
from livegrad.implicit.bodies.pruning import MOST_BOXES, Bounded, Found, Lattice, find_blocks
from livegrad.implicit.nodes.errors import PartWarning

Points = NDArray[np.float64]
IsInside = Callable[[Points], NDArray[np.bool_]]  # of points with as many coordinates as the lattice

_AT_ONCE = 1 << 14
_ENOUGH = 3000  # points inside: two in a hundred is their error
_TRIES = 1 << 19  # at points, however few are inside
_CLOSER = 16  # times as many where that error decides whether something was lost
_THIN = 0.75  # cells to both sides: who is outside by then is in a wall that cells do not hold
_LITTLE = 0.05  # of the size that may be in such walls before cells become finer
_WRONG = 0.05  # of the size that a result may be off before that is told
_HALVINGS = 4
_MOST_CELLS = 1 << 20  # that a surface crosses, where nobody asked for so fine a lattice


@dataclass(frozen=True)
class Sampled:
    """What points at random say: the volume or area of a part, its error, and the share in thin walls."""

    size: float
    error: float
    thin: float


@dataclass(frozen=True)
class Cells:
    """A lattice, where the surface can be in it, and what points at random say."""

    lattice: Lattice
    found: Found
    sampled: Sampled
    inside: IsInside


def find_cells(
    bounds: Bounded,
    inside: IsInside,
    lattice_of: Callable[[float], Lattice],
    cell: float,
    *,
    finer: bool,
    most: int = MOST_BOXES,
) -> Cells:
    """A lattice with cells of this size, or smaller ones until walls hold lattice points, if `finer` allows that.

    At most `most` blocks are looked at.
    """
    halvings = _HALVINGS if finer else 0
    while True:
        lattice = lattice_of(cell)
        found = find_blocks(bounds, lattice, most)
        sampled = sample(inside, lattice, found)
        next_cells = len(found.crossed) * (2 * lattice.block) ** (len(lattice.shape) - 1)
        if not halvings or sampled.thin <= _LITTLE or next_cells > _MOST_CELLS:
            return Cells(lattice, found, sampled, inside)
        halvings -= 1
        cell /= 2


def sample(inside: IsInside, lattice: Lattice, found: Found, enough: int = _ENOUGH) -> Sampled:
    """The size of what is inside, by boxes that are inside for certain and by points at random in crossed blocks.

    Points are tried until `enough` of them are inside, or too many are not.
    """
    axes = len(lattice.shape)
    block = float(np.prod(lattice.block * lattice.cell))
    certain = block * sum(len(first) * width**axes for first, width in found.inside)
    if not len(found.crossed):
        return Sampled(certain, 0.0, 0.0)
    generator = np.random.default_rng(0)
    tried = hits = thin = 0
    while hits < enough and tried < _TRIES * enough // _ENOUGH:
        blocks = found.crossed[generator.integers(len(found.crossed), size=_AT_ONCE)]
        places = (blocks + generator.random(blocks.shape)) * lattice.block
        points = lattice.origin + places * lattice.cell
        points = points[inside(points)]
        tried, hits = tried + _AT_ONCE, hits + len(points)
        thin += _number_in_walls(inside, points, _THIN * lattice.cell) if len(points) else 0
    within = block * len(found.crossed)
    share = hits / tried
    size = certain + within * share
    error = within * float(np.sqrt(share * (1.0 - share) / tried))
    return Sampled(size, error, within * thin / tried / size if size else 0.0)


def _number_in_walls(inside: IsInside, points: Points, steps: NDArray[np.float64]) -> int:
    """How many points leave the part on both sides along some axis."""
    thin = np.zeros(len(points), bool)
    for step in np.diag(steps):
        thin |= ~inside(points + step) & ~inside(points - step)
    return int(thin.sum())


def warn_of_losses(what: str, unit: str, found: float, cells: Cells) -> None:
    """Warns where the size of a mesh or of contours is not that of the part."""
    sampled = cells.sampled
    if abs(found - sampled.size) > _WRONG * sampled.size and not _differs(found, sampled):
        sampled = sample(cells.inside, cells.lattice, cells.found, _CLOSER * _ENOUGH)
    if not _differs(found, sampled):
        return
    cell = float(cells.lattice.cell[0])
    warn_caller(
        f"the {what} has {unit} {found:.4g}, the part {sampled.size:.4g} by sampling: its walls or details are smaller "
        f"than cells of {cell:.3g}; ask for a feature_size below {2 * cell:.3g}",
        PartWarning,
    )


def _differs(found: float, sampled: Sampled) -> bool:
    """Whether a size is another than the sampled one, beyond what chance explains."""
    return abs(found - sampled.size) > _WRONG * sampled.size + 4.0 * sampled.error
