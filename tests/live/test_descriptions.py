"""The running plan matches the description: unconnected, removed, misnamed and shared parts work or are problems."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import livegrad as lg
from tests.long_forms import LONG


def body_of(function: Any, name: str = "b", outputs: Any = ("result",)) -> tuple[lg.Composite, lg.Block]:
    """A composite that exposes all pins of one block."""
    composite = lg.Composite("body")
    inner = composite.graph.add(lg.block(function, name=name, outputs=outputs))
    for pin in (*inner.inputs.values(), *inner.outputs.values()):
        composite.expose(pin)
    return composite, inner


def problems_of(engine: lg.Engine) -> list[str]:
    """The pins of the problems of a frame, which must not raise, and must report the problems again the next time."""
    first = [f"{one.node}{'' if one.pin is None else '.' + one.pin}" for one in engine.step().problems]
    again = [f"{one.node}{'' if one.pin is None else '.' + one.pin}" for one in engine.step().problems]
    assert first == again
    return first


def number(engine: lg.Engine, pin: Any) -> float:
    return float(engine.read(pin))


# --- unconnected inputs ---


@pytest.mark.parametrize("region", [lg.If, lambda name, body: lg.For(name, body, {})])
def test_an_unconnected_input_inside_a_region_is_one_problem_at_that_pin(executor_name: str, region: Any) -> None:
    engine = lg.Engine(executor_name)
    own = engine.add(region("r", body_of(lambda x: x + 1.0)[0]))
    engine.set(own[own.control_name], 1)
    assert problems_of(engine) == ["r/b.x"]
    engine.set(own["x"], 2.0)
    assert engine.step().ok
    assert number(engine, own) == 3.0


def test_an_unconnected_input_inside_nested_regions_is_one_problem_at_that_pin(executor_name: str) -> None:
    engine = lg.Engine(executor_name)
    outer = lg.Composite("outer")
    inner = outer.graph.add(lg.If("inner", body_of(lambda x: x + 1.0)[0]))
    for pin in (*inner.inputs.values(), *inner.outputs.values()):
        outer.expose(pin, "go" if pin.name == "condition" else pin.name)
    region = engine.add(lg.If("r", outer))
    after = engine.add(lg.block(lambda x: x * 2.0, name="after"))
    engine.connect(region, after["x"])
    engine.set(region["condition"], True)
    engine.set(region["go"], True)
    assert problems_of(engine) == ["r/inner/b.x"]
    engine.set(region["x"], 2.0)
    assert engine.step().ok
    assert number(engine, after) == 6.0


# --- values that are set and removed ---


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize(("default", "other"), [(1.0, 5.0), (1, 5), (True, False)])
@pytest.mark.parametrize("how", ["disconnect", "remove and add"])
def test_a_disconnected_pin_takes_its_default(
    executor_name: str, default: Any, other: Any, how: str, inside: bool
) -> None:
    engine = lg.Engine(executor_name)
    own = lg.block(lambda x=default: x * 2, name="own")
    graph = engine.add(lg.Composite("c")).graph if inside else engine.graph
    graph.add(own)
    engine.step()
    for _ in range(2):
        graph.set(own["x"], other)
        engine.step()
        assert number(engine, own) == other * 2
        if how == "disconnect":
            graph.disconnect(own["x"])
        else:
            graph.remove(own)
            graph.add(own)
        assert engine.step().ok
        assert number(engine, own) == default * 2


def test_the_initial_value_of_a_carried_input_may_change_between_array_number_and_binding(executor_name: str) -> None:
    engine = lg.Engine(executor_name)
    loop = engine.add(lg.For("r", body_of(lambda x: x * 2.0)[0], carried={"x": "result"}))
    engine.set(loop["count"], 3)
    memory = np.array([1.0, 2.0])
    starts: list[Any] = [np.array([1.0, 2.0]), 3.0, memory, np.array([4.0]), memory, 5.0, np.ones(2)]
    for start in (*starts, *reversed(starts)):
        if start is memory:
            engine.bind(loop["x"], memory)
        else:
            engine.set(loop["x"], start)
        frame = engine.step()
        assert frame.ok, frame.problems
        np.testing.assert_array_equal(engine.read(loop), np.asarray(start) * 8)


# --- removed blocks and pins ---


def test_removing_a_block_with_an_exposed_output_is_a_problem_of_the_reader(executor_name: str) -> None:
    engine = lg.Engine(executor_name)
    composite, inner = body_of(lambda x=1.0: x * 2.0)
    engine.add(composite)
    after = engine.add(lg.block(lambda x: x + 1.0, name="after"))
    engine.connect(composite["result"], after["x"])
    assert engine.step().ok
    composite.graph.remove(inner)
    assert problems_of(engine) == ["after.x"]
    with pytest.raises(lg.LivegradError):
        engine.read(composite)
    composite.graph.add(inner)
    assert engine.step().ok
    assert number(engine, after) == 3.0


def test_a_removed_output_is_a_problem_until_an_edit_restores_it(executor_name: str) -> None:
    engine = lg.Engine(executor_name)
    composite, inner = body_of(lambda x=1.0: (x, x * 2.0), outputs=("one", "two"))
    engine.add(composite)
    after = engine.add(lg.block(lambda x: x + 1.0, name="after"))
    engine.connect(composite["two"], after["x"])
    assert engine.step().ok
    engine.edit(inner, lg.block(lambda x=1.0: x, name="b", outputs=("one",)).body)
    assert problems_of(engine) == ["after.x"]
    engine.edit(inner, lg.block(lambda x=1.0: (x, x * 3.0), name="b", outputs=("one", "two")).body)
    assert engine.step().ok
    assert number(engine, after) == 4.0


def test_a_region_whose_body_lost_an_output_is_a_problem(executor_name: str) -> None:
    engine = lg.Engine(executor_name)
    composite, inner = body_of(lambda x: x * 2.0)
    region = engine.add(lg.If("r", composite))
    engine.set(region["condition"], 1)
    engine.set(region["x"], 2.0)
    assert engine.step().ok
    composite.graph.remove(inner)
    assert problems_of(engine) == ["r.result"]
    composite.graph.add(inner)
    assert engine.step().ok
    assert number(engine, region) == 4.0


def test_a_pin_of_another_graph_cannot_be_exposed() -> None:
    engine = lg.Engine()
    stranger = engine.add(lg.block(lambda x: x, name="stranger"))
    with pytest.raises(lg.UsageError, match="is not in the graph of"):
        lg.Composite("c").expose(stranger["x"])


def test_a_body_can_expose_pins_after_its_region_was_created(executor_name: str) -> None:
    engine = lg.Engine(executor_name)
    composite = lg.Composite("body")
    inner = composite.graph.add(lg.block(lambda x, y=1.0: (x + y, x - y), name="b", outputs=("sum", "gap")))
    composite.expose(inner["x"]), composite.expose(inner["sum"])
    region = engine.add(lg.If("r", composite))
    engine.set(region["condition"], 1)
    engine.set(region["x"], 5.0)
    assert engine.step().ok
    held = region["sum"]
    composite.expose(inner["y"]), composite.expose(inner["gap"])
    assert region["sum"] is held
    engine.set(region["y"], 2.0)
    assert engine.step().ok
    assert (number(engine, region["sum"]), number(engine, region["gap"])) == (7.0, 3.0)


def test_bodies_that_expose_different_outputs_later_are_a_problem_until_they_agree(executor_name: str) -> None:
    engine = lg.Engine(executor_name)
    bodies, blocks = zip(*(body_of(lambda x, by=by: (x * by, x), outputs=("a", "b")) for by in (2.0, 3.0)), strict=True)
    for one in bodies:
        one.inner_outputs.pop("b"), one._update_pins()
    region = engine.add(lg.IfElse("r", *bodies))
    engine.set(region["condition"], 1)
    engine.set(region["x"], 2.0)
    assert engine.step().ok
    bodies[0].expose(blocks[0]["b"])
    assert problems_of(engine) == ["r"]
    bodies[1].expose(blocks[1]["b"])
    assert engine.step().ok
    assert (number(engine, region["a"]), number(engine, region["b"])) == (4.0, 2.0)


def test_a_name_that_a_region_uses_is_rejected_without_effect() -> None:
    composite, _ = body_of(lambda x, y=1.0: x + y)
    region = lg.If("r", composite)
    more = composite.graph.add(lg.block(lambda condition: condition, name="more"))
    with pytest.raises(lg.UsageError, match="distinct names"):
        composite.expose(more["condition"])
    assert "condition" not in composite.inputs
    assert list(region.inputs) == ["condition", "x", "y"]


def test_regions_do_not_expose_pins() -> None:
    composite, inner = body_of(lambda x: x)
    region = lg.If("r", composite)
    with pytest.raises(lg.UsageError, match="region"):
        region.expose(inner["x"])
    with pytest.raises(lg.UsageError, match="composites"):
        lg.If("q", region)
    with pytest.raises(lg.UsageError, match="cannot carry"):
        lg.For("f", body_of(lambda index: index + 1)[0], {"index": "result"})


def test_an_input_can_be_exposed_only_once() -> None:
    composite, inner = body_of(lambda x: x)
    for name in (None, "x", "y"):
        with pytest.raises(lg.UsageError, match="already"):
            composite.expose(inner["x"], name)


def test_a_removed_output_cannot_be_connected() -> None:
    engine = lg.Engine()
    two = engine.add(lg.block(lambda x=1.0: (x, x), name="two", outputs=("a", "b")))
    after = engine.add(lg.block(lambda x: x, name="after"))
    lost = two["b"]
    engine.edit(two, lg.block(lambda x=1.0: x, name="two", outputs=("a",)).body)
    with pytest.raises(lg.UsageError, match="no longer has"):
        engine.connect(lost, after["x"])


# --- names ---


@pytest.mark.parametrize("reuse_memory", [False, True])
@pytest.mark.parametrize("how", ["number", "array", "bind", "edge"])
def test_a_while_loop_has_a_pin_and_a_result_named_condition(executor_name: str, reuse_memory: bool, how: str) -> None:
    engine = lg.Engine(executor_name, reuse_memory=reuse_memory)
    outputs = ("half", "condition")
    loop = engine.add(lg.While("w", body_of(lambda x: (x * 0.5, x > 2.0), outputs=outputs)[0], carried={"x": "half"}))
    after = engine.add(lg.block(lambda x: x + 1.0, name="after"))
    engine.connect(loop, after["x"])
    engine.set(loop["x"], 16.0)
    if how == "number":
        engine.set(loop["condition"], True)
    elif how == "array":
        engine.set(loop["condition"], np.array(True))
    elif how == "bind":
        engine.bind(loop["condition"], np.array(True))
    else:
        engine.connect(engine.add(lg.block(lambda x=1.0: x > 0.0, name="go")), loop["condition"])
    for _ in range(2):
        assert engine.step().ok
        assert number(engine, after) == 2.0
        engine.set(loop["x"], 32.0)


def test_a_loop_condition_that_is_an_array_is_a_problem(executor_name: str) -> None:
    engine = lg.Engine(executor_name)
    outputs = ("left", "condition")
    loop = engine.add(lg.While("w", body_of(lambda n: (n - 1, n > 1), outputs=outputs)[0], carried={"n": "left"}))
    engine.set(loop["condition"], True)
    engine.set(loop["n"], np.array([1.0, 3.0, 5.0]))
    assert problems_of(engine) == ["w"]


def test_blocks_whose_names_look_like_paths_do_not_collide(executor_name: str) -> None:
    engine = lg.Engine(executor_name)
    composite = engine.add(lg.Composite("c"))
    inner = composite.graph.add(lg.block(lambda x=1.0: x, name="p"))
    blocks = [inner, *(engine.add(lg.block(lambda x=1.0: x, name=name)) for name in ("c/p", "c%2Fp", "c/p.x", "p#x"))]
    dotted = engine.add(lg.block(lambda x=1.0: (x, x), name="a", outputs=("b.c", "b!0")))
    blocks += [engine.add(lg.block(lambda x=1.0: x, name="a.b", outputs=("c",)))]
    for value, own in enumerate((*blocks, dotted)):
        assert own.home is not None
        own.home.set(own["x"], float(value))
    assert engine.step().ok
    for value, own in enumerate(blocks):
        assert number(engine, own) == value
    assert (number(engine, dotted["b.c"]), number(engine, dotted["b!0"])) == (len(blocks), len(blocks))


def test_names_must_be_strings() -> None:
    for make in (lambda name: lg.block(lambda x: x, name=name), lambda name: lg.State(name, 0.0), lg.Composite):
        for name in (5, 0, "", b"x"):
            with pytest.raises(lg.UsageError):
                make(name)  # type: ignore[arg-type]


# --- one composite with several uses ---


def test_a_number_inside_a_composite_reaches_every_use(executor_name: str) -> None:
    engine = lg.Engine(executor_name)
    composite = lg.Composite("body")
    inner = composite.graph.add(lg.block(lambda x, gain=2.0: x * gain, name="b"))
    composite.expose(inner["x"]), composite.expose(inner["result"])
    regions = [engine.add(lg.If("r", composite)), engine.add(lg.IfElse("q", composite, composite))]
    engine.add(composite)
    outputs = [*regions, composite]
    for region in regions:
        engine.set(region["condition"], 1)
    for value, own in enumerate(outputs):
        engine.set(own["x"], float(value + 1))
    assert engine.step().ok
    for gain in (3.0, 4.0, 5.0, 7):
        composite.graph.set(inner["gain"], gain)
        assert engine.step().ok
        assert [number(engine, own) for own in outputs] == [gain, 2 * gain, 3 * gain]
    composite.graph.disconnect(inner["gain"])
    engine.edit(inner, lg.block(lambda x, gain=2.0: x + gain, name="b").body)
    engine.set(regions[1]["condition"], 0)
    assert engine.step().ok
    assert [number(engine, own) for own in outputs] == [3.0, 4.0, 5.0]
    assert number(engine, inner) == 5.0  # the use outside of regions
    engine.remove(composite)
    engine.step()
    with pytest.raises(lg.UsageError, match="several instances"):
        engine.read(inner)
    engine.add(composite), engine.set(composite["x"], 3.0)
    engine.remove(regions[0]), engine.remove(regions[1])
    composite.graph.set(inner["gain"], 10.0)
    assert engine.step().ok
    assert number(engine, inner) == 13.0


def test_a_number_reaches_running_uses_while_another_use_is_invalid(executor_name: str) -> None:
    engine = lg.Engine(executor_name)
    composite = lg.Composite("body")
    inner = composite.graph.add(lg.block(lambda x, gain=2.0: x * gain, name="b"))
    composite.expose(inner["x"]), composite.expose(inner["result"])
    engine.add(composite)
    engine.set(composite["x"], 1.0)
    engine.step()
    region = engine.add(lg.If("r", composite))
    engine.set(region["x"], 5.0)
    composite.graph.set(inner["gain"], 7.0)
    assert problems_of(engine) == ["r.condition"]
    assert float(engine.read(composite, running=True)) == 7.0
    engine.set(region["condition"], 1)
    assert engine.step().ok
    assert (number(engine, composite), number(engine, region)) == (7.0, 35.0)


def test_a_state_inside_a_composite_has_one_instance_per_use(executor_name: str) -> None:
    engine = lg.Engine(executor_name)
    outer = [engine.add(lg.Composite(name)) for name in "ab"]
    shared = lg.Composite("shared")
    held = shared.graph.add(lg.State("held", 0.0))
    more = shared.graph.add(lg.block(lambda n, by: n + by, name="more"))
    shared.graph.connect(held, more["n"])
    shared.graph.connect(more, held["next"])
    shared.expose(more["by"]), shared.expose(more["result"])
    inside = lg.Composite("inside")
    inside.graph.add(shared)
    inside.expose(shared["by"]), inside.expose(shared["result"])
    outer[0].graph.add(inside)
    with pytest.raises(lg.UsageError, match="already in a graph"):
        outer[1].graph.add(inside)
    outer[0].expose(inside["by"]), outer[0].expose(inside["result"])
    engine.set(outer[0]["by"], 2.0)
    for frame in range(1, 4):
        assert engine.step().ok
        assert number(engine, outer[0]["result"]) == 2.0 * frame
    engine.reset(held)
    engine.step()
    assert number(engine, outer[0]["result"]) == 2.0


def test_a_composite_cannot_contain_itself_or_be_in_two_engines() -> None:
    outer, inner = lg.Composite("outer"), lg.Composite("inner")
    outer.graph.add(inner)
    with pytest.raises(lg.UsageError, match="cannot contain itself"):
        inner.graph.add(outer)
    with pytest.raises(lg.UsageError, match="cannot contain itself"):
        inner.graph.add(lg.If("r", outer))
    shared, _ = body_of(lambda x: x)
    lg.Engine().add(lg.If("r", shared))
    with pytest.raises(lg.UsageError, match="another engine"):
        lg.Engine().add(lg.If("r", shared))


def test_an_engine_accepts_a_composite_that_was_removed_from_another(executor_name: str) -> None:
    first, second = lg.Engine(executor_name), lg.Engine(executor_name)
    composite, inner = body_of(lambda x=1.0: x * 2.0)
    first.add(composite)
    first.step()
    first.remove(composite)
    second.add(composite)
    composite.graph.set(inner["x"], 4.0)
    assert second.step().ok
    assert number(second, composite) == 8.0
    assert first.step().ok


@pytest.mark.parametrize("depth", [400, 1200] if LONG else [600])
def test_composites_nest_to_any_depth(depth: int) -> None:
    engine = lg.Engine()
    inner: lg.Block = lg.block(lambda x: x + 1.0, name="b")
    for _ in range(depth):
        outer = lg.Composite("c")
        outer.graph.add(inner)
        outer.expose(inner["x"]), outer.expose(inner["result"])
        inner = outer
    engine.add(inner)
    engine.set(inner["x"], 2.0)
    assert engine.step().ok
    assert number(engine, inner) == 3.0


def test_a_valid_edit_waits_for_invalid_edits_of_the_same_frame(executor_name: str) -> None:
    engine = lg.Engine(executor_name)
    own = lg.block(lambda y: y + 1, name="own")
    engine.add(own)
    engine.set(own["y"], 1)
    engine.step()
    engine.remove(own), engine.add(own)
    engine.set(own["y"], 3.0), engine.set(own["y"], 5.0)
    unfed = engine.add(lg.block(lambda x: x, name="unfed"))
    assert problems_of(engine) == ["unfed.x"]
    engine.remove(unfed)
    assert engine.step().ok
    assert number(engine, own) == 6.0


def test_a_number_for_a_pending_block_does_not_reach_its_running_namesake(executor_name: str) -> None:
    engine = lg.Engine(executor_name)
    old = engine.add(lg.block(lambda x=1.0: x * 2.0, name="own"))
    after = engine.add(lg.block(lambda x: x, name="after"))
    engine.connect(old, after["x"])
    engine.step()
    engine.remove(old)
    fresh = engine.add(lg.block(lambda x=1.0: x * 100.0, name="own"))
    engine.set(fresh["x"], 5.0)
    engine.set(fresh["x"], 6.0)
    assert problems_of(engine) == ["after.x"]
    assert float(engine.read(after, running=True)) == 2.0
    engine.connect(fresh, after["x"])
    assert engine.step().ok
    assert number(engine, after) == 600.0


def test_a_state_that_takes_the_name_of_another_starts_with_its_own_value(executor_name: str) -> None:
    engine = lg.Engine(executor_name)
    more = engine.add(lg.block(lambda n: n + 1.0, name="more"))
    held: lg.State | None = None
    for initial in (0.0, 10.0, 20.0):
        if held is not None:
            engine.remove(held)
        held = engine.add(lg.State("held", initial))
        engine.connect(held, more["n"])
        engine.connect(more, held["next"])
        for frame in range(1, 3):
            assert engine.step().ok
            assert number(engine, more) == number(engine, held) == initial + frame


def test_resetting_a_pending_state_does_not_affect_its_running_namesake(executor_name: str) -> None:
    engine = lg.Engine(executor_name)
    more = engine.add(lg.block(lambda n: n + 1.0, name="more"))
    held = engine.add(lg.State("held", 0.0))
    engine.connect(held, more["n"])
    engine.connect(more, held["next"])
    engine.step()
    engine.remove(held)
    fresh = engine.add(lg.State("held", np.zeros(2)))
    engine.reset(fresh)
    assert problems_of(engine) == ["more.n", "held.next"]
    assert float(engine.read(more, running=True)) == 3.0


def test_all_problems_of_several_edits_are_reported_at_once(executor_name: str) -> None:
    engine = lg.Engine(executor_name)
    one = engine.add(lg.block(lambda x=True: x ^ True, name="one"))
    two = engine.add(lg.block(lambda x=True: x & True, name="two"))
    engine.step()
    engine.set(one["x"], 1.5), engine.set(two["x"], 2.5)
    assert {where.split(".")[0] for where in problems_of(engine)} == {"one", "two"}


def _around(inner: lg.Block, depth: int, in_region: bool) -> lg.Block:
    """A block inside nested composites, the outermost of which is the body of a region."""
    for number in range(depth):
        composite = lg.Composite(f"around{number}")
        composite.graph.add(inner)
        for pin in (*inner.inputs.values(), *inner.outputs.values()):
            composite.expose(pin)
        inner = composite
    return lg.If("gate", inner) if in_region and isinstance(inner, lg.Composite) else inner


@pytest.mark.parametrize(("depth", "in_region"), [(0, False), (1, False), (2, False), (1, True), (2, True)])
def test_an_integer_becomes_a_float_if_the_inner_pins_hold_floats(depth: int, in_region: bool) -> None:
    engine = lg.Engine()
    outer = engine.add(_around(lg.block(lambda k=1.0: k, name="inner"), depth, in_region))
    state = engine.add(lg.State("state", 0.0))
    engine.connect(outer["result"], state["next"])
    if in_region:
        engine.set(outer["condition"], True)
    engine.step()
    engine.set(outer["k"], 2)
    assert engine.step().ok
    assert (engine.read(outer).dtype, engine.read(state)) == (np.float32, 2.0)
    engine.set(outer["k"], np.arange(3))
    engine.step()
    engine.set(outer["k"], 3)  # also after an array
    assert engine.step().ok
    assert engine.read(outer).dtype == np.float32


def test_an_integer_stays_an_integer_if_an_inner_pin_holds_one() -> None:
    engine = lg.Engine()
    both = lg.Composite("both")
    for name, function in (("whole", lambda k=1: k), ("real", lambda k=1.0: k)):
        inner = both.graph.add(lg.block(function, name=name))
        both.expose(inner["k"]), both.expose(inner["result"], name)
    engine.add(both)
    engine.set(both["k"], 2)
    engine.step()
    assert engine.read(both["whole"]).dtype == np.int64


@pytest.mark.parametrize(("depth", "in_region"), [(0, False), (2, False), (2, True)])
def test_an_integer_corrects_a_float_that_an_inner_block_rejected(depth: int, in_region: bool) -> None:
    engine = lg.Engine()
    outer = engine.add(_around(lg.block(lambda k=1: lg.arange(4)[k], name="inner"), depth, in_region))
    if in_region:
        engine.set(outer["condition"], True)
    engine.set(outer["k"], 2.0)
    assert not engine.step().ok
    engine.set(outer["k"], 3)
    assert engine.step().ok
    assert engine.read(outer) == 3
