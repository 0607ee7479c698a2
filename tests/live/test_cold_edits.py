"""The cost of structural edits, in calls of Python functions: it depends on the change and not on the graph size."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np
import pytest

import livegrad as lg
from livegrad.ir.leaves import parameter
from livegrad.live.blocks import block
from livegrad.live.engine import Engine
from livegrad.live.graph.block import State
from livegrad.live.graph.composite import Composite
from livegrad.live.graph.sources import Setting
from livegrad.live.update import apply, replan
from livegrad.live.update.reorder import CycleError, reorder
from tests.fuzz.engine_kept import compare_with_scratch
from tests.live.interrupts import Interrupted, call_interrupted
from tests.live.test_work_of_a_frame import NUMBERS, calls_of, chain

FEW, MANY = 400, 3200


def scale(x, gain=2.0):
    return x * gain


@pytest.fixture(scope="module")
def engines() -> list[tuple[Engine, list[Any]]]:
    """An engine with few blocks and one with many, each in a chain."""
    made = [chain(FEW), chain(MANY)]
    for engine, blocks in made:
        engine.connect(blocks[-1], engine.add(block(scale, name="tail"))["x"])
        assert engine.step().ok
    return made


@contextmanager
def nothing_compiled_anew() -> Iterator[None]:
    """Fails if the whole graph is compiled, or a new executable is built."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("everything is looked at")

    with mock.patch.object(apply, "compile_graph", refuse), mock.patch.object(replan, "compile_graph", refuse):
        yield


def costs(engines: list[tuple[Engine, list[Any]]], edit: Callable[[Engine, list[Any], int], None]) -> list[int]:
    """The calls of a frame with an edit, for each engine: the minimum of three excludes one-time work."""
    found = []
    for engine, made in engines:
        counts = []
        for number in range(3):

            def frame(number: int = number, engine: Engine = engine, made: list[Any] = made) -> None:
                edit(engine, made, number)
                assert engine.step().ok

            counts.append(calls_of(frame))
        found.append(min(counts))
    return found


def add(engine: Engine, made: list[Any], number: int) -> None:
    own = engine.add(block(scale, name=f"new{number}"))
    engine.connect(made[len(made) // 2], own["x"])


def remove(engine: Engine, made: list[Any], number: int) -> None:
    engine.remove(engine.graph.blocks[f"new{number}"])


def disconnect(engine: Engine, made: list[Any], number: int) -> None:
    own = engine.graph.blocks["tail"]
    engine.disconnect(own["gain"])


def connect(engine: Engine, made: list[Any], number: int) -> None:
    own = engine.graph.blocks["tail"]
    engine.connect(made[number], own["gain"])


def add_state(engine: Engine, made: list[Any], number: int) -> None:
    own = engine.add(State(f"state{number}", NUMBERS))
    engine.connect(made[number], own["next"])


def remove_state(engine: Engine, made: list[Any], number: int) -> None:
    engine.remove(engine.graph.blocks[f"state{number}"])


def add_composite(engine: Engine, made: list[Any], number: int) -> None:
    outer = Composite(f"outer{number}")
    first, second = (outer.graph.add(block(scale, name=name)) for name in "ab")
    for own in (first, second):
        outer.expose(own["x"])
    outer.expose(second["result"])
    engine.add(outer)
    engine.connect(made[number], outer["x"])


def feed_composite(engine: Engine, made: list[Any], number: int) -> None:
    engine.connect(made[-1 - number], engine.graph.blocks[f"outer{number}"]["x"])


def remove_inside(engine: Engine, made: list[Any], number: int) -> None:
    inner: Any = engine.graph.blocks[f"outer{number}"]
    inner.graph.remove(inner.graph.blocks["a"])


def remove_composite(engine: Engine, made: list[Any], number: int) -> None:
    engine.remove(engine.graph.blocks[f"outer{number}"])


def add_region(engine: Engine, made: list[Any], number: int) -> None:
    body = Composite("body")
    own = body.graph.add(block(scale, name="own"))
    body.expose(own["x"])
    body.expose(own["result"])
    region = engine.add(lg.If(f"region{number}", body))
    engine.set(region["condition"], True)
    engine.connect(made[number], region["x"])


def add_in_region(engine: Engine, made: list[Any], number: int) -> None:
    region: Any = engine.graph.blocks[f"region{number}"]
    body = region.bodies["then"]
    other = body.graph.add(block(scale, name="other"))
    body.graph.connect(body.graph.blocks["own"], other["x"])


def set_array(engine: Engine, made: list[Any], number: int) -> None:
    engine.set(engine.graph.blocks["tail"]["gain"], NUMBERS + number)


def bind_array(engine: Engine, made: list[Any], number: int) -> None:
    engine.bind(engine.graph.blocks["tail"]["gain"], NUMBERS + number)


EDITS = (
    add, remove, add_state, remove_state, add_composite, feed_composite, remove_inside, remove_composite, add_region,
    add_in_region,
)  # fmt: skip


def test_the_cost_of_a_cold_edit_is_independent_of_the_graph_size(engines):
    for edit in EDITS:
        with nothing_compiled_anew():
            few, many = costs(engines, edit)
        assert many < 1.5 * few, f"{edit.__name__}: {few} and {many} calls"
    compare_with_scratch(engines[0][0])


@pytest.mark.parametrize("feed", [connect, set_array, bind_array])
def test_the_cost_of_a_connection_is_independent_of_the_graph_size(engines, feed):
    counts = []
    for engine, made in engines:
        for number in range(3):

            def frames(number: int = number, engine: Engine = engine, made: list[Any] = made) -> None:
                feed(engine, made, number)
                assert engine.step().level.name == "COLD"
                disconnect(engine, made, number)
                assert engine.step().level.name == "COLD"

            with nothing_compiled_anew():
                counts.append(calls_of(frames))
    few, many = min(counts[:3]), min(counts[3:])
    assert many < 1.5 * few, f"{few} and {many} calls"


def test_the_cost_of_an_edit_and_a_read_is_independent_of_the_number_of_regions():
    """Only edited or read steps and their sources are checked again for on-demand execution."""
    counts = []
    for regions in (30, 240):
        engine = Engine()
        made: list[Any] = []
        for number in range(regions):
            made.append(engine.add(block(scale, name=f"b{number}")))
            if number:
                engine.connect(engine.graph.blocks[f"region{number - 1}"], made[-1]["x"])
            else:
                engine.set(made[-1]["x"], NUMBERS)
            add_region(engine, made, number)
        assert engine.step().ok
        for number in range(3):

            def frames(number: int = number, engine: Engine = engine, made: list[Any] = made) -> None:
                own = engine.add(block(scale, name=f"new{number}"))
                engine.connect(made[-2], own["x"])
                assert engine.step().ok
                engine.read(made[-3 - number])
                engine.set(own["gain"], 3.0)
                assert engine.step().ok

            counts.append(calls_of(frames))
        compare_with_scratch(engine)
    few, many = min(counts[:3]), min(counts[3:])
    assert many < 1.5 * few, f"{few} and {many} calls"


def test_the_cost_of_an_edit_is_independent_of_the_number_of_bound_arrays():
    counts = []
    for blocks in (20, 160):
        engine = Engine()
        for number in range(blocks):
            own = engine.add(block(scale, name=f"b{number}"))
            engine.bind(own["x"], lg.live.ExternalBuffer(NUMBERS + number, version=0))
        engine.step()
        for number in range(3):

            def frames(number: int = number, engine: Engine = engine) -> None:
                own = engine.add(block(scale, name=f"new{number}"))
                engine.bind(own["x"], lg.live.ExternalBuffer(NUMBERS, version=number))
                assert engine.step().ok
                engine.set(own["x"], 1.0)
                assert engine.step().ok

            counts.append(calls_of(frames))
        compare_with_scratch(engine)
    few, many = min(counts[:3]), min(counts[3:])
    assert many < 1.5 * few, f"{few} and {many} calls"


def test_rebound_memory_is_read_regardless_of_its_previous_version(executor_name):
    engine = Engine(executor_name)
    own = engine.add(block(scale, name="own"))
    for number in range(3):
        engine.bind(own["x"], lg.live.ExternalBuffer(NUMBERS + number, version=7))
        assert engine.step().ok
        np.testing.assert_array_equal(engine.read(own), (NUMBERS + number) * 2)
        engine.set(own["x"], NUMBERS)
        assert engine.step().ok
        assert not engine._runtime.versions
        np.testing.assert_array_equal(engine.read(own), NUMBERS * 2)


def test_the_cost_of_a_rejected_edit_is_independent_of_the_graph_size(engines):
    """Almost all blocks depend on the removed block: they are neither examined nor reported."""
    counts = []
    for engine, made in engines:
        second, gone = engine.add(block(scale, name="instead")), made[8]
        engine.connect(made[7], second["x"])
        assert engine.step().ok

        def refused(engine: Engine = engine, gone: Any = gone) -> None:
            engine.remove(gone)
            assert [problem.node for problem in engine.step().problems] == ["b9"]

        with nothing_compiled_anew():
            counts.append(calls_of(refused))
            engine.connect(second, made[9]["x"])
            assert engine.step().ok
        made[8] = second
        np.testing.assert_array_equal(engine.read(made[9]), NUMBERS * 2**10)
    assert counts[1] < 1.5 * counts[0]


def test_reordering_moves_only_the_blocks_in_between():
    """An edge against the order moves the affected blocks, and the others keep their positions."""
    engine = Engine()
    made = [engine.add(block(lambda x=1.0: x + 1.0, name=f"b{number}")) for number in range(20)]
    engine.step()
    assert engine.plan is not None
    before = dict(engine.plan.position)
    engine.connect(made[12], made[5]["x"])
    engine.connect(made[5], made[3]["x"])
    with nothing_compiled_anew():
        assert engine.step().ok
    moved = {key for key, number in engine.plan.position.items() if before[key] != number}
    assert moved <= {"b12", "b5", "b3"}
    compare_with_scratch(engine)
    assert float(engine.read(made[3])) == 4.0


def test_the_order_stays_valid_while_edges_are_added_and_removed():
    chance = np.random.default_rng(0)
    for size in (5, 12, 40):
        sources: dict[str, set[str]] = {str(number): set() for number in range(size)}
        position = {key: number for number, key in enumerate(sources)}
        refused = 0
        for _ in range(150):
            edited = {}
            for key in {str(one) for one in chance.integers(size, size=chance.integers(1, 4))}:
                edited[key] = {str(one) for one in chance.integers(size, size=chance.integers(0, 3))}
            wanted, trial = sources | edited, dict(position)
            try:
                reorder(
                    trial,
                    edited,
                    lambda key, wanted=wanted: wanted[key],
                    lambda key, sources=sources: [reader for reader in sources if key in sources[reader]],
                )
            except CycleError:
                refused += 1
                assert _has_cycle(wanted)
                continue
            sources, position = wanted, trial
            assert sorted(position.values()) == list(range(size))
            assert all(position[source] < position[key] for key in sources for source in sources[key])
        assert 0 < refused < 150


def _has_cycle(sources: dict[str, set[str]]) -> bool:
    left = dict(sources)
    while ready := [key for key, own in left.items() if own.isdisjoint(left)]:
        for key in ready:
            del left[key]
    return bool(left)


def test_a_shared_number_reaches_both_blocks_although_one_is_edited():
    """The number of a composite changes in the frame in which one of its readers is replaced."""
    engine = Engine()
    outer = Composite("outer")
    first, second = (outer.graph.add(block(scale, name=name)) for name in ("first", "second"))
    for own in (first, second):
        outer.expose(own["x"])
        outer.expose(own["result"], own.name)
    engine.add(outer)
    engine.set(outer["x"], 1.0)
    engine.step()
    for number, gain in ((5.0, NUMBERS), (6.0, NUMBERS[:3]), (7.0, NUMBERS)):
        engine.set(outer["x"], number)
        outer.graph.set(first["gain"], gain)
        assert engine.step().ok
        np.testing.assert_array_equal(engine.read(outer["first"]), gain * number)
        assert float(engine.read(outer["second"])) == 2.0 * number
    compare_with_scratch(engine)


def test_a_cold_frame_interrupted_at_any_line_is_completed_by_the_next():
    """Blocks and a state are added and removed, a state changes its owner, and steps are reordered: all or nothing."""
    lines, ended = 1, False
    while not ended:
        engine = Engine()
        made = [engine.add(block(lambda x=1.0, y=0.0: x + y + 1.0, name=f"b{number}")) for number in range(4)]
        count, old = (engine.add(State(name, np.float32(0))) for name in ("count", "old"))
        engine.connect(count, made[0]["x"])
        engine.connect(made[0], count["next"])
        engine.connect(made[1], old["next"])
        for _ in range(2):
            assert engine.step().ok
        engine.connect(made[3], made[1]["x"])  # against the order
        engine.remove(made[2])
        extra = engine.add(block(scale, name="extra"))
        engine.connect(made[1], extra["x"])
        engine.remove(old)
        fresh = engine.add(State("old", np.float32(7)))
        engine.connect(fresh, made[3]["x"])
        engine.connect(extra, fresh["next"])
        try:
            call_interrupted(engine.step, lines)
            ended = True
        except Interrupted:
            # Otherwise the edit was complete already.
            if engine._runtime.transaction.is_open or engine.frame.number == 2:
                assert engine.step().ok, engine.frame.problems
        compare_with_scratch(engine)
        read = [float(engine.read(one)) for one in (count, made[0], made[3], made[1], extra, fresh)]
        assert read == [3.0, 3.0, 8.0, 9.0, 18.0, 18.0], f"after {lines} lines: {read}"
        assert "b2" not in engine.plan.steps  # type: ignore[union-attr]
        lines += 61
    assert lines > 400


def test_only_edits_that_affect_a_gradient_recompile_a_graph_with_a_gradient():
    engine = Engine()
    square = engine.add(block(lambda x: x * x, name="square"))
    total = engine.add(block(lambda x: lg.sum(x), name="total"))
    engine.set(square["x"], NUMBERS)
    engine.connect(square, total["x"])
    slope = engine.add(lg.grad(of=total, by=[square["x"]], name="slope"))
    assert engine.step().ok, engine.frame.problems
    reader = engine.add(block(lambda x: x + 1.0, name="reader"))
    with nothing_compiled_anew():
        engine.connect(slope["x"], reader["x"])
        assert engine.step().ok
        np.testing.assert_array_equal(engine.read(reader), NUMBERS * 2 + 1)
        compare_with_scratch(engine)
        engine.set(square["x"], np.ones(3, np.float32))
        assert engine.step().ok
        np.testing.assert_array_equal(engine.read(reader), np.full(3, 3, np.float32))
        compare_with_scratch(engine)
    cube = engine.add(block(lambda x: x * x * x, name="cube"))
    engine.connect(square, cube["x"])
    engine.connect(cube, total["x"])
    assert engine.step().ok
    np.testing.assert_array_equal(engine.read(reader), np.full(3, 7, np.float32))
    engine.remove(cube)
    engine.connect(square, total["x"])
    assert engine.step().ok
    np.testing.assert_array_equal(engine.read(reader), np.full(3, 3, np.float32))
    compare_with_scratch(engine)


def test_two_states_with_the_same_next_value_are_both_checked():
    engine = Engine()
    more = engine.add(block(lambda x: x + 1.0, name="more"))
    engine.set(more["x"], NUMBERS)
    for name in ("one", "two"):
        engine.connect(more, engine.add(State(name, NUMBERS))["next"])
    assert engine.step().ok
    engine.set(more["x"], NUMBERS[:2])
    assert {problem.node for problem in engine.step().problems} == {"one", "two"}
    engine.remove(more)
    assert {problem.node for problem in engine.step().problems} == {"one", "two"}


def test_run_counts_survive_structural_changes():
    engine, made = chain(3)
    for number in range(5):
        engine.set(made[1]["gain"], float(number + 5))
        engine.step()
        engine.add(block(scale, name=f"new{number}"))
        engine.set(engine.graph.blocks[f"new{number}"]["x"], 1.0)
        engine.step()
    assert [own.debug.runs for own in made] == [1, 6, 6]
    assert all(len(own.debug.tallies) <= 2 for own in made)


def test_a_composite_that_also_becomes_a_body_keeps_the_node_that_reads_the_edited_block() -> None:
    engine = lg.Engine()
    source = engine.add(lg.block(lambda a=1.0: a + 1.0, name="source"))
    group = lg.Composite("group")
    inner = group.graph.add(lg.block(lambda x: x * 2.0, name="inner"))
    group.expose(inner["x"])
    group.expose(inner["result"])
    engine.add(group)
    engine.connect(source, group["x"])
    assert engine.step().ok
    engine.edit(source, lg.block(lambda a=1.0, b=4.0: a + b, name="source").body)  # its readers are checked again
    maybe = engine.add(lg.If("maybe", group))
    engine.set(maybe["condition"], True)
    engine.set(maybe["x"], 3.0)
    assert engine.step().ok
    assert (float(engine.read(group)), float(engine.read(maybe))) == (10.0, 6.0)


def test_a_state_whose_next_value_depends_on_a_broken_block_is_not_reported() -> None:
    engine = lg.Engine()
    source = engine.add(lg.block(lambda a=1.0: a + 1.0, name="source"))
    first = engine.add(lg.block(lambda x: x * 2.0, name="first"))
    second = engine.add(lg.block(lambda x: x + np.ones(3), name="second"))
    engine.connect(source, first["x"])
    engine.connect(first, second["x"])
    assert engine.step().ok
    engine.remove(source)
    engine.connect(second, engine.add(lg.State("state", 0.0))["next"])
    assert [(problem.node, problem.pin) for problem in engine.step().problems] == [("first", "x")]


def test_a_reader_of_a_broken_and_a_changed_block_is_not_reported() -> None:
    engine = lg.Engine()
    flag = engine.add(lg.block(lambda a=True: a ^ True, name="flag"))
    broken = engine.add(lg.block(lambda x: x & True, name="broken"))
    between = engine.add(lg.block(lambda x: x ^ False, name="between"))
    reader = engine.add(lg.block(lambda x, y: x ^ y, name="reader"))
    engine.connect(flag, broken["x"])
    engine.connect(broken, between["x"])
    engine.connect(between, reader["x"])
    engine.connect(flag, reader["y"])
    assert engine.step().ok
    engine.edit(flag, lg.block(lambda a=True: a * 1.5, name="flag").body)
    assert [problem.node for problem in engine.step().problems] == ["broken"]


def test_a_value_of_a_pending_pin_is_not_used_while_the_graph_is_invalid() -> None:
    engine = lg.Engine()
    adder = engine.add(lg.block(lambda x, y: x + y, name="adder"))
    engine.set(adder["x"], np.array([1.0, 2.0]))
    engine.set(adder["y"], np.array([10.0, 20.0]))
    assert engine.step().ok
    engine.set(adder["x"], np.array([3.0, 4.0]))
    engine.remove(adder)
    engine.add(adder)
    engine.set(adder["x"], np.array([5.0, 6.0]))
    engine.set(adder["y"], np.array([50.0, 60.0]))
    engine.add(lg.block(lambda unfed: unfed, name="wrong"))
    assert not engine.step().ok
    np.testing.assert_array_equal(engine.read(adder, running=True), [11.0, 22.0])


def test_an_integer_for_a_float_pin_becomes_a_float_even_after_a_failure() -> None:
    engine = lg.Engine()
    x = parameter(0, lg.f32)
    reads_time = lg.ir.Function("reader", (x,), (x + lg.context("animation_time"),))
    reader = engine.add(lg.block(reads_time, name="reader", inputs=("x",)))
    engine.set(reader["x"], 1.0)
    assert engine.step().failed == {"reader"}
    with pytest.raises(lg.LivegradError, match="animation_time"):
        engine.read(reader)
    assert reader.debug.errors
    engine.set(reader["x"], 2)
    source = engine.graph.source_of(reader["x"])
    assert isinstance(source, Setting)
    assert type(source.value) is float


def test_a_number_that_replaces_a_typed_number_within_one_frame_is_used() -> None:
    engine = lg.Engine()
    adder = engine.add(lg.block(lambda gain=1.0: gain * 2.0, name="adder"))
    assert engine.step().ok
    engine.set(adder["gain"], np.float64(4.0))
    engine.set(adder["gain"], 5.0)
    assert engine.step().ok
    assert float(engine.read(adder)) == 10.0


def test_a_composite_that_is_also_a_body_can_be_edited_after_its_removal() -> None:
    engine = lg.Engine()
    inner = lg.Composite("inner")
    block = inner.graph.add(lg.block(lambda x: x * 2.0, name="block"))
    inner.expose(block["x"])
    inner.expose(block["result"])
    outer = lg.Composite("outer")
    outer.graph.add(inner)
    engine.add(outer)
    maybe = engine.add(lg.If("maybe", inner))
    engine.set(maybe["condition"], True)
    engine.set(maybe["x"], 3.0)
    outer.expose(inner["x"])
    engine.set(outer["x"], 1.0)
    assert engine.step().ok
    outer.graph.remove(inner)
    assert engine.step().ok
    lg.live.edit(engine, block, lambda x: x * 5.0)
    assert engine.step().ok
    assert float(engine.read(maybe)) == 15.0
