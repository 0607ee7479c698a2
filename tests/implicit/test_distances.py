"""Distances to meshes and lattices, and samples of images, compared with formulas."""

from typing import Any

import numpy as np
import pytest

import livegrad as lg
from livegrad.implicit.bodies.level_sets import parts
from livegrad.implicit.bodies.part import part_of_function
from livegrad.implicit.nodes.assembly import Assembly
from livegrad.implicit.nodes.errors import AssemblyError
from livegrad.implicit.nodes.expression import add_expression
from livegrad.implicit.nodes.ports import PortType
from livegrad.implicit.nodes.resources import CAPS, BeamLattice, ImageStack, LevelSet, TriangleMesh
from livegrad.implicit.nodes.to_ir import convert
from livegrad.runtime.reference import evaluate

SCALAR, VECTOR = PortType.SCALAR, PortType.VECTOR
LOW, HIGH = np.array([-1.0, -0.7, -0.5]), np.array([1.0, 0.7, 0.5])
POINTS = np.random.default_rng(11).uniform(-2, 2, (500, 3))
BOUNDS = ((-2, -2, -2), (2, 2, 2))


def distance_to(resource: Any, node: str) -> Assembly:
    assembly = Assembly().add_resource(resource, id=9).add_function("d", {"pos": VECTOR}, {"y": SCALAR})
    port = "beamlattice" if node == "BeamLattice" else "mesh"
    assembly = assembly.add_node("d", node, "n", {"pos": "inputs.pos", port: 9})
    return assembly.link("d", "n.distance", "outputs.y")


def box_distance(points: Any) -> Any:
    offset = np.abs(points) - HIGH
    return np.linalg.norm(np.maximum(offset, 0), axis=-1) + np.minimum(offset.max(-1), 0)


def test_signed_and_unsigned_distances_to_a_box_are_exact() -> None:
    mesh = TriangleMesh.box(LOW, HIGH)
    expected = box_distance(POINTS)
    signed = part_of_function(distance_to(mesh, "Mesh"), "d", BOUNDS, element=lg.f64)
    unsigned = part_of_function(distance_to(mesh, "UnsignedMesh"), "d", BOUNDS, element=lg.f64)
    np.testing.assert_allclose(signed(POINTS), expected, atol=1e-14)
    np.testing.assert_allclose(unsigned(POINTS), np.abs(expected), atol=1e-14)
    single = part_of_function(distance_to(mesh, "Mesh"), "d", BOUNDS)
    np.testing.assert_allclose(single(POINTS), expected, atol=1e-6)


def test_the_reference_backend_computes_the_same_distance() -> None:
    converted = convert(distance_to(TriangleMesh.box(LOW, HIGH), "Mesh"), "d", element=lg.f64)
    for point in POINTS[:10]:
        value = evaluate(converted.function, point, *converted.tables)
        np.testing.assert_allclose(value, box_distance(point), atol=1e-14)


def test_the_gradient_of_a_distance_is_exact_and_has_length_one() -> None:
    part = part_of_function(distance_to(TriangleMesh.box(LOW, HIGH), "Mesh"), "d", BOUNDS, element=lg.f64)
    gradient = part.gradient(POINTS)
    np.testing.assert_allclose(np.linalg.norm(gradient, axis=1), 1.0, atol=1e-12)
    step = 1e-6
    differences = [(part(POINTS + step * axis) - part(POINTS - step * axis)) / (2 * step) for axis in np.eye(3)]
    error = np.abs(np.stack(differences, -1) - gradient).max(-1)
    assert np.quantile(error, 0.95) < 1e-6
    on_face = part.gradient([[1.0, 0.1, 0.1]])
    np.testing.assert_allclose(on_face, [[1, 0, 0]], atol=1e-12)


def sphere_mesh(rings: int) -> TriangleMesh:
    angles = np.linspace(0, np.pi, rings + 1)
    turns = np.linspace(0, 2 * np.pi, 2 * rings, endpoint=False)
    inner = [[np.sin(a) * np.cos(t), np.sin(a) * np.sin(t), np.cos(a)] for a in angles[1:-1] for t in turns]
    vertices = np.array([*inner, [0, 0, 1], [0, 0, -1]])
    count, top, bottom = len(turns), len(vertices) - 2, len(vertices) - 1
    triangles = []
    for ring in range(rings - 2):
        for turn in range(count):
            a, b = ring * count + turn, ring * count + (turn + 1) % count
            triangles += [(a, a + count, b), (b, a + count, b + count)]
    last = (rings - 2) * count
    for turn in range(count):
        triangles += [(top, turn, (turn + 1) % count), (bottom, last + (turn + 1) % count, last + turn)]
    return TriangleMesh(vertices, np.array(triangles))


def test_the_tree_search_agrees_with_a_search_of_all_triangles() -> None:
    mesh = sphere_mesh(12)
    assert mesh.is_closed()
    part = part_of_function(distance_to(mesh, "Mesh"), "d", BOUNDS, element=lg.f64)
    distances = part(POINTS)
    single = np.full(len(POINTS), np.inf)
    for triangle in range(len(mesh.triangles)):
        one = TriangleMesh(mesh.vertices, mesh.triangles[triangle : triangle + 1])
        if triangle % 40 == 0:
            value = part_of_function(distance_to(one, "UnsignedMesh"), "d", BOUNDS, element=lg.f64)(POINTS)
            assert (np.abs(distances) <= value + 1e-12).all()
            single = np.minimum(single, value)
    radius = np.linalg.norm(POINTS, axis=1)
    assert np.abs(distances - (radius - 1)).max() < 0.04
    np.testing.assert_array_equal(
        np.sign(distances[np.abs(radius - 1) > 0.05]), np.sign(radius - 1)[np.abs(radius - 1) > 0.05]
    )


def test_meshes_without_shared_vertices_have_a_sign() -> None:
    box = TriangleMesh.box(LOW, HIGH)
    loose = TriangleMesh(box.vertices[box.triangles].reshape(-1, 3), np.arange(36).reshape(12, 3))
    part = part_of_function(distance_to(loose, "Mesh"), "d", BOUNDS, element=lg.f64)
    np.testing.assert_allclose(part(POINTS), box_distance(POINTS), atol=1e-14)


def test_missing_meshes_and_meshes_without_area_are_rejected() -> None:
    assembly = distance_to(TriangleMesh.box(LOW, HIGH), "Mesh").unlink("d", "n.mesh").link("d", 5, "n.mesh")
    with pytest.raises(AssemblyError, match="there is no mesh with resource id 5"):
        convert(assembly, "d")
    flat = TriangleMesh(np.zeros((3, 3)), np.array([[0, 1, 2]]))
    with pytest.raises(AssemblyError, match="without area"):
        convert(distance_to(flat, "Mesh"), "d")


def to_beam(points: Any, a: Any, b: Any, radii: Any, caps: Any) -> Any:
    """The signed distance to a beam, from many points of the outline of its cross section."""
    height = np.linalg.norm(b - a)
    axial = (points - a) @ (b - a) / height
    radial = np.linalg.norm(points - a - axial[:, None] * (b - a) / height, axis=1)
    fraction = np.linspace(0, 1, 3001)
    outline = [(radii[0] + fraction * (radii[1] - radii[0]), fraction * height)]
    inside = (axial >= 0) & (axial <= height) & (radial < radii[0] + axial / height * (radii[1] - radii[0]))
    for end, (radius, cap) in enumerate(zip(radii, caps, strict=True)):
        overshoot = (axial - height) if end else -axial
        angle = fraction * np.pi / 2
        x, y = (
            (radius * np.cos(angle), radius * np.sin(angle))
            if cap == "hemisphere"
            else (fraction * radius, 0 * fraction)
        )
        outline.append((x, height + y if end else -y))
        inside |= (cap == "hemisphere") & (overshoot >= 0) & (np.hypot(radial, overshoot) < radius)
    x, y = np.concatenate(outline, axis=1)
    distance = np.array([np.hypot(x - p, y - q).min() for p, q in zip(radial, axial, strict=True)])
    result = np.where(inside, -distance, distance)
    for centre, radius, cap in zip((a, b), radii, caps, strict=True):
        result = np.minimum(result, np.linalg.norm(points - centre, axis=1) - radius) if cap == "sphere" else result
    return result


@pytest.mark.parametrize("caps", [("sphere", "sphere"), ("butt", "butt"), ("hemisphere", "butt")])
@pytest.mark.parametrize("radii", [(0.4, 0.1), (0.1, 0.4), (0.5, 0.0)])
def test_beams_are_frustums_with_caps(radii: Any, caps: Any) -> None:
    ends = np.array([[-0.6, -0.1, 0.2], [0.5, 0.3, -0.2]])
    lattice = BeamLattice(ends, np.array([[0, 1]]), np.array([radii]), caps=[caps])
    part = part_of_function(distance_to(lattice, "BeamLattice"), "d", BOUNDS, element=lg.f64)
    points = np.random.default_rng(0).uniform(-1, 1, (400, 3))
    expected = to_beam(points, ends[0], ends[1], radii, caps)
    assert (expected < 0).sum() > 5
    np.testing.assert_allclose(part(points), expected, atol=3e-4)
    np.testing.assert_allclose(np.linalg.norm(part.gradient(points), axis=1), 1.0, atol=1e-9)


@pytest.mark.parametrize("number", [1, 5, 60])
def test_the_nearest_of_many_beams_is_found_inside_and_outside(number: int) -> None:
    generator = np.random.default_rng(number)
    ends, radii = generator.uniform(-1, 1, (number, 2, 3)), generator.uniform(0, 0.25, (number, 2))
    caps = generator.choice(CAPS, (number, 2))
    beams = np.arange(2 * number).reshape(-1, 2)
    lattice = BeamLattice(ends.reshape(-1, 3), beams, radii, caps=caps, balls=[0, 1], ball_radii=[0.3, 0.1])
    part = part_of_function(distance_to(lattice, "BeamLattice"), "d", BOUNDS, element=lg.f64)
    single = [
        part_of_function(
            distance_to(BeamLattice(pair, np.array([[0, 1]]), pair_radii[None], caps=cap[None]), "BeamLattice"),
            "d", BOUNDS, element=lg.f64,
        )
        for pair, pair_radii, cap in zip(ends[:5], radii, caps, strict=False)
    ]  # fmt: skip
    points = generator.uniform(-1.2, 1.2, (60, 3))
    balls = [np.linalg.norm(points - ends[0, end], axis=1) - (0.3, 0.1)[end] for end in (0, 1)]
    nearest = np.min([*balls, *(beam_part(points) for beam_part in single)], axis=0)
    if number <= 5:
        np.testing.assert_allclose(part(points), nearest, atol=1e-12)
    else:
        beam_distances = [
            to_beam(points, pair[0], pair[1], pair_radii, cap)
            for pair, pair_radii, cap in zip(ends, radii, caps, strict=True)
        ]
        np.testing.assert_allclose(part(points), np.min([*balls, *beam_distances], axis=0), atol=3e-4)
    np.testing.assert_allclose(np.linalg.norm(part.gradient(points), axis=1), 1.0, atol=1e-9)


def test_short_beams_are_ignored() -> None:
    ends = np.array([[0.0, 0, 0], [1, 0, 0], [0, 0, 1e-5]])
    beams, radii = np.array([[0, 1], [0, 2]]), np.array([[0.1, 0.1], [0.5, 0.5]])
    part = part_of_function(distance_to(BeamLattice(ends, beams, radii), "BeamLattice"), "d", BOUNDS)
    assert part([0, 0, 0.3]) == pytest.approx(0.2, abs=1e-6)


def sampled(image: Any, points: Any, outputs: Any, **settings: Any) -> Any:
    assembly = Assembly().add_resource(image, id=1).add_image_function("image", 1, id=2, **settings)
    converted = convert(assembly, 2, outputs=outputs, element=lg.f64)
    is_mapped = [True, *[False] * len(converted.tables)]
    return lg.ir.compile(lg.ir.map_over(converted.function, is_mapped))(np.asarray(points, float), *converted.tables)


def red_of(image: Any, points: Any, **settings: Any) -> Any:
    return sampled(image, points, ("red",), **settings)


IMAGE = ImageStack(np.random.default_rng(2).random((2, 3, 4, 4), np.float32))


def voxel(row: int, column: int, sheet: int) -> Any:
    return IMAGE.samples[sheet, row, column].astype(float)


def test_nearest_samples_follow_the_specification() -> None:
    """Figure 2-3: on a border, the voxel with the lower index is used; rows count from the back."""
    points = [[1 / 8, 2 / 3, 0.0], [0.5, 0.5, 0.0], [0.99, 0.01, 0.99], [0.01, 0.99, 0.6]]
    outputs = ("color", "red", "green", "blue", "alpha")
    color, red, green, blue, alpha = sampled(IMAGE, points, outputs, filter="nearest", tile_styles=("clamp",) * 3)
    expected = np.stack([voxel(0, 0, 0), voxel(1, 1, 0), voxel(2, 3, 1), voxel(0, 0, 1)])
    np.testing.assert_allclose(color, expected[:, :3])
    np.testing.assert_allclose(np.stack([red, green, blue, alpha], -1), expected)


def test_linear_samples_interpolate_between_voxel_centres() -> None:
    centres = [[(c + 0.5) / 4, 1 - (r + 0.5) / 3, (s + 0.5) / 2] for s in range(2) for r in range(3) for c in range(4)]
    red = red_of(IMAGE, centres, filter="linear", tile_styles=("clamp",) * 3)
    np.testing.assert_allclose(
        red, [voxel(r, c, s)[0] for s in range(2) for r in range(3) for c in range(4)], atol=1e-12
    )
    between = [[1.25 / 4, 1 - 0.5 / 3, 0.25]]
    red = red_of(IMAGE, between, tile_styles=("clamp",) * 3)
    np.testing.assert_allclose(red, [0.25 * voxel(0, 0, 0)[0] + 0.75 * voxel(0, 1, 0)[0]], atol=1e-12)


@pytest.mark.parametrize("filter", ["linear", "nearest"])
def test_tile_styles_wrap_mirror_and_clamp(filter: str) -> None:
    inside = np.random.default_rng(5).uniform(0.02, 0.98, (50, 3))
    expected = red_of(IMAGE, inside, filter=filter)
    np.testing.assert_allclose(red_of(IMAGE, inside + np.array([2, -1, 5]), filter=filter), expected, atol=1e-9)
    mirrored = {"filter": filter, "tile_styles": ("mirror",) * 3}
    straight = red_of(IMAGE, inside, **mirrored)
    np.testing.assert_allclose(red_of(IMAGE, -inside, **mirrored), straight, atol=1e-9)
    clamped = {"filter": filter, "tile_styles": ("clamp",) * 3}
    edge = red_of(IMAGE, [[7.0, -3.0, 0.25]], **clamped)
    np.testing.assert_allclose(edge, [voxel(2, 3, 0)[0]], atol=1e-12)


def test_samples_are_scaled_before_the_offset() -> None:
    unscaled = red_of(IMAGE, [[0.3, 0.3, 0.3]])
    np.testing.assert_allclose(red_of(IMAGE, [[0.3, 0.3, 0.3]], scale=3.0, offset=-1.0), unscaled * 3 - 1)


def test_a_missing_image_is_rejected() -> None:
    with pytest.raises(AssemblyError, match="samples image 7, which does not exist"):
        convert(Assembly().add_image_function("image", 7), "image")


def test_box_domains_are_recognised() -> None:
    box = TriangleMesh.box((-1, -2, -3), (3, 2, 1))
    assert box.is_box()
    inverted = TriangleMesh(box.vertices, box.triangles[:, [0, 2, 1]])
    open_box = TriangleMesh(box.vertices, box.triangles[1:])
    dented = TriangleMesh(np.where(np.arange(8)[:, None] == 7, 0.5, box.vertices), box.triangles)
    assert not any(mesh.is_box() for mesh in (inverted, open_box, dented))
    ball = add_expression(Assembly(), "ball", "length(pos) - 9", {"pos": "vector"})
    results = []
    for domain in (box, dented, TriangleMesh(box.vertices, np.roll(box.triangles, 1, axis=1))):
        assembly = ball.add_resource(domain, id=8).add_resource(LevelSet(1, "shape", 8), id=9).build(9)
        (part,) = parts(assembly)
        results.append((len(part.arguments), part))
    assert [number > 0 for number, _ in results] == [False, True, False]
    points = np.random.default_rng(3).uniform(-5, 5, (500, 3))
    for domain, (_, part) in zip((box, dented), results, strict=False):
        converted = convert(distance_to(domain, "Mesh"), "d")
        is_mapped = (True, *[False] * len(converted.tables))
        by_triangles = lg.ir.compile(lg.ir.map_over(converted.function, is_mapped))(
            points.astype(np.float32), *converted.tables
        )
        ends = np.maximum(np.linalg.norm(points, axis=1) - 9, by_triangles)
        np.testing.assert_allclose(part(points), ends, atol=2e-6)
