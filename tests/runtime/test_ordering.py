"""Kernels sort short rows, and select the first few elements of long ones, in the order of NumPy's stable sort."""

from typing import Any

import numpy as np
import pytest

import livegrad as lg
from livegrad.ir.function import trace
from livegrad.ir.types import Tensor, f32, i64
from livegrad.ops.sorting import argsort, sort, top_positions
from livegrad.runtime.cpu import compile_function
from livegrad.runtime.cpu.native.ordering import kernel_for
from livegrad.runtime.cpu.native.pool import set_threads, threads

RNG = np.random.default_rng(7)
SHAPES = [(1,), (2,), (15,), (16,), (17,), (100,), (128,), (5, 33), (40, 7, 9), (2, 129), (4, 700)]


def draw(shape: tuple[int, ...], dtype: str) -> Any:
    """Repeated numbers, with the extremes of the type; floats with zeros, NaN and infinities of both signs."""
    if dtype.startswith("float"):
        special = np.array([0.0, -0.0, np.nan, -np.nan, np.inf, -np.inf, 1.0, 2.0])
        return np.where(RNG.random(shape) < 0.4, RNG.choice(special, shape), RNG.standard_normal(shape)).astype(dtype)
    limits = np.iinfo(dtype)
    special = RNG.choice([limits.min, limits.max], shape)
    return np.where(RNG.random(shape) < 0.2, special, RNG.integers(-9, 9, shape)).astype(dtype)


def stable_order(x: Any, axis: int, descending: bool) -> Any:
    if not descending:
        return np.argsort(x, axis=axis, stable=True)
    return x.shape[axis] - 1 - np.flip(np.argsort(np.flip(x, axis), axis=axis, stable=True), axis)


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
@pytest.mark.parametrize("shape", SHAPES)
def test_rows_along_any_axis_are_ordered_as_by_a_stable_sort(shape: Any, dtype: str, descending: bool) -> None:
    x = draw(shape, dtype)
    for axis in range(len(shape)):
        order = stable_order(x, axis, descending)
        actual = lg.argsort(lg.asarray(x), axis=axis, descending=descending).numpy()
        np.testing.assert_array_equal(actual, order)
        values = lg.sort(lg.asarray(x), axis=axis, descending=descending).numpy()
        np.testing.assert_array_equal(values, np.take_along_axis(x, order, axis))
        for count in {1, 2, 5, 30} & set(range(shape[axis] + 1)):
            _, positions = lg.top_k(lg.asarray(x), count, axis=axis, largest=descending)
            np.testing.assert_array_equal(positions.numpy(), order.take(range(count), axis))


def test_orderings_have_no_host_steps() -> None:
    short, long = Tensor(f32, (50, 30)), Tensor(i64, (50, 900))
    order = {"axis": 1, "descending": True, "stable": True}
    for function, x in (
        (trace(lambda x: sort(x, **order), short), draw((50, 30), "float32")),
        (trace(lambda x: argsort(x, **order), short), draw((50, 30), "float32")),
        (trace(lambda x: top_positions(x, axis=1, count=20, largest=True), long), draw((50, 900), "int64")),
    ):
        compiled = compile_function(function)
        compiled(x)
        assert compiled.plan().only_kernels


def test_bits_do_not_depend_on_the_number_of_threads() -> None:
    x, before, results = lg.asarray(draw((3000, 40), "float32")), threads(), []
    for count in (1, 2, 3):
        set_threads(count)
        results.append(lg.jit(lg.argsort)(x).numpy().tobytes())
    set_threads(before)
    assert len(set(results)) == 1


@pytest.mark.parametrize("count", [1, 4, 7, 31])
@pytest.mark.parametrize("length", [8, 23, 24, 30, 127, 129])
def test_the_first_few_of_a_row_are_searched_and_not_ranked(length: int, count: int) -> None:
    few = length >= 24 and 4 * count < length
    kernel = kernel_for(length, count, wants_values=False, is_contiguous=True)
    assert kernel == ("top_positions" if few else "rank_positions" if length <= 128 else None)
    if count < length:
        x = draw((6, length), "float64")
        for largest in (False, True):
            _, positions = lg.top_k(lg.asarray(x), count, largest=largest)
            np.testing.assert_array_equal(positions.numpy(), stable_order(x, 1, largest)[:, :count])
