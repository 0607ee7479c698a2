"""Finds the boxes that a surface may cross, whose interval bounds contain zero, level by level with one compiled
function.

Meshing, slicing and rendering get the lattice blocks that they must evaluate, and those that are inside.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from livegrad import ops
from livegrad.diagnostics import caller_origin
from livegrad.implicit.bodies.batches import in_batches
from livegrad.implicit.bodies.masking import Masks, everything, is_inside, mask_word_count, masked_bounds, spread
from livegrad.implicit.bodies.point_functions import by_coordinates
from livegrad.implicit.distances.distance_call import distance_rules
from livegrad.implicit.nodes.errors import AssemblyError
from livegrad.ir.digest import function_digest
from livegrad.ir.function import make_function
from livegrad.ir.leaves import constant, input_node
from livegrad.ir.node import Function, Key, Node
from livegrad.ir.types import f64, scalar_of_dtype
from livegrad.ops.control import map_over
from livegrad.passes.bound_intervals import bound_intervals
from livegrad.runtime.cpu import DerivedFunction, compile_function
from livegrad.state import memo

_Ends = Sequence[tuple[NDArray[Any], ...]]  # along each axis, where blocks start, and where the previous ones end
Progress = Callable[[str, float], None]  # the current stage, and the progress from 0 to 1
_CHUNK = 1 << 18
MOST_BOXES = 1 << 24  # in one level; each takes about a hundred bytes while it is evaluated


def silent(what: str, share: float) -> None:
    """A progress callback that shows nothing."""


@memo(64)
def bounds_over_boxes(function: Function) -> Any:
    """Native code for the bounds of a function of a position: (x low, x high, y …, z …, arguments) → low, high."""
    # Distance functions cannot be recognised by their code, so their rules are passed.
    distances = sorted(str(function_digest(inner)) for inner in distance_rules(function))
    return DerivedFunction(function, " ".join(["bounds", *distances]), _over_boxes)


def _over_boxes(function: Function) -> Function:
    plain = by_coordinates(function)
    others = len(plain.parameters) - 3
    bounds = bound_intervals(plain, (True, True, True, *[False] * others), distance_rules(plain))
    return map_over(bounds, (*[True] * 6, *[False] * others))


@dataclass(frozen=True)
class View:
    """Coordinates along the orthonormal rows of `axes`, relative to `centre`.

    Boxes and points are rotated before a function is evaluated, so the compiled function serves all views.
    """

    axes: NDArray[np.float64]
    centre: NDArray[np.float64]

    def points(self, positions: Sequence[NDArray[np.float64]], dtype: Any = np.float64) -> list[NDArray[Any]]:
        """Converts positions in the view to the part's coordinates, axis by axis."""
        return list(in_batches(_rotated_points(np.dtype(dtype)), positions, self._numbers))

    def boxes(self, sides: Sequence[NDArray[np.float64]], dtype: Any = np.float64) -> list[NDArray[Any]]:
        """Boxes in the part's coordinates that contain boxes of the view, as sides (x low, x high, y low …)."""
        return list(in_batches(_rotated_boxes(np.dtype(dtype)), sides, self._numbers))

    @property
    def _numbers(self) -> list[np.float64]:
        return [*self.axes.reshape(-1), *self.centre]


@memo(4)
def _rotated_points(dtype: np.dtype[Any]) -> Any:
    """Native code: (positions in a view, its axes, its centre) → points."""
    positions, axes, centre = _view_inputs(3)
    return _over_arrays("rotated_points", [positions, axes, centre], _rotate(positions, axes, centre), dtype)


@memo(4)
def _rotated_boxes(dtype: np.dtype[Any]) -> Any:
    """Native code: (sides of boxes in a view, its axes, its centre) → sides of boxes that contain them."""
    sides, axes, centre = _view_inputs(6)
    lows, highs = sides[::2], sides[1::2]
    nothing = [constant(0.0, f64)] * 3
    middles = _rotate([(low + high) * 0.5 for low, high in zip(lows, highs, strict=True)], axes, centre)
    sizes = [ops.abs(axis) for axis in axes]
    halves = _rotate([(high - low) * 0.5 for low, high in zip(lows, highs, strict=True)], sizes, nothing)
    farthest = _rotate([ops.max(ops.abs(a), ops.abs(b)) for a, b in zip(lows, highs, strict=True)], sizes, nothing)
    ends = []
    for middle, half, far, start in zip(middles, halves, farthest, centre, strict=True):
        # Slightly more than half the width, to cover rounding errors.
        reach = half + (far + ops.abs(start)) * 1e-15
        ends += [middle - reach, middle + reach]
    return _over_arrays("rotated_boxes", [sides, axes, centre], ends, dtype)


def _over_arrays(name: str, inputs: Sequence[list[Node]], results: Sequence[Node], dtype: np.dtype[Any]) -> Any:
    """Native code over arrays of the first inputs; the others are shared. Rounding is monotonic and keeps bounds."""
    lifted, *others = inputs
    shared = [node for nodes in others for node in nodes]
    rounded = [ops.cast(result, type=scalar_of_dtype(dtype)) for result in results]
    function = make_function(name, [*lifted, *shared], rounded)
    return compile_function(map_over(function, (*[True] * len(lifted), *[False] * len(shared))))


def _view_inputs(count: int) -> tuple[list[Node], list[Node], list[Node]]:
    inputs = [input_node(Key(str(index)), f64) for index in range(count + 12)]
    return inputs[:count], inputs[count : count + 9], inputs[count + 9 :]


def _rotate(positions: Sequence[Node], axes: Sequence[Node], centre: Sequence[Node]) -> list[Node]:
    x, y, z = positions
    return [x * axes[k] + y * axes[3 + k] + z * axes[6 + k] + centre[k] for k in range(3)]


@dataclass(frozen=True)
class Bounded:
    """Interval bounds of a function of position over boxes (of a view, if given) or over rectangles at a height.

    Min/max choices that are decided in a box are pruned for everything inside it.
    """

    function: Function
    arguments: tuple[Any, ...]
    dtype: Any
    height: float | None = None
    view: View | None = None

    @property
    def words(self) -> int:
        """The number of words in the mask of a box; 0 if the function has nothing to prune."""
        return mask_word_count(self.function)

    def __call__(
        self, sides: Sequence[NDArray[Any]], masks: Masks | None = None
    ) -> tuple[NDArray[Any], NDArray[Any], Masks | None]:
        """Lower and upper bounds between sides (x low, x high, y low …), and the masks of the boxes."""
        boxes = sides if self.view is None else self.view.boxes(sides, self.dtype)
        converted = [np.ascontiguousarray(side, self.dtype) for side in boxes]
        if self.height is not None:
            converted += [np.full(len(converted[0]), self.height, self.dtype)] * 2
        mask_words = self.words
        if not mask_words:
            return *in_batches(bounds_over_boxes(self.function), converted, self.arguments), None
        box_masks = everything(mask_words, len(converted[0])) if masks is None else masks
        least, most, *left = in_batches(masked_bounds(self.function), [*converted, *box_masks], self.arguments)
        return least, most, np.stack(left)

    def is_inside(self, positions: Sequence[NDArray[Any]], masks: Masks | None) -> NDArray[np.bool_]:
        """Where the function is negative, at positions in the coordinates of boxes, axis by axis."""
        return is_inside(self.function, self.arguments, self.coordinates(positions), masks)

    def coordinates(self, positions: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
        """Converts positions in the coordinates of boxes to coordinates of the function, axis by axis."""
        points = positions if self.view is None else self.view.points(positions, self.dtype)
        return [np.ascontiguousarray(axis, self.dtype) for axis in points]


def bounded(function: Function, arguments: tuple[Any, ...], dtype: Any) -> Bounded:
    """Bounds of a function over boxes."""
    return Bounded(function, arguments, dtype)


@dataclass(frozen=True)
class Lattice:
    """Points `origin + index * cell`; `shape` cells along each axis, in blocks of `block` cells."""

    origin: NDArray[np.float64]
    cell: NDArray[np.float64]
    shape: tuple[int, ...]
    block: int

    @property
    def blocks(self) -> NDArray[np.int64]:
        """The number of blocks along each axis."""
        return np.array([-(-count // self.block) for count in self.shape], np.int64)

    def corner(self, block: NDArray[np.int64]) -> NDArray[np.float64]:
        """The first corners of blocks. They are exactly lattice points, because block widths are powers of two."""
        return self.origin + block * (self.block * self.cell)

    def ends(self, axis: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """Where each block starts along an axis, and where the previous one ends."""
        numbers = np.arange(self.blocks[axis] + 1)
        corners = self.origin[axis] + numbers * (self.block * self.cell[axis])
        return corners, corners


@dataclass(frozen=True)
class PrunedBlocks:
    """Blocks that a surface may cross, and boxes of blocks that lie inside: (first block, blocks along each axis).

    `masks` contain the choices that can affect the function's sign in each crossed block.
    """

    crossed: NDArray[np.int64]
    inside: list[tuple[NDArray[np.int64], int]]
    examined: int
    masks: Masks | None


def find_blocks(bounds: Bounded, lattice: Lattice, most: int = MOST_BOXES) -> PrunedBlocks:
    """The blocks of a lattice that bounds cannot exclude, and those that are certainly inside."""
    counts = lattice.blocks
    # From at most a few hundred boxes down to single blocks: each level halves the side.
    side = 1
    while np.prod(-(-counts // side)) > 512:
        side *= 2
    tops = [np.arange(-(-count // side)) * side for count in counts]
    level = _Level([axis.reshape(-1) for axis in np.meshgrid(*tops, indexing="ij")], None)
    ends = [lattice.ends(axis) for axis in range(len(counts))]
    inside: list[tuple[NDArray[np.int64], int]] = []
    examined = 0
    while True:
        low, high, masks = _bounds_in_chunks(bounds, ends, level, side)
        level = _Level(level.columns, masks)
        examined += len(low)
        within = high < 0
        if within.any():
            inside.append((level.select(np.flatnonzero(within)).boxes, side))
        level = level.select(np.flatnonzero(~(within | (low > 0))))
        if side == 1:
            return PrunedBlocks(level.boxes, inside, examined, level.masks)
        box_count = len(level.columns[0]) << len(counts)
        if box_count > most:
            raise AssemblyError(
                "the lattice is too fine for a part of this size",
                where=caller_origin(),
                expected=f"at most {most:,} boxes of {lattice.block} cells that a surface may cross",
                found=f"up to {box_count:,}",
                help="use a larger feature_size, a smaller picture or closer bounds",
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

    def select(self, chosen: NDArray[np.int64]) -> _Level:
        masks = None if self.masks is None else np.take(self.masks, chosen, axis=1, mode="clip")
        return _Level([np.take(column, chosen, mode="clip") for column in self.columns], masks)

    def subdivide(self, side: int) -> _Level:
        """Splits each box in half along every axis; `side` is the new side. Boxes from one box stay adjacent."""
        axes = len(self.columns)
        steps = np.stack(np.meshgrid(*[[0, side]] * axes, indexing="ij")).reshape(axes, -1)
        columns = [(column[:, None] + step).reshape(-1) for column, step in zip(self.columns, steps, strict=True)]
        return _Level(columns, None if self.masks is None else spread(self.masks, steps.shape[1]))

    def sides(self, ends: _Ends, side: int, some: slice) -> list[NDArray[Any]]:
        pairs = []
        for column, (starts, stops) in zip(self.columns, ends, strict=True):
            first = column[some]
            pairs += [np.take(starts, first, mode="clip"), np.take(stops, first + side, mode="clip")]
        return pairs


def tight_bounds(
    bounds: Bounded, low: NDArray[np.float64], high: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Tight corners around the negative region between two corners, or the corners themselves if there is none."""
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
    bounds: Bounded, ends: _Ends, level: _Level, side: int
) -> tuple[NDArray[Any], NDArray[Any], Masks | None]:
    """Bounds of boxes in chunks, to limit memory."""
    pieces = []
    for at in range(0, len(level.columns[0]), _CHUNK):
        some = slice(at, at + _CHUNK)
        masks = None if level.masks is None else level.masks[:, some]
        pieces.append(bounds(level.sides(ends, side, some), masks))
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
