"""Triangulates the faces of dual contouring, checks triangles against the part, and splits merged vertices that fail.

In: faces, crossings and the tree of vertices, from `meshing`. Out: positions and triangles. A face that remains after
merging has three or four corners; it is cut along the diagonal that is nearer to the surface, or into four triangles
around its crossing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from livegrad.implicit.meshing.dual_cells import Faces, Indices
from livegrad.implicit.meshing.dual_clusters import VertexTree
from livegrad.implicit.meshing.dual_vertices import Crossings, Space, VertexPositions, chunks, snap_to_missed_edges
from livegrad.implicit.meshing.edge_changes import flip_edges, repair_triangles
from livegrad.implicit.meshing.surface_points import Points

_MAX_DIAGONAL_OFFSET = 0.2  # cells: a face is cut into two triangles if its diagonal is this close to its crossing
_REACH = 0.25  # cells: the surface must be this close to the centre of a triangle
_LONG = 3.0
_THIN = 1e-3  # the least height of a triangle
_CLOSE = 0.1  # cells: near sharp edges, the surface must be this close to the midpoints of triangle edges
_CUTS_EDGE, _OFF_SURFACE, _DEGENERATE, _INVERTED = 1, 3, 9, 30  # faults of triangles
_MIN_COSINE = 0.1  # least cosine between the normals of a triangle and of its crossing that needs no closer check
_CHUNK = 1 << 17  # faces or triangles; temporaries for all of them would take more memory than the mesh
_RELIABLE = 0.01
_FEW = 1 << 14  # as many bad triangles are always repaired
_INNER_POINTS = np.array([[1, 1, 1], [0.7, 0.15, 0.15], [0.15, 0.7, 0.15], [0.15, 0.15, 0.7]]) / [[3], [1], [1], [1]]


def triangulate(
    position_some: Callable[[Indices], VertexPositions],
    space: Space,
    faces: Faces,
    crossings: Crossings,
    tree: VertexTree,
    error: float,
    sharp: bool,
) -> tuple[Points, Indices]:
    """Returns the positions of the vertices in use, and triangles.

    Merged vertices are split until no triangle fails; vertices of single cells are always accepted. `position_some`
    computes the positions of vertices of single cells on demand.
    """
    leaves = len(faces.cells)
    vertices = _initialise_positions(space, tree, leaves)
    position = vertices.position
    # Faces between different vertices, and faces that merging reduced to one vertex.
    rows, inner = np.empty(0, np.int32), np.arange(len(faces.start), dtype=np.int32)
    top = np.full(leaves, -1, np.int32)
    while True:
        before, top = top, tree.highest_vertices()
        rows, inner = _update_faces(faces, rows, inner, before, top)
        corners = top[faces.corners[:, rows]]
        used = np.zeros(len(position), bool)
        used[corners] = True
        unplaced = np.flatnonzero(used[:leaves])
        unplaced = unplaced[np.isnan(position[unplaced, 0])]
        if len(unplaced):
            for chunk in chunks(len(unplaced)):
                indices = unplaced[chunk]
                computed = position_some(indices)
                position[indices], vertices.normal[indices], vertices.on_edge[indices] = (
                    computed.position,
                    computed.normal,
                    computed.on_edge,
                )
            if sharp:
                snap_to_missed_edges(space, vertices, _neighbours(corners), leaves)
        positions, triangles, faults, to_split = _triangulate_faces(
            space, vertices, corners, crossings, rows, error, leaves
        )
        to_split = to_split[(to_split >= leaves) & (to_split < len(position))]
        if len(to_split):
            del positions, triangles, corners  # frees memory for the next round
            tree.split_vertices(to_split)
            continue
        if _is_unrepairable(faults):
            return _remove_unused_vertices(positions, triangles.T)
        faults_of = partial(_find_faults, space, positions, vertices.on_edge)
        repaired, faults = repair_triangles(positions, triangles, faults, faults_of, _DEGENERATE)
        if not vertices.move_back(np.unique(repaired[:, faults >= _INVERTED])):
            return _remove_unused_vertices(positions, repaired.T)


def _triangulate_faces(
    space: Space,
    vertices: VertexPositions,
    corners: Indices,
    crossings: Crossings,
    rows: Indices,
    error: float,
    leaves: int,
) -> tuple[Points, Indices, Indices, Indices]:
    """Triangulates faces. Returns positions, triangles, their faults, and the vertices to split."""
    position = vertices.position
    triples, triple_faces, quads, quad_faces = _polygons(corners)
    quads, offset = _rotate_to_diagonal(space, position, quads, crossings, rows[quad_faces])
    is_far = offset > _MAX_DIAGONAL_OFFSET
    near_faces = rows[quad_faces[~is_far]]
    positions = np.concatenate([position, crossings.position(rows[quad_faces[is_far]])]) if is_far.any() else position
    a, b, c, d = quads[:, ~is_far]
    triangles = np.concatenate(
        [triples, np.stack([a, b, c]), np.stack([a, c, d]), _fan_triangles(quads[:, is_far], len(position))], 1
    )
    face_of_triangle = np.concatenate(
        [rows[triple_faces], near_faces, near_faces, np.tile(rows[quad_faces[is_far]], 4)]
    )
    failed = [quads[:, offset > 2 * error]]
    del a, b, c, d, quads, offset  # frees memory for the checks

    to_check = np.ones(len(positions), bool)
    to_check[:leaves] = vertices.on_edge[:leaves]

    faults = np.zeros(triangles.shape[1], np.int16)
    suspect = np.flatnonzero(
        _in_chunks(
            triangles,
            lambda chunk: _is_suspect(
                positions, triangles[:, chunk], crossings.normal[face_of_triangle[chunk]], to_check
            ),
        )
    )
    faults_of = partial(_find_faults, space, positions, vertices.on_edge)
    faults[suspect] = faults_of(triangles[:, suspect])
    if not _is_unrepairable(faults):
        triangles, faults = flip_edges(triangles, faults, len(positions), faults_of)
    failed += [triangles[:, faults >= _OFF_SURFACE], _find_duplicate_edges(triangles, len(positions))]
    to_split = np.zeros(len(positions), bool)  # flags, because sorting indices would dominate the run time
    for failed_vertices in failed:
        to_split[failed_vertices] = True
    return positions, triangles, faults, np.flatnonzero(to_split)


def _is_unrepairable(faults: Indices) -> bool:
    """Whether so many triangles are bad that the surface must be finer than the cells: repair cannot succeed."""
    return int(np.count_nonzero(faults)) > max(len(faults) // 8, _FEW)


def _in_chunks(table: Indices, function: Callable[[slice], NDArray[Any]]) -> NDArray[Any]:
    """Applies a function to chunks of the columns of a table."""
    return np.concatenate(
        [function(slice(start, start + _CHUNK)) for start in range(0, max(table.shape[1], 1), _CHUNK)]
    )


def _is_suspect(
    positions: Points, triangles: Indices, normal: Points, to_check: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """Flags triangles to check: with vertices to check, or not aligned with the normal at their crossing."""
    a, b, c = (positions[corner] for corner in triangles)
    area_normal = np.cross(b - a, c - a)
    length = np.sqrt(np.einsum("ij,ij->i", area_normal, area_normal))
    return to_check[triangles].any(0) | (np.einsum("ij,ij->i", area_normal, normal) <= _MIN_COSINE * length)


def _initialise_positions(space: Space, tree: VertexTree, leaves: int) -> VertexPositions:
    """Initial positions: merged vertices of smooth pieces are projected to the surface; single cells have none yet."""
    positions, normals = tree.position.copy(), np.zeros_like(tree.position)
    smooth = np.flatnonzero(tree.smooth)
    if len(smooth):
        projected, normals[smooth], reached = space.project(positions[smooth])
        positions[smooth[reached]] = projected[reached]
    unknown = np.full((leaves, 3), np.nan)
    on_edge = np.concatenate([np.zeros(leaves, bool), ~tree.smooth])
    return VertexPositions(
        np.concatenate([unknown, positions]), np.concatenate([np.zeros((leaves, 3)), normals]), on_edge
    )


def _neighbours(corners: Indices) -> Iterator[Indices]:
    """The pairs of vertices on sides and diagonals of faces, in chunks of faces.

    Each pair occurs in both directions; only the ascending one is yielded.
    """
    for start in range(0, corners.shape[1], _CHUNK):
        chunk = corners[:, start : start + _CHUNK]
        partners = [np.roll(chunk, -1, axis=0), np.roll(chunk, -2, axis=0)]
        pairs = np.stack([np.concatenate([chunk, chunk]), np.concatenate(partners)]).reshape(2, -1)
        yield pairs[:, pairs[0] < pairs[1]]


def _update_faces(
    faces: Faces,
    rows: Indices,
    inner: Indices,
    before: Indices,
    top: Indices,
) -> tuple[Indices, Indices]:
    """Updates the faces between different vertices, and the faces inside one vertex, after vertices were split."""
    first = faces.corners[0, inner]
    changed = inner[before[first] != top[first]]
    a, b, c, d = top[faces.corners[:, changed]]
    differ = (a != b) | (b != c) | (c != d)
    keeps = np.ones(len(inner), bool)
    keeps[np.searchsorted(inner, changed[differ])] = False
    return np.concatenate([rows, changed[differ]]), inner[keeps]


def _polygons(corners: Indices) -> tuple[Indices, Indices, Indices, Indices]:
    """The triangles and quadrilaterals that remain of merged faces, each with the indices of their faces."""
    a, b, c, d = corners
    differ = np.stack([a != b, b != c, c != d, d != a])
    side_count = differ.sum(0, dtype=np.uint8)
    quad_faces = np.flatnonzero((side_count == 4) & (a != c) & (b != d))
    triple_faces = np.flatnonzero(side_count == 3)
    triples = corners[:, triple_faces].T[differ[:, triple_faces].T].reshape(-1, 3).T
    first, second, third = triples
    is_valid = (first != second) & (second != third) & (third != first)
    return triples[:, is_valid], triple_faces[is_valid], corners[:, quad_faces], quad_faces


def _rotate_to_diagonal(
    space: Space, positions: Points, quads: Indices, crossings: Crossings, face: Indices
) -> tuple[Indices, NDArray[np.float64]]:
    """Rotates quadrilaterals so that the better diagonal joins the first and third corner; also returns its offset."""
    use_second, offset = np.zeros(quads.shape[1], bool), np.empty(quads.shape[1])
    for start in range(0, quads.shape[1], _CHUNK):
        chunk = slice(start, start + _CHUNK)
        crossing, normal = crossings.position(face[chunk]), crossings.normal[face[chunk]]
        use_second[chunk], offset[chunk] = _choose_diagonal(space, positions, quads[:, chunk], crossing, normal)
    return np.where(use_second, np.roll(quads, -1, axis=0), quads), offset


def _choose_diagonal(
    space: Space, positions: Points, quads: Indices, crossing: Points, normal: Points
) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    """Whether the second diagonal is better, and the distance of the better diagonal from the surface."""
    middles = [(positions[quads[k]] + positions[quads[k + 2]]) / 2 for k in (0, 1)]
    offsets = [np.abs(np.einsum("ij,ij->i", middle - crossing, normal)) for middle in middles]
    # Near a sharp edge, the plane at the crossing is not reliable, so evaluate the part.
    unsure = np.flatnonzero(np.maximum(*offsets) > _RELIABLE)
    values = [np.abs(space.part(space.to_part(middle[unsure]))) for middle in middles]
    use_second = np.zeros(quads.shape[1], bool)
    use_second[unsure] = values[1] < values[0]
    return use_second, np.where(use_second, offsets[1], offsets[0])


def _fan_triangles(quads: Indices, first: int) -> Indices:
    """Four triangles around a new vertex inside each quadrilateral."""
    middle = np.arange(first, first + quads.shape[1], dtype=quads.dtype)
    return np.concatenate([np.stack([quads[k], quads[(k + 1) % 4], middle]) for k in range(4)], 1)


def _find_faults(space: Space, positions: Points, on_edge: NDArray[np.bool_], triangles: Indices) -> NDArray[np.int64]:
    """The fault of each triangle: 0 if the part is below the triangle and not above.

    Cutting off a sharp edge is a small fault; being off the surface, degenerate or inverted is worse.
    """
    faults = _in_chunks(triangles, lambda chunk: _check_points(space, positions, triangles[:, chunk]))
    is_sharp = np.append(on_edge, False)[np.minimum(triangles, len(on_edge))].any(0)
    rows = np.flatnonzero((faults == 0) & is_sharp)
    if len(rows):
        a, b, c = (positions[corner] for corner in triangles[:, rows])
        normal = np.cross(b - a, c - a)
        normal /= np.linalg.norm(normal, axis=1)[:, None]
        is_met = [space.is_at_surface((start + end) / 2, normal, _CLOSE) for start, end in ((a, b), (b, c), (c, a))]
        faults[rows[~np.all(is_met, axis=0)]] = _CUTS_EDGE
    return faults


def _check_points(space: Space, positions: Points, triangles: Indices) -> NDArray[np.int64]:
    a, b, c = (positions[corner] for corner in triangles)
    normal = np.cross(b - a, c - a)
    length = np.sqrt(np.einsum("ij,ij->i", normal, normal))
    normal /= np.maximum(length, 1e-300)[:, None]
    longest = np.maximum(np.maximum(np.abs(b - a).max(-1), np.abs(c - a).max(-1)), np.abs(c - b).max(-1))
    faults = np.where(length > _THIN * longest, 0, _DEGENERATE)
    # Check the centre of each triangle, then three more points of long triangles without a fault.
    for weights, min_length in ((_INNER_POINTS[:1], -1.0), (_INNER_POINTS[1:], _LONG)):
        rows = np.flatnonzero((faults == 0) & (longest > min_length))
        if len(rows):
            inner = np.stack([u * a[rows] + v * b[rows] + w * c[rows] for u, v, w in weights])
            reach = _REACH * normal[rows]
            below, above = space.is_inside(np.stack([inner - reach, inner + reach]))
            fault = np.where((above & ~below).any(0), _INVERTED, np.where((below & ~above).all(0), 0, _OFF_SURFACE))
            faults[rows] = fault
    return faults


def _find_duplicate_edges(triangles: Indices, vertex_count: int) -> Indices:
    """The triangles with a directed edge that another triangle also has."""
    edges = _directed_edges(triangles, vertex_count).reshape(-1)
    edges.sort()
    duplicates = edges[1:][edges[1:] == edges[:-1]]
    if not len(duplicates):
        return triangles[:, :0]
    return triangles[:, np.isin(_directed_edges(triangles, vertex_count), duplicates).any(0)]


def _directed_edges(triangles: Indices, vertex_count: int) -> NDArray[np.int64]:
    """A key for each edge of each triangle: start * vertex_count + end."""
    edges = triangles.astype(np.int64)
    edges *= vertex_count
    for corner in range(3):
        edges[corner] += triangles[(corner + 1) % 3]
    return edges


def _remove_unused_vertices(positions: Points, triangles: Indices) -> tuple[Points, Indices]:
    """Removes unused vertices."""
    used = np.zeros(len(positions), bool)
    used[triangles.reshape(-1)] = True
    return positions[used], (np.cumsum(used) - 1)[triangles]
