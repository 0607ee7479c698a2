"""Seed 004, the graph compiler: a test for each heading and each row of the update table that needs no GPU."""

from __future__ import annotations

import json
from itertools import pairwise

import numpy as np
import pytest

import livegrad as lg
from livegrad.authoring.block import block, edit
from livegrad.engine.compile import compile_graph, validate
from livegrad.engine.engine import Engine, EngineError
from livegrad.engine.flatten import flatten_graph
from livegrad.engine.graph import Composite, State
from livegrad.engine.profile import chrome_trace
from livegrad.engine.propagate import propagate_shapes
from livegrad.engine.regions import For, If, While
from livegrad.engine.shapes import apply_shape_rule
from livegrad.engine.sort import sort_nodes
from livegrad.engine.sources import ExternalBuffer
from livegrad.engine.update import Level
from livegrad.engine.wire import wire
from livegrad.ir.types import Dimension, Tensor, f32

N = Dimension.symbol("n")
NUMBERS = np.arange(4, dtype=np.float32)


def chain(**options) -> tuple[Engine, dict]:
    """a → b → d and a → c → d, with a knob on b; a's size may change without new code."""
    engine = Engine(**options)
    row = {"x": Tensor(f32, (N,))}
    blocks = {
        "a": engine.add(block(lambda x: x + 1.0, name="a", inputs=row)),
        "b": engine.add(block(lambda x, gain=2.0: x * gain, name="b", inputs=row)),
        "c": engine.add(block(lambda x: x * x, name="c", inputs=row)),
        "d": engine.add(block(lambda x, y: x + y, name="d", inputs={"x": row["x"], "y": row["x"]})),
    }
    engine.set(blocks["a"]["x"], NUMBERS)
    engine.connect(blocks["a"], blocks["b"]["x"])
    engine.connect(blocks["a"], blocks["c"]["x"])
    engine.connect(blocks["b"], blocks["d"]["x"])
    engine.connect(blocks["c"], blocks["d"]["y"])
    return engine, blocks


def expected(x: np.ndarray, gain: float = 2.0) -> np.ndarray:
    return (x + 1) * np.float32(gain) + (x + 1) ** 2


def levels(engine: Engine) -> dict[str, Level]:
    return {key: change.level for key, change in engine.frame.changes.items()}


def test_phases_can_each_be_called_and_shown():
    """Seed 004, "Overview": the phases in order."""
    engine, _ = chain()
    network = flatten_graph(engine.graph)
    assert validate(network) == []
    order, cycles = sort_nodes(network)
    assert cycles == []
    shapes, problems = propagate_shapes(network, order, set())
    assert problems == []
    plan = wire(network, order, shapes)
    assert str(plan).splitlines()[1] == "  0: a(a.x) -> a.result: tensor<f32, [4]>"


def test_validation_reports_every_error_at_its_pin_at_once():
    """Seed 004, "Phase 1: Validation": types, cycles, completeness and shapes are errors."""
    engine = Engine()
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
    assert "nothing feeds" in str(lonely.debug.errors[0])
    assert "cycle" in str(first.debug.errors[0])
    assert "expected (4,), found ()" in str(shaped.debug.errors[0])
    assert all(b.debug.state == "failed" for b in (typed, lonely, first, second, shaped))


def test_an_error_goes_only_to_the_block_that_it_is_about():
    """Seed 004, "Error Handling": distributed to affected blocks."""
    engine, blocks = chain()
    engine.step()
    edit(engine, blocks["c"], lambda x: x @ x @ x)
    engine.step()
    assert [name for name, b in blocks.items() if b.debug.errors] == ["c"]


def test_the_old_graph_runs_on_after_an_error_and_takes_hot_updates():
    """Seed 004, "Error Handling": the engine keeps the old compiled graph."""
    engine, blocks = chain()
    engine.step()
    engine.disconnect(blocks["d"]["y"])
    engine.set(blocks["b"]["gain"], 5.0)
    frame = engine.step()
    assert not frame.ok
    with pytest.raises(EngineError, match=r"d\.y: nothing feeds"):
        engine.read(blocks["d"])
    np.testing.assert_array_equal(engine.read(blocks["d"], running=True), expected(NUMBERS, 5.0))
    engine.connect(blocks["c"], blocks["d"]["y"])
    assert engine.step().ok
    np.testing.assert_array_equal(engine.read(blocks["d"]), expected(NUMBERS, 5.0))
    assert blocks["d"].debug.errors == []


def test_buffers_have_the_lifetime_of_what_owns_them():
    """Seed 004, "Phase 2: Buffer Allocation": External, Graph, Region."""
    engine, blocks = chain()
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


def test_steps_have_topological_levels():
    """Seed 004, "Phase 3: Topological Sort": A, then B and C, then D."""
    engine, _ = chain()
    plan = compile_graph(engine.graph).plan
    assert plan is not None
    assert {key: step.level for key, step in plan.steps.items()} == {"a": 0, "b": 1, "c": 1, "d": 2}


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


def test_shapes_follow_from_functions_and_obey_the_rules():
    """Seed 004, "Phase 4: Shape Propagation"."""
    engine = Engine()
    wide = engine.add(block(lambda x: lg.stack([x] * 16, axis=1), name="wide", shapes={"result": "[N, 16]"}))
    engine.set(wide["x"], NUMBERS)
    assert engine.step().ok
    assert engine.read(wide).shape == (4, 16)


def test_buffers_share_memory_when_their_live_ranges_do_not_meet():
    """Seed 004, "Phase 5: Liveness Analysis"."""
    engine = Engine(reuse_memory=True)
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


def summing_body() -> Composite:
    body = Composite("body")
    add = body.graph.add(block(lambda total, x: total + x, name="add"))
    body.expose(add["total"])
    body.expose(add["x"])
    body.expose(add["result"], "sum")
    return body


def test_if_runs_its_body_or_gives_zeros():
    """Seed 004, "If Region": outputs are zero-filled before the region."""
    engine = Engine()
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


def test_while_runs_as_long_as_its_condition_holds():
    """Seed 004, "While Region": a whole optimisation (step, test of convergence) is one launch of one step."""
    engine = Engine()
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


def test_for_runs_its_body_n_times_and_a_new_n_is_hot():
    """Seed 004, "For Region"."""
    engine = Engine()
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


# --- the update table ------------------------------------------------------------------------------------------------


def test_scalar_value_changed_is_hot():
    """Seed 004, "KernelNode Updates": Scalar value changed."""
    engine, blocks = chain()
    engine.step()
    engine.set(blocks["b"]["gain"], 3.0)
    frame = engine.step()
    assert levels(engine) == {"b": Level.HOT}
    assert frame.ran == ("b", "d")
    assert frame.prepared == 0
    np.testing.assert_array_equal(engine.read(blocks["d"]), expected(NUMBERS, 3.0))


def test_buffer_content_changed_needs_no_update():
    """Seed 004, "KernelNode Updates": Buffer content changed."""
    engine, blocks = chain()
    shared = engine.bind(blocks["a"]["x"], ExternalBuffer(NUMBERS.copy(), version=0))
    engine.step()
    shared.array[0] = 9
    assert engine.step().ran == ()
    shared.touch()
    assert engine.step().level is Level.NONE
    assert engine.frame.ran == ("a", "b", "c", "d")
    np.testing.assert_array_equal(engine.read(blocks["d"]), expected(shared.array))


def test_buffer_rebind_of_the_same_size_is_warm():
    """Seed 004, "KernelNode Updates": Buffer rebind (same size)."""
    engine, blocks = chain()
    engine.bind(blocks["a"]["x"], ExternalBuffer(NUMBERS.copy(), version=0))
    engine.step()
    engine.bind(blocks["a"]["x"], ExternalBuffer(NUMBERS + 1, version=0))
    engine.step()
    assert levels(engine) == {"a": Level.WARM}
    np.testing.assert_array_equal(engine.read(blocks["d"]), expected(NUMBERS + 1))


def test_buffer_resize_and_another_grid_are_warm():
    """Seed 004, "KernelNode Updates": Buffer resize; Grid size changed."""
    engine, blocks = chain()
    engine.step()
    longer = np.arange(9, dtype=np.float32)
    engine.set(blocks["a"]["x"], longer)
    engine.step()
    assert levels(engine) == dict.fromkeys("abcd", Level.WARM)
    np.testing.assert_array_equal(engine.read(blocks["d"]), expected(longer))


def test_changed_logic_is_a_code_update_of_that_block():
    """Seed 004, "KernelNode Updates": Patchable kernel logic changed."""
    engine, blocks = chain()
    engine.step()
    edit(engine, blocks["c"], lambda x: x - 1.0)
    frame = engine.step()
    assert levels(engine) == {"c": Level.CODE}
    assert frame.ran == ("c", "d")
    assert frame.prepared == 1
    np.testing.assert_array_equal(engine.read(blocks["d"]), (NUMBERS + 1) * 2 + NUMBERS)


def test_added_and_removed_blocks_are_cold_and_the_rest_keeps_its_values():
    """Seed 004, "KernelNode Updates": Node added/removed."""
    engine, blocks = chain()
    engine.step()
    extra = engine.add(block(lambda x: x * 10.0, name="extra"))
    engine.connect(blocks["a"], extra["x"])
    frame = engine.step()
    assert levels(engine) == {"extra": Level.COLD}
    assert frame.ran == ("extra",)
    engine.remove(extra)
    frame = engine.step()
    assert levels(engine) == {"extra": Level.COLD}
    assert frame.ran == ()
    np.testing.assert_array_equal(engine.read(blocks["d"]), expected(NUMBERS))


def test_a_changed_edge_is_cold():
    """Seed 004, "KernelNode Updates": Edge added/removed."""
    engine, blocks = chain()
    engine.step()
    engine.connect(blocks["b"], blocks["d"]["y"])
    frame = engine.step()
    assert levels(engine) == {"d": Level.COLD}
    assert frame.ran == ("d",)
    np.testing.assert_array_equal(engine.read(blocks["d"]), (NUMBERS + 1) * 4)


def test_an_added_region_is_cold():
    """Seed 004, "KernelNode Updates": Region added/removed."""
    engine, blocks = chain()
    engine.step()
    loop = engine.add(For("loop", summing_body(), {"total": "sum"}))
    engine.connect(blocks["a"], loop["total"])
    engine.connect(blocks["b"], loop["x"])
    engine.set(loop["count"], 2)
    engine.step()
    assert levels(engine) == {"loop": Level.COLD}
    np.testing.assert_array_equal(engine.read(loop), (NUMBERS + 1) * 5)
    engine.remove(loop)
    engine.step()
    assert levels(engine) == {"loop": Level.COLD}


def test_changes_of_every_kind_in_one_frame_are_all_applied_in_it():
    """Seed 004, "Update Levels": two kinds of dirt in one frame do not wait for each other."""
    engine, blocks = chain()
    engine.bind(blocks["a"]["x"], ExternalBuffer(NUMBERS.copy(), version=0))
    engine.step()
    engine.set(blocks["b"]["gain"], 7.0)
    engine.bind(blocks["a"]["x"], ExternalBuffer(NUMBERS + 2, version=0))
    edit(engine, blocks["c"], lambda x: x + 3.0)
    engine.step()
    assert levels(engine) == {"a": Level.WARM, "b": Level.HOT, "c": Level.CODE}
    np.testing.assert_array_equal(engine.read(blocks["d"]), (NUMBERS + 3) * 7 + (NUMBERS + 6))


def test_profiling_changes_neither_results_nor_what_runs():
    """Seed 004, "Profiling": timing is given to blocks."""
    engine, blocks = chain()
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


def test_a_state_is_the_only_legal_cycle_and_advances_once_a_frame():
    """Seed 004, "Phase 1: Validation": cycle detection; state carries values from frame to frame."""
    engine = Engine()
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
