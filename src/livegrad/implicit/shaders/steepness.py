"""How steep a field is in a box: a bound of the length of its gradient, which limits the steps of sphere tracing.

A ray may advance by the value of the field divided by the bound without passing the surface. The bound comes from
interval arithmetic on the exact gradient. Boxes without a finite bound, such as those around the centre of a distance,
are divided; what remains without one counts with the gradients of samples.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from livegrad.diagnostics import UsageError, caller_origin, shown
from livegrad.implicit.bodies.batches import run_in_batches
from livegrad.implicit.bodies.clipping import require_part
from livegrad.implicit.bodies.part import Part
from livegrad.implicit.bodies.point_functions import separate_coordinates
from livegrad.implicit.distances.distance_call import distance_rules
from livegrad.implicit.nodes.exact_gradient import exact_gradient
from livegrad.ir.function import make_function
from livegrad.ir.leaves import input_node
from livegrad.ir.node import Function, Key
from livegrad.ops.maps import map_over
from livegrad.passes.bound_intervals import bound_intervals
from livegrad.runtime.cpu import CpuFunction, compile_function
from livegrad.state import memo

_CELLS = 8  # along each axis, at first
_DIVISIONS = 3  # each halves the boxes that are much steeper than the samples
_SAMPLES = 1 << 12
_MARGIN = 1.5  # of samples, where there is no bound
Ranges = Mapping[str, tuple[float, float]]


def steepness(part: Part, ranges: Ranges | None = None) -> float:
    """Returns a bound of the length of the gradient of a part in its bounding box.

    The bound holds for the present values of the parameters, and for all values in `ranges`, by name. Where no finite
    bound can be shown, such as at a parameter value that the part divides by, it is a multiple of the largest length at
    sampled points, which steeper places may exceed.

    >>> import livegrad as lg
    >>> ball = lg.shapes.sphere(1.0).part(((-2, -2, -2), (2, 2, 2)))
    >>> 1.0 <= steepness(ball) < 3.0
    True
    """
    require_part(part)
    ranged = _check_ranges(part, ranges or {})
    run = _compile_bounds(part.function, tuple(name in ranged for name in (*part.parameter_names, *_tables(part))))
    arguments = _arguments(part, ranged)
    sampled = _sampled(part, ranged)
    low, width = _cells(part)
    bound = sampled
    for division in range(_DIVISIONS + 1):
        high = _upper_bounds(run, low, width, arguments, part.element.dtype)
        steep = high > 1.25 * sampled
        kept = np.isfinite(high) if division == _DIVISIONS else ~steep
        bound = max(bound, float(high[kept].max(initial=0.0)))
        if kept.all():
            return bound
        low, width = _halve(low[~kept], width)
    return max(bound, _MARGIN * sampled)


def _tables(part: Part) -> tuple[str, ...]:
    return part.table_names or ("",) * (len(part.arguments) - len(part.parameter_names))


def _check_ranges(part: Part, ranges: Ranges) -> dict[str, tuple[float, float]]:
    checked: dict[str, tuple[float, float]] = {}
    for name, ends in ranges.items():
        is_pair = isinstance(ends, Sequence) and len(ends) == 2 and all(isinstance(end, Real) for end in ends)
        if name not in part.parameter_names or not is_pair or not -np.inf < ends[0] <= ends[1] < np.inf:
            raise UsageError(
                f"invalid range of `{name}`",
                where=caller_origin(),
                expected="low and high of one of " + (", ".join(part.parameter_names) or "none"),
                found=shown(ends),
            )
        checked[name] = (float(ends[0]), float(ends[1]))
    return checked


@memo(64)
def _compile_bounds(function: Function, ranged: tuple[bool, ...]) -> CpuFunction:
    """Native code: (x low, x high, y …, z …, arguments) → low, high bounds of the length of the gradient."""
    inputs = [input_node(Key("argument"), type) for type in function.parameter_types]
    _, _, length = exact_gradient(function, inputs, 0)
    lengths = separate_coordinates(make_function(f"{function.name}.steepness", inputs, [length]))
    bounds = bound_intervals(lengths, (True, True, True, *ranged), distance_rules(lengths))
    return compile_function(map_over(bounds, (*[True] * 6, *[False] * (len(bounds.parameters) - 6))))


def _arguments(part: Part, ranged: Mapping[str, tuple[float, float]]) -> list[Any]:
    """The arguments of the part; those with a range as two arguments."""
    arguments: list[Any] = []
    dtype = part.element.dtype
    for name, value in zip((*part.parameter_names, *_tables(part)), part.arguments, strict=True):
        if name in ranged:
            arguments += [np.full(np.shape(value), end, dtype)[()] for end in ranged[name]]
        else:
            arguments.append(value)
    return arguments


def _sampled(part: Part, ranged: Mapping[str, tuple[float, float]]) -> float:
    """The largest length of the gradient at random points, for the values of ranged parameters at both ends."""
    points = part.low + (part.high - part.low) * np.random.default_rng(0).random((_SAMPLES, 3))
    longest = 0.0
    for end in (0, 1) if ranged else (0,):
        chosen = {name: np.full(np.shape(part.parameters[name]), ends[end]) for name, ends in ranged.items()}
        lengths = np.linalg.norm(part.with_parameters(**chosen).gradient(points).astype(np.float64), axis=-1)
        longest = max(longest, float(lengths[np.isfinite(lengths)].max(initial=0.0)))
    return longest or 1.0


def _cells(part: Part) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The low corners of the first boxes, and their size."""
    width = (part.high - part.low) / _CELLS
    indices = np.stack(np.meshgrid(*[np.arange(_CELLS)] * 3, indexing="ij"), -1).reshape(-1, 3)
    return part.low + indices * width, width


def _halve(low: NDArray[np.float64], width: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    half = width / 2
    corners = np.stack(np.meshgrid(*[np.arange(2)] * 3, indexing="ij"), -1).reshape(-1, 3)
    return (low[:, None] + corners * half).reshape(-1, 3), half


def _upper_bounds(
    run: CpuFunction, low: NDArray[np.float64], width: NDArray[np.float64], arguments: Sequence[Any], dtype: Any
) -> NDArray[np.float64]:
    # Rounded corners leave no gaps, because neighbours round alike; a margin covers the sum with the width.
    margin = 1e-6 * (np.abs(low) + width)
    ends = [np.ascontiguousarray(side, dtype) for side in (*(low - margin).T, *(low + width + margin).T)]
    sides = [ends[index] for axis in range(3) for index in (axis, axis + 3)]
    _, high = run_in_batches(run, sides, arguments)
    return np.where(np.isnan(high), np.inf, high).astype(np.float64)
