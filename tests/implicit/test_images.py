"""Images in parts: as fields, colours and properties, and derivatives with respect to pixels."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import livegrad as lg
from livegrad.implicit.nodes.errors import AssemblyError
from livegrad.implicit.nodes.resources import ImageStack, LevelSet, TriangleMesh, VolumeChannel, VolumeData
from livegrad.implicit.nodes.to_ir import convert
from livegrad.runtime.reference import evaluate

PIXELS = (np.random.default_rng(0).integers(0, 256, (3, 4, 5, 4)) / 255).astype(np.float32)
RIGHT = np.array([2, 0, 0])
POINTS = np.random.default_rng(1).uniform(-0.5, 1.5, (40, 3))


def trilinear(pixels: Any, points: Any) -> Any:
    """An independent trilinear filter of all channels at points within the stack."""
    sheets, rows, columns, _ = pixels.shape
    values = []
    for u, v, w in np.clip(points, 0, 1):
        total = 0.0
        axes = []
        for coordinate, size in ((w, sheets), (1 - v, rows), (u, columns)):
            position = coordinate * size - 0.5
            low = int(np.floor(position))
            axes.append([(min(max(low + k, 0), size - 1), abs(1 - k - (position - low))) for k in (0, 1)])
        for k, a in axes[0]:
            for j, b in axes[1]:
                for i, c in axes[2]:
                    total = total + a * b * c * pixels[k, j, i]
        values.append(total)
    return np.array(values)


def painted(pixels: Any = PIXELS) -> lg.Assembly:
    """A ball in the unit cube whose colour and density are images; the item translates it by 2 along x."""
    assembly = lg.implicit.add_expression(
        lg.Assembly(), "ball", "length(pos - vector(0.5, 0.5, 0.5)) - 0.4", {"pos": "vector"}
    )
    assembly = assembly.add_resource(ImageStack(pixels), id=10).add_image_function(
        "picture", 10, id=11, tile_styles=["clamp"] * 3
    )
    assembly = assembly.add_function(
        "density", {"pos": lg.implicit.PortType.VECTOR}, {"value": lg.implicit.PortType.SCALAR}, id=12
    )
    assembly = assembly.add_node("density", "FunctionCall", "sample", functionID=11, pos="inputs.pos")
    assembly = assembly.add_node("density", "Multiplication", "twice", A="sample.green", B=2.0)
    assembly = assembly.link("density", "twice.result", "outputs.value")
    channels = (VolumeChannel("color", 11, "color"), VolumeChannel("property", 12, "value", "density"))
    assembly = assembly.add_resource(VolumeData(channels), id=13).add_resource(
        TriangleMesh.box((0, 0, 0), (1, 1, 1)), id=14
    )
    assembly = assembly.add_resource(LevelSet(1, "shape", 14, box_only=True, volume_data=13, name="ball"), id=15)
    return assembly.build(15, transform=(1, 0, 0, 0, 1, 0, 0, 0, 1, 2, 0, 0))


def test_a_colour_that_reads_an_image_paints_the_part() -> None:
    (part,) = lg.parts(painted())
    inside = np.random.default_rng(2).uniform(0.2, 0.8, (20, 3))
    actual: Any = part.colors(inside + RIGHT)
    np.testing.assert_allclose(actual, trilinear(PIXELS, inside)[:, :3], atol=1e-5)
    red = np.zeros_like(PIXELS) + np.array([1, 0, 0, 1], np.float32)
    (redder,) = lg.parts(painted(red))
    picture = lg.render(redder, size=(40, 30))
    lit = picture[(picture != picture[0, 0]).any(-1)]
    assert len(lit) > 100
    assert (lit[:, 0] > lit[:, 1]).all()


def test_a_property_that_reads_an_image_is_available_by_name() -> None:
    (part,) = lg.parts(painted())
    inside = np.random.default_rng(2).uniform(0.2, 0.8, (20, 3))
    actual = part.property_values("density", inside + RIGHT)
    np.testing.assert_allclose(actual, 2 * trilinear(PIXELS, inside)[:, 1], atol=1e-5)
    with pytest.raises(AssemblyError, match="has no property `heat`"):
        part.property_values("heat", inside)


def test_painted_parts_survive_a_file(tmp_path: Path) -> None:
    lg.save_3mf(painted(), tmp_path / "painted.3mf")
    (part,), (again,) = lg.parts(painted()), lg.parts(lg.load_3mf(tmp_path / "painted.3mf"))
    points = np.random.default_rng(2).uniform(0, 1, (20, 3)) + RIGHT
    np.testing.assert_array_equal(part.colors(points), again.colors(points))  # type: ignore[arg-type]
    np.testing.assert_array_equal(part.property_values("density", points), again.property_values("density", points))


@pytest.mark.parametrize("filter", ["linear", "nearest"])
def test_pixel_derivatives_agree_with_differences_on_reference_and_cpu(filter: str) -> None:
    assembly = lg.Assembly().add_resource(ImageStack(PIXELS), id=1)
    assembly = assembly.add_image_function(
        "picture", 1, tile_styles=("wrap", "mirror", "clamp"), filter=filter, scale=3.0
    )
    converted = convert(assembly, "picture", outputs=["red"], element=lg.f64)
    assert converted.table_names == ("samples_1",)
    mapped = lg.ir.map_over(converted.function, (True, False))
    weights = np.random.default_rng(3).normal(size=len(POINTS))
    pixels: Any = converted.tables[0]
    run, backward = lg.ir.compile(mapped), lg.vjp(mapped)
    # Values are linear in the pixels (none is clamped), so differences are exact except for rounding.
    expected = np.zeros_like(pixels)
    for index in np.ndindex(*pixels.shape[:3], 1):
        changed = pixels.copy()
        changed[index] = 0.5
        difference = pixels[index] - 0.5
        if difference:
            expected[index] = (run(POINTS, pixels) - run(POINTS, changed)) @ weights / difference
    for derivative in (lg.ir.compile(backward), lambda *arguments: evaluate(backward, *arguments)):
        _, actual = derivative(POINTS, pixels, weights)
        np.testing.assert_allclose(actual, expected, atol=1e-9)


def test_an_image_is_fitted_by_gradient_descent() -> None:
    """`lg.grad` by the pixel tensor of a part that samples an image."""
    assembly = lg.Assembly().add_resource(ImageStack(PIXELS), id=1).add_image_function("picture", 1, id=2)
    part = lg.implicit.part_of_function(assembly, "picture", ((0, 0, 0), (1, 1, 1)), channel="red")
    points = np.random.default_rng(4).uniform(0, 1, (200, 3)).astype(np.float32)
    targets = np.full(len(points), 0.25, np.float32)

    def loss(pixels: lg.Tensor) -> lg.Tensor:
        return lg.sum((part.lazy(points, samples_1=pixels) - targets) ** 2)

    pixels = lg.asarray(PIXELS)
    start = float(loss(pixels))
    for _ in range(30):
        pixels = pixels - 0.02 * lg.grad(loss)(pixels)
    assert float(loss(pixels)) < 0.05 * start
    with pytest.raises(AssemblyError, match="has the wrong shape"):
        part.lazy(points, samples_1=pixels[0])
    with pytest.raises(AssemblyError, match="no argument `samples_2`"):
        part.lazy(points, samples_2=pixels)


def test_lazy_parts_are_differentiable_by_vectors_and_points() -> None:
    assembly = lg.implicit.add_expression(
        lg.Assembly(), "ball", "length(pos - at) - 1", {"pos": "vector", "at": "vector"}
    )
    ball = lg.implicit.part_of_function(assembly, "ball", ((-2, -2, -2), (2, 2, 2)))
    points = np.random.default_rng(5).normal(size=(7, 3)).astype(np.float32)
    by_centre = lg.grad(lambda centre: lg.sum(ball.lazy(points, at=centre)))(lg.zeros(3))
    by_points = lg.grad(lambda p: lg.sum(ball.lazy(p)))(lg.asarray(points))
    np.testing.assert_allclose(np.asarray(by_centre), ball.parameter_gradient(points)["at"], atol=1e-5)
    np.testing.assert_allclose(np.asarray(by_points), ball.gradient(points), atol=1e-5)


TILED_AS: Any = {"wrap": "wrap", "mirror": "symmetric", "clamp": "edge"}  # the modes of numpy.pad
MARGIN = 3  # tiles laid on each side of the stack


def by_tiles(pixels: Any, styles: Any, filter: str, points: Any) -> Any:
    """An independent sampler: pads the stack with tiles, and weights every voxel."""
    large, weights = pixels[:, ::-1], []  # v is 0 at the last row
    for axis, coordinate in enumerate((2, 1, 0)):
        size = pixels.shape[axis]
        margins = [(0, 0)] * 4
        margins[axis] = (MARGIN * size, MARGIN * size)
        large = np.pad(large, margins, TILED_AS[styles[coordinate]])
        centres = np.arange(-MARGIN * size, (MARGIN + 1) * size) + 0.5
        distance = np.abs(points[:, coordinate, None] * size - centres)
        closest = np.eye(len(centres))[distance.argmin(1)]
        weights.append(closest if filter == "nearest" else np.maximum(0, 1 - distance))
    return np.einsum("pk,pj,pi,kjic->pc", *weights, large)


@pytest.mark.parametrize("seed", range(12))
def test_tile_styles_agree_with_a_padded_image(seed: int, tmp_path: Path) -> None:
    """Stacks of any size (also one sheet, row or column), both depths, all styles and both filters."""
    generator = np.random.default_rng(seed)
    depth, styles = int(generator.choice([8, 16])), tuple(generator.choice(list(TILED_AS), 3).tolist())
    shape, filter = (*generator.integers(1, 5, 3), 4), ("linear", "nearest")[seed % 2]
    levels = 2**depth - 1
    pixels = (generator.integers(0, levels + 1, shape) / levels).astype(np.float32)
    assembly = lg.Assembly().add_resource(ImageStack(pixels, depth), id=1)
    assembly = assembly.add_image_function("picture", 1, filter=filter, tile_styles=styles, offset=-0.5, scale=3.0)
    lg.save_3mf(assembly, tmp_path / "picture.3mf")
    converted = convert(lg.load_3mf(tmp_path / "picture.3mf"), "picture", outputs=["color", "alpha"], element=lg.f64)
    points = generator.uniform(0.5 - MARGIN, MARGIN + 0.5, (60, 3))
    color, alpha = lg.ir.compile(lg.ir.map_over(converted.function, (True, False)))(points, *converted.tables)
    expected = by_tiles(pixels.astype(np.float64), styles, filter, points) * 3.0 - 0.5
    np.testing.assert_allclose(np.column_stack([color, alpha]), expected, atol=1e-6, err_msg=f"{shape} {styles}")
