"""Undo and redo: every kind of edit, gestures, bounded memory, and how it looks to listeners and recordings."""

import gc
import threading
import weakref
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import livegrad as lg
from livegrad.live.documents.save import engine_tables
from livegrad.live.documents.toml_text import toml_text


def text_of(engine):
    with engine.graph.editing():
        return toml_text(engine_tables(engine))


def labels(engine):
    return [entry.label for entry in engine.history.entries if not entry.is_undone]


def scene():
    """A source, a composite around a state, and a reader with another default."""
    engine = lg.Engine()
    source = engine.add(lg.block(lambda x=1.0, gain=2.0: x * gain, name="source"))
    group: Any = lg.Composite("group")
    state = group.graph.add(lg.State("state", 0.0))
    more = group.graph.add(lg.block(lambda x, by=1.0: x + by, name="more"))
    group.graph.connect(state, more["x"])
    group.graph.connect(more, state["next"])
    group.expose(more["by"])
    group.expose(more["result"])
    engine.add(group)
    reader = engine.add(lg.block(lambda a=1.0, b=2: a + b, name="reader"))
    engine.connect(group["result"], reader["a"])
    engine.connect(source, group["by"])
    engine.set_feature("animation_time", 0.5)
    engine.step()
    engine.history.clear()
    return SimpleNamespace(engine=engine, source=source, group=group, more=more, reader=reader)


EDITS = {
    "add block": lambda s: s.engine.add(lg.block(lambda x=1.0: x, name="block")),
    "remove source": lambda s: s.engine.remove(s.source),
    "remove group": lambda s: s.engine.remove(s.group),
    "remove more": lambda s: s.group.graph.remove(s.more),
    "rename source to first": lambda s: s.engine.rename(s.source, "first"),
    "rename group to all": lambda s: s.engine.rename(s.group, "all"),
    "connect source.result to reader.b": lambda s: s.engine.connect(s.source, s.reader["b"]),
    "connect source.result to reader.a": lambda s: s.engine.connect(s.source, s.reader["a"]),
    "disconnect reader.a": lambda s: s.engine.disconnect(s.reader["a"]),
    "set source.x": lambda s: s.engine.set(s.source["x"], 7.0),
    "set reader.b": lambda s: s.engine.set(s.reader["b"], np.arange(3.0)),
    "set reader.a": lambda s: s.engine.set(s.reader["a"], 3),
    "bind reader.b": lambda s: s.engine.bind(s.reader["b"], np.ones(2)),
    "edit reader": lambda s: lg.live.edit(s.engine, s.reader, lambda a=1.0, b=2: a * b),
    "edit source": lambda s: lg.live.edit(s.engine, s.source, lambda y=3.0: y),
    "edit more": lambda s: lg.live.edit(s.engine, s.more, lambda x, up=3.0: x * up),
    "expose a pin of group": lambda s: s.group.expose(s.more["x"], "start"),
    "hide a pin of group": lambda s: s.group.hide(s.group["by"]),
    "move source": lambda s: setattr(s.source, "position", (1, 2)),
    "change the control of source.x": lambda s: setattr(s.source["x"], "control", lg.Control(0, 1)),
    "set feature animation_time": lambda s: s.engine.set_feature("animation_time", 2.0),
}


@pytest.mark.parametrize("label", EDITS)
def test_every_edit_is_undone_and_redone(label):
    s = scene()
    engine = s.engine
    before = text_of(engine)
    EDITS[label](s)
    after = text_of_or_reason(engine)
    assert labels(engine) == [label]
    for _ in range(2):
        assert engine.history.undo() == label
        assert text_of(engine) == before
        assert engine.step().ok
        assert engine.history.undo() is None
        assert engine.history.redo() == label
        assert text_of_or_reason(engine) == after
        engine.step()
        assert engine.history.redo() is None
    engine.history.undo()
    engine.step()
    assert text_of(engine) == before


def text_of_or_reason(engine):
    try:
        return text_of(engine)
    except lg.LivegradError as error:
        return str(error)


def test_undone_values_are_those_of_before_and_cost_the_same_level():
    engine = lg.Engine()
    double = engine.add(lg.block(lambda x: x * 2.0, name="double"))
    engine.set(double["x"], 1.0)
    engine.step()
    with engine.history.gesture("drag"):
        engine.set(double["x"], 2.0)
    engine.step()
    engine.history.undo()
    assert engine.step().level.name == "HOT"
    assert engine.read(double) == 2.0
    engine.history.redo()
    assert engine.step().level.name == "HOT"
    assert engine.read(double) == 4.0
    engine.history.undo()
    assert engine.parameters()[double["x"]]["value"] == 1.0
    engine.history.undo()
    assert engine.step().problems


def test_the_first_value_of_a_feature_is_undone_to_none():
    engine = lg.Engine()
    engine.add(lg.block(lambda: lg.contexts.context_tensor("animation_time") * 2.0, name="clock"))
    engine.set_feature("animation_time", 1.0)
    engine.step()
    assert engine.history.undo() == "set feature animation_time"
    assert dict(engine.features) == {}
    assert engine.step().failed == {"clock"}
    engine.history.redo()
    engine.step()
    assert engine.read(engine.graph.blocks["clock"]) == 2.0


def test_a_gesture_is_one_entry_across_frames_and_kinds_of_edits():
    s = scene()
    engine = s.engine
    before = text_of(engine)
    gesture = engine.history.gesture("drag source")
    for step in range(20):
        engine.set(s.source["x"], float(step))
        s.source.position = step, step
        engine.step()
    engine.remove(s.reader)
    gesture.commit()
    after = text_of(engine)
    assert [(entry.label, entry.edits) for entry in engine.history.entries] == [("drag source", 3)]
    engine.history.undo()
    assert text_of(engine) == before
    engine.history.redo()
    assert text_of(engine) == after


def test_a_cancelled_gesture_leaves_no_entry_and_keeps_what_could_be_redone():
    s = scene()
    engine = s.engine
    before = text_of(engine)
    gesture = engine.history.gesture("outer")
    engine.set(s.source["x"], 3.0)
    middle = text_of(engine)

    def fail() -> None:
        with engine.history.gesture("inner"):
            engine.set(s.source["x"], 4.0)
            engine.rename(s.source, "first")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert text_of(engine) == middle
    gesture.cancel()
    assert text_of(engine) == before
    assert engine.history.entries == ()
    with pytest.raises(lg.UsageError, match=r"has ended \(test_history.py:\d+"):
        gesture.commit()


def test_grouped_edits_are_one_entry_and_empty_groups_none():
    s = scene()
    engine, source = s.engine, s.source
    with engine.edits():
        engine.set(source["x"], 2.0)
        engine.set(source["gain"], 3.0)
    with engine.edits():
        pass
    with engine.history.gesture("nothing"):
        engine.set(source["x"], 2.0)
    assert labels(engine) == ["set source.x and 1 more"]


def test_undo_during_a_gesture_is_an_error():
    s = scene()
    engine = s.engine
    with engine.history.gesture("drag"), pytest.raises(lg.UsageError, match="cannot undo during a gesture"):
        engine.history.undo()
    with pytest.raises(lg.UsageError, match=r"needs a label \(test_history.py:\d+"):
        engine.history.gesture("")


def test_an_edit_forgets_what_was_undone():
    s = scene()
    engine, source = s.engine, s.source
    engine.set(source["x"], 2.0)
    engine.history.undo()
    assert [entry.is_undone for entry in engine.history.entries] == [True]
    engine.set(source["gain"], 5.0)
    assert engine.history.redo() is None
    assert labels(engine) == ["set source.gain"]


def test_numbers_that_change_repeatedly_are_one_entry_for_each_pin():
    s = scene()
    engine, source = s.engine, s.source
    for step in range(50):
        engine.set(source["x"], float(step))
        engine.set(source["gain"], float(step))
        engine.step()
    assert labels(engine) == ["set source.x", "set source.gain"]
    engine.history.undo()
    engine.history.undo()
    assert [shown["value"] for shown in engine.parameters().values()][:2] == [1.0, 2.0]


def test_values_of_a_clock_are_not_recorded():
    s = scene()
    engine, source = s.engine, s.source
    engine.before_frame.append(lambda: engine.set(source["x"], engine.frame.number * 1.0))
    engine.set(source["gain"], 4.0)
    engine.history.undo()
    for _ in range(3):
        engine.step()
    with engine.history.paused():
        engine.set(source["gain"], np.ones(3))
        engine.set_feature("animation_time", 9.0)
        engine.add(lg.block(lambda x=1.0: x, name="new"))
    assert labels(engine) == ["add new"]
    other = threading.Thread(target=lambda: engine.set(source["x"], 8.0))
    with engine.history.paused():
        other.start()
        other.join()
    assert labels(engine) == ["add new", "set source.x"]


def test_values_that_were_not_recorded_return_with_their_block():
    engine = lg.Engine()
    double = engine.add(lg.block(lambda x: x * 2.0, name="double"))
    with engine.history.paused():
        engine.set(double["x"], 3.0)
    engine.history.undo()
    engine.step()
    engine.history.redo()
    engine.step()
    assert engine.read(double) == 6.0


def test_the_history_is_bounded():
    engine = lg.Engine()
    double = engine.add(lg.block(lambda x=1.0: x * 2.0, name="double"))
    other = engine.add(lg.block(lambda x=1.0: x * 2.0, name="other"))
    for step in range(3000):
        engine.rename(other, f"other{step}")
    assert len(engine.history.entries) == engine.history.max_entries == 1000
    engine.history.clear()
    arrays = []
    for step in range(40):
        with engine.history.gesture("load"):
            engine.set(double["x"], np.full(1 << 20, step, np.float32))
        arrays.append(weakref.ref(engine.graph.sources[double["x"]].value))  # type: ignore[union-attr]
    gc.collect()
    alive = sum(array() is not None for array in arrays)
    assert 2 <= alive <= 17
    assert len(engine.history.entries) <= 16
    while engine.history.undo() is not None:
        pass
    engine.step()
    assert engine.step().ok


def test_removed_blocks_are_freed_when_the_history_is_cleared():
    engine = lg.Engine()
    double = engine.add(lg.block(lambda x=1.0: x * 2.0, name="double"))
    engine.remove(double)
    alive = weakref.ref(double)
    del double
    engine.step()
    engine.step()  # the first frame keeps what it replaced until the next one
    engine.history.clear()
    gc.collect()
    assert alive() is None


def test_listeners_and_recordings_see_undo_as_edits(tmp_path):
    s = scene()
    engine = s.engine
    edits = []

    class Log:
        def edited(self, edit, arguments):
            edits.append(edit)

        def frame_ended(self, frame):
            pass

    with lg.live.record(engine, tmp_path / "session.jsonl"):
        engine.listen(Log())
        for label in EDITS:
            if label not in ("remove more", "hide a pin of group"):
                EDITS[label](s)
                engine.step()
                edits.clear()
                engine.history.undo()
                assert edits, label
                engine.step()
        s.group.hide(s.group["by"])
        engine.step()
        engine.history.undo()
        assert edits[-1] == "exposures"
        engine.step()
    replayed = lg.live.replay(tmp_path / "session.jsonl", trust=True)
    assert replayed.differences == ()


def test_states_keep_their_values_when_a_rename_is_undone():
    s = scene()
    engine = s.engine
    for _ in range(4):
        engine.step()
    value = float(engine.read(s.more))
    engine.rename(s.group, "renamed")
    engine.history.undo()
    engine.step()
    assert engine.read(s.more) == value + 2.0


def test_a_history_that_no_longer_fits_says_so_and_changes_nothing():
    s = scene()
    engine = s.engine
    inner = s.group.graph.add(lg.block(lambda x=1.0: x, name="inner"))
    engine.remove(s.group)
    s.group.graph.remove(inner)  # no longer part of the engine
    engine.history.undo()
    before = text_of(engine)
    with pytest.raises(lg.UsageError, match="cannot undo: add inner"):
        engine.history.undo()
    assert text_of(engine) == before
    assert len(engine.history.entries) == 2


def test_a_loaded_document_starts_with_an_empty_history(tmp_path):
    engine = scene().engine
    engine.save(tmp_path / "scene.lg")
    opened = lg.load_document(tmp_path / "scene.lg").engine(trust=True)
    assert opened.history.entries == ()


def test_edits_of_threads_are_recorded_in_one_order():
    engine = lg.Engine()
    blocks = [engine.add(lg.block(lambda x=1.0: x, name=f"block{index}")) for index in range(4)]
    engine.history.clear()
    before = text_of(engine)

    def edit(block):
        for step in range(20):
            engine.rename(block, f"{block.name}'")
            block.position = step, step
            engine.set(block["x"], float(step))

    threads = [threading.Thread(target=edit, args=(block,)) for block in blocks]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        engine.step()
    after = text_of(engine)
    while engine.history.undo() is not None:
        pass
    assert text_of(engine) == before
    while engine.history.redo() is not None:
        pass
    assert text_of(engine) == after
