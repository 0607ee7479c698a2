"""Exact values: equal ones are one fact for as long as anyone holds it, and no longer."""

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
from livegrad.contexts.cache.interned_values import NoExactKey, fact_of, fact_of_result

numbers = st.integers() | st.floats(allow_nan=True) | st.booleans() | st.text(max_size=4) | st.none()
plain = st.recursive(
    numbers | st.binary(max_size=4), lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=6
)


def bits_of(value: Any) -> Any:
    """What the fact of a value must tell apart, written down another way."""
    if isinstance(value, float):
        return "float", np.float64(value).tobytes()
    if isinstance(value, tuple):
        return "tuple", tuple(map(bits_of, value))
    return type(value).__name__, value


@given(plain, plain)
def test_facts_are_the_same_exactly_when_type_and_bits_are(first: Any, second: Any):
    assert (fact_of(first) is fact_of(second)) == (bits_of(first) == bits_of(second))


@given(plain, plain)
def test_disk_texts_are_the_same_exactly_when_facts_are(first: Any, second: Any):
    assert (encode(first) == encode(second)) == (fact_of(first) is fact_of(second))
    assert fact_of(decode(encode(first))) is fact_of(first)


def test_facts_go_when_nobody_holds_them():
    gc.collect()
    interned_values.clear_up()
    before = len(interned_values._facts.current.by_key)
    held = [fact_of(("gone", number)) for number in range(100)]
    assert len(interned_values._facts.current.by_key) == before + 100
    del held
    interned_values.clear_up()
    assert len(interned_values._facts.current.by_key) == before


def test_arrays_are_remembered_only_while_they_live():
    array = np.arange(5)
    array.setflags(write=False)
    fact = fact_of(array)
    assert fact_of(array) is fact
    assert id(array) in interned_values._facts.current.of_arrays
    number = id(array)
    del array, fact
    interned_values.clear_up()
    assert number not in interned_values._facts.current.of_arrays


def test_frozen_dataclasses_and_named_tuples_are_compared_by_their_fields():
    @dataclass(frozen=True)
    class Size:
        width: float

    class Point(NamedTuple):
        x: float

    assert fact_of(Size(0.0)) is not fact_of(Size(-0.0))
    assert fact_of(Size(1.0)) is fact_of(Size(1.0))
    assert fact_of(Point(1.0)) is not fact_of((1.0,))


def test_a_view_of_memory_that_others_can_write_to_is_copied():
    base = np.zeros(4)
    view = base[:2]
    view.setflags(write=False)
    fact = fact_of(view)
    base[0] = 7.0
    assert fact.value[0] == 0.0
    assert fact_of(view) is not fact


def test_results_may_be_containers_and_their_arrays_become_read_only():
    value: dict[str, list[Any]] = {"image": [np.zeros(2)]}
    fact = fact_of_result(value)
    assert fact is fact_of_result({"image": [np.zeros(2)]})
    with pytest.raises(ValueError, match="read-only"):
        fact.value["image"][0][0] = 1.0
    value["image"].append("later")
    assert len(fact.value["image"]) == 1


def test_what_cannot_be_compared_has_a_fact_of_its_own():
    array = np.array([object()])
    assert fact_of_result(array) is not fact_of_result(array)
    with pytest.raises(NoExactKey, match="Python objects"):
        fact_of(array)


def test_sizes_count_members():
    assert size_of(np.zeros(1000)) > 8000
    assert size_of([np.zeros(1000)] * 2) > 16000
    assert size_of({"a": "x" * 1000}) > 1000
