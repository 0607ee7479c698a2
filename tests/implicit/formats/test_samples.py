"""Real parts: they load, evaluate, differentiate, draw, cut and mesh; a saved copy has the same values."""

import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import livegrad as lg
from livegrad.implicit.bodies.clipping import fit_bounds
from livegrad.implicit.bodies.level_sets import parts
from livegrad.implicit.bodies.rendering import render
from livegrad.implicit.bodies.slicing import draw_plane, slice_part
from livegrad.implicit.formats.png import read_png
from livegrad.implicit.formats.threemf import load_3mf, save_3mf
from livegrad.implicit.formats.vm import load_vm
from livegrad.implicit.meshing.meshing import mesh
from livegrad.implicit.nodes.lower_gradient import gradient_nodes, lower_function_gradient
from livegrad.implicit.nodes.node_graph import GraphFunction, ImageFunction
from livegrad.implicit.nodes.ports import PortType
from livegrad.implicit.nodes.resources import ImageStack, LevelSet
from livegrad.implicit.nodes.to_ir import convert
from livegrad.ir.walk import nodes_of
from livegrad.runtime.opencl import compile_function as compile_opencl
from livegrad.runtime.reference import evaluate
from tests.implicit.formats.own_part import SIZE, own_part

PLACES = [parent / "shared" / "samples" for parent in Path(__file__).resolve().parents]
FOLDER = next((place for place in PLACES if place.is_dir()), PLACES[0])
OWN = "a part of our own"
SIZES = {
    OWN: SIZE, "gyroid": (3, 31), "SphereInACage": (8, 62), "RadialRadiator": (22, 206), "3mf-implicit": (36, 506),
}  # fmt: skip

needs_samples = pytest.mark.skipif(not FOLDER.exists(), reason="the sample parts are not beside the repository")


@pytest.fixture(params=SIZES, scope="module")
def name(request: pytest.FixtureRequest) -> str:
    if request.param != OWN and not FOLDER.exists():
        pytest.skip("the sample parts are not beside the repository")
    return request.param


@pytest.fixture(scope="module")
def assembly(name: str, tmp_path_factory: pytest.TempPathFactory) -> Any:
    if name != OWN:
        return load_3mf(FOLDER / f"{name}.3mf")
    path = tmp_path_factory.mktemp("own") / "own.3mf"
    save_3mf(own_part(), path)
    return load_3mf(path)


@pytest.fixture(scope="module")
def part(assembly: Any) -> Any:
    (only,) = parts(assembly)
    return fit_bounds(only)


def points_in(part: Any, number: int) -> Any:
    return part.low + (part.high - part.low) * np.random.default_rng(4).random((number, 3))


def test_samples_load_whole(name: str, assembly: Any) -> None:
    nodes = sum(len(f.nodes) for f in assembly.functions.values() if isinstance(f, GraphFunction))
    assert (len(assembly.functions), nodes) == SIZES[name]
    assert not assembly.problems()


def test_a_saved_copy_is_equal(assembly: Any, tmp_path: Path) -> None:
    save_3mf(assembly, tmp_path / "copy.3mf")
    assert load_3mf(tmp_path / "copy.3mf") == assembly


def test_native_values_are_those_of_the_reference(assembly: Any, part: Any) -> None:
    level_set = next(r for r in assembly.resources.values() if hasattr(r, "channel"))
    ready = lower_function_gradient(assembly).assembly
    converted = convert(ready, level_set.function, outputs=[level_set.channel], element=lg.f64)
    points = points_in(part, 4)
    lifted = [True, *[False] * len(converted.tables)]
    native = lg.ir.compile(lg.ir.map_over(converted.function, lifted))(points, *converted.tables)
    reference = [evaluate(converted.function, point, *converted.tables) for point in points]
    np.testing.assert_allclose(native, reference, rtol=1e-10, atol=1e-10)


def test_exact_gradients_and_central_differences_agree(assembly: Any, part: Any) -> None:
    """To the order of the step squared, but for the few points that lie within a step of a crease."""
    (fine,) = parts(assembly, element=lg.f64)
    points = points_in(part, 2000)
    exact = fine.gradient(points)
    for step, most in ((1e-3, 1e-4), (1e-4, 1e-6)):
        moved = [(fine(points + step * axis) - fine(points - step * axis)) / (2 * step) for axis in np.eye(3)]
        error = np.abs(np.stack(moved, -1) - exact).max(-1)
        assert np.quantile(error, 0.97) < most


def test_a_gradient_node_by_steps_and_exactly_agree(assembly: Any, part: Any) -> None:
    """The same node on the part's own function, lowered both ways: the error goes with the square of the step."""
    level_set = next(r for r in assembly.resources.values() if isinstance(r, LevelSet))
    made = assembly.add_function("slope", {"pos": PortType.VECTOR, "h": PortType.SCALAR}, {"g": PortType.VECTOR})
    made = made.add_node(
        "slope", "FunctionGradient", "g", functionID=level_set.function, step="inputs.h", pos="inputs.pos",
        scalar_output=level_set.channel, vector_input="pos",
    ).link("slope", "g.gradient", "outputs.g")  # fmt: skip
    lowered = lower_function_gradient(made).assembly
    # What the part's own function has in it is lowered alike in both: only the node that is looked at differs.
    inner = lower_function_gradient(assembly).assembly
    exact_node = made.graph("slope")
    points = points_in(part, 1000)
    found = []
    for ready, exact in ((lowered, False), (inner.with_function(exact_node), True)):
        converted = convert(ready, "slope", exact=exact, element=lg.f64)
        run = lg.ir.compile(lg.ir.map_over(converted.function, (True, *[False] * (1 + len(converted.tables)))))
        found.append([run(points, step, *converted.tables) for step in (1e-2, 1e-3)])
    (coarse, fine), (exact_gradient, _) = found
    errors = [np.quantile(np.abs(steps - exact_gradient).max(-1), 0.9) for steps in (coarse, fine)]
    assert errors[1] < 1e-4 * max(1.0, np.abs(exact_gradient).max())
    assert errors[1] < 0.03 * errors[0] + 1e-9


def test_lowering_leaves_parts_without_gradients_alone(name: str, assembly: Any) -> None:
    lowered = lower_function_gradient(assembly).assembly
    assert (lowered == assembly) is (name != OWN)
    assert not list(gradient_nodes(lowered))


def test_samples_are_drawn_cut_and_meshed(part: Any) -> None:
    picture = render(part, size=(48, 48))
    assert 0.05 < (picture != picture[0, 0]).any(-1).mean() < 0.98
    extent = float((part.high - part.low).max())
    cut = slice_part(part, float(part.low[2] + 0.4 * (part.high[2] - part.low[2])), feature_size=extent / 100)
    assert cut.area() > 0
    found = mesh(part, feature_size=extent / 24)
    assert len(found.triangles) > 100
    assert found.is_closed()


def test_meshes_are_within_half_a_feature_of_the_surface(part: Any) -> None:
    """Wherever the sign changes on a straight line of that length, the surface is no further off."""
    size = float((part.high - part.low).max()) / 20
    found = mesh(part, feature_size=size)
    points = np.concatenate([found.vertices, found.vertices[found.triangles].mean(1)])
    generator = np.random.default_rng(0)
    points = points[generator.choice(len(points), 2000, replace=False)]
    inside, near = part(points) < 0, np.zeros(2000, bool)
    ways = [part.normal(points), *generator.normal(size=(40, 3))]
    for way in ways:
        unit = way / np.maximum(np.linalg.norm(way, axis=-1, keepdims=True), 1e-12)
        for share in np.linspace(-0.5, 0.5, 20):
            near |= (part(points + unit * share * size) < 0) != inside
    assert near.all()


@pytest.mark.opencl
def test_opencl_values_are_those_of_native_code(name: str, assembly: Any, part: Any) -> None:
    # Our own divides by differences of nearly equal numbers, which single precision is too coarse for.
    element, tolerance = (lg.f64, 1e-9) if name == OWN else (lg.f32, 1e-5)
    (computed,) = parts(assembly, element=element)
    points = points_in(part, 500).astype(element.dtype)
    lifted = (True, *[False] * len(computed.arguments))
    native = computed(points)
    found = compile_opencl(computed.function, lifted)(points, *computed.arguments)
    np.testing.assert_allclose(found, native, rtol=tolerance, atol=tolerance * np.abs(native).max())


@needs_samples
def test_the_tape_loads_whole() -> None:
    assert len(nodes_of(load_vm(FOLDER / "prospero.vm").function)) > 7000


@needs_samples
def test_the_tape_draws_the_same_with_and_without_pruning(tmp_path: Path) -> None:
    """Its first letters: to compile all of it, and its bounds, takes a benchmark's time."""
    lines = (FOLDER / "prospero.vm").read_text().splitlines()[:674]
    (tmp_path / "start.vm").write_text("\n".join(lines))
    tape = load_vm(tmp_path / "start.vm")
    pruned = draw_plane(tape, size=512)
    np.testing.assert_array_equal(pruned, draw_plane(tape, size=512, pruned=False))
    assert 0 < pruned.mean() < 1


@needs_samples
def test_a_twisted_part_turns_as_in_the_thumbnail_of_its_own_file() -> None:
    """The grooves of the vase run downwards to the right in both pictures, not to the left."""
    path = FOLDER / "heartvase_001.3mf"
    with zipfile.ZipFile(path) as archive:
        thumbnail, _ = read_png(archive.read("Metadata/thumbnail.png"))
    (vase,) = parts(load_3mf(path))
    picture = render(vase, size=(128, 128))
    # The middle of the vase, without its outline.
    leanings = [leaning(thumbnail[70:170, 95:160]), leaning(picture[38:92, 48:80])]
    assert max(leanings) < -0.1


@needs_samples
def test_an_image_of_one_sheet_is_that_sheet_and_not_mixed_with_its_last_pixel() -> None:
    """The thumbnail of the file has letters, drawn by a program that takes half of the sheet and half of that pixel."""
    assembly = load_3mf(FOLDER / "3mf-implicit.3mf")
    (sampled,) = (f for f in assembly.functions.values() if isinstance(f, ImageFunction))
    (image,) = (r for r in assembly.resources.values() if isinstance(r, ImageStack))
    with zipfile.ZipFile(FOLDER / "3mf-implicit.3mf") as archive:
        pixels, depth = read_png(archive.read("volume/Image_layout_layer_0.png"))
    rows, columns, _ = pixels.shape
    row, column = np.random.default_rng(0).integers((rows, columns), size=(50, 2)).T
    centres = np.stack([(column + 0.5) / columns, 1 - (row + 0.5) / rows, np.full(50, 0.5)], -1)
    red = lg.implicit.part_of_function(assembly, sampled.id, ((0, 0, 0), (1, 1, 1)), channel="red")
    np.testing.assert_allclose(red(centres), pixels[row, column, 0] / (2**depth - 1), atol=1e-4)

    mixed = replace(sampled, scale=0.5, offset=0.5 * float(image.samples[-1, 0, -1, 0]))
    (letters,) = parts(assembly.with_function(mixed))
    cut = slice_part(fit_bounds(letters), 20.0, feature_size=0.5)
    outlines = [c for c in cut.contours if signed_area(c) > 20]
    widths = [float(np.ptp(outline[:, 0])) for outline in sorted(outlines, key=lambda outline: outline[:, 0].min())]
    assert widths == pytest.approx([10, 25, 30, 25], abs=5)  # . 3 M F


def signed_area(contour: Any) -> float:
    """Positive for an outline, negative for a hole."""
    (x, y), (next_x, next_y) = contour.T, np.roll(contour, -1, axis=0).T
    return float((x * next_y - next_x * y).sum() / 2)


def leaning(pixels: Any) -> float:
    """How far brightness changes along one diagonal rather than the other, from -1 to 1."""
    brightness = pixels[..., :3].astype(float).mean(-1)
    down, right = np.gradient(brightness)
    return float(2 * (down * right).sum() / (down**2 + right**2).sum())
