"""bfloat16 as two opaque bytes: exact widening, round-to-nearest narrowing, no accidental arithmetic."""

from __future__ import annotations

import numpy as np
import pytest

from livegrad.ir.bfloat16 import BFLOAT16, LARGEST, narrow, readable, widen
from livegrad.ir.leaves import constant
from livegrad.ir.types import bf16, f16, scalar_of_dtype
from livegrad.ir.types.scalars import SCALARS

EVERY = np.arange(1 << 16, dtype=np.uint16).view(BFLOAT16)


def test_every_number_round_trips_through_float32():
    wide = widen(EVERY)
    back = narrow(wide).view(np.uint16)
    numbers = ~np.isnan(wide)
    np.testing.assert_array_equal(back[numbers], EVERY.view(np.uint16)[numbers])
    assert np.isnan(widen(narrow(wide[~numbers]))).all()


def test_narrowing_rounds_to_nearest_ties_to_even():
    generator = np.random.default_rng(0)
    bits = generator.integers(0, 1 << 32, 200_000, dtype=np.uint32)
    ties = (generator.integers(0, 1 << 16, 5_000, dtype=np.uint32) << np.uint32(16)) | np.uint32(0x8000)
    values = np.concatenate([bits, ties]).view(np.float32)
    values = values[np.isfinite(values) & (np.abs(values) < LARGEST)]
    # The neighbours on both sides, towards zero and away from it, compared in double precision.
    below = (values.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32).astype(np.float64)
    above = ((values.view(np.uint32) & np.uint32(0xFFFF0000)) + np.uint32(0x10000)).view(np.float32).astype(np.float64)
    exact = values.astype(np.float64)
    is_even = (values.view(np.uint32) >> np.uint32(16)) & np.uint32(1) == 0
    down = (np.abs(exact - below) < np.abs(above - exact)) | (
        (np.abs(exact - below) == np.abs(above - exact)) & is_even
    )
    np.testing.assert_array_equal(widen(narrow(values)), np.where(down, below, above))


@pytest.mark.parametrize(
    ("value", "expected"),
    [(3.4e38, np.inf), (-3.4e38, -np.inf), (np.inf, np.inf), (1e300, np.inf), (-0.0, -0.0), (1e-45, 0.0), (7, 7.0)],
)
def test_edge_cases(value, expected):
    actual = widen(narrow(value))
    assert actual == np.float32(expected)
    assert np.signbit(actual) == np.signbit(expected)


def test_shapes_and_layouts_are_kept():
    values = np.arange(24.0).reshape(2, 3, 4)
    for array in (values, values.T, values[:, ::2], np.float64(3.0), values[:0]):
        np.testing.assert_array_equal(widen(narrow(array)), array)
    np.testing.assert_array_equal(widen(narrow(values).T), values.T)


def test_arithmetic_without_widening_raises():
    with pytest.raises(TypeError):
        _ = narrow([1.0]) + narrow([2.0])
    assert readable(narrow([1.0])).dtype == np.float32
    assert readable(np.ones(2)).dtype == np.float64


def test_the_type_is_known_by_name_and_by_dtype():
    assert SCALARS["bf16"] is bf16
    assert scalar_of_dtype(BFLOAT16) is bf16
    assert bf16 is not f16
    assert (bf16.kind, bf16.bits, bf16.dtype.itemsize, bf16.long_name) == ("float", 16, 2, "bfloat16")


def test_constants_are_rounded_to_the_type():
    assert constant(0.1, bf16).attribute("value") == 0.10009765625
    assert constant(0.1, bf16) is constant(0.10009765625, bf16)
