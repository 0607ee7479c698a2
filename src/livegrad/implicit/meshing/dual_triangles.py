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
from livegrad.implicit.meshing.dual_vertices import Crossings, Placed, Space, meet_missed_edges, pieces
from livegrad.implicit.meshing.edge_changes import change_edges, flip_edges
from livegrad.implicit.meshing.surface_points import Points

_FARTHEST = 0.2  # cells between a crossing and the diagonal of its face, of those that are cut into two
_REACH = 0.25  # cells within which the surface must be met over the middle of a triangle
_LONG = 3.0
_THIN = 1e-3  # the least height of a triangle
_CLOSE = 0.1  # cells within which the surface must be met in the middle of edges, near edges of the part
_ROUGH, _AWAY, _LINE, _TURNED_OVER = 1, 3, 9, 30  # faults of triangles
_TURNED = 0.1  # the least cosine between a triangle and the normal at its crossing that needs no closer look
_AT_ONCE = 1 << 17  # faces or triangles: all at once take more memory than the rest of the mesh
_EVEN = 0.01
_FEW = 1 << 14  # bad triangles that are mended in any case
_INNER = np.array([[1, 1, 1], [0.7, 0.15, 0.15], [0.15, 0.7, 0.15], [0.15, 0.15, 0.7]]) / [[3], [1], [1], [1]]


def triangles_of(
    place_some: Callable[[Indices], Placed],
    space: Space,
    faces: Faces,
    found: Crossings,
    tree: VertexTree,
    error: float,
    sharp: bool,
) -> tuple[Points, Indices]:
    """The places of vertices and the triangles that they join, every vertex in use.

    Vertices that stand for others are taken apart until no triangle fails: those of single cells always do.
    `place_some` finds places of the latter, once they are needed.
    """
    leaves = len(faces.cells)
    placed = _at_start(space, tree, leaves)
    place = placed.place
    # Faces to look at; those with one vertex only.
    rows, inner = np.empty(0, np.int32), np.arange(len(faces.start), dtype=np.int32)
    top = np.full(leaves, -1, np.int32)
    while True:
        before, top = top, tree.tops()
        rows, inner = _between(faces, rows, inner, before, top)
        corners = top[faces.corners[:, rows]]
        used = np.zeros(len(place), bool)
        used[corners] = True
        fresh = np.flatnonzero(used[:leaves])
        fresh = fresh[np.isnan(place[fresh, 0])]
        if len(fresh):
            for piece in pieces(len(fresh)):
                some = fresh[piece]
                own = place_some(some)
                place[some], placed.normal[some], placed.on_edge[some] = own.place, own.normal, own.on_edge
            if sharp:
                meet_missed_edges(space, placed, _neighbours(corners), leaves)
        every, triangles, faults, wrong = _cut(space, placed, corners, found, rows, error, leaves)
        wrong = wrong[(wrong >= leaves) & (wrong < len(place))]
        if len(wrong):
            del every, triangles, corners  # those of the next round take as much memory again
            tree.take_apart(wrong)
            continue
        if _is_hopeless(faults):
            return _in_use(every, triangles.T)
        faults_of = partial(_faults, space, every, placed.on_edge)
        made, faults = change_edges(every, triangles, faults, faults_of, _LINE)
        if not placed.move_back(np.unique(made[:, faults >= _TURNED_OVER])):
            return _in_use(every, made.T)


def _cut(
    space: Space, placed: Placed, corners: Indices, found: Crossings, rows: Indices, error: float, leaves: int
) -> tuple[Points, Indices, Indices, Indices]:
    """Places of vertices, triangles of the faces in these rows, those that fail, and vertices to take apart."""
    place = placed.place
    threes, part, fours, whole = _polygons(corners)
    fours, offset = _by_diagonal(space, place, fours, found, rows[whole])
    far = offset > _FARTHEST
    near = rows[whole[~far]]
    every = np.concatenate([place, found.place(rows[whole[far]])]) if far.any() else place
    a, b, c, d = fours[:, ~far]
    triangles = np.concatenate([threes, np.stack([a, b, c]), np.stack([a, c, d]), _fans(fours[:, far], len(place))], 1)
    face = np.concatenate([rows[part], near, near, np.tile(rows[whole[far]], 4)])
    wrong = [fours[:, offset > 2 * error]]
    del a, b, c, d, fours, offset  # what follows takes as much memory again

    to_try = np.ones(len(every), bool)
    to_try[:leaves] = placed.on_edge[:leaves]

    faults = np.zeros(triangles.shape[1], np.int16)
    suspect = np.flatnonzero(
        _in_pieces(triangles, lambda some: _is_suspect(every, triangles[:, some], found.normal[face[some]], to_try))
    )
    faults_of = partial(_faults, space, every, placed.on_edge)
    faults[suspect] = faults_of(triangles[:, suspect])
    if not _is_hopeless(faults):
        triangles, faults = flip_edges(triangles, faults, len(every), faults_of)
    wrong += [triangles[:, faults >= _AWAY], _with_shared_edges(triangles, len(every))]
    to_take_apart = np.zeros(len(every), bool)  # marked: to sort them takes longer than all the rest
    for own in wrong:
        to_take_apart[own] = True
    return every, triangles, faults, np.flatnonzero(to_take_apart)


def _is_hopeless(faults: Indices) -> bool:
    """Whether so many triangles are bad that the surface is finer than cells: nothing there can be mended."""
    return int(np.count_nonzero(faults)) > max(len(faults) // 8, _FEW)


def _in_pieces(table: Indices, of: Callable[[slice], NDArray[Any]]) -> NDArray[Any]:
    """An answer for each column of a table, some columns at a time."""
    return np.concatenate([of(slice(at, at + _AT_ONCE)) for at in range(0, max(table.shape[1], 1), _AT_ONCE)])


def _is_suspect(places: Points, triangles: Indices, normal: Points, to_try: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Triangles to try: those of vertices to try, and those that do not look along the normal at their crossing."""
    a, b, c = (places[corner] for corner in triangles)
    own = np.cross(b - a, c - a)
    length = np.sqrt(np.einsum("ij,ij->i", own, own))
    return to_try[triangles].any(0) | (np.einsum("ij,ij->i", own, normal) <= _TURNED * length)


def _at_start(space: Space, tree: VertexTree, leaves: int) -> Placed:
    """Places of joined vertices: those of smooth pieces on the surface; the others are not known yet."""
    places, normals = tree.place.copy(), np.zeros_like(tree.place)
    smooth = np.flatnonzero(tree.smooth)
    if len(smooth):
        foot, normals[smooth], reached = space.feet(places[smooth])
        places[smooth[reached]] = foot[reached]
    unknown = np.full((leaves, 3), np.nan)
    on_edge = np.concatenate([np.zeros(leaves, bool), ~tree.smooth])
    return Placed(np.concatenate([unknown, places]), np.concatenate([np.zeros((leaves, 3)), normals]), on_edge)


def _neighbours(corners: Indices) -> Iterator[Indices]:
    """The pairs of vertices that faces may join, by their sides and diagonals, some faces at a time.

    Each is there in both directions.
    """
    for at in range(0, corners.shape[1], _AT_ONCE):
        some = corners[:, at : at + _AT_ONCE]
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
    """Faces with several vertices, and those with one, given what they were before vertices were taken apart."""
    first = faces.corners[0, inner]
    changed = inner[before[first] != top[first]]
    a, b, c, d = top[faces.corners[:, changed]]
    apart = (a != b) | (b != c) | (c != d)
    still = np.ones(len(inner), bool)
    still[np.searchsorted(inner, changed[apart])] = False
    return np.concatenate([rows, changed[apart]]), inner[still]


def _polygons(corners: Indices) -> tuple[Indices, Indices, Indices, Indices]:
    """What is left of faces whose corners became the same: those of three, and those of four, each with its numbers."""
    a, b, c, d = corners
    differ = np.stack([a != b, b != c, c != d, d != a])
    number = differ.sum(0, dtype=np.uint8)
    whole = np.flatnonzero((number == 4) & (a != c) & (b != d))
    part = np.flatnonzero(number == 3)
    threes = corners[:, part].T[differ[:, part].T].reshape(-1, 3).T
    first, second, third = threes
    kept = (first != second) & (second != third) & (third != first)
    return threes[:, kept], part[kept], corners[:, whole], whole


def _by_diagonal(
    space: Space, places: Points, fours: Indices, found: Crossings, face: Indices
) -> tuple[Indices, NDArray[np.float64]]:
    """Faces turned so that the first and third corner are the ends of the better diagonal; how far that is off."""
    turned, offset = np.zeros(fours.shape[1], bool), np.empty(fours.shape[1])
    for at in range(0, fours.shape[1], _AT_ONCE):
        some = slice(at, at + _AT_ONCE)
        crossing, normal = found.place(face[some]), found.normal[face[some]]
        turned[some], offset[some] = _turned(space, places, fours[:, some], crossing, normal)
    return np.where(turned, np.roll(fours, -1, axis=0), fours), offset


def _turned(
    space: Space, places: Points, fours: Indices, crossing: Points, normal: Points
) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    """Whether the second diagonal is the better one, and how far the better one is off."""
    middles = [(places[fours[k]] + places[fours[k + 2]]) / 2 for k in (0, 1)]
    offsets = [np.abs(np.einsum("ij,ij->i", middle - crossing, normal)) for middle in middles]
    # Near an edge of the part the crossing's plane says little: the part itself is asked.
    unsure = np.flatnonzero(np.maximum(*offsets) > _EVEN)
    values = [np.abs(space.part(space.outside(middle[unsure]))) for middle in middles]
    turned = np.zeros(fours.shape[1], bool)
    turned[unsure] = values[1] < values[0]
    return turned, np.where(turned, offsets[1], offsets[0])


def _fans(fours: Indices, first: int) -> Indices:
    """Four triangles around a new vertex inside each face."""
    middle = np.arange(first, first + fours.shape[1], dtype=fours.dtype)
    return np.concatenate([np.stack([fours[k], fours[(k + 1) % 4], middle]) for k in range(4)], 1)


def _faults(space: Space, places: Points, on_edge: NDArray[np.bool_], tried: Indices) -> NDArray[np.int64]:
    """How bad triangles are: those with the part below them and nothing of it above are not.

    Cutting off an edge of the part is bad, being away from the surface, a line, or turned over is worse.
    """
    faults = _in_pieces(tried, lambda some: _faults_of_some(space, places, tried[:, some]))
    is_sharp = np.append(on_edge, False)[np.minimum(tried, len(on_edge))].any(0)
    rows = np.flatnonzero((faults == 0) & is_sharp)
    if len(rows):
        a, b, c = (places[corner] for corner in tried[:, rows])
        normal = np.cross(b - a, c - a)
        normal /= np.linalg.norm(normal, axis=1)[:, None]
        met = [space.is_at_surface((start + end) / 2, normal, _CLOSE) for start, end in ((a, b), (b, c), (c, a))]
        faults[rows[~np.all(met, axis=0)]] = _ROUGH
    return faults


def _faults_of_some(space: Space, places: Points, tried: Indices) -> NDArray[np.int64]:
    a, b, c = (places[corner] for corner in tried)
    normal = np.cross(b - a, c - a)
    length = np.sqrt(np.einsum("ij,ij->i", normal, normal))
    normal /= np.maximum(length, 1e-300)[:, None]
    longest = np.maximum(np.maximum(np.abs(b - a).max(-1), np.abs(c - a).max(-1)), np.abs(c - b).max(-1))
    faults = np.where(length > _THIN * longest, 0, _LINE)
    # The middle of each first; three more places in long ones that are good so far.
    for weights, least in ((_INNER[:1], -1.0), (_INNER[1:], _LONG)):
        rows = np.flatnonzero((faults == 0) & (longest > least))
        if len(rows):
            inner = np.stack([u * a[rows] + v * b[rows] + w * c[rows] for u, v, w in weights])
            reach = _REACH * normal[rows]
            below, above = space.is_inside(np.stack([inner - reach, inner + reach]))
            own = np.where((above & ~below).any(0), _TURNED_OVER, np.where((below & ~above).all(0), 0, _AWAY))
            faults[rows] = own
    return faults


def _with_shared_edges(triangles: Indices, number: int) -> Indices:
    """Triangles with an edge that another one has in the same direction."""
    edges = _directed_edges(triangles, number).reshape(-1)
    edges.sort()
    twice = edges[1:][edges[1:] == edges[:-1]]
    if not len(twice):
        return triangles[:, :0]
    return triangles[:, np.isin(_directed_edges(triangles, number), twice).any(0)]


def _directed_edges(triangles: Indices, number: int) -> NDArray[np.int64]:
    """A number for each edge of each triangle: that of its start times `number`, and that of its end."""
    edges = triangles.astype(np.int64)
    edges *= number
    for corner in range(3):
        edges[corner] += triangles[(corner + 1) % 3]
    return edges


def _in_use(places: Points, triangles: Indices) -> tuple[Points, Indices]:
    used = np.zeros(len(places), bool)
    used[triangles.reshape(-1)] = True
    return places[used], (np.cumsum(used) - 1)[triangles]
