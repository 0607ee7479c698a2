"""Constants are rounded to the precision of their type, but never wrapped, truncated or overflowed."""

import numpy as np
import pytest

import livegrad as lg
from livegrad.ir.leaves import constant
from livegrad.ir.types import Scalar


@pytest.mark.parametrize(
    ("value", "type"),
    [
        (1.5, lg.i32),
        (2, lg.bool_),
        (1e300, lg.f32),
        (70000.0, lg.f16),
        (1 + 2j, lg.f32),
        (float("nan"), lg.i32),
        ("abc", lg.f32),
        (300, lg.u8),
        (-1, lg.u64),
        (None, lg.f32),
    ],
    ids=str,
)
def test_a_value_that_the_type_cannot_hold_is_refused(value: object, type: Scalar) -> None:
    with pytest.raises(lg.TypeRuleError, match=r"test_literals\.py"):
        constant(value, type)


def test_numbers_of_numpy_are_numbers() -> None:
    assert constant(np.float64(0.5), lg.f32) is constant(0.5, lg.f32)
    assert constant(np.int8(-3), lg.i64) is constant(-3, lg.i64)


def test_infinity_and_rounding_are_no_overflow() -> None:
    assert constant(float("inf"), lg.f16).attribute("value") == float("inf")
    assert constant(0.1, lg.f32).attribute("value") == float(np.float32(0.1))


@pytest.mark.parametrize("size", [-1, True, 2.0, 1 << 40])
def test_a_vector_has_a_whole_and_moderate_number_of_components(size: int) -> None:
    with pytest.raises(lg.UsageError, match="invalid size"):
        lg.ir.Vector(lg.f32, size)


def test_an_attribute_of_the_wrong_kind_is_an_error_of_ours() -> None:
    with pytest.raises(lg.TypeRuleError, match="`call` does not accept"):
        lg.ops.call(constant(1.0, lg.f32), function=3)
