"""Results have the same bits for any number of threads, and those of the reference where arithmetic is exact."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import livegrad as lg
from livegrad import ops
from livegrad.runtime.cpu.native.pool import set_threads, threads

N, M = lg.ir.Dimension.symbol("n"), lg.ir.Dimension.symbol("m")
THREADS = (1, 2, 3, 8)
ELEMENTS = (lg.f16, lg.f32, lg.f64, lg.i8, lg.i32, lg.u8, lg.u64)
RNG = np.random.default_rng(7)


@pytest.fixture(autouse=True)
def _keep_threads() -> Iterator[None]:
    before = threads()
    yield
    set_threads(before)


def _numbers(element: Any, *shape: int) -> Any:
    if element.kind == "float":
        return (RNG.standard_normal(shape) * 3).astype(element.dtype)
    return RNG.integers(0, 100, shape).astype(element.dtype)


def _bits(result: Any) -> bytes:
    return b"".join(np.asarray(part).tobytes() for part in (result if isinstance(result, tuple) else (result,)))


def _results(compiled: Callable[..., Any], *arguments: Any) -> Any:
    """The result, after checking that all numbers of threads compute the same bits twice."""
    actual = []
    for count in THREADS:
        set_threads(count)
        actual += [compiled(*arguments), compiled(*arguments)]
    assert len({_bits(result) for result in actual}) == 1, "threads change the result"
    return actual[0]


def _compiled(function: Callable[..., Any], *types: Any) -> Callable[..., Any]:
    return lg.ir.compile(lg.ir.trace(function, *types))


@pytest.mark.parametrize("size", [65_535, 65_536, 65_537, 300_001])
@pytest.mark.parametrize("element", ELEMENTS, ids=str)
def test_a_long_sum_is_the_same_for_any_number_of_threads(element: Any, size: int) -> None:
    compiled = _compiled(lambda x: ops.reduce(x, kind="sum", axes=(0,)), lg.ir.types.Tensor(element, (N,)))
    values = _numbers(element, size)
    total = _results(compiled, values)
    if element.kind == "float":
        exact = values.astype(np.float64).sum()
        assert abs(float(total) - exact) <= 1e-3 * np.abs(values.astype(np.float64)).sum()
    else:
        assert total == values.sum(dtype=element.dtype)


@pytest.mark.parametrize("axes", [(0,), (1,), (0, 1)], ids=str)
@pytest.mark.parametrize("shape", [(3, 100_003), (100_003, 3), (257, 513), (1, 70_000)], ids=str)
def test_sums_and_means_along_any_axes_are_the_same_for_any_number_of_threads(
    shape: tuple[int, int], axes: tuple[int, ...]
) -> None:
    def sum_and_mean(x: lg.ir.Node) -> tuple[lg.ir.Node, ...]:
        total = ops.reduce(x * 0.5, kind="sum", axes=axes)
        return total, total * (1.0 / 1024.0), ops.reduce(x, kind="max", axes=axes), ops.reduce(x, kind="min", axes=axes)

    values = _numbers(lg.f32, *shape)
    total, mean, highest, lowest = _results(_compiled(sum_and_mean, lg.ir.types.Tensor(lg.f32, (N, M))), values)
    np.testing.assert_allclose(total, (values * 0.5).sum(axes, np.float64), rtol=1e-3, atol=0.05)
    np.testing.assert_array_equal(mean, total * np.float32(1 / 1024))
    np.testing.assert_array_equal(highest, values.max(axes))
    np.testing.assert_array_equal(lowest, values.min(axes))


@pytest.mark.parametrize("element", [lg.f16, lg.f32, lg.i32, lg.u8], ids=str)
@pytest.mark.parametrize("size", [70_001, 300_001])
def test_the_index_of_an_extremum_in_a_long_array_is_the_first(element: Any, size: int) -> None:
    def places(x: lg.ir.Node) -> tuple[lg.ir.Node, ...]:
        return ops.arg_reduce(x, kind="argmax", axis=0), ops.arg_reduce(x, kind="argmin", axis=0)

    values = _numbers(element, size)
    highest, lowest = _results(_compiled(places, lg.ir.types.Tensor(element, (N,))), values)
    assert (highest, lowest) == (values.argmax(), values.argmin())


def test_the_index_of_an_extremum_is_right_with_sums_of_the_same_array() -> None:
    def several(x: lg.ir.Node) -> tuple[lg.ir.Node, ...]:
        first = ops.arg_reduce(x, kind="argmax", axis=0)
        return ops.reduce(x, kind="sum", axes=(0,)), first, ops.reduce(x, kind="max", axes=(0,))

    values = _numbers(lg.f32, 200_003)
    values[[150_001, 199_999]] = 50.0
    total, place, highest = _results(_compiled(several, lg.ir.types.Tensor(lg.f32, (N,))), values)
    assert (place, highest) == (150_001, 50.0)
    np.testing.assert_allclose(total, values.sum(dtype=np.float64), rtol=1e-3)


def test_a_nan_anywhere_is_the_extremum_and_determines_its_index() -> None:
    def extrema(x: lg.ir.Node) -> tuple[lg.ir.Node, ...]:
        return ops.reduce(x, kind="max", axes=(0,)), ops.arg_reduce(x, kind="argmin", axis=0)

    values = _numbers(lg.f32, 100_003)
    values[[77_777, 99_999]] = np.nan
    highest, place = _results(_compiled(extrema, lg.ir.types.Tensor(lg.f32, (N,))), values)
    assert np.isnan(highest)
    assert place == 77_777


def test_softmax_is_the_same_for_any_number_of_threads() -> None:
    def softmax(x: lg.ir.Node) -> lg.ir.Node:
        highest = ops.spread_back(ops.reduce(x, kind="max", axes=(1,)), (N, M), (1,))
        weights = ops.exp(x - highest)
        return weights / ops.spread_back(ops.reduce(weights, kind="sum", axes=(1,)), (N, M), (1,))

    values = _numbers(lg.f32, 203, 1003)
    actual = _results(_compiled(softmax, lg.ir.types.Tensor(lg.f32, (N, M))), values)
    weights = np.exp(values.astype(np.float64) - values.max(1, keepdims=True))
    np.testing.assert_allclose(actual, weights / weights.sum(1, keepdims=True), rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("element", [lg.f16, lg.f32, lg.f64, lg.i32], ids=str)
def test_scans_are_the_same_for_any_number_of_threads(element: Any) -> None:
    def scans(x: lg.ir.Node) -> tuple[lg.ir.Node, ...]:
        down = ops.cumulative(x, kind="sum", axis=0, reverse=False, exclusive=False)
        return down, ops.cumulative(x, kind="max", axis=1, reverse=True, exclusive=False)

    values = _numbers(element, 301, 205)
    down, right = _results(_compiled(scans, lg.ir.types.Tensor(element, (N, M))), values)
    np.testing.assert_array_equal(down, np.add.accumulate(values, 0, dtype=values.dtype))
    np.testing.assert_array_equal(right, np.maximum.accumulate(values[:, ::-1], 1)[:, ::-1])


def test_gradients_of_shared_parameters_are_the_same_for_any_number_of_threads() -> None:
    def loss(point: lg.ir.Node, target: lg.ir.Node, centre: lg.ir.Node, radius: lg.ir.Node) -> lg.ir.Node:
        difference = ops.length(point - centre) - radius - target
        return difference * difference

    vector = lg.ir.Vector(lg.f32, 3)
    each = lg.ir.trace(loss, vector, lg.f32, vector, lg.f32)
    types = lg.ir.types.Tensor(lg.f32, (N, 3)), lg.ir.types.Tensor(lg.f32, (N,)), vector, lg.f32
    total = lg.ir.trace(lambda *a: ops.make_map(each, *a, summed=(True,)), *types)
    points = _numbers(lg.f32, 50_003, 3)
    targets = _numbers(lg.f32, 50_003)
    _, by_target, by_centre, by_radius = _results(lg.ir.compile(lg.vjp(total)), points, targets, [1.0, 0, 0], 0.5, 1.0)
    offsets = points.astype(np.float64) - [1.0, 0, 0]
    distance = np.linalg.norm(offsets, axis=1)
    difference = distance - 0.5 - targets
    np.testing.assert_allclose(by_target, -2 * difference, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(by_radius, -2 * difference.sum(), rtol=1e-3)
    expected = (-2 * (difference / distance)[:, None] * offsets).sum(0)
    np.testing.assert_allclose(by_centre, expected, rtol=1e-2, atol=20.0)
