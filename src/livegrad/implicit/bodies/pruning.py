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
from livegrad.implicit.bodies.masking import Masks, everything, is_inside, masked_bounds, number_of_words, spread
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

_Ends = Sequence[tuple[NDArray[Any], ...]]  # along each axis, where blocks begin, and where those before them end
Progress = Callable[[str, float], None]  # what is being done, and how far from 0 to 1
_MOST_AT_ONCE = 1 << 18
MOST_BOXES = 1 << 24  # of one level; each takes some hundred bytes while it is looked at


def silent(what: str, share: float) -> None:
    """Progress that nobody looks at."""


@memo(64)
def bounds_over_boxes(function: Function) -> Any:
    """Native code for the bounds of a function of a position: (x low, x high, y …, z …, arguments) → low, high."""
    # Which of the functions inside are distances, nobody sees from what they compute.
    distances = sorted(str(function_digest(inner)) for inner in distance_rules(function))
    return DerivedFunction(function, " ".join(["bounds", *distances]), _over_boxes)


def _over_boxes(function: Function) -> Function:
    plain = by_coordinates(function)
    others = len(plain.parameters) - 3
    bounds = bound_intervals(plain, (True, True, True, *[False] * others), distance_rules(plain))
    return map_over(bounds, (*[True] * 6, *[False] * others))


@dataclass(frozen=True)
class View:
    """Coordinates along `axes`, rows of length 1 at right angles, from `centre` on.

    Boxes and points are turned before a function sees them: it is compiled for no view, and for all of them.
    """

    axes: NDArray[np.float64]
    centre: NDArray[np.float64]

    def points(self, places: Sequence[NDArray[np.float64]], dtype: Any = np.float64) -> list[NDArray[Any]]:
        """Places of the view in the part's coordinates, axis by axis."""
        return list(in_batches(_turned_points(np.dtype(dtype)), places, self._numbers))

    def boxes(self, sides: Sequence[NDArray[np.float64]], dtype: Any = np.float64) -> list[NDArray[Any]]:
        """Boxes of the part's coordinates around boxes of the view, as sides (x low, x high, y low …)."""
        return list(in_batches(_turned_boxes(np.dtype(dtype)), sides, self._numbers))

    @property
    def _numbers(self) -> list[np.float64]:
        return [*self.axes.reshape(-1), *self.centre]


@memo(4)
def _turned_points(dtype: np.dtype[Any]) -> Any:
    """Native code: places in a view, its axes and its centre, to points."""
    places, axes, centre = _view_inputs(3)
    return _over_places("turned_points", [places, axes, centre], _turned(places, axes, centre), dtype)


@memo(4)
def _turned_boxes(dtype: np.dtype[Any]) -> Any:
    """Native code: sides of boxes in a view, its axes and its centre, to sides of boxes around them."""
    sides, axes, centre = _view_inputs(6)
    lows, highs = sides[::2], sides[1::2]
    nothing = [constant(0.0, f64)] * 3
    middles = _turned([(low + high) * 0.5 for low, high in zip(lows, highs, strict=True)], axes, centre)
    sizes = [ops.abs(axis) for axis in axes]
    halves = _turned([(high - low) * 0.5 for low, high in zip(lows, highs, strict=True)], sizes, nothing)
    farthest = _turned([ops.max(ops.abs(a), ops.abs(b)) for a, b in zip(lows, highs, strict=True)], sizes, nothing)
    ends = []
    for middle, half, far, start in zip(middles, halves, farthest, centre, strict=True):
        # A little more than half the width, for what was rounded on the way there.
        reach = half + (far + ops.abs(start)) * 1e-15
        ends += [middle - reach, middle + reach]
    return _over_places("turned_boxes", [sides, axes, centre], ends, dtype)


def _over_places(name: str, inputs: Sequence[list[Node]], results: Sequence[Node], dtype: np.dtype[Any]) -> Any:
    """Native code over arrays of places; the other inputs are shared. Rounding keeps the order of numbers."""
    places, *others = inputs
    shared = [node for own in others for node in own]
    rounded = [ops.cast(result, type=scalar_of_dtype(dtype)) for result in results]
    made = make_function(name, [*places, *shared], rounded)
    return compile_function(map_over(made, (*[True] * len(places), *[False] * len(shared))))


def _view_inputs(number: int) -> tuple[list[Node], list[Node], list[Node]]:
    inputs = [input_node(Key(str(place)), f64) for place in range(number + 12)]
    return inputs[:number], inputs[number : number + 9], inputs[number + 9 :]


def _turned(places: Sequence[Node], axes: Sequence[Node], centre: Sequence[Node]) -> list[Node]:
    x, y, z = places
    return [x * axes[k] + y * axes[3 + k] + z * axes[6 + k] + centre[k] for k in range(3)]


@dataclass(frozen=True)
class Bounded:
    """Bounds of a function of a position over boxes, of a view if given, or over rectangles of the plane at a height.

    Of a function of many choices, those that are decided in a box are left out for all within it.
    """

    function: Function
    arguments: tuple[Any, ...]
    dtype: Any
    height: float | None = None
    view: View | None = None

    @property
    def words(self) -> int:
        """How many words say which choices of the function are looked at in a box; 0 where all are."""
        return number_of_words(self.function)

    def __call__(
        self, sides: Sequence[NDArray[Any]], masks: Masks | None = None
    ) -> tuple[NDArray[Any], NDArray[Any], Masks | None]:
        """The least and the greatest value between sides (x low, x high, y low …), and the words for what is there."""
        turned = sides if self.view is None else self.view.boxes(sides, self.dtype)
        given = [np.ascontiguousarray(side, self.dtype) for side in turned]
        if self.height is not None:
            given += [np.full(len(given[0]), self.height, self.dtype)] * 2
        words = self.words
        if not words:
            return *in_batches(bounds_over_boxes(self.function), given, self.arguments), None
        asked = everything(words, len(given[0])) if masks is None else masks
        least, most, *left = in_batches(masked_bounds(self.function), [*given, *asked], self.arguments)
        return least, most, np.stack(left)

    def is_inside(self, places: Sequence[NDArray[Any]], masks: Masks | None) -> NDArray[np.bool_]:
        """Where the function is negative, at places in the coordinates of boxes, axis by axis."""
        return is_inside(self.function, self.arguments, self.coordinates(places), masks)

    def coordinates(self, places: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
        """Places in the coordinates of boxes in those of the function, axis by axis."""
        points = places if self.view is None else self.view.points(places, self.dtype)
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
        """How many blocks there are along each axis."""
        return np.array([-(-count // self.block) for count in self.shape], np.int64)

    def corner(self, block: NDArray[np.int64]) -> NDArray[np.float64]:
        """Where blocks begin; exactly where lattice points are, for blocks are a power of two wide."""
        return self.origin + block * (self.block * self.cell)

    def ends(self, axis: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """Where along an axis each block begins, and where the one before each ends."""
        numbers = np.arange(self.blocks[axis] + 1)
        corners = self.origin[axis] + numbers * (self.block * self.cell[axis])
        return corners, corners


@dataclass(frozen=True)
class Found:
    """Blocks that a surface may cross, and boxes of blocks that lie inside: (first block, number along each axis).

    `masks` say for each crossed block what the function's sign can depend on there.
    """

    crossed: NDArray[np.int64]
    inside: list[tuple[NDArray[np.int64], int]]
    examined: int
    masks: Masks | None


def find_blocks(bounds: Bounded, lattice: Lattice, most: int = MOST_BOXES) -> Found:
    """The blocks of a lattice that no bounds can rule out, and those that are inside for certain."""
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
        low, high, masks = _in_pieces(bounds, ends, level, side)
        level = _Level(level.columns, masks)
        examined += len(low)
        within = high < 0
        if within.any():
            inside.append((level.taken(np.flatnonzero(within)).boxes, side))
        level = level.taken(np.flatnonzero(~(within | (low > 0))))
        if side == 1:
            return Found(level.boxes, inside, examined, level.masks)
        number = len(level.columns[0]) << len(counts)
        if number > most:
            raise AssemblyError(
                "the part is too large for so fine a lattice",
                where=caller_origin(),
                expected=f"at most {most:,} boxes of {lattice.block} cells that a surface may cross",
                found=f"up to {number:,}",
                help="use a larger feature_size, a smaller picture or closer bounds",
            )
        side //= 2
        level = level.halved(side)
        for axis in np.flatnonzero(counts % (2 * side)):
            level = level.taken(np.flatnonzero(level.columns[axis] < counts[axis]))


@dataclass(frozen=True)
class _Level:
    """Boxes of one size: the numbers of their first blocks, axis by axis, and what is looked at in them."""

    columns: list[NDArray[np.int64]]
    masks: Masks | None

    @property
    def boxes(self) -> NDArray[np.int64]:
        return np.stack(self.columns, -1)

    def taken(self, chosen: NDArray[np.int64]) -> _Level:
        masks = None if self.masks is None else np.take(self.masks, chosen, axis=1, mode="clip")
        return _Level([np.take(column, chosen, mode="clip") for column in self.columns], masks)

    def halved(self, side: int) -> _Level:
        """Each box as boxes with half its side, which is now `side`; those of one box stay side by side."""
        axes = len(self.columns)
        steps = np.stack(np.meshgrid(*[[0, side]] * axes, indexing="ij")).reshape(axes, -1)
        columns = [(column[:, None] + step).reshape(-1) for column, step in zip(self.columns, steps, strict=True)]
        return _Level(columns, None if self.masks is None else spread(self.masks, steps.shape[1]))

    def sides(self, ends: _Ends, side: int, some: slice) -> list[NDArray[Any]]:
        found = []
        for column, (starts, stops) in zip(self.columns, ends, strict=True):
            first = column[some]
            found += [np.take(starts, first, mode="clip"), np.take(stops, first + side, mode="clip")]
        return found


def tight_bounds(
    bounds: Bounded, low: NDArray[np.float64], high: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Corners close around where the function is negative between two corners; those themselves where it never is."""
    for side in (32, 64):
        margin = (high - low) * 1e-3
        lattice = Lattice(low - margin, (high - low + 2 * margin) / side, (side, side, side), 1)
        found = find_blocks(bounds, lattice)
        boxes = [(found.crossed, 1), *found.inside]
        firsts = [first.min(0) for first, _ in boxes if len(first)]
        if not firsts:
            break
        lasts = [(first + width).max(0) for first, width in boxes if len(first)]
        starts, ends = lattice.corner(np.min(firsts, 0)), lattice.corner(np.minimum(np.max(lasts, 0), side))
        low, high = np.maximum(starts, low), np.minimum(ends, high)
    return low, high


def _in_pieces(
    bounds: Bounded, ends: _Ends, level: _Level, side: int
) -> tuple[NDArray[Any], NDArray[Any], Masks | None]:
    """Bounds of boxes, some at a time: memory stays small whatever is left of a level."""
    pieces = []
    for at in range(0, len(level.columns[0]), _MOST_AT_ONCE):
        some = slice(at, at + _MOST_AT_ONCE)
        own = None if level.masks is None else level.masks[:, some]
        pieces.append(bounds(level.sides(ends, side, some), own))
    if len(pieces) == 1:
        return pieces[0]
    if not pieces:
        return np.empty(0), np.empty(0), level.masks
    lows, highs, words = zip(*pieces, strict=True)
    return np.concatenate(lows), np.concatenate(highs), None if words[0] is None else np.concatenate(words, axis=1)
