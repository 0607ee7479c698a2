"""Triangulates faces. Faces of merged vertices are checked against the part, and split again if they fail.

In: faces, crossings and the tree of vertices, from `meshing`. Out: positions and triangles. A remaining face has three
or four corners; it is cut along the diagonal that is nearer to the surface, or into four triangles around its crossing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from livegrad.implicit.meshing.dual_cells import Faces, Indices
from livegrad.implicit.meshing.dual_clusters import VertexTree
from livegrad.implicit.meshing.dual_vertices import Crossings, Space, VertexPositions, meet_missed_edges, pieces
from livegrad.implicit.meshing.edge_changes import change_edges, flip_edges
from livegrad.implicit.meshing.surface_points import Points

_FARTHEST = 0.2  # cells: largest distance between a crossing and the diagonal of a face that is cut into two triangles
_REACH = 0.25  # cells within which the surface must be found above or below the centre of a triangle
_LONG = 3.0
_THIN = 1e-3  # the least height of a triangle
_CLOSE = 0.1  # cells within which the surface must be found at the midpoints of triangle edges, near sharp edges
_ROUGH, _AWAY, _LINE, _TURNED_OVER = 1, 3, 9, 30  # faults of triangles
_TURNED = 0.1  # the least cosine between a triangle's normal and the normal at its crossing without a closer check
_CHUNK = 1 << 17  # faces or triangles: temporaries for all at once take more memory than the rest of the mesh
_EVEN = 0.01
_FEW = 1 << 14  # bad triangles that are always repaired
_INNER = np.array([[1, 1, 1], [0.7, 0.15, 0.15], [0.15, 0.7, 0.15], [0.15, 0.15, 0.7]]) / [[3], [1], [1], [1]]


def triangles_of(
    position_some: Callable[[Indices], VertexPositions],
    space: Space,
    faces: Faces,
    crossings: Crossings,
    tree: VertexTree,
    error: float,
    sharp: bool,
) -> tuple[Points, Indices]:
    """The positions of vertices and the triangles between them. Every vertex is used.

    Merged vertices are split until no triangle fails; vertices of single cells are always accepted. `position_some`
    computes the positions of the latter on demand.
    """
    leaves = len(faces.cells)
    placed = _at_start(space, tree, leaves)
    position = placed.position
    # The faces between several vertices, and those with one vertex.
    rows, inner = np.empty(0, np.int32), np.arange(len(faces.start), dtype=np.int32)
    top = np.full(leaves, -1, np.int32)
    while True:
        before, top = top, tree.tops()
        rows, inner = _between(faces, rows, inner, before, top)
        corners = top[faces.corners[:, rows]]
        used = np.zeros(len(position), bool)
        used[corners] = True
        fresh = np.flatnonzero(used[:leaves])
        fresh = fresh[np.isnan(position[fresh, 0])]
        if len(fresh):
            for piece in pieces(len(fresh)):
                some = fresh[piece]
                fresh_vertices = position_some(some)
                position[some], placed.normal[some], placed.on_edge[some] = (
                    fresh_vertices.position,
                    fresh_vertices.normal,
                    fresh_vertices.on_edge,
                )
            if sharp:
                meet_missed_edges(space, placed, _neighbours(corners), leaves)
        every, triangles, faults, wrong = _cut(space, placed, corners, crossings, rows, error, leaves)
        wrong = wrong[(wrong >= leaves) & (wrong < len(position))]
        if len(wrong):
            del every, triangles, corners  # the next round needs as much memory again
            tree.take_apart(wrong)
            continue
        if _is_hopeless(faults):
            return _in_use(every, triangles.T)
        faults_of = partial(_faults, space, every, placed.on_edge)
        repaired, faults = change_edges(every, triangles, faults, faults_of, _LINE)
        if not placed.move_back(np.unique(repaired[:, faults >= _TURNED_OVER])):
            return _in_use(every, repaired.T)


def _cut(
    space: Space,
    placed: VertexPositions,
    corners: Indices,
    crossings: Crossings,
    rows: Indices,
    error: float,
    leaves: int,
) -> tuple[Points, Indices, Indices, Indices]:
    """The positions of vertices, the triangles of the faces in these rows, their faults, and the vertices to split."""
    position = placed.position
    threes, part, fours, whole = _polygons(corners)
    fours, offset = _by_diagonal(space, position, fours, crossings, rows[whole])
    far = offset > _FARTHEST
    near = rows[whole[~far]]
    every = np.concatenate([position, crossings.position(rows[whole[far]])]) if far.any() else position
    a, b, c, d = fours[:, ~far]
    triangles = np.concatenate(
        [threes, np.stack([a, b, c]), np.stack([a, c, d]), _fans(fours[:, far], len(position))], 1
    )
    face = np.concatenate([rows[part], near, near, np.tile(rows[whole[far]], 4)])
    wrong = [fours[:, offset > 2 * error]]
    del a, b, c, d, fours, offset  # the following needs as much memory again

    to_try = np.ones(len(every), bool)
    to_try[:leaves] = placed.on_edge[:leaves]

    faults = np.zeros(triangles.shape[1], np.int16)
    suspect = np.flatnonzero(
        _in_chunks(triangles, lambda some: _is_suspect(every, triangles[:, some], crossings.normal[face[some]], to_try))
    )
    faults_of = partial(_faults, space, every, placed.on_edge)
    faults[suspect] = faults_of(triangles[:, suspect])
    if not _is_hopeless(faults):
        triangles, faults = flip_edges(triangles, faults, len(every), faults_of)
    wrong += [triangles[:, faults >= _AWAY], _with_shared_edges(triangles, len(every))]
    to_take_apart = np.zeros(len(every), bool)  # flags, because sorting the indices would dominate the run time
    for vertices in wrong:
        to_take_apart[vertices] = True
    return every, triangles, faults, np.flatnonzero(to_take_apart)


def _is_hopeless(faults: Indices) -> bool:
    """Whether so many triangles are bad that the surface must be finer than the cells, so that repair is pointless."""
    return int(np.count_nonzero(faults)) > max(len(faults) // 8, _FEW)


def _in_chunks(table: Indices, of: Callable[[slice], NDArray[Any]]) -> NDArray[Any]:
    """Applies a function to the columns of a table in chunks."""
    return np.concatenate([of(slice(at, at + _CHUNK)) for at in range(0, max(table.shape[1], 1), _CHUNK)])


def _is_suspect(positions: Points, triangles: Indices, normal: Points, to_try: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """The triangles to check: those with vertices to check, and those not aligned with the normal at their crossing."""
    a, b, c = (positions[corner] for corner in triangles)
    area_normal = np.cross(b - a, c - a)
    length = np.sqrt(np.einsum("ij,ij->i", area_normal, area_normal))
    return to_try[triangles].any(0) | (np.einsum("ij,ij->i", area_normal, normal) <= _TURNED * length)


def _at_start(space: Space, tree: VertexTree, leaves: int) -> VertexPositions:
    """Initial positions: merged vertices of smooth pieces are moved to the surface; single cells are still unknown."""
    positions, normals = tree.position.copy(), np.zeros_like(tree.position)
    smooth = np.flatnonzero(tree.smooth)
    if len(smooth):
        foot, normals[smooth], reached = space.feet(positions[smooth])
        positions[smooth[reached]] = foot[reached]
    unknown = np.full((leaves, 3), np.nan)
    on_edge = np.concatenate([np.zeros(leaves, bool), ~tree.smooth])
    return VertexPositions(
        np.concatenate([unknown, positions]), np.concatenate([np.zeros((leaves, 3)), normals]), on_edge
    )


def _neighbours(corners: Indices) -> Iterator[Indices]:
    """The pairs of vertices that faces may join, along sides and diagonals, in chunks of faces.

    Each pair occurs in both directions.
    """
    for at in range(0, corners.shape[1], _CHUNK):
        some = corners[:, at : at + _CHUNK]
        others = [np.roll(some, -1, axis=0), np.roll(some, -2, axis=0)]
        pairs = np.stack([np.concatenate([some, some]), np.concatenate(others)]).reshape(2, -1)
        yield pairs[:, pairs[0] < pairs[1]]


def _between(
    faces: Faces,
    rows: Indices,
    inner: Indices,
    before: Indices,
    top: Indices,
) -> tuple[Indices, Indices]:
    """The faces between several vertices and those with one vertex, updated after vertices were split."""
    first = faces.corners[0, inner]
    changed = inner[before[first] != top[first]]
    a, b, c, d = top[faces.corners[:, changed]]
    apart = (a != b) | (b != c) | (c != d)
    still = np.ones(len(inner), bool)
    still[np.searchsorted(inner, changed[apart])] = False
    return np.concatenate([rows, changed[apart]]), inner[still]


def _polygons(corners: Indices) -> tuple[Indices, Indices, Indices, Indices]:
    """The triangles and quadrilaterals that remain after merging corners, each with the indices of their faces."""
    a, b, c, d = corners
    differ = np.stack([a != b, b != c, c != d, d != a])
    side_count = differ.sum(0, dtype=np.uint8)
    whole = np.flatnonzero((side_count == 4) & (a != c) & (b != d))
    part = np.flatnonzero(side_count == 3)
    threes = corners[:, part].T[differ[:, part].T].reshape(-1, 3).T
    first, second, third = threes
    kept = (first != second) & (second != third) & (third != first)
    return threes[:, kept], part[kept], corners[:, whole], whole


def _by_diagonal(
    space: Space, positions: Points, fours: Indices, crossings: Crossings, face: Indices
) -> tuple[Indices, NDArray[np.float64]]:
    """Rotates faces so that the better diagonal joins the first and third corner, and returns its offset."""
    use_second, offset = np.zeros(fours.shape[1], bool), np.empty(fours.shape[1])
    for at in range(0, fours.shape[1], _CHUNK):
        some = slice(at, at + _CHUNK)
        crossing, normal = crossings.position(face[some]), crossings.normal[face[some]]
        use_second[some], offset[some] = _choose_diagonal(space, positions, fours[:, some], crossing, normal)
    return np.where(use_second, np.roll(fours, -1, axis=0), fours), offset


def _choose_diagonal(
    space: Space, positions: Points, fours: Indices, crossing: Points, normal: Points
) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    """Whether the second diagonal is better, and the offset of the better one."""
    middles = [(positions[fours[k]] + positions[fours[k + 2]]) / 2 for k in (0, 1)]
    offsets = [np.abs(np.einsum("ij,ij->i", middle - crossing, normal)) for middle in middles]
    # Near a sharp edge, the plane at the crossing is not reliable, so the part itself is evaluated.
    unsure = np.flatnonzero(np.maximum(*offsets) > _EVEN)
    values = [np.abs(space.part(space.outside(middle[unsure]))) for middle in middles]
    use_second = np.zeros(fours.shape[1], bool)
    use_second[unsure] = values[1] < values[0]
    return use_second, np.where(use_second, offsets[1], offsets[0])


def _fans(fours: Indices, first: int) -> Indices:
    """Four triangles around a new vertex inside each face."""
    middle = np.arange(first, first + fours.shape[1], dtype=fours.dtype)
    return np.concatenate([np.stack([fours[k], fours[(k + 1) % 4], middle]) for k in range(4)], 1)


def _faults(space: Space, positions: Points, on_edge: NDArray[np.bool_], tried: Indices) -> NDArray[np.int64]:
    """The fault of each triangle: 0 if the part is below it and not above.

    Cutting off a sharp edge is a fault; being away from the surface, degenerate or inverted is worse.
    """
    faults = _in_chunks(tried, lambda some: _faults_of_some(space, positions, tried[:, some]))
    is_sharp = np.append(on_edge, False)[np.minimum(tried, len(on_edge))].any(0)
    rows = np.flatnonzero((faults == 0) & is_sharp)
    if len(rows):
        a, b, c = (positions[corner] for corner in tried[:, rows])
        normal = np.cross(b - a, c - a)
        normal /= np.linalg.norm(normal, axis=1)[:, None]
        met = [space.is_at_surface((start + end) / 2, normal, _CLOSE) for start, end in ((a, b), (b, c), (c, a))]
        faults[rows[~np.all(met, axis=0)]] = _ROUGH
    return faults


def _faults_of_some(space: Space, positions: Points, tried: Indices) -> NDArray[np.int64]:
    a, b, c = (positions[corner] for corner in tried)
    normal = np.cross(b - a, c - a)
    length = np.sqrt(np.einsum("ij,ij->i", normal, normal))
    normal /= np.maximum(length, 1e-300)[:, None]
    longest = np.maximum(np.maximum(np.abs(b - a).max(-1), np.abs(c - a).max(-1)), np.abs(c - b).max(-1))
    faults = np.where(length > _THIN * longest, 0, _LINE)
    # First the centre of each triangle, then three more points in long triangles without a fault.
    for weights, least in ((_INNER[:1], -1.0), (_INNER[1:], _LONG)):
        rows = np.flatnonzero((faults == 0) & (longest > least))
        if len(rows):
            inner = np.stack([u * a[rows] + v * b[rows] + w * c[rows] for u, v, w in weights])
            reach = _REACH * normal[rows]
            below, above = space.is_inside(np.stack([inner - reach, inner + reach]))
            fault = np.where((above & ~below).any(0), _TURNED_OVER, np.where((below & ~above).all(0), 0, _AWAY))
            faults[rows] = fault
    return faults


def _with_shared_edges(triangles: Indices, vertex_count: int) -> Indices:
    """The triangles with an edge that another triangle has in the same direction."""
    edges = _directed_edges(triangles, vertex_count).reshape(-1)
    edges.sort()
    twice = edges[1:][edges[1:] == edges[:-1]]
    if not len(twice):
        return triangles[:, :0]
    return triangles[:, np.isin(_directed_edges(triangles, vertex_count), twice).any(0)]


def _directed_edges(triangles: Indices, vertex_count: int) -> NDArray[np.int64]:
    """A key for each edge of each triangle: start * vertex_count + end."""
    edges = triangles.astype(np.int64)
    edges *= vertex_count
    for corner in range(3):
        edges[corner] += triangles[(corner + 1) % 3]
    return edges


def _in_use(positions: Points, triangles: Indices) -> tuple[Points, Indices]:
    used = np.zeros(len(positions), bool)
    used[triangles.reshape(-1)] = True
    return positions[used], (np.cumsum(used) - 1)[triangles]
