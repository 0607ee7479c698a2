"""Signs of distances to meshes of any quality, compared with solid angles in NumPy and with parts."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import livegrad as lg
from livegrad.implicit.bodies.part import part_of_function
from livegrad.implicit.meshing import dual_vertices
from livegrad.implicit.meshing.edge_changes import collapse_edges, flip_edges
from livegrad.implicit.meshing.embedded_mesh import is_embedded
from livegrad.implicit.nodes.assembly import Assembly
from livegrad.implicit.nodes.ports import PortType
from livegrad.implicit.nodes.resources import TriangleMesh

WIDE = ((-2.0, -2.0, -2.0), (2.0, 2.0, 2.0))
POINTS = np.random.default_rng(5).uniform(-1.4, 1.4, (2000, 3)).astype(np.float32).astype(np.float64)


def winding(vertices: Any, triangles: Any, points: Any) -> Any:
    """The winding number: the sum of all solid angles, in float64."""
    a, b, c = (vertices[triangles[:, k]][None] - points[:, None] for k in range(3))
    la, lb, lc = (np.linalg.norm(side, axis=-1) for side in (a, b, c))
    above = np.einsum("ijk,ijk->ij", a, np.cross(b, c))
    below = la * lb * lc + (a * b).sum(-1) * lc + (b * c).sum(-1) * la + (c * a).sum(-1) * lb
    return np.arctan2(above, below).sum(1) / (2 * np.pi)


def distance_to(mesh: TriangleMesh) -> lg.Part:
    assembly = Assembly().add_resource(mesh, id=9).add_function("d", {"pos": PortType.VECTOR}, {"y": PortType.SCALAR})
    assembly = assembly.add_node("d", "Mesh", "n", {"pos": "inputs.pos", "mesh": 9})
    return part_of_function(assembly.link("d", "n.distance", "outputs.y"), "d", WIDE)


def ball(rings: int = 4) -> TriangleMesh:
    """A sphere of 48 triangles. In all tests, trees have 64 leaves, so they share a compiled function."""
    turns = np.linspace(0, 2 * np.pi, 2 * rings, endpoint=False)
    inner = [
        [np.sin(a) * np.cos(t), np.sin(a) * np.sin(t), np.cos(a)]
        for a in np.linspace(0, np.pi, rings + 1)[1:-1]
        for t in turns
    ]
    vertices = np.array([*inner, [0, 0, 1], [0, 0, -1]])
    count, top, bottom = len(turns), len(vertices) - 2, len(vertices) - 1
    triangles = []
    for turn in range(count):
        next_turn = (turn + 1) % count
        for ring in range(rings - 2):
            a, b = ring * count + turn, ring * count + next_turn
            triangles += [(a, a + count, b), (b, a + count, b + count)]
        last = (rings - 2) * count
        triangles += [(top, turn, next_turn), (bottom, last + next_turn, last + turn)]
    return TriangleMesh(vertices, np.array(triangles))


def loose(mesh: TriangleMesh) -> TriangleMesh:
    """Separate triangles whose vertices almost coincide: no edge is shared."""
    corners = mesh.vertices[mesh.triangles].reshape(-1, 3)
    vertices = corners + np.random.default_rng(1).normal(size=corners.shape) * 1e-5
    return TriangleMesh(vertices, np.arange(len(corners)).reshape(-1, 3))


def with_lines(mesh: TriangleMesh) -> TriangleMesh:
    """Splits some edges on one side only; a triangle without area closes each gap."""
    vertices, triangles = list(mesh.vertices), mesh.triangles.tolist()
    for index in (0, 10, 20, 30):
        a, b, c = triangles[index]
        middle = len(vertices)
        vertices.append((mesh.vertices[a] + mesh.vertices[b]) / 2)
        triangles[index : index + 1] = [[a, middle, c], [middle, b, c]]
        triangles.append([a, b, middle])
    return TriangleMesh(np.array(vertices), np.array(triangles))


def with_ball_inside(mesh: TriangleMesh) -> TriangleMesh:
    """Adds a box that intersects the surface: the inside is the union."""
    box = TriangleMesh.box((0.2, -0.3, -0.3), (1.2, 0.3, 0.4))
    number = len(mesh.vertices)
    return TriangleMesh(
        np.concatenate([mesh.vertices, box.vertices]), np.concatenate([mesh.triangles, box.triangles + number])
    )


def with_fold(mesh: TriangleMesh) -> TriangleMesh:
    """Splits a face at a vertex beyond an edge, in the same plane: triangles are folded onto others."""
    a, b, c = mesh.vertices[mesh.triangles[5]]
    beyond = (a + b) / 2 + 0.4 * ((a + b) / 2 - c)
    triangle = mesh.triangles[5]
    number = len(mesh.vertices)
    fan = [[triangle[0], triangle[1], number], [triangle[1], triangle[2], number], [triangle[2], triangle[0], number]]
    others = np.delete(mesh.triangles, 5, axis=0)
    return TriangleMesh(np.concatenate([mesh.vertices, beyond[None]]), np.concatenate([others, fan]))


MESHES: dict[str, Callable[[TriangleMesh], TriangleMesh]] = {
    "with a hole": lambda mesh: TriangleMesh(mesh.vertices, mesh.triangles[1:]),
    "with a triangle turned over": lambda mesh: TriangleMesh(
        mesh.vertices, np.concatenate([mesh.triangles[:1, ::-1], mesh.triangles[1:]])
    ),
    "with triangles twice": lambda mesh: TriangleMesh(
        mesh.vertices, np.concatenate([mesh.triangles, mesh.triangles[:9]])
    ),
    "of loose triangles": loose,
    "with triangles without area": with_lines,
    "that crosses itself": with_ball_inside,
    "with a fold": with_fold,
}


@pytest.mark.parametrize("kind", MESHES)
def test_the_sign_agrees_with_the_winding_number(kind: str) -> None:
    mesh = MESHES[kind](ball())
    number = winding(mesh.vertices, mesh.triangles, POINTS)
    distances = distance_to(mesh)(POINTS)
    # Next to the surface and near gaps, the sign is not defined.
    clear = (np.abs(number - 0.5) > 0.1) & (np.abs(distances) > 1e-3)
    assert clear.sum() > 1800
    wrong = clear & ((distances < 0) != (number > 0.5))
    assert not wrong.any(), f"{wrong.sum()} of {clear.sum()}, the first at {POINTS[wrong][0]}"


def test_an_inverted_mesh_is_reoriented() -> None:
    mesh = ball()
    inwards = TriangleMesh(mesh.vertices, mesh.triangles[:, ::-1])
    np.testing.assert_array_equal(distance_to(inwards)(POINTS) < 0, distance_to(mesh)(POINTS) < 0)


@pytest.mark.parametrize("seed", [0, 2])
def test_a_rotated_box_keeps_its_signs_as_a_mesh(seed: int) -> None:
    generator = np.random.default_rng(seed)
    shape = lg.shapes.box((1.0, 0.7, 1.4)).rotate(tuple(generator.normal(size=3)), float(generator.uniform(-3, 3)))
    part = shape.part(WIDE)
    mesh = lg.mesh(part, feature_size=0.1)
    points = generator.uniform(-2, 2, (1500, 3))
    expected = part(points)
    clear = np.abs(expected) > 0.05
    np.testing.assert_array_equal((distance_to(mesh)(points) < 0)[clear], (expected < 0)[clear])
    # Every triangle lies on a side of the box and looks outwards; there are few of them.
    corners = mesh.vertices[mesh.triangles]
    normals = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    normals /= np.linalg.norm(normals, axis=1)[:, None]
    middles = corners.mean(1)
    assert (part(middles + 0.01 * normals) > 0).all()
    assert (part(middles - 0.01 * normals) < 0).all()
    assert len(mesh.triangles) < 800
    assert mesh.volume() == pytest.approx(0.98, rel=1e-4)
    assert is_embedded(mesh.vertices, mesh.triangles)


@pytest.mark.parametrize("angle", [0.0, 0.3])
def test_the_triangle_count_of_a_box_does_not_depend_on_the_cell_size(angle: float) -> None:
    part = lg.shapes.box((1.0, 0.7, 1.4)).rotate((0, 0, 1), angle).part(((-1, -1, -1), (1, 1, 1)))
    numbers = {len(lg.mesh(part, feature_size=size).triangles) for size in (0.2, 0.1, 0.05)}
    assert len(numbers) == 1
    assert max(numbers) < 50


# --- meshes that bound a body -----------------------------------------------------------------------------------------


def crosses(corners: Any) -> bool:
    """Whether an edge of a triangle intersects the interior of another, by signs of volumes."""

    def volume(p: Any, q: Any, r: Any, s: Any) -> Any:
        return (np.cross(q - p, r - p) * (s - p)).sum(-1)

    start, end = corners.reshape(-1, 1, 3), np.roll(corners, -1, axis=1).reshape(-1, 1, 3)
    a, b, c = corners[None].transpose(2, 0, 1, 3)
    through = volume(a, b, c, start) * volume(a, b, c, end) < 0
    sides = np.stack([volume(start, end, one, two) for one, two in ((a, b), (b, c), (c, a))])
    return bool((through & ((sides.min(0) > 0) | (sides.max(0) < 0))).any())


def test_a_mesh_is_embedded_unless_its_triangles_intersect() -> None:
    mesh = ball()
    outcomes = set()
    for seed in range(40):
        generator = np.random.default_rng(seed)
        vertices = mesh.vertices.copy()
        indices = generator.integers(len(vertices), size=3)
        vertices[indices] += generator.normal(size=(3, 3)) * generator.choice([0.1, 0.6, 1.0])
        expected = not crosses(vertices[mesh.triangles])
        assert is_embedded(vertices, mesh.triangles) == expected, seed
        outcomes.add(expected)
    assert outcomes == {True, False}


@pytest.mark.parametrize("kind", MESHES)
def test_a_mesh_with_a_defect_is_not_embedded(kind: str) -> None:
    mesh = MESHES[kind](ball())
    assert not is_embedded(mesh.vertices, mesh.triangles)
    assert is_embedded(ball().vertices, ball().triangles)


def test_two_cones_that_share_a_tip_are_not_embedded() -> None:
    base = np.array([[1, 0, 1], [0, 1, 1], [-1, -1, 1], [1, 0, -1], [0, 1, -1], [-1, -1, -1], [0, 0, 0]], float)
    upper = [(0, 1, 2), (1, 0, 6), (2, 1, 6), (0, 2, 6)]
    lower = [(5, 4, 3), (3, 4, 6), (4, 5, 6), (5, 3, 6)]
    assert is_embedded(base, np.array(upper))
    assert not is_embedded(base, np.array(upper + lower))


# --- changes of edges -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_flips_and_collapses_reduce_faults_and_keep_the_mesh_closed(seed: int) -> None:
    """Faults are pseudorandom numbers here; the mesh stays closed whatever they are."""
    mesh = ball(8)

    def faults_of(triangles: Any) -> Any:
        ordered = np.sort(triangles, axis=0)
        return (ordered[0] * 7919 + ordered[1] * 104729 + ordered[2] * 1299709 + seed * 31) % 3 // 2 * 9

    triangles = mesh.triangles.T.astype(np.int32)
    before = faults_of(triangles)
    flipped, flipped_faults = flip_edges(triangles, before, len(mesh.vertices), faults_of)
    assert TriangleMesh(mesh.vertices, flipped.T.astype(np.int64)).is_closed()
    np.testing.assert_array_equal(flipped_faults, faults_of(flipped))
    assert flipped_faults.sum() < before.sum()
    collapsed, collapsed_faults = collapse_edges(mesh.vertices, flipped, flipped_faults, faults_of, 9)
    assert TriangleMesh(mesh.vertices, collapsed.T.astype(np.int64)).is_closed()
    np.testing.assert_array_equal(collapsed_faults, faults_of(collapsed))
    assert collapsed_faults.sum() <= flipped_faults.sum()


def test_pairs_of_vertices_are_searched_once_and_not_if_normals_differ_everywhere() -> None:
    number = 40_000
    normals = np.zeros((number, 3))
    normals[::2, 0], normals[1::2, 1] = 1.0, 1.0
    vertices = dual_vertices.VertexPositions(np.zeros((number, 3)), normals, np.zeros(number, bool))
    ring = np.stack([np.arange(number), np.roll(np.arange(number), -1)])
    first_pairs = ring[:, :100]
    np.testing.assert_array_equal(dual_vertices._find_new_pairs(vertices, [first_pairs], number), first_pairs)
    overlapping_pairs = ring[:, 50:150]
    np.testing.assert_array_equal(
        dual_vertices._find_new_pairs(vertices, [overlapping_pairs], number), ring[:, 100:150]
    )
    assert dual_vertices._find_new_pairs(vertices, [ring, ring], number).size == 0
