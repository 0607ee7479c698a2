"""Early cutoff: unchanged values do not run their readers, unchanged states make nothing stale, and regions depend only
on their taken bodies. The values are compared with those of an engine without these savings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import livegrad as lg
from livegrad.live.blocks import append_block, block, captured_block, edit
from livegrad.live.engine import Engine
from livegrad.live.graph.append_buffer import AppendBuffer
from livegrad.live.graph.block import State
from livegrad.live.graph.composite import Composite
from livegrad.live.graph.regions import For, If, IfElse, Switch, While
from livegrad.live.graph.sources import ExternalBuffer


def chain(engine: Engine, *bodies: Callable[..., Any]) -> list[Any]:
    """A chain of blocks `b0`, `b1` …."""
    made: list[Any] = []
    for number, body in enumerate(bodies):
        made.append(engine.add(block(body, name=f"b{number}")))
        if number:
            engine.connect(made[-2], made[-1]["x"])
    return made


# --- early cutoff -----------------------------------------------------------------------------------------------------


def test_readers_of_an_unchanged_value_do_not_run():
    engine = Engine()
    first, _, last = chain(engine, lambda x=3.0: x > 2.0, lambda x: 1.0 * x, lambda x: x + 1.0)
    assert engine.step().ran == ("b0", "b1", "b2")
    engine.set(first["x"], 4.0)
    frame = engine.step()
    assert frame.ran == ("b0",)
    assert frame.spared == ("b1", "b2")
    assert frame.calls == {"b0": 1}
    assert "b1: none, skipped: none of its inputs changed" in engine.explain()
    engine.set(first["x"], 1.0)
    assert engine.step().ran == ("b0", "b1", "b2")
    assert float(engine.read(last)) == 1.0
    assert [one.debug.runs for one in (first, last)] == [3, 2]


def test_early_cutoff_applies_per_output():
    engine = Engine()
    split = engine.add(block(lambda x=1.0, y=1.0: (x * 2.0, y * 2.0), name="split", outputs=("left", "right")))
    for side in ("left", "right"):
        engine.connect(split[side], engine.add(block(lambda z: z + 1.0, name=f"of_{side}"))["z"])
    engine.step()
    engine.set(split["y"], 5.0)
    assert engine.step().ran == ("split", "of_right")


def test_zeros_of_opposite_sign_differ_and_nan_equals_itself():
    engine = Engine()
    first, _ = chain(engine, lambda x=0.0, y=1.0: x / y, lambda x: 1.0 / x)
    engine.step()
    engine.set(first["y"], -1.0)
    assert engine.step().ran == ("b0", "b1")  # -0.0
    engine.set(first["y"], 0.0)
    assert engine.step().ran == ("b0", "b1")  # NaN
    engine.set(first["x"], float("nan"))
    engine.step()
    engine.set(first["y"], 2.0)
    assert engine.step().ran == ("b0",)


def test_new_code_with_the_same_results_cuts_off():
    engine = Engine()
    first, _ = chain(engine, lambda x=2.0: x + x, lambda x: x + 1.0)
    engine.step()
    edit(engine, first, lambda x=2.0: x * 2.0)
    assert engine.step().ran == ("b0",)


def test_unversioned_memory_runs_only_its_readers_until_it_changes():
    engine = Engine()
    first, last = chain(engine, lambda x: x * 2.0, lambda x: x + 1.0)
    shared = np.ones(3)
    engine.bind(first["x"], shared)
    engine.step()
    assert [engine.step().ran for _ in range(2)] == [("b0",), ("b0",)]
    shared[1] = 5.0
    assert engine.step().ran == ("b0", "b1")
    np.testing.assert_array_equal(engine.read(last), [3.0, 11.0, 3.0])


def test_a_value_is_compared_with_what_its_readers_saw_even_across_cold_edits():
    engine = Engine()
    first, _ = chain(engine, lambda x=3.0: x > 2.0, lambda x: 1.0 * x)
    engine.step()
    engine.add(block(lambda x=1.0: x, name="other"))
    engine.set(first["x"], 4.0)
    assert engine.step().ran == ("b0", "other")


def test_a_failed_step_and_its_dependents_run_again_although_the_value_is_the_same():
    engine = Engine()
    first, last = chain(engine, lambda x, at=1: x[at], lambda x: x + 1.0)
    engine.set(first["x"], np.arange(3.0))
    engine.step()
    engine.set(first["at"], 7)
    assert engine.step().failed == {"b0", "b1"}
    engine.set(first["at"], 1)
    assert engine.step().ran == ("b0", "b1")
    assert float(engine.read(last)) == 2.0


def test_steps_skipped_by_a_failed_frame_run_later_although_their_operand_is_unchanged():
    engine = Engine()
    good = engine.add(block(lambda x=1.0: x * 2.0, name="good"))
    bad = engine.add(block(lambda x, at=0: x[at], name="bad"))
    both = engine.add(block(lambda a, b: a + b, name="both"))
    engine.set(bad["x"], np.arange(3.0))
    engine.connect(good, both["a"])
    engine.connect(bad, both["b"])
    engine.step()
    engine.set(good["x"], 5.0)
    engine.set(bad["at"], 9)
    assert engine.step().failed == {"bad", "both"}  # `good` has run, and `both` has not seen it
    engine.set(bad["at"], 0)
    engine.step()
    assert float(engine.read(both)) == 10.0


def test_large_results_are_not_compared():
    engine = Engine()
    first, _ = chain(engine, lambda x, y=1.0: x * y, lambda x: x + 1.0)
    engine.set(first["x"], np.zeros(1 << 12))  # 32 KB
    engine.step()
    engine.set(first["y"], 2.0)
    assert engine.step().ran == ("b0", "b1")


def test_an_interrupt_after_a_step_does_not_hide_its_result_from_readers():
    armed: list[bool] = []

    def call(stream: Any, x: Any, result: Any) -> None:
        if armed:
            raise KeyboardInterrupt
        result[...] = x + 1.0

    engine = Engine()
    first = engine.add(block(lambda x=1.0: x * 2.0, name="first"))
    last = engine.add(captured_block(call, outputs={"result": "same(0)"}, name="last"))
    engine.connect(first, last["x"])
    engine.step()
    engine.set(first["x"], 5.0)
    armed.append(True)
    with pytest.raises(KeyboardInterrupt):
        engine.step()
    armed.clear()
    engine.step()
    assert float(engine.read(last)) == 11.0


def test_a_value_without_readers_counts_as_changed_for_a_new_reader():
    engine = Engine()
    first, last = chain(engine, lambda x=1.0: x * 2.0, lambda x: x + 1.0)
    engine.step()
    engine.set(last["x"], 0.0)
    engine.set(first["x"], 5.0)
    engine.step()
    engine.connect(first, last["x"])
    engine.step()
    engine.set(first["x"], 1.0)
    engine.step()
    assert float(engine.read(last)) == 3.0


def test_a_result_that_always_differs_is_compared_again_only_later():
    engine = Engine()
    first, last = chain(engine, lambda x=0.0, y=0.0: x + y, lambda x: x + 1.0)
    engine.step()
    turns = iter(range(1, 5000))

    def is_spared() -> bool:
        """Whether the reader is spared when the sum stays the same although both numbers change."""
        x = float(next(turns))
        engine.set(first["x"], x)
        engine.set(first["y"], -x)
        return engine.step().ran == ("b0",)

    def differ() -> None:
        engine.set(first["x"], float(next(turns)) + 0.5)
        engine.set(first["y"], 0.0)
        assert engine.step().ran == ("b0", "b1")
        assert float(engine.read(last)) == float(engine.read(first)) + 1.0

    for _ in range(20):
        differ()
    assert [is_spared() for _ in range(3)] == [False, True, True]
    for _ in range(100):
        differ()
    assert [is_spared() for _ in range(3)] == [False, False, False]
    for _ in range(1024 - engine.frame.number):
        engine.set(first["x"], float(next(turns)))
        engine.set(first["y"], 0.0)
        engine.step()
    differ()
    assert [is_spared() for _ in range(3)] == [False, True, True]


def test_an_append_buffer_with_unchanged_rows_cuts_off():
    engine = Engine()
    rows = engine.add(append_block(lambda x, most=5.0: (x < most, x), capacity=4, name="rows"))
    engine.set(rows["x"], [1.0, 2.0, 9.0])
    every = engine.add(AppendBuffer("every", capacity=4, writers=("one",)))
    engine.connect(rows["values"], every["one"])
    engine.connect(every["values"], engine.add(block(lambda v: v * 2.0, name="double"))["v"])
    engine.step()
    engine.set(rows["most"], 6.0)
    assert engine.step().ran == ("rows",)
    engine.set(rows["most"], 10.0)
    assert engine.step().ran == ("rows", "every", "double")


# --- states -----------------------------------------------------------------------------------------------------------


def settling(engine: Engine) -> tuple[State, Any, Any]:
    """A state that converges, and a block that reads it."""
    state = engine.add(State("state", 0.0))
    move = engine.add(block(lambda x, by=1.0, limit=3.0: lg.minimum(x + by, limit), name="move"))
    show = engine.add(block(lambda x: x * 10.0, name="show"))
    engine.connect(state, move["x"])
    engine.connect(move, state["next"])
    engine.connect(state, show["x"])
    return state, move, show


def test_an_unchanged_state_makes_no_reader_stale():
    engine = Engine()
    state, move, show = settling(engine)
    ran = [set(engine.step().ran) for _ in range(6)]
    assert ran == [{"move", "show"}] * 4 + [set()] * 2
    engine.set(move["limit"], 4.0)
    assert engine.step().ran == ("move",)  # the state has not advanced yet
    assert set(engine.step().ran) == {"move", "show"}
    assert float(engine.read(state)) == 4.0
    assert float(engine.read(show)) == 40.0
    engine.reset(state)
    assert set(engine.step().ran) == {"move", "show"}
    assert float(engine.read(show)) == 0.0


def test_states_that_feed_each_other_advance_while_any_of_them_differs():
    engine = Engine()
    first = engine.add(State("first", 0.0))
    later = [engine.add(State(f"later{number}", 0.0)) for number in range(2)]
    source = engine.add(block(lambda x=1.0: x * 2.0, name="source"))
    engine.connect(source, first["next"])
    for before, after in zip((first, *later), later, strict=False):
        engine.connect(before, after["next"])
    show = engine.add(block(lambda x: x + 0.5, name="show"))
    engine.connect(later[-1], show["x"])
    shown = []
    ran = []
    for _ in range(6):
        ran.append("show" in engine.step().ran)
        shown.append(float(engine.read(show)))
    assert shown == [0.5, 0.5, 0.5, 2.5, 2.5, 2.5]
    assert ran == [True, False, False, True, False, False]


def test_a_state_whose_next_value_is_not_recomputed_makes_no_reader_stale(executor_name: str):
    engine = Engine(executor_name)
    state = engine.add(State("state", np.zeros(3)))
    source = engine.add(block(lambda x=1.0: x + np.zeros(3), name="source"))
    show = engine.add(block(lambda x: x * 10.0, name="show"))
    engine.connect(source, state["next"])
    engine.connect(state, show["x"])
    assert [engine.step().ran for _ in range(4)] == [("source", "show"), ("show",), (), ()]
    engine.set(source["x"], 2.0)
    assert [engine.step().ran for _ in range(3)] == [("source",), ("show",), ()]
    np.testing.assert_array_equal(engine.read(show), np.full(3, 20.0))
    engine.reset(state)
    assert [engine.step().ran for _ in range(3)] == [("show",), ("show",), ()]
    np.testing.assert_array_equal(engine.read(show), np.full(3, 20.0))


# --- regions ----------------------------------------------------------------------------------------------------------


def body(name: str, function: Callable[..., Any], outputs: tuple[str, ...] = ("result",)) -> Composite:
    made = Composite(name)
    own = made.graph.add(block(function, name="own", outputs=outputs))
    for pin in (*own.inputs.values(), *own.outputs.values()):
        made.expose(pin)
    return made


def test_a_number_in_an_untaken_branch_does_not_run_the_region():
    engine = Engine()
    either = IfElse("either", body("up", lambda x, up=2.0: x * up), body("down", lambda x, down=0.5: x * down))
    engine.add(either)
    engine.set(either["x"], 8.0)
    engine.set(either["condition"], True)
    engine.set(either["up"], 3.0)
    engine.set(either["down"], 0.5)
    assert engine.step().ran == ("either",)
    for value in (0.25, 0.125):  # the second is a hot update
        engine.set(either["down"], value)
        frame = engine.step()
        assert (frame.ran, frame.spared) == ((), ("either",))
    engine.set(either["condition"], False)
    assert engine.step().ran == ("either",)
    assert float(engine.read(either)) == 1.0
    engine.set(either["up"], 7.0)
    assert engine.step().ran == ()
    engine.set(either["down"], 0.5)
    assert engine.step().ran == ("either",)
    assert float(engine.read(either)) == 4.0


def test_a_block_that_only_the_untaken_branch_reads_does_not_run():
    engine = Engine()
    choice = engine.add(Switch("choice", body("a", lambda a: a + 1.0), body("b", lambda b: b + 2.0)))
    feeds = {name: engine.add(block(lambda x=1.0: x * 2.0, name=f"for_{name}")) for name in "ab"}
    for name, feed in feeds.items():
        engine.connect(feed, choice[name])
    engine.set(choice["index"], 1)
    assert engine.step().ran == ("for_b", "choice")
    engine.set(feeds["a"]["x"], 5.0)
    frame = engine.step()
    assert (frame.ran, frame.unneeded) == ((), ("for_a",))
    assert "for_a: hot, skipped: no taken branch reads it" in engine.explain()
    engine.set(choice["index"], 0)
    assert engine.step().ran == ("for_a", "choice")
    assert "for_a: none, ran: the branch that was taken reads it" in engine.explain()
    assert float(engine.read(choice)) == 11.0
    engine.set(choice["index"], 5)  # no body: zeros, and operands of the bodies do not matter
    engine.step()
    engine.set(feeds["a"]["x"], 6.0)
    assert engine.step().ran == ()
    assert float(engine.read(choice)) == 0.0
    assert [feed.debug.runs for feed in feeds.values()] == [1, 1]


def waiting_chain(engine: Engine, **given: Any) -> tuple[Any, ...]:
    """first → second → the body of an If that is not taken."""
    first, second = chain(engine, given.pop("first", lambda x=1.0: x * 2.0), lambda x: x + 1.0)
    region = engine.add(If("region", body("inside", lambda x: x * 10.0)))
    engine.connect(second, region["x"])
    engine.set(region["condition"], False)
    return first, second, region


def test_a_waiting_value_is_computed_when_it_is_read_and_from_then_on():
    engine = Engine()
    first, second, _ = waiting_chain(engine)
    assert engine.step().ran == ("region",)
    assert float(engine.read(second)) == 3.0
    engine.set(first["x"], 5.0)
    assert engine.step().ran == ("b0", "b1")  # a user reads it
    assert float(engine.read(second)) == 11.0
    assert float(engine.read_async(first).result()) == 10.0


def test_a_waiting_value_that_is_unchanged_runs_no_dependents():
    engine = Engine()
    first, _, region = waiting_chain(engine, first=lambda x=1.0: x > 0.0)
    engine.set(region["condition"], True)
    engine.step()
    engine.set(region["condition"], False)
    engine.step()
    engine.set(first["x"], 2.0)
    assert engine.step().ran == ()
    engine.set(region["condition"], True)
    assert engine.step().ran == ("b0", "region")


def test_a_block_that_nothing_needs_does_not_fail_and_stops_no_state():
    engine = Engine()
    first, second, region = waiting_chain(engine, first=lambda x, y=0: x // y)
    engine.set(first["x"], 6)
    count = engine.add(State("count", np.zeros(())))
    more = engine.add(block(lambda x: x + 1.0, name="more"))
    engine.connect(count, more["x"])
    engine.connect(more, count["next"])
    for _ in range(3):
        assert not engine.step().failed
    assert float(engine.read(count)) == 3.0
    engine.set(region["condition"], True)
    assert engine.step().failed == {"b0", "region"}
    assert float(engine.read(count)) == 3.0
    engine.set(region["condition"], False)
    assert not engine.step().failed
    assert float(engine.read(count)) == 4.0
    with pytest.raises(lg.LivegradError, match="division by zero"):
        engine.read(second)
    assert engine.step().failed == {"b0", "b1"}  # it was read, so frames compute it
    engine.set(first["y"], 2)
    assert not engine.step().failed
    assert int(engine.read(second)) == 4


def test_a_late_reading_has_the_value_of_its_frame():
    """The state has advanced by then."""
    engine = Engine()
    count = engine.add(State("count", np.zeros(())))
    more = engine.add(block(lambda x: x + 1.0, name="more"))
    engine.connect(count, more["x"])
    engine.connect(more, count["next"])
    first, second, _ = waiting_chain(engine)
    engine.connect(count, first["x"])
    for _ in range(3):
        assert "b0" not in engine.step().ran
    assert float(engine.read(count)) == 3.0
    assert float(engine.read(second)) == 2.0 * 2 + 1
    engine.step()
    assert float(engine.read(second)) == 3.0 * 2 + 1


def test_a_waiting_block_runs_when_its_branch_is_removed():
    engine = Engine()
    _, second, region = waiting_chain(engine)
    engine.step()
    engine.remove(region)
    assert engine.step().ran == ("b0", "b1")
    assert float(engine.read(second)) == 3.0


def test_nested_branches_request_what_they_read():
    engine = Engine()
    _, second = chain(engine, lambda x=1.0: x * 2.0, lambda x: x + 1.0)
    outer = Composite("outer")
    inner = outer.graph.add(If("inner", body("inside", lambda x: x * 10.0)))
    for pin in (inner["x"], inner["result"]):
        outer.expose(pin)
    outer.expose(inner["condition"], "inner_condition")
    region = engine.add(If("region", outer))
    engine.connect(second, region["x"])
    engine.set(region["inner_condition"], False)
    engine.set(region["condition"], True)
    assert engine.step().ran == ("region",)
    engine.set(region["inner_condition"], True)
    assert engine.step().ran == ("b0", "b1", "region")
    assert float(engine.read(region)) == 30.0


def test_readers_of_external_memory_run_in_their_frame():
    """By the time of a request, the memory may have changed."""
    engine = Engine()
    first, second, _ = waiting_chain(engine, first=lambda x: x * 2.0)
    own = np.ones(2)
    engine.bind(first["x"], own)
    assert engine.step().ran == ("b0", "region")
    own[:] = 9.0
    np.testing.assert_array_equal(engine.read(second), [3.0, 3.0])


def test_with_reuse_memory_everything_runs():
    engine = Engine(reuse_memory=True)
    waiting_chain(engine)
    assert engine.step().ran == ("b0", "b1", "region")


@pytest.mark.parametrize("kind", ["for", "while"])
def test_operands_of_a_loop_without_iterations_do_not_run_it(kind: str):
    engine = Engine()
    if kind == "for":
        loop: Any = engine.add(For("loop", body("more", lambda x, by=1.0: x + by), carried={"x": "result"}))
    else:
        more = body("more", lambda x, by=1.0: (x + by, x < 5.0), outputs=("result", "condition"))
        loop = engine.add(While("loop", more, carried={"x": "result"}))
    control = loop["count" if kind == "for" else "condition"]
    engine.set(loop["x"], 1.0)
    engine.set(loop["by"], 1.0)
    engine.set(control, 0)
    engine.step()
    engine.set(loop["by"], 2.0)
    assert engine.step().ran == ()
    engine.set(loop["x"], 4.0)
    assert engine.step().ran == ("loop",)
    engine.set(control, 1)
    assert engine.step().ran == ("loop",)
    engine.set(loop["by"], 3.0)
    assert engine.step().ran == ("loop",)
    assert float(engine.read(loop["result"])) == (7.0 if kind == "for" else 10.0)


def test_branches_inside_loops_count_as_taken_if_any_iteration_took_them():
    inner = IfElse(
        "inner", body("small", lambda x, small=1.0: x + small), body("large", lambda x, large=10.0: x + large)
    )
    around = Composite("around")
    test = around.graph.add(block(lambda y: y < 2.5, name="test"))
    around.graph.add(inner)
    around.graph.connect(test, inner["condition"])
    around.expose(test["y"], "x")
    around.expose(inner["x"], "x")
    around.expose(inner["small"])
    around.expose(inner["large"])
    around.expose(inner["result"])
    engine = Engine()
    loop = engine.add(For("loop", around, carried={"x": "result"}))
    for pin, value in (("x", 0.0), ("count", 2), ("small", 1.0), ("large", 10.0)):
        engine.set(loop[pin], value)
    engine.step()
    assert float(engine.read(loop)) == 2.0
    engine.set(loop["large"], 20.0)
    assert engine.step().ran == ()
    engine.set(loop["count"], 4)  # 1, 2, 3, then the other branch
    engine.step()
    assert float(engine.read(loop)) == 23.0
    engine.set(loop["small"], 1.5)
    assert engine.step().ran == ("loop",)
    engine.set(loop["large"], 30.0)
    assert engine.step().ran == ("loop",)
    assert float(engine.read(loop)) == 63.0


def test_features_and_memory_of_an_untaken_branch_do_not_run_the_region():
    engine = Engine()
    either = engine.add(IfElse("either", body("up", lambda x, a: x + a), body("down", lambda x, b: x + b)))
    shared = ExternalBuffer(np.ones(3), version=0)
    engine.set(either["x"], np.zeros(3))
    engine.set(either["a"], np.full(3, 5.0))
    engine.bind(either["b"], shared)
    engine.set(either["condition"], 1.0)
    engine.step()
    shared.array[...] = 7.0
    shared.touch()
    assert engine.step().ran == ()
    engine.set(either["condition"], 0.0)
    assert engine.step().ran == ("either",)
    np.testing.assert_array_equal(engine.read(either), np.full(3, 7.0))
    shared.array[...] = 8.0
    shared.touch()
    assert engine.step().ran == ("either",)
    np.testing.assert_array_equal(engine.read(either), np.full(3, 8.0))


def test_an_edit_inside_an_untaken_branch_applies_when_the_branch_is_taken():
    up, down = body("up", lambda x: x * 2.0), body("down", lambda x: x * 0.5)
    engine = Engine()
    either = engine.add(IfElse("either", up, down))
    engine.set(either["x"], 8.0)
    engine.set(either["condition"], True)
    engine.step()
    edit(engine, down.graph.blocks["own"], lambda x: x * 0.25)
    engine.step()
    engine.set(either["condition"], False)
    engine.step()
    assert float(engine.read(either)) == 2.0


# --- without early cutoff ---------------------------------------------------------------------------------------------


class Twins:
    """Two engines under the same edits, one of which runs all dependents of stale steps."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.engines = [Engine(), Engine()]
        self.engines[1]._runtime.uses_early_cutoff = False
        self.pins: list[str] = []
        self.names: list[str] = []
        self.ran = [0, 0]
        for engine in self.engines:
            self._build(engine, np.random.default_rng(seed + 1))

    def _build(self, engine: Engine, random: np.random.Generator) -> None:
        self.pins, self.names = [], []
        made: list[Any] = []
        for number in range(10):
            kind = int(random.integers(0, 6))
            own: Any
            if kind < 3:
                function = (
                    lambda x, k=1.0: lg.where(x > k, 1.0, 0.0) * (x * 0.0 + 1.0),
                    lambda x, k=1.0: x * k,
                    lambda x, k=1.0: lg.minimum(x, k) + 0.5,
                )[kind]
                own = engine.add(block(function, name=f"n{number}"))
                self.pins.append(f"n{number}.k")
            elif kind == 3:
                own = engine.add(If(f"n{number}", body("then", lambda x, k=1.0: x + k)))
                self.pins += [f"n{number}.condition", f"n{number}.k"]
            elif kind == 4:
                bodies = body("then", lambda x, k=1.0: x + k), body("else", lambda x, j=1.0: x - j)
                own = engine.add(IfElse(f"n{number}", *bodies))
                self.pins += [f"n{number}.condition", f"n{number}.k", f"n{number}.j"]
            else:
                own = engine.add(State(f"n{number}", 0.0))
            made.append(own)
        for number, own in enumerate(made):
            earlier = [one for one in made[:number] if random.random() < 0.7]
            if isinstance(own, State):
                # In both directions, because states close cycles.
                source = made[int(random.integers(0, len(made)))]
                engine.connect(source if source is not own else _fed(engine, number), own["next"])
            elif earlier:
                engine.connect(earlier[-1 - int(random.integers(0, min(3, len(earlier))))], own["x"])
            else:
                engine.set(own["x"], 1.0)
                self.pins.append(f"n{number}.x")
            if "condition" in own.inputs:
                engine.set(own["condition"], 1.0)
        self.names = [own.name for own in made]

    def edit(self) -> None:
        for _ in range(int(self.random.integers(0, 4))):
            pin = self.pins[int(self.random.integers(0, len(self.pins)))]
            value = float(self.random.choice([0.0, 0.5, 1.0, 2.0, -1.0]))
            for engine in self.engines:
                name, own = pin.split(".")
                engine.set(engine.graph.blocks[name][own], value)
        if self.random.random() < 0.1:  # a cold edit
            name = f"extra{self.random.integers(0, 1 << 30)}"
            source = self.names[int(self.random.integers(0, len(self.names)))]
            for engine in self.engines:
                extra = engine.add(block(lambda x: x + 1.0, name=name))
                engine.connect(engine.graph.blocks[source], extra["x"])

    def compare(self) -> None:
        frames = [engine.step() for engine in self.engines]
        assert frames[0].ok, frames[0].problems
        assert set(frames[0].ran) <= set(frames[1].ran)
        for number, frame in enumerate(frames):
            self.ran[number] += len(frame.ran)
        for name in self.engines[0].graph.blocks:
            values = [engine.read(engine.graph.blocks[name]) for engine in self.engines]
            np.testing.assert_array_equal(values[0], values[1], err_msg=name)


def _fed(engine: Engine, number: int) -> Any:
    return engine.add(block(lambda x=2.0: x * 1.0, name=f"fed{number}"))


def test_early_cutoff_runs_less_and_gives_the_same_values():
    ran = np.zeros(2, int)
    for seed in range(12):
        twins = Twins(seed)
        for _ in range(25):
            twins.edit()
            twins.compare()
        ran += twins.ran
    assert ran[0] < 0.75 * ran[1], ran


# --- cold updates -----------------------------------------------------------------------------------------------------


def test_adding_a_block_prepares_and_runs_only_new_steps():
    engine = Engine()
    made = chain(engine, lambda x=1.0: x + 1.0, *[lambda x, gain=2.0: x * gain] * 30)
    engine.step()
    running: Any = engine._runtime.executable
    calls = dict(running.calls)
    last = engine.add(block(lambda x, gain=2.0: x * gain, name="last"))
    engine.connect(made[-1], last["x"])
    frame = engine.step()
    assert (frame.level.name, frame.ran, frame.prepared) == ("COLD", ("last",), 1)
    assert engine._runtime.executable is running
    made_anew = {key for key, call in running.calls.items() if call is not calls.get(key)}
    assert made_anew == {"last"}
    engine.set(made[20]["gain"], 3.0)
    engine.step()
    assert float(engine.read(last)) == 2.0 * 2.0**30 * 3.0


def test_a_number_in_an_untaken_branch_changed_along_with_the_graph_does_not_run_the_region():
    engine = Engine()
    bodies = []
    for name in ("then", "other"):
        bodies.append(Composite(name))
        inner = bodies[-1].graph.add(block(lambda x, gain=2.0: x * gain, name="inner"))
        bodies[-1].expose(inner["x"])
        bodies[-1].expose(inner["gain"], f"{name}_gain")
        bodies[-1].expose(inner["result"])
    region = engine.add(IfElse("region", *bodies))
    engine.set(region["x"], np.arange(3.0))
    engine.set(region["condition"], True)
    for name in ("then", "other"):
        engine.set(region[f"{name}_gain"], 2.0)
    engine.step()
    engine.set(region["other_gain"], 5.0)
    engine.add(block(lambda x=1.0: x, name="added"))
    assert engine.step().ran == ("added",)
    engine.set(region["then_gain"], 7.0)
    engine.add(block(lambda x=1.0: x, name="another"))
    assert set(engine.step().ran) == {"region", "another"}
    np.testing.assert_array_equal(engine.read(region["result"]), np.arange(3.0) * 7)
    engine.set(region["condition"], False)
    engine.step()
    np.testing.assert_array_equal(engine.read(region["result"]), np.arange(3.0) * 5)


@pytest.mark.parametrize("kind", ["if_else", "switch", "for", "nested"])
def test_replacing_a_default_in_an_untaken_branch_does_not_run_the_region(kind: str) -> None:
    engine = Engine()
    bodies = []
    for name in ("then", "other"):
        bodies.append(Composite(name))
        inner = bodies[-1].graph.add(block(lambda x, gain=2.0, bias=1.0: x * gain + bias, name="inner"))
        bodies[-1].expose(inner["x"]), bodies[-1].expose(inner["result"])
        bodies[-1].expose(inner["gain"], f"{name}_gain"), bodies[-1].expose(inner["bias"], f"{name}_bias")
    if kind == "if_else":
        region = engine.add(IfElse("region", *bodies))
        control, there, away = region["condition"], 1, 0
    elif kind == "switch":
        region = engine.add(Switch("region", *bodies))
        control, there, away = region["index"], 0, 1
    elif kind == "for":
        region = engine.add(For("region", bodies[1], {"x": "result"}))
        control, there, away = region["count"], 0, 1
    else:
        both = Composite("both")
        gate = both.graph.add(IfElse("gate", *bodies))
        for pin in (*gate.inputs.values(), *gate.outputs.values()):
            both.expose(pin, "choice" if pin.name == "condition" else None)
        region = engine.add(If("region", both))
        engine.set(region["condition"], True)
        control, there, away = region["choice"], 1, 0
    engine.set(region["x"], np.arange(3.0)), engine.set(control, there)
    assert engine.step().ok
    before = engine.read(region["result"])
    engine.set(region["other_gain"], 5.0)
    assert engine.step().ran == ()
    with engine.edits():
        engine.set(region["other_bias"], 3.0), engine.set(region["other_gain"], 7.0)
    assert engine.step().ran == ()
    np.testing.assert_array_equal(engine.read(region["result"]), before)
    engine.set(control, away)
    assert engine.step().ran == ("region",)
    np.testing.assert_array_equal(engine.read(region["result"]), np.arange(3.0) * 7 + 3)
    engine.disconnect(region["other_gain"])
    assert engine.step().ran == ("region",)  # the default is used again
    np.testing.assert_array_equal(engine.read(region["result"]), np.arange(3.0) * 2 + 3)


def test_readers_of_a_state_do_not_run_when_only_its_next_source_changes() -> None:
    engine = lg.Engine()
    state = engine.add(lg.State("state", np.ones(3)))
    double = engine.add(lg.block(lambda x: x * 2.0, name="double"))
    engine.connect(state, state["next"])
    engine.connect(state, double["x"])
    assert engine.step().ran == ("double",)
    engine.connect(double, state["next"])
    assert engine.step().ran == ()
    assert engine.step().ran == ("double",)
    np.testing.assert_array_equal(engine.read(double), [4.0] * 3)
    engine.connect(state, state["next"])
    assert engine.step().ran == ("double",)  # it became 4 in the frame before
    np.testing.assert_array_equal(engine.read(double), [8.0] * 3)
    assert engine.step().ran == ()


def test_readers_of_a_state_run_when_another_state_takes_its_name() -> None:
    engine = lg.Engine()
    double = engine.add(lg.block(lambda x: x * 2.0, name="double"))
    for start in (1.0, 5.0):
        state = engine.add(lg.State("state", np.full(3, start)))
        engine.connect(state, state["next"])
        engine.connect(state, double["x"])
        assert engine.step().ran == ("double",)
        np.testing.assert_array_equal(engine.read(double), [2.0 * start] * 3)
        engine.remove(state)


def test_an_array_that_is_set_back_before_the_next_frame_runs_nothing() -> None:
    engine = lg.Engine()
    double = engine.add(lg.block(lambda x: x * 2.0, name="double"))
    engine.set(double["x"], np.array([1.0, 2.0]))
    assert engine.step().ran == ("double",)
    engine.set(double["x"], np.array([1.0, 3.0]))
    engine.set(double["x"], np.array([1.0, 2.0]))
    assert engine.step().ran == ()
    engine.set(double["x"], np.array([1.0, 3.0]))
    assert engine.step().ran == ("double",)
    np.testing.assert_array_equal(engine.read(double), [2.0, 6.0])


def test_a_number_that_changes_in_many_frames_runs_only_its_dependents():
    engine = Engine("cpu")
    clipped = engine.add(block(lambda x, gain=1.0: lg.minimum(x * gain, 4.0), name="clipped"))
    doubled = engine.add(block(lambda x: x * 2.0, name="doubled"))
    engine.connect(clipped, doubled["x"])
    engine.set(clipped["x"], np.full(3, 2.0, np.float32))
    engine.step()
    for gain in (1.5, 1.0, 3.0, 4.0, 5.0, 0.5, 7.0):
        engine.set(clipped["gain"], gain)
        before = engine.frame.number, float(engine.read(clipped)[0])
        frame = engine.step()
        now = min(2.0 * gain, 4.0)
        assert frame.ran == (("clipped", "doubled") if now != before[1] else ("clipped",)), gain
        assert float(engine.read(doubled)[0]) == 2.0 * now
    assert (clipped.debug.runs, doubled.debug.runs) == (8, 6)


def test_a_changing_number_may_fail_in_one_frame_and_not_in_the_next():
    engine = Engine("cpu")
    table = np.arange(4, dtype=np.float32)
    chosen = engine.add(block(lambda t, at=1.0: t[lg.astype(lg.asarray(at), lg.int64)], name="chosen"))
    after = engine.add(block(lambda x: x + 1.0, name="after"))
    engine.connect(chosen, after["x"])
    engine.set(chosen["t"], table)
    engine.step()
    for at in (2.0, 3.0, 9.0, 1.0, 2.0, -9.0, 8.0, 3.0):
        engine.set(chosen["at"], at)
        frame = engine.step()
        assert frame.failed == (frozenset() if -4 <= at < 4 else {"chosen", "after"}), at
        if not frame.failed:
            assert float(engine.read(after)) == at + 1.0
