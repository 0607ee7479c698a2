"""Interned values: equal values are one object for as long as it is referenced."""

import gc
from dataclasses import dataclass
from typing import Any, NamedTuple

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from livegrad.contexts.cache import interned_values
from livegrad.contexts.cache.describe import size_of
from livegrad.contexts.cache.disk import decode, encode
from livegrad.contexts.cache.interned_values import NoExactKey, intern_result, intern_value

numbers = st.integers() | st.floats(allow_nan=True) | st.booleans() | st.text(max_size=4) | st.none()
plain = st.recursive(
    numbers | st.binary(max_size=4), lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=6
)


def bits_of(value: Any) -> Any:
    """An independent key that distinguishes what interning must distinguish."""
    if isinstance(value, float):
        return "float", np.float64(value).tobytes()
    if isinstance(value, tuple):
        return "tuple", tuple(map(bits_of, value))
    return type(value).__name__, value


@given(plain, plain)
def test_interned_values_are_identical_exactly_if_type_and_bits_are_equal(first: Any, second: Any):
    assert (intern_value(first) is intern_value(second)) == (bits_of(first) == bits_of(second))


@given(plain, plain)
def test_disk_bytes_are_equal_exactly_if_interned_values_are_identical(first: Any, second: Any):
    assert (encode(first) == encode(second)) == (intern_value(first) is intern_value(second))
    assert intern_value(decode(encode(first))) is intern_value(first)


def test_interned_values_are_freed_without_references():
    gc.collect()
    interned_values.clear_up()
    before = len(interned_values._table.current.by_key)
    held = [intern_value(("gone", number)) for number in range(100)]
    assert len(interned_values._table.current.by_key) == before + 100
    del held
    interned_values.clear_up()
    assert len(interned_values._table.current.by_key) == before


def test_hashed_arrays_are_recorded_only_while_they_live():
    array = np.arange(5)
    array.setflags(write=False)
    interned = intern_value(array)
    assert intern_value(array) is interned
    assert id(array) in interned_values._table.current.of_arrays
    number = id(array)
    del array, interned
    interned_values.clear_up()
    assert number not in interned_values._table.current.of_arrays


def test_frozen_dataclasses_and_named_tuples_are_compared_by_their_fields():
    @dataclass(frozen=True)
    class Size:
        width: float

    class Point(NamedTuple):
        x: float

    assert intern_value(Size(0.0)) is not intern_value(Size(-0.0))
    assert intern_value(Size(1.0)) is intern_value(Size(1.0))
    assert intern_value(Point(1.0)) is not intern_value((1.0,))


def test_a_view_of_writable_memory_is_copied():
    base = np.zeros(4)
    view = base[:2]
    view.setflags(write=False)
    interned = intern_value(view)
    base[0] = 7.0
    assert interned.value[0] == 0.0
    assert intern_value(view) is not interned


def test_results_may_be_containers_and_their_arrays_become_read_only():
    value: dict[str, list[Any]] = {"image": [np.zeros(2)]}
    interned = intern_result(value)
    assert interned is intern_result({"image": [np.zeros(2)]})
    with pytest.raises(ValueError, match="read-only"):
        interned.value["image"][0][0] = 1.0
    value["image"].append("later")
    assert len(interned.value["image"]) == 1


def test_values_without_exact_keys_are_unique():
    array = np.array([object()])
    assert intern_result(array) is not intern_result(array)
    with pytest.raises(NoExactKey, match="Python objects"):
        intern_value(array)


def test_sizes_count_members():
    assert size_of(np.zeros(1000)) > 8000
    assert size_of([np.zeros(1000)] * 2) > 16000
    assert size_of({"a": "x" * 1000}) > 1000
