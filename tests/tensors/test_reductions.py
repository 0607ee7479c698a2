"""Reductions, scans and differences: NumPy's values, livegrad's types and errors, derivatives."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import livegrad as lg
from livegrad.ir.types import Tensor as TensorType
from livegrad.tensors.handle import wrap

DTYPES = ("int8", "int32", "int64", "uint8", "uint64", "float16", "float32", "float64", "complex64", "complex128")
AXES = (None, 0, -1, (2, 0), ())


def numbers(dtype: str, shape: tuple[int, ...] = (3, 4, 5), seed: int = 0) -> Any:
    """Small integers of either sign: their sums and products are exact in every type."""
    rng = np.random.default_rng(seed)
    values = rng.integers(1 if dtype.startswith("uint") else -2, 3, shape)
    if dtype.startswith("complex"):
        return (values + 1j * rng.integers(-2, 3, shape)).astype(dtype)
    return values.astype(dtype)


def assert_same(found: lg.Tensor, expected: Any, tolerance: float = 0.0) -> None:
    value = found.numpy()
    assert value.dtype == expected.dtype
    assert value.shape == expected.shape
    np.testing.assert_allclose(value, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["sum", "prod"])
def test_sums_and_products_match_numpy(name: str, dtype: str) -> None:
    x = numbers(dtype)
    for axis in AXES if dtype == "float64" else ((2, 0),):  # every axis is another kernel to compile
        expected = getattr(np, name)(x, axis=axis, keepdims=True)
        found = getattr(lg, name)(lg.asarray(x), axis=axis, keepdims=True)
        # Products of sixty small complex numbers accumulate rounding errors.
        assert_same(found, expected, 1e-5 if dtype.startswith("complex") or dtype == "float16" else 0.0)


def test_sums_take_the_requested_type() -> None:
    x = lg.asarray(np.full(300, 100, np.int8))
    assert int(lg.sum(x)) == 30_000
    assert lg.sum(x).dtype == lg.int64
    assert lg.sum(lg.astype(x, lg.uint8)).dtype == lg.uint64
    assert lg.sum(x, dtype=lg.float64).dtype == lg.float64
    assert int(lg.sum(lg.asarray([True, True]))) == 2
    assert lg.sum(x, dtype=lg.int8).dtype == lg.int8


@pytest.mark.parametrize("dtype", ["int8", "uint64", "float16", "float32", "float64"])
@pytest.mark.parametrize("name", ["max", "min"])
def test_extrema_match_numpy(name: str, dtype: str) -> None:
    x = numbers(dtype)
    for axis in (None, 0, (0, 2)) if dtype == "float32" else (-1,):
        assert_same(getattr(lg, name)(lg.asarray(x), axis=axis), np.asarray(getattr(np, name)(x, axis=axis)))


def test_an_extremum_of_two_tensors_compares_each_pair() -> None:
    x, y = lg.asarray([1.0, 5.0, np.nan]), lg.asarray([[3.0], [4.0]])
    np.testing.assert_array_equal(lg.max(x, y).numpy(), np.maximum(x.numpy(), y.numpy()))
    np.testing.assert_array_equal(lg.min(x, 2).numpy(), np.minimum(x.numpy(), np.float32(2)))
    with pytest.raises(lg.UsageError, match=r"compares element by element \(test_reductions.py"):
        lg.max(x, y, axis=0)


def test_extrema_of_truth_values_are_any_and_all() -> None:
    x = lg.asarray([[True, False], [True, True]])
    assert lg.max(x, axis=1).tolist() == [True, True]
    assert lg.min(x, axis=1).tolist() == [False, True]


def test_there_is_no_extremum_of_nothing() -> None:
    with pytest.raises(lg.LivegradError, match=r"cannot compute the max of an empty tensor.*test_reductions.py"):
        lg.max(lg.zeros((0, 3)), axis=0)
    assert lg.max(lg.zeros((0, 3)), axis=1).shape == (0,)


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
def test_means_and_variances_match_numpy(dtype: str) -> None:
    x = numbers(dtype, seed=1)
    tolerance = 1e-6 if dtype in ("float32", "complex64") else 1e-14
    for axis in (None, (0, 2)) if dtype == "float64" else (-1,):
        tensor = lg.asarray(x)
        assert_same(lg.mean(tensor, axis=axis), np.asarray(np.mean(x, axis=axis)), tolerance)
        for correction in (0, 2.5):
            expected = np.var(x, axis=axis, ddof=correction)
            assert_same(lg.var(tensor, axis=axis, correction=correction), np.asarray(expected), 10 * tolerance)
        expected = np.std(x, axis=axis, ddof=1, keepdims=True)
        assert_same(lg.std(tensor, axis=axis, correction=1, keepdims=True), np.asarray(expected), 10 * tolerance)


def test_a_mean_of_half_floats_does_not_overflow() -> None:
    x = lg.asarray(np.full(1000, 60_000, np.float16))
    assert float(lg.mean(x)) == 60_000.0
    assert lg.mean(x).dtype == lg.float16
    assert float(lg.var(x)) == 0.0


def test_a_mean_of_integers_is_a_float() -> None:
    assert lg.mean(lg.asarray([1, 2])).dtype == lg.float32
    assert float(lg.mean(lg.asarray([1, 2]))) == 1.5


def test_a_mean_of_nothing_and_a_variance_without_freedom_are_nan() -> None:
    assert np.isnan(lg.mean(lg.zeros(0)).numpy())
    assert np.isnan(lg.mean(lg.zeros(0, dtype=lg.complex64)).numpy())
    assert np.isnan(lg.var(lg.asarray([1.0, 2.0]), correction=2).numpy())
    assert np.isnan(lg.var(lg.asarray([1.0, 2.0]), correction=3).numpy())


@pytest.mark.parametrize("dtype", ["bool", "int16", "float32", "complex64"])
def test_any_all_and_counts_match_numpy(dtype: str) -> None:
    x = np.random.default_rng(2).integers(0, 2, (3, 4, 5)).astype(dtype)
    for axis in AXES if dtype == "bool" else ((2, 0),):
        assert_same(lg.all(lg.asarray(x), axis=axis), np.asarray(np.all(x, axis=axis)))
        assert_same(lg.any(lg.asarray(x), axis=axis, keepdims=True), np.any(x, axis=axis, keepdims=True))
        assert_same(lg.count_nonzero(lg.asarray(x), axis=axis), np.asarray(np.count_nonzero(x, axis=axis)))


def test_nan_is_true_and_nothing_is_all_but_not_any() -> None:
    assert bool(lg.all(lg.asarray([np.nan, 1j])))
    assert bool(lg.all(lg.zeros(0)))
    assert not bool(lg.any(lg.zeros(0)))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["sum", "prod"])
def test_scans_match_numpy(name: str, dtype: str) -> None:
    x = numbers(dtype, (4, 6))
    for axis in (0, -1) if dtype == "float64" else (0,):
        expected = getattr(np, f"cum{name}")(x, axis=axis)
        assert_same(getattr(lg, f"cumulative_{name}")(lg.asarray(x), axis=axis), expected)
        found = getattr(lg, f"cumulative_{name}")(lg.asarray(x), axis=axis, include_initial=True).numpy()
        first = np.full_like(np.take(expected, [0], axis), 0 if name == "sum" else 1)
        np.testing.assert_array_equal(found, np.concatenate([first, expected], axis))


def test_a_running_fold_needs_to_know_its_axis() -> None:
    with pytest.raises(lg.UsageError, match=r"2 dimensions needs an axis \(test_reductions.py"):
        lg.cumulative_sum(lg.zeros((2, 3)))


@pytest.mark.parametrize("dtype", ["int32", "uint8", "float64", "complex64"])
def test_differences_match_numpy(dtype: str) -> None:
    x, before, behind = numbers(dtype, (4, 6)), numbers(dtype, (2, 6), 1), numbers(dtype, (1, 6), 2)
    for n in (0, 1, 3, 6) if dtype == "int32" else (1,):
        assert_same(lg.diff(lg.asarray(x), n=n, axis=0), np.diff(x, n=n, axis=0))
    found = lg.diff(lg.asarray(x), axis=0, prepend=lg.asarray(before), append=lg.asarray(behind))
    assert_same(found, np.diff(x, axis=0, prepend=before, append=behind))
    assert_same(lg.diff(lg.asarray(x), prepend=0), np.diff(x, prepend=x.dtype.type(0)))


def test_differences_reject_mismatched_ends() -> None:
    x = lg.zeros((2, 3))
    with pytest.raises(lg.ShapeError, match=r"cannot join shapes \(2, 1\) and \(2, 3\) along axis 0"):
        lg.diff(x, axis=0, prepend=lg.zeros((2, 1)))
    with pytest.raises(lg.DtypeError, match="of the tensor's type"):
        lg.diff(x, prepend=lg.zeros((2, 1), dtype=lg.float64))
    with pytest.raises(lg.UsageError, match="n is too small"):
        lg.diff(x, n=-1)


@pytest.mark.parametrize("fold", [lg.sum, lg.prod, lg.max, lg.mean, lg.std, lg.all, lg.count_nonzero])
def test_a_wrong_axis_raises_at_the_call(fold: Callable[..., Any]) -> None:
    with pytest.raises(lg.AxisError, match=r"no axis 2 \(test_reductions.py:\d+:\d+\): expected -2 to 1"):
        fold(lg.ones((2, 3)), axis=2)
    with pytest.raises(lg.AxisError, match="repeated axis"):
        fold(lg.ones((2, 3)), axis=(0, -2))
    with pytest.raises(lg.AxisError):
        fold(lg.ones((2, 3)), axis=0.5)


# --- derivatives -----------------------------------------------------------------------------------------------------

FOLDS: dict[str, Callable[[lg.Tensor], Any]] = {
    "sum": lambda x: lg.sum(x, axis=0),
    "prod": lambda x: lg.prod(x, axis=(0, 1)),
    "max": lambda x: lg.max(x, axis=1),
    "min": lambda x: lg.min(x, axis=0, keepdims=True),
    "max of two": lambda x: lg.max(x, 0.5 * x + 0.1),
    "mean": lambda x: lg.mean(x, axis=1),
    "var": lambda x: lg.var(x, axis=0, correction=1),
    "std": lambda x: lg.std(x),
    "cumulative_sum": lambda x: lg.cumulative_sum(x, axis=1, include_initial=True),
    "cumulative_prod": lambda x: lg.cumulative_prod(x, axis=0),
    "diff": lambda x: lg.diff(x, n=2, prepend=x),
}


@pytest.mark.parametrize("name", FOLDS)
def test_folds_have_the_derivative_of_finite_differences(name: str) -> None:
    x = np.random.default_rng(3).standard_normal((3, 4))
    lg.check_gradients(FOLDS[name], x)


@pytest.mark.parametrize("name", ["prod", "std", "cumulative_prod"])
def test_folds_have_second_derivatives(name: str) -> None:
    x = np.random.default_rng(3).standard_normal((3, 4))
    lg.check_gradients(lg.grad(lambda z: lg.sum(FOLDS[name](z) ** 2)), x)


def test_elements_that_tie_for_an_extremum_share_its_derivative() -> None:
    gradient = lg.grad(lambda x: lg.max(x))(lg.asarray([1.0, 2.0, 2.0]))
    assert gradient.tolist() == [0.0, 0.5, 0.5]


# --- sizes known at run time, and kernels ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["mean", "var", "std"])
def test_means_take_sizes_that_are_known_at_run_time(name: str) -> None:
    fold = getattr(lg, name)
    type = TensorType(lg.f64, (lg.ir.Dimension.symbol("n"), 3))
    compiled = lg.ir.compile(lg.ir.trace(lambda x: fold(wrap(x), axis=0).node, type))
    for rows in (2, 5):
        x = np.random.default_rng(rows).standard_normal((rows, 3))
        np.testing.assert_allclose(compiled(x), getattr(np, name)(x, axis=0), rtol=1e-12)


@pytest.mark.parametrize("fold", [lg.mean, lg.var, lg.std, lg.count_nonzero])
def test_a_reduction_is_one_kernel(fold: Callable[..., Any]) -> None:
    x = lg.asarray(np.random.default_rng(4).standard_normal((32, 64)))
    lg.reset_stats()
    fold(x, axis=1).execute()
    assert (lg.stats().kernels_run, lg.stats().library_calls) == (1, 0)
