"""Threads that edit, step and read one engine: frames are atomic, edits apply to the next frame, and nothing deadlocks.

Tests force schedules where possible: a library call or a traced function lets another thread run first.
"""

from __future__ import annotations

import contextlib
import faulthandler
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import numpy as np
import pytest

import livegrad as lg
from livegrad.diagnostics import LivegradError, UsageError
from livegrad.live.blocks import append_block, block, captured_block, edit
from livegrad.live.engine import Engine
from livegrad.live.graph import block_graph
from livegrad.live.graph.block import State
from livegrad.live.graph.block_graph import Graph
from livegrad.live.graph.composite import Composite
from livegrad.live.graph.journal import Journal, Postbox
from livegrad.live.graph.regions import If
from tests.live.guarded_description import guarded_descriptions

LONG = 60.0  # seconds: only a deadlock takes as long
SIZE = 4096


class Other:
    """A thread whose error, if any, is raised by `join`."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self.error: BaseException | None = None
        self.value: Any = None
        self._thread = threading.Thread(target=self._run, args=(work,), daemon=True)
        self._thread.start()

    def _run(self, work: Callable[[], Any]) -> None:
        try:
            self.value = work()
        except BaseException as error:
            self.error = error

    def is_waiting(self, seconds: float = 0.05) -> bool:
        self._thread.join(seconds)
        return self._thread.is_alive()

    def join(self) -> Any:
        self._thread.join(LONG)
        assert not self._thread.is_alive(), "the thread waits for ever"
        if self.error is not None:
            raise self.error
        return self.value


@pytest.fixture
def frequent_switches() -> Iterator[None]:
    """Makes threads switch as often as Python allows."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def interrupted_fill(during: Callable[[], None]) -> Callable[..., None]:
    """A library call that fills its output with a number, and calls a function when half of it is written."""

    def fill(stream: Any, number: Any, result: Any) -> None:
        result[: SIZE // 2] = number
        during()
        result[SIZE // 2 :] = number

    return fill


def engine_with_fill(during: Callable[[], None]) -> tuple[Engine, Any]:
    engine = Engine()
    own = captured_block(interrupted_fill(during), outputs={"result": f"[{SIZE}]"}, name="fill")
    fill = engine.add(own)
    engine.set(fill["number"], 1.0)
    return engine, fill


# --- readings -------------------------------------------------------------------------------------------------------


def test_a_reading_waits_for_the_running_frame_and_is_consistent():
    others: list[Other] = []

    waiting: list[bool] = []

    def during() -> None:
        others.append(Other(lambda: engine.read(fill)))
        waiting.append(others[-1].is_waiting())

    engine, fill = engine_with_fill(during)
    engine.step()
    engine.set(fill["number"], 2.0)
    engine.step()  # at once: a waiting reader still gets the previous frame
    assert waiting == [True, True]
    for other, number in zip(others, (1.0, 2.0), strict=True):
        np.testing.assert_array_equal(other.join(), np.full(SIZE, number))


def test_an_async_reading_during_a_frame_does_not_wait_and_belongs_to_that_frame():
    readings: list[Any] = []

    early: list[bool] = []

    def ask() -> Any:
        reading = engine.read_async(fill)
        early.append(reading.ready())
        return reading

    engine, fill = engine_with_fill(lambda: readings.append(Other(ask).join()))
    assert not engine.step().failed
    engine.set(fill["number"], 2.0)
    engine.step()
    assert early == [False, False]
    assert [reading.ready() for reading in readings] == [True, True]
    for reading, number in zip(readings, (1.0, 2.0), strict=True):
        np.testing.assert_array_equal(reading.result(), np.full(SIZE, number))


def test_an_async_reading_during_a_frame_raises_errors_when_its_result_is_requested():
    readings: list[Any] = []
    stranger = block(lambda x=1.0: x, name="stranger")
    engine, _ = engine_with_fill(lambda: readings.append(Other(lambda: engine.read_async(stranger)).join()))
    engine.step()
    assert readings[0].ready()
    with pytest.raises(UsageError, match="not in this engine"):
        readings[0].result()


def test_the_outcome_of_a_frame_is_available_only_when_it_is_complete():
    seen: list[Any] = []
    engine, fill = engine_with_fill(lambda: seen.append(Other(lambda: (engine.frame.number, engine.frame.ran)).join()))
    engine.step()
    engine.set(fill["number"], 2.0)
    engine.step()
    assert seen == [(0, ()), (1, ("fill",))]
    assert engine.frame.ran == ("fill",)


# --- edits ----------------------------------------------------------------------------------------------------------


def test_a_number_never_waits_for_the_compiler_and_applies_to_the_next_frame():
    engine = Engine()
    scale = engine.add(block(lambda x, gain=1.0: x * gain, name="scale"))
    engine.set(scale["x"], 3.0)
    engine.set(scale["gain"], 10.0)
    engine.step()

    def traced(x, gain=1.0):
        Other(lambda: engine.set(scale["gain"], 100.0)).join()  # while this frame compiles
        return x + gain

    edit(engine, scale, traced)
    engine.step()
    assert float(engine.read(scale)) == 13.0
    assert engine.step().level.name == "HOT"
    assert float(engine.read(scale)) == 103.0


def test_a_structural_edit_waits_for_the_compiler_and_applies_to_the_next_frame():
    engine = Engine()
    others: list[Other] = []

    def traced(x=1.0):
        others.append(Other(lambda: engine.add(block(lambda y=5.0: y, name="late"))))
        assert others[-1].is_waiting()
        return x + 1.0

    engine.add(block(traced, name="early"))
    assert engine.step().ran == ("early",)
    late = others[0].join()
    assert engine.step().ran == ("late",)
    assert float(engine.read(late)) == 5.0


def test_edits_while_steps_run_do_not_wait_and_apply_to_the_next_frame():
    added: list[Any] = []

    def during() -> None:
        if not added:
            added.append(Other(grow).join())

    def grow() -> Any:
        total = engine.add(block(lambda x, gain=1.0: x[0] * gain, name="first"))
        engine.connect(fill, total["x"])
        engine.set(total["gain"], 7.0)
        return total

    engine, fill = engine_with_fill(during)
    assert engine.step().ran == ("fill",)
    assert engine.step().ran == ("first",)
    assert float(engine.read(added[0])) == 7.0


def test_numbers_set_by_a_thread_while_steps_run_are_not_lost():
    engine, fill = engine_with_fill(lambda: Other(lambda: engine.set(double["x"], engine.frame.number + 1.0)).join())
    double = engine.add(block(lambda x: x * 2.0, name="double"))
    engine.set(double["x"], 0.0)
    engine.step()
    for number in range(2, 6):
        engine.set(fill["number"], float(number))
        engine.step()
        assert float(engine.read(double)) == 2.0 * (number - 1)


def test_edits_in_one_with_statement_are_atomic_for_frames():
    engine = Engine()
    engine.add(block(lambda x=1.0: x, name="first"))
    with engine.edits():
        late = engine.add(block(lambda x: x * 2.0, name="late"))
        other = Other(engine.step)
        assert other.is_waiting()  # a frame now would report an unconnected input
        engine.set(late["x"], 4.0)
    assert other.join().ok
    assert float(engine.read(late)) == 8.0


def test_a_number_posted_to_a_composite_reaches_the_engine_that_receives_it():
    inner = Composite("inner")
    scale = inner.graph.add(block(lambda x, gain=1.0: x * gain, name="scale"))
    inner.expose(scale["result"])
    inner.graph.set(scale["x"], 3.0)
    inner.graph.set(scale["gain"], 2.0)
    inner.graph.set(scale["gain"], 5.0)  # in the mailbox of a journal that no engine reads
    engine = Engine()
    engine.add(inner)
    engine.step()
    assert float(engine.read(inner)) == 15.0


def test_a_number_for_a_concurrently_removed_pin_is_ignored():
    engine = Engine()
    scale = engine.add(block(lambda x=1.0: x * 2.0, name="scale"))
    engine.add(block(lambda x=1.0: x * 3.0, name="other"))
    engine.set(scale["x"], 3.0)
    with engine.edits():
        Other(lambda: engine.set(scale["x"], 4.0)).join()  # posted: this thread holds the description
        engine.remove(scale)
    assert engine.step().ok
    assert engine.step().ran == ()


def post(journal: Journal, box: Any, pin: Any, value: float) -> None:
    with journal.posting:
        journal.mailbox[pin] = box, value


def test_posted_numbers_are_delivered_after_an_interrupted_delivery():
    given: list[float] = []

    def give(pin: Any, value: float) -> None:
        given.append(value)
        if given == [1.0, 2.0]:
            raise KeyboardInterrupt

    journal, box = Journal(), Postbox({}, give)
    post(journal, box, "first", 1.0)
    post(journal, box, "second", 2.0)
    with pytest.raises(KeyboardInterrupt):
        journal.deliver()
    journal.deliver()
    assert given == [1.0, 2.0, 1.0, 2.0]
    assert journal.mailbox == {}


def test_only_the_last_posted_number_of_each_pin_is_kept() -> None:
    engine = Engine()
    scale = engine.add(block(lambda x=1.0, gain=1.0: x * gain, name="scale"))
    engine.set(scale["x"], 2.0)
    engine.set(scale["gain"], 2.0)
    engine.step()
    for number in range(1000):
        engine.set(scale["x"], float(number))
        engine.set(scale["gain"], number / 2.0)
    assert len(engine._journal.mailbox) == 2
    engine.step()
    assert float(engine.read(scale)) == 999.0 * 499.5


def test_a_number_posted_during_a_delivery_is_delivered_next() -> None:
    given: list[float] = []

    def give(pin: Any, value: float) -> None:
        given.append(value)
        if value == 1.0:
            post(journal, box, pin, 2.0)

    journal, box = Journal(), Postbox({}, give)
    post(journal, box, "pin", 1.0)
    journal.deliver()
    journal.deliver()
    journal.deliver()
    assert given == [1.0, 2.0]


def test_value_edits_do_not_accumulate_without_frames() -> None:
    engine = Engine()
    count = engine.add(block(lambda n=1, x=1.0: n + x, name="count"))
    engine.set(count["x"], 1.0)
    state = engine.add(State("state", np.zeros(3)))
    engine.connect(state["value"], state["next"])
    for is_running in (False, True):
        for number in range(2000):
            engine.set(count["n"], number)
            engine.set(count["x"], np.full(2, float(number)))
            engine.set(state, np.full(3, float(number)))
            engine.set_feature("animation_time", float(number))
        assert len(engine._journal.entries) < 1000, is_running
        assert engine.step().ok
        np.testing.assert_array_equal(engine.read(count), [3998.0, 3998.0])
        np.testing.assert_array_equal(engine.read(state), [1999.0] * 3)


def test_value_edits_do_not_accumulate_while_the_graph_is_invalid() -> None:
    engine = Engine()
    count = engine.add(block(lambda n=1: n * 2, name="count"))
    unfed = engine.add(block(lambda x: x * 2.0, name="unfed"))
    for number in range(1000):
        engine.set(count["n"], number)
        assert not engine.step().ok
    assert len(engine._journal.applying) < 300
    engine.set(unfed["x"], 4.0)
    assert engine.step().ok
    assert (int(engine.read(count)), float(engine.read(unfed))) == (1998, 8.0)


# --- several graphs -----------------------------------------------------------------------------------------------


def test_adding_a_composite_does_not_block_a_thread_inside_edits_that_edits_it() -> None:
    inner = Composite("inner")  # created first, so that its lock is first in the order
    inner.expose(inner.graph.add(block(lambda x=1.0: x * 2.0, name="double"))["result"])
    engine = Engine()
    with engine.edits():
        other = Other(lambda: engine.add(inner))
        assert other.is_waiting()
        inner.graph.add(block(lambda x=1.0: x * 3.0, name="triple"))  # by the thread for which the other one waits
    other.join()
    assert engine.step().ok
    assert float(engine.read(inner)) == 2.0


def test_threads_inside_edits_of_two_engines_cannot_add_what_the_other_runs() -> None:
    engines, bodies = (Engine(), Engine()), (Composite("first"), Composite("second"))
    for engine, body in zip(engines, bodies, strict=True):
        body.expose(body.graph.add(block(lambda x=1.0: x * 2.0, name="double"))["result"])
        engine.add(lg.If("maybe", body))
    both = threading.Barrier(2)

    def steal(engine: Engine, body: Composite) -> None:
        with engine.edits():
            both.wait(LONG)
            with pytest.raises(UsageError, match="another engine already runs the contents of `again`"):
                engine.add(lg.If("again", body))

    others = [Other(lambda: steal(engines[0], bodies[1])), Other(lambda: steal(engines[1], bodies[0]))]
    for other in others:
        other.join()


def test_an_engine_keeps_its_composites_when_they_are_added_to_an_unused_graph() -> None:
    engine, free, body = Engine(), Composite("free"), Composite("body")
    double = body.graph.add(block(lambda x=1.0: x * 2.0, name="double"))
    body.expose(double["result"])
    maybe = engine.add(lg.If("maybe", body))
    engine.set(maybe["condition"], True)
    engine.step()
    again = free.graph.add(lg.If("again", body))
    for number in (5.0, 7.0):  # the first is set, the second is posted
        body.graph.set(double["x"], number)
        assert engine.step().ok
        assert float(engine.read(maybe)) == 2.0 * number
    free.graph.set(again["condition"], True)
    free.expose(again["result"])
    engine.add(free)
    body.graph.set(double["x"], 9.0)
    assert engine.step().ok
    assert [float(engine.read(one)) for one in (maybe, free)] == [18.0, 18.0]


# --- callbacks and interrupts -----------------------------------------------------------------------------------------


def test_a_before_frame_hook_can_edit_and_read_within_its_frame():
    engine = Engine()
    count = engine.add(block(lambda x=0.0: x + 1.0, name="count"))
    engine.before_frame.append(lambda: engine.set(count["x"], float(engine.read(count))) if engine.plan else None)
    for number in range(1, 5):
        assert engine.step().ok
        assert float(engine.read(count)) == number


def test_a_library_call_can_edit_and_read_its_engine():
    def during() -> None:
        engine.set(double["x"], 21.0)
        engine.read_async(double).result()

    engine, _ = engine_with_fill(during)
    double = engine.add(block(lambda x: x * 2.0, name="double"))
    engine.set(double["x"], 1.0)
    engine.step()
    engine.step()
    assert float(engine.read(double)) == 42.0


@pytest.mark.parametrize("place", ["hook", "call", "trace"])
def test_an_interrupt_leaves_the_engine_unlocked(place: str):
    armed = [True]

    def interrupt() -> None:
        if armed and armed.pop():
            raise KeyboardInterrupt

    engine, fill = engine_with_fill(interrupt if place == "call" else lambda: None)
    if place == "hook":
        engine.before_frame.append(interrupt)
    if place == "trace":

        def traced(x=1.0):
            interrupt()
            return x

        engine.add(block(traced, name="traced"))
    with pytest.raises(KeyboardInterrupt):
        engine.step()
    assert Other(engine.step).join().number == 1
    np.testing.assert_array_equal(Other(lambda: engine.read(fill)).join(), np.ones(SIZE))
    Other(lambda: engine.set(fill["number"], 2.0)).join()
    engine.step()
    assert Other(lambda: engine.read(fill)).join()[-1] == 2.0


# --- several threads at once ------------------------------------------------------------------------------------------


def test_two_threads_that_step_take_turns(executor_name: str, frequent_switches: None):
    engine = Engine(executor_name)
    count = engine.add(State("count", np.zeros(3)))
    more = engine.add(block(lambda x, by=1.0: x + by, name="more"))
    engine.connect(count, more["x"])
    engine.connect(more, count["next"])
    numbers: list[int] = []
    others = [Other(lambda: [numbers.append(engine.step().number) for _ in range(25)]) for _ in range(3)]
    for other in others:
        other.join()
    assert sorted(numbers) == list(range(1, 76))
    np.testing.assert_array_equal(engine.read(count), np.full(3, 75.0))


def spread(engine: Engine, size: int) -> tuple[Any, Any]:
    """Two blocks that fill arrays with one number in turn: the arrays are equal in every complete frame."""
    first = engine.add(block(lambda x, number=0.0: x * 0.0 + number, name="first"))
    second = engine.add(block(lambda y, scale=1.0: y * scale, name="second"))
    engine.set(first["x"], np.zeros(size))
    engine.set(first["number"], 1.0)
    engine.connect(first, second["y"])
    engine.step()
    return first, second


def test_readings_are_consistent_while_threads_edit_step_and_read(executor_name: str, frequent_switches: None):
    engine = Engine(executor_name)
    size = 100_000 if executor_name == "cpu" else 64
    first, second = spread(engine, size)
    rounds = 60 if executor_name == "cpu" else 12
    done = threading.Event()
    torn: list[Any] = []
    failures: list[Any] = []
    counts = {"frames": 0, "readings": 0, "edits": 0}

    def turn() -> None:
        for number in range(rounds * 4):
            engine.set(first["number"], float(number + 2))
            counts["edits"] += 1

    def rebuild() -> None:
        for number in range(rounds):
            with engine.edits():
                extra = engine.add(block(lambda z, by=1.0: z + by, name=f"extra{number}"))
                engine.connect(second, extra["z"])
            if number % 2:
                edit(engine, extra, lambda z, by=1.0: z - by)
            engine.remove(extra)
            counts["edits"] += 3

    def step() -> None:
        while not done.is_set():
            frame = engine.step()
            counts["frames"] += 1
            if not frame.ok or frame.failed:
                failures.append(frame.problems)

    def read() -> None:
        while not done.is_set():
            for get in (lambda: engine.read(second), lambda: engine.read_async(first).result()):
                value = get()
                counts["readings"] += 1
                if not (value == value[0]).all():
                    torn.append(value)

    steppers = [Other(step), Other(read), Other(read)]
    editors = [Other(turn), Other(rebuild)]
    try:
        for editor in editors:
            editor.join()
    finally:
        done.set()
        for stepper in steppers:
            stepper.join()
    engine.step()
    assert failures == []
    assert torn == []
    assert min(counts.values()) > 0
    np.testing.assert_array_equal(engine.read(second), np.full(size, rounds * 4 + 1.0))


def test_a_frame_iterates_over_the_description_only_under_its_lock(executor_name: str) -> None:
    with guarded_descriptions():
        engine = Engine(executor_name)
        body, outside = Composite("body"), Composite("outside")
    keep = body.graph.add(append_block(lambda x: (x > 0.0, x), capacity=2, name="keep"))
    body.expose(keep["x"]), body.expose(keep["values"])
    outside.graph.add(block(lambda x=1.0: x, name="inner"))
    gate, count = engine.add(If("gate", body)), engine.add(State("count", 0.0))
    more = engine.add(block(lambda x, by=1.0: x + by, name="more"))
    engine.connect(count, more["x"]), engine.connect(more, count["next"])
    engine.set(gate["condition"], True), engine.set(gate["x"], np.ones(3, np.float32))
    edits: list[Callable[[], Any]] = [
        lambda: engine.add(outside),
        lambda: engine.set(more["by"], 2.0),
        lambda: engine.set(gate["x"], np.ones(4, np.float32)),
        lambda: edit(engine, more, lambda x, by=1.0: x - by),
        lambda: body.graph.add(block(lambda x=1.0: x, name="two")),
        lambda: engine.set(count, 5.0),
        lambda: engine.remove(outside),  # other threads may edit its contents from now on
    ]
    engine.profiling = "step"
    for make in edits:
        make()
        frame = engine.step()
        assert frame.ok
        assert frame.warnings == () or "room for 2" in frame.warnings[0]
        assert "frame" in engine.explain()
        engine.read(gate), engine.read(count)


def test_an_added_composite_is_locked_at_every_depth() -> None:
    with guarded_descriptions():
        engine, outer, shared = Engine(), Composite("outer"), Composite("shared")
    shared.graph.add(block(lambda x=1.0: x, name="one"))
    outer.graph.add(If("inside", shared))
    beside = If("beside", shared)
    engine.add(outer), engine.add(beside)
    engine.remove(outer), engine.remove(beside)
    assert outer.graph.journal is not shared.graph.journal  # they ran one after the other
    engine.add(outer)
    assert outer.graph.journal is shared.graph.journal is engine.graph.journal


def test_errors_of_edits_are_raised_at_the_edit_even_while_frames_run():
    caught: list[LivegradError] = []

    def during() -> None:
        with pytest.raises(UsageError, match="already") as error:
            Other(lambda: engine.add(block(lambda x=1.0: x, name="fill"))).join()
        caught.append(error.value)

    engine, _ = engine_with_fill(during)
    assert engine.step().ok
    assert "test_threads.py" in str(caught[0])


@pytest.mark.parametrize("kind", ["composite", "region"])
def test_a_composite_moves_to_another_engine_while_a_thread_edits_its_former_engine(kind):
    """That thread may be waiting for the other engine, which would be a deadlock."""
    first, second = lg.Engine(), lg.Engine()
    inside = lg.Composite("inside")
    own = inside.graph.add(lg.block(lambda x=1.0: x + 1.0, name="own"))
    inside.expose(own["result"])
    moved = inside if kind == "composite" else lg.If("region", inside)
    first.add(moved)
    if kind == "region":
        inside.graph.set(own["x"], 1.0)
        first.set(moved["condition"], True)
    first.step()
    first.remove(moved)
    is_held, may_go = threading.Event(), threading.Event()

    def hold() -> None:
        with first.edits():
            is_held.set()
            may_go.wait()

    def move() -> None:
        second.add(moved)
        inside.graph.set(own["x"], 4.0)

    holding, moving = threading.Thread(target=hold), threading.Thread(target=move, daemon=True)
    holding.start()
    is_held.wait()
    moving.start()
    moving.join(20)
    has_moved = not moving.is_alive()
    may_go.set()
    holding.join()
    assert has_moved
    if kind == "region":
        second.set(moved["condition"], True)
    second.step()
    assert float(second.read(moved["result"])) == 5.0
    assert first.step().ok


def put_into_each_other(add_first: Callable[[], Any], add_second: Callable[[], Any]) -> list[str]:
    """The outcomes of two concurrent `add` calls. Each thread keeps its locks until the other has arrived or waits."""
    both_are_adding = threading.Barrier(2)
    require_room = block_graph.require_addable

    def meet(graph: Graph, block: lg.Block) -> None:
        with contextlib.suppress(threading.BrokenBarrierError):
            both_are_adding.wait(0.3)  # if only one can be here at a time, the other need not arrive
        require_room(graph, block)

    said: list[str] = []

    def attempt(add: Callable[[], Any]) -> None:
        try:
            add()
            said.append("added")
        except LivegradError as error:
            said.append(error.what)

    with mock.patch.object(block_graph, "require_addable", meet):
        threads = [threading.Thread(target=attempt, args=[add], daemon=True) for add in (add_first, add_second)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10.0)  # seconds: only a deadlock takes as long
    if any(thread.is_alive() for thread in threads):
        faulthandler.dump_traceback(all_threads=True)
        pytest.fail("the threads wait for each other; their stacks are above")
    return sorted(said)


def test_threads_that_add_two_free_composites_to_each_other_do_not_deadlock() -> None:
    first, second = lg.Composite("first"), lg.Composite("second")
    said = put_into_each_other(lambda: first.graph.add(second), lambda: second.graph.add(first))
    assert said[0] in ("`first` cannot contain itself", "`second` cannot contain itself")
    assert said[1] == "added"


def test_adding_to_an_engine_and_adding_its_composite_elsewhere_do_not_deadlock() -> None:
    engine, free = lg.Engine(), lg.Composite("free")
    body = lg.Composite("body")
    body.expose(body.graph.add(lg.block(lambda x=1.0: x * 2.0, name="double"))["result"])
    engine.add(lg.If("maybe", body))
    again = lg.If("again", body)
    said = put_into_each_other(lambda: engine.add(free), lambda: free.graph.add(again))
    assert said == ["added", "added"] or said[0].startswith("another engine")
    assert engine.step().number == 1
