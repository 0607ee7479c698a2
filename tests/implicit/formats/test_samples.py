"""Sample parts: loading, evaluation, derivatives, pictures, slices and meshes; saved copies are equal."""

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
from tests.implicit.formats.synthetic_part import SIZE, synthetic_part

FOLDERS = [parent / "shared" / "samples" for parent in Path(__file__).resolve().parents]
FOLDER = next((place for place in FOLDERS if place.is_dir()), FOLDERS[0])
SYNTHETIC = "a synthetic part"
SIZES = {
    SYNTHETIC: SIZE, "gyroid": (3, 31), "SphereInACage": (8, 62), "RadialRadiator": (22, 206),
    "3mf-implicit": (36, 506),
}  # fmt: skip

needs_samples = pytest.mark.skipif(not FOLDER.exists(), reason="the sample parts are not beside the repository")


@pytest.fixture(params=SIZES, scope="module")
def name(request: pytest.FixtureRequest) -> str:
    if request.param != SYNTHETIC and not FOLDER.exists():
        pytest.skip("the sample parts are not beside the repository")
    return request.param


@pytest.fixture(scope="module")
def assembly(name: str, tmp_path_factory: pytest.TempPathFactory) -> Any:
    if name != SYNTHETIC:
        return load_3mf(FOLDER / f"{name}.3mf")
    path = tmp_path_factory.mktemp("synthetic") / "synthetic.3mf"
    save_3mf(synthetic_part(), path)
    return load_3mf(path)


@pytest.fixture(scope="module")
def part(assembly: Any) -> Any:
    (only,) = parts(assembly)
    return fit_bounds(only)


def points_in(part: Any, number: int) -> Any:
    return part.low + (part.high - part.low) * np.random.default_rng(4).random((number, 3))


def test_samples_load_completely(name: str, assembly: Any) -> None:
    nodes = sum(len(f.nodes) for f in assembly.functions.values() if isinstance(f, GraphFunction))
    assert (len(assembly.functions), nodes) == SIZES[name]
    assert not assembly.problems()


def test_a_saved_copy_is_equal(assembly: Any, tmp_path: Path) -> None:
    save_3mf(assembly, tmp_path / "copy.3mf")
    assert load_3mf(tmp_path / "copy.3mf") == assembly


def test_native_code_agrees_with_the_reference(assembly: Any, part: Any) -> None:
    level_set = next(r for r in assembly.resources.values() if hasattr(r, "channel"))
    lowered = lower_function_gradient(assembly).assembly
    converted = convert(lowered, level_set.function, outputs=[level_set.channel], element=lg.f64)
    points = points_in(part, 4)
    is_mapped = [True, *[False] * len(converted.tables)]
    native = lg.ir.compile(lg.ir.map_over(converted.function, is_mapped))(points, *converted.tables)
    reference = [evaluate(converted.function, point, *converted.tables) for point in points]
    np.testing.assert_allclose(native, reference, rtol=1e-10, atol=1e-10)


def test_exact_gradients_and_central_differences_agree(assembly: Any, part: Any) -> None:
    """To second order in the step, except for points within a step of a crease."""
    (fine,) = parts(assembly, element=lg.f64)
    points = points_in(part, 2000)
    exact = fine.gradient(points)
    for step, tolerance in ((1e-3, 1e-4), (1e-4, 1e-6)):
        differences = [(fine(points + step * axis) - fine(points - step * axis)) / (2 * step) for axis in np.eye(3)]
        error = np.abs(np.stack(differences, -1) - exact).max(-1)
        assert np.quantile(error, 0.97) < tolerance


def test_a_gradient_node_converges_to_its_exact_form(assembly: Any, part: Any) -> None:
    """The same gradient node, lowered in both ways: the error is proportional to the squared step."""
    level_set = next(r for r in assembly.resources.values() if isinstance(r, LevelSet))
    extended = assembly.add_function("slope", {"pos": PortType.VECTOR, "h": PortType.SCALAR}, {"g": PortType.VECTOR})
    extended = extended.add_node(
        "slope", "FunctionGradient", "g", functionID=level_set.function, step="inputs.h", pos="inputs.pos",
        scalar_output=level_set.channel, vector_input="pos",
    ).link("slope", "g.gradient", "outputs.g")  # fmt: skip
    lowered = lower_function_gradient(extended).assembly
    # Gradient nodes of the function of the part are lowered alike: only the added node differs.
    inner = lower_function_gradient(assembly).assembly
    exact_node = extended.graph("slope")
    points = points_in(part, 1000)
    gradients = []
    for variant, exact in ((lowered, False), (inner.with_function(exact_node), True)):
        converted = convert(variant, "slope", exact=exact, element=lg.f64)
        run = lg.ir.compile(lg.ir.map_over(converted.function, (True, *[False] * (1 + len(converted.tables)))))
        gradients.append([run(points, step, *converted.tables) for step in (1e-2, 1e-3)])
    (coarse, fine), (exact_gradient, _) = gradients
    errors = [np.quantile(np.abs(steps - exact_gradient).max(-1), 0.9) for steps in (coarse, fine)]
    assert errors[1] < 1e-4 * max(1.0, np.abs(exact_gradient).max())
    assert errors[1] < 0.03 * errors[0] + 1e-9


def test_lowering_does_not_change_parts_without_gradients(name: str, assembly: Any) -> None:
    lowered = lower_function_gradient(assembly).assembly
    assert (lowered == assembly) is (name != SYNTHETIC)
    assert not list(gradient_nodes(lowered))


def test_samples_render_slice_and_mesh(part: Any) -> None:
    picture = render(part, size=(48, 48))
    assert 0.05 < (picture != picture[0, 0]).any(-1).mean() < 0.98
    extent = float((part.high - part.low).max())
    cut = slice_part(part, float(part.low[2] + 0.4 * (part.high[2] - part.low[2])), feature_size=extent / 100)
    assert cut.area() > 0
    surface = mesh(part, feature_size=extent / 24)
    assert len(surface.triangles) > 100
    assert surface.is_closed()


def test_meshes_are_within_half_a_feature_of_the_surface(part: Any) -> None:
    """If the sign changes on a segment of that length, the surface is within it."""
    size = float((part.high - part.low).max()) / 20
    surface = mesh(part, feature_size=size)
    points = np.concatenate([surface.vertices, surface.vertices[surface.triangles].mean(1)])
    generator = np.random.default_rng(0)
    points = points[generator.choice(len(points), 2000, replace=False)]
    inside, is_near = part(points) < 0, np.zeros(2000, bool)
    directions = [part.normal(points), *generator.normal(size=(40, 3))]
    for direction in directions:
        unit = direction / np.maximum(np.linalg.norm(direction, axis=-1, keepdims=True), 1e-12)
        for fraction in np.linspace(-0.5, 0.5, 20):
            is_near |= (part(points + unit * fraction * size) < 0) != inside
    assert is_near.all()


@pytest.mark.opencl
def test_opencl_agrees_with_native_code(name: str, assembly: Any, part: Any) -> None:
    # The synthetic part divides by differences of nearly equal numbers, which needs double precision.
    element, tolerance = (lg.f64, 1e-9) if name == SYNTHETIC else (lg.f32, 1e-5)
    (computed,) = parts(assembly, element=element)
    points = points_in(part, 500).astype(element.dtype)
    is_mapped = (True, *[False] * len(computed.arguments))
    native = computed(points)
    actual = compile_opencl(computed.function, is_mapped)(points, *computed.arguments)
    np.testing.assert_allclose(actual, native, rtol=tolerance, atol=tolerance * np.abs(native).max())


@needs_samples
def test_the_tape_loads_completely() -> None:
    assert len(nodes_of(load_vm(FOLDER / "prospero.vm").function)) > 7000


@needs_samples
def test_pruning_does_not_change_a_picture_of_the_tape(tmp_path: Path) -> None:
    """Only its first letters, because compiling all of it and its bounds takes too long for a test."""
    lines = (FOLDER / "prospero.vm").read_text().splitlines()[:674]
    (tmp_path / "start.vm").write_text("\n".join(lines))
    tape = load_vm(tmp_path / "start.vm")
    pruned = draw_plane(tape, size=512)
    np.testing.assert_array_equal(pruned, draw_plane(tape, size=512, pruned=False))
    assert 0 < pruned.mean() < 1


@needs_samples
def test_a_twisted_part_agrees_with_the_thumbnail_of_its_file() -> None:
    """The grooves of the vase lean in the same direction in both pictures."""
    path = FOLDER / "heartvase_001.3mf"
    with zipfile.ZipFile(path) as archive:
        thumbnail, _ = read_png(archive.read("Metadata/thumbnail.png"))
    (vase,) = parts(load_3mf(path))
    picture = render(vase, size=(128, 128))
    # The middle of the vase, without its outline.
    leanings = [leaning(thumbnail[70:170, 95:160]), leaning(picture[38:92, 48:80])]
    assert max(leanings) < -0.1


@needs_samples
def test_an_image_of_one_sheet_is_not_blended_along_the_stack() -> None:
    """Another program that blends with the last pixel draws the letters of the thumbnail."""
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
    """The area of a contour: positive for an outline, negative for a hole."""
    (x, y), (next_x, next_y) = contour.T, np.roll(contour, -1, axis=0).T
    return float((x * next_y - next_x * y).sum() / 2)


def leaning(pixels: Any) -> float:
    """The diagonal along which brightness changes, from -1 to 1."""
    brightness = pixels[..., :3].astype(float).mean(-1)
    down, right = np.gradient(brightness)
    return float(2 * (down * right).sum() / (down**2 + right**2).sum())
