"""Seed 004, the graph compiler: a test for each heading and each row of the update table that needs no GPU."""

from __future__ import annotations

import json
from itertools import pairwise

import numpy as np
import pytest

import livegrad as lg
from livegrad.diagnostics import LivegradError
from livegrad.ir.types import Tensor, f32
from livegrad.live.blocks import append_block, block, captured_block, edit
from livegrad.live.compile.flatten import flatten_graph
from livegrad.live.compile.graph_compiler import compile_graph, validate
from livegrad.live.compile.propagate import propagate_shapes
from livegrad.live.compile.topological_sort import sort_nodes
from livegrad.live.compile.wire import wire
from livegrad.live.engine import Engine
from livegrad.live.frame import EngineError
from livegrad.live.graph.append_buffer import AppendBuffer
from livegrad.live.graph.block import State
from livegrad.live.graph.composite import Composite
from livegrad.live.graph.regions import For, If, While
from livegrad.live.graph.shape_rules import apply_shape_rule
from livegrad.live.profile import chrome_trace
from livegrad.live.update.diff_plans import Level
from tests.seeds.graphs import NUMBERS, N, chain, expected, summing_body


def test_phases_can_each_be_called_and_shown(executor_name):
    """Seed 004, "Overview": the phases in order."""
    engine, _ = chain(executor_name)
    network = flatten_graph(engine.graph)
    assert validate(network) == []
    order, cycles = sort_nodes(network)
    assert cycles == []
    shapes, problems = propagate_shapes(network, order, set())
    assert problems == []
    plan = wire(network, order, shapes)
    assert str(plan).splitlines()[1] == "  0: a(a.x) -> a.result: tensor<f32, [4]>"


def test_all_phases_are_shown_together(executor_name):
    """Seed 004, "Overview": what every phase made of the graph, and what is wrong with it."""
    engine, blocks = chain(executor_name)
    text = engine.phases()
    names = ["flatten", "validate", "sort", "propagate shapes", "allocate", "wire", "build"]
    assert [line for line in text.splitlines() if not line.startswith(" ")] == names
    for line in (
        "  d(x ← b.result, y ← c.result)",
        "  no problems",
        "  level 1: b, c",
        "  b.result: tensor<f32, [4]>",
        "  b.result: tensor<f32, [4]>, graph, 16 bytes, from b until d",
        "    2: d(b.result, c.result) -> d.result: tensor<f32, [4]>",
    ):
        assert line in text.splitlines()
    engine.disconnect(blocks["d"]["y"])
    text = engine.phases()
    assert "  d.y: this input is not connected; connect or set `d.y`" in text.splitlines()
    assert "not reached: there are problems" in text
    assert engine.plan is None  # showing compiles nothing that runs


def test_validation_reports_every_error_at_its_pin_at_once(executor_name):
    """Seed 004, "Phase 1: Validation": types, cycles, completeness and shapes are errors."""
    engine = Engine(executor_name)
    typed = engine.add(block(lambda x: x, name="typed", inputs={"x": Tensor(f32, (N,))}))
    lonely = engine.add(block(lambda x: x, name="lonely"))
    first = engine.add(block(lambda x: x + 1.0, name="first"))
    second = engine.add(block(lambda x: x + 1.0, name="second"))
    shaped = engine.add(block(lambda x: lg.sum(x), name="shaped", shapes={"result": "same"}))
    engine.set(typed["x"], np.arange(4))
    engine.connect(first, second["x"])
    engine.connect(second, first["x"])
    engine.set(shaped["x"], NUMBERS)
    frame = engine.step()
    found = {(p.node, p.pin) for p in frame.problems}
    assert found == {("typed", "x"), ("lonely", "x"), ("first", "x"), ("second", "x"), ("shaped", None)}
    assert "tensor<f32, [n]>" in str(typed.debug.errors[0])
    assert "tensor<i64, [4]>" in str(typed.debug.errors[0])
    assert "is not connected" in str(lonely.debug.errors[0])
    assert "cycle" in str(first.debug.errors[0])
    assert "expected (4,), found ()" in str(shaped.debug.errors[0])
    assert all(b.debug.state == "failed" for b in (typed, lonely, first, second, shaped))


def test_an_error_goes_only_to_the_block_that_it_is_about(executor_name):
    """Seed 004, "Error Handling": distributed to affected blocks."""
    engine, blocks = chain(executor_name)
    engine.step()
    edit(engine, blocks["c"], lambda x: x @ x @ x)
    engine.step()
    assert [name for name, b in blocks.items() if b.debug.errors] == ["c"]


def test_the_old_graph_runs_on_after_an_error_and_takes_hot_updates(executor_name):
    """Seed 004, "Error Handling": the engine keeps the old compiled graph."""
    engine, blocks = chain(executor_name)
    engine.step()
    engine.disconnect(blocks["d"]["y"])
    engine.set(blocks["b"]["gain"], 5.0)
    frame = engine.step()
    assert not frame.ok
    with pytest.raises(EngineError, match=r"d\.y: this input is not connected"):
        engine.read(blocks["d"])
    np.testing.assert_array_equal(engine.read(blocks["d"], running=True), expected(NUMBERS, 5.0))
    engine.connect(blocks["c"], blocks["d"]["y"])
    assert engine.step().ok
    np.testing.assert_array_equal(engine.read(blocks["d"]), expected(NUMBERS, 5.0))
    assert blocks["d"].debug.errors == []


def test_buffers_have_the_lifetime_of_what_owns_them(executor_name):
    """Seed 004, "Phase 2: Buffer Allocation": External, Graph, Region."""
    engine, blocks = chain(executor_name)
    engine.bind(blocks["a"]["x"], NUMBERS.copy())
    loop = engine.add(For("loop", summing_body(), {"total": "sum"}))
    engine.set(loop["total"], np.float32(0))
    engine.set(loop["x"], np.float32(2))
    engine.set(loop["count"], 3)
    engine.step()
    assert engine.plan is not None
    lifetimes = {key: spec.lifetime for key, spec in engine.plan.buffers.items()}
    assert lifetimes["a.x"] == "external"
    assert lifetimes["a.result"] == "graph"
    assert lifetimes["loop#total"] == "region"


def test_steps_have_topological_levels(executor_name):
    """Seed 004, "Phase 3: Topological Sort": A, then B and C, then D."""
    engine, _ = chain(executor_name)
    plan = compile_graph(engine.graph).plan
    assert plan is not None
    assert plan.levels == {"a": 0, "b": 1, "c": 1, "d": 2}


@pytest.mark.parametrize(
    ("rule", "shapes", "shape"),
    [
        ("same", [(4, 2)], (4, 2)),
        ("same(0)", [(4,), (5,)], (4,)),
        ("same(1)", [(4,), (5,)], (5,)),
        ("broadcast(0,1)", [(4, 1), (3,)], (4, 3)),
        ("[N, 16]", [(7, 3)], (7, 16)),
        ("[M, N, 2]", [(7, 3)], (7, 3, 2)),
    ],
)
def test_shape_rules(rule, shapes, shape):
    """Seed 004, "Phase 4: Shape Propagation"."""
    assert apply_shape_rule(rule, shapes) == shape


def test_shapes_follow_from_functions_and_obey_the_rules(executor_name):
    """Seed 004, "Phase 4: Shape Propagation"."""
    engine = Engine(executor_name)
    wide = engine.add(block(lambda x: lg.stack([x] * 16, axis=1), name="wide", shapes={"result": "[N, 16]"}))
    engine.set(wide["x"], NUMBERS)
    assert engine.step().ok
    assert engine.read(wide).shape == (4, 16)


def test_buffers_share_memory_when_their_live_ranges_do_not_meet(executor_name):
    """Seed 004, "Phase 5: Liveness Analysis"."""
    engine = Engine(executor_name, reuse_memory=True)
    blocks = [engine.add(block(lambda x: x + 1.0, name=f"k{index}")) for index in range(6)]
    engine.set(blocks[0]["x"], NUMBERS)
    for earlier, later in pairwise(blocks):
        engine.connect(earlier, later["x"])
    engine.step()
    assert engine.plan is not None
    assert len(engine.plan.slots) == 2
    np.testing.assert_array_equal(engine.read(blocks[5]), NUMBERS + 6)
    # One whose bytes were used again is computed when it is read; the rest is unharmed.
    np.testing.assert_array_equal(engine.read(blocks[0]), NUMBERS + 1)
    np.testing.assert_array_equal(engine.read(blocks[5]), NUMBERS + 6)


# --- regions ---------------------------------------------------------------------------------------------------------


def test_if_runs_its_body_or_gives_zeros(executor_name):
    """Seed 004, "If Region": outputs are zero-filled before the region."""
    engine = Engine(executor_name)
    body = Composite("body")
    double = body.graph.add(block(lambda x: x * 2.0, name="double"))
    body.expose(double["x"])
    body.expose(double["result"])
    gate = engine.add(If("gate", body))
    condition = engine.add(block(lambda x, limit=1.0: lg.sum(x) > limit, name="condition"))
    engine.set(condition["x"], NUMBERS)
    engine.set(gate["x"], NUMBERS)
    engine.connect(condition, gate["condition"])
    assert dict(engine.step().calls) == {"condition": 1, "gate/double": 1}
    np.testing.assert_array_equal(engine.read(gate), NUMBERS * 2)
    engine.set(condition["limit"], 100.0)
    assert dict(engine.step().calls) == {"condition": 1}
    np.testing.assert_array_equal(engine.read(gate), np.zeros(4))


def test_while_runs_as_long_as_its_condition_holds(executor_name):
    """Seed 004, "While Region": a whole optimisation (step, test of convergence) is one launch of one step."""
    engine = Engine(executor_name)
    body = Composite("body")
    loss = lg.grad(lambda x, target: lg.sum((x - target) ** 2.0))
    descend = body.graph.add(block(lambda x, target: x - 0.25 * loss(x, target), name="descend"))
    test = body.graph.add(block(lambda x, target: lg.sum(lg.abs(x - target)) > 1e-3, name="test"))
    body.graph.connect(descend, test["x"])
    for pin in (descend["x"], descend["target"], test["target"]):
        body.expose(pin)
    body.expose(descend["result"], "better")
    body.expose(test["result"], "condition")
    fit = engine.add(While("fit", body, {"x": "better"}))
    engine.set(fit["x"], NUMBERS)
    engine.set(fit["target"], NUMBERS[::-1].copy())
    engine.set(fit["condition"], True)
    frame = engine.step()
    x, times = NUMBERS, 0
    while True:
        x, times = x - np.float32(0.5) * (x - NUMBERS[::-1]), times + 1
        if np.sum(np.abs(x - NUMBERS[::-1])) <= 1e-3:
            break
    assert frame.ran == ("fit",)
    assert dict(frame.calls) == {"fit/descend": times, "fit/test": times}
    np.testing.assert_allclose(engine.read(fit["better"]), x, rtol=1e-6)


def test_for_runs_its_body_n_times_and_a_new_n_is_hot(executor_name):
    """Seed 004, "For Region"."""
    engine = Engine(executor_name)
    loop = engine.add(For("loop", summing_body(), {"total": "sum"}))
    engine.set(loop["total"], np.float32(1))
    engine.set(loop["x"], np.float32(2))
    engine.set(loop["count"], 3)
    assert dict(engine.step().calls) == {"loop/add": 3}
    assert engine.read(loop) == 7
    engine.set(loop["count"], 5)
    frame = engine.step()
    assert frame.level is Level.HOT
    assert frame.prepared == 0
    assert dict(frame.calls) == {"loop/add": 5}
    assert engine.read(loop) == 11
    engine.set(loop["count"], 0)
    assert dict(engine.step().calls) == {}
    assert engine.read(loop) == 1


# --- profiling, state -------------------------------------------------------------------------------------------------


def test_profiling_changes_neither_results_nor_what_runs(executor_name):
    """Seed 004, "Profiling": timing is given to blocks."""
    engine, blocks = chain(executor_name)
    engine.step()
    engine.set(blocks["b"]["gain"], 3.0)
    engine.profiling = "block"
    frame = engine.step()
    assert frame.ran == ("b", "d")
    assert frame.seconds is not None
    assert set(frame.seconds) == {"b", "d"}
    assert blocks["b"].debug.seconds > 0
    assert "µs" in engine.explain()
    events = json.loads(chrome_trace([frame]))["traceEvents"]
    assert [event["name"] for event in events] == ["b", "d"]
    assert events[0]["ts"] + events[0]["dur"] <= events[1]["ts"]
    assert events[0]["args"]["level"] == "hot"
    engine.profiling = "off"
    assert engine.step().ran == ()


def test_steps_inside_of_a_region_are_measured_one_by_one():
    """Seed 004, "Profiling": off, per block, per step; what runs and what comes out is the same."""
    found = {}
    for level in ("off", "block", "step"):
        engine = Engine("cpu")
        loop = engine.add(For("loop", summing_body(), {"total": "sum"}))
        engine.set(loop["total"], np.float32(1))
        engine.set(loop["x"], np.float32(2))
        engine.set(loop["count"], 3)
        engine.profiling = level
        frame = engine.step()
        found[level] = (frame.ran, dict(frame.calls), float(engine.read(loop)))
        measured = None if frame.seconds is None else set(frame.seconds)
        assert measured == {"off": None, "block": {"loop"}, "step": {"loop", "loop/add"}}[level]
        assert ("    loop/add: ran 3 times" in engine.explain()) == (level == "step")
        inner = loop.bodies["body"].graph.blocks["add"]
        assert (inner.debug.seconds > 0) == (level == "step")
        assert len(json.loads(chrome_trace([frame]))["traceEvents"]) == (0 if measured is None else len(measured))
    assert found["off"] == found["block"] == found["step"]


def test_a_state_is_the_only_legal_cycle_and_advances_once_a_frame(executor_name):
    """Seed 004, "Phase 1: Validation": cycle detection; state carries values from frame to frame."""
    engine = Engine(executor_name)
    position = engine.add(State("position", np.zeros(3, np.float32)))
    move = engine.add(block(lambda x, speed=1.0: x + speed, name="move"))
    still = engine.add(block(lambda x=1.0: x + 1.0, name="still"))
    engine.connect(position, move["x"])
    engine.connect(move, position["next"])
    assert set(engine.step().ran) == {"move", "still"}
    for frame in range(2, 5):
        assert engine.step().ran == ("move",)
        np.testing.assert_array_equal(engine.read(position), np.full(3, frame))
    engine.reset(position)
    engine.step()
    np.testing.assert_array_equal(engine.read(position), np.ones(3))
    assert float(engine.read(still)) == 2.0


# --- append buffers and captured calls -------------------------------------------------------------------------------


def two_writers(executor_name: str, capacity: int = 5):
    engine = Engine(executor_name)
    writers = [
        engine.add(append_block(lambda x, limit=2.0: (x > limit, x), capacity=4, name="large")),
        engine.add(append_block(lambda x, limit=0.0: (x < limit, x), capacity=4, name="small")),
    ]
    both = engine.add(AppendBuffer("both", capacity=capacity, writers=("first", "second")))
    for writer, pin in zip(writers, ("first", "second"), strict=True):
        engine.set(writer["x"], np.array([3, -1, 0, 5], np.float32))
        engine.connect(writer["values"], both[pin])
    return engine, writers, both


def test_the_counter_of_an_append_buffer_is_set_to_zero_before_its_writers(executor_name):
    """Seed 004, "Phase 4.5: Memset Nodes": one memset for all writers of a buffer, before any of them."""
    engine, (large, _), both = two_writers(executor_name)
    engine.step()
    lines = str(engine.plan).splitlines()
    memset = lines.index("  1: memset both.total := 0")
    assert lines[memset + 1].startswith("  1: append both(large.values, large.total, small.values, small.total) -> ")
    np.testing.assert_array_equal(engine.read(both["values"]), [3, 5, -1, 0, 0])
    assert [int(engine.read(both[pin])) for pin in ("count", "total")] == [3, 3]
    # A stale writer makes the whole buffer anew; the other's rows are still there, and are not computed again.
    engine.set(large["limit"], 4.0)
    assert engine.step().ran == ("large", "both")
    np.testing.assert_array_equal(engine.read(both["values"]), [5, -1, 0, 0, 0])
    assert [int(engine.read(both[pin])) for pin in ("count", "total")] == [2, 2]


def test_an_append_buffer_that_is_full_says_so_and_counts_on(executor_name):
    """Seed 004, "Phase 4.5: Memset Nodes": a counter is a pin; overflow is reported."""
    engine, (large, _), both = two_writers(executor_name, capacity=2)
    twice = engine.add(block(lambda n: n * 2, name="twice"))
    engine.connect(both["total"], twice["n"])
    assert engine.step().warnings == ("both: 3 elements, room for 2",)
    assert both.debug.warnings == ["both: 3 elements, room for 2"]
    np.testing.assert_array_equal(engine.read(both["values"]), [3, 5])
    assert [int(engine.read(pin)) for pin in (both["count"], both["total"], twice["result"])] == [2, 3, 6]
    engine.set(large["limit"], 9.0)
    assert engine.step().warnings == ()
    assert both.debug.warnings == []


def test_an_append_buffer_takes_append_outputs_of_one_kind(executor_name):
    """Seed 004, "Phase 1: Validation": pins are typed; an append buffer is a type of its own."""
    engine, (_, small), both = two_writers(executor_name)
    plain = engine.add(block(lambda x: x, name="plain"))
    engine.set(plain["x"], NUMBERS)
    engine.connect(plain, both["second"])
    (problem,) = engine.step().problems
    assert (problem.node, problem.pin) == ("both", "second")
    assert "expected the `values` of an append block, found `plain.result`" in str(problem)
    engine.connect(small["values"], both["second"])
    engine.set(small["x"], np.array([1, -2, 3]))
    (problem,) = engine.step().problems
    assert (problem.node, problem.pin) == ("both", "second")
    assert "found rows of tensor<i64, []>" in str(problem)


def test_a_captured_call_that_raises_is_an_error_of_its_block(executor_name):
    """Seed 004, "Phase 5b: Stream Capture" and "Error Handling"."""
    engine = Engine(executor_name)

    def broken(stream, x, result):
        raise ValueError("the library says no")

    call = engine.add(captured_block(broken, outputs={"result": "same(0)"}, name="call"))
    apart = engine.add(block(lambda x=1.0: x + 1.0, name="apart"))
    engine.set(call["x"], NUMBERS)
    engine.step()
    assert "`call` raised ValueError: the library says no (test_seed_004_graph_compiler.py:" in str(
        call.debug.errors[0]
    )
    assert apart.debug.errors == []
    with pytest.raises(LivegradError, match="the library says no"):
        engine.read(call)


def test_a_captured_call_may_stand_in_a_region():
    """Seed 004, "Regions": a body may hold captured work. The call here is NumPy's."""
    engine = Engine("cpu")
    body = Composite("body")
    divide = lambda stream, x, by, result: np.divide(x, by, out=result)  # noqa: E731
    halve = body.graph.add(captured_block(divide, outputs={"result": "same(0)"}, name="halve"))
    for pin in (halve["x"], halve["by"], halve["result"]):
        body.expose(pin)
    loop = engine.add(For("loop", body, {"x": "result"}))
    engine.set(loop["x"], NUMBERS)
    engine.set(loop["by"], np.float32(2))
    engine.set(loop["count"], 3)
    assert engine.step().ok, engine.frame.problems
    np.testing.assert_array_equal(engine.read(loop), NUMBERS / 8)
    engine.set(loop["by"], np.float32(4))
    assert engine.step().level is Level.RECAPTURE
    np.testing.assert_array_equal(engine.read(loop), NUMBERS / 64)
