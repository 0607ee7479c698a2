"""Parts: evaluation, derivatives, slices, pictures and meshes, with work proportional to the surface."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

import livegrad as lg
from livegrad.implicit.bodies.batches import run_in_batches
from livegrad.implicit.bodies.clipping import fit_bounds
from livegrad.implicit.bodies.level_sets import parts
from livegrad.implicit.bodies.part import Part, part_of_function
from livegrad.implicit.bodies.pruning import CoordinateSystem, IntervalBounds, Lattice, find_blocks
from livegrad.implicit.bodies.rendering import render
from livegrad.implicit.bodies.slicing import draw_plane, slice_part
from livegrad.implicit.formats.mesh_files import load_stl, save_stl, save_svg
from livegrad.implicit.meshing.meshing import mesh
from livegrad.implicit.nodes.assembly import Assembly
from livegrad.implicit.nodes.errors import AssemblyError
from livegrad.implicit.nodes.expression import add_expression
from livegrad.implicit.nodes.ports import PortType
from livegrad.implicit.nodes.resources import LevelSet, TriangleMesh, VolumeChannel, VolumeData
from tests.implicit.gradient_graphs import with_gradient

WIDE = ((-2, -2, -2), (2, 2, 2))
BALL = "length(pos) - 1"
BOX = "q = abs(pos) - vector(1, 0.7, 0.5); max(q.x, max(q.y, q.z))"


def shape(text: str, bounds: Any = WIDE, **settings: Any) -> Part:
    return part_of_function(add_expression(Assembly(), "shape", text, {"pos": "vector"}), "shape", bounds, **settings)


def volume(surface: TriangleMesh) -> float:
    a, b, c = surface.vertices[surface.triangles].transpose(1, 0, 2)
    return float(np.einsum("ij,ij->", a, np.cross(b, c)) / 6)


def test_parts_evaluate_points_of_any_shape() -> None:
    part = shape("pos.x * pos.y + sin(pos.z)", element=lg.f64)
    points = np.random.default_rng(0).uniform(-1, 1, (4, 5, 3))
    x, y, z = np.moveaxis(points, -1, 0)
    np.testing.assert_allclose(part(points), x * y + np.sin(z), rtol=1e-14)
    np.testing.assert_allclose(part.gradient(points), np.stack([y, x, np.cos(z)], -1), rtol=1e-14)
    np.testing.assert_allclose(np.linalg.norm(part.normal(points), axis=-1), 1.0, rtol=1e-12)
    assert part(np.empty((0, 3))).shape == (0,)
    with pytest.raises(AssemblyError, match="not points"):
        part(np.zeros((3, 2)))


def test_parameters_change_without_compiling() -> None:
    assembly = add_expression(Assembly(), "ball", "length(pos) - radius * 2", {"pos": "vector", "radius": "scalar"})
    factor = next(n.identifier for n in assembly.graph("ball").nodes.values() if n.type.name == "Constant")
    part = part_of_function(assembly, "ball", WIDE, parameters=[factor]).with_parameters(radius=0.5)
    assert part.parameters == {"radius": 0.5, factor: 2.0}
    assert part([0, 0, 0]) == -1.0
    changed = part.with_parameters(**{"radius": 1.0, factor: 3.0})
    assert changed.function is part.function
    assert changed([0, 0, 0]) == -3.0
    with pytest.raises(AssemblyError, match="has no parameter `size`"):
        part.with_parameters(size=1)


def test_gradient_nodes_are_lowered_or_exact_in_a_part() -> None:
    assembly = with_gradient(0.25).add_input("main", "unused", PortType.SCALAR)
    points = np.random.default_rng(0).uniform(-1, 1, (20, 3))
    by_step = part_of_function(assembly, "main", WIDE, channel="magnitude", element=lg.f64)(points)
    exact = part_of_function(assembly, "main", WIDE, channel="magnitude", element=lg.f64, exact=True)(points)
    assert 1e-4 < np.abs(by_step - exact).max() < 0.5


@pytest.mark.parametrize("sharp", [False, True])
def test_meshes_are_closed_and_as_large_as_the_part(sharp: bool) -> None:
    ball = mesh(shape(BALL), feature_size=0.1, sharp=sharp)
    assert ball.is_closed()
    assert volume(ball) == pytest.approx(4 / 3 * np.pi, rel=5e-3)
    assert np.abs(np.linalg.norm(ball.vertices, axis=1) - 1).max() < 1e-3


def test_meshes_keep_sharp_edges() -> None:
    blunt, sharp = (mesh(shape(BOX), feature_size=0.2, sharp=flag) for flag in (False, True))
    assert sharp.is_closed()
    assert volume(sharp) == pytest.approx(2.8, rel=1e-6)
    assert volume(blunt) < 2.795
    low, high = sharp.bounds()
    np.testing.assert_allclose(high, [1, 0.7, 0.5], atol=1e-6)
    np.testing.assert_allclose(low, [-1, -0.7, -0.5], atol=1e-6)
    assert np.abs(sharp.vertices - np.array([1, 0.7, 0.5])).max(-1).min() < 1e-5


def test_every_vertex_is_within_half_a_feature_of_the_surface() -> None:
    part = shape(f"max({BALL}, 0.4 - length(pos - vector(0.9, 0, 0)))")
    surface = mesh(part, feature_size=0.08)
    assert surface.is_closed()
    assert np.abs(part(surface.vertices)).max() < 0.04


def test_an_empty_part_has_an_empty_mesh() -> None:
    assert not len(mesh(shape("length(pos) + 1"), feature_size=0.5).triangles)
    assert not slice_part(shape("length(pos) + 1"), 0.0).contours
    with pytest.raises(AssemblyError, match="invalid feature size"):
        mesh(shape(BALL), feature_size=0.0)


def test_work_grows_with_the_surface_not_with_the_volume() -> None:
    part = shape(BALL)
    counts = []
    for cells in (64, 128, 256):
        lattice = Lattice(part.low, (part.high - part.low) / cells, (cells,) * 3, 8)
        blocks = find_blocks(IntervalBounds(part.function, part.arguments, np.float32), lattice)
        counts.append((len(blocks.crossed), blocks.examined))
    for few, many in pairwise(counts):
        assert 3 < many[0] / few[0] < 5
        assert many[1] / few[1] < 5


def test_no_block_with_a_surface_is_pruned() -> None:
    part = shape(f"min({BALL}, sin(pos.x * 7) * sin(pos.y * 5) * 0.3 + abs(pos.z) - 0.1)")
    lattice = Lattice(part.low, (part.high - part.low) / 32, (32, 32, 32), 4)
    blocks = find_blocks(IntervalBounds(part.function, part.arguments, np.float32), lattice)
    grid = np.stack(np.meshgrid(*[np.arange(33)] * 3, indexing="ij"), -1)
    inside = part(lattice.origin + grid * lattice.cell) < 0
    crossed = {tuple(block) for block in blocks.crossed.tolist()}
    interior = {
        tuple(first + step) for boxes, side in blocks.inside for first in boxes for step in np.ndindex(side, side, side)
    }
    for block in np.ndindex(8, 8, 8):
        a, b, c = (slice(4 * i, 4 * i + 5) for i in block)
        corners_inside = inside[a, b, c]
        if corners_inside.any() and not corners_inside.all():
            assert block in crossed
        elif corners_inside.all():
            assert block in crossed or block in interior


def test_fitted_bounds_are_tight() -> None:
    part = fit_bounds(shape("length(pos - vector(3, 4, 5)) - 0.5", ((-100,) * 3, (100,) * 3)))
    np.testing.assert_allclose(part.low, [2.5, 3.5, 4.5], atol=0.5)
    np.testing.assert_allclose(part.high, [3.5, 4.5, 5.5], atol=0.5)
    assert (part.low <= [2.5, 3.5, 4.5]).all()
    assert (part.high >= [3.5, 4.5, 5.5]).all()


def test_slices_are_closed_contours_with_holes() -> None:
    part = shape("d = length(vector(pos.x, pos.y, 0)); max(abs(pos.z) - 1, max(d - 1.5, 0.5 - d))")
    cut = slice_part(part, 0.25, feature_size=0.05)
    assert len(cut.contours) == 2
    assert cut.area() == pytest.approx(np.pi * (1.5**2 - 0.5**2), rel=1e-3)
    for contour in cut.contours:
        steps = np.linalg.norm(contour - np.roll(contour, 1, axis=0), axis=1)
        assert steps.max() < 0.1
    assert not slice_part(part, 1.5).contours
    with pytest.raises(AssemblyError, match="invalid height"):
        slice_part(part, float("nan"))


def test_pruning_does_not_change_a_picture() -> None:
    part = shape("min(length(pos) - 0.7, max(abs(pos.x + pos.y * 0.3) - 0.05, abs(pos.y) - 1.7))")
    for size in (37, 256):
        np.testing.assert_array_equal(draw_plane(part, size=size), draw_plane(part, size=size, pruned=False))


def test_pictures_show_the_part_from_the_view_direction() -> None:
    white = (1.0, 1.0, 1.0)
    part = shape("max(length(pos) - 1, pos.z)")
    from_above = render(part, size=(64, 64), direction=(0, 0, -1), background=white)
    is_part = (from_above != 1.0).any(-1)
    assert is_part.mean() == pytest.approx(np.pi / 4 / 1.05**2, abs=0.06)
    lit = from_above[28:36, 28:36]
    assert np.ptp(lit, axis=(0, 1)).max() < 0.02  # a flat face has one shade
    with pytest.raises(AssemblyError, match="not a direction"):
        render(part, direction=(0, 0, 0))
    with pytest.raises(AssemblyError, match="invalid picture size"):
        render(part, size=(0, 5))


def level_set(**settings: Any) -> Assembly:
    assembly = add_expression(Assembly(), "ball", BALL, {"pos": "vector"}, id=1)
    assembly = add_expression(assembly, "paint", "vector(pos.x, 2, 0.5)", {"pos": "vector"}, output="color", id=2)
    assembly = assembly.add_resource(TriangleMesh.box((-1, -1, 0), (3, 3, 3)), id=3)
    assembly = assembly.add_resource(VolumeData((VolumeChannel("color", 2, "color"),)), id=4)
    assembly = assembly.add_resource(LevelSet(1, "shape", 3, volume_data=4, **settings), id=5)
    return assembly.build(5)


@pytest.mark.parametrize("box_only", [False, True])
def test_a_level_set_ends_where_its_domain_does(box_only: bool) -> None:
    (part,) = parts(level_set(box_only=box_only))
    assert part([0, 0, 0.5]) == pytest.approx(-0.5)
    assert part([0, 0, -0.5]) == pytest.approx(0.5)
    assert part([0, 0, 0.1]) == pytest.approx(-0.1, abs=1e-6)
    surface = mesh(part, feature_size=0.1)
    assert surface.is_closed()
    assert surface.volume() == pytest.approx(2 / 3 * np.pi, rel=1e-2)


def test_transforms_of_level_sets_and_items_compose() -> None:
    """A level set transforms object to function coordinates, an item transforms object to build coordinates."""
    assembly = level_set(box_only=True, transform=(2.0, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, -1))
    placed = Assembly(assembly.functions, assembly.resources).build(
        5, transform=(1, 0, 0, 0, 1, 0, 0, 0, 1, 10, 20, 30)
    )
    (part,) = parts(placed)
    np.testing.assert_allclose(part.low, [9, 19, 30])
    assert part([10, 20, 30.5]) == pytest.approx(-0.5)
    assert part([10.25, 20, 30.5]) == pytest.approx(-0.5)
    assert part([10.25, 20, 30.75]) == pytest.approx(np.hypot(0.5, 0.5) - 1, abs=1e-6)


def test_linear_colours_are_encoded_in_pictures() -> None:
    """A part with a linear colour renders like a part painted with the sRGB encoding of that colour."""
    assembly = add_expression(
        level_set(), "paint", "vector(0.01 + 0 * pos.x, 0.5, 1)", {"pos": "vector"}, output="color", id=9
    )
    assembly = replace(assembly, resources={**assembly.resources, 4: VolumeData((VolumeChannel("color", 9, "color"),))})
    (coloured,) = parts(assembly)
    (uncoloured,) = parts(replace(assembly, resources={**assembly.resources, 5: LevelSet(1, "shape", 3)}))
    expected = render(uncoloured, size=(32, 32), color=(0.0998528, 0.7353569, 1.0))
    np.testing.assert_allclose(render(coloured, size=(32, 32)), expected, atol=1e-6)


def test_volumes_of_parts_and_meshes_are_correct() -> None:
    part = shape(BALL)
    surface = mesh(part, feature_size=0.05)
    assert part.volume() == pytest.approx(4 / 3 * np.pi, rel=1e-3)
    assert surface.volume() == pytest.approx(volume(surface), rel=1e-12)
    inside_out = TriangleMesh(surface.vertices + 1e6, surface.triangles[:, ::-1])
    assert inside_out.volume() == pytest.approx(-surface.volume(), rel=1e-6)
    assert shape(BALL + " + 5").volume() == 0.0


def test_colours_are_clamped() -> None:
    (part,) = parts(level_set())
    colors = part.colors([[0.25, 0, 0], [-1, 0, 0]])
    assert colors is not None
    np.testing.assert_allclose(colors, [[0.25, 1, 0.5], [0, 1, 0.5]])
    assert shape(BALL).colors([0, 0, 0]) is None


def test_undefined_values_take_the_fallback() -> None:
    assembly = add_expression(Assembly(), "root", "sqrt(pos.x) - 1", {"pos": "vector"}, id=1)
    assembly = assembly.add_resource(TriangleMesh.box((-1, -1, -1), (1, 1, 1)), id=2)
    assembly = assembly.add_resource(LevelSet(1, "shape", 2, True, fallback=-0.25), id=3).build(3)
    (part,) = parts(assembly)
    assert part([-0.5, 0, 0]) == pytest.approx(-0.25)
    assert part([0.25, 0, 0]) == pytest.approx(-0.5)


def test_meshes_and_slices_become_files(tmp_path: Any) -> None:
    ball = mesh(shape(BALL), feature_size=0.2)
    save_stl(ball, tmp_path / "ball.stl")
    read = load_stl(tmp_path / "ball.stl")
    assert read.is_closed()
    assert volume(read) == pytest.approx(volume(ball), rel=1e-5)
    save_svg(slice_part(shape(BALL), 0.0), tmp_path / "cut.svg")
    text = (tmp_path / "cut.svg").read_text()
    assert text.count("M") == 1
    assert text.count("Z") == 1


def test_progress_is_reported() -> None:
    calls: list[tuple[str, float]] = []
    mesh(shape(BALL), feature_size=0.5, progress=lambda stage, fraction: calls.append((stage, fraction)))
    assert calls[0] == ("compiling", 0.0)
    assert calls[-1] == ("done", 1.0)
    assert [fraction for _, fraction in calls] == sorted(fraction for _, fraction in calls)


def test_functions_with_names_of_distances_are_not_bounded_as_distances() -> None:
    """Only registered distances are bounded as 1-Lipschitz; a steep field must not be."""
    assembly = lg.implicit.add_expression(
        lg.Assembly(), "distance_to_waves", "sin(9 * pos.x) * 4 + pos.z", {"pos": "vector"}
    )
    assembly = lg.implicit.add_expression(assembly, "distance_to_signed_distance", "pos.y * 40", {"pos": "vector"})
    assembly = assembly.add_function(
        "both", {"pos": lg.implicit.PortType.VECTOR}, {"shape": lg.implicit.PortType.SCALAR}
    )
    assembly = assembly.add_node("both", "FunctionCall", "waves", functionID=1, pos="inputs.pos")
    assembly = assembly.add_node("both", "FunctionCall", "steep", functionID=2, pos="inputs.pos")
    assembly = assembly.add_node("both", "Max", "max", A="waves.shape", B="steep.shape").link(
        "both", "max.result", "outputs.shape"
    )
    part = lg.implicit.part_of_function(assembly, "both", ((-1, -1, -1), (1, 1, 1)))
    np.testing.assert_array_equal(draw_plane(part, size=64), draw_plane(part, size=64, pruned=False))


def test_fields_are_clipped_at_the_bounds() -> None:
    """The mesh is closed at the bounds, with sharp edges; slices and pictures end there too."""
    wall = shape("abs(pos.x) - 1")
    surface = mesh(wall, feature_size=0.3)
    assert surface.is_closed()
    assert surface.volume() == pytest.approx(2 * 4 * 4, rel=1e-5)
    assert lg.slice(wall, 0.5).area() == pytest.approx(2 * 4, rel=1e-4)
    assert lg.slice(wall, 2.5).contours == ()
    waves = mesh(shape("sin(pos.x * 3) * sin(pos.y * 3) + sin(pos.z * 3)"), feature_size=0.3)
    assert waves.is_closed()
    assert np.abs(waves.vertices).max() <= 2 + 0.15 / 4  # a quarter of a cell: the error of sharpening
    everywhere = mesh(shape("pos.x * 0 - 1"), feature_size=0.5)
    assert volume(everywhere) == pytest.approx(4**3, rel=1e-5)


def test_nan_is_outside() -> None:
    slab = shape("sqrt(pos.x) - 0.5")
    surface = mesh(slab, feature_size=0.2)
    assert surface.is_closed()
    assert surface.volume() == pytest.approx(0.25 * 16, rel=0.02)
    assert lg.slice(slab, 0.1).area() == pytest.approx(0.25 * 4, rel=0.02)
    assert np.isfinite(lg.render(slab, size=(20, 20))).all()


@pytest.mark.parametrize("size", [(0, 4), (3.5, 2), "x", (1, 2, 3), (1 << 20, 1)])
def test_invalid_picture_sizes_are_rejected(size: Any) -> None:
    with pytest.raises(AssemblyError, match="invalid picture size"):
        lg.render(shape("length(pos) - 1"), size=size)


def test_oversampled_pixels_are_means_of_a_larger_picture() -> None:
    ball = shape("length(pos) - 1")
    fine = lg.render(ball, size=(40, 30))
    coarse = lg.render(ball, size=(20, 15), oversample=2)
    np.testing.assert_allclose(coarse, fine.reshape(15, 2, 20, 2, 3).mean((1, 3)))
    with pytest.raises(AssemblyError, match="oversample 0"):
        lg.render(ball, oversample=0)


def test_invalid_points_and_feature_sizes_are_rejected() -> None:
    ball = shape("length(pos) - 1")
    with pytest.raises(AssemblyError, match="not points"):
        ball("here")
    with pytest.raises(AssemblyError, match="invalid feature size"):
        mesh(ball, feature_size="small")  # type: ignore[arg-type]


def test_meshes_are_manifold_at_every_vertex() -> None:
    """With SciPy: each edge joins two triangles, and the triangles around a vertex form one fan."""
    waves = shape("max(sin(pos.x * 3) * sin(pos.y * 3) + sin(pos.z * 3), length(pos) - 1.9)")
    surface = mesh(waves, feature_size=0.3)
    rows = np.repeat(np.arange(len(surface.triangles)), 3)
    ends = np.stack([surface.triangles, np.roll(surface.triangles, -1, 1)], -1).reshape(-1, 2)
    edge_index = {tuple(edge): number for number, edge in enumerate(ends.tolist())}
    assert len(edge_index) == len(ends)
    mates = np.array([edge_index[b, a] for a, b in ends.tolist()])
    # Corner 3 * t + k is where edge k of triangle t starts; the same vertex is where the mate's edge ends.
    next_corner = 3 * rows[mates] + (mates % 3 + 1) % 3
    links = csr_array((np.ones(len(ends)), (np.arange(len(ends)), next_corner)), shape=(len(ends), len(ends)))
    fans, _ = connected_components(links, directed=False)
    assert fans == len(np.unique(surface.triangles))


def test_boxes_of_a_view_contain_its_points() -> None:
    generator = np.random.default_rng(0)
    for size in (1e-3, 1.0, 1e4):
        axes = np.linalg.qr(generator.normal(size=(3, 3)))[0]
        view = CoordinateSystem(axes, generator.normal(size=3) * size)
        low = generator.normal(size=(3, 200)) * size
        high = low + generator.uniform(0, size, (3, 200))
        high[:, :20] = low[:, :20]
        inner = low + (high - low) * generator.random((3, 200))
        for positions in (low, high, inner):
            points = view.points(list(positions))
            np.testing.assert_allclose(
                np.stack(points, -1), positions.T @ axes + view.centre, rtol=1e-12, atol=1e-12 * size
            )
            sides = view.boxes([side for pair in zip(low, high, strict=True) for side in pair])
            for coordinate, lower, upper in zip(points, sides[::2], sides[1::2], strict=True):
                assert ((lower <= coordinate) & (coordinate <= upper)).all()
        ray = view.boxes([low[0], low[0], low[1], low[1], low[2], high[2]])
        length = np.stack([upper - lower for lower, upper in zip(ray[::2], ray[1::2], strict=True)], -1)
        np.testing.assert_allclose(length, np.abs(axes[2]) * (high[2] - low[2])[:, None], atol=1e-12 * size)


def test_batches_have_four_lengths_and_little_padding() -> None:
    """A compiled function makes a plan for each new length."""
    lengths: set[int] = set()
    generator = np.random.default_rng(0)
    for count in (0, 1, 511, 512, 513, 4095, 4097, *map(int, 2 ** generator.uniform(0, 19, 200))):
        calls: list[int] = []

        def run(x: Any, factor: float, calls: list[int] = calls) -> Any:
            calls.append(len(x))
            return x * factor

        array = generator.random(count)
        np.testing.assert_array_equal(run_in_batches(run, [array], [2.0]), array * 2.0)
        lengths.update(calls)
        assert sum(calls) - count < 2048
        assert len(calls) <= count // (1 << 17) + 18
    assert len(lengths) <= 4
