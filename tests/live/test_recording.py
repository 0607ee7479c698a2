"""Recordings of live engines: their content, exact replay, and what cannot be recorded."""

from __future__ import annotations

import json

import numpy as np
import pytest

import livegrad as lg
from livegrad.ir.leaves import parameter
from livegrad.tools.cli import main

FACTOR = 3.0
X = np.array([1.0, 2.0, 3.0], np.float32)


def scaled(x):
    return x * FACTOR


@lg.function
def captured(x: lg.f32) -> lg.f32:
    return x * 2.0 + FACTOR


def doubling(name="body"):
    body = lg.Composite(name)
    double = body.graph.add(lg.block(lambda x, factor=2.0: x * factor, name="double"))
    body.expose(double["x"])
    body.expose(double["result"])
    return body, double


def replayed(path, frames):
    found = lg.live.replay(path, trust=True)
    assert found.differences == ()
    assert found.frames == frames
    return found.engine


@pytest.fixture
def path(tmp_path):
    return tmp_path / "session.jsonl"


def test_every_kind_of_edit_replays_bit_by_bit(path):
    engine = lg.Engine()
    memory = np.array([5.0, 6.0, 7.0], np.float32)
    with lg.live.record(engine, path):
        scale = engine.add(lg.block(lambda x, gain=1.0: scaled(x) + gain * lg.sin(x), name="scale"))
        engine.set(scale["x"], X)
        engine.step()
        engine.set(scale["gain"], 2.0)
        engine.step()
        engine.set(scale["gain"], 2.5)  # posted
        engine.step()
        body, double = doubling()
        composite, _ = doubling("composite")
        gate = engine.add(lg.If("gate", body))
        engine.add(composite)
        engine.connect(scale, gate["x"])
        engine.set(gate["condition"], True)
        external = engine.bind(composite["x"], lg.live.ExternalBuffer(memory, version=0))
        engine.step()
        memory[...] = 8.0
        external.touch()
        body.graph.set(double["factor"], np.float64(4.0))
        engine.step()
        composite.graph.set(composite.graph.blocks["double"]["factor"], 6.0)
        composite.expose(composite.graph.blocks["double"]["factor"])
        composite.graph.disconnect(composite.graph.blocks["double"]["factor"])
        engine.set(composite["factor"], 5)
        lg.live.edit(engine, scale, lambda x, gain=1.0: x - gain)
        engine.disconnect(composite["x"])
        assert not engine.step().ok
        engine.set(composite["x"], [1.0, 2.0])
        engine.set(gate["x"], X)
        engine.remove(scale)
        engine.keep(gate)
        engine.step()
        wanted = engine.read(gate), engine.read(composite)
    again = replayed(path, 7)
    for name, value in zip(("gate", "composite"), wanted, strict=True):
        np.testing.assert_array_equal(again.read(again.graph.blocks[name]), value)


def test_a_recording_that_starts_later_continues_from_the_values_of_states(path):
    engine = lg.Engine(reuse_memory=True)
    state = engine.add(lg.State("state", X))
    grow = engine.add(lg.block(lambda x, by=1.0: x * 2.0 + by, name="grow"))
    engine.connect(state, grow["x"])
    engine.connect(grow, state["next"])
    engine.set(grow["by"], 3.0)
    engine.step()
    engine.step()
    with lg.live.record(engine, path):
        engine.step()
        value = engine.read(state)
        engine.reset(state)
        engine.step()
    again = replayed(path, 2)
    assert again.reuse_memory
    np.testing.assert_array_equal(again.read(again.graph.blocks["state"]), X * 2 + 3)
    assert not np.array_equal(value, X * 2 + 3)


def test_every_kind_of_block_replays(path):
    engine = lg.Engine()
    x = parameter(0, lg.f32)
    with lg.live.record(engine, path):
        moving = lg.ir.Function("moving", (x,), ((x + lg.context("animation_time")) * 2.0,))
        time = engine.add(lg.block(moving, inputs=("x",), name="time"))
        engine.set(time["x"], 1.0)
        engine.set_feature("animation_time", 3.0)
        engine.add(lg.block(captured, name="captured"))
        engine.set(engine.graph.blocks["captured"]["x"], np.float32(2.0))
        small = engine.add(lg.live.append_block(lambda x: (x < FACTOR, x), capacity=2, name="small"))
        engine.set(small["x"], X)
        rows = engine.add(lg.live.AppendBuffer("rows", capacity=2, writers=("small",)))
        engine.connect(small["values"], rows["small"])
        near = engine.add(lg.live.neighbour_block(capacity=2))
        engine.set(near["positions"], [[0.0, 0.0], [0.5, 0.0]])
        engine.set(near["radius"], 1.0)
        square = engine.add(lg.block(lambda x: lg.sum(x * x), name="square"))
        engine.set(square["x"], X)
        engine.add(lg.grad(of=square, by=[square["x"]], name="slope"))
        body, _ = doubling()
        other, _ = doubling()
        loop = engine.add(lg.For("loop", body, {"x": "result"}))
        choice = engine.add(lg.Switch("choice", other, doubling()[0]))
        for region, control in ((loop, "count"), (choice, "index")):
            engine.set(region[control], 1)
            engine.set(region["x"], X)
        assert engine.step().ok, engine.frame.problems
    again = replayed(path, 1)
    assert float(again.read(again.graph.blocks["time"])) == 8.0
    assert float(again.read(again.graph.blocks["captured"])) == 7.0


def test_a_replay_reports_differences(path, capsys):
    engine = lg.Engine()
    with lg.live.record(engine, path):
        engine.add(lg.block(lambda x=4.0: x * 2.0, name="double"))
        engine.step()
    path.write_text(path.read_text().replace("x * 2.0", "x * 3.0"))
    (difference,) = lg.live.replay(path, trust=True).differences
    assert (difference.frame, difference.what) == (1, "double.result")
    assert difference.recorded.endswith(" 8.0")
    assert difference.replayed.endswith(" 12.0")
    assert main(["replay", str(path), "--trust", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["differences"][0]["what"] == "double.result"


def test_no_code_of_an_untrusted_file_runs(path, capsys):
    engine = lg.Engine()
    with lg.live.record(engine, path):
        engine.add(lg.block(lambda x=4.0: x * 2.0, name="double"))
        engine.step()
    path.write_text(path.read_text().replace("recorded = ", "raise SystemExit; recorded = "))
    with pytest.raises(lg.UsageError, match="trust=True"):
        lg.live.replay(path)
    assert main(["replay", str(path)]) == 1
    assert "--trust" in capsys.readouterr().err


def test_what_cannot_be_recorded_is_rejected_without_effect(path):
    engine = lg.Engine()
    made = eval(" ".join(["lambda x=1.0:", "x", "+", "1.0"]))  # it has no source text

    class Thing:
        factor = 2.0

    thing = Thing()
    with lg.live.record(engine, path):
        for body in (made, lambda x=1.0: x * thing.factor):
            with pytest.raises(lg.UsageError, match="cannot be recorded"):
                engine.add(lg.block(body, name="b"))
        with pytest.raises(lg.UsageError, match="cannot be recorded"):
            engine.add(lg.live.captured_block(lambda stream, x, y: None, outputs={"y": "same(0)"}, name="call"))
        assert not engine.graph.blocks
        good = engine.add(lg.block(lambda x=1.0: x * FACTOR, name="b"))
        with pytest.raises(lg.UsageError, match="cannot be recorded"):
            lg.live.edit(engine, good, made)
        with pytest.raises(lg.UsageError, match="is already being recorded"):
            lg.live.record(engine, path)
        engine.step()
        assert float(engine.read(good)) == FACTOR
    replayed(path, 1)


def test_a_rejected_edit_is_not_in_the_recording(path):
    engine = lg.Engine()
    with lg.live.record(engine, path):
        first = engine.add(lg.block(lambda x=1.0: x * FACTOR, name="b"))
        twice = lg.block(lambda x=1.0: x + FACTOR, name="b")
        with pytest.raises(lg.UsageError):
            engine.add(twice)
        with pytest.raises(lg.UsageError):
            engine.connect(twice, first["x"])
        with pytest.raises(lg.UsageError):
            engine.set(first["x"], "text")
        engine.step()
        engine.remove(first)
        engine.add(twice)
        engine.step()
    replayed(path, 2)


def test_a_frame_that_ends_with_an_exception_is_omitted(path):
    engine = lg.Engine()
    state = engine.add(lg.State("state", 0.0))
    with lg.live.record(engine, path):
        count = engine.add(lg.block(lambda x: x + 1.0, name="count"))
        engine.connect(state, count["x"])
        engine.connect(count, state["next"])
        engine.step()

        def interrupt() -> None:
            raise KeyboardInterrupt

        engine.set(count["x"], 2.0)
        engine.before_frame.append(interrupt)
        with pytest.raises(KeyboardInterrupt):
            engine.step()
        engine.before_frame.clear()
        engine.connect(state, count["x"])
        engine.step()
        value = float(engine.read(state))
    again = replayed(path, 2)
    assert float(again.read(again.graph.blocks["state"])) == value


def test_a_recording_truncated_by_a_crash_replays_up_to_that_point(path):
    engine = lg.Engine()
    with lg.live.record(engine, path):
        engine.add(lg.block(lambda x=4.0: x * 2.0, name="double"))
        engine.step()
    whole = path.read_text()
    path.write_text(whole + '{"edit": "se')
    replayed(path, 1)
    path.write_text("{}\n" + whole)
    with pytest.raises(lg.UsageError, match="is not a recording"):
        lg.live.replay(path, trust=True)
    path.write_text(whole.replace('{"step"', '{"ste', 1))
    with pytest.raises(lg.UsageError, match="is not valid JSON"):
        lg.live.replay(path, trust=True)


def test_large_outputs_are_recorded_as_hashes(path):
    engine = lg.Engine()
    with lg.live.record(engine, path):
        wide = engine.add(lg.block(lambda x: x * 2.0, name="wide"))
        engine.set(wide["x"], np.arange(5000.0))
        engine.step()
    assert "sha256" in path.read_text()
    replayed(path, 1)


def test_a_temporarily_broken_watched_file_replays_with_the_same_problems(path, tmp_path):
    file = tmp_path / "shade.py"
    texts = ["return x * 2.0", "return x *", "return x.nothing()", "return x *", "return x"]

    def save(number: int) -> None:
        file.write_text(f"def shade(x, gain=1.0):\n    {texts[number]}\n" + "#" * number)  # of another size each time

    save(0)
    engine = lg.Engine()
    problems = []
    with lg.live.record(engine, path):
        shade = lg.live.watch(engine, file, "shade")
        engine.set(shade["x"], X)
        other = engine.add(lg.block(lambda x=1.0: x, name="other"))
        for number in range(6):
            if 0 < number < 5:
                save(number)
            engine.set(other["x"], float(number))
            problems.append([problem.node for problem in engine.step().problems])
        engine.remove(shade)
        engine.step()
    assert problems == [[], ["shade"], ["shade"], ["shade"], [], []]
    replayed(path, 7)
