"""Loops and branches: carried values swap buffers instead of being copied, and are always correct."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import numpy as np
import pytest

import livegrad as lg
from livegrad.ir.leaves import parameter
from livegrad.ir.node import Function
from livegrad.ir.types import Tensor, f32
from livegrad.live.blocks import append_block, block
from livegrad.live.engine import Engine
from livegrad.live.graph.composite import Composite
from livegrad.live.graph.regions import For, If, IfElse, Switch, While
from livegrad.live.update.diff_plans import Level
from livegrad.ops.context import context
from livegrad.ops.movement import broadcast_to
from tests.runtime.cuda.simulate import COMPILER, simulated

X = np.array([1.0, 2.0, 3.0])


def two_carried() -> Composite:
    """x, y → x + y, x / 2, and a third result that reads both and is not carried."""
    body = Composite("body")
    add = body.graph.add(block(lambda x, y: x + y, name="add"))
    halve = body.graph.add(block(lambda x: x * 0.5, name="halve"))
    watch = body.graph.add(block(lambda x, later, y, index: x * 100.0 + later * 10.0 + y + index, name="watch"))
    body.graph.connect(add, watch["later"])
    for pin in (add["x"], halve["x"], watch["x"]):
        body.expose(pin, "x")
    for pin in (add["y"], watch["y"]):
        body.expose(pin, "y")
    body.expose(watch["index"])
    body.expose(add["result"], "more")
    body.expose(halve["result"], "less")
    body.expose(watch["result"], "seen")
    return body


def expected_of(count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    x, y, seen = X, X * 3, np.zeros(3)
    for index in range(count):
        seen = x * 100 + (x + y) * 10 + y + index
        x, y = x + y, x / 2
    return x, y, seen


@pytest.mark.parametrize("count", range(6))
def test_carried_values_are_correct_after_any_number_of_iterations(executor_name, count):
    engine = Engine(executor_name)
    loop = engine.add(For("loop", two_carried(), {"x": "more", "y": "less"}))
    engine.set(loop["x"], X)
    engine.set(loop["y"], X * 3)
    engine.set(loop["count"], count)
    assert engine.step().ok, engine.frame.problems
    for pin, wanted in zip(("more", "less", "seen"), expected_of(count), strict=True):
        np.testing.assert_array_equal(engine.read(loop[pin]), wanted, err_msg=pin)
    engine.set(loop["count"], count + 1)
    assert engine.step().level is Level.HOT
    np.testing.assert_array_equal(engine.read(loop["more"]), expected_of(count + 1)[0])


def test_one_result_can_be_carried_to_two_inputs(executor_name):
    engine = Engine(executor_name)
    body = Composite("body")
    add = body.graph.add(block(lambda x, y: x + y * 2.0, name="add"))
    for pin in (add["x"], add["y"], add["result"]):
        body.expose(pin)
    loop = engine.add(For("loop", body, {"x": "result", "y": "result"}))
    engine.set(loop["x"], X)
    engine.set(loop["y"], X * 10)
    for count, factor in ((1, 21), (2, 63), (3, 189)):
        engine.set(loop["count"], count)
        engine.step()
        np.testing.assert_array_equal(engine.read(loop), X * factor)


@pytest.mark.parametrize("outer", range(4))
@pytest.mark.parametrize("inner", range(3))
def test_nested_loops_carry_values_through_both(executor_name, outer, inner):
    innermost = Composite("innermost")
    grow = innermost.graph.add(block(lambda x, by: x * 2.0 + by, name="grow"))
    for pin in (grow["x"], grow["by"], grow["result"]):
        innermost.expose(pin)
    body = Composite("body")
    loop = body.graph.add(For("inner", innermost, {"x": "result"}))
    shift = body.graph.add(block(lambda x: x + 1.0, name="shift"))
    body.graph.connect(loop["result"], shift["x"])
    body.expose(loop["x"])
    body.expose(loop["by"])
    body.expose(loop["count"], "times")
    body.expose(shift["result"])
    engine = Engine(executor_name)
    region = engine.add(For("outer", body, {"x": "result"}))
    for pin, value in (("x", X), ("by", 0.5), ("times", inner), ("count", outer)):
        engine.set(region[pin], value)
    assert engine.step().ok, engine.frame.problems
    wanted = X
    for _ in range(outer):
        for _ in range(inner):
            wanted = wanted * 2 + 0.5
        wanted = wanted + 1
    np.testing.assert_array_equal(engine.read(region), wanted)
    engine.set(region["by"], 0.25)  # reaches both iterations of both loops
    engine.step()
    wanted = X
    for _ in range(outer):
        for _ in range(inner):
            wanted = wanted * 2 + 0.25
        wanted = wanted + 1
    np.testing.assert_array_equal(engine.read(region), wanted)


def test_a_while_loop_reads_the_condition_of_the_last_iteration(executor_name):
    engine = Engine(executor_name)
    body = Composite("body")
    step = body.graph.add(block(lambda x, limit: (x + 1.0, lg.max(x) < limit), name="step", outputs=("y", "condition")))
    for pin in (*step.inputs.values(), *step.outputs.values()):
        body.expose(pin)
    loop = engine.add(While("loop", body, {"x": "y"}))
    engine.set(loop["x"], X)
    engine.set(loop["condition"], True)
    for limit in (0.0, 4.5, 5.5, 9.5):
        engine.set(loop["limit"], limit)
        engine.step()
        x, going = X, True
        while going:
            x, going = x + 1, bool(np.max(x) < limit)
        np.testing.assert_array_equal(engine.read(loop["y"]), x)


@pytest.mark.parametrize(("condition", "runs"), [(0.5, True), (-1, True), (0.0, False), (np.float32(1e-30), True)])
def test_any_nonzero_number_is_a_true_condition(executor_name, condition, runs):
    engine = Engine(executor_name)
    body = Composite("body")
    double = body.graph.add(block(lambda x: x * 2.0, name="double"))
    body.expose(double["x"])
    body.expose(double["result"])
    gate = engine.add(If("gate", body))
    engine.set(gate["x"], X)
    engine.set(gate["condition"], condition)
    engine.step()
    np.testing.assert_array_equal(engine.read(gate), X * 2 if runs else X * 0)


def test_bodies_with_different_result_types_are_an_error_of_the_region(executor_name):
    engine = Engine(executor_name)
    bodies = []
    for function in (lambda x: x * 2.0, lambda x: lg.sum(x)):
        body = Composite("body")
        inner = body.graph.add(block(function, name="inner"))
        body.expose(inner["x"])
        body.expose(inner["result"])
        bodies.append(body)
    switch = engine.add(Switch("switch", *bodies))
    engine.set(switch["x"], X)
    engine.set(switch["index"], 0)
    (problem,) = engine.step().problems
    assert problem.block is switch
    assert "the bodies have different types for output `result`" in str(problem)


def test_an_overflow_inside_a_region_is_reported(executor_name):
    engine = Engine(executor_name)
    body = Composite("body")
    keep = body.graph.add(append_block(lambda x, limit: (x > limit, x), capacity=2, name="keep"))
    for pin in (keep["x"], keep["limit"], keep["values"]):
        body.expose(pin)
    gate = engine.add(If("gate", body))
    engine.set(gate["x"], X)
    engine.set(gate["limit"], 0.5)
    engine.set(gate["condition"], True)
    assert engine.step().warnings == ("gate/keep: 3 elements, room for 2",)
    engine.set(gate["limit"], 1.5)
    assert engine.step().warnings == ()
    assert keep.debug.warnings == []


def doubling() -> Composite:
    body = Composite("body")
    double = body.graph.add(block(lambda x: x * 2.0, name="double"))
    body.expose(double["x"])
    body.expose(double["result"], "doubled")
    return body


def test_an_overflow_inside_a_composite_of_a_region_is_reported(executor_name):
    engine = Engine(executor_name)
    keep = append_block(lambda x: (x > 0.0, x), capacity=2, name="keep")
    around = keep
    for name in ("inner", "outer"):
        composite = Composite(name)
        composite.graph.add(around)
        composite.expose(around["x"]), composite.expose(around["values"])
        around = composite
    gate = engine.add(If("gate", around))
    engine.set(gate["condition"], True)
    engine.set(gate["x"], X)
    assert engine.step().warnings == ("gate/inner/keep: 3 elements, room for 2",)


def test_counts_and_indices_must_be_integers():
    engine = Engine()
    loop = engine.add(For("loop", doubling(), {"x": "doubled"}))
    choice = engine.add(Switch("choice", doubling(), doubling()))
    engine.set(loop["x"], 1.0)
    engine.set(choice["x"], 1.0)
    for pin, region in ((loop["count"], loop), (choice["index"], choice)):
        engine.set(loop["count"], 2)
        engine.set(choice["index"], 1)
        engine.step()
        assert float(engine.read(region)) in (2.0, 4.0)
        engine.set(pin, 2.5)
        (wrong,) = engine.step().problems
        assert (wrong.block, wrong.pin) == (region, pin.name)
        assert "must be an integer" in str(wrong)


def test_arguments_that_are_not_composites_or_pins_are_rejected():
    for make in (
        lambda: For("loop", block(lambda x: x, name="plain"), {}),  # type: ignore[arg-type]
        lambda: If("choice", 3),  # type: ignore[arg-type]
        lambda: Composite("body").expose(3),  # type: ignore[arg-type]
    ):
        with pytest.raises(lg.UsageError) as caught:
            make()
        assert "test_regions.py" in str(caught.value.where)


def test_an_error_about_an_inner_block_names_its_composite():
    engine, body = Engine(), doubling()
    engine.add(body)
    with pytest.raises(lg.UsageError, match="`double` is not in this graph; it is inside `body`: expose the pin"):
        engine.set(body.graph.blocks["double"]["x"], 1.0)


@pytest.mark.parametrize(
    ("factor", "element"), [(2.0, np.float32), (np.float32(2.0), np.float32), (np.float64(2.0), np.float64)]
)
def test_a_loop_that_starts_with_a_python_float_has_the_type_of_its_body(executor_name, factor, element):
    body = Composite("body")
    scale = body.graph.add(block(lambda x, factor: x * factor, name="scale"))
    for pin in (scale["x"], scale["factor"], scale["result"]):
        body.expose(pin)
    engine = Engine(executor_name)
    loop = engine.add(For("loop", body, {"x": "result"}))
    for pin, value in (("count", 2), ("x", 3.0), ("factor", factor)):
        engine.set(loop[pin], value)
    assert engine.step().ok, engine.frame.problems
    found = engine.read(loop)
    assert (found.dtype, float(found)) == (element, 12.0)
    engine.set(loop["x"], 5.0)
    engine.step()
    assert float(engine.read(loop)) == 20.0


def test_an_invalid_branch_is_the_only_problem_and_readers_are_not_reported(executor_name):
    """For mismatched result types of the other branch, and for readers that were valid before."""
    then, otherwise = doubling(), doubling()
    engine = Engine(executor_name)
    either = engine.add(IfElse("either", then, otherwise))
    double = engine.add(block(lambda x: x * 2.0, name="again"))
    total = engine.add(block(lambda x, y: x + y, name="total"))
    engine.connect(either, double["x"])
    engine.connect(double, total["x"])
    for pin, value in ((either["condition"], True), (either["x"], X), (total["y"], X)):
        engine.set(pin, value)
    assert engine.step().ok, engine.frame.problems

    inner = otherwise.graph.blocks["double"]
    lg.live.edit(engine, inner, lambda x: x * np.ones(7))
    engine.set(total["y"], np.ones(2))
    state = engine.add(lg.State("state", np.zeros(5)))
    engine.connect(either, state["next"])
    (wrong,) = engine.step().problems
    assert wrong.block is inner

    lg.live.edit(engine, inner, lambda x: x * 3.0)
    assert {(problem.block, problem.pin) for problem in engine.step().problems} >= {(state, "next")}
    assert {problem.block for problem in engine.frame.problems} == {state, total}


def reading_time(name: str) -> Composite:
    """x → x times the feature `animation_time`."""
    x = parameter(0, Tensor(f32, (3,)))
    function = Function("timed", (x,), (x * broadcast_to(context("animation_time"), (3,)),))
    body = Composite(name)
    inner = body.graph.add(block(function, inputs=("x",), name="timed"))
    for pin in (inner["x"], inner["result"]):
        body.expose(pin)
    return body


def plain_body(name: str) -> Composite:
    body = Composite(name)
    inner = body.graph.add(block(lambda x: x + 1.0, name="plain"))
    for pin in (inner["x"], inner["result"]):
        body.expose(pin)
    return body


def test_a_feature_without_a_value_matters_only_in_the_taken_branch(executor_name):
    engine = Engine(executor_name)
    region = engine.add(IfElse("region", plain_body("then"), reading_time("other")))
    after = engine.add(block(lambda x: x * 2.0, name="after"))
    engine.connect(region["result"], after["x"])
    engine.set(region["x"], X.astype(np.float32))
    engine.set(region["condition"], True)
    assert not engine.step().failed
    np.testing.assert_array_equal(engine.read(after), (X + 1) * 2)
    engine.set(region["condition"], False)
    assert engine.step().failed == {"region", "after"}
    with pytest.raises(lg.LivegradError, match="reads the feature `animation_time`"):
        engine.read(after)
    engine.set_feature("animation_time", 3.0)
    assert not engine.step().failed
    np.testing.assert_array_equal(engine.read(after), X * 6)
    engine.set_feature("animation_time", 4.0)
    engine.step()
    np.testing.assert_array_equal(engine.read(after), X * 8)


def test_a_feature_without_a_value_ends_a_loop_in_its_first_iteration(executor_name):
    body = reading_time("body")
    more = body.graph.add(block(lambda x: lg.sum(x) < 100.0, name="more"))
    body.graph.connect(body.graph.blocks["timed"], more["x"])
    body.expose(more["result"], "condition")
    engine = Engine(executor_name)
    loop = engine.add(While("loop", body, {"x": "result"}))
    engine.set(loop["x"], X.astype(np.float32))
    engine.set(loop["condition"], True)
    assert engine.step().failed == {"loop"}
    engine.set(loop["condition"], False)
    assert not engine.step().failed
    np.testing.assert_array_equal(engine.read(loop["result"]), X)
    engine.set_feature("animation_time", 10.0)
    engine.set(loop["condition"], True)
    engine.step()
    np.testing.assert_array_equal(engine.read(loop["result"]), X * 100)


def test_an_edit_to_a_function_that_may_fail_reports_failures(executor_name):
    engine = Engine(executor_name)
    divide = engine.add(block(lambda x, y: x + y, name="divide"))
    engine.set(divide["x"], np.array([6, 8]))
    engine.set(divide["y"], np.array([2, 0]))
    engine.step()
    lg.live.edit(engine, divide, lambda x, y: x // y)
    assert engine.step().failed == {"divide"}
    with pytest.raises(lg.LivegradError, match="division by zero"):
        engine.read(divide)
    lg.live.edit(engine, divide, lambda x, y: x - y)
    assert not engine.step().failed
    np.testing.assert_array_equal(engine.read(divide), [4, 8])


def scaled(factor: float) -> Composite:
    body = Composite("body")
    scale = body.graph.add(block(lambda x: x * factor, name="scale"))
    body.expose(scale["x"])
    body.expose(scale["result"])
    return body


@pytest.mark.parametrize("condition", [0.0, -0.0, 0, False, float("nan"), float("inf"), -1e-30, 2, True])
@pytest.mark.parametrize("computed", [False, True])
def test_conditions_have_pythons_truth_values(executor_name, condition, computed):
    """NaN is true, because it is not zero."""
    engine = Engine(executor_name)
    maybe = engine.add(If("maybe", scaled(2.0)))
    either = engine.add(IfElse("either", scaled(2.0), scaled(3.0)))
    same = engine.add(block(lambda x: x, name="same"))
    engine.set(same["x"], condition)
    for region in (maybe, either):
        engine.set(region["x"], X)
        if computed:
            engine.connect(same, region["condition"])
        else:
            engine.set(region["condition"], condition)
    engine.step()
    np.testing.assert_array_equal(engine.read(maybe), X * 2.0 * bool(condition))
    np.testing.assert_array_equal(engine.read(either), X * (2.0 if condition else 3.0))


def nested(depth: int, kind: str) -> Composite:
    """`depth` nested regions around x → x + 1."""
    inner = plain_body("innermost")
    for _ in range(depth):
        region = For("region", inner, {"x": "result"}) if kind == "for" else If("region", inner)
        inner = Composite("around")
        inner.graph.add(region)
        inner.graph.set(region["count" if kind == "for" else "condition"], 1)
        for pin in (region["x"], region["result"]):
            inner.expose(pin)
    return inner


@pytest.mark.parametrize("kind", ["for", "if"])
def test_regions_nest_at_most_sixty_four_deep(executor_name, kind):
    engine = Engine(executor_name)
    fine = engine.add(nested(64, kind))
    engine.set(fine["x"], X)
    assert engine.step().ok, engine.frame.problems
    np.testing.assert_array_equal(engine.read(fine["result"]), X + 1)
    engine.remove(fine)
    for depth in (65, 400):
        deep = engine.add(nested(depth, kind))
        engine.set(deep["x"], X)
        (problem,) = engine.step().problems
        assert "regions are nested too deeply: expected at most 64" in str(problem)
        assert problem.node.count("/") == 65
        engine.remove(deep)
    assert engine.step().ok


def test_nested_loops_create_only_the_calls_that_they_use():
    engine = Engine()
    loops = engine.add(nested(12, "for"))
    engine.set(loops["x"], X)
    engine.step()
    running: Any = engine._runtime.executable
    innermost = [owner for places in running.call_factory._number_uses.values() for owner in places.values()]
    assert sum(map(len, innermost)) == 12  # one count for each loop: unused iterations create no calls


def test_a_waiting_region_can_read_its_own_results(executor_name):
    """A block of the body reads a block whose result is a result of the region. A branch requests the region late."""
    engine = Engine(executor_name)
    body = Composite("body")
    first = body.graph.add(block(lambda x: x + 1.0, name="first"))
    second = body.graph.add(block(lambda x: x * 2.0, name="second"))
    body.graph.connect(first, second["x"])
    body.expose(first["x"])
    body.expose(first["result"], "first")
    body.expose(second["result"], "second")
    inner = engine.add(If("inner", body))
    engine.set(inner["condition"], True)
    engine.set(inner["x"], 3.0)
    around = Composite("around")
    more = around.graph.add(block(lambda x: x + 1.0, name="more"))
    around.expose(more["x"])
    around.expose(more["result"])
    outer = engine.add(If("outer", around))
    engine.connect(inner["second"], outer["x"])
    for frame, taken in enumerate((False, True, False, True, True)):
        engine.set(outer["condition"], taken)
        engine.set(inner["x"], float(frame))
        assert engine.step().ok
        assert float(engine.read(outer["result"])) == (2.0 * (frame + 1) + 1 if taken else 0.0)


def test_reading_a_region_of_a_shared_composite_uses_the_instance_outside_of_regions():
    composite = lg.Composite("composite")
    body = lg.Composite("body")
    body.expose(body.graph.add(lg.block(lambda x=3.0: x * 2.0, name="double"))["result"])
    inner = composite.graph.add(lg.If("inner", body))
    composite.graph.set(inner["condition"], True)
    other = composite.graph.add(lg.block(lambda x=1.0: x + 1.0, name="other"))
    composite.expose(other["result"])
    engine = lg.Engine()
    engine.add(composite)
    outer = engine.add(lg.If("outer", composite))
    engine.set(outer["condition"], False)
    assert engine.step().ok
    assert float(engine.read(inner)) == 6.0


def side_by_side() -> Composite:
    """A body with independent regions, which contain further regions."""
    body = Composite("body")
    first = body.graph.add(If("first", one_block("one", lambda x: x * 2.0 + 1.0)))
    inner = one_block("two", lambda x: x + 3.0)
    inner_loop = Composite("inner")
    nested = inner_loop.graph.add(If("nested", inner))
    inner_loop.expose(nested["x"]), inner_loop.expose(nested["condition"]), inner_loop.expose(nested["result"])
    second = body.graph.add(For("second", inner_loop, {"x": "result"}))
    third = body.graph.add(IfElse("third", one_block("three", lambda x: x * 5.0), one_block("four", lambda x: -x)))
    last = body.graph.add(block(lambda a, b, c: (a + b + c) % 101.0, name="last"))
    for region, pin in ((first, "a"), (second, "b"), (third, "c")):
        body.expose(region["x"], "x")
        body.expose(region["condition"], f"take_{region.name}")
        body.graph.connect(region["result"], last[pin])
    body.expose(second["count"], "times")
    body.expose(last["result"], "next")
    return body


def one_block(name: str, function: Any) -> Composite:
    made = Composite(name)
    inner = made.graph.add(block(function, name=f"{name}_block"))
    made.expose(inner["x"]), made.expose(inner["result"])
    return made


def test_parallel_regions_in_a_loop_terminate(executor_name):
    check_side_by_side(Engine(executor_name))


@pytest.mark.skipif(COMPILER is None, reason="no C++ compiler to run kernels with")
def test_parallel_regions_in_a_loop_are_serialised_on_a_device():
    with simulated(), closing(Engine("cuda")) as engine:  # this driver rejects graphs that are not serialised
        check_side_by_side(engine)


def check_side_by_side(engine: Engine) -> None:
    loop = engine.add(For("loop", side_by_side(), {"x": "next"}))
    engine.set(loop["x"], X)
    random = np.random.default_rng(0)
    for _ in range(20):
        count, times = (int(one) for one in random.integers(0, 5, 2))
        takes = [bool(one) for one in random.integers(0, 2, 3)]
        engine.set(loop["count"], count), engine.set(loop["times"], times)
        for name, take in zip(("first", "second", "third"), takes, strict=True):
            engine.set(loop[f"take_{name}"], take)
        assert engine.step().ok, engine.frame.problems
        wanted = X
        for _ in range(count):
            a = wanted * 2.0 + 1.0 if takes[0] else np.zeros(3)
            b = wanted + 3.0 * times if takes[1] else wanted * (times == 0)
            c = wanted * 5.0 if takes[2] else -wanted
            wanted = (a + b + c) % 101.0
        np.testing.assert_array_equal(engine.read(loop["next"]), wanted)
