"""What ops mean where languages differ: division of negative numbers, rounding of halves, shifts that are too wide,
casts that cannot be made, and the bits of the random numbers."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from livegrad.diagnostics import KernelCheckError, TypeRuleError
from livegrad.ir.function import trace
from livegrad.ir.node import Node
from livegrad.ir.types import Scalar, Tensor, f16, f32, f64, i8, i32, i64, u8, u64
from livegrad.ops.comparison import shift_left, shift_right
from livegrad.ops.conversion import cast
from livegrad.ops.elementwise import fmod, max, maximum, min, minimum, round, sign
from livegrad.ops.random import random_bits, random_normal, random_uniform
from livegrad.runtime.reference import evaluate

finite = st.floats(-1e6, 1e6)
nonzero = finite.filter(lambda x: abs(x) > 1e-6)


def of(op: Any, *types: Scalar) -> Any:
    function = trace(op, *types)
    return lambda *values: evaluate(function, *values)


@given(st.integers(-(2**31), 2**31 - 1), st.integers(-(2**31), 2**31 - 1).filter(bool))
def test_integer_division_and_remainder_are_python_s(a: int, b: int) -> None:
    assert int(of(lambda x, y: x // y, i64, i64)(a, b)) == a // b
    assert int(of(lambda x, y: x % y, i64, i64)(a, b)) == a % b


@given(finite, nonzero)
def test_float_division_and_remainder_are_python_s(a: float, b: float) -> None:
    assert float(of(lambda x, y: x // y, f64, f64)(a, b)) == a // b
    assert float(of(lambda x, y: x % y, f64, f64)(a, b)) == a % b
    assert float(of(fmod, f64, f64)(a, b)) == math.fmod(a, b)


@given(st.floats(), st.floats())
def test_min_and_max_are_python_s_even_with_nan(a: float, b: float) -> None:
    assert same_float(of(min, f64, f64)(a, b), b if b < a else a)
    assert same_float(of(max, f64, f64)(a, b), b if b > a else a)


def same_float(a: Any, b: float) -> bool:
    return bool(float(a) == b or (math.isnan(a) and math.isnan(b)))


@pytest.mark.parametrize("op", [minimum, maximum], ids=str)
def test_minimum_and_maximum_give_nan_for_any_nan(op: Any) -> None:
    assert np.isnan(of(op, f64, f64)(math.nan, 1.0))
    assert np.isnan(of(op, f64, f64)(1.0, math.nan))


@pytest.mark.parametrize(("x", "expected"), [(0.5, 0.0), (1.5, 2.0), (2.5, 2.0), (-0.5, -0.0), (-1.5, -2.0)])
def test_halves_round_to_even(x: float, expected: float) -> None:
    result = float(of(round, f64)(x))
    assert (result, math.copysign(1, result)) == (expected, math.copysign(1, expected))


@pytest.mark.parametrize("x", [0.0, -0.0, math.nan])
def test_a_zero_or_nan_is_its_own_sign(x: float) -> None:
    result = float(of(sign, f64)(x))
    assert same_float(result, x)
    assert math.copysign(1, result) == math.copysign(1, x) or math.isnan(x)


@pytest.mark.parametrize("count", [8, 9, 100, -1, -128])
def test_a_shift_by_the_width_or_more_leaves_only_the_sign(count: int) -> None:
    assert int(of(shift_left, i8, i8)(5, count)) == 0
    assert int(of(shift_right, i8, i8)(5, count)) == 0
    assert int(of(shift_right, i8, i8)(-5, count)) == -1


@pytest.mark.parametrize(("a", "b", "quotient", "remainder"), [(-128, -1, -128, 0), (-128, 3, -43, 1)])
def test_the_one_quotient_that_does_not_fit_wraps(a: int, b: int, quotient: int, remainder: int) -> None:
    assert int(of(lambda x, y: x // y, i8, i8)(a, b)) == quotient
    assert int(of(lambda x, y: x % y, i8, i8)(a, b)) == remainder


@pytest.mark.parametrize(
    ("value", "source", "target"),
    [(math.nan, f64, i32), (math.inf, f32, i64), (128.0, f64, i8), (-1.0, f64, u8), (2.0**63, f64, i64)],
)
def test_a_float_that_an_integer_cannot_hold_is_an_error(value: float, source: Scalar, target: Scalar) -> None:
    with pytest.raises(KernelCheckError, match=f"a value does not fit {target}"):
        of(lambda x: cast(x, type=target), source)(value)


@pytest.mark.parametrize(
    ("value", "source", "target", "expected"),
    [
        (-0.9, f64, u8, 0),
        (127.9, f64, i8, 127),
        (300, i32, u8, 44),
        (-1, i32, u64, 2**64 - 1),
        (70000, i32, f16, math.inf),
    ],
)
def test_casts_that_can_be_made(value: float, source: Scalar, target: Scalar, expected: float) -> None:
    assert of(lambda x: cast(x, type=target), source)(value) == expected


# --- random numbers --------------------------------------------------------------------------------------------------

Halves = tuple[int, int]


def joined(halves: Halves) -> int:
    low, high = halves
    return low | high << 32


@pytest.mark.parametrize(
    ("key", "counter", "bits"),
    [
        ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
        ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
    ],
)
def test_random_bits_are_those_of_threefry(key: Halves, counter: Halves, bits: Halves) -> None:
    """The known answers of the Random123 library for threefry2x32 with twenty rounds."""
    assert int(of(random_bits, u64, u64)(joined(key), joined(counter))) == joined(bits)


def sample(draw: Any, type: Scalar) -> Any:
    counters = Tensor(u64, (20_000,))
    function = trace(lambda key, counter: draw(key, counter, type), counters, counters)
    return evaluate(function, np.full(20_000, 7, np.uint64), np.arange(20_000, dtype=np.uint64))


@pytest.mark.parametrize("type", [f16, f32, f64], ids=str)
def test_uniform_numbers_fill_the_unit_interval_without_its_end(type: Scalar) -> None:
    numbers = sample(random_uniform, type).astype(np.float64)
    assert numbers.min() >= 0.0
    assert numbers.max() < 1.0
    assert abs(numbers.mean() - 0.5) < 0.01
    assert abs(numbers.var() - 1 / 12) < 0.003


def test_normal_numbers_have_mean_zero_and_variance_one() -> None:
    numbers = sample(random_normal, f64)
    assert np.all(np.isfinite(numbers))
    assert abs(numbers.mean()) < 0.03
    assert abs(numbers.var() - 1.0) < 0.05
    assert abs(np.mean(numbers**4) - 3.0) < 0.2


def test_different_keys_give_different_numbers() -> None:
    draw = of(lambda key, counter: random_uniform(key, counter, f64), u64, u64)
    assert len({float(draw(key, counter)) for key in range(5) for counter in range(5)}) == 25


def test_a_literal_must_fit_the_other_operand() -> None:
    def halves(x: Node) -> Node:
        return x * 0.5

    with pytest.raises(TypeRuleError, match=r"`mul` cannot convert 0\.5 to i32"):
        trace(halves, i32)
