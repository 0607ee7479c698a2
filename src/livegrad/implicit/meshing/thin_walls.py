"""Finds walls between lattice points by random sampling, to refine the cells or to warn about lost volume.

`meshing` and `slicing` get their lattice here, in three or two dimensions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from livegrad.diagnostics import warn_caller
from livegrad.implicit.bodies.pruning import MAX_BOXES, IntervalBounds, Lattice, PrunedBlocks, find_blocks
from livegrad.implicit.nodes.errors import PartWarning

Points = NDArray[np.float64]
IsInside = Callable[[Points], NDArray[np.bool_]]  # of points with as many coordinates as the lattice

_CHUNK = 1 << 14
_ENOUGH = 3000  # points inside, for an error of two percent
_TRIES = 1 << 19  # most points to try
_CLOSER = 16  # times as many points if the error decides whether something was lost
_THIN = 0.75  # cells to both sides: a point that leaves the part on both is in a wall that cells do not resolve
_LITTLE = 0.05  # share of the size in such walls above which cells become finer
_WRONG = 0.05  # relative error of a result above which there is a warning
_HALVINGS = 4
_MOST_CELLS = 1 << 20  # crossed by the surface, for automatic refinement


@dataclass(frozen=True)
class Sampled:
    """Estimates from random points: the volume or area of a part, its error, and the share in thin walls."""

    size: float
    error: float
    thin: float


@dataclass(frozen=True)
class Cells:
    """A lattice, the blocks that the surface may cross, and estimates from random points."""

    lattice: Lattice
    blocks: PrunedBlocks
    sampled: Sampled
    inside: IsInside


def find_cells(
    bounds: IntervalBounds,
    inside: IsInside,
    lattice_of: Callable[[float], Lattice],
    cell: float,
    *,
    finer: bool,
    max_boxes: int = MAX_BOXES,
) -> Cells:
    """A lattice with cells of this size; if `finer`, cells are halved until walls contain lattice points.

    At most `max_boxes` blocks are evaluated. Warns at once, before any slow work, if walls stay thinner than the cells.
    """
    halvings = _HALVINGS if finer else 0
    while True:
        lattice = lattice_of(cell)
        blocks = find_blocks(bounds, lattice, max_boxes)
        sampled = sample(inside, lattice, blocks)
        next_cells = len(blocks.crossed) * (2 * lattice.block) ** (len(lattice.shape) - 1)
        if not halvings or sampled.thin <= _LITTLE or next_cells > _MOST_CELLS:
            if finer and sampled.thin > _LITTLE:
                _warn_of_thin_walls(cell)
            return Cells(lattice, blocks, sampled, inside)
        halvings -= 1
        cell /= 2


def sample(inside: IsInside, lattice: Lattice, pruned: PrunedBlocks, enough: int = _ENOUGH) -> Sampled:
    """The volume or area inside, from boxes that are certainly inside and random points in crossed blocks.

    Points are drawn until `enough` are inside, or until too many were tried.
    """
    axes = len(lattice.shape)
    block = float(np.prod(lattice.block * lattice.cell))
    certain = block * sum(len(first) * width**axes for first, width in pruned.inside)
    if not len(pruned.crossed):
        return Sampled(certain, 0.0, 0.0)
    generator = np.random.default_rng(0)
    tried = hits = thin = 0
    while hits < enough and tried < _TRIES * enough // _ENOUGH:
        blocks = pruned.crossed[generator.integers(len(pruned.crossed), size=_CHUNK)]
        positions = (blocks + generator.random(blocks.shape)) * lattice.block
        points = lattice.origin + positions * lattice.cell
        points = points[inside(points)]
        tried, hits = tried + _CHUNK, hits + len(points)
        thin += _count_in_walls(inside, points, _THIN * lattice.cell) if len(points) else 0
    within = block * len(pruned.crossed)
    share = hits / tried
    size = certain + within * share
    error = within * float(np.sqrt(share * (1.0 - share) / tried))
    return Sampled(size, error, within * thin / tried / size if size else 0.0)


def _count_in_walls(inside: IsInside, points: Points, steps: NDArray[np.float64]) -> int:
    """The number of points that leave the part on both sides along some axis."""
    thin = np.zeros(len(points), bool)
    for step in np.diag(steps):
        thin |= ~inside(points + step) & ~inside(points - step)
    return int(thin.sum())


def _warn_of_thin_walls(cell: float) -> None:
    warn_caller(
        f"the part has walls thinner than cells of {cell:.3g}, the finest that are chosen by default: some walls may "
        f"be lost, and meshing may take minutes; pass a feature_size below {2 * cell:.3g} to keep them, or a larger "
        "one for a draft",
        PartWarning,
    )


def warn_of_losses(what: str, unit: str, measured: float, cells: Cells) -> None:
    """Warns if the size of a mesh or of contours differs from that of the part."""
    sampled = cells.sampled
    if abs(measured - sampled.size) > _WRONG * sampled.size and not _differs(measured, sampled):
        sampled = sample(cells.inside, cells.lattice, cells.blocks, _CLOSER * _ENOUGH)
    if not _differs(measured, sampled):
        return
    cell = float(cells.lattice.cell[0])
    warn_caller(
        f"the {what} has {unit} {measured:.4g}, the part {sampled.size:.4g} by sampling: its walls or details are "
        f"smaller than cells of {cell:.3g}; ask for a feature_size below {2 * cell:.3g}",
        PartWarning,
    )


def _differs(measured: float, sampled: Sampled) -> bool:
    """Whether a size differs from the sampled one by more than is tolerated and more than chance explains."""
    return abs(measured - sampled.size) > max(_WRONG * sampled.size, 4.0 * sampled.error)
