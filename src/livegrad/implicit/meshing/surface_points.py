"""Native code for surface points: roots on segments, projections to the surface, and intersections of planes.

`meshing` and `slicing` call these for thousands of points at a time; each is compiled once per function.
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
from livegrad.ops.maps import map_over
from livegrad.ops.rules import filled, zero
from livegrad.runtime.cpu import DerivedFunction, compile_function
from livegrad.state import memo

Points = NDArray[np.float64]
_HALVINGS = 8
_NEWTON_STEPS = 3  # steps to the surface
_SWEEPS = 5
_UPPER = ((0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 2))


# --- roots on segments -----------------------------------------------------------------------------------------------


@memo(64)
def compile_roots(function: Function) -> Any:
    """Native code: (ends of a segment, arguments) → the fraction of the segment at which the sign changes."""
    return DerivedFunction(function, "roots", _build_roots)


@memo(64)
def _compile_roots_with_normals(function: Function) -> Any:
    return DerivedFunction(function, "roots with normals", _build_roots_with_normals)


def _build_roots(function: Function) -> Function:
    ends, others, root, _ = _build_root_search(function)
    root_function = make_function(f"{function.name}.root", [*ends, *others], [root])
    return map_over(root_function, (*[True] * 6, *[False] * len(others)))


def _build_roots_with_normals(function: Function) -> Function:
    ends, others, root, point = _build_root_search(function)
    normal, _, _ = exact_gradient(function, [point, *others], 0)
    crossing_function = make_function(f"{function.name}.crossing", [*ends, *others], [root, *members_of(normal)])
    return map_over(crossing_function, (*[True] * 6, *[False] * len(others)))


def find_roots(part: Part, start: Points, end: Points) -> tuple[NDArray[np.float64], list[NDArray[np.float64]]]:
    """Finds where the surface crosses segments: fractions of the segments, and the normals there."""
    sides = [np.ascontiguousarray(side[:, axis], part.element.dtype) for side in (start, end) for axis in range(3)]
    fraction, *normal = run_in_batches(_compile_roots_with_normals(part.function), sides, part.arguments)
    return fraction.astype(np.float64), [axis.astype(np.float64) for axis in normal]


def _build_root_search(function: Function) -> tuple[list[Node], list[Node], Node, Node]:
    """Builds the root search: the parameters for both ends, the other parameters, the fraction, and the point."""
    element = scalar_of(function.parameter_types[0]) or f32
    ends = [input_node(Key(name), element) for name in ("ax", "ay", "az", "bx", "by", "bz")]
    others = [input_node(Key("argument"), type) for type in function.parameter_types[1:]]

    def point_at(fraction: Node) -> Node:
        return make_vector(*[a + fraction * (b - a) for a, b in zip(ends[:3], ends[3:], strict=True)])

    zero, one = constant(0.0, element), constant(1.0, element)

    def halve(index: Node, low: Node, high: Node, at_low: Node, at_high: Node) -> tuple[Node, ...]:
        """Bisects. The first two iterations evaluate the ends, so that the code contains the function once."""
        is_low, is_high = ops.equal(index, constant(0, i64)), ops.equal(index, constant(1, i64))
        fraction = ops.select(is_low, zero, ops.select(is_high, one, (low + high) * 0.5))
        value = ops.call(point_at(fraction), *others, function=function)
        keeps_low = is_low | (~is_high & ops.equal(value < 0.0, at_low < 0.0))
        return (
            ops.select(keeps_low, fraction, low),
            ops.select(keeps_low, high, fraction),
            ops.select(keeps_low, value, at_low),
            ops.select(keeps_low, at_high, value),
        )

    low, high, at_low, at_high = ops.make_for_loop(constant(_HALVINGS + 2, i64), halve, zero, one, zero, zero)
    # Interpolate linearly. If an end is NaN, the midpoint is the best estimate.
    difference = at_low - at_high
    is_defined = ops.abs(difference) > 0.0
    fraction = ops.clamp(at_low / ops.select(is_defined, difference, one), zero, one)
    root = low + ops.select(is_defined, fraction, constant(0.5, element)) * (high - low)
    return ends, others, root, point_at(root)


# --- projection ------------------------------------------------------------------------------------------------------


def project_to_surface(part: Part, points: Points, longest: float) -> tuple[Points, Points, NDArray[np.bool_]]:
    """Moves points to the surface by three Newton steps along the gradient, each at most `longest` long.

    Also returns the normals there, and whether the surface was reached: a field may have no zero nearby.
    """
    coordinates = [np.ascontiguousarray(axis, part.element.dtype) for axis in points.T]
    shared = (part.element.dtype.type(longest), *part.arguments)
    *rows, next_step = run_in_batches(_compile_projection(part.function), coordinates, shared)
    x, y, z, *normal = (row.astype(np.float64) for row in rows)
    reached = np.abs(next_step) < 0.1 * longest
    return np.stack([x, y, z], -1), np.nan_to_num(np.stack(normal, -1)), reached & np.isfinite(x + y + z)


@memo(64)
def _compile_projection(function: Function) -> Any:
    """Native code: (x, y, z, longest step, arguments) → the projected point, its normal, and the next step."""
    return DerivedFunction(function, "feet", _build_projection)


def _build_projection(function: Function) -> Function:
    element = scalar_of(function.parameter_types[0]) or f32
    coordinates = [input_node(Key(axis), element) for axis in "xyz"]
    longest = input_node(Key("longest"), element)
    others = [input_node(Key("argument"), type) for type in function.parameter_types[1:]]

    def step_closer(index: Node, point: Node, before: Node, next_step: Node) -> tuple[Node, Node, Node]:
        normal, _, size = exact_gradient(function, [point, *others], 0)
        value = ops.call(point, *others, function=function)
        # A Newton step along the normal; the last iteration only evaluates.
        length = ops.clamp(value / ops.max(size, filled(1e-10, element)), -longest, longest)
        step = ops.select(index < _NEWTON_STEPS, length, filled(0.0, element))
        return point - ops.splat(step, type=point.type) * normal, normal, length

    start = make_vector(*coordinates)
    initial_state = start, zero(start.type), zero(element)
    projected, normal, next_step = ops.make_for_loop(constant(_NEWTON_STEPS + 1, i64), step_closer, *initial_state)
    results = [*members_of(projected), *members_of(normal), next_step]
    approach = make_function(f"{function.name}.feet", [*coordinates, longest, *others], results)
    return map_over(approach, (*[True] * 3, *[False] * (len(others) + 1)))


def is_at_surface(part: Part, points: Points, outward: Points, reach: float) -> NDArray[np.bool_]:
    """Whether the sign changes along the normal through a point within `reach`."""
    inside = part(points) < 0
    beside = [part(points + side * outward) < 0 for side in (reach, -reach)]
    return (beside[0] != inside) | (beside[1] != inside)


# --- intersections of planes------------------------------------------------------------------------------------------


def intersect_planes(rows: Sequence[NDArray[np.float64]], weakest: float) -> tuple[NDArray[np.float64], ...]:
    """Least-squares intersection points of sets of planes: x, y, z, the residual sum of squares, and a strength.

    A set is given by fourteen sums over its planes (`Quadrics`). Along eigenvectors with an eigenvalue below `weakest`
    times the largest, the point stays at the mean. The strength is the ratio of the second to the first eigenvalue.
    """
    return run_in_batches(_compile_plane_intersection(), list(rows), (float(weakest),))


@memo(1)
def _compile_plane_intersection() -> Any:
    """Native code for `intersect_planes`, with the Jacobi eigenvalue algorithm."""
    inputs = [input_node(Key(str(index)), f64) for index in range(14)]
    weakest = input_node(Key("weakest"), f64)
    one, zero = constant(1.0, f64), constant(0.0, f64)
    matrix = dict(zip(_UPPER, inputs[:6], strict=True))
    right_side, squared_heights, sums, plane_count = inputs[6:9], inputs[9], inputs[10:13], inputs[13]

    def sweep(_: Node, *state: Node) -> tuple[Node, ...]:
        matrix = dict(zip(_UPPER, state[:6], strict=True))
        axes = [list(state[6 + 3 * row : 9 + 3 * row]) for row in range(3)]
        for p, q, r in ((0, 1, 2), (0, 2, 1), (1, 2, 0)):
            mixed = matrix[p, q]
            flat = ops.equal(mixed, zero)
            ratio = (matrix[q, q] - matrix[p, p]) / ops.select(flat, one, mixed * 2.0)
            tangent = ops.copysign(one, ratio) / (ops.abs(ratio) + ops.sqrt(ratio * ratio + one))
            tangent = ops.select(flat, zero, tangent)
            cosine = one / ops.sqrt(tangent * tangent + one)
            sine = tangent * cosine
            to_p, to_q = (min(p, r), max(p, r)), (min(q, r), max(q, r))
            first, second = matrix[to_p], matrix[to_q]
            matrix[p, p], matrix[q, q] = matrix[p, p] - tangent * mixed, matrix[q, q] + tangent * mixed
            matrix[p, q] = zero
            matrix[to_p], matrix[to_q] = cosine * first - sine * second, sine * first + cosine * second
            for axis in axes:
                axis[p], axis[q] = cosine * axis[p] - sine * axis[q], sine * axis[p] + cosine * axis[q]
        return (*matrix.values(), *(value for axis in axes for value in axis))

    def multiply(vector: Sequence[Node]) -> list[Node]:
        return [
            sum((matrix[min(i, j), max(i, j)] * vector[j] for j in range(1, 3)), matrix[0, i] * vector[0])
            for i in range(3)
        ]

    centre = [total / ops.max(plane_count, one) for total in sums]
    sides = [value - part for value, part in zip(right_side, multiply(centre), strict=True)]
    unit = [one if row == column else zero for row in range(3) for column in range(3)]
    diagonalised = ops.make_for_loop(constant(_SWEEPS, i64), sweep, *inputs[:6], *unit)
    strengths, axes = [diagonalised[0], diagonalised[3], diagonalised[5]], diagonalised[6:]
    largest = ops.max(ops.max(strengths[0], strengths[1]), strengths[2])
    smallest = ops.min(ops.min(strengths[0], strengths[1]), strengths[2])
    second = strengths[0] + strengths[1] + strengths[2] - largest - smallest
    point = centre
    for k, strength in enumerate(strengths):
        is_strong = strength > largest * weakest
        coordinate = axes[k] * sides[0] + axes[3 + k] * sides[1] + axes[6 + k] * sides[2]
        coordinate = ops.select(is_strong, coordinate / ops.select(is_strong, strength, one), zero)
        point = [value + coordinate * axes[3 * row + k] for row, value in enumerate(point)]
    product = multiply(point)
    error = squared_heights
    for x, product_part, side in zip(point, product, right_side, strict=True):
        error = error + x * (product_part - side * 2.0)
    ratio = second / ops.select(largest > 0.0, largest, one)
    solve = make_function("meeting_points", [*inputs, weakest], [*point, error, ratio])
    return compile_function(map_over(solve, (*[True] * 14, False)))
