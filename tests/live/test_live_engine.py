"""The live engine: staleness from needs, failures, composites, nested regions, append buffers, watched files."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

import livegrad as lg
from livegrad.diagnostics import KernelCheckError, UsageError
from livegrad.ir.dimension import Dimension
from livegrad.ir.function import trace
from livegrad.ir.leaves import parameter
from livegrad.ir.node import Function
from livegrad.ir.types import Tensor, f32, f64
from livegrad.live.blocks import append_block, block, edit, watch
from livegrad.live.engine import Engine
from livegrad.live.graph.block import State
from livegrad.live.graph.composite import Composite
from livegrad.live.graph.regions import For, If, IfElse, Switch
from livegrad.live.graph.sources import ExternalBuffer, InputType
from livegrad.live.update.diff_plans import Level
from livegrad.ops.context import context
from livegrad.ops.movement import broadcast_to
from livegrad.runtime.cpu import compile_function

NUMBERS = np.arange(4, dtype=np.float32)


def one_block(function, **options) -> Composite:
    """A composite around one block, with all pins exposed."""
    body = Composite("body")
    inner = body.graph.add(block(function, name=options.pop("name", "inner"), **options))
    for pin in (*inner.inputs.values(), *inner.outputs.values()):
        body.expose(pin)
    return body


# --- what blocks wrap ------------------------------------------------------------------------------------------------


def test_a_block_of_an_ir_function_accepts_other_sizes_without_new_code(executor_name):
    n = Dimension.symbol("n")
    row = Tensor(f32, (n,))
    product = trace(lambda x, y: (x * y, x + y), row, row, name="both")
    engine = Engine(executor_name)
    both = engine.add(block(product, inputs=("x", "y"), outputs=("product", "sum")))
    engine.set(both["x"], NUMBERS)
    engine.set(both["y"], NUMBERS)
    engine.step()
    np.testing.assert_array_equal(engine.read(both["product"]), NUMBERS**2)
    longer = np.ones(7, np.float32)
    engine.set(both["x"], longer)
    engine.set(both["y"], longer)
    assert engine.step().level is Level.WARM
    np.testing.assert_array_equal(engine.read(both["sum"]), longer * 2)


def test_symbolic_sizes_stay_symbolic_after_an_edit(executor_name):
    row = Tensor(f32, (Dimension.symbol("n"),))
    engine = Engine(executor_name)
    shade = engine.add(block(lambda x: x * 2.0, name="shade", inputs={"x": row}))
    engine.set(shade["x"], NUMBERS)
    engine.step()
    edit(engine, shade, lambda x: x * 3.0)
    assert engine.step().level is Level.CODE
    engine.set(shade["x"], np.ones(7, np.float32))
    assert engine.step().level is Level.WARM
    np.testing.assert_array_equal(engine.read(shade), np.full(7, 3, np.float32))


def test_inconsistent_sizes_are_an_error_of_the_block(executor_name):
    row = Tensor(f32, (Dimension.symbol("n"),))
    engine = Engine(executor_name)
    add = engine.add(block(trace(lambda x, y: x + y, row, row, name="add"), inputs=("x", "y")))
    engine.set(add["x"], NUMBERS)
    engine.set(add["y"], np.ones(3, np.float32))
    assert [problem.block for problem in engine.step().problems] == [add]


def test_a_captured_function_runs_at_every_point(executor_name):
    @lg.differentiable
    def soften(x: float, width: float) -> float:
        return x / (1.0 + x * x) if x > width else width

    engine = Engine(executor_name)
    soft = engine.add(block(soften, name="soft"))
    engine.set(soft["x"], NUMBERS)
    engine.set(soft["width"], np.float32(0.5))
    assert engine.step().ok, engine.frame.problems
    expected = np.where(NUMBERS > 0.5, NUMBERS / (1 + NUMBERS * NUMBERS), 0.5)
    np.testing.assert_allclose(engine.read(soft), expected, rtol=1e-6)


def test_a_gradient_of_a_block_is_a_block(executor_name):
    def energy(x, stiffness=2.0):
        return lg.sum(stiffness * x * x)

    engine = Engine(executor_name)
    force = engine.add(block(lambda x, stiffness=2.0: lg.grad(energy)(x, stiffness), name="force"))
    engine.set(force["x"], NUMBERS)
    engine.step()
    np.testing.assert_array_equal(engine.read(force), 4 * NUMBERS)
    engine.set(force["stiffness"], 3.0)
    assert engine.step().level is Level.HOT
    np.testing.assert_array_equal(engine.read(force), 6 * NUMBERS)


def test_tensors_created_inside_are_constants_and_outside_tensors_are_rejected(executor_name):
    engine = Engine(executor_name)
    inside = engine.add(block(lambda x: x * lg.asarray([1.0, 2.0, 3.0, 4.0]), name="inside"))
    engine.set(inside["x"], NUMBERS)
    assert engine.step().ok
    np.testing.assert_array_equal(engine.read(inside), NUMBERS * [1, 2, 3, 4])
    held = lg.asarray([1.0, 2.0, 3.0, 4.0])
    outside = engine.add(block(lambda x: x * held, name="outside"))
    engine.set(outside["x"], NUMBERS)
    (problem,) = engine.step().problems
    assert "reads a tensor that is defined outside of it" in str(problem)


# --- staleness -------------------------------------------------------------------------------------------------------


def test_a_change_of_time_runs_exactly_the_readers_of_time(executor_name):
    moving = trace_with_time()
    engine = Engine(executor_name)
    wave = engine.add(block(moving, inputs=("x",), name="wave"))
    still = engine.add(block(lambda x: x + 1.0, name="still"))
    after = engine.add(block(lambda x: x * 2.0, name="after"))
    engine.set(wave["x"], NUMBERS)
    engine.set(still["x"], NUMBERS)
    engine.connect(wave, after["x"])
    engine.set_feature("animation_time", 0.5)
    assert set(engine.step().ran) == {"wave", "still", "after"}
    engine.set_feature("animation_time", 2.0)
    frame = engine.step()
    assert frame.ran == ("wave", "after")
    assert frame.level is Level.HOT
    np.testing.assert_array_equal(engine.read(after), NUMBERS * 4)
    engine.set_feature("animation_time", 2.0)
    assert engine.step().ran == ()


def trace_with_time():
    x = parameter(0, Tensor(f32, (4,)))
    result = x * broadcast_to(context("animation_time"), (4,))
    return Function("wave", (x,), (result,))


def test_a_feature_without_a_value_is_an_error_of_its_readers_only(executor_name):
    engine = Engine(executor_name)
    wave = engine.add(block(trace_with_time(), inputs=("x",), name="wave"))
    still = engine.add(block(lambda x=1.0: x + 1.0, name="still"))
    engine.set(wave["x"], NUMBERS)
    engine.step()
    assert float(engine.read(still)) == 2.0
    with pytest.raises(Exception, match="animation_time"):
        engine.read(wave)
    engine.set_feature("animation_time", 1.0)
    engine.step()
    np.testing.assert_array_equal(engine.read(wave), NUMBERS)


def test_setting_an_equal_value_makes_nothing_stale_but_minus_zero_differs(executor_name):
    engine = Engine(executor_name)
    invert = engine.add(block(lambda x=0.0: 1.0 / x, name="invert"))
    engine.step()
    engine.set(invert["x"], 0.0)
    assert engine.step().ran == ()
    engine.set(invert["x"], -0.0)
    assert engine.step().ran == ("invert",)
    assert engine.read(invert) == -np.inf


def test_external_memory_without_a_version_is_read_in_every_frame(executor_name):
    engine = Engine(executor_name)
    copy = engine.add(block(lambda x: x + 0.0, name="copy"))
    shared = NUMBERS.copy()
    engine.bind(copy["x"], shared)
    engine.step()
    shared[0] = 9
    engine.step()
    np.testing.assert_array_equal(engine.read(copy), shared)


def test_one_external_buffer_bound_to_two_blocks_makes_both_stale(executor_name):
    engine = Engine(executor_name)
    shared = ExternalBuffer(NUMBERS.copy(), version=0)
    blocks = [engine.add(block(lambda x: x + 1.0, name=name)) for name in ("first", "second")]
    for own in blocks:
        engine.bind(own["x"], shared)
    engine.step()
    shared.touch()
    assert engine.step().ran == ("first", "second")


def test_a_number_and_a_new_block_can_change_in_one_frame(executor_name):
    engine = Engine(executor_name)
    scale = engine.add(block(lambda x, gain=2.0: x * gain, name="scale"))
    apart = engine.add(block(lambda x=1.0: x, name="apart"))
    engine.set(scale["x"], NUMBERS)
    engine.step()
    engine.set(scale["gain"], 5.0)
    engine.add(block(lambda x=1.0: x, name="new"))
    frame = engine.step()
    assert {key: change.level for key, change in frame.changes.items()} == {"scale": Level.HOT, "new": Level.COLD}
    assert set(frame.ran) == {"scale", "new"}
    np.testing.assert_array_equal(engine.read(scale), NUMBERS * 5)
    assert float(engine.read(apart)) == 1.0


def test_current_numbers_and_arrays_survive_a_size_change_of_their_source(executor_name):
    row = {"x": Tensor(f32, (Dimension.symbol("n"),))}
    engine = Engine(executor_name)
    first = engine.add(block(lambda x: x * 2.0, name="first", inputs=row))
    second = engine.add(block(lambda x, by=1.0: x + by, name="second", inputs=row))
    third = engine.add(block(lambda x, y: x.sum() + y, name="third"))
    engine.set(first["x"], NUMBERS)
    engine.set(third["y"], np.zeros(2, np.float32))
    engine.connect(first, second["x"])
    engine.connect(second, third["x"])
    engine.step()
    engine.set(second["by"], 5.0)
    engine.set(third["y"], np.ones(2, np.float32))
    engine.step()
    engine.set(first["x"], NUMBERS[:3])
    engine.step()
    np.testing.assert_array_equal(engine.read(second), NUMBERS[:3] * 2 + 5)
    np.testing.assert_array_equal(engine.read(third), np.full(2, 22))


def test_a_size_change_reaches_all_dependents_after_a_cold_edit(executor_name):
    engine = Engine(executor_name)
    first = engine.add(block(lambda x: x + 1.0, name="first"))
    second = engine.add(block(lambda x: x * 2.0, name="second"))
    third = engine.add(block(lambda x, gain=10.0: x * gain, name="third"))
    engine.set(first["x"], NUMBERS)
    engine.connect(first, second["x"])
    engine.connect(second, third["x"])
    engine.step()
    other = engine.add(block(lambda x: lg.concat([x, x]), name="other"))
    engine.set(other["x"], NUMBERS)
    engine.connect(other, second["x"])
    engine.set(third["gain"], 100.0)
    assert engine.step().ok
    np.testing.assert_array_equal(engine.read(third), np.concatenate([NUMBERS, NUMBERS]) * 200)
    engine.connect(first, second["x"])
    edit(engine, first, lambda x: x + 2.0)
    assert engine.step().ok
    np.testing.assert_array_equal(engine.read(third), (NUMBERS + 2) * 200)


def test_replaced_plans_are_released():
    """The cache of hot parameters must not keep old plans alive. With `reuse_memory`, an edit builds another plan."""
    engine = Engine("cpu", reuse_memory=True)
    scale = engine.add(block(lambda x, gain=2.0: x * gain, name="scale"))
    engine.set(scale["x"], NUMBERS)
    plans = []
    for number in range(4):
        engine.add(block(lambda x=1.0: x, name=f"extra{number}"))
        engine.step()
        engine.set(scale["gain"], float(number + 5))
        engine.step()
        plans.append(weakref.ref(engine.plan))
    gc.collect()
    assert [plan() is None for plan in plans] == [True, True, True, False]


# --- failures --------------------------------------------------------------------------------------------------------


def test_a_failing_step_stops_only_its_dependents(executor_name):
    engine = Engine(executor_name)
    pick = engine.add(block(lambda x, index: lg.take(x, index), name="pick"))
    below = engine.add(block(lambda x: x + 1.0, name="below"))
    apart = engine.add(block(lambda x=1.0: x * 3.0, name="apart"))
    count = engine.add(State("count", np.float64(0)))
    tick = engine.add(block(lambda n: n + 1.0, name="tick"))
    engine.connect(count, tick["n"])
    engine.connect(tick, count["next"])
    engine.set(pick["x"], NUMBERS)
    engine.set(pick["index"], np.array([1, 9]))
    engine.connect(pick, below["x"])
    frame = engine.step()
    assert set(frame.ran) == {"apart", "tick"}
    assert frame.failed == {"pick", "below"}
    assert not frame.ok
    assert not frame.problems  # the graph itself is valid
    assert isinstance(pick.debug.errors[0], KernelCheckError)
    assert "pick: cold, failed" in engine.explain()
    assert float(engine.read(apart)) == 3.0
    for lost in (pick, below):
        with pytest.raises(KernelCheckError):
            engine.read(lost)
    assert engine.read(count) == 0  # a failed frame advances no state
    engine.set(pick["index"], np.array([1, 2]))
    assert set(engine.step().ran) == {"pick", "below"}  # the state did not advance, so `tick` already has its value
    np.testing.assert_array_equal(engine.read(below), [2, 3])
    assert pick.debug.errors == []
    assert engine.read(count) == 1


def test_a_function_that_raises_leaves_the_old_code_running(executor_name):
    engine = Engine(executor_name)
    shade = engine.add(block(lambda x: x + 1.0, name="shade"))
    engine.set(shade["x"], NUMBERS)
    engine.step()
    edit(engine, shade, lambda x: x.no_such_method())
    (problem,) = engine.step().problems
    assert "AttributeError" in str(problem)
    np.testing.assert_array_equal(engine.read(shade, running=True), NUMBERS + 1)
    edit(engine, shade, lambda x: x + 2.0)
    assert engine.step().ok
    np.testing.assert_array_equal(engine.read(shade), NUMBERS + 2)


def test_a_number_that_does_not_fit_is_an_error_at_its_pin(executor_name):
    engine = Engine(executor_name)
    scale = engine.add(block(trace(lambda x: x * 2.0, f32, name="scale"), inputs=("x",)))
    engine.set(scale["x"], 1.0)
    engine.step()
    engine.set(scale["x"], 1e300)
    (problem,) = engine.step().problems
    assert (problem.block, problem.pin) == (scale, "x")
    other = engine.add(block(lambda x=1.0: x, name="other"))
    (problem,) = engine.step().problems
    assert (problem.block, problem.pin) == (scale, "x")
    engine.set(scale["x"], 2.0)
    assert engine.step().ok
    engine.set(scale["x"], 1e300)
    engine.step()
    edit(engine, other, lambda x=1.0: x * 2.0)
    assert [problem.block for problem in engine.step().problems] == [scale]
    engine.set(scale["x"], 3.0)
    assert engine.step().ok
    assert float(engine.read(scale)) == 6.0
    assert scale.debug.errors == []


def test_missing_objects_are_rejected_by_name(executor_name):
    engine = Engine(executor_name)
    only = engine.add(block(lambda x: x, name="only"))
    with pytest.raises(UsageError, match="has no pin `y`"):
        only["y"]
    with pytest.raises(UsageError, match="already"):
        engine.add(block(lambda x: x, name="only"))
    with pytest.raises(UsageError, match="is not an input"):
        engine.set(only["result"], 1.0)
    with pytest.raises(UsageError, match="no value yet"):
        engine.read(only)


# --- composites and regions ------------------------------------------------------------------------------------------


def test_blocks_compose_into_blocks_and_inner_edits_are_live(executor_name):
    engine = Engine(executor_name)
    outer = Composite("outer")
    first = outer.graph.add(block(lambda x, gain=2.0: x * gain, name="first"))
    second = outer.graph.add(block(lambda x: x + 1.0, name="second"))
    outer.graph.connect(first, second["x"])
    outer.expose(first["x"])
    outer.expose(second["result"])
    engine.add(outer)
    after = engine.add(block(lambda x: x * 10.0, name="after"))
    engine.set(outer["x"], NUMBERS)
    engine.connect(outer, after["x"])
    assert engine.step().ran == ("outer/first", "outer/second", "after")
    np.testing.assert_array_equal(engine.read(outer), NUMBERS * 2 + 1)
    outer.graph.set(first["gain"], 3.0)
    assert engine.step().level is Level.HOT
    np.testing.assert_array_equal(engine.read(after), (NUMBERS * 3 + 1) * 10)
    edit(engine, second, lambda x: x - 1.0)
    frame = engine.step()
    assert frame.level is Level.CODE
    assert frame.ran == ("outer/second", "after")
    np.testing.assert_array_equal(engine.read(after), (NUMBERS * 3 - 1) * 10)


@pytest.mark.parametrize(("condition", "factor"), [(True, 2), (False, 3)])
def test_if_else_runs_one_body(executor_name, condition, factor):
    engine = Engine(executor_name)
    choice = engine.add(IfElse("choice", one_block(lambda x: x * 2.0), one_block(lambda x: x * 3.0)))
    engine.set(choice["x"], NUMBERS)
    engine.set(choice["condition"], condition)
    assert sum(engine.step().calls.values()) == 1
    np.testing.assert_array_equal(engine.read(choice), NUMBERS * factor)


@pytest.mark.parametrize(("index", "factor"), [(0, 1), (1, 2), (2, 3), (3, 0), (-1, 0)])
def test_switch_runs_the_body_at_its_index_or_none(executor_name, index, factor):
    engine = Engine(executor_name)
    bodies = [one_block(lambda x, k=float(k): x * k) for k in (1, 2, 3)]
    for body in bodies:  # the constants belong to the blocks, and are not pins
        body.inner_inputs.pop("k")
        body.inputs.pop("k")
    switch = engine.add(Switch("switch", *bodies))
    engine.set(switch["x"], NUMBERS)
    engine.set(switch["index"], index)
    engine.step()
    np.testing.assert_array_equal(engine.read(switch), NUMBERS * factor)


def test_regions_nest(executor_name):
    """The sum of all even i: an If inside a For."""
    engine = Engine(executor_name)
    body = Composite("body")
    even = body.graph.add(block(lambda index: index % 2 == 0, name="even"))
    gate = body.graph.add(If("gate", one_block(lambda index: index + 0, outputs=("value",))))
    add = body.graph.add(block(lambda total, value: total + value, name="add"))
    body.graph.connect(even, gate["condition"])
    body.graph.connect(gate["value"], add["value"])
    for pin in (even["index"], gate["index"], add["total"]):
        body.expose(pin)
    body.expose(add["result"], "sum")
    loop = engine.add(For("loop", body, {"total": "sum"}))
    engine.set(loop["total"], np.int64(0))
    engine.set(loop["count"], 7)
    frame = engine.step()
    assert frame.ok, frame.problems
    assert engine.read(loop) == 0 + 2 + 4 + 6
    assert dict(frame.calls) == {"loop/even": 7, "loop/gate": 7, "loop/gate/inner": 4, "loop/add": 7}


def test_a_loop_that_changes_its_type_is_an_error_at_the_carried_pin(executor_name):
    engine = Engine(executor_name)
    loop = engine.add(For("loop", one_block(lambda x: lg.astype(x, lg.float64)), {"x": "result"}))
    engine.set(loop["x"], NUMBERS)
    engine.set(loop["count"], 2)
    (problem,) = engine.step().problems
    assert (problem.node, problem.pin) == ("loop", "x")


def test_code_inside_a_region_is_edited_without_a_rebuild(executor_name):
    engine = Engine(executor_name)
    body = one_block(lambda x: x + 1.0)
    loop = engine.add(For("loop", body, {"x": "result"}))
    engine.set(loop["x"], NUMBERS)
    engine.set(loop["count"], 3)
    engine.step()
    edit(engine, body.graph.blocks["inner"], lambda x: x * 2.0)
    frame = engine.step()
    assert frame.level is Level.CODE
    np.testing.assert_array_equal(engine.read(loop), NUMBERS * 8)


# --- append buffers and watched files --------------------------------------------------------------------------------


def test_append_counts_from_zero_in_every_frame_and_reports_overflow(executor_name):
    engine = Engine(executor_name)
    keep = engine.add(append_block(lambda x, limit=1.0: (x > limit, x), capacity=2, name="keep"))
    engine.set(keep["x"], np.array([5, 0, 3, 2], np.float32))
    frame = engine.step()
    assert frame.warnings == ("keep: 3 elements, room for 2",)
    assert keep.debug.warnings == ["keep: 3 elements, room for 2"]
    np.testing.assert_array_equal(engine.read(keep["values"]), [5, 3])
    assert [int(engine.read(keep[name])) for name in ("count", "total")] == [2, 3]
    engine.set(keep["limit"], 4.0)
    assert engine.step().warnings == ()
    np.testing.assert_array_equal(engine.read(keep["values"]), [5, 0])
    assert int(engine.read(keep["count"])) == 1
    assert keep.debug.warnings == []


def test_append_keeps_rows_of_vectors(executor_name):
    engine = Engine(executor_name)
    rows = np.arange(8, dtype=np.float32).reshape(4, 2)
    keep = engine.add(append_block(lambda p: (p[:, 0] > 1.0, p), capacity=6, name="keep"))
    engine.set(keep["p"], rows)
    assert engine.step().ok, engine.frame.problems
    np.testing.assert_array_equal(engine.read(keep["values"]), [*rows[1:], [0, 0], [0, 0], [0, 0]])


def test_saving_a_watched_file_is_a_code_update_and_an_invalid_file_changes_nothing(executor_name, tmp_path):
    file = tmp_path / "shade.py"
    file.write_text("def shade(x=2.0):\n    return x + 1.0\n")
    engine = Engine(executor_name)
    shade = watch(engine, file, "shade")
    engine.step()
    assert engine.step().ran == ()
    file.write_text("def shade(x=2.0):\n    return x * 100.0\n")
    assert engine.step().level is Level.CODE
    assert float(engine.read(shade)) == 200.0
    file.write_text("def shade(x=2.0)\n    return 0.0\n")
    engine.step()
    assert "shade.py:1" in str(shade.debug.errors[0])
    assert float(engine.read(shade)) == 200.0
    file.unlink()
    engine.step()
    assert "cannot read" in str(shade.debug.errors[0])
    assert float(engine.read(shade)) == 200.0
    file.write_text("def shade(x=2.0):\n    return x - 1.0\n")
    engine.step()
    assert shade.debug.errors == []
    assert float(engine.read(shade)) == 1.0


def test_errors_of_a_watched_file_name_its_line_and_removed_blocks_are_not_updated(executor_name, tmp_path):
    file = tmp_path / "shade.py"
    file.write_text("def shade(x=2.0):\n    return x + 1.0\n")
    engine = Engine(executor_name)
    shade = watch(engine, file, "shade")
    apart = engine.add(block(lambda x=1.0: x, name="apart"))
    engine.step()
    broken = [("import math\nmath.no_such_thing()\n", 2), ("def shade(x=2.0):\n\n    return x.nothing()\n", 3)]
    for text, line in broken:
        file.write_text(text)
        engine.step()
        assert f"shade.py:{line}" in str(shade.debug.errors[0])
        assert float(engine.read(shade, running=True)) == 3.0
        assert apart.debug.errors == []
    file.write_text("def other(x=2.0):\n    return x\n")
    engine.step()
    assert any("has no function `shade`" in str(error) for error in shade.debug.errors)
    file.write_text("def shade(x=2.0):\n    return x * 4.0\n")
    assert engine.step().ok
    assert shade.debug.errors == []
    assert float(engine.read(shade)) == 8.0
    engine.remove(shade)
    file.write_text("no Python at all")
    assert engine.step().ok
    assert shade.debug.errors == []


# --- reading ---------------------------------------------------------------------------------------------------------


def test_a_reading_belongs_to_the_frame_before_the_request(executor_name):
    engine = Engine(executor_name)
    scale = engine.add(block(lambda x, gain=2.0: x * gain, name="scale"))
    engine.set(scale["x"], NUMBERS)
    with pytest.raises(UsageError, match="no value yet"):
        engine.read_async(scale)
    engine.step()
    reading = engine.read_async(scale)
    engine.set(scale["gain"], 10.0)
    engine.step()
    np.testing.assert_array_equal(reading.result(), NUMBERS * 2)
    assert reading.ready()
    np.testing.assert_array_equal(reading.result(), NUMBERS * 2)
    np.testing.assert_array_equal(engine.read_async(scale).result(), NUMBERS * 10)
    reading.result()[0] = 99  # a copy: it changes nothing
    np.testing.assert_array_equal(engine.read(scale), NUMBERS * 10)


def test_a_block_is_in_one_graph_only(executor_name):
    engine, other = Engine(executor_name), Engine(executor_name)
    own = engine.add(block(lambda x=1.0: x + 1.0, name="own"))
    with pytest.raises(UsageError, match="already in a graph"):
        other.add(own)
    engine.step()
    engine.remove(own)
    other.add(own)
    other.step()
    assert float(other.read(own)) == 2.0


def test_a_graph_that_is_too_large_is_an_error_of_the_block_and_the_old_plan_keeps_running():
    engine = Engine("cpu")
    small = engine.add(block(lambda x, gain=2.0: x * gain, name="small"))
    engine.set(small["x"], NUMBERS)
    engine.step()
    large = engine.add(block(lambda x: lg.broadcast_to(x, (1 << 44, 4)) * 2.0, name="large"))
    engine.connect(small, large["x"])
    engine.set(small["gain"], 3.0)
    (problem,) = engine.step().problems
    assert problem.block is large
    assert "not enough memory for `large.result`" in str(problem)
    np.testing.assert_array_equal(engine.read(small, running=True), NUMBERS * 3)
    engine.remove(large)
    assert engine.step().ok
    np.testing.assert_array_equal(engine.read(small), NUMBERS * 3)


def test_the_same_code_that_reads_a_feature_is_compiled_once():
    """Casts of its numbers in other functions are not part of it."""
    moving = lambda x, gain=1.0: x + gain * lg.contexts.context_tensor("animation_time")  # noqa: E731
    given = (InputType(Tensor(f32, (4,))), InputType(Tensor(f64, ()), weak=True))
    first = block(moving, name="first").body.specialize(given).function
    other = block(lambda x, gain=1.0: x * gain, name="other").body.specialize(given).function
    again = block(moving, name="again").body.specialize(given).function
    assert isinstance(first, Function)
    assert isinstance(again, Function)
    assert isinstance(other, Function)
    assert compile_function(first).plan() is compile_function(again).plan()
    assert compile_function(first).plan() is not compile_function(other).plan()


def test_reverting_a_number_of_the_wrong_type_clears_its_problem():
    engine = Engine()
    pick = engine.add(block(lambda x, place: x[place], name="pick"))
    engine.set(pick["x"], np.array([1.0, 2.0, 3.0]))
    engine.set(pick["place"], 1)
    engine.step()
    assert float(engine.read(pick)) == 2.0
    engine.set(pick["place"], 1.5)
    assert engine.step().problems
    engine.set(pick["place"], 2)
    assert engine.step().problems == ()
    assert float(engine.read(pick)) == 3.0
    assert pick.debug.errors == []
    engine.set(pick["place"], np.float64(1.5))
    assert engine.step().problems
    assert engine.step().problems  # nothing has changed
    engine.set(pick["place"], 2)
    engine.step()
    assert float(engine.read(pick)) == 3.0


def test_a_number_can_change_from_integer_to_float_and_back():
    engine = Engine()
    add = engine.add(block(lambda x, n=1: lg.sum(x) + n, name="add"))
    engine.set(add["x"], np.ones(3))
    for number in (7, 0, 1.5, 2, 3.5, -1):
        engine.set(add["n"], number)
        assert engine.step().problems == ()
        assert float(engine.read(add)) == 3.0 + number


def test_an_edit_that_starts_to_read_an_input_waits_for_its_writer(executor_name):
    engine = Engine(executor_name)
    first = engine.add(block(lambda x, gain=1.0: x * gain, name="first"))
    others = [engine.add(block(lambda a, b: b * 2.0, name=f"other{number}")) for number in range(4)]
    engine.set(first["x"], np.arange(3.0))
    for other in others:
        engine.connect(first, other["a"])
        engine.set(other["b"], np.ones(3))
    engine.step()
    engine.set(first["gain"], 2.0)
    engine.step()  # this set of steps now has a graph
    for number, other in enumerate(others):
        edit(engine, other, lambda a, b: a + b)
        engine.step()
        engine.set(first["gain"], number + 3.0)
        engine.step()
        for known in others[: number + 1]:
            np.testing.assert_array_equal(engine.read(known), np.arange(3.0) * (number + 3.0) + 1.0)
