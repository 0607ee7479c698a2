"""Sharp edges for meshes of parts: vertices move to where the tangent planes around them meet.

`meshing` calls this last. Only the places of vertices change, never what they join, so a closed mesh stays closed; a
vertex moves only where the surface is shown to be within a quarter of a cell.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from livegrad.authoring.assembly.part import Part

_STEPS = 3
_SHARP = np.cos(np.radians(25.0))  # planes that differ by less belong to a smooth surface
_WEAKEST = 0.08  # directions in which the planes say less than this (of the most) keep their place


def sharpen(
    part: Part, vertices: NDArray[np.float64], triangles: NDArray[np.int64], cell: float
) -> NDArray[np.float64]:
    """The vertices, with those near edges and corners of the part moved onto them."""
    moved = vertices.copy()
    chosen = _near_edges(part, vertices, triangles)
    around = triangles[chosen[triangles].any(1)]
    if not len(around):
        return moved
    # Only what touches an edge is worked on, under numbers of its own.
    own, local = np.unique(around, return_inverse=True)
    local = local.reshape(-1, 3)
    movable = chosen[own]
    for _ in range(_STEPS):
        feet, normals = _onto_surface(part, moved[around].mean(1), cell)
        places, outward = _meeting_points(moved[own], local, feet, normals, cell)
        accepted = movable & _is_at_surface(part, places, outward, cell / 4)
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
    normals = part.normal(vertices)
    a, b, c = (normals[triangles[:, corner]] for corner in range(3))
    agreement = np.minimum(np.minimum((a * b).sum(-1), (b * c).sum(-1)), (c * a).sum(-1))
    chosen = np.zeros(len(vertices), bool)
    chosen[triangles[~(agreement > _SHARP)].reshape(-1)] = True
    return chosen


def _onto_surface(
    part: Part, points: NDArray[np.float64], cell: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The points moved along the gradient to the surface, no further than half a cell, and the normals there."""
    feet = points.copy()
    for _ in range(3):
        gradient = part.gradient(feet).astype(np.float64)
        square = np.maximum((gradient * gradient).sum(-1, keepdims=True), 1e-20)
        step = -part(feet)[:, None].astype(np.float64) * gradient / square
        length = np.linalg.norm(step, axis=-1, keepdims=True)
        feet += step * np.minimum(1.0, 0.25 * cell / np.maximum(length, 1e-300))
    return feet, part.normal(feet).astype(np.float64)


def _meeting_points(
    vertices: NDArray[np.float64],
    triangles: NDArray[np.int64],
    feet: NDArray[np.float64],
    normals: NDArray[np.float64],
    cell: float,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """For each vertex the point nearest to the tangent planes of its triangles, by least squares, and their normal."""
    number, at = len(vertices), triangles.reshape(-1)
    own_normals, own_feet = np.repeat(normals, 3, axis=0), np.repeat(feet, 3, axis=0)

    def gathered(rows: NDArray[np.float64]) -> NDArray[np.float64]:
        flat = rows.reshape(len(rows), -1)
        sums = [np.bincount(at, flat[:, column], number) for column in range(flat.shape[1])]
        return np.stack(sums, -1, dtype=np.float64).reshape(number, *rows.shape[1:])

    count = np.maximum(np.bincount(at, minlength=number), 1)[:, None]
    mean = gathered(own_normals)
    mean /= np.maximum(np.linalg.norm(mean, axis=-1, keepdims=True), 1e-300)
    agreement = np.ones(number)
    np.minimum.at(agreement, at, (own_normals * mean[at]).sum(-1))
    sharp = agreement < _SHARP
    centre = gathered(own_feet) / count
    heights = (own_normals * (own_feet - centre[at])).sum(-1)
    products = gathered(own_normals[:, :, None] * own_normals[:, None, :])
    sides = gathered(own_normals * heights[:, None])
    strengths, axes = np.linalg.eigh(products[sharp])
    enough = strengths > _WEAKEST * strengths[:, -1:]
    inverse = np.where(enough, 1.0 / np.where(enough, strengths, 1.0), 0.0)
    along = (axes * sides[sharp][:, :, None]).sum(1) * inverse
    moved = vertices.copy()
    offset = (axes * along[:, None, :]).sum(-1)
    length = np.linalg.norm(offset, axis=-1, keepdims=True)
    moved[sharp] = centre[sharp] + offset * np.minimum(1.0, cell / np.maximum(length, 1e-300))
    return moved, mean
