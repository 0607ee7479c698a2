"""Blocks that cannot run do not keep the others from running; and a thread that steps without a rest gives way."""

from __future__ import annotations

import random
import threading
from typing import Any

import numpy as np
import pytest

import livegrad as lg


def broken(y: Any) -> Any:
    return y.nothing


@pytest.fixture(params=["at once", "background"])
def engine(request: pytest.FixtureRequest) -> lg.Engine:
    return lg.Engine(compile=request.param)


def value(engine: lg.Engine, block: Any) -> float | None:
    peeked = engine.peek(block)
    return None if peeked is None else float(peeked)


def test_the_first_frame_runs_what_does_not_depend_on_a_broken_block(engine):
    first = engine.add(lg.block(lambda x=2.0: x * 2.0, name="first"))
    middle = engine.add(lg.block(broken))
    last = engine.add(lg.block(lambda z: z + 1.0, name="last"))
    engine.connect(first, middle["y"])
    engine.connect(middle, last["z"])
    count, more = engine.add(lg.State("count", np.float32(0.0))), engine.add(lg.block(lambda q: q + 1.0, name="more"))
    engine.connect(count, more["q"])
    engine.connect(more, count["next"])
    fed = engine.add(lg.State("fed", np.float32(0.0)))  # depends on the broken block
    reader = engine.add(lg.block(lambda r: r * 1.0, name="reader"))
    engine.connect(last, fed["next"])
    engine.connect(fed, reader["r"])
    frame = engine.step()
    assert [problem.node for problem in frame.problems] == ["broken"]
    assert set(frame.ran) == {"first", "more"}
    assert (middle.debug.state, first.debug.state, last.debug.state) == ("failed", "running", "new")
    engine.set(first["x"], 5.0)
    assert engine.step().ran == ("first", "more")
    assert (value(engine, first), value(engine, last), value(engine, more)) == (10.0, None, 2.0)
    lg.live.edit(engine, middle, lambda y: y * 3.0)
    assert engine.settle().ok
    assert (value(engine, last), value(engine, reader), value(engine, more)) == (31.0, 0.0, 3.0)


def test_a_new_broken_block_does_not_stop_later_edits(engine):
    first = engine.add(lg.block(lambda x=2.0: x * 2.0, name="first"))
    assert engine.step().ok
    alone = engine.add(lg.block(lambda w: w * 10.0, name="alone"))
    assert engine.settle().problems[0].pin == "w"
    second = engine.add(lg.block(lambda v: v + 1.0, name="second"))
    engine.connect(first, second["v"])
    assert [problem.node for problem in engine.settle().problems] == ["alone"]
    assert value(engine, second) == 5.0
    engine.connect(second, alone["w"])
    assert engine.settle().ok
    assert value(engine, alone) == 50.0


def test_a_block_that_ran_keeps_its_last_good_plan(engine):
    first = engine.add(lg.block(lambda x=2.0: x * 2.0, name="first"))
    last = engine.add(lg.block(lambda z: z + 1.0, name="last"))
    engine.connect(first, last["z"])
    assert engine.step().ok
    lg.live.edit(engine, first, lambda x=2.0: x.nothing)
    assert engine.settle().problems
    assert (value(engine, first), value(engine, last)) == (4.0, 5.0)


def test_a_graph_of_broken_blocks_has_no_plan():
    engine = lg.Engine()
    engine.add(lg.block(broken))
    assert engine.step().problems
    assert engine.plan is None


@pytest.mark.parametrize("seed", range(12))
def test_partial_plans_compute_what_the_sound_part_computes_alone(seed):
    """A random graph with broken blocks: the others have the values of a graph without them."""
    random_numbers = random.Random(seed)
    names = [f"b{index}" for index in range(14)]
    reads = {name: random_numbers.choice(names[:index]) for index, name in enumerate(names) if index}
    bad = set(random_numbers.sample(names[1:], 3))
    affected = set(bad)
    for name in names[1:]:
        if reads[name] in affected:
            affected.add(name)

    def build(engine: lg.Engine, chosen: list[str]) -> None:
        for name in chosen:
            number = float(names.index(name) + 1)
            function = broken if name in bad else (lambda y=1.0, k=number: y * 0.5 + k)
            engine.add(lg.block(function, name=name))
        for name in chosen:
            if name in reads:
                engine.connect(engine.graph.blocks[reads[name]], engine.graph.blocks[name]["y"])

    sound = [name for name in names if name not in affected]
    partial, alone = lg.Engine(), lg.Engine()
    build(partial, names)
    build(alone, sound)
    for gain in (1.0, 3.0):
        for engine in (partial, alone):
            engine.set(engine.graph.blocks["b0"]["y"], gain)
        assert {problem.node for problem in partial.step().problems} == {n for n in bad if reads[n] not in affected}
        assert alone.step().ok
        for name in names:
            expected = value(alone, alone.graph.blocks[name]) if name in sound else None
            assert value(partial, partial.graph.blocks[name]) == expected
    for name in sorted(bad):
        lg.live.edit(partial, partial.graph.blocks[name], lambda y=1.0: y * 2.0)
    assert partial.step().ok


# --- turns ------------------------------------------------------------------------------------------------------------


def test_a_thread_that_steps_without_a_rest_gives_way():
    engine = lg.Engine()
    block = engine.add(lg.block(lambda x=1.0: x * 2.0, name="double"))
    is_over = threading.Event()

    def step() -> None:
        while not is_over.is_set():
            engine.set(block["x"], float(engine.frame.number))
            engine.step()

    thread = threading.Thread(target=step)
    thread.start()
    try:
        for _ in range(200):
            runtime = engine._runtime
            with runtime.gate:  # as `between_frames` does; from here on, at most the frame that has begun ends
                before = engine.frame.number
                with runtime.lock:
                    assert engine.frame.number - before <= 1
            with engine.between_frames(), engine.between_frames():
                number = engine.frame.number
                assert engine.peek(block) is not None or number == 0
                assert engine.frame.number == number
    finally:
        is_over.set()
        thread.join()


def test_the_thread_that_has_its_turn_may_step():
    engine = lg.Engine()
    engine.add(lg.block(lambda x=1.0: x * 2.0, name="double"))
    with engine.between_frames():
        assert engine.step().ok
        assert engine.settle().ok
