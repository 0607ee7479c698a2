"""`Engine(compile="background")`: the running plan goes on while a thread compiles edits. Events order the threads."""

import random
import threading
from typing import Any

import numpy as np
import pytest

import livegrad as lg
from livegrad.live.cpu.cpu_executor import CpuExecutor
from livegrad.live.documents.save import engine_tables
from tests.runtime.cuda.simulate import simulated


class GatedExecutor(CpuExecutor):
    """Compiles in other threads than the first one only when the test opens the gate."""

    def __init__(self):
        self.gate, self.reached = threading.Event(), threading.Event()
        self.owner = threading.get_ident()
        self.made_ahead: list[Any] = []
        self.made_in_frames: list[str] = []

    def prepare(self, step):
        in_frame = threading.get_ident() == self.owner
        if not in_frame:
            self.reached.set()
            assert self.gate.wait(60)
        code = super().prepare(step)
        if not in_frame:
            self.made_ahead.append(code)
        elif not any(code is other for other in self.made_ahead):
            self.made_in_frames.append(step.key)
        return code


def gated():
    executor = GatedExecutor()
    engine = lg.Engine(executor, compile="background")
    double = engine.add(lg.block(lambda x=4.0: x * 2.0, name="double"))
    assert engine.step().ok
    return engine, executor, double


def finish(engine):
    """Frames until the thread has compiled everything; none of them compiles."""
    while (frame := engine.step()).updating:
        engine._applier.background.wait()
    return frame


def test_the_running_plan_goes_on_and_follows_numbers_while_an_edit_compiles():
    engine, executor, double = gated()
    lg.live.edit(engine, double, lambda x=4.0: x * 3.0)
    assert engine.step().updating
    assert executor.reached.wait(60)
    frame = engine.frame
    for number in range(5):
        engine.set(double["x"], float(number))
        frame = engine.step()
        assert (frame.updating, frame.ok, frame.problems, frame.ran) == (True, False, (), ("double",))
        assert engine.read(double) == 2.0 * number
    assert "an update is being compiled" in engine.explain()
    assert "update under way" in repr(frame)
    executor.gate.set()
    frame = finish(engine)
    assert frame.ok
    assert engine.read(double) == 12.0
    assert not engine.step().updating


def test_structural_edits_stand_at_once_with_all_their_values():
    engine, executor, double = gated()
    more = engine.add(lg.block(lambda x, by=1.0: x + by, name="more"))
    engine.connect(double, more["x"])
    engine.set(more["by"], 5.0)
    assert engine.step().updating
    assert executor.reached.wait(60)
    engine.set(more["by"], 7.0)
    engine.set(double["x"], 1.0)
    assert engine.step().updating
    assert engine.read(double) == 2.0
    executor.gate.set()
    assert finish(engine).ok
    assert engine.read(more) == 9.0


def test_frames_take_all_code_from_the_thread():
    engine, executor, double = gated()
    executor.gate.set()
    executor.made_in_frames.clear()
    bend = engine.add(lg.block(lambda x, gain=2.0: lg.sin(x * gain), name="bend"))
    loss = engine.add(lg.block(lambda y: lg.sum(y * y), name="loss"))
    engine.connect(double, bend["x"])
    engine.connect(bend, loss["y"])
    engine.add(lg.grad(of=loss, by=[bend["gain"], double["x"]], name="gradient"))
    assert finish(engine).ok
    lg.live.edit(engine, bend, lambda x, gain=2.0: lg.cos(x * gain) + x)
    assert finish(engine).ok
    engine.set(double["x"], np.ones(3, np.float32))
    assert finish(engine).ok
    assert executor.made_in_frames == []
    assert len(executor.made_ahead) > 6


def test_an_edit_while_another_compiles_is_compiled_next_and_only_the_last_runs():
    engine, executor, double = gated()
    lg.live.edit(engine, double, lambda x=4.0: x * 3.0)
    engine.step()
    assert executor.reached.wait(60)
    lg.live.edit(engine, double, lambda x=4.0: x * 5.0)
    engine.rename(double, "five")
    assert engine.step().updating
    executor.gate.set()
    assert finish(engine).ok
    assert engine.read(double) == 20.0
    assert engine.plan is not None
    assert list(engine.plan.steps) == ["five"]


def test_errors_arrive_at_the_block_and_the_last_good_plan_runs_on():
    engine, executor, double = gated()
    executor.gate.set()
    lg.live.edit(engine, double, lambda x=4.0: lg.reshape(x, (2,)))
    frame = finish(engine)
    assert [problem.block for problem in frame.problems] == [double]
    assert double.debug.state == "failed"
    engine.set(double["x"], 5.0)
    engine.step()
    assert engine.read(double, running=True) == 10.0
    lg.live.edit(engine, double, lambda x=4.0: x + 1.0)
    assert finish(engine).ok
    assert engine.read(double) == 6.0


def test_an_error_of_the_compiler_is_reported_by_the_frame():
    class Failing(CpuExecutor):
        def prepare(self, step):
            if step.key == "bad":
                raise lg.CompileError("this step cannot be compiled")
            return super().prepare(step)

    engine = lg.Engine(Failing(), compile="background")
    good = engine.add(lg.block(lambda x=4.0: x * 2.0, name="good"))
    engine.step()
    engine.add(lg.block(lambda x=4.0: x, name="bad"))
    frame = finish(engine)
    assert "cannot be compiled" in str(frame.problems[0])
    engine.set(good["x"], 1.0)
    engine.step()
    assert engine.read(good, running=True) == 2.0


def test_settle_compiles_in_the_calling_thread_and_inside_groups():
    engine, executor, double = gated()
    lg.live.edit(engine, double, lambda x=4.0: x * 3.0)
    engine.step()
    assert executor.reached.wait(60)
    assert engine.settle().ok
    assert engine.read(double) == 12.0
    with engine.edits():
        lg.live.edit(engine, double, lambda x=4.0: x * 4.0)
        engine.settle()
        assert engine.read(double) == 16.0
    executor.gate.set()


def test_undo_is_compiled_in_the_background_too():
    engine, executor, double = gated()
    executor.gate.set()
    more = engine.add(lg.block(lambda x, by=1.0: x + by, name="more"))
    engine.connect(double, more["x"])
    finish(engine)
    with engine.history.gesture("remove"):
        engine.remove(double)
        engine.set(more["x"], 1.0)
    finish(engine)
    assert engine.read(more) == 2.0
    engine.history.undo()
    finish(engine)
    assert engine.read(more) == 9.0


def test_recordings_contain_edits_in_the_frames_that_apply_them(tmp_path):
    engine, executor, double = gated()
    executor.gate.set()
    with lg.live.record(engine, tmp_path / "session.jsonl"):
        lg.live.edit(engine, double, lambda x=4.0: x * 3.0)
        assert not engine.step().updating
    assert lg.live.replay(tmp_path / "session.jsonl", trust=True).differences == ()


def test_states_advance_and_keep_their_values_across_an_update():
    executor = GatedExecutor()
    engine = lg.Engine(executor, compile="background")
    count = engine.add(lg.State("count", 0.0))
    more = engine.add(lg.block(lambda x, by=1.0: x + by, name="more"))
    engine.connect(count, more["x"])
    engine.connect(more, count["next"])
    engine.step()
    lg.live.edit(engine, more, lambda x, by=1.0: x + 10.0 * by)
    engine.rename(count, "total")  # its value goes on until the new plan stands
    engine.step()
    assert executor.reached.wait(60)
    for _ in range(3):
        engine.step()
    assert engine.read(more) == 5.0
    executor.gate.set()
    engine.settle()
    assert engine.read(more) == 15.0


def test_an_unknown_way_to_compile_is_rejected():
    with pytest.raises(lg.UsageError, match=r"unknown value of `compile` \(test_background_compilation.py:\d+"):
        lg.Engine(compile="later")  # type: ignore[arg-type]


BODIES: list[Any] = [
    lambda x=1.0, y=2.0: x + y,
    lambda x=1.0, y=2.0: x * y,
    lambda x=1.0, y=2.0: lg.sin(x) - y,
    lambda x=1.0, z=3.0: x / (1.0 + z * z),
]


class _Twins:
    """The same random edits on an engine that compiles in the background and on one that does not."""

    def __init__(self, seed, backend="cpu"):
        self.chance = random.Random(seed)
        self.engines = [lg.Engine(backend, compile="background"), lg.Engine(backend)]
        self.made = 0

    def run(self):
        for _ in range(40):
            self.edit()
            if self.chance.random() < 0.5:
                self.both(lambda engine: engine.step())
            if self.chance.random() < 0.15:
                self.compare()
        self.compare()
        self.both(lambda engine: engine.close())

    def both(self, edit):
        for engine in self.engines:
            edit(engine)

    def edit(self):
        chance, names = self.chance, list(self.engines[0].graph.blocks)
        kind = chance.choice(("add", "body", "connect", "number", "number", "array", "remove", "rename", "undo"))
        body, number = chance.choice(BODIES), chance.uniform(-2.0, 2.0)
        if kind == "add" or len(names) < 3:
            self.made += 1
            return self.both(lambda engine: engine.add(lg.block(body, name=f"b{self.made}")))
        first, second = chance.choice(names), chance.choice(names)
        pin = chance.choice(list(self.engines[0].graph.blocks[first].inputs))
        match kind:
            case "body":
                return self.both(lambda engine: lg.live.edit(engine, engine.graph.blocks[first], body))
            case "connect":
                blocks = lambda engine: engine.graph.blocks  # noqa: E731
                return self.both(lambda engine: engine.connect(blocks(engine)[second], blocks(engine)[first][pin]))
            case "number":
                return self.both(lambda engine: engine.set(engine.graph.blocks[first][pin], number))
            case "array":
                array = np.full(chance.randrange(2, 4), number, np.float32)
                return self.both(lambda engine: engine.set(engine.graph.blocks[first][pin], array))
            case "remove":
                return self.both(lambda engine: engine.remove(engine.graph.blocks[first]))
            case "rename":
                self.made += 1
                return self.both(lambda engine: engine.rename(engine.graph.blocks[first], f"r{self.made}"))
        return self.both(lambda engine: engine.history.undo())

    def compare(self):
        frames = [engine.settle() for engine in self.engines]
        assert [(p.node, p.pin) for p in frames[0].problems] == [(p.node, p.pin) for p in frames[1].problems]
        assert engine_tables(self.engines[0]) == engine_tables(self.engines[1])
        if frames[0].problems:
            return 0
        assert str(self.engines[0].plan).splitlines()[0] == str(self.engines[1].plan).splitlines()[0]
        for name in self.engines[0].graph.blocks:
            first, second = (engine.read(engine.graph.blocks[name]) for engine in self.engines)
            np.testing.assert_array_equal(first, second)
        return 1


@pytest.mark.parametrize("seed", range(12))
def test_after_settling_both_ways_of_compiling_agree(seed):
    _Twins(seed).run()


@pytest.mark.parametrize("seed", range(3))
def test_both_ways_agree_on_a_simulated_gpu(seed):
    with simulated(seed=seed):
        _Twins(seed, "cuda").run()
