"""Search, sorting and sets: NumPy's results, livegrad's types and errors, and early execution, which is counted."""

from typing import Any

import numpy as np
import pytest

import livegrad as lg

REALS = ("bool", "int8", "uint16", "int64", "float32", "float64")


def ties(dtype: str, shape: tuple[int, ...] = (4, 6)) -> Any:
    return np.random.default_rng(0).integers(0, 2 if dtype == "bool" else 5, shape).astype(dtype)


def assert_same(found: lg.Tensor, expected: Any) -> None:
    value = found.numpy()
    assert (value.dtype, value.shape) == (expected.dtype, expected.shape)
    np.testing.assert_array_equal(value, expected)


# --- positions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", REALS)
@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_indices_of_extrema_match_numpy(name: str, dtype: str) -> None:
    x = ties(dtype)
    for axis, keepdims in ((None, True), (0, False), (-1, True)) if dtype == "float32" else ((-1, False),):
        expected = np.asarray(getattr(np, name)(x, axis=axis, keepdims=keepdims))
        assert_same(getattr(lg, name)(lg.asarray(x), axis=axis, keepdims=keepdims), expected)


def test_the_first_nan_is_the_extremum() -> None:
    x = lg.asarray([1.0, np.nan, 3.0, np.nan])
    assert (int(lg.argmax(x)), int(lg.argmin(x))) == (1, 1)


def test_complex_numbers_have_no_order() -> None:
    x = lg.asarray([1j, 2.0])
    with pytest.raises(lg.LivegradError, match=r"test_searching.py"):
        lg.argmax(x)
    with pytest.raises(lg.DtypeError, match=r"`sort` does not support c64 \(test_searching.py"):
        lg.sort(x)
    with pytest.raises(lg.LivegradError):
        lg.searchsorted(x, x)


@pytest.mark.parametrize("dtype", [*REALS, "complex64"])
def test_nonzero_elements_are_found_in_order(dtype: str) -> None:
    x = (ties("int64") % 2).astype(dtype)
    for found, expected in zip(lg.nonzero(lg.asarray(x)), np.nonzero(x), strict=True):
        assert_same(found, expected)
    assert [part.shape for part in lg.nonzero(lg.zeros((0, 3)))] == [(0,), (0,)]


def test_nonzero_of_a_number_raises() -> None:
    with pytest.raises(lg.ShapeError, match=r"takes a tensor with dimensions \(test_searching.py"):
        lg.nonzero(lg.asarray(1))


@pytest.mark.parametrize("function", [lambda x: lg.nonzero(x)[0], lg.unique_values, lambda x: lg.unique_all(x).counts])
def test_shapes_that_depend_on_data_cannot_be_traced(function: Any) -> None:
    with pytest.raises(lg.UsageError, match=r"not known while a function is being traced.*test_searching.py"):
        lg.jit(function)(lg.asarray([1.0, 0.0]))


@pytest.mark.parametrize("dtype", ["int16", "uint8", "float32", "float64"])
@pytest.mark.parametrize("side", ["left", "right"])
def test_searchsorted_matches_numpy(side: Any, dtype: str) -> None:
    order, values = np.sort(ties(dtype, (9,))), ties(dtype, (2, 5))
    assert_same(lg.searchsorted(lg.asarray(order), lg.asarray(values), side=side), np.searchsorted(order, values, side))
    mixed = ties(dtype, (9,))
    sorter = np.argsort(mixed)
    found = lg.searchsorted(lg.asarray(mixed), lg.asarray(values), side=side, sorter=lg.asarray(sorter))
    assert_same(found, np.searchsorted(mixed, values, side, sorter))


def test_a_number_may_be_searched_for() -> None:
    order = lg.asarray([1, 3, 5])
    assert int(lg.searchsorted(order, 3)) == 1
    assert int(lg.searchsorted(order, 3.5)) == 2  # in float32, and not cut to 3
    with pytest.raises(lg.UsageError, match="has no side 'middle'"):
        lg.searchsorted(order, 3, side="middle")
    with pytest.raises(lg.ShapeError, match="takes a one-dimensional tensor"):
        lg.searchsorted(lg.zeros((2, 2)), 1.0)


# --- sorting ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", REALS)
@pytest.mark.parametrize("descending", [False, True])
def test_sorted_tensors_match_numpy(descending: bool, dtype: str) -> None:
    x = ties(dtype)
    for axis in (0, -1):
        ordered = np.sort(x, axis=axis)
        expected = np.flip(ordered, axis) if descending else ordered
        assert_same(lg.sort(lg.asarray(x), axis=axis, descending=descending), expected)
        order = lg.argsort(lg.asarray(x), axis=axis, descending=descending)
        np.testing.assert_array_equal(np.take_along_axis(x, order.numpy(), axis), expected)
        # Sorting is stable in both directions.
        key = x.astype(np.int64) * (-1 if descending else 1)
        assert_same(order, np.argsort(key, axis=axis, stable=True))


def test_nan_sorts_as_the_greatest_number() -> None:
    x = lg.asarray([np.nan, 2.0, -np.inf, 1.0])
    np.testing.assert_array_equal(lg.sort(x).numpy(), [-np.inf, 1.0, 2.0, np.nan])
    np.testing.assert_array_equal(lg.sort(x, descending=True).numpy(), [np.nan, 2.0, 1.0, -np.inf])


def test_the_largest_and_smallest_come_with_their_positions() -> None:
    x = np.random.default_rng(1).permutation(24).reshape(4, 6).astype(np.float32)
    for axis in (0, 1):
        values, positions = lg.top_k(lg.asarray(x), 3, axis=axis)
        np.testing.assert_array_equal(values.numpy(), np.take(np.flip(np.sort(x, axis), axis), range(3), axis))
        np.testing.assert_array_equal(np.take_along_axis(x, positions.numpy(), axis), values.numpy())
        smallest, _ = lg.top_k(lg.asarray(x), 2, axis=axis, largest=False)
        np.testing.assert_array_equal(smallest.numpy(), np.take(np.sort(x, axis), range(2), axis))
    with pytest.raises(lg.LivegradError, match="`top_k` cannot take 7 elements"):
        lg.top_k(lg.asarray(x), 7)
    with pytest.raises(lg.UsageError, match="takes an integer"):
        lg.top_k(lg.asarray(x), 1.5)  # type: ignore[arg-type]


def test_sorting_hands_derivatives_to_the_elements() -> None:
    x = np.random.default_rng(2).permutation(12).reshape(3, 4) * 0.3
    lg.check_gradients(lambda x: lg.sort(x, axis=0, descending=True) ** 2, x)
    lg.check_gradients(lambda x: lg.top_k(x, 2)[0] ** 2, x)
    weights = lg.asarray([1.0, 10.0, 100.0])
    gradient = lg.grad(lambda x: lg.sum(lg.sort(x) * weights))(lg.asarray([5.0, 3.0, 4.0]))
    assert gradient.tolist() == [100.0, 1.0, 10.0]


# --- sets ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [*REALS, "complex64"])
def test_unique_elements_match_numpy(dtype: str) -> None:
    x = ties(dtype)
    found = lg.unique_all(lg.asarray(x))
    values, indices, inverse, counts = np.unique(x, return_index=True, return_inverse=True, return_counts=True)
    for part, expected in zip(found, (values, indices, inverse.reshape(x.shape), counts), strict=True):
        assert_same(part, expected)
    assert_same(lg.unique_values(lg.asarray(x)), values)
    assert_same(lg.unique_counts(lg.asarray(x)).counts, counts)
    assert_same(lg.unique_inverse(lg.asarray(x)).inverse_indices, inverse.reshape(x.shape))


def test_every_nan_is_different() -> None:
    found = lg.unique_all(lg.asarray([np.nan, 1.0, np.nan, 0.0, -0.0]))
    np.testing.assert_array_equal(found.values.numpy(), [0.0, 1.0, np.nan, np.nan])
    assert found.counts.tolist() == [2, 1, 1, 1]


def test_nothing_has_no_different_elements() -> None:
    assert lg.unique_values(lg.zeros((0, 3))).shape == (0,)


def test_different_elements_have_the_derivative_of_those_that_are_taken() -> None:
    x = lg.asarray([3.0, 1.0, 3.0]).requires_grad_()
    loss = lg.sum(lg.unique_values(x * 2.0) * lg.asarray([10.0, 1.0]))
    loss.backward()
    assert x.grad is not None
    assert x.grad.tolist() == [2.0, 20.0, 0.0]


@pytest.mark.parametrize("dtype", ["int8", "uint16", "float32", "complex64"])
@pytest.mark.parametrize("count", [0, 3, 100])
def test_membership_is_that_of_numpy(count: int, dtype: str) -> None:
    rng = np.random.default_rng(3)
    x, among = (rng.integers(0, 120, shape).astype(dtype) for shape in ((5, 7), (count,)))
    assert_same(lg.isin(lg.asarray(x), lg.asarray(among)), np.isin(x, among))
    assert_same(lg.isin(lg.asarray(x), lg.asarray(among), invert=True), ~np.isin(x, among))


def test_membership_takes_numbers_and_finds_no_nan() -> None:
    assert lg.isin(lg.asarray([1, 2]), 2).tolist() == [False, True]
    assert bool(lg.isin(2, lg.asarray([1, 2])))
    many = lg.asarray([np.nan] * 50)
    assert lg.isin(lg.asarray([np.nan, 1.0]), many).tolist() == [False, False]


@pytest.mark.parametrize("dtype", ["int8", "int64", "uint32", "float32", "float64", "bool"])
@pytest.mark.parametrize("distinct", [1, 3, 40, 4000])
def test_unique_elements_match_numpy_for_any_repetition(dtype: str, distinct: int) -> None:
    rng = np.random.default_rng(distinct)
    x = rng.integers(-distinct, distinct, (40, 50)).astype(dtype)
    if dtype.startswith("float"):
        x[x == 1] = -0.0  # equal to 0
    expected = np.unique(x, return_index=True, return_inverse=True, return_counts=True, equal_nan=False)
    for ours, theirs in zip(lg.unique_all(lg.asarray(x)), expected, strict=True):
        assert ours.numpy().tobytes() == theirs.astype(ours.numpy().dtype).tobytes()


def test_each_nan_is_unique_among_elements_that_repeat() -> None:
    x = np.tile(np.array([2, np.nan, 1, 2], np.float32), 30)
    found = lg.unique_all(lg.asarray(x))
    assert found.counts.numpy().tolist() == [30, 60, *[1] * 30]
    assert found.indices.numpy()[:2].tolist() == [2, 0]
