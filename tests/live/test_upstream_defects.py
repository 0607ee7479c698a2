"""Defects of comparable systems: one test for each, on every executor."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import livegrad as lg
from livegrad.diagnostics import CompileError
from livegrad.ir.types import Tensor, f32
from livegrad.live.blocks import block, captured_block, edit
from livegrad.live.engine import Engine
from livegrad.live.frame import EngineError
from livegrad.live.graph.sources import ExternalBuffer
from livegrad.live.update.diff_plans import Level

NUMBERS = np.arange(4, dtype=np.float32)


def pair(executor_name: str) -> tuple[Engine, lg.Block, lg.Block]:
    """first → second, with a parameter on the second."""
    engine = Engine(executor_name)
    first = engine.add(block(lambda x: x + 1.0, name="first"))
    second = engine.add(block(lambda x, gain=2.0: x * gain, name="second"))
    engine.set(first["x"], NUMBERS)
    engine.connect(first, second["x"])
    return engine, first, second


def test_the_old_graph_stays_until_the_new_one_is_built(executor_name, monkeypatch):
    """The other system discards the old graph first, so a failed build leaves nothing to run."""
    engine, first, second = pair(executor_name)
    engine.step()

    def out_of_memory(*_):
        raise CompileError("no memory left")

    running = engine._runtime.executable
    monkeypatch.setattr(
        *((running, "update") if engine.executor.edits_in_place else (engine.executor, "build")), out_of_memory
    )
    extra = engine.add(block(lambda x: x * 10.0, name="extra"))
    engine.connect(first, extra["x"])
    engine.set(second["gain"], 3.0)
    frame = engine.step()
    assert [str(problem) for problem in frame.problems] == ["extra: no memory left"]
    assert (extra.debug.state, second.debug.state) == ("failed", "running")
    np.testing.assert_array_equal(engine.read(second, running=True), (NUMBERS + 1) * 3)
    with pytest.raises(EngineError, match="no memory left"):
        engine.read(extra)
    monkeypatch.undo()
    assert engine.step().ok
    np.testing.assert_array_equal(engine.read(extra), (NUMBERS + 1) * 10)
    np.testing.assert_array_equal(engine.read(second), (NUMBERS + 1) * 3)


def test_a_compile_error_is_reported_at_its_block(executor_name):
    """The other system reports it for every block."""
    engine, first, second = pair(executor_name)
    engine.step()
    wrong = lambda x, gain=2.0: x.no_such_method(gain)  # noqa: E731 - its line is what the test is about
    edit(engine, second, wrong)
    engine.step()
    assert first.debug.errors == []
    (error,) = second.debug.errors
    assert "no_such_method" in str(error)
    assert f"test_upstream_defects.py:{wrong.__code__.co_firstlineno}" in str(error)


@pytest.mark.parametrize("size", [4, 7])
def test_a_rebound_buffer_is_read(executor_name, size):
    """The other system silently continues with the old buffer."""
    engine, first, second = pair(executor_name)
    engine.bind(first["x"], ExternalBuffer(NUMBERS.copy(), version=0))
    engine.step()
    other = np.full(size, 5, np.float32)
    engine.bind(first["x"], ExternalBuffer(other, version=0))
    engine.step()
    np.testing.assert_array_equal(engine.read(second), np.full(size, 12))


def test_a_code_edit_runs_the_new_code(executor_name):
    """The other system loads the old module again."""
    engine, _, second = pair(executor_name)
    engine.step()
    for offset in (1.0, 2.0, 3.0):
        edit(engine, second, lambda x, gain=2.0, offset=offset: x * gain + float(offset))
        engine.step()
    edit(engine, second, lambda x, gain=2.0: x * gain + 100.0)
    engine.step()
    np.testing.assert_array_equal(engine.read(second), (NUMBERS + 1) * 2 + 100)


@pytest.fixture
def negate(executor_name) -> Callable[..., None]:
    if executor_name == "cpu":
        return lambda stream, x, result: np.negative(x, out=result)
    cupy = pytest.importorskip("cupy")

    def negate_on_device(stream, x, result):
        with cupy.cuda.ExternalStream(int(stream)):
            cupy.negative(cupy.asarray(x), out=cupy.asarray(result))

    return negate_on_device


def test_captured_calls_and_functions_wait_for_each_other_both_ways(executor_name, negate):
    """The other system loses the dependency of a captured call on a kernel."""
    engine = Engine(executor_name)
    after = engine.add(block(lambda x: x + 1.0, name="after"))
    call = engine.add(captured_block(negate, outputs={"result": "same(0)"}, name="call"))
    before = engine.add(block(lambda x: x * 2.0, name="before"))
    engine.set(before["x"], NUMBERS)
    engine.connect(before, call["x"])
    engine.connect(call, after["x"])
    frame = engine.step()
    for _ in range(3):
        np.testing.assert_array_equal(engine.read(after), 1 - engine.read(before))
        engine.set(before["x"], engine.read(before))
        frame = engine.step()
    assert frame.ran == ("before", "call", "after")
    assert engine.plan is not None
    assert [engine.plan.levels[key] for key in frame.ran] == [0, 1, 2]


def test_type_mismatches_and_missing_inputs_are_errors(executor_name):
    """The other system warns and continues with garbage."""
    engine = Engine(executor_name)
    whole = engine.add(block(lambda x=3: x + 1, name="whole"))
    typed = engine.add(block(lambda x: x, name="typed", inputs={"x": Tensor(f32, (4,))}))
    missing = engine.add(block(lambda x: x, name="missing"))
    engine.connect(whole, typed["x"])
    frame = engine.step()
    assert {(problem.block, problem.pin) for problem in frame.problems} == {(typed, "x"), (missing, "x")}
    assert frame.ran == ()


def test_changes_of_two_kinds_apply_in_one_frame(executor_name):
    """The other system delays one of them until the next frame."""
    engine, first, second = pair(executor_name)
    engine.step()
    edit(engine, first, lambda x: x + 5.0)
    engine.set(second["gain"], 10.0)
    frame = engine.step()
    assert {key: change.level for key, change in frame.changes.items()} == {"first": Level.CODE, "second": Level.HOT}
    np.testing.assert_array_equal(engine.read(second), (NUMBERS + 5) * 10)
    assert engine.step().ran == ()
