"""Min/max pruning in native code: evaluates only the leaves of a part's function that can determine its sign.

`pruning` finds these leaves per box, as bit masks; code that evaluates points near the surface calls `is_inside`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from livegrad.compiler import lower
from livegrad.implicit.bodies.batches import in_batches
from livegrad.implicit.bodies.point_functions import by_coordinates, gradients_over_points, over_points
from livegrad.implicit.distances.distance_call import distance_rules
from livegrad.implicit.nodes.exact_gradient import SMALLEST_LENGTH
from livegrad.ir.node import Function
from livegrad.ops.control import map_over
from livegrad.passes.functions import rearrange_signature
from livegrad.passes.mask_choices import mask_bounds, mask_choices, undefined_values, words_of
from livegrad.passes.mask_gradients import mask_gradients, with_tangents
from livegrad.passes.split_choices import MIN_COST, Choices, function_cost, split_choices
from livegrad.runtime.cpu import DerivedFunction, derived_number
from livegrad.runtime.cpu.cpu_target import CPU
from livegrad.schedule.loops.expand import with_code
from livegrad.state import memo

Masks = NDArray[np.uint32]  # a row for each word, a column for each box or point
_AXES = 3


@memo(64)
def choices_of(function: Function) -> Choices | None:
    """The min/max choices of a function of position, or None if it is small or has none."""
    if _is_in_one_piece(function):
        return None
    plain = by_coordinates(function)
    return split_choices(lower(plain, CPU), least_cost=MIN_COST)


def _is_in_one_piece(function: Function) -> bool:
    """Whether a quick look shows that nothing can be pruned.

    Distances to meshes have their own bounds per function, so they must stay calls. A function that is small before
    inlining and differentiation is not worth pruning, although it may grow several times.
    """
    if len(function.results) != 1 or distance_rules(function):
        return True
    return function_cost(by_coordinates(function)) < MIN_COST / 4


@memo(64)
def mask_word_count(function: Function) -> int:
    """The number of words in the bit mask of choices; 0 if all choices are always computed."""
    return 0 if _is_in_one_piece(function) else derived_number(function, f"words {MIN_COST}", _words)


def _words(function: Function) -> int:
    choices = choices_of(function)
    return 0 if choices is None else words_of(choices)


def everything(mask_words: int, count: int) -> Masks:
    """Masks with all choices enabled."""
    return np.full((mask_words, count), 0xFFFFFFFF, np.uint32)


def spread(masks: Masks, count: int) -> Masks:
    """Repeats each column `count` times, for the points inside one box."""
    return np.repeat(masks.reshape(-1), count).reshape(len(masks), -1)


@memo(64)
def masked_bounds(function: Function) -> Any:
    """Native code: (x low, x high, y …, z …, words, arguments) → low, high, mask words for the box."""
    return DerivedFunction(function, f"masked bounds {MIN_COST}", _bounds_by_words)


@memo(64)
def _masked_points(function: Function) -> Any:
    """Native code: (x, y, z, words, arguments) → a number with the function's sign."""
    return DerivedFunction(function, f"masked points {MIN_COST}", _points_by_words)


def _bounds_by_words(function: Function) -> Function:
    choices = choices_of(function)
    assert choices is not None
    return _map_over_points(
        mask_bounds(choices, _interval_flags(choices)), 2 * _AXES, len(choices.values.parameters) - _AXES
    )


def _points_by_words(function: Function) -> Function:
    choices = choices_of(function)
    assert choices is not None
    # Expanded to the ops of native code, like the function itself, so that equal nodes give equal bits.
    expanded = replace(choices, values=with_code(choices.values, CPU))
    masked = mask_choices(expanded, undefined_values(choices, _interval_flags(choices)))
    return _map_over_points(masked, _AXES, len(choices.values.parameters) - _AXES)


@memo(64)
def _masked_gradients(function: Function) -> Any:
    """Native code: (x, y, z, words, arguments) → a number with the function's sign, and its derivatives by x, y, z."""
    return DerivedFunction(function, f"masked gradients {MIN_COST}", _gradients_by_words)


def _gradients_by_words(function: Function) -> Function:
    choices = choices_of(function)
    assert choices is not None
    tangents = lower(with_tangents(choices.values, _AXES), CPU)
    masked = mask_gradients(choices, with_code(tangents, CPU), undefined_values(choices, _interval_flags(choices)))
    return _map_over_points(masked, _AXES, len(choices.values.parameters) - _AXES)


def _interval_flags(choices: Choices) -> tuple[bool, ...]:
    """Flags the parameters that have intervals: the coordinates."""
    return tuple(index < _AXES for index in range(len(choices.values.parameters)))


def _map_over_points(function: Function, coordinates: int, others: int) -> Function:
    """Maps (coordinates, others, words) over arrays of coordinates and words; the others are shared."""
    mask_words = len(function.parameters) - coordinates - others
    order = [*range(coordinates), *range(coordinates + others, coordinates + others + mask_words)]
    order += range(coordinates, coordinates + others)
    moved = rearrange_signature(function, order)
    return map_over(moved, (*[True] * (coordinates + mask_words), *[False] * others))


def is_inside(
    function: Function, arguments: Sequence[Any], coordinates: Sequence[NDArray[Any]], masks: Masks | None
) -> NDArray[np.bool_]:
    """Where a function of position is negative. `masks` contain the choices that matter at each point, and do not
    change the result."""
    if masks is None:
        return in_batches(over_points(function), coordinates, arguments) < 0
    values = in_batches(_masked_points(function), (*coordinates, *masks), arguments)
    inside = values < 0
    unknown = np.flatnonzero(np.isnan(values))
    if len(unknown):
        inside[unknown] = in_batches(over_points(function), [axis[unknown] for axis in coordinates], arguments) < 0
    return inside


def surface_normals(
    function: Function, arguments: Sequence[Any], coordinates: Sequence[NDArray[Any]], masks: Masks | None
) -> NDArray[Any]:
    """The normals of a body at points of its surface. `masks` do not change the result."""
    if masks is None:
        return in_batches(gradients_over_points(function), coordinates, arguments)[0]
    value, *slopes = in_batches(_masked_gradients(function), (*coordinates, *masks), arguments)
    gradient = np.stack(slopes, -1)
    length = np.linalg.norm(gradient, axis=-1, keepdims=True)
    has_direction = length > SMALLEST_LENGTH
    normals = np.where(has_direction, gradient / np.where(has_direction, length, 1), 0)
    unknown = np.flatnonzero(np.isnan(value) | ~has_direction[:, 0])
    if len(unknown):
        normals[unknown] = surface_normals(function, arguments, [axis[unknown] for axis in coordinates], None)
    return normals
