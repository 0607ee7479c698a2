"""Chooses the lattice of a mesh or slice. Random samples detect walls between lattice points, which refine the cells or
cause warnings about lost volume.

`meshing` and `slicing` call it, in three and two dimensions.
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
IsInside = Callable[[Points], NDArray[np.bool_]]  # points have as many coordinates as the lattice

_CHUNK = 1 << 14
_ENOUGH = 3000  # points inside: the error is about two percent
_TRIES = 1 << 19  # points at most
_CLOSER = 16  # times as many points if the error decides whether to warn
_THIN = 0.75  # cells: a point that leaves the part within this distance on both sides is in a thin wall
_LITTLE = 0.05  # cells are refined if thin walls are a larger fraction of the size
_WRONG = 0.05  # relative error of a result that causes a warning
_HALVINGS = 4
_MOST_CELLS = 1 << 20  # crossed by the surface, for automatic refinement


@dataclass(frozen=True)
class SizeEstimate:
    """Estimates from random points: the volume or area of a part, its standard error, the fraction in thin walls."""

    size: float
    error: float
    thin: float


@dataclass(frozen=True)
class Cells:
    """A lattice, the blocks that the surface may cross, and estimates of the size of the part."""

    lattice: Lattice
    blocks: PrunedBlocks
    sampled: SizeEstimate
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
    """Creates a lattice with cells of this size. If `finer`, halves the cells until walls contain lattice points.

    At most `max_boxes` blocks are evaluated. Warns before any slow work if walls remain thinner than the cells.
    """
    halvings = _HALVINGS if finer else 0
    while True:
        lattice = lattice_of(cell)
        blocks = find_blocks(bounds, lattice, max_boxes)
        sampled = estimate_size(inside, lattice, blocks)
        next_cells = len(blocks.crossed) * (2 * lattice.block) ** (len(lattice.shape) - 1)
        if not halvings or sampled.thin <= _LITTLE or next_cells > _MOST_CELLS:
            if finer and sampled.thin > _LITTLE:
                _warn_of_thin_walls(cell)
            return Cells(lattice, blocks, sampled, inside)
        halvings -= 1
        cell /= 2


def estimate_size(inside: IsInside, lattice: Lattice, pruned: PrunedBlocks, enough: int = _ENOUGH) -> SizeEstimate:
    """Estimates the volume or area from boxes that are certainly inside and random points in crossed blocks.

    Points are drawn until `enough` are inside, or until a limit is reached.
    """
    dimensions = len(lattice.shape)
    block_size = float(np.prod(lattice.block * lattice.cell))
    inside_size = block_size * sum(len(first) * width**dimensions for first, width in pruned.inside)
    if not len(pruned.crossed):
        return SizeEstimate(inside_size, 0.0, 0.0)
    generator = np.random.default_rng(0)
    drawn = hits = thin_count = 0
    while hits < enough and drawn < _TRIES * enough // _ENOUGH:
        blocks = pruned.crossed[generator.integers(len(pruned.crossed), size=_CHUNK)]
        positions = (blocks + generator.random(blocks.shape)) * lattice.block
        points = lattice.origin + positions * lattice.cell
        points = points[inside(points)]
        drawn, hits = drawn + _CHUNK, hits + len(points)
        thin_count += _count_in_walls(inside, points, _THIN * lattice.cell) if len(points) else 0
    crossed_size = block_size * len(pruned.crossed)
    fraction = hits / drawn
    size = inside_size + crossed_size * fraction
    error = crossed_size * float(np.sqrt(fraction * (1.0 - fraction) / drawn))
    return SizeEstimate(size, error, crossed_size * thin_count / drawn / size if size else 0.0)


def _count_in_walls(inside: IsInside, points: Points, steps: NDArray[np.float64]) -> int:
    """Counts points that leave the part on both sides along an axis."""
    thin = np.zeros(len(points), bool)
    for step in np.diag(steps):
        thin |= ~inside(points + step) & ~inside(points - step)
    return int(thin.sum())


def _warn_of_thin_walls(cell: float) -> None:
    warn_caller(
        f"the part has walls thinner than cells of {cell:.3g}, the finest cells that are chosen by default: some "
        f"walls may be lost, and meshing may take minutes; pass a feature_size below {2 * cell:.3g} to keep them, or a "
        "larger feature_size for a draft",
        PartWarning,
    )


def warn_about_losses(what: str, unit: str, measured: float, cells: Cells) -> None:
    """Warns if the size of a mesh or slice differs from the estimated size of the part."""
    sampled = cells.sampled
    if abs(measured - sampled.size) > _WRONG * sampled.size and not _differs(measured, sampled):
        sampled = estimate_size(cells.inside, cells.lattice, cells.blocks, _CLOSER * _ENOUGH)
    if not _differs(measured, sampled):
        return
    cell = float(cells.lattice.cell[0])
    warn_caller(
        f"the {what} has {unit} {measured:.4g}, the part {sampled.size:.4g} by sampling: its walls or details are "
        f"smaller than cells of {cell:.3g}; pass a feature_size below {2 * cell:.3g}",
        PartWarning,
    )


def _differs(measured: float, sampled: SizeEstimate) -> bool:
    """Whether a size differs from the estimate by more than the tolerance and more than four standard errors."""
    return abs(measured - sampled.size) > max(_WRONG * sampled.size, 4.0 * sampled.error)
