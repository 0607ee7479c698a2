"""The cost of a frame, in calls of Python functions: it depends on the changes and not on the size of the graph."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from livegrad.live.blocks import block, edit
from livegrad.live.engine import Engine
from livegrad.live.graph.composite import Composite

NUMBERS = np.arange(4, dtype=np.float32)


def calls_of(action: Callable[[], Any], where: str = "") -> int:
    """The number of calls of Python functions that an action makes, in files of some folder.

    The minimum of several counts excludes calls from garbage collections.
    """
    count = 0

    def note(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event == "call" and where in frame.f_code.co_filename

    sys.setprofile(note)
    try:
        action()
    finally:
        sys.setprofile(None)
    return count


def chain(blocks: int, nested: bool = False, backend: str = "cpu") -> tuple[Engine, list[Any]]:
    """A chain of blocks that double their input, after the first frame; with `nested`, each in a composite."""
    engine = Engine(backend)
    made: list[Any] = []
    before: Any = None
    for number in range(blocks):
        own = block(lambda x, gain=2.0: x * gain, name=f"b{number}")
        outer: Any = own
        if nested:
            outer = Composite(f"c{number}")
            outer.graph.add(own)
            outer.expose(own["x"])
            outer.expose(own["result"])
        engine.add(outer)
        if before is not None:
            engine.connect(before, outer["x"])
        else:
            engine.set(outer["x"], NUMBERS)
        before = outer
        made.append(own)
    engine.step()
    return engine, made


def frame_with(engine: Engine, made: list[Any], gain: float) -> Callable[[], Any]:
    def frame() -> None:
        last = made[-1]
        last.home.set(last["gain"], gain)
        assert engine.step().ran[-1:] == engine.frame.ran

    return frame


def test_the_cost_of_a_hot_change_is_independent_of_the_graph_size():
    counts = []
    for blocks, nested in ((4, False), (80, False), (4, True), (80, True)):
        engine, made = chain(blocks, nested)
        frame_with(engine, made, 3.0)()  # computes everything that is derived from the plan
        counts.append(min(calls_of(frame_with(engine, made, gain)) for gain in (4.0, 5.0, 6.0)))
    assert counts[0] == counts[1]
    assert counts[2] == counts[3]


def test_the_cost_of_a_frame_without_changes_is_independent_of_the_graph_size():
    counts = []
    for blocks in (4, 80):
        engine, _ = chain(blocks)
        engine.step()
        counts.append(min(calls_of(engine.step) for _ in range(3)))
    assert counts[0] == counts[1]


def test_a_rejected_edit_is_not_retried_until_something_changes():
    engine, made = chain(4)
    attempts = 0

    def broken(x, gain=2.0):
        nonlocal attempts
        attempts += 1
        raise ValueError("not now")

    edit(engine, made[1], broken)
    for _ in range(5):
        assert not engine.step().ok
    assert attempts == 1
    engine.set(made[2]["gain"], 7.0)  # numbers still reach the running plan
    assert not engine.step().ok
    np.testing.assert_array_equal(engine.read(made[3], running=True), NUMBERS * 56)  # by 2, 2, 7 and 2
    edit(engine, made[1], lambda x, gain=2.0: x + gain)
    assert engine.step().ok
    np.testing.assert_array_equal(engine.read(made[3]), (NUMBERS * 2 + 2) * 14)
