"""Edge cases of `nextafter`, signed zeros, sums of exponentials and integer powers."""

import math
from typing import Any

import numpy as np
import pytest

from livegrad.diagnostics import KernelCheckError
from livegrad.ir.function import trace
from livegrad.ir.types import Scalar, Tensor, Vector, f16, f32, f64, i8, i32, i64, u8, u64
from livegrad.ops.floating import integer_pow, logaddexp, nextafter, signbit
from livegrad.runtime.cpu import run_function
from livegrad.runtime.reference import evaluate
from tests.differentiate.checks import check_orders, gradient_of

BACKENDS = pytest.mark.parametrize("run", [evaluate, run_function], ids=["reference", "cpu"])


def on(run: Any, op: Any, type: Scalar, *columns: list[Any]) -> Any:
    arrays = [np.array(column, type.dtype) for column in columns]
    return run(trace(op, *[Tensor(type, array.shape) for array in arrays]), *arrays)


@BACKENDS
@pytest.mark.parametrize("type", [f16, f32, f64], ids=str)
def test_the_next_number_is_one_bit_away(run: Any, type: Scalar) -> None:
    info = np.finfo(type.dtype)
    least = float(info.smallest_subnormal)
    starts = [1.0, 1.0, -1.0, 0.0, -0.0, least, float(info.max), math.inf, math.nan, 1.0, 0.0, -0.0]
    towards = [2.0, 0.0, 0.0, 1.0, -1.0, -1.0, math.inf, 0.0, 1.0, math.nan, -0.0, 0.0]
    expected = [1.0 + float(info.eps), 1.0 - float(info.epsneg), -1.0 + float(info.epsneg), least, -least]
    expected += [0.0, math.inf, float(info.max), math.nan, math.nan, -0.0, 0.0]
    actual = on(run, nextafter, type, starts, towards)
    np.testing.assert_array_equal(actual, np.array(expected, type.dtype))
    np.testing.assert_array_equal(np.signbit(actual[-2:]), [True, False])


@BACKENDS
def test_the_sign_bit_of_a_zero_and_of_a_nan_is_seen(run: Any) -> None:
    values = [0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, math.copysign(math.nan, -1.0)]
    np.testing.assert_array_equal(on(run, signbit, f64, values), [False, True] * 4)


@BACKENDS
def test_a_sum_of_exponentials_neither_overflows_nor_loses_infinities(run: Any) -> None:
    inf = math.inf
    a = [1000.0, -1000.0, inf, -inf, -inf, inf, inf, 0.0, math.nan]
    b = [1000.0, -1001.0, inf, -inf, 3.0, -inf, 3.0, 0.0, 1.0]
    expected = [1000 + math.log(2), -1000 + math.log1p(math.exp(-1)), inf, -inf, 3.0, inf, inf, math.log(2), math.nan]
    np.testing.assert_allclose(on(run, logaddexp, f64, a, b), expected, rtol=1e-15)


@pytest.mark.parametrize(("a", "b"), [(0.3, -0.4), (-0.5, -0.5), (0.0, 20.0), (-800.0, 10.0)])
def test_a_sum_of_exponentials_has_all_derivatives(a: float, b: float) -> None:
    check_orders(trace(logaddexp, f64, f64), (a, b), order=3)


def test_equal_infinities_share_the_derivative() -> None:
    function = trace(logaddexp, f64, f64)
    for value in (math.inf, -math.inf):
        assert gradient_of(function, value, value) == (0.5, 0.5)
    assert gradient_of(function, -math.inf, 1.0) == (0.0, 1.0)


@BACKENDS
@pytest.mark.parametrize("type", [i8, i32, i64, u8, u64], ids=str)
def test_powers_of_integers_wrap_like_products(run: Any, type: Scalar) -> None:
    bases = [0, 0, 1, 2, 2, 3, 7, 255 if type.kind == "unsigned" else -1, 127, 5]
    exponents = [0, 3, 100, type.bits - 1, type.bits, 5, 2, 3, 127, 1]
    wrapped = [pow(b, e) % (1 << type.bits) for b, e in zip(bases, exponents, strict=True)]
    expected = np.array(wrapped, f"u{type.bits // 8}").view(type.dtype)
    np.testing.assert_array_equal(on(run, integer_pow, type, bases, exponents), expected)


@BACKENDS
def test_a_negative_power_of_an_integer_is_an_error_with_a_place(run: Any) -> None:
    with pytest.raises(KernelCheckError, match="an integer to a negative power") as caught:
        on(run, integer_pow, i64, [2, 2], [3, -1])
    assert caught.value.where is not None
    assert caught.value.where.file.endswith("test_floating.py")
    vectors = trace(integer_pow, Vector(i32, 2), Vector(i32, 2))
    with pytest.raises(KernelCheckError, match="an integer to a negative power"):
        run(vectors, np.array([2, 2], np.int32), np.array([-1, 1], np.int32))
