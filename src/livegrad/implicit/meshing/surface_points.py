"""Native code for surface points: crossings with a segment, nearest points, and intersections of planes.

`meshing`, `slicing` and `rendering` call these on thousands of points at a time; each is compiled once per function.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from livegrad import ops
from livegrad.implicit.bodies.batches import run_in_batches
from livegrad.implicit.bodies.part import Part
from livegrad.implicit.nodes.exact_gradient import exact_gradient
from livegrad.ir.function import make_function
from livegrad.ir.leaves import constant, input_node
from livegrad.ir.node import Function, Key, Node
from livegrad.ir.types import f32, f64, i64, scalar_of
from livegrad.ops.aggregate import make_vector, members_of
from livegrad.ops.control import map_over
from livegrad.ops.rules import filled, zero
from livegrad.runtime.cpu import DerivedFunction, compile_function
from livegrad.state import memo

Points = NDArray[np.float64]
_HALVINGS = 8
_APPROACHES = 3  # steps to the surface
_SWEEPS = 5
_UPPER = ((0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 2))


# --- crossings with segments -----------------------------------------------------------------------------------------


@memo(64)
def roots(function: Function) -> Any:
    """Native code: where the sign changes between two points, as a share of the segment."""
    return DerivedFunction(function, "roots", _over_ways)


@memo(64)
def _roots_with_normals(function: Function) -> Any:
    return DerivedFunction(function, "roots with normals", _over_ways_with_normals)


def _over_ways(function: Function) -> Function:
    ends, others, root, _ = _root(function)
    root_function = make_function(f"{function.name}.root", [*ends, *others], [root])
    return map_over(root_function, (*[True] * 6, *[False] * len(others)))


def _over_ways_with_normals(function: Function) -> Function:
    ends, others, root, point = _root(function)
    normal, _, _ = exact_gradient(function, [point, *others], 0)
    crossing_function = make_function(f"{function.name}.crossing", [*ends, *others], [root, *members_of(normal)])
    return map_over(crossing_function, (*[True] * 6, *[False] * len(others)))


def crossings(part: Part, start: Points, end: Points) -> tuple[NDArray[np.float64], list[NDArray[np.float64]]]:
    """Where the surface crosses segments, as shares of the segments, and its normals there."""
    sides = [np.ascontiguousarray(side[:, axis], part.element.dtype) for side in (start, end) for axis in range(3)]
    share, *normal = run_in_batches(_roots_with_normals(part.function), sides, part.arguments)
    return share.astype(np.float64), [axis.astype(np.float64) for axis in normal]


def _root(function: Function) -> tuple[list[Node], list[Node], Node, Node]:
    """Parameters for both ends, the other parameters of the function, the share of the segment, and the point."""
    element = scalar_of(function.parameter_types[0]) or f32
    ends = [input_node(Key(name), element) for name in ("ax", "ay", "az", "bx", "by", "bz")]
    others = [input_node(Key("argument"), type) for type in function.parameter_types[1:]]

    def point_at(share: Node) -> Node:
        return make_vector(*[a + share * (b - a) for a, b in zip(ends[:3], ends[3:], strict=True)])

    nothing, one = constant(0.0, element), constant(1.0, element)

    def halve(index: Node, low: Node, high: Node, at_low: Node, at_high: Node) -> tuple[Node, ...]:
        """The first two iterations evaluate the ends, so that the code contains the function only once."""
        is_low, is_high = ops.equal(index, constant(0, i64)), ops.equal(index, constant(1, i64))
        share = ops.select(is_low, nothing, ops.select(is_high, one, (low + high) * 0.5))
        value = ops.call(point_at(share), *others, function=function)
        keeps_low = is_low | (~is_high & ops.equal(value < 0.0, at_low < 0.0))
        return (
            ops.select(keeps_low, share, low),
            ops.select(keeps_low, high, share),
            ops.select(keeps_low, value, at_low),
            ops.select(keeps_low, at_high, value),
        )

    low, high, at_low, at_high = ops.make_for_loop(constant(_HALVINGS + 2, i64), halve, nothing, one, nothing, nothing)
    # If one end is NaN, there is no slope, so the midpoint is the best estimate.
    slope = at_low - at_high
    has_slope = ops.abs(slope) > 0.0
    share = ops.clamp(at_low / ops.select(has_slope, slope, one), nothing, one)
    root = low + ops.select(has_slope, share, constant(0.5, element)) * (high - low)
    return ends, others, root, point_at(root)


# --- nearest points --------------------------------------------------------------------------------------------------


def feet(part: Part, points: Points, longest: float) -> tuple[Points, Points, NDArray[np.bool_]]:
    """Moves points along the gradient to the surface, in three steps of at most `longest`.

    Also returns the normals there, and whether the surface was reached, which fails where the field has no zero.
    """
    coordinates = [np.ascontiguousarray(axis, part.element.dtype) for axis in points.T]
    shared = (part.element.dtype.type(longest), *part.arguments)
    *rows, left = run_in_batches(_feet(part.function), coordinates, shared)
    x, y, z, *normal = (row.astype(np.float64) for row in rows)
    reached = np.abs(left) < 0.1 * longest
    return np.stack([x, y, z], -1), np.nan_to_num(np.stack(normal, -1)), reached & np.isfinite(x + y + z)


@memo(64)
def _feet(function: Function) -> Any:
    """Native code: (x, y, z, longest step, arguments) → the nearby point, its normal, and the next step."""
    return DerivedFunction(function, "feet", _to_feet)


def _to_feet(function: Function) -> Function:
    element = scalar_of(function.parameter_types[0]) or f32
    coordinates = [input_node(Key(axis), element) for axis in "xyz"]
    longest = input_node(Key("longest"), element)
    others = [input_node(Key("argument"), type) for type in function.parameter_types[1:]]

    def nearer(index: Node, point: Node, before: Node, left: Node) -> tuple[Node, Node, Node]:
        normal, _, size = exact_gradient(function, [point, *others], 0)
        value = ops.call(point, *others, function=function)
        # A Newton step along the normal. The last iteration only evaluates.
        length = ops.clamp(value / ops.max(size, filled(1e-10, element)), -longest, longest)
        step = ops.select(index < _APPROACHES, length, filled(0.0, element))
        return point - ops.splat(step, type=point.type) * normal, normal, length

    start = make_vector(*coordinates)
    carried = start, zero(start.type), zero(element)
    foot, normal, left = ops.make_for_loop(constant(_APPROACHES + 1, i64), nearer, *carried)
    results = [*members_of(foot), *members_of(normal), left]
    approach = make_function(f"{function.name}.feet", [*coordinates, longest, *others], results)
    return map_over(approach, (*[True] * 3, *[False] * (len(others) + 1)))


def is_at_surface(part: Part, points: Points, outward: Points, reach: float) -> NDArray[np.bool_]:
    """Whether the sign changes along the normal through a point, so that the surface is within reach."""
    inside = part(points) < 0
    beside = [part(points + side * outward) < 0 for side in (reach, -reach)]
    return (beside[0] != inside) | (beside[1] != inside)


# --- where planes meet -----------------------------------------------------------------------------------------------


def meeting_points(rows: Sequence[NDArray[np.float64]], weakest: float) -> tuple[NDArray[np.float64], ...]:
    """The least-squares points of sets of planes: x, y and z, the residual sum of squares, and a strength.

    A set is fourteen numbers (`Quadrics`). Along directions with an eigenvalue below `weakest` of the largest, the
    point stays at the mean. The strength is the ratio of the second to the first eigenvalue.
    """
    return run_in_batches(_meeting(), list(rows), (float(weakest),))


@memo(1)
def _meeting() -> Any:
    """Native code for `meeting_points`, with the Jacobi eigenvalue algorithm."""
    inputs = [input_node(Key(str(index)), f64) for index in range(14)]
    weakest = input_node(Key("weakest"), f64)
    one, nothing = constant(1.0, f64), constant(0.0, f64)
    matrix = dict(zip(_UPPER, inputs[:6], strict=True))
    right, rest, sums, plane_count = inputs[6:9], inputs[9], inputs[10:13], inputs[13]

    def sweep(_: Node, *carried: Node) -> tuple[Node, ...]:
        matrix = dict(zip(_UPPER, carried[:6], strict=True))
        axes = [list(carried[6 + 3 * row : 9 + 3 * row]) for row in range(3)]
        for p, q, r in ((0, 1, 2), (0, 2, 1), (1, 2, 0)):
            mixed = matrix[p, q]
            flat = ops.equal(mixed, nothing)
            ratio = (matrix[q, q] - matrix[p, p]) / ops.select(flat, one, mixed * 2.0)
            tangent = ops.copysign(one, ratio) / (ops.abs(ratio) + ops.sqrt(ratio * ratio + one))
            tangent = ops.select(flat, nothing, tangent)
            cosine = one / ops.sqrt(tangent * tangent + one)
            sine = tangent * cosine
            to_p, to_q = (min(p, r), max(p, r)), (min(q, r), max(q, r))
            first, second = matrix[to_p], matrix[to_q]
            matrix[p, p], matrix[q, q] = matrix[p, p] - tangent * mixed, matrix[q, q] + tangent * mixed
            matrix[p, q] = nothing
            matrix[to_p], matrix[to_q] = cosine * first - sine * second, sine * first + cosine * second
            for axis in axes:
                axis[p], axis[q] = cosine * axis[p] - sine * axis[q], sine * axis[p] + cosine * axis[q]
        return (*matrix.values(), *(value for axis in axes for value in axis))

    def times(vector: Sequence[Node]) -> list[Node]:
        return [
            sum((matrix[min(i, j), max(i, j)] * vector[j] for j in range(1, 3)), matrix[0, i] * vector[0])
            for i in range(3)
        ]

    centre = [total / ops.max(plane_count, one) for total in sums]
    sides = [value - part for value, part in zip(right, times(centre), strict=True)]
    unit = [one if row == column else nothing for row in range(3) for column in range(3)]
    diagonalised = ops.make_for_loop(constant(_SWEEPS, i64), sweep, *inputs[:6], *unit)
    strengths, axes = [diagonalised[0], diagonalised[3], diagonalised[5]], diagonalised[6:]
    most = ops.max(ops.max(strengths[0], strengths[1]), strengths[2])
    least = ops.min(ops.min(strengths[0], strengths[1]), strengths[2])
    second = strengths[0] + strengths[1] + strengths[2] - most - least
    point = centre
    for k, strength in enumerate(strengths):
        enough = strength > most * weakest
        along = axes[k] * sides[0] + axes[3 + k] * sides[1] + axes[6 + k] * sides[2]
        along = ops.select(enough, along / ops.select(enough, strength, one), nothing)
        point = [value + along * axes[3 * row + k] for row, value in enumerate(point)]
    through = times(point)
    error = rest
    for x, both, side in zip(point, through, right, strict=True):
        error = error + x * (both - side * 2.0)
    ratio = second / ops.select(most > 0.0, most, one)
    solve = make_function("meeting_points", [*inputs, weakest], [*point, error, ratio])
    return compile_function(map_over(solve, (*[True] * 14, False)))
