"""Symbolic sizes are polynomials: their arithmetic agrees with that of the sizes they represent."""

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from livegrad.diagnostics import UsageError
from livegrad.ir.dimension import Dimension, Size, divide_exactly, size_product

NAMES = ("n", "m", "k")
SIZES = {"n": 7, "m": 11, "k": 13}


def value_of(size: Size) -> int:
    return size.evaluate(SIZES) if isinstance(size, Dimension) else size


sizes: st.SearchStrategy[Size] = st.recursive(
    st.one_of(st.integers(-5, 5), st.sampled_from(NAMES).map(Dimension.symbol)),
    lambda inner: st.tuples(st.sampled_from("+-*"), inner, inner).map(
        lambda parts: {"+": parts[1] + parts[2], "-": parts[1] - parts[2], "*": parts[1] * parts[2]}[parts[0]]
    ),
    max_leaves=8,
)


@given(sizes, sizes)
def test_arithmetic_agrees_with_the_numbers(a: Size, b: Size) -> None:
    assert value_of(a + b) == value_of(a) + value_of(b)
    assert value_of(a - b) == value_of(a) - value_of(b)
    assert value_of(a * b) == value_of(a) * value_of(b)


@given(sizes, sizes, sizes)
def test_equal_polynomials_are_equal_however_they_were_made(a: Size, b: Size, c: Size) -> None:
    assert a + b == b + a
    assert (a + b) + c == a + (b + c)
    assert a * (b + c) == a * b + a * c
    assert hash(a * b) == hash(b * a)


@given(sizes)
def test_terms_that_cancel_leave_an_integer(a: Size) -> None:
    assert type(a - a) is int
    assert a - a == 0
    assert a + 0 == a
    assert a * 1 == a


@given(sizes, sizes)
def test_division_returns_the_quotient_or_none(a: Size, b: Size) -> None:
    quotient = divide_exactly(a * b, b)
    if quotient is not None and b != 0:
        assert quotient * b == a * b


def test_a_product_divides_by_each_of_its_factors() -> None:
    n, m = Dimension.symbol("n"), Dimension.symbol("m")
    assert divide_exactly(6 * n * m, 2 * n) == 3 * m
    assert divide_exactly(6 * n * m, 4 * n) is None
    assert divide_exactly(n + 1, n) is None
    assert divide_exactly(n + 1, n + 1) == 1
    assert divide_exactly(6, 0) is None


@given(sizes)
def test_a_size_pickles(a: Size) -> None:
    assert pickle.loads(pickle.dumps(a)) == a


def test_the_text_of_a_size_reads_as_algebra() -> None:
    n, m = Dimension.symbol("n"), Dimension.symbol("m")
    assert repr((n + 1) * 2) == "2*n + 2"
    assert repr(n * n - m) == "n*n - m"
    assert repr(-1 * n * m + 3) == "-m*n + 3"


def test_the_product_of_a_shape_is_its_number_of_elements() -> None:
    n = Dimension.symbol("n")
    assert size_product((2, n, 3)) == 6 * n
    assert size_product(()) == 1


def test_a_size_is_immutable() -> None:
    with pytest.raises(AttributeError):
        Dimension.symbol("n").terms = ()


def test_a_size_is_named_by_an_identifier() -> None:
    with pytest.raises(UsageError, match="cannot name a dimension"):
        Dimension.symbol("2n")


@pytest.mark.parametrize("other", [0.5, None, 1j])
def test_arithmetic_rejects_values_that_are_not_sizes(other: Any) -> None:
    n: Any = Dimension.symbol("n")
    for compute in (lambda: n + other, lambda: other + n, lambda: n * other, lambda: other * n):
        with pytest.raises(UsageError, match=f"combined with integers.*found {type(other).__name__}"):
            compute()
    assert n * np.int64(2) == n + n
