"""Gathers, scatters and searches on the CPU agree with NumPy, with repeated indices and indices out of range."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import livegrad as lg
from livegrad import ops
from livegrad.diagnostics import KernelCheckError
from livegrad.ir.types.scalars import SCALARS
from livegrad.ops.assignment import assign
from livegrad.ops.indexing import lookup_or
from livegrad.ops.movement import broadcast, index_along
from livegrad.ops.rules import filled
from livegrad.runtime.cpu.native.pool import set_threads, threads

RNG = np.random.default_rng(11)
# Rows shorter and longer than a vector, of sizes that end within one.
SHAPES = [(10, 7), (100, 128), (13, 3), (5, 1), (40, 33)]


@pytest.fixture(autouse=True)
def _keep_threads() -> Iterator[None]:
    before = threads()
    yield
    set_threads(before)


def results(function: Any, *arguments: Any) -> Any:
    """The results of a traced function, which have the same bits with one thread and with three."""
    types = [lg.ir.types.Tensor(SCALARS[_NAMES[a.dtype.name]], a.shape) for a in map(np.asarray, arguments)]
    compiled = lg.ir.compile(lg.ir.trace(function, *types))
    set_threads(1)
    first = np.asarray(compiled(*arguments))
    set_threads(3)
    assert first.tobytes() == np.asarray(compiled(*arguments)).tobytes()
    return first


_NAMES = {"float32": "f32", "float64": "f64", "int32": "i32", "int64": "i64", "uint8": "u8", "bool": "bool"}


def numbers(dtype: Any, *shape: int) -> Any:
    return (RNG.standard_normal(shape) * 8).astype(dtype)


def rows(places: Any, count: int, columns: int) -> tuple[Any, Any]:
    return broadcast(places, shape=(count, columns), axes=(0,)), index_along((count, columns), 1)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "uint8"])
def test_rows_are_read_added_and_assigned_like_numpy(shape: tuple[int, int], dtype: str) -> None:
    n, d = shape
    count = 50
    table, values, at = numbers(dtype, n, d), numbers(dtype, count, d), RNG.integers(0, n, count)
    np.testing.assert_array_equal(results(lambda t, i: ops.lookup(t, *rows(i, count, d)), table, at), table[at])
    added, assigned = table.copy(), table.copy()
    np.add.at(added, at, values)
    assigned[at] = values
    found = results(lambda t, v, i: ops.scatter_add(t, v, *rows(i, count, d)), table, values, at)
    np.testing.assert_array_equal(found, added)
    found = results(lambda t, v, i: assign(t, v, *rows(i, count, d)), table, values, at)
    np.testing.assert_array_equal(found, assigned)


@pytest.mark.parametrize("size", [1, 5, 100, 5000])
def test_writes_to_repeated_indices_happen_in_order(size: int) -> None:
    count = 1003
    table, values, at = numbers("float32", size), numbers("float32", count), RNG.integers(0, size, count)
    added, assigned = table.copy(), table.copy()
    np.add.at(added, at, values)
    assigned[at] = values
    np.testing.assert_array_equal(results(lambda t, v, i: ops.scatter_add(t, v, i), table, values, at), added)
    np.testing.assert_array_equal(results(lambda t, v, i: assign(t, v, i), table, values, at), assigned)


@pytest.mark.parametrize("shape", [(10,), (7, 3)])
def test_sums_in_chunks_are_close_to_exact_sums(shape: tuple[int, ...]) -> None:
    count = 70_001
    values, at = numbers("float32", count, *shape[1:]), RNG.integers(0, shape[0], count)
    table = numbers("float32", *shape)
    exact = table.astype(np.float64)
    np.add.at(exact, at, values.astype(np.float64))
    indices = (lambda i: (i,)) if len(shape) == 1 else (lambda i: rows(i, count, shape[1]))
    found = results(lambda t, v, i: ops.scatter_add(t, v, *indices(i)), table, values, at)
    np.testing.assert_allclose(found, exact, rtol=1e-3, atol=1e-2)
    whole = values.astype(np.int32)
    total = table.astype(np.int32)
    found = results(lambda t, v, i: ops.scatter_add(t, v, *indices(i)), total, whole, at)
    np.add.at(total, at, whole)
    np.testing.assert_array_equal(found, total)


@pytest.mark.parametrize("count", [1, 9])
@pytest.mark.parametrize("shape", SHAPES)
def test_each_row_has_its_own_indices(shape: tuple[int, int], count: int) -> None:
    n, d = shape
    table, values, at = numbers("float64", n, d), numbers("float64", n, count), RNG.integers(0, d, (n, count))
    expected = table.copy()
    np.add.at(expected, (np.arange(n)[:, None], at), values)
    found = results(lambda t, v, i: ops.scatter_add(t, v, index_along((n, count), 0), i), table, values, at)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("write", [ops.scatter_add, assign], ids=["add", "assign"])
@pytest.mark.parametrize("count", [1, 40])
def test_an_index_out_of_range_is_reported_and_changes_nothing_else(write: Any, count: int) -> None:
    at = np.zeros(count, np.int64)
    at[-1] = 10

    def function(t: Any, v: Any, i: Any) -> Any:
        return write(t, v, i)

    with pytest.raises(KernelCheckError, match=f"axis 0, at element .*{__name__.rpartition('.')[2]}"):
        results(function, numbers("float32", 10), numbers("float32", count), at)


def test_an_index_of_rows_out_of_range_names_its_axis() -> None:
    at = np.array([3, 10, 4])
    with pytest.raises(KernelCheckError, match="out of range for axis 0"):
        results(lambda t, v, i: ops.scatter_add(t, v, *rows(i, 3, 6)), np.zeros((10, 6)), np.ones((3, 6)), at)


def test_an_index_out_of_range_is_reported_in_chunks() -> None:
    at = np.zeros(70_000, np.int64)
    at[60_000] = -1
    with pytest.raises(KernelCheckError, match="axis 0, at element 60000"):
        results(lambda t, v, i: ops.scatter_add(t, v, i), np.zeros(4), np.ones(70_000), at)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64", "uint8", "bool"])
def test_searchsorted_agrees_with_numpy(dtype: str, side: Any) -> None:
    values = np.abs(numbers("float64", 333)).astype(dtype)
    for size in (0, 1, 2, 3, 100):
        ordered = np.sort(np.abs(numbers("float64", size)).astype(dtype))
        found = results(lambda t, v: ops.searchsorted(t, v, side=side), ordered, values)
        np.testing.assert_array_equal(found, np.searchsorted(ordered, values, side))


@pytest.mark.parametrize("side", ["left", "right"])
def test_searchsorted_orders_nan_after_all_numbers(side: Any) -> None:
    ordered = np.array([-np.inf, -0.0, 0.0, 1.0, np.inf, np.nan, np.nan])
    values = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, 2.0])
    found = results(lambda t, v: ops.searchsorted(t, v, side=side), ordered, values)
    np.testing.assert_array_equal(found, np.searchsorted(ordered, values, side))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("shift", [(0, 0), (1, -1), (-2, 3), (200, 0), (0, 200)])
def test_neighbours_out_of_range_have_the_default_value(shape: tuple[int, int], shift: tuple[int, int]) -> None:
    table = numbers("float32", *shape)

    def shifted(t: Any) -> Any:
        places = [index_along(shape, axis) + by for axis, by in enumerate(shift)]
        return lookup_or(t, filled(7.0, t.type), *places)

    (a, b), (n, d) = shift, shape
    i, j = np.arange(n)[:, None] + a, np.arange(d)[None, :] + b
    inside = (i >= 0) & (i < n) & (j >= 0) & (j < d)
    expected = np.where(inside, table[np.clip(i, 0, n - 1), np.clip(j, 0, d - 1)], np.float32(7.0))
    np.testing.assert_array_equal(results(shifted, table), expected)


@pytest.mark.parametrize("shape", [(5, 4), (40, 70), (65, 130)])
def test_the_gradient_of_a_stencil_adds_shifted_neighbours(shape: tuple[int, int]) -> None:
    def stencil(x: Any) -> Any:
        return x[2:, 1:-1] + x[:-2, 1:-1] + x[1:-1, 2:] + x[1:-1, :-2] - x[1:-1, 1:-1] * 4.0

    x = numbers("float64", *shape)
    found = lg.grad(lambda x: lg.sum(stencil(x) ** 2))(lg.asarray(x)).numpy()
    twice, expected = 2.0 * stencil(x), np.zeros_like(x)
    expected[1:-1, 1:-1] -= 4.0 * twice
    expected[2:, 1:-1] += twice
    expected[:-2, 1:-1] += twice
    expected[1:-1, 2:] += twice
    expected[1:-1, :-2] += twice
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def test_checks_out_of_range_do_not_fail() -> None:
    x = np.arange(1, 9)

    def function(i: Any) -> Any:
        quotients = i[1:] // i[:-1]
        result = i * 0
        result[1:] = quotients
        return result + i

    expected = x.copy()
    expected[1:] += x[1:] // x[:-1]
    np.testing.assert_array_equal(lg.jit(function)(lg.asarray(x)).numpy(), expected)
