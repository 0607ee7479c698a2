"""Min/max pruning of parts of many shapes: it skips decided choices and does not change results."""

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
    """Lowers the cost from which parts are pruned, so that the tests compile less code."""
    monkeypatch.setattr(masking, "MIN_COST", masking.MIN_COST / 10)
    with fresh_session():
        yield


@cache
def spheres(number: int, *, cut: bool = False) -> Part:
    """Spheres at random positions; with `cut`, every third is subtracted. One radius is a parameter."""
    generator = np.random.default_rng(0)
    centres, radii = generator.uniform(-1, 1, (number, 3)), generator.uniform(0.1, 0.3, number)
    union = lg.shapes.sphere(lg.shapes.Parameter("radius", 0.5))
    for index, (centre, radius) in enumerate(zip(centres.tolist(), radii.tolist(), strict=True)):
        sphere = lg.shapes.sphere(radius).translate(centre)
        union = union - sphere if cut and index % 3 == 0 else union | sphere
    return union.part(WIDE)


def without_masks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pruning, "count_mask_words", lambda function: 0)


@pytest.mark.parametrize("cut", [False, True])
def test_pruning_does_not_change_a_picture_of_many_shapes(cut: bool) -> None:
    part = spheres(20, cut=cut)
    assert masking.count_mask_words(part.function)
    for size, height in ((64, 0.0), (201, 0.3)):
        pruned = draw_plane(part, height, size=size)
        np.testing.assert_array_equal(pruned, draw_plane(part, height, size=size, pruned=False))
    assert 0.1 < pruned.mean() < 0.9


def test_meshes_and_contours_do_not_depend_on_masks(monkeypatch: pytest.MonkeyPatch) -> None:
    part = spheres(12, cut=True)
    assert masking.count_mask_words(part.function)

    def results() -> tuple[Any, ...]:
        surface = mesh(part, feature_size=0.2)
        assert surface.is_closed()
        contours = slice_part(part, 0.1, feature_size=0.1).contours
        return surface.vertices, surface.triangles, np.concatenate(contours)

    masked = results()
    without_masks(monkeypatch)
    for with_masks, without in zip(masked, results(), strict=True):
        np.testing.assert_array_equal(with_masks, without)


def test_masked_shading_evaluates_no_complete_gradient(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Near the surface, a normal needs only one choice: the gradient of the complete function is not evaluated."""
    part = spheres(12, cut=True)
    unmasked_lengths: list[int] = []
    compile_gradients = masking.compile_gradients

    def record(function: lg.ir.Function) -> Any:
        run = compile_gradients(function)
        return lambda *arguments: (unmasked_lengths.append(len(arguments[0])), run(*arguments))[1]

    monkeypatch.setattr(masking, "compile_gradients", record)
    masked = render(part, size=(48, 48))
    assert unmasked_lengths == []
    without_masks(monkeypatch)
    np.testing.assert_allclose(masked, render(part, size=(48, 48)), atol=2e-6)  # derivatives in another order
    assert unmasked_lengths != []


def test_normals_fall_back_to_the_complete_function_where_undefined() -> None:
    def field(p: Node) -> Node:
        x, y, _ = members_of(p)
        value = ops.sqrt(x) - 0.5
        for k in range(16):
            value = ops.min(value, ops.sqrt(x * x + (y - 0.1 * k) * (y - 0.1 * k)) - 0.3)
        return value

    part = Part(lg.ir.trace(field, Vector(f32, 3)), (), np.array(WIDE[0]), np.array(WIDE[1]))
    word_count = masking.count_mask_words(part.function)
    points = list(np.random.default_rng(0).uniform(-1, 1, (3, 600)).astype(np.float32))
    expected = masking.surface_normals(part.function, part.arguments, points, None)
    with np.errstate(invalid="ignore"):
        with_first_choice, with_no_choice = (
            masking.surface_normals(part.function, part.arguments, points, masking.full_masks(word_count, 600) * mask)
            for mask in (np.uint32(1), np.uint32(0))
        )
    np.testing.assert_array_equal(with_no_choice, expected)
    is_defined = np.isfinite(expected).all(1)
    assert is_defined.sum() > 200
    np.testing.assert_allclose(with_first_choice[is_defined], expected[is_defined], atol=1e-6)


def test_a_picture_reuses_the_code_of_a_mesh() -> None:
    part = spheres(12)
    mesh(part, feature_size=0.3)
    misses = [compiled.misses for compiled in (masking.compile_masked_bounds, masking.find_choices)]
    for direction in ((1, 2, -3), (0, 0, -1)):
        render(part, size=(24, 24), direction=direction)
    assert [compiled.misses for compiled in (masking.compile_masked_bounds, masking.find_choices)] == misses


def test_few_choices_remain_near_the_surface() -> None:
    part = spheres(40)
    choices = masking.find_choices(part.function)
    assert choices is not None
    assert choices.number > 30
    lattice = Lattice(part.low, (part.high - part.low) / 64, (64, 64, 64), 4)
    blocks = find_blocks(IntervalBounds(part.function, part.arguments, np.float32), lattice)
    assert blocks.masks is not None
    assert blocks.masks.shape[1] == len(blocks.crossed) > 500
    assert np.bitwise_count(blocks.masks).sum() / len(blocks.crossed) < 3


def test_masks_do_not_change_the_crossed_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    part = spheres(40, cut=True)
    lattice = Lattice(part.low, (part.high - part.low) / 60, (60, 57, 61), 4)

    def blocks() -> tuple[set[Any], int, list[Any]]:
        pruned = find_blocks(IntervalBounds(part.function, part.arguments, np.float32), lattice)
        return {tuple(block) for block in pruned.crossed}, pruned.examined, [(len(a), b) for a, b in pruned.inside]

    masked = blocks()
    without_masks(monkeypatch)
    assert blocks() == masked


def test_parameters_of_a_part_with_masks_compile_nothing() -> None:
    part = spheres(40)
    draw_plane(part, size=64)
    misses = [compiled.misses for compiled in (masking.compile_masked_bounds, masking.count_mask_words)]
    small = part.with_parameters(radius=0.01)
    picture = draw_plane(small, size=64)
    assert [compiled.misses for compiled in (masking.compile_masked_bounds, masking.count_mask_words)] == misses
    assert picture.sum() < draw_plane(part, size=64).sum()
    np.testing.assert_array_equal(picture, draw_plane(small, size=64, pruned=False))


def test_small_parts_have_no_masks() -> None:
    assert masking.count_mask_words(spheres(2).function) == 0


def test_pruning_is_exact_where_an_operand_is_nan() -> None:
    """A minimum returns its first operand if that is NaN, and ignores a second operand that is NaN."""

    def field(p: Node) -> Node:
        x, y, _ = members_of(p)
        value = ops.sqrt(x) - 0.5
        for k in range(16):
            value = ops.min(value, ops.sqrt(x * x + (y - 0.1 * k) * (y - 0.1 * k)) - 0.3)
        return ops.min(value, ops.sqrt(y) - 0.25)

    part = Part(lg.ir.trace(field, Vector(f32, 3)), (), np.array(WIDE[0]), np.array(WIDE[1]))
    assert masking.count_mask_words(part.function)
    with np.errstate(invalid="ignore"):
        expected = draw_plane(part, size=128, pruned=False)
        np.testing.assert_array_equal(draw_plane(part, size=128), expected)
    assert not expected[:, :60].any()
    assert expected[:60, 70].any()


def test_gradients_of_long_chains_have_linear_size() -> None:
    def size(number: int) -> int:
        function = spheres(number).function
        inputs = [input_node(Key(str(index)), type) for index, type in enumerate(function.parameter_types)]
        gradient = make_function("slopes", inputs, [exact_gradient(function, inputs, 0)[1]])
        lowered = lower(gradient)
        return sum(len(nodes_of(callee)) for callee in reachable_functions([lowered]))

    assert size(40) < 2.2 * size(20)


# --- in another process ----------------------------------------------------------------------------------------------


def test_a_warm_cache_draws_and_meshes_without_running_passes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    part = spheres(12, cut=True)

    def draw_and_mesh() -> tuple[Any, ...]:
        with fresh_session():  # like another process
            set_default_cache(ObjectCache(CacheSettings(tmp_path / "cache")))
            surface = mesh(part, feature_size=0.3)
            pictures = render(part, size=(24, 24)), surface.vertices, surface.triangles
            background_compiler.current.wait()
        return pictures

    expected = draw_and_mesh()
    derived: list[str] = []

    def compile_derived(function: lg.ir.Function) -> CpuFunction:
        derived.append(function.name)
        return compile_function(function)

    def refuse(function: lg.ir.Function) -> None:
        raise AssertionError("the function was split into choices")

    monkeypatch.setattr(derived_functions, "compile_function", compile_derived)
    monkeypatch.setattr(masking, "find_choices", refuse)
    for actual, reference in zip(draw_and_mesh(), expected, strict=True):
        np.testing.assert_array_equal(actual, reference)
    assert derived == []


def test_surface_points_between_samples_do_not_depend_on_masks() -> None:
    part = spheres(60)
    lattice = Lattice(np.full(3, -1.25), np.full(3, 2.5 / 64), (64, 64, 64), 4)
    bounds = IntervalBounds(part.function, part.arguments, np.float32)
    blocks = find_blocks(bounds, lattice)
    assert blocks.masks is not None
    generator = np.random.default_rng(3)
    cells = blocks.crossed[generator.integers(len(blocks.crossed), size=2000)] * 4 + generator.integers(0, 4, (2000, 3))
    front = lattice.origin + cells * lattice.cell
    back = front + lattice.cell * np.array([0.0, 0.0, 1.0])
    masks = read_masks(lattice, blocks, *cells.T)
    fractions = [bisect(bounds, front, back, used_masks) for used_masks in (masks, None)]
    np.testing.assert_array_equal(fractions[0], fractions[1])
    assert masks is not None
    assert (masks != 0xFFFFFFFF).any()  # some choices are pruned
    beyond = read_masks(lattice, blocks, cells[:5, 0], cells[:5, 1], np.full(5, -1.0))
    assert beyond is not None
    assert (beyond == 0xFFFFFFFF).all()
    empty = replace(blocks, crossed=blocks.crossed[:0], masks=blocks.masks[:, :0])
    np.testing.assert_array_equal(read_masks(lattice, empty, *cells[:5].T), beyond)
