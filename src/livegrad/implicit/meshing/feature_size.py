"""Chooses the cell size of a lattice from the feature size, and rejects cells that would miss the part.

`meshing` and `slicing` call it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from livegrad.diagnostics import caller_origin
from livegrad.implicit.bodies.part import Part
from livegrad.implicit.bodies.pruning import IntervalBounds, Lattice, find_blocks
from livegrad.implicit.nodes.errors import AssemblyError

_MIN_CELLS = 8  # cells along the longest side of a part, whatever the feature size
_MAX_CELLS = 1 << 16
_HALVINGS = 6
_BLOCK = 4
_MAX_BLOCKS = 1 << 16


def choose_cell_size(part: Part, feature_size: Any) -> float:
    """Returns half of the feature size, so that every feature contains a lattice point.

    A part has at least a few cells along its longest side, even if the feature size exceeds the part.

    >>> import livegrad as lg
    >>> ball = lg.shapes.sphere(1.0).part(((-1, -1, -1), (1, 1, 1)))
    >>> choose_cell_size(ball, 0.5), choose_cell_size(ball, 100)
    (0.25, 0.25)
    """
    extent = float((part.high - part.low).max())
    size = extent / 50.0 if feature_size is None else feature_size
    is_number = isinstance(size, int | float | np.number) and not isinstance(size, bool)
    cell = float(size) / 2 if is_number else math.nan
    if not cell > 0 or math.isinf(cell) or extent / cell > _MAX_CELLS:
        raise AssemblyError(
            "invalid feature size",
            where=caller_origin(),
            expected=f"a number from {2 * extent / _MAX_CELLS:.3g} up; the part is {_format_size(part)} large",
            found=repr(feature_size),
        )
    return min(cell, extent / _MIN_CELLS)


def require_resolved(
    part: Part, bounds: IntervalBounds, low: NDArray[np.float64], high: NDArray[np.float64], cell: float
) -> None:
    """Raises if a finer lattice between two corners finds a body. The lattice with this cell size found none.

    Corners have three coordinates, or two for a plane at the height of `bounds`.
    """
    for halving in range(1, _HALVINGS + 1):
        finer = cell / (1 << halving)
        counts = tuple(int(c) for c in np.ceil((high - low) / finer).astype(np.int64) + 2)
        lattice = Lattice(low - 0.75 * finer, np.full(len(low), finer), counts, _BLOCK)
        if np.prod(lattice.blocks.astype(float)) > float(1 << 40):
            return
        blocks = find_blocks(bounds, lattice)
        if not len(blocks.crossed) and not blocks.inside:
            return
        if len(blocks.crossed) > _MAX_BLOCKS:
            return
        if blocks.inside or _any_inside(bounds, lattice, blocks.crossed):
            raise AssemblyError(
                "the part is thinner than the feature size and would be lost",
                where=caller_origin(),
                expected=f"a feature_size up to {2 * finer:.3g}",
                found=f"{2 * cell:.3g}; the part is {_format_size(part)} large",
            )


def _any_inside(bounds: IntervalBounds, lattice: Lattice, blocks: NDArray[np.int64]) -> bool:
    """Whether any lattice point of the blocks is inside. Bounds over a box of size zero are the value of the point."""
    steps = np.stack(np.meshgrid(*[np.arange(lattice.block)] * len(lattice.shape), indexing="ij"), -1)
    steps = steps.reshape(-1, len(lattice.shape))
    for start in range(0, len(blocks), 1 << 12):
        index = (blocks[start : start + (1 << 12), None] * lattice.block + steps).reshape(-1, len(lattice.shape))
        points = lattice.origin + index * lattice.cell
        if (bounds([axis for axis in points.T for _ in range(2)])[1] < 0).any():
            return True
    return False


def _format_size(part: Part) -> str:
    return " × ".join(f"{side:.3g}" for side in part.high - part.low)
