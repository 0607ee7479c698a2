"""Setting the values of states: `engine.set(state, value)` and `reset`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import livegrad as lg


def counter(executor: str, initial: Any = 0.0, graph: Any = None) -> tuple[lg.Engine, lg.State, lg.Block]:
    """A state that grows by one in each frame."""
    engine = lg.Engine(executor)
    inside = engine if graph is None else graph
    count = inside.add(lg.State("count", initial))
    more = inside.add(lg.block(lambda x: x + 1, name="more"))
    inside.connect(count, more["x"]), inside.connect(more, count["next"])
    return engine, count, more


def test_a_state_continues_from_the_value_that_is_set(executor_name: str) -> None:
    engine, count, more = counter(executor_name)
    for value in (10.0, 20, np.float32(-3.0), np.array(7.0, np.float32)):
        engine.step()
        engine.set(count, value)
        assert float(engine.read(count)) != float(value)  # from the next frame on
        engine.step()
        assert float(engine.read(more)) == float(engine.read(count)) == float(value) + 1.0
    engine.set(count, 5.0)
    engine.reset(count)
    engine.step()
    assert float(engine.read(count)) == 1.0
    engine.reset(count)
    engine.set(count, 5.0)
    engine.step()
    assert float(engine.read(count)) == 6.0


def test_a_state_can_be_set_before_its_first_frame(executor_name: str) -> None:
    engine, count, _ = counter(executor_name, [1, 2])
    engine.set(count, [10, 20])
    engine.step()
    assert engine.read(count).tolist() == [11, 21]
    engine.reset(count)
    engine.step()
    assert engine.read(count).tolist() == [2, 3]


def test_a_pending_state_starts_with_the_value_that_was_set(executor_name: str) -> None:
    engine, count, _ = counter(executor_name)
    engine.step()
    other = engine.add(lg.State("other", 0.0))
    engine.set(other, 5.0)
    engine.set(count, 100.0)
    assert not engine.step().ok  # `other.next` is not connected
    assert float(engine.read(count, running=True)) == 101.0
    engine.connect(other, other["next"])
    assert engine.step().ok
    assert float(engine.read(other)) == 5.0
    assert float(engine.read(count)) == 102.0


def test_a_state_inside_a_composite_is_set_through_the_engine(executor_name: str) -> None:
    inside = lg.Composite("inside")
    engine, count, more = counter(executor_name, 0.0, inside.graph)
    inside.expose(more["result"])
    engine.add(inside)
    engine.step()
    engine.set(count, 8.0)
    engine.step()
    assert float(engine.read(inside)) == 9.0


def test_an_unsuitable_state_value_is_rejected_immediately() -> None:
    engine, count, _ = counter("cpu", np.zeros(3, np.float32))
    for value, said in (
        ([1.0, 2.0], r"value of state `count` does not fit.*expected tensor<f32, \[3\]>, found shape \(2,\)"),
        (np.zeros(3), r"expected tensor<f32, \[3\]>, found an array of float64"),
        (1j, "does not fit"),
        ("abc", "does not fit"),
        ([1.0, 2.0, 1e300], "expected a finite f32"),
    ):
        with pytest.raises(lg.UsageError, match=said) as caught:
            engine.set(count, value)
        assert "test_states.py" in str(caught.value.where)
    with pytest.raises(lg.UsageError, match="not in this engine"):
        engine.set(lg.State("foreign", 0.0), 1.0)
    engine.step()
    assert engine.read(count).tolist() == [1.0] * 3


def test_the_value_is_copied(executor_name: str) -> None:
    engine, count, _ = counter(executor_name, np.zeros(2, np.float32))
    value = np.ones(2, np.float32)
    engine.set(count, value)
    value[:] = 9.0
    engine.step()
    assert engine.read(count).tolist() == [2.0, 2.0]


def test_setting_a_state_is_recorded_and_replayed(tmp_path: Path) -> None:
    engine, count, _ = counter("cpu", [0.0, 0.0])
    engine.step()
    with lg.live.record(engine, tmp_path / "session.jsonl") as recording:
        engine.set(count, [5.0, 6.0])
        engine.step()
        engine.reset(count)
        engine.step()
    replayed = lg.live.replay(recording.path, trust=True)
    assert (replayed.frames, replayed.differences) == (2, ())
    assert (
        replayed.engine.read(replayed.engine.graph.blocks["count"]).tolist() == engine.read(count).tolist() == [1.0] * 2
    )
