"""Shapes written in Python: distances, Boolean operations, and parameters fitted by gradient descent."""

from typing import Annotated, Any

import numpy as np
import pytest

import livegrad as lg
from livegrad.implicit.bodies.shapes import (
    Parameter,
    Shape,
    box,
    cylinder,
    difference,
    from_function,
    gyroid,
    half_space,
    intersection,
    sphere,
    torus,
    union,
)
from livegrad.implicit.meshing.meshing import mesh
from livegrad.implicit.nodes.errors import AssemblyError
from livegrad.passes.differentiate.reverse import vjp

WIDE = ((-2, -2, -2), (2, 2, 2))
POINTS = np.random.default_rng(3).uniform(-2, 2, (300, 3))
X, Y, Z = POINTS.T
AROUND = np.hypot(X, Y)


def box_distance(points: Any, size: Any) -> Any:
    offset = np.abs(points) - np.asarray(size) / 2
    return np.linalg.norm(np.maximum(offset, 0), axis=-1) + np.minimum(offset.max(-1), 0)


SHAPES: dict[str, tuple[Shape, Any]] = {
    "sphere": (sphere(0.7), np.linalg.norm(POINTS, axis=1) - 0.7),
    "box": (box((1, 2, 3)), box_distance(POINTS, (1, 2, 3))),
    "cylinder": (cylinder(0.5), AROUND - 0.5),
    "finite cylinder": (cylinder(0.5, 2.0), np.maximum(AROUND - 0.5, np.abs(Z) - 1)),
    "torus": (torus(1.0, 0.25), np.hypot(AROUND - 1, Z) - 0.25),
    "half space": (half_space((0, 0, 2), 0.5), Z - 0.5),
    "gyroid": (
        gyroid(np.pi),
        np.sin(2 * X) * np.cos(2 * Y) + np.sin(2 * Y) * np.cos(2 * Z) + np.sin(2 * Z) * np.cos(2 * X),
    ),
    "moved": (sphere(1.0).translate((0.5, 0, -1)), np.linalg.norm(POINTS - [0.5, 0, -1], axis=1) - 1),
    "scaled": (box((1, 1, 1)).scale(2.0), box_distance(POINTS, (2, 2, 2))),
    "turned": (box((1, 2, 3)).rotate((0, 0, 1), np.pi / 2), box_distance(POINTS, (2, 1, 3))),
    "grown": (box((1, 1, 1)).grow(0.25), box_distance(POINTS, (1, 1, 1)) - 0.25),
    "shell": (sphere(1.0).shell(0.5), np.abs(np.linalg.norm(POINTS, axis=1) - 1) - 0.25),
    "repeated": (
        sphere(0.25).repeat((1, 0, 0)),
        np.linalg.norm(np.stack([X - np.floor(X + 0.5), Y, Z], -1), axis=1) - 0.25,
    ),
    "union": (
        sphere(1.0) | box((1, 1, 4)),
        np.minimum(np.linalg.norm(POINTS, axis=1) - 1, box_distance(POINTS, (1, 1, 4))),
    ),
    "intersection": (sphere(1.0) & half_space((1, 0, 0)), np.maximum(np.linalg.norm(POINTS, axis=1) - 1, X)),
    "difference": (sphere(1.0) - cylinder(0.5), np.maximum(np.linalg.norm(POINTS, axis=1) - 1, 0.5 - AROUND)),
}


@pytest.mark.parametrize("name", SHAPES)
def test_shapes_agree_with_formulas(name: str) -> None:
    shape, expected = SHAPES[name]
    np.testing.assert_allclose(shape.part(WIDE)(POINTS), expected, atol=2e-6)


def test_blending_changes_values_only_near_the_seam() -> None:
    first, second = sphere(1.0), sphere(1.0).translate((1.2, 0, 0))
    sharp, smooth = (union(first, second, blend=blend).part(WIDE)(POINTS) for blend in (None, 0.5))
    assert (smooth <= sharp + 1e-6).all()
    is_away = np.abs(first.part(WIDE)(POINTS) - second.part(WIDE)(POINTS)) > 0.5
    np.testing.assert_array_equal(smooth[is_away], sharp[is_away])
    assert (smooth < sharp - 1e-3).any()
    cut = difference(first, second, blend=0.5).part(WIDE)(POINTS)
    assert (cut >= difference(first, second).part(WIDE)(POINTS) - 1e-6).all()


def test_parameters_change_without_compiling() -> None:
    radius, height = Parameter("radius", 0.5), Parameter("height", 2.0)
    part = (cylinder(radius, height) - sphere(radius)).part(WIDE)
    assert part.parameters == {"radius": 0.5, "height": 2.0}
    assert part.with_parameters(radius=0.25)([0.0, 0.0, 0.5]) == pytest.approx(-0.25)
    with pytest.raises(AssemblyError, match="two parameters have the same name"):
        (sphere(Parameter("r", 1.0)) | sphere(Parameter("r", 2.0))).part(WIDE)


def test_parameters_are_fitted_by_their_gradient() -> None:
    """Fits the radius and centre of a ball to values at points."""
    radius, x = Parameter("radius", 0.4), Parameter("x", 0.0)
    function, parameters = sphere(radius).translate((x, 0, 0)).function()
    assert {parameter.name for parameter in parameters} == {"radius", "x"}
    target = (np.linalg.norm(POINTS - [0.6, 0, 0], axis=1) - 1.1).astype(np.float32)
    derivative = vjp(function)
    run = lg.ir.compile(lg.ir.map_over(derivative, (True, False, False, True)))
    evaluate = lg.ir.compile(lg.ir.map_over(function, (True, False, False)))
    points = POINTS.astype(np.float32)
    values = [np.float32(parameter.value) for parameter in parameters]
    for _ in range(200):
        error = evaluate(points, *values) - target
        results = run(points, *values, error)
        values = [
            value - np.float32(0.5) * np.mean(partial) for value, partial in zip(values, results[1:], strict=True)
        ]
    fitted = dict(zip([parameter.name for parameter in parameters], values, strict=True))
    assert fitted["radius"] == pytest.approx(1.1, abs=1e-3)
    assert fitted["x"] == pytest.approx(0.6, abs=1e-3)


def test_a_drilled_plate_is_meshed_with_its_edges() -> None:
    plate = (box((2, 2, 0.5)) - cylinder(0.5)).part(((-1.2, -1.2, -0.5), (1.2, 1.2, 0.5)))
    surface = mesh(plate, feature_size=0.05)
    assert surface.is_closed()
    a, b, c = surface.vertices[surface.triangles].transpose(1, 0, 2)
    assert np.einsum("ij,ij->", a, np.cross(b, c)) / 6 == pytest.approx(2 - np.pi * 0.25 * 0.5, rel=1e-3)


def test_invalid_dimensions_are_rejected() -> None:
    for wrong in ("1", float("nan"), True, None):
        with pytest.raises(AssemblyError, match="invalid dimension of a shape"):
            sphere(wrong)  # type: ignore[arg-type]
    with pytest.raises(AssemblyError, match="not a vector"):
        box((1, 2))
    with pytest.raises(AssemblyError, match="not an axis"):
        sphere().rotate((0, 0, 0), 1.0)
    with pytest.raises(AssemblyError, match="no shapes to combine"):
        intersection()


# --- functions as shapes ----------------------------------------------------------------------------------------------


@lg.differentiable
class Egg:
    size: lg.f32
    lean: lg.f32


@lg.differentiable
def egg(p: lg.vec3, egg: Egg, tip: lg.vec3, rounds: int = 2) -> lg.f32:
    distance = lg.length(p)
    for _ in lg.unroll(range(2)):
        distance = distance - egg.lean * lg.dot(p, tip)
    return distance - egg.size * rounds


def test_a_typed_function_with_a_struct_is_a_shape(tmp_path):
    tip, size = np.array([0.2, 0.1, 0.5]), Parameter("size", 0.4)
    shape = from_function(egg, egg=Egg(size, 0.1), tip=(0.2, 0.1, Parameter("tip", 0.5)))  # type: ignore[call-arg]
    part = (shape - cylinder(0.2)).part(WIDE, "egg")
    expected = np.maximum(np.linalg.norm(POINTS, axis=1) - 0.2 * POINTS @ tip - 0.8, 0.2 - AROUND)
    np.testing.assert_allclose(part(POINTS), expected, atol=1e-5)
    assert part.parameters == {"size": pytest.approx(0.4), "tip": pytest.approx(0.5)}
    outside = [[1.0, 1.0, 1.0]]  # here, the egg determines the distance
    gradient = part.parameter_gradient(outside, [1.0])
    assert (gradient["size"], gradient["tip"]) == (pytest.approx(-2.0), pytest.approx(-0.2))
    lg.save_3mf(lg.implicit.assembly_of_part(part), tmp_path / "egg.3mf")
    (again,) = lg.parts(lg.load_3mf(tmp_path / "egg.3mf"))
    np.testing.assert_array_equal(again(POINTS / 2), part(POINTS / 2))


def test_a_function_without_annotations_is_a_shape():
    ball = from_function(lambda p, radius=0.7: lg.length(p) - radius)
    np.testing.assert_allclose(ball.part(WIDE)(POINTS), np.linalg.norm(POINTS, axis=1) - 0.7, atol=1e-6)


@lg.function
def in_double(p: lg.dvec3) -> float:
    return p.x


@lg.function
def grown(p: lg.vec3, by: lg.f32) -> lg.f32:
    for _ in range(int(by)):
        by = by * 0.5
    return lg.length(p) - by


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: from_function(3), "not a function of position"),  # type: ignore[arg-type]
        (lambda: from_function(in_double), "`in_double` is not a shape: `p` is not a position"),
        (lambda: from_function(grown), "`grown` needs a value for `by`"),
        (lambda: from_function(grown, by=1.0, size=2.0), "`grown` has no parameter `size`"),
        (lambda: from_function(egg, egg=3.0, tip=(0, 0, 1)), "egg: `egg` has the wrong type"),
        (lambda: from_function(grown, by="far"), "invalid dimension of a shape"),
        (
            lambda: lg.implicit.assembly_of_part(from_function(grown, by=2.0).part(WIDE)),
            "3MF files have no node for `for_loop`",
        ),
    ],
)
def test_invalid_shapes_are_rejected_with_the_reason(make, said):
    with pytest.raises(AssemblyError) as caught:
        make()
    assert said in caught.value.what
    assert "test_shapes.py" in str(caught.value.where)


def test_parameters_of_shapes_have_controls() -> None:
    millimetres = lg.Control(0.0, 5.0, unit="mm")

    @lg.function
    def bowl(p: lg.vec3, depth: Annotated[lg.f32, lg.Control(0.0, 3.0)], rim: Annotated[lg.f32, millimetres]) -> lg.f32:
        return p.x * p.x + p.y * p.y - p.z * rim - depth

    depth, rim = Parameter("depth", 1.0), Parameter("rim", 1.0, lg.Control(0.0, 1.0))
    body = from_function(bowl, depth=depth, rim=rim) | sphere(Parameter("radius", 1.0))
    part = body.part(((-2, -2, -2), (2, 2, 2)))
    assert part.controls == {"depth": lg.Control(0.0, 3.0), "rim": lg.Control(0.0, 1.0)}
    assert part.with_parameters(depth=2.0).controls == part.controls
    with pytest.raises(lg.UsageError, match=r"not a control \(test_shapes.py:\d+"):
        Parameter("depth", 1.0, 3.0)  # type: ignore[arg-type]
