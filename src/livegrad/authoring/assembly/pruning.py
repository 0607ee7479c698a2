"""Where a surface can be: boxes whose bounds hold zero, found level by level with one compiled function.

Meshing, slicing and rendering ask for the blocks of a lattice that they must look at, and for those that are inside.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from livegrad.authoring.assembly.batches import in_batches
from livegrad.authoring.assembly.distance_call import distance_rules
from livegrad.authoring.assembly.errors import AssemblyError
from livegrad.authoring.assembly.part import Part, by_coordinates
from livegrad.backends.cpu import compile_function
from livegrad.diagnostics import caller_origin
from livegrad.ir.node import Function
from livegrad.ops.control import map_over
from livegrad.passes.bound_intervals import bound_intervals

Bounded = Callable[[NDArray[np.float64], NDArray[np.float64]], tuple[NDArray[Any], NDArray[Any]]]
Progress = Callable[[str, float], None]  # what is being done, and how far from 0 to 1
_MOST_AT_ONCE = 1 << 18
_MOST_BOXES = 1 << 24  # of one level; each takes some hundred bytes while it is looked at


def silent(what: str, share: float) -> None:
    """Progress that nobody looks at."""


@lru_cache(maxsize=64)
def bounds_over_boxes(function: Function) -> Any:
    """Native code for the bounds of a function of a position: (x low, x high, y …, z …, arguments) → low, high."""
    plain = by_coordinates(function)
    others = len(plain.parameters) - 3
    bounds = bound_intervals(plain, (True, True, True, *[False] * others), distance_rules(plain))
    return compile_function(map_over(bounds, (*[True] * 6, *[False] * others)))


def bounded(function: Function, arguments: tuple[Any, ...], dtype: Any) -> Bounded:
    """Bounds of a function over boxes, given their corners as arrays of shape (n, 3)."""
    run = bounds_over_boxes(function)

    def over(low: NDArray[np.float64], high: NDArray[np.float64]) -> tuple[NDArray[Any], NDArray[Any]]:
        sides = [np.ascontiguousarray(side[:, axis], dtype) for axis in range(3) for side in (low, high)]
        return in_batches(run, sides, arguments)

    return over


@dataclass(frozen=True)
class Lattice:
    """Points `origin + index * cell`; `shape` cells along each axis, in blocks of `block` cells."""

    origin: NDArray[np.float64]
    cell: NDArray[np.float64]
    shape: tuple[int, ...]
    block: int

    @property
    def blocks(self) -> NDArray[np.int64]:
        """How many blocks there are along each axis."""
        return np.array([-(-count // self.block) for count in self.shape], np.int64)

    def corner(self, block: NDArray[np.int64]) -> NDArray[np.float64]:
        """Where blocks begin; exactly where lattice points are, for blocks are a power of two wide."""
        return self.origin + block * (self.block * self.cell)


@dataclass(frozen=True)
class Found:
    """Blocks that a surface may cross, and boxes of blocks that lie inside: (first block, number along each axis)."""

    crossed: NDArray[np.int64]
    inside: list[tuple[NDArray[np.int64], int]]
    examined: int


def find_blocks(bounds: Bounded, lattice: Lattice, most: int = _MOST_BOXES) -> Found:
    """The blocks of a lattice that no bounds can rule out, and those that are inside for certain."""
    counts = lattice.blocks
    # From at most a few hundred boxes down to single blocks: each level halves the side.
    side = 1
    while np.prod(-(-counts // side)) > 512:
        side *= 2
    tops = [np.arange(-(-count // side)) * side for count in counts]
    boxes = np.stack(np.meshgrid(*tops, indexing="ij"), -1).reshape(-1, len(counts))
    inside: list[tuple[NDArray[np.int64], int]] = []
    examined = 0
    while True:
        low, high = _in_pieces(bounds, lattice, boxes, np.minimum(boxes + side, counts))
        examined += len(boxes)
        within = high < 0
        if within.any():
            inside.append((boxes[within], side))
        boxes = np.take(boxes, np.flatnonzero(~within & ~(low > 0)), axis=0)
        if side == 1:
            return Found(boxes, inside, examined)
        if len(boxes) << len(counts) > most:
            raise AssemblyError(
                "the part is too large for so fine a lattice",
                where=caller_origin(),
                expected=f"at most {most:,} boxes of {lattice.block} cells that a surface may cross",
                found=f"up to {len(boxes) << len(counts):,}",
                help="ask for larger features, a smaller picture or closer bounds",
            )
        side //= 2
        steps = np.stack(np.meshgrid(*[[0, side]] * len(counts), indexing="ij"), -1).reshape(-1, len(counts))
        boxes = (boxes[:, None] + steps).reshape(-1, len(counts))
        for axis in np.flatnonzero(counts % (2 * side)):
            boxes = boxes[boxes[:, axis] < counts[axis]]


def fit_bounds(part: Part) -> Part:
    """The part with bounds close around it: files often give a domain that is much larger than the body.

    A part that is nowhere inside its bounds keeps them.

    >>> import livegrad as lg
    >>> ball = lg.shapes.sphere(1.0).part(((-50, -50, -50), (50, 50, 50)))
    >>> bool((fit_bounds(ball).high < 2.0).all())
    True
    """
    if not isinstance(part, Part):  # what meshes, pictures and slices are made of comes by here first
        raise AssemblyError(
            "not a part",
            where=caller_origin(),
            expected="a Part",
            found=type(part).__name__,
            help="`shape.part(bounds)` makes one of a shape, `lg.parts(assembly)` gives those of a file",
        )
    for side in (32, 64):
        margin = (part.high - part.low) * 1e-3
        cell = (part.high - part.low + 2 * margin) / side
        lattice = Lattice(part.low - margin, cell, (side, side, side), 1)
        found = find_blocks(bounded(part.function, part.arguments, part.element.dtype), lattice)
        boxes = [(found.crossed, 1), *found.inside]
        firsts = [first.min(0) for first, _ in boxes if len(first)]
        if not firsts:
            return part
        lasts = [(first + width).max(0) for first, width in boxes if len(first)]
        low, high = lattice.corner(np.min(firsts, 0)), lattice.corner(np.minimum(np.max(lasts, 0), side))
        part = replace(part, low=np.maximum(low, part.low), high=np.minimum(high, part.high))
    return part


def _in_pieces(
    bounds: Bounded, lattice: Lattice, first: NDArray[np.int64], last: NDArray[np.int64]
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Bounds of boxes of blocks, some at a time: memory stays small whatever is left of a level."""
    pieces = [
        bounds(lattice.corner(first[at : at + _MOST_AT_ONCE]), lattice.corner(last[at : at + _MOST_AT_ONCE]))
        for at in range(0, len(first), _MOST_AT_ONCE)
    ]
    if len(pieces) == 1:
        return pieces[0]
    if not pieces:
        return np.empty(0), np.empty(0)
    return np.concatenate([low for low, _ in pieces]), np.concatenate([high for _, high in pieces])
