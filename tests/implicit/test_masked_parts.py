"""Parts of many shapes: what is decided in a box is not computed within it, and nothing comes out otherwise."""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import livegrad as lg
from livegrad import ops
from livegrad.compiler import lower
from livegrad.implicit.bodies import masking, pruning
from livegrad.implicit.bodies.part import Part
from livegrad.implicit.bodies.pruning import IntervalBounds, Lattice, find_blocks
from livegrad.implicit.bodies.ray_hits import bisect, read_masks
from livegrad.implicit.bodies.rendering import render
from livegrad.implicit.bodies.slicing import draw_plane, slice_part
from livegrad.implicit.meshing.meshing import mesh
from livegrad.implicit.nodes.exact_gradient import exact_gradient
from livegrad.ir.function import make_function
from livegrad.ir.leaves import input_node
from livegrad.ir.node import Key, Node
from livegrad.ir.types import Vector, f32
from livegrad.ir.walk import nodes_of, reachable_functions
from livegrad.ops.aggregate import members_of
from livegrad.runtime.cpu import CpuFunction, compile_function
from livegrad.runtime.cpu import derived_functions as derived_functions
from livegrad.runtime.cpu.tier_up import background_compiler
from livegrad.runtime.object_cache import CacheSettings, ObjectCache, set_default_cache
from livegrad.state import fresh_session

WIDE = ((-1.2, -1.2, -1.2), (1.2, 1.2, 1.2))


@pytest.fixture(autouse=True)
def masks_for_fewer(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Masks from a tenth of the cost on at which they pay: less code to compile."""
    monkeypatch.setattr(masking, "MIN_COST", masking.MIN_COST / 10)
    with fresh_session():
        yield


@cache
def spheres(number: int, *, cut: bool = False) -> Part:
    """Spheres at random places; every third is cut out of those before it, if asked for. One radius stays open."""
    generator = np.random.default_rng(0)
    centres, radii = generator.uniform(-1, 1, (number, 3)), generator.uniform(0.1, 0.3, number)
    made = lg.shapes.sphere(lg.shapes.Parameter("radius", 0.5))
    for place, (centre, radius) in enumerate(zip(centres.tolist(), radii.tolist(), strict=True)):
        sphere = lg.shapes.sphere(radius).translate(centre)
        made = made - sphere if cut and place % 3 == 0 else made | sphere
    return made.part(WIDE)


def without_masks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pruning, "count_mask_words", lambda function: 0)


@pytest.mark.parametrize("cut", [False, True])
def test_a_picture_of_many_shapes_is_the_same_pixel_for_pixel(cut: bool) -> None:
    part = spheres(20, cut=cut)
    assert masking.count_mask_words(part.function)
    for size, height in ((64, 0.0), (201, 0.3)):
        pruned = draw_plane(part, height, size=size)
        np.testing.assert_array_equal(pruned, draw_plane(part, height, size=size, pruned=False))
    assert 0.1 < pruned.mean() < 0.9


def test_meshes_and_contours_do_not_depend_on_masks(monkeypatch: pytest.MonkeyPatch) -> None:
    part = spheres(12, cut=True)
    assert masking.count_mask_words(part.function)

    def made() -> tuple[Any, ...]:
        surface = mesh(part, feature_size=0.2)
        assert surface.is_closed()
        contours = slice_part(part, 0.1, feature_size=0.1).contours
        return surface.vertices, surface.triangles, np.concatenate(contours)

    masked = made()
    without_masks(monkeypatch)
    for own, plain in zip(masked, made(), strict=True):
        np.testing.assert_array_equal(own, plain)


def test_a_shaded_picture_does_not_depend_on_masks_and_leaves_out_what_is_decided(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where the surface is, normals are those of one choice: the derivative of the whole function is never asked."""
    part = spheres(12, cut=True)
    whole: list[int] = []
    plain = masking.compile_gradients

    def record(function: lg.ir.Function) -> Any:
        run = plain(function)
        return lambda *arguments: (whole.append(len(arguments[0])), run(*arguments))[1]

    monkeypatch.setattr(masking, "compile_gradients", record)
    masked = render(part, size=(48, 48))
    assert whole == []
    without_masks(monkeypatch)
    np.testing.assert_allclose(masked, render(part, size=(48, 48)), atol=2e-6)  # derivatives in another order
    assert whole != []


def test_normals_where_a_member_is_undefined_or_flat_are_those_of_the_function() -> None:
    def field(p: Node) -> Node:
        x, y, _ = members_of(p)
        found = ops.sqrt(x) - 0.5
        for k in range(16):
            found = ops.min(found, ops.sqrt(x * x + (y - 0.1 * k) * (y - 0.1 * k)) - 0.3)
        return found

    part = Part(lg.ir.trace(field, Vector(f32, 3)), (), np.array(WIDE[0]), np.array(WIDE[1]))
    words = masking.count_mask_words(part.function)
    points = list(np.random.default_rng(0).uniform(-1, 1, (3, 600)).astype(np.float32))
    expected = masking.surface_normals(part.function, part.arguments, points, None)
    with np.errstate(invalid="ignore"):
        asked_for_all, asked_for_none = (
            masking.surface_normals(part.function, part.arguments, points, masking.full_masks(words, 600) * asked)
            for asked in (np.uint32(1), np.uint32(0))
        )
    np.testing.assert_array_equal(asked_for_none, expected)
    known = np.isfinite(expected).all(1)
    assert known.sum() > 200
    np.testing.assert_allclose(asked_for_all[known], expected[known], atol=1e-6)


def test_a_picture_runs_the_code_that_a_mesh_was_made_with() -> None:
    part = spheres(12)
    mesh(part, feature_size=0.3)
    made = [compiled.misses for compiled in (masking.compile_masked_bounds, masking.find_choices)]
    for direction in ((1, 2, -3), (0, 0, -1)):
        render(part, size=(24, 24), direction=direction)
    assert [compiled.misses for compiled in (masking.compile_masked_bounds, masking.find_choices)] == made


def test_near_the_surface_few_of_the_shapes_are_looked_at() -> None:
    part = spheres(40)
    choices = masking.find_choices(part.function)
    assert choices is not None
    assert choices.number > 30
    lattice = Lattice(part.low, (part.high - part.low) / 64, (64, 64, 64), 4)
    found = find_blocks(IntervalBounds(part.function, part.arguments, np.float32), lattice)
    assert found.masks is not None
    assert found.masks.shape[1] == len(found.crossed) > 500
    assert np.bitwise_count(found.masks).sum() / len(found.crossed) < 3


def test_blocks_are_those_that_are_found_without_masks(monkeypatch: pytest.MonkeyPatch) -> None:
    part = spheres(40, cut=True)
    lattice = Lattice(part.low, (part.high - part.low) / 60, (60, 57, 61), 4)

    def blocks() -> tuple[set[Any], int, list[Any]]:
        found = find_blocks(IntervalBounds(part.function, part.arguments, np.float32), lattice)
        return {tuple(block) for block in found.crossed}, found.examined, [(len(a), b) for a, b in found.inside]

    masked = blocks()
    without_masks(monkeypatch)
    assert blocks() == masked


def test_parameters_of_a_part_with_masks_compile_nothing() -> None:
    part = spheres(40)
    draw_plane(part, size=64)
    made = [compiled.misses for compiled in (masking.compile_masked_bounds, masking.count_mask_words)]
    small = part.with_parameters(radius=0.01)
    picture = draw_plane(small, size=64)
    assert [compiled.misses for compiled in (masking.compile_masked_bounds, masking.count_mask_words)] == made
    assert picture.sum() < draw_plane(part, size=64).sum()
    np.testing.assert_array_equal(picture, draw_plane(small, size=64, pruned=False))


def test_small_parts_have_no_masks() -> None:
    assert masking.count_mask_words(spheres(2).function) == 0


def test_where_a_member_is_undefined_the_function_itself_is_asked() -> None:
    """A minimum keeps its first operand where that is NaN, and leaves a second one out."""

    def field(p: Node) -> Node:
        x, y, _ = members_of(p)
        found = ops.sqrt(x) - 0.5
        for k in range(16):
            found = ops.min(found, ops.sqrt(x * x + (y - 0.1 * k) * (y - 0.1 * k)) - 0.3)
        return ops.min(found, ops.sqrt(y) - 0.25)

    part = Part(lg.ir.trace(field, Vector(f32, 3)), (), np.array(WIDE[0]), np.array(WIDE[1]))
    assert masking.count_mask_words(part.function)
    with np.errstate(invalid="ignore"):
        plain = draw_plane(part, size=128, pruned=False)
        np.testing.assert_array_equal(draw_plane(part, size=128), plain)
    assert not plain[:, :60].any()
    assert plain[:60, 70].any()


def test_gradients_of_long_chains_grow_with_their_length() -> None:
    def size(number: int) -> int:
        function = spheres(number).function
        inputs = [input_node(Key(str(place)), type) for place, type in enumerate(function.parameter_types)]
        slopes = make_function("slopes", inputs, [exact_gradient(function, inputs, 0)[1]])
        lowered = lower(slopes)
        return sum(len(nodes_of(inner)) for inner in reachable_functions([lowered]))

    assert size(40) < 2.2 * size(20)


# --- in another process ----------------------------------------------------------------------------------------------


@pytest.fixture
def test_what_was_drawn_and_meshed_before_is_drawn_and_meshed_without_a_pass(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    part = spheres(12, cut=True)

    def made() -> tuple[Any, ...]:
        with fresh_session():  # as in another process
            set_default_cache(ObjectCache(CacheSettings(tmp_path / "cache")))
            surface = mesh(part, feature_size=0.3)
            pictures = render(part, size=(24, 24)), surface.vertices, surface.triangles
            background_compiler.current.wait()
        return pictures

    expected = made()
    derived: list[str] = []

    def compile_derived(function: lg.ir.Function) -> CpuFunction:
        derived.append(function.name)
        return compile_function(function)

    def refuse(function: lg.ir.Function) -> None:
        raise AssertionError("the function was split into choices")

    monkeypatch.setattr(derived_functions, "compile_function", compile_derived)
    monkeypatch.setattr(masking, "find_choices", refuse)
    for own, other in zip(made(), expected, strict=True):
        np.testing.assert_array_equal(own, other)
    assert derived == []


def test_surface_points_between_samples_do_not_depend_on_masks() -> None:
    part = spheres(60)
    lattice = Lattice(np.full(3, -1.25), np.full(3, 2.5 / 64), (64, 64, 64), 4)
    bounds = IntervalBounds(part.function, part.arguments, np.float32)
    found = find_blocks(bounds, lattice)
    assert found.masks is not None
    generator = np.random.default_rng(3)
    cells = found.crossed[generator.integers(len(found.crossed), size=2000)] * 4 + generator.integers(0, 4, (2000, 3))
    front = lattice.origin + cells * lattice.cell
    back = front + lattice.cell * np.array([0.0, 0.0, 1.0])
    masks = read_masks(lattice, found, *cells.T)
    shares = [bisect(bounds, front, back, given) for given in (masks, None)]
    np.testing.assert_array_equal(shares[0], shares[1])
    assert masks is not None
    assert (masks != 0xFFFFFFFF).any()  # something is left out
    beyond = read_masks(lattice, found, cells[:5, 0], cells[:5, 1], np.full(5, -1.0))
    assert beyond is not None
    assert (beyond == 0xFFFFFFFF).all()
    nothing = replace(found, crossed=found.crossed[:0], masks=found.masks[:, :0])
    np.testing.assert_array_equal(read_masks(lattice, nothing, *cells[:5].T), beyond)
