"""The interface for programs that display an engine: listeners, `peek`, and renaming."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import livegrad as lg


class Log:
    def __init__(self):
        self.edits, self.frames = [], []

    def edited(self, edit, arguments):
        self.edits.append(edit)

    def frame_ended(self, frame):
        self.frames.append(frame.number)


def counter():
    engine = lg.Engine()
    count = engine.add(lg.State("count", 0.0))
    more = engine.add(lg.block(lambda x, by=1.0: x + by, name="more"))
    engine.connect(count, more["x"])
    engine.connect(more, count["next"])
    return engine, count, more


def test_a_listener_is_notified_of_every_kind_of_edit_and_of_frames():
    engine, log = lg.Engine(), Log()
    stop = engine.listen(log)
    first = engine.add(lg.block(lambda x=1.0: x + 1.0, name="first"))
    second = engine.add(lg.block(lambda x=1.0: x * 2.0, name="second"))
    state = engine.add(lg.State("state", 0.0))
    engine.connect(first, second["x"])
    engine.disconnect(second["x"])
    engine.set(first["x"], 3.0)
    engine.set(first["x"], 4.0)  # posted
    engine.bind(second["x"], np.ones(2, np.float32))
    lg.live.edit(engine, first, lambda x=1.0: x - 1.0)
    engine.rename(first, "renamed")
    engine.set(state, 2.0)
    engine.reset(state)
    engine.remove(second)
    engine.step()
    edits = "add add add connect disconnect set set bind edit rename state reset remove"
    assert (log.edits, log.frames) == (edits.split(), [1])
    stop()
    engine.set(first["x"], 5.0)
    engine.step()
    assert log.frames == [1]


def test_a_listener_is_notified_of_edits_inside_composites():
    engine, log = lg.Engine(), Log()
    outer = engine.add(lg.Composite("outer"))
    engine.listen(log)
    inner = outer.graph.add(lg.block(lambda x=1.0: x, name="inner"))
    outer.expose(inner["result"])
    assert log.edits == ["add", "expose"]


def test_a_rejected_edit_does_not_notify_listeners():
    engine, log = lg.Engine(), Log()
    engine.add(lg.block(lambda x=1.0: x, name="one"))
    engine.listen(log)
    with pytest.raises(lg.UsageError):
        engine.add(lg.block(lambda x=1.0: x, name="one"))
    assert log.edits == []


def test_peeking_does_not_make_a_block_run():
    engine = lg.Engine()
    source = engine.add(lg.block(lambda x=2.0: x * 3.0, name="source"))
    body = lg.Composite("body")
    inside = body.graph.add(lg.block(lambda x: x + 1.0, name="inside"))
    body.expose(inside["x"])
    body.expose(inside["result"])
    maybe = engine.add(lg.If("maybe", body))
    engine.connect(source, maybe["x"])
    engine.set(maybe["condition"], False)
    assert "source" in engine.step().unneeded
    assert engine.peek(source) is None
    engine.set(source["x"], 5.0)
    assert "source" not in engine.step().ran
    engine.set(maybe["condition"], True)
    engine.step()
    assert engine.peek(source) == 15.0


def test_peeking_at_shared_memory_returns_the_value_or_none():
    engine = lg.Engine(reuse_memory=True)
    blocks = [engine.add(lg.block(lambda x: x + 1.0, name=f"add{index}")) for index in range(6)]
    engine.set(blocks[0]["x"], np.zeros(1000, np.float32))
    for before, after in pairwise(blocks):
        engine.connect(before, after["x"])
    engine.step()
    seen = {index: value[0] for index, block in enumerate(blocks) if (value := engine.peek(block)) is not None}
    assert seen[5] == 6.0
    assert len(seen) < 6
    assert all(value == index + 1 for index, value in seen.items())


def test_peeking_at_a_failed_or_removed_block_returns_none():
    engine = lg.Engine()
    bad = engine.add(lg.block(lambda x=0: lg.take(lg.asarray([1.0, 2.0]), lg.reshape(x, (1,))), name="bad"))
    engine.step()
    assert engine.peek(bad) is not None
    engine.set(bad["x"], 7)
    assert engine.step().failed == {"bad"}
    assert engine.peek(bad) is None
    engine.remove(bad)
    assert engine.peek(bad) is None
    assert engine.peek(bad["x"]) is None


def test_renaming_keeps_connections_positions_and_values():
    engine, count, more = counter()
    engine.step()
    engine.step()
    engine.rename(count, "total")
    engine.rename(more, "up")
    engine.step()
    assert list(engine.graph.blocks) == ["total", "up"]
    assert (engine.read(count), engine.read(more)) == (3.0, 3.0)
    assert not engine.frame.problems


def test_renaming_keeps_a_value_that_was_set_before_the_frame():
    engine, count, more = counter()
    engine.step()
    engine.set(count, 10.0)
    engine.rename(count, "total")
    engine.step()
    assert engine.read(more) == 11.0


def test_renaming_a_composite_keeps_the_states_inside():
    engine = lg.Engine()
    outer = engine.add(lg.Composite("outer"))
    count = outer.graph.add(lg.State("count", 0.0))
    more = outer.graph.add(lg.block(lambda x: x + 1.0, name="more"))
    outer.graph.connect(count, more["x"])
    outer.graph.connect(more, count["next"])
    outer.expose(more["result"])
    engine.step()
    engine.step()
    engine.rename(outer, "renamed")
    engine.step()
    assert engine.read(outer["result"]) == 3.0


def test_renamed_graphs_equal_graphs_created_with_the_new_names():
    engine, _, more = counter()
    gradient = engine.add(lg.grad(of=more, by=[more["by"]], name="gradient"))
    engine.step()
    engine.rename(more, "up")
    engine.step()
    assert engine.read(gradient["by"]) == 1.0
    other = lg.Engine()
    start = other.add(lg.State("count", 0.0))
    up = other.add(lg.block(lambda x, by=1.0: x + by, name="up"))
    other.connect(start, up["x"])
    other.connect(up, start["next"])
    other.add(lg.grad(of=up, by=[up["by"]], name="gradient"))
    other.step()
    assert engine.phases() == other.phases()


@pytest.mark.parametrize("name", ["", 3, "more"])
def test_an_invalid_name_is_rejected_without_effect(name):
    engine, count, _ = counter()
    with pytest.raises(lg.UsageError):
        engine.rename(count, name)
    assert list(engine.graph.blocks) == ["count", "more"]


def test_a_recording_replays_names(tmp_path):
    engine, count, more = counter()
    engine.step()
    with lg.live.record(engine, tmp_path / "session.jsonl"):
        engine.rename(count, "total")
        engine.step()
        engine.rename(more, "up")
        engine.step()
    replayed = lg.live.replay(tmp_path / "session.jsonl", trust=True)
    assert replayed.differences == ()
    assert list(replayed.engine.graph.blocks) == ["total", "up"]
