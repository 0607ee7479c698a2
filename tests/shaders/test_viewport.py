"""Viewports drawn by a browser: the pictures of `lg.render`, section planes, displays and picked points."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import livegrad as lg
from livegrad.diagnostics import UsageError
from livegrad.implicit import fit_bounds, viewport_shader
from livegrad.implicit.bodies.clipping import clip_to_bounds
from livegrad.implicit.shaders.steepness import steepness
from tests.shaders.browser import Browser, reason_for_no_browser
from tests.shaders.draw_viewport import BACKGROUND, draw, view_uniforms

pytestmark = pytest.mark.skipif(bool(reason_for_no_browser()), reason=str(reason_for_no_browser()))
SIZE = (160, 120)
BOX = ((-2, -2, -2), (2, 2, 2))


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A browser for the whole module."""
    browser = Browser()
    yield browser
    browser.close()


@lg.differentiable
def gyroid_field(p: lg.vec3, k: lg.f32) -> lg.f32:
    """No distance: its gradient is up to about 1.7 k long."""
    x, y, z = p.x * k, p.y * k, p.z * k
    return lg.sin(x) * lg.cos(y) + lg.sin(y) * lg.cos(z) + lg.sin(z) * lg.cos(x)  # type: ignore[return-value]


def drilled() -> lg.shapes.Shape:
    radius = lg.shapes.Parameter("radius", 0.6)
    return lg.shapes.difference(lg.shapes.box((1.6, 1.2, 0.8)), lg.shapes.sphere(radius))


def mesh_part() -> lg.Part:
    assembly = lg.Assembly().add_resource(lg.implicit.TriangleMesh.box([-1, -1, -1], [1, 1.5, 0.5]), id=1).build(1)
    return lg.parts(assembly)[0]


def colored_part() -> lg.Part:
    """A ball of a file, with a colour that changes with the position."""
    assembly = lg.implicit.add_expression(lg.Assembly(), "ball", "length(pos) - 1", {"pos": "vector"})
    assembly = lg.implicit.add_expression(assembly, "paint", "abs(pos)", {"pos": "vector"})
    ball, paint = assembly.function("ball"), assembly.function("paint")
    channel = lg.implicit.VolumeChannel("color", paint.id, next(iter(paint.outputs)))
    first = assembly.free_id()
    assembly = assembly.add_resource(lg.implicit.TriangleMesh.box([-2, -2, -2], [2, 2, 2]), id=first)
    assembly = assembly.add_resource(lg.implicit.VolumeData((channel,)), id=first + 1)
    level_set = lg.implicit.LevelSet(ball.id, next(iter(ball.outputs)), first, box_only=True, volume_data=first + 1)
    return lg.parts(assembly.add_resource(level_set, id=first + 2).build(first + 2))[0]


PARTS = {
    "box without a ball": lambda: drilled().part(BOX),
    "gyroid": lambda: lg.shapes.from_function(gyroid_field, k=lg.shapes.Parameter("k", 3.0)).part(BOX),
    "mesh": mesh_part,
}


def differing(picture: NDArray[Any], expected: NDArray[Any]) -> float:
    """The share of the pixels that differ visibly. Silhouettes and edges may be one pixel apart."""
    return float((np.abs(picture[..., :3] - expected).max(-1) > 0.03).mean())


@pytest.mark.parametrize("name", PARTS)
def test_pictures_are_those_of_render(browser: Browser, name: str) -> None:
    part = fit_bounds(PARTS[name]())
    picture, _ = draw(browser, viewport_shader(part), SIZE)
    assert differing(picture, lg.render(part, size=SIZE)) < 0.01


@pytest.mark.parametrize("direction", [(1, 0, 0), (0.2, -1, 0.3), (0.1, 0.1, -1)])
def test_views_are_those_of_render(browser: Browser, direction: tuple[float, ...]) -> None:
    part = fit_bounds(drilled().part(BOX))
    picture, _ = draw(browser, viewport_shader(part), SIZE, direction)
    assert differing(picture, lg.render(part, size=SIZE, direction=direction)) < 0.02


def test_a_parameter_changes_without_another_shader(browser: Browser) -> None:
    part = drilled().part(BOX)
    viewport = viewport_shader(part, ranges={"radius": (0.3, 1.0)})
    for radius in (0.5, 0.9):
        changed = part.with_parameters(radius=radius)
        fitted = fit_bounds(changed)
        box = viewport_shader(fitted)
        seen = {name: view_uniforms(box, SIZE, (-0.6, 0.75, -0.5))[name] for name in ("lg_pixel", "lg_target")}
        seen |= {"lg_low": box.low, "lg_high": box.high}
        picture, _ = draw(browser, viewport, SIZE, radius=radius, **seen)
        assert differing(picture, lg.render(fitted, size=SIZE)) < 0.01


def test_clipped_parts_keep_their_arguments_apart(browser: Browser) -> None:
    """What clips a part to its bounds are arguments without names of parameters."""
    part = clip_to_bounds(mesh_part())
    cut = clip_to_bounds(lg.shapes.from_function(gyroid_field, k=3.0).part(BOX))
    for each in (part, cut):
        picture, _ = draw(browser, viewport_shader(each), SIZE)
        assert differing(picture, lg.render(each, size=SIZE)) < 0.01


def test_a_section_plane_cuts_the_part(browser: Browser) -> None:
    shape, normal, offset = drilled(), (0.0, -1.0, 0.0), 0.1
    part = shape.part(BOX)
    half = lg.shapes.half_space(normal, offset)
    cut = lg.shapes.intersection(shape, half).part(BOX)
    viewport = viewport_shader(part)
    inside = cut([[0.7, 0.5, 0.0], [0.7, -0.5, 0.0]]) < 0
    assert list(inside) == [True, False]
    assert viewport.low == (-2.0, -2.0, -2.0)
    fitted = fit_bounds(cut)
    box = {"lg_low": list(map(float, fitted.low)), "lg_high": list(map(float, fitted.high))}
    seen = view_uniforms(viewport_shader(fitted), SIZE, (-0.6, 0.75, -0.5)) | box
    seen["lg_section"] = [*normal, offset]
    picture, _ = draw(browser, viewport, SIZE, **seen)
    assert differing(picture, lg.render(fitted, size=SIZE)) < 0.01


def test_the_section_plane_shows_the_field(browser: Browser) -> None:
    """Looking at the plane: blue inside, red outside, dark where the field is zero."""
    part = lg.shapes.sphere(1.0).part(BOX)
    changes = {"lg_section": [0.0, -1.0, 0.0, 0.0], "lg_spacing": 0.25, "lg_steepness": 3.0}
    picture, _ = draw(browser, viewport_shader(part), (121, 121), (0, 1, 0), **changes)
    pixel = 4.0 / 121 * 1.05
    at = {radius: picture[60, 60 + round(radius / pixel), :3] for radius in (0.1, 1.0, 1.6)}
    assert at[0.1][2] > at[0.1][0] + 0.1
    assert at[1.6][0] > at[1.6][2] + 0.1
    assert at[1.0].max() < 0.3


def test_picked_points_lie_on_the_surface(browser: Browser) -> None:
    part = fit_bounds(drilled().part(BOX))
    viewport = viewport_shader(part)
    for place in ((80, 60), (60, 70), (100, 40)):
        answer, _ = draw(browser, viewport, SIZE, canvas=(8, 1), lg_picked=[place[0] + 0.5, place[1] + 0.5])
        words = np.round(answer[0] * 255).astype(np.uint8).view(np.float32).reshape(-1)[:7]
        assert words[0] == 1.0
        assert abs(part(words[1:4])) < 1e-3
        gradient = part.gradient(words[1:4])
        np.testing.assert_allclose(words[4:7], gradient / np.linalg.norm(gradient), atol=1e-3)
    missed, _ = draw(browser, viewport, SIZE, canvas=(8, 1), lg_picked=[0.5, 0.5])
    assert not missed[0, 0].any()


def test_slopes_show_how_the_surface_moves(browser: Browser) -> None:
    """A larger radius moves the ball outwards, and not the plate that it is stuck in."""
    ball = lg.shapes.sphere(lg.shapes.Parameter("radius", 0.6))
    part = fit_bounds(lg.shapes.union(lg.shapes.box((1.6, 1.2, 0.8)), ball).part(BOX))
    viewport = viewport_shader(part, slopes=["radius"])
    picture, _ = draw(browser, viewport, (121, 91), (0, 0, -1), lg_display=3)
    middle, side = picture[45, 60, :3], picture[45, 8, :3]
    assert middle[0] > middle[2] + 0.2
    assert abs(side[2] - side[0]) < 0.05


def test_the_plate_lies_under_the_part(browser: Browser) -> None:
    part = fit_bounds(drilled().part(BOX))
    with_plate, _ = draw(browser, viewport_shader(part), SIZE, lg_plate=0.2)
    without, _ = draw(browser, viewport_shader(part), SIZE)
    changed = np.abs(with_plate - without).max(-1) > 0.02
    assert changed.any()
    covered = np.abs(without[..., :3] - BACKGROUND).max(-1) > 0.01
    assert not (changed & covered).any()


def test_parts_with_colours_have_them(browser: Browser) -> None:
    part = fit_bounds(colored_part())
    assert part.color is not None
    picture, _ = draw(browser, viewport_shader(part), SIZE)
    assert differing(picture, lg.render(part, size=SIZE)) < 0.01


def test_no_gradient_is_longer_than_the_bound() -> None:
    generator = np.random.default_rng(1)
    for name, ranges in (("gyroid", {"k": (2.0, 5.0)}), ("box without a ball", {"radius": (0.3, 1.0)})):
        part = PARTS[name]()
        bound = steepness(part, ranges)
        for value in (ends := next(iter(ranges.values()))) + (sum(ends) / 2,):
            points = generator.uniform(-2, 2, (20_000, 3))
            lengths = np.linalg.norm(part.with_parameters(**{next(iter(ranges)): value}).gradient(points), axis=1)
            assert lengths.max() <= bound


def test_slopes_and_ranges_name_parameters() -> None:
    part = drilled().part(BOX)
    with pytest.raises(UsageError, match=r"`size` has no slope .*: expected a parameter of one number of the part"):
        viewport_shader(part, slopes=["size"])
    with pytest.raises(UsageError, match="invalid range of `radius`"):
        steepness(part, {"radius": (2.0, 1.0)})
    with pytest.raises(UsageError, match="invalid range of `radius`"):
        steepness(part, {"radius": ("a", "b")})  # type: ignore[dict-item]
