"""Min/max pruning in native code: evaluates only the operands of min and max that can determine the sign of a part.

`pruning` finds these operands for each box, as bit masks. Code that evaluates points near surfaces calls `is_inside`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from livegrad.compiler import lower
from livegrad.implicit.bodies.batches import run_in_batches
from livegrad.implicit.bodies.point_functions import compile_gradients, compile_over_points, separate_coordinates
from livegrad.implicit.distances.distance_call import distance_rules
from livegrad.implicit.nodes.exact_gradient import SMALLEST_LENGTH
from livegrad.ir.node import Function
from livegrad.ops.maps import map_over
from livegrad.passes.functions import rearrange_signature
from livegrad.passes.mask_choices import mask_bounds, mask_choices, undefined_values, words_of
from livegrad.passes.mask_gradients import mask_gradients, with_tangents
from livegrad.passes.split_choices import MIN_COST, Choices, function_cost, split_choices
from livegrad.runtime.cpu import DerivedFunction, derived_number
from livegrad.runtime.cpu.cpu_target import CPU
from livegrad.schedule.loops.expand import with_code
from livegrad.state import memo

Masks = NDArray[np.uint32]  # a row for each mask word, a column for each box or point
_AXES = 3


@memo(64)
def find_choices(function: Function) -> Choices | None:
    """The min/max choices of a function of position, or None if it has none or is too small."""
    if _is_never_pruned(function):
        return None
    by_coordinates = separate_coordinates(function)
    return split_choices(lower(by_coordinates, CPU), least_cost=MIN_COST)


def _is_never_pruned(function: Function) -> bool:
    """Whether a fast check shows that pruning cannot pay.

    Distances to meshes have interval rules for their functions, so they must stay calls. A function that is small
    before inlining and differentiation is not worth pruning, although it may grow several times.
    """
    if len(function.results) != 1 or distance_rules(function):
        return True
    return function_cost(separate_coordinates(function)) < MIN_COST / 4


@memo(64)
def count_mask_words(function: Function) -> int:
    """The number of words in the bit mask of choices; 0 if the function is not pruned."""
    return 0 if _is_never_pruned(function) else derived_number(function, f"words {MIN_COST}", _count_words)


def _count_words(function: Function) -> int:
    choices = find_choices(function)
    return 0 if choices is None else words_of(choices)


def full_masks(mask_words: int, count: int) -> Masks:
    """Masks that enable all choices."""
    return np.full((mask_words, count), 0xFFFFFFFF, np.uint32)


def repeat_masks(masks: Masks, count: int) -> Masks:
    """Repeats each column `count` times, once for each point of a box."""
    return np.repeat(masks.reshape(-1), count).reshape(len(masks), -1)


@memo(64)
def compile_masked_bounds(function: Function) -> Any:
    """Native code: (x low, x high, y …, z …, mask words, arguments) → low, high, mask words of the box."""
    return DerivedFunction(function, f"masked bounds {MIN_COST}", _build_masked_bounds)


@memo(64)
def _compile_masked_points(function: Function) -> Any:
    """Native code: (x, y, z, mask words, arguments) → a number with the sign of the function."""
    return DerivedFunction(function, f"masked points {MIN_COST}", _build_masked_points)


def _build_masked_bounds(function: Function) -> Function:
    choices = find_choices(function)
    assert choices is not None
    return _map_over_points(
        mask_bounds(choices, _interval_flags(choices)), 2 * _AXES, len(choices.values.parameters) - _AXES
    )


def _build_masked_points(function: Function) -> Function:
    choices = find_choices(function)
    assert choices is not None
    # Expand to the ops of native code as for the unpruned function, so that both compute the same bits.
    expanded = replace(choices, values=with_code(choices.values, CPU))
    masked = mask_choices(expanded, undefined_values(choices, _interval_flags(choices)))
    return _map_over_points(masked, _AXES, len(choices.values.parameters) - _AXES)


@memo(64)
def _compile_masked_gradients(function: Function) -> Any:
    """Native code: (x, y, z, mask words, arguments) → a number with the sign of the function, and its gradient."""
    return DerivedFunction(function, f"masked gradients {MIN_COST}", _build_masked_gradients)


def _build_masked_gradients(function: Function) -> Function:
    choices = find_choices(function)
    assert choices is not None
    tangents = lower(with_tangents(choices.values, _AXES), CPU)
    masked = mask_gradients(choices, with_code(tangents, CPU), undefined_values(choices, _interval_flags(choices)))
    return _map_over_points(masked, _AXES, len(choices.values.parameters) - _AXES)


def _interval_flags(choices: Choices) -> tuple[bool, ...]:
    """Flags the parameters that are intervals: the coordinates."""
    return tuple(index < _AXES for index in range(len(choices.values.parameters)))


def _map_over_points(function: Function, coordinates: int, argument_count: int) -> Function:
    """Maps a function of (coordinates, arguments, mask words) over arrays of coordinates and words."""
    mask_words = len(function.parameters) - coordinates - argument_count
    order = [*range(coordinates), *range(coordinates + argument_count, coordinates + argument_count + mask_words)]
    order += range(coordinates, coordinates + argument_count)
    reordered = rearrange_signature(function, order)
    return map_over(reordered, (*[True] * (coordinates + mask_words), *[False] * argument_count))


def is_inside(
    function: Function, arguments: Sequence[Any], coordinates: Sequence[NDArray[Any]], masks: Masks | None
) -> NDArray[np.bool_]:
    """Where a function of position is negative. `masks` enable the choices that matter at each point; they affect only
    the speed."""
    if masks is None:
        return run_in_batches(compile_over_points(function), coordinates, arguments) < 0
    values = run_in_batches(_compile_masked_points(function), (*coordinates, *masks), arguments)
    inside = values < 0
    unknown = np.flatnonzero(np.isnan(values))
    if len(unknown):
        inside[unknown] = (
            run_in_batches(compile_over_points(function), [axis[unknown] for axis in coordinates], arguments) < 0
        )
    return inside


def surface_normals(
    function: Function, arguments: Sequence[Any], coordinates: Sequence[NDArray[Any]], masks: Masks | None
) -> NDArray[Any]:
    """The normals of a body at points of its surface. `masks` affect only the speed."""
    if masks is None:
        return run_in_batches(compile_gradients(function), coordinates, arguments)[0]
    value, *derivatives = run_in_batches(_compile_masked_gradients(function), (*coordinates, *masks), arguments)
    gradient = np.stack(derivatives, -1)
    length = np.linalg.norm(gradient, axis=-1, keepdims=True)
    has_direction = length > SMALLEST_LENGTH
    normals = np.where(has_direction, gradient / np.where(has_direction, length, 1), 0)
    unknown = np.flatnonzero(np.isnan(value) | ~has_direction[:, 0])
    if len(unknown):
        normals[unknown] = surface_normals(function, arguments, [axis[unknown] for axis in coordinates], None)
    return normals
