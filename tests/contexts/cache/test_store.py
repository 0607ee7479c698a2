"""The memo store against a model: a list in the order of use."""

from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from livegrad.contexts.cache.interned_values import Interned
from livegrad.contexts.cache.store import CacheLimits, MemoStore
from livegrad.diagnostics import UsageError

steps = st.lists(st.tuples(st.sampled_from(["put", "use"]), st.sampled_from("ab"), st.integers(0, 5)), max_size=60)


@given(steps, st.integers(0, 6), st.integers(0, 4))
def test_exactly_the_least_recently_used_results_are_evicted(steps: list[Any], entries: int, node_entries: int):
    store = MemoStore(CacheLimits(entries=entries, node_entries=node_entries))
    tables = {name: store.table(name, name) for name in "ab"}
    dropped: list[str] = []
    store.on_evict = lambda table: dropped.append(table.name)
    model: list[tuple[str, int]] = []  # the least recently used first
    expected: list[str] = []
    for kind, name, key in steps:
        slot = tables[name].slots.get(key)
        assert (slot is not None) == ((name, key) in model)
        if kind == "use" and slot is not None:
            slot.hits += 1
            slot.used = store.tick()
            model.append(model.pop(model.index((name, key))))
        if kind == "put":
            store.put(tables[name], key, Interned(key, None))
            model = [place for place in model if place != (name, key)] + [(name, key)]
            own = [place for place in model if place[0] == name]
            for place in own[: max(0, len(own) - node_entries)]:
                model.remove(place)
                expected.append(place[0])
            while len(model) > entries:
                expected.append(model.pop(0)[0])
    assert dropped == expected
    assert store.entries == len(model)


def test_a_value_in_two_tables_counts_once_until_both_are_evicted():
    store = MemoStore(CacheLimits(node_entries=1))
    first, second, interned = store.table("a"), store.table("b"), Interned("x" * 1000, None)
    store.put(first, 1, interned)
    store.put(second, 1, interned)
    assert store.bytes == interned.size
    store.put(first, 2, Interned("y", None))
    assert store.bytes > interned.size
    store.put(second, 2, Interned("z", None))
    assert store.bytes < interned.size


def test_hits_include_those_of_evicted_results():
    store = MemoStore(CacheLimits(node_entries=1))
    table = store.table("a")
    store.put(table, 1, Interned(1, None))
    table.slots[1].hits += 3
    store.put(table, 2, Interned(2, None))
    table.slots[2].hits += 4
    assert (store.counts(table).hits, store.counts(table).evicted) == (7, 1)


def test_unused_tables_are_freed():
    store = MemoStore()
    store.table("content")
    kept = store.table("other")
    store.put(kept, 1, Interned(1, None))
    assert list(store._tables) == ["other"]


def test_limits_cannot_be_negative():
    with pytest.raises(UsageError, match="negative"):
        CacheLimits(entries=-1)
