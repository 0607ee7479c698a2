"""Presets: named values that follow renames, can be undone, and are saved in documents."""

from typing import Any

import numpy as np
import pytest

import livegrad as lg


@pytest.fixture
def engine() -> lg.Engine:
    engine = lg.Engine()
    group: Any = lg.Composite("group")
    inner = group.graph.add(lg.block(lambda a=1.0, b=2: a * b, name="inner"))
    group.expose(inner["result"])
    engine.add(group)
    double = engine.add(lg.block(lambda x=4.0, color=(0.1, 0.2, 0.3): x * lg.asarray(color), name="double"))
    engine.set(double["color"], np.array([0.1, 0.2, 0.3], np.float32))
    engine.history.clear()
    return engine


def values(engine: lg.Engine) -> dict[str, Any]:
    return {shown["key"]: shown["value"] for shown in engine.parameters().values()}


def change(engine: lg.Engine) -> None:
    blocks = engine.graph.blocks
    engine.set(blocks["double"]["x"], 5.0)
    engine.set(blocks["double"]["color"], np.array([0.9, 0.8, 0.7], np.float32))
    inner: Any = blocks["group"]
    inner.graph.set(inner.graph.blocks["inner"]["b"], 7)


def test_a_preset_restores_all_values_as_one_entry(engine):
    before = values(engine)
    engine.presets.save("start")
    change(engine)
    changed = values(engine)
    engine.presets.apply("start")
    assert values(engine) == before
    assert engine.history.undo() == "preset start"
    assert values(engine) == changed
    engine.history.redo()
    assert values(engine) == before


def test_saving_and_removing_can_be_undone(engine):
    engine.presets.save("one")
    change(engine)
    engine.presets.save("one")
    engine.presets.remove("one")
    assert list(engine.presets) == []
    assert engine.history.undo() == "remove preset one"
    assert engine.presets["one"][engine.graph.blocks["double"]["x"]] == 5.0
    assert engine.history.undo() == "save preset one"
    assert engine.presets["one"][engine.graph.blocks["double"]["x"]] == 4.0


def test_presets_follow_renames_and_survive_documents(engine, tmp_path):
    engine.presets.save("a.b / c")
    change(engine)
    engine.presets.save("changed")
    engine.rename(engine.graph.blocks["double"], "twice")
    engine.save(tmp_path / "scene.lg")
    again = lg.load_document(tmp_path / "scene.lg").engine(trust=True)
    assert list(again.presets) == ["a.b / c", "changed"]
    assert again.history.entries == ()
    again.presets.apply("a.b / c")
    engine.presets.apply("a.b / c")
    assert values(again) == values(engine)
    again.save(tmp_path / "again.lg")
    engine.save(tmp_path / "scene.lg")
    assert (tmp_path / "again.lg").read_text() == (tmp_path / "scene.lg").read_text()


def test_what_is_connected_or_gone_stays_as_it_is(engine, tmp_path):
    blocks = engine.graph.blocks
    engine.presets.save("start")
    change(engine)
    source = engine.add(lg.block(lambda q=3.0: q, name="source"))
    engine.connect(source, blocks["double"]["x"])
    engine.remove(blocks["group"])
    engine.presets.apply("start")
    assert str(engine.graph.sources[blocks["double"]["x"]].source) == "source.result"
    engine.save(tmp_path / "scene.lg")
    (preset,) = lg.load_document(tmp_path / "scene.lg").engine(trust=True).presets.saved.values()
    assert {str(pin) for pin in preset} == {"double.x", "double.color"}


def test_a_preset_has_values_of_its_own(engine):
    engine.presets.save("start")
    change(engine)
    assert engine.presets["start"][engine.graph.blocks["double"]["color"]].tolist() == pytest.approx([0.1, 0.2, 0.3])


@pytest.mark.parametrize("name", ["", "  ", None, 5, "x" * 200])
def test_a_preset_needs_a_name(engine, name):
    with pytest.raises(lg.UsageError, match="a preset needs a name"):
        engine.presets.save(name)


def test_an_unknown_preset_is_an_error(engine):
    for use in (engine.presets.apply, engine.presets.remove):
        with pytest.raises(lg.UsageError, match="there is no such preset"):
            use("nothing")
