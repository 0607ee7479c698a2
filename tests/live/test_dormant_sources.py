"""Connections and values of removed pins are dormant until the pin returns or gets another source."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import livegrad as lg
from livegrad.ir.types import Tensor, f32


def rename(engine: lg.Engine, block: Any, function: Callable[..., Any], outputs: Any = "result") -> None:
    engine.edit(block, lg.block(function, name=block.name, outputs=outputs).body)


def pair(executor_name: str = "cpu") -> tuple[lg.Engine, Any, Any]:
    """A block with the outputs `a` and `b`, and a block that reads `b`."""
    engine = lg.Engine(executor_name)
    two = engine.add(lg.block(lambda x=1.0: (x, x * 2.0), name="two", outputs=("a", "b")))
    after = engine.add(lg.block(lambda x, by=1.0: x * by, name="after"))
    engine.connect(two["b"], after["x"])
    engine.set(after["by"], 10.0)
    assert engine.step().ok
    assert float(engine.read(after)) == 20.0
    return engine, two, after


def test_an_input_that_is_renamed_and_renamed_back_is_reconnected(executor_name: str) -> None:
    engine, _, after = pair(executor_name)
    held = after["x"]
    rename(engine, after, lambda value, by=1.0: value * by)
    frame = engine.step()
    assert [str(problem.pin) for problem in frame.problems] == ["value"]
    with pytest.raises(lg.UsageError, match="not an input"):
        engine.set(held, 3.0)
    rename(engine, after, lambda x, by=1.0: x + by)
    assert after["x"] is held
    assert engine.step().ok
    assert float(engine.read(after)) == 12.0


def test_an_output_that_is_renamed_and_renamed_back_is_reconnected(executor_name: str) -> None:
    engine, two, after = pair(executor_name)
    rename(engine, two, lambda x=1.0: (x, x * 3.0), ("a", "c"))
    frame = engine.step()
    assert "it was connected to `two.b`, which no longer exists" in str(frame.problems[0])
    assert [problem.pin for problem in frame.problems] == ["x"]
    rename(engine, two, lambda x=1.0: (x, x * 4.0), ("a", "b"))
    assert engine.step().ok
    assert float(engine.read(after)) == 40.0


def test_a_connection_survives_the_removal_and_return_of_both_pins(executor_name: str) -> None:
    engine, two, after = pair(executor_name)
    rename(engine, two, lambda x=1.0: x, "a")
    rename(engine, after, lambda by=1.0: by)
    assert engine.step().ok
    rename(engine, after, lambda x=5.0, by=1.0: x * by)
    assert engine.step().ok
    assert float(engine.read(after)) == 50.0  # its default: the output is still missing
    rename(engine, two, lambda x=1.0: (x, x * 2.0), ("a", "b"))
    assert engine.step().ok
    assert float(engine.read(after)) == 20.0


def test_the_value_of_an_input_returns_with_the_input(executor_name: str) -> None:
    engine, _, after = pair(executor_name)
    rename(engine, after, lambda x: x)
    assert engine.step().ok
    rename(engine, after, lambda x, by=3.0: x * by)
    assert engine.step().ok
    assert float(engine.read(after)) == 20.0


def test_a_reader_with_another_source_is_not_reconnected() -> None:
    engine, two, after = pair()
    rename(engine, two, lambda x=1.0: x, "a")
    engine.set(after["x"], 7.0)
    rename(engine, two, lambda x=1.0: (x, x * 2.0), ("a", "b"))
    assert engine.step().ok
    assert float(engine.read(after)) == 70.0


def test_a_dormant_connection_can_be_disconnected() -> None:
    engine, two, after = pair()
    rename(engine, two, lambda x=1.0: x, "a")
    engine.disconnect(after["x"])
    rename(engine, two, lambda x=1.0: (x, x * 2.0), ("a", "b"))
    assert [problem.pin for problem in engine.step().problems] == ["x"]
    with pytest.raises(lg.UsageError, match="is not connected"):
        engine.disconnect(after["x"])


@pytest.mark.parametrize("removed", ["source", "reader"])
def test_a_block_that_is_removed_and_readded_has_no_dormant_connections(removed: str) -> None:
    engine, two, after = pair()
    rename(engine, two, lambda x=1.0: x, "a")
    block = two if removed == "source" else after
    engine.remove(block)
    engine.add(block)
    rename(engine, two, lambda x=1.0: (x, x * 2.0), ("a", "b"))
    assert [problem.pin for problem in engine.step().problems] == ["x"]


def test_a_restored_connection_with_another_type_is_checked() -> None:
    engine = lg.Engine()
    source = engine.add(lg.block(lambda x=1.0: (x, x), name="source", outputs=("a", "b")))
    after = engine.add(lg.block(lambda x: x + 1.0, name="after", inputs={"x": Tensor(f32, ())}))
    engine.connect(source["b"], after["x"])
    assert engine.step().ok
    rename(engine, source, lambda x=1.0: x, "a")
    rename(engine, source, lambda x=1.0: (x, lg.ones(3) * x), ("a", "b"))
    frame = engine.step()
    assert [(problem.node, problem.pin) for problem in frame.problems] == [("after", "x")]
    assert "does not fit" in str(frame.problems[0])


def test_a_dormant_connection_is_not_saved_and_does_not_prevent_saving(tmp_path: Path) -> None:
    engine = lg.Engine()
    engine.add(lg.block(lambda x=1.0: x, name="two", outputs=("a",)))
    two = engine.graph.blocks["two"]
    after = engine.add(lg.block(lambda x=5.0: x, name="after"))
    engine.connect(two["a"], after["x"])
    engine.edit(two, lg.block(lambda x=1.0: x, name="two", outputs=("b",)).body)
    engine.save(tmp_path / "scene.lg")
    opened = lg.load_document(tmp_path / "scene.lg").engine(trust=True)
    assert opened.step().ok
    assert float(opened.read(opened.graph.blocks["after"])) == 5.0


@pytest.mark.parametrize("begins", ["before", "while dormant"])
def test_a_recording_replays_restored_sources(begins: str, tmp_path: Path) -> None:
    engine = lg.Engine()
    group = lg.Composite("group")
    inner = group.graph.add(lg.block(lambda x=1.0: x, name="inner", outputs=("a",)))
    reader = group.graph.add(lg.block(lambda x=5.0: x * 2.0, name="reader"))
    group.graph.connect(inner, reader["x"])
    group.expose(reader["result"])
    after = lg.block(lambda x=3.0, y=1.0: x + y, name="after")
    engine.add(group)
    engine.add(after)
    engine.connect(group, after["x"])
    engine.set(after["y"], 4.0)

    def take_away() -> None:
        engine.edit(inner, lg.block(lambda x=1.0: x, name="inner", outputs=("b",)).body)
        engine.edit(after, lg.block(lambda x=3.0: x, name="after").body)
        engine.edit(after, lg.block(lambda z=3.0: z, name="after").body)

    if begins == "while dormant":
        take_away()
    with lg.live.record(engine, tmp_path / "session.jsonl"):
        if begins == "before":
            take_away()
        engine.step()
        engine.edit(inner, lg.block(lambda x=1.0: x, name="inner", outputs=("a",)).body)
        engine.edit(after, lg.block(lambda x=3.0, y=1.0: x + y, name="after").body)
        assert engine.step().ok
        assert float(engine.read(after)) == 6.0
    replayed = lg.live.replay(tmp_path / "session.jsonl", trust=True)
    assert replayed.differences == ()
    assert float(replayed.engine.read(replayed.engine.graph.blocks["after"])) == 6.0


# --- hidden pins ---


def composite_of(function: Callable[..., Any], outputs: Any = "result") -> tuple[lg.Composite, Any]:
    composite = lg.Composite("body")
    inner = composite.graph.add(lg.block(function, name="inner", outputs=outputs))
    for pin in (*inner.inputs, *inner.outputs):
        composite.expose(inner[pin])
    return composite, inner


def test_a_hidden_input_takes_its_default_until_it_is_exposed_again(executor_name: str) -> None:
    engine = lg.Engine(executor_name)
    composite, inner = composite_of(lambda x=1.0, y=2.0: x * 10.0 + y)
    engine.add(composite)
    engine.set(composite["x"], 3.0)
    assert engine.step().ok
    assert float(engine.read(composite)) == 32.0
    composite.hide(composite["x"])
    assert list(composite.inputs) == ["y"]
    assert engine.step().ok
    assert float(engine.read(composite)) == 12.0
    composite.expose(inner["x"])
    assert engine.step().ok
    assert float(engine.read(composite)) == 32.0


def test_a_composite_can_be_saved_after_its_lost_pin_is_hidden(tmp_path: Path) -> None:
    engine = lg.Engine()
    composite, inner = composite_of(lambda x=1.0: (x, x * 2.0), ("a", "b"))
    engine.add(composite)
    after = engine.add(lg.block(lambda x=7.0: x, name="after"))
    engine.connect(composite["b"], after["x"])
    engine.edit(inner, lg.block(lambda x=1.0: x, name="inner", outputs=("a",)).body)
    with pytest.raises(lg.LivegradError, match="hide the exposed pin"):
        engine.save(tmp_path / "scene.lg")
    composite.hide(composite["b"])
    engine.save(tmp_path / "scene.lg")
    assert engine.step().ok
    assert float(engine.read(after)) == 7.0


def test_a_pin_of_a_removed_block_can_be_hidden() -> None:
    engine = lg.Engine()
    composite, inner = composite_of(lambda x=1.0: x)
    engine.add(composite)
    assert engine.step().ok
    composite.graph.remove(inner)
    for pin in (composite["x"], composite["result"]):
        composite.hide(pin)
    assert engine.step().ok
    assert str(composite) == "<block body() -> nothing>"


def test_a_pin_that_is_hidden_in_a_body_leaves_the_region(executor_name: str) -> None:
    engine = lg.Engine(executor_name)
    composite, inner = composite_of(lambda x=1.0, y=2.0: (x + y, x - y), ("sum", "difference"))
    region = engine.add(lg.If("region", composite))
    engine.set(region["condition"], True)
    engine.set(region["y"], 5.0)
    after = engine.add(lg.block(lambda x=0.5: x, name="after"))
    engine.connect(region["difference"], after["x"])
    assert engine.step().ok
    composite.hide(composite["y"])
    composite.hide(composite["difference"])
    assert (list(region.inputs), list(region.outputs)) == (["condition", "x"], ["sum"])
    assert engine.step().ok
    assert (float(engine.read(region["sum"])), float(engine.read(after))) == (3.0, 0.5)
    composite.expose(inner["y"])
    composite.expose(inner["difference"])
    assert engine.step().ok
    assert (float(engine.read(region["sum"])), float(engine.read(after))) == (6.0, -4.0)


def test_a_pin_that_a_loop_needs_cannot_be_hidden() -> None:
    body, _ = composite_of(lambda x, y=2.0: (x * y, x > 2.0), ("half", "condition"))
    loop = lg.While("loop", body, carried={"x": "half"})
    for name, reason in (("x", "cannot carry"), ("half", "cannot carry"), ("condition", "must expose an output")):
        with pytest.raises(lg.UsageError, match=reason):
            body.hide(body[name])
    assert str(body) == "<block body(x, y) -> half, condition>"
    body.hide(body["y"])
    assert str(loop) == "<block loop(condition, x) -> half>"


def test_only_exposed_pins_can_be_hidden() -> None:
    composite, inner = composite_of(lambda x: x)
    region = lg.If("region", composite)
    for pin in (inner["x"], "x", None):
        with pytest.raises(lg.UsageError, match="not a pin that `body` exposes"):
            composite.hide(pin)  # type: ignore[arg-type]
    with pytest.raises(lg.UsageError, match="region"):
        region.hide(region["x"])


def test_hiding_is_recorded(tmp_path: Path) -> None:
    engine = lg.Engine()
    composite, inner = composite_of(lambda x=1.0: x * np.float32(2.0))
    engine.add(composite)
    engine.set(composite["x"], 4.0)
    with lg.live.record(engine, tmp_path / "session.jsonl"):
        engine.step()
        composite.hide(composite["x"])
        engine.step()
        composite.expose(inner["x"])
        engine.step()
    replayed = lg.live.replay(tmp_path / "session.jsonl", trust=True)
    assert (replayed.frames, replayed.differences) == (3, ())
