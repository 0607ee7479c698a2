"""Neighbour search against an all-pairs search, and forces between neighbours against central differences."""

from __future__ import annotations

import numpy as np
import pytest

import livegrad as lg
from livegrad.diagnostics import UsageError
from livegrad.live.blocks import block, fold_neighbours, neighbour_block, neighbours
from livegrad.live.blocks.search import lower_bound, pack
from livegrad.live.engine import Engine


def all_pairs(points: np.ndarray, radius: float) -> list[set[int]]:
    apart = points[:, None, :] - points[None, :, :]
    near = np.sum(apart * apart, axis=-1) <= points.dtype.type(radius) ** 2
    np.fill_diagonal(near, False)
    return [set(np.flatnonzero(row).tolist()) for row in near]


def found_by(indices: np.ndarray, count: np.ndarray) -> list[set[int]]:
    rows = [row[:number] for row, number in zip(indices, count, strict=True)]
    assert all(len(set(row)) == len(row) for row in rows)  # no neighbour is listed twice
    return [set(row.tolist()) for row in rows]


@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize(("scale", "radius"), [(1.0, 0.15), (100.0, 9.0), (1e-3, 1e-4)])
def test_neighbours_equal_those_of_an_all_pairs_search(axes, scale, radius):
    points = (np.random.default_rng(axes).random((60, axes)) - 0.5) * scale
    indices, count, total = neighbours(lg.asarray(points), radius, capacity=48)
    assert found_by(indices.numpy(), count.numpy()) == all_pairs(points, radius)
    np.testing.assert_array_equal(count.numpy(), total.numpy())


def test_points_at_exactly_the_radius_are_neighbours():
    points = np.stack(np.meshgrid(np.arange(5.0), np.arange(5.0)), axis=-1).reshape(-1, 2) - 2.0
    indices, count, _ = neighbours(lg.asarray(points), 1.0, capacity=8)
    assert found_by(indices.numpy(), count.numpy()) == all_pairs(points, 1.0)
    assert sorted(count.numpy().tolist()) == [2] * 4 + [3] * 12 + [4] * 9


def test_distant_coincident_and_nan_points_are_supported():
    points = np.array([[1e30, 0], [1e30, 0], [-1e30, 5], [0, 0], [0, 0], [0, 0], [np.nan, 0], [0.5, 0]])
    indices, count, _ = neighbours(lg.asarray(points), 1.0, capacity=7)
    assert found_by(indices.numpy(), count.numpy()) == all_pairs(points, 1.0)


def test_a_single_point_has_no_neighbours_and_unused_slots_hold_its_own_index():
    indices, count, _ = neighbours(lg.asarray([[1.0, 2.0, 3.0]]), 1.0, capacity=3)
    assert (indices.numpy().tolist(), count.numpy().tolist()) == ([[0, 0, 0]], [0])


def test_neighbours_beyond_the_capacity_are_counted_and_reported():
    points = np.random.default_rng(3).random((30, 2)) * 0.1
    engine = Engine()
    near = engine.add(neighbour_block(capacity=5, name="near"))
    engine.set(near["positions"], points)
    engine.set(near["radius"], 1.0)
    assert engine.step().warnings == ("near: 29 elements, room for 5",)
    indices, count = engine.read(near["indices"]), engine.read(near["count"])
    assert count.tolist() == [5] * 30
    assert all(own < other for own, other in zip(found_by(indices, count), all_pairs(points, 1.0), strict=True))
    engine.set(near["radius"], 0.005)
    assert engine.step().warnings == ()


def test_forces_between_neighbours_are_the_gradient_of_their_energy():
    """Soft springs: differentiable with respect to the positions, with fixed neighbours."""
    points = np.random.default_rng(5).random((12, 2))
    engine = Engine()
    near = engine.add(neighbour_block(capacity=12, name="near"))

    def energy_of(x, indices, count, radius=0.4):
        def bond(own, other):
            squared = lg.sum((own - other) ** 2.0, axis=-1)
            return lg.maximum(radius * radius - squared, 0.0) ** 2.0

        return 0.5 * lg.sum(fold_neighbours(bond, indices, count, x))

    energy = engine.add(block(energy_of, name="energy"))
    spread = engine.add(block(lambda x: x + 0.0, name="spread"))
    engine.set(spread["x"], points)
    engine.set(near["radius"], 0.4)
    engine.connect(spread, near["positions"])
    engine.connect(spread, energy["x"])
    engine.connect(near["indices"], energy["indices"])
    engine.connect(near["count"], energy["count"])
    force = engine.add(lg.grad(of=energy, by=[spread["x"]], name="force"))
    assert engine.step().ok, engine.frame.problems
    found = engine.read(force)
    assert np.count_nonzero(found) > 10

    def total(x: np.ndarray) -> float:
        squared = np.sum((x[:, None] - x[None]) ** 2, axis=-1)[np.triu_indices(len(x), 1)]
        return float(np.sum(np.maximum(0.16 - squared, 0.0) ** 2))

    for index in np.ndindex(points.shape):
        step = np.zeros_like(points)
        step[index] = 1e-6
        slope = (total(points + step) - total(points - step)) / 2e-6
        np.testing.assert_allclose(found[index], slope, atol=1e-8)


def test_invalid_points_are_rejected():
    with pytest.raises(UsageError, match="shape"):
        neighbours(lg.asarray([1.0, 2.0]), 1.0, capacity=3)
    with pytest.raises(UsageError, match="capacity"):
        neighbours(lg.asarray([[1.0, 2.0]]), 1.0, capacity=0)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 8, 9, 33])
def test_search_and_compaction_agree_with_numpy(size):
    random = np.random.default_rng(size)
    rising, values = np.sort(random.integers(0, 20, size)), random.integers(-1, 22, 50)
    found = lower_bound(lg.asarray(rising), lg.asarray(values))
    np.testing.assert_array_equal(found.numpy(), np.searchsorted(rising, values))
    emit = random.random(size) < 0.5
    places, total = pack(lg.asarray(emit), 4)
    kept = np.flatnonzero(emit)[:4]
    np.testing.assert_array_equal(places.numpy()[: len(kept)], kept)
    assert int(total.numpy()) == np.count_nonzero(emit)


@pytest.mark.parametrize("radius", [0, -1, 0.0, float("nan"), float("inf")])
def test_an_invalid_radius_is_rejected_at_its_line(radius: float) -> None:
    with pytest.raises(UsageError, match=r"not a radius[\s\S]*test_neighbours\.py"):
        neighbours(lg.zeros((3, 2)), radius, capacity=2)
