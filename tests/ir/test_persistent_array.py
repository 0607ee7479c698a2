"""Persistent arrays: every version keeps its values, in whatever order versions are read."""

from hypothesis import given
from hypothesis import strategies as st

from livegrad.ir.persistent_array import PersistentArray


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 5), st.integers()), max_size=40), st.data())
def test_every_version_is_unchanged(changes, data):
    versions, models = [PersistentArray()], [{}]
    for base, index, value in changes:
        parent = base % len(versions)
        versions.append(versions[parent].with_item(index, value))
        models.append({**models[parent], index: value})
        read = data.draw(st.integers(0, len(versions) - 1))
        assert dict(versions[read]) == models[read]
    for version, model in zip(versions, models, strict=True):
        assert dict(version) == model
        assert len(version) == len(model)
        assert version.get(3) == model.get(3)


def test_the_newest_version_is_changed_without_copying():
    table = PersistentArray()
    shared = table._claim_table()
    for index in range(1000):
        table = table.with_item(index, index)
    assert table._claim_table() is shared
