"""Sharp edges for meshes of parts: vertices move to where the tangent planes around them meet.

`meshing` calls this last. Only the places of vertices change, never what they join, so a closed mesh stays closed; a
vertex moves only where the surface is shown to be within a quarter of a cell.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from livegrad import ops
from livegrad.authoring.assembly.batches import in_batches
from livegrad.authoring.assembly.exact_gradient import exact_gradient
from livegrad.authoring.assembly.part import Part
from livegrad.backends.cpu import compile_function
from livegrad.ir.function import make_function
from livegrad.ir.leaves import constant, input_node
from livegrad.ir.node import Function, Key, Node
from livegrad.ir.types import f32, f64, i64, scalar_of
from livegrad.ops.aggregate import make_vector, members_of
from livegrad.ops.control import map_over
from livegrad.ops.rules import filled, zero

_STEPS = 3
_APPROACHES = 3  # steps from a triangle's centre to the surface
_SWEEPS = 5
_UPPER = ((0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 2))
_SHARP = np.cos(np.radians(25.0))  # planes that differ by less belong to a smooth surface
_WEAKEST = 0.08  # directions in which the planes say less than this (of the most) keep their place


def sharpen(
    part: Part, vertices: NDArray[np.float64], triangles: NDArray[np.int64], cell: float
) -> NDArray[np.float64]:
    """The vertices, with those near edges and corners of the part moved onto them."""
    moved = vertices.copy()
    chosen = _near_edges(part, vertices, triangles)
    around = triangles[chosen[triangles[:, 0]] | chosen[triangles[:, 1]] | chosen[triangles[:, 2]]]
    if not len(around):
        return moved
    # Only what touches an edge is worked on, under numbers of its own.
    used = np.zeros(len(vertices), bool)
    used[around.reshape(-1)] = True
    own = np.flatnonzero(used)
    local = (np.cumsum(used) - 1)[around]
    movable = chosen[own]
    for _ in range(_STEPS):
        centres = (moved[around[:, 0]] + moved[around[:, 1]] + moved[around[:, 2]]) / 3
        feet, normals = _onto_surface(part, centres, cell)
        places, outward = _meeting_points(moved[own], local, feet, normals, cell)
        accepted = np.flatnonzero(movable)
        accepted = accepted[_is_at_surface(part, places[accepted], outward[accepted], cell / 4)]
        moved[own[accepted]] = places[accepted]
    return moved


def _is_at_surface(
    part: Part, places: NDArray[np.float64], outward: NDArray[np.float64], reach: float
) -> NDArray[np.bool_]:
    """Whether the sign changes on the way through a place, so that the surface is no further away than the reach."""
    inside = part(places) < 0
    beside = [part(places + side * outward) < 0 for side in (reach, -reach)]
    return (beside[0] != inside) | (beside[1] != inside)


def _near_edges(part: Part, vertices: NDArray[np.float64], triangles: NDArray[np.int64]) -> NDArray[np.bool_]:
    """The vertices of triangles whose corners have different normals, or none."""
    # Component by component: sums over three numbers at a time are what NumPy is slowest at.
    axes = [np.ascontiguousarray(axis) for axis in part.normal(vertices).T]
    a, b, c = ([np.take(axis, triangles[:, corner]) for axis in axes] for corner in range(3))
    smooth = np.ones(len(triangles), bool)
    for first, second in ((a, b), (b, c), (c, a)):
        agreement = first[0] * second[0]
        agreement += first[1] * second[1]
        agreement += first[2] * second[2]
        smooth &= agreement > _SHARP
    chosen = np.zeros(len(vertices), bool)
    chosen[triangles[~smooth].reshape(-1)] = True
    return chosen


def _onto_surface(
    part: Part, points: NDArray[np.float64], cell: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The points moved along the gradient to the surface, no further than a cell, and the normals there."""
    coordinates = [np.ascontiguousarray(axis, part.element.dtype) for axis in points.T]
    shared = (np.asarray(0.25 * cell, part.element.dtype), *part.arguments)
    found = np.stack(in_batches(_feet(part.function), coordinates, shared), -1).astype(np.float64)
    return found[:, :3], found[:, 3:]


@lru_cache(maxsize=64)
def _feet(function: Function) -> Any:
    """Native code: (x, y, z, longest step, arguments) to the point of the surface near by, and the normal there."""
    element = scalar_of(function.parameter_types[0]) or f32
    coordinates = [input_node(Key(axis), element) for axis in "xyz"]
    longest = input_node(Key("longest"), element)
    others = [input_node(Key("argument"), type) for type in function.parameter_types[1:]]

    def nearer(index: Node, place: Node, before: Node) -> tuple[Node, Node]:
        normal, _, size = exact_gradient(function, [place, *others], 0)
        value = ops.call(place, *others, function=function)
        # Value over slope, along the normal; the last trip stays, and only looks.
        length = ops.clamp(value / ops.max(size, filled(1e-10, element)), -longest, longest)
        length = ops.select(index < _APPROACHES, length, filled(0.0, element))
        return place - ops.splat(length, type=place.type) * normal, normal

    start = make_vector(*coordinates)
    foot, normal = ops.make_for_loop(constant(_APPROACHES + 1, i64), nearer, start, zero(start.type))
    results = [*members_of(foot), *members_of(normal)]
    made = make_function(f"{function.name}.feet", [*coordinates, longest, *others], results)
    return compile_function(map_over(made, (*[True] * 3, *[False] * (len(others) + 1))))


def _meeting_points(
    vertices: NDArray[np.float64],
    triangles: NDArray[np.int64],
    feet: NDArray[np.float64],
    normals: NDArray[np.float64],
    cell: float,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """For each vertex the point nearest to the tangent planes of its triangles, by least squares, and their normal."""
    number = len(vertices)
    corners = [np.ascontiguousarray(column) for column in triangles.T]

    def gathered(row: NDArray[np.float64]) -> NDArray[np.float64]:
        """What a vertex's triangles have, added up."""
        total = np.zeros(number)
        for at in corners:
            total += np.bincount(at, row, number)
        return total

    x, y, z = (np.ascontiguousarray(axis) for axis in normals.T)
    mean = np.stack([gathered(axis) for axis in (x, y, z)], -1)
    mean /= np.maximum(_lengths(mean), 1e-300)
    sharp = np.zeros(number, bool)
    for at in corners:
        agreement = x * mean[at, 0] + y * mean[at, 1] + z * mean[at, 2]
        sharp[at[agreement < _SHARP]] = True
    count = np.maximum(sum(np.bincount(at, minlength=number) for at in corners), 1)
    centre = np.stack([gathered(axis) / count for axis in feet.T], -1)
    height = x * feet[:, 0] + y * feet[:, 1] + z * feet[:, 2]
    products = [gathered(a * b)[sharp] for a, b in ((x, x), (x, y), (x, z), (y, y), (y, z), (z, z))]
    xx, xy, xz, yy, yz, zz = products
    u, v, w = centre[sharp].T
    # The planes' heights over the centre, which is the same for all planes of a vertex.
    sides = [
        gathered(x * height)[sharp] - (xx * u + xy * v + xz * w),
        gathered(y * height)[sharp] - (xy * u + yy * v + yz * w),
        gathered(z * height)[sharp] - (xz * u + yz * v + zz * w),
    ]
    offset = np.stack(in_batches(_least_squares(), [*products, *sides], ()), -1)
    moved = vertices.copy()
    moved[sharp] = centre[sharp] + offset * np.minimum(1.0, cell / np.maximum(_lengths(offset), 1e-300))
    return moved, mean


def _lengths(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    x, y, z = rows.T
    return np.sqrt(x * x + y * y + z * z)[:, None]


@lru_cache(maxsize=1)
def _least_squares() -> Any:
    """Native code: a symmetric matrix by its upper triangle, and a right side, to the solution of least length.

    Directions in which the matrix is weak are left out. Its axes are found by turning pairs of them, as Jacobi did.
    """
    inputs = [input_node(Key(str(index)), f64) for index in range(9)]
    one, nothing = constant(1.0, f64), constant(0.0, f64)

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

    unit = [one if row == column else nothing for row in range(3) for column in range(3)]
    turned = ops.make_for_loop(constant(_SWEEPS, i64), sweep, *inputs[:6], *unit)
    matrix, axes = dict(zip(_UPPER, turned[:6], strict=True)), turned[6:]
    strengths = [matrix[k, k] for k in range(3)]
    most = ops.max(ops.max(strengths[0], strengths[1]), strengths[2])
    found = [nothing, nothing, nothing]
    for k, strength in enumerate(strengths):
        enough = strength > most * _WEAKEST
        along = axes[k] * inputs[6] + axes[3 + k] * inputs[7] + axes[6 + k] * inputs[8]
        along = ops.select(enough, along / ops.select(enough, strength, one), nothing)
        found = [value + along * axes[3 * row + k] for row, value in enumerate(found)]
    return compile_function(map_over(make_function("least_squares", inputs, found)))
