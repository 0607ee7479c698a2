"""Finds the boxes that a surface may cross by interval arithmetic, level by level with one compiled function.

Returns the lattice blocks that meshing, slicing and rendering must evaluate, and the blocks that are inside.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from livegrad import ops
from livegrad.diagnostics import caller_origin
from livegrad.implicit.bodies.batches import run_in_batches
from livegrad.implicit.bodies.masking import (
    Masks,
    compile_masked_bounds,
    count_mask_words,
    full_masks,
    is_inside,
    repeat_masks,
)
from livegrad.implicit.bodies.point_functions import separate_coordinates
from livegrad.implicit.distances.distance_call import distance_rules
from livegrad.implicit.nodes.errors import AssemblyError
from livegrad.ir.digest import function_digest
from livegrad.ir.function import make_function
from livegrad.ir.leaves import constant, input_node
from livegrad.ir.node import Function, Key, Node
from livegrad.ir.types import f64, scalar_of_dtype
from livegrad.ops.maps import map_over
from livegrad.passes.bound_intervals import bound_intervals
from livegrad.runtime.cpu import DerivedFunction, compile_function
from livegrad.state import memo

_Ends = Sequence[tuple[NDArray[Any], ...]]  # for each axis, where blocks start, and where the blocks before them end
Progress = Callable[[str, float], None]  # the current stage, and the progress from 0 to 1
_CHUNK = 1 << 18
MAX_BOXES = 1 << 24  # at one level; each takes about a hundred bytes while it is evaluated


def ignore_progress(stage: str, fraction: float) -> None:
    """The default progress callback, which does nothing."""


@memo(64)
def compile_bounds(function: Function) -> Any:
    """Native code: (x low, x high, y …, z …, arguments) → low, high bounds of a function of position over a box."""
    # The code of a function does not show that it is a distance, so distances are part of the key.
    distances = sorted(str(function_digest(inner)) for inner in distance_rules(function))
    return DerivedFunction(function, " ".join(["bounds", *distances]), _build_bounds)


def _build_bounds(function: Function) -> Function:
    by_coordinates = separate_coordinates(function)
    others = len(by_coordinates.parameters) - 3
    bounds = bound_intervals(by_coordinates, (True, True, True, *[False] * others), distance_rules(by_coordinates))
    return map_over(bounds, (*[True] * 6, *[False] * others))


@dataclass(frozen=True)
class CoordinateSystem:
    """A coordinate system with the orthonormal rows of `axes` and the origin `centre`.

    Boxes and points are rotated before a function is evaluated, so all views share the compiled function.
    """

    axes: NDArray[np.float64]
    centre: NDArray[np.float64]

    def points(self, positions: Sequence[NDArray[np.float64]], dtype: Any = np.float64) -> list[NDArray[Any]]:
        """Converts positions from view coordinates to part coordinates, axis by axis."""
        return list(run_in_batches(_compile_point_rotation(np.dtype(dtype)), positions, self._coefficients))

    def boxes(self, sides: Sequence[NDArray[np.float64]], dtype: Any = np.float64) -> list[NDArray[Any]]:
        """Boxes in part coordinates that enclose boxes of the view, as sides (x low, x high, y low …)."""
        return list(run_in_batches(_compile_box_rotation(np.dtype(dtype)), sides, self._coefficients))

    @property
    def _coefficients(self) -> list[np.float64]:
        return [*self.axes.reshape(-1), *self.centre]


@memo(4)
def _compile_point_rotation(dtype: np.dtype[Any]) -> Any:
    """Native code: (positions in view coordinates, axes, centre) → points in part coordinates."""
    positions, axes, centre = _view_inputs(3)
    return _compile_over_arrays("rotated_points", [positions, axes, centre], _rotate(positions, axes, centre), dtype)


@memo(4)
def _compile_box_rotation(dtype: np.dtype[Any]) -> Any:
    """Native code: (sides of boxes in a view, axes, centre) → sides of enclosing boxes in part coordinates."""
    sides, axes, centre = _view_inputs(6)
    lows, highs = sides[::2], sides[1::2]
    no_offset = [constant(0.0, f64)] * 3
    middles = _rotate([(low + high) * 0.5 for low, high in zip(lows, highs, strict=True)], axes, centre)
    sizes = [ops.abs(axis) for axis in axes]
    halves = _rotate([(high - low) * 0.5 for low, high in zip(lows, highs, strict=True)], sizes, no_offset)
    farthest = _rotate([ops.max(ops.abs(a), ops.abs(b)) for a, b in zip(lows, highs, strict=True)], sizes, no_offset)
    ends = []
    for middle, half, distance, start in zip(middles, halves, farthest, centre, strict=True):
        # Slightly more than half of the width, to cover rounding errors.
        reach = half + (distance + ops.abs(start)) * 1e-15
        ends += [middle - reach, middle + reach]
    return _compile_over_arrays("rotated_boxes", [sides, axes, centre], ends, dtype)


def _compile_over_arrays(name: str, inputs: Sequence[list[Node]], results: Sequence[Node], dtype: np.dtype[Any]) -> Any:
    """Compiles a function over arrays of the first inputs; the others are shared. Rounding keeps bounds valid."""
    mapped, *others = inputs
    shared = [node for nodes in others for node in nodes]
    rounded = [ops.cast(result, type=scalar_of_dtype(dtype)) for result in results]
    function = make_function(name, [*mapped, *shared], rounded)
    return compile_function(map_over(function, (*[True] * len(mapped), *[False] * len(shared))))


def _view_inputs(count: int) -> tuple[list[Node], list[Node], list[Node]]:
    inputs = [input_node(Key(str(index)), f64) for index in range(count + 12)]
    return inputs[:count], inputs[count : count + 9], inputs[count + 9 :]


def _rotate(positions: Sequence[Node], axes: Sequence[Node], centre: Sequence[Node]) -> list[Node]:
    x, y, z = positions
    return [x * axes[k] + y * axes[3 + k] + z * axes[6 + k] + centre[k] for k in range(3)]


@dataclass(frozen=True)
class IntervalBounds:
    """Interval bounds of a function of position over boxes (of a view, if given), or over rectangles at a height.

    A min/max choice that is decided in a box is pruned for all boxes and points inside it.
    """

    function: Function
    arguments: tuple[Any, ...]
    dtype: Any
    height: float | None = None
    view: CoordinateSystem | None = None

    @property
    def words(self) -> int:
        """The number of words in the mask of a box; 0 if the function is not pruned."""
        return count_mask_words(self.function)

    def __call__(
        self, sides: Sequence[NDArray[Any]], masks: Masks | None = None
    ) -> tuple[NDArray[Any], NDArray[Any], Masks | None]:
        """Lower and upper bounds over boxes, given by sides (x low, x high, y low …), and the masks of the boxes."""
        boxes = sides if self.view is None else self.view.boxes(sides, self.dtype)
        converted = [np.ascontiguousarray(side, self.dtype) for side in boxes]
        if self.height is not None:
            converted += [np.full(len(converted[0]), self.height, self.dtype)] * 2
        mask_words = self.words
        if not mask_words:
            return *run_in_batches(compile_bounds(self.function), converted, self.arguments), None
        box_masks = full_masks(mask_words, len(converted[0])) if masks is None else masks
        low, high, *new_masks = run_in_batches(
            compile_masked_bounds(self.function), [*converted, *box_masks], self.arguments
        )
        return low, high, np.stack(new_masks)

    def is_inside(self, positions: Sequence[NDArray[Any]], masks: Masks | None) -> NDArray[np.bool_]:
        """Where the function is negative. Positions are in the coordinates of the boxes, axis by axis."""
        return is_inside(self.function, self.arguments, self.coordinates(positions), masks)

    def coordinates(self, positions: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
        """Converts positions from the coordinates of the boxes to those of the function, axis by axis."""
        points = positions if self.view is None else self.view.points(positions, self.dtype)
        return [np.ascontiguousarray(axis, self.dtype) for axis in points]


@dataclass(frozen=True)
class Lattice:
    """A regular lattice: points `origin + index * cell`, `shape` cells along each axis, in blocks of `block` cells."""

    origin: NDArray[np.float64]
    cell: NDArray[np.float64]
    shape: tuple[int, ...]
    block: int

    @property
    def blocks(self) -> NDArray[np.int64]:
        """The number of blocks along each axis."""
        return np.array([-(-count // self.block) for count in self.shape], np.int64)

    def corner(self, block: NDArray[np.int64]) -> NDArray[np.float64]:
        """The low corners of blocks. They are exactly lattice points, because block widths are powers of two."""
        return self.origin + block * (self.block * self.cell)

    def ends(self, axis: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """Where each block starts along an axis, and where the block before it ends."""
        indices = np.arange(self.blocks[axis] + 1)
        corners = self.origin[axis] + indices * (self.block * self.cell[axis])
        return corners, corners


@dataclass(frozen=True)
class PrunedBlocks:
    """Blocks that a surface may cross, and boxes of blocks that are inside: (first blocks, blocks along each axis).

    `masks` enable the choices that can affect the sign of the function in each crossed block.
    """

    crossed: NDArray[np.int64]
    inside: list[tuple[NDArray[np.int64], int]]
    examined: int
    masks: Masks | None


def find_blocks(bounds: IntervalBounds, lattice: Lattice, max_boxes: int = MAX_BOXES) -> PrunedBlocks:
    """Finds the blocks of a lattice that the surface may cross, and the blocks that are certainly inside.

    Starts with at most a few hundred boxes and halves their sides down to single blocks.
    """
    counts = lattice.blocks
    side = 1
    while np.prod(-(-counts // side)) > 512:
        side *= 2
    first_blocks = [np.arange(-(-count // side)) * side for count in counts]
    level = _Level([axis.reshape(-1) for axis in np.meshgrid(*first_blocks, indexing="ij")], None)
    ends = [lattice.ends(axis) for axis in range(len(counts))]
    inside: list[tuple[NDArray[np.int64], int]] = []
    examined = 0
    while True:
        low, high, masks = _bounds_in_chunks(bounds, ends, level, side)
        level = _Level(level.columns, masks)
        examined += len(low)
        is_inside = high < 0
        if is_inside.any():
            inside.append((level.select(np.flatnonzero(is_inside)).boxes, side))
        level = level.select(np.flatnonzero(~(is_inside | (low > 0))))
        if side == 1:
            return PrunedBlocks(level.boxes, inside, examined, level.masks)
        box_count = len(level.columns[0]) << len(counts)
        if box_count > max_boxes:
            raise AssemblyError(
                "the lattice is too fine for a part of this size",
                where=caller_origin(),
                expected=f"at most {max_boxes:,} boxes of {lattice.block} cells that a surface may cross",
                found=f"up to {box_count:,}",
                help="use a larger feature_size, a smaller picture or tighter bounds",
            )
        side //= 2
        level = level.subdivide(side)
        for axis in np.flatnonzero(counts % (2 * side)):
            level = level.select(np.flatnonzero(level.columns[axis] < counts[axis]))


@dataclass(frozen=True)
class _Level:
    """Boxes of one size: the indices of their first blocks, axis by axis, and their masks."""

    columns: list[NDArray[np.int64]]
    masks: Masks | None

    @property
    def boxes(self) -> NDArray[np.int64]:
        return np.stack(self.columns, -1)

    def select(self, rows: NDArray[np.int64]) -> _Level:
        masks = None if self.masks is None else np.take(self.masks, rows, axis=1, mode="clip")
        return _Level([np.take(column, rows, mode="clip") for column in self.columns], masks)

    def subdivide(self, side: int) -> _Level:
        """Halves each box along every axis; `side` is the new side. The boxes of one parent stay adjacent."""
        axes = len(self.columns)
        steps = np.stack(np.meshgrid(*[[0, side]] * axes, indexing="ij")).reshape(axes, -1)
        columns = [(column[:, None] + step).reshape(-1) for column, step in zip(self.columns, steps, strict=True)]
        return _Level(columns, None if self.masks is None else repeat_masks(self.masks, steps.shape[1]))

    def sides(self, ends: _Ends, side: int, rows: slice) -> list[NDArray[Any]]:
        pairs = []
        for column, (starts, stops) in zip(self.columns, ends, strict=True):
            first = column[rows]
            pairs += [np.take(starts, first, mode="clip"), np.take(stops, first + side, mode="clip")]
        return pairs


def tight_bounds(
    bounds: IntervalBounds, low: NDArray[np.float64], high: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The corners of a tight box around the negative region between two corners, which are returned if it is empty."""
    for side in (32, 64):
        margin = (high - low) * 1e-3
        lattice = Lattice(low - margin, (high - low + 2 * margin) / side, (side, side, side), 1)
        pruned = find_blocks(bounds, lattice)
        boxes = [(pruned.crossed, 1), *pruned.inside]
        firsts = [first.min(0) for first, _ in boxes if len(first)]
        if not firsts:
            break
        lasts = [(first + width).max(0) for first, width in boxes if len(first)]
        starts, ends = lattice.corner(np.min(firsts, 0)), lattice.corner(np.minimum(np.max(lasts, 0), side))
        low, high = np.maximum(starts, low), np.minimum(ends, high)
    return low, high


def _bounds_in_chunks(
    bounds: IntervalBounds, ends: _Ends, level: _Level, side: int
) -> tuple[NDArray[Any], NDArray[Any], Masks | None]:
    """Computes the bounds of boxes in chunks, to limit memory."""
    pieces = []
    for start in range(0, len(level.columns[0]), _CHUNK):
        rows = slice(start, start + _CHUNK)
        masks = None if level.masks is None else level.masks[:, rows]
        pieces.append(bounds(level.sides(ends, side, rows), masks))
    if len(pieces) == 1:
        return pieces[0]
    if not pieces:
        return np.empty(0), np.empty(0), level.masks
    lows, highs, mask_words = zip(*pieces, strict=True)
    return (
        np.concatenate(lows),
        np.concatenate(highs),
        None if mask_words[0] is None else np.concatenate(mask_words, axis=1),
    )
