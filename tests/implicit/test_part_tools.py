"""Uses of parts: derivatives by parameters, conversion to assemblies and OpenCL, derivatives of images."""

from __future__ import annotations

import numpy as np
import pytest

import livegrad as lg
from livegrad import ops
from livegrad.implicit.nodes.errors import AssemblyError
from livegrad.implicit.nodes.resources import ImageStack
from livegrad.implicit.nodes.to_ir import convert

shapes = lg.shapes
WIDE = ((-3, -3, -3), (3, 3, 3))
POINTS = np.random.default_rng(5).uniform(-2.5, 2.5, (200, 3))


def capsule() -> lg.Part:
    """Two blended balls. The field is smooth except far from both, so finite differences converge."""
    radius, place = shapes.Parameter("radius", 0.7), shapes.Parameter("place", 1.0)
    right_ball = shapes.sphere(radius).translate((place, 0.0, 0.0))
    return shapes.union(right_ball, shapes.sphere(1.0), blend=shapes.Parameter("blend", 6.0)).part(WIDE, "capsule")


def test_parameter_derivatives_agree_with_finite_differences() -> None:
    part = capsule()
    weights = np.random.default_rng(6).normal(size=len(POINTS))
    gradient = part.parameter_gradient(POINTS, weights)
    assert set(gradient) == {"radius", "place", "blend"}
    for name, derivative in gradient.items():
        value, step = float(part.parameters[name]), 1e-2
        above, below = (part.with_parameters(**{name: np.float32(value + s)})(POINTS) for s in (step, -step))
        expected = (weights * (above.astype(np.float64) - below)).sum() / (2 * step)
        assert derivative == pytest.approx(expected, abs=1e-4 * np.abs(weights).sum())


def test_a_part_without_parameters_has_no_parameter_gradient() -> None:
    assert shapes.sphere(1.0).part(WIDE).parameter_gradient(POINTS) == {}


def test_an_assembly_of_a_part_keeps_its_parameters(tmp_path) -> None:
    part = capsule()
    assembly = lg.implicit.assembly_of_part(part, min_feature_size=0.25)
    assert not assembly.problems()
    lg.save_3mf(assembly, tmp_path / "capsule.3mf")
    (read,) = lg.parts(lg.load_3mf(tmp_path / "capsule.3mf"), parameters={"radius": (2, "radius")})
    assert read.min_feature_size == 0.25
    np.testing.assert_allclose(read(POINTS), part(POINTS), atol=2e-6)
    np.testing.assert_allclose(
        read.with_parameters(radius=0.5)(POINTS), part.with_parameters(radius=0.5)(POINTS), atol=2e-6
    )


def test_a_part_that_reads_meshes_cannot_become_an_assembly() -> None:
    assembly = lg.implicit.add_expression(lg.Assembly(), "ball", "length(pos) - 1", {"pos": "vector"})
    assembly = assembly.add_resource(lg.implicit.TriangleMesh.box((-1, -1, -1), (1, 1, 1)), id=8)
    assembly = assembly.add_resource(lg.implicit.LevelSet(1, "shape", 8), id=9).build(9)
    (part,) = lg.parts(assembly)
    with pytest.raises(AssemblyError, match="save the assembly that the part came from"):
        lg.implicit.assembly_of_part(part)


def test_assemblies_convert_to_opencl() -> None:
    assembly = lg.implicit.add_expression(lg.Assembly(), "ball", "length(pos) - 1", {"pos": "vector"})
    assert assembly.to_opencl("ball") == lg.implicit.to_opencl(assembly, "ball")
    assert "float ball(float3 p0)" in assembly.to_opencl("ball")
    assert "double ball(double3 p0)" in assembly.to_opencl("ball", element=lg.f64)


def test_reverse_mode_derivatives_of_images_agree_with_finite_differences() -> None:
    samples = np.random.default_rng(7).random((3, 4, 5, 4)).astype(np.float32)
    assembly = lg.Assembly().add_resource(ImageStack(samples), id=1)
    assembly = assembly.add_image_function("picture", 1, id=2, tile_styles=("wrap", "mirror", "clamp"))
    converted = convert(assembly, "picture", outputs=["red"], element=lg.f64)
    points = np.random.default_rng(8).uniform(0.1, 0.9, (50, 3))
    is_mapped = (True, *[False] * len(converted.tables))
    value = lg.ir.compile(lg.ir.map_over(converted.function, is_mapped))
    types = converted.function.parameter_types

    def differentiate(position: lg.ir.Node, table: lg.ir.Node) -> lg.ir.Node:
        one = lg.ir.constant(1.0, lg.f64)
        return ops.get(ops.bwd_diff(position, table, one, function=converted.function), index=0)

    actual = lg.ir.compile(lg.ir.map_over(lg.ir.trace(differentiate, *types), is_mapped))(points, *converted.tables)
    step = 1e-6
    expected = [
        (value(points + step * axis, *converted.tables) - value(points - step * axis, *converted.tables)) / (2 * step)
        for axis in np.eye(3)
    ]
    np.testing.assert_allclose(actual, np.stack(expected, -1), atol=1e-6)
