"""Gradients of live graphs, compared with central differences in float64 and with derivatives of composed functions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import livegrad as lg
from livegrad.ir.dimension import Dimension
from livegrad.ir.function import trace
from livegrad.ir.types import Tensor, f64
from livegrad.live.blocks import append_block, block, captured_block, compose, edit
from livegrad.live.compile.network import Network
from livegrad.live.compile.topological_sort import sort_nodes
from livegrad.live.engine import Engine
from livegrad.live.graph.append_buffer import AppendBuffer
from livegrad.live.graph.block import Pin, State
from livegrad.live.graph.composite import Composite
from livegrad.live.graph.regions import For, If, IfElse, Switch, While
from livegrad.live.update.diff_plans import Level

START = np.array([0.3, -0.7, 1.1, 0.4])


def check_by_differences(engine: Engine, loss: Any, pin: Pin, at: np.ndarray, found: np.ndarray) -> None:
    """Compares a gradient with central differences of the output, by changing a pin slightly."""
    width = 1e-5
    expected = np.empty_like(at)
    for index in np.ndindex(at.shape):
        values = []
        for sign in (1, -1):
            moved = at.copy()
            moved[index] += sign * width
            engine.set(pin, moved if at.shape else float(moved))
            engine.step()
            values.append(float(engine.read(loss)))
        expected[index] = (values[0] - values[1]) / (2 * width)
    engine.set(pin, at if at.shape else float(at))
    engine.step()
    np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-9)


def diamond(executor_name: str = "cpu"):
    """x → bend → (grow, shrink) → loss: two paths that join, with a parameter on the first block."""
    engine = Engine(executor_name)
    bend = engine.add(block(lambda x, gain=1.5: lg.sin(x * gain), name="bend"))
    grow = engine.add(block(lambda x: lg.exp(x), name="grow"))
    shrink = engine.add(block(lambda x: x / (1.0 + x * x), name="shrink"))
    loss = engine.add(block(lambda a, b: lg.sum(a * b), name="loss"))
    engine.set(bend["x"], START)
    engine.connect(bend, grow["x"])
    engine.connect(bend, shrink["x"])
    engine.connect(grow, loss["a"])
    engine.connect(shrink, loss["b"])
    return engine, bend, grow, shrink, loss


def composed(x, gain):
    bent = lg.sin(x * gain)
    return lg.sum(lg.exp(bent) * (bent / (1.0 + bent * bent)))


def test_a_gradient_is_a_block_with_an_output_for_each_pin(executor_name):
    engine, bend, *_, loss = diamond(executor_name)
    slope = engine.add(lg.grad(of=loss, by=[bend["x"], bend["gain"]]))
    after = engine.add(block(lambda x, slope, rate=0.1: x - rate * slope, name="after"))
    engine.set(after["x"], START)
    engine.connect(slope["x"], after["slope"])
    frame = engine.step()
    assert frame.ok, frame.problems
    assert {key for key in frame.ran if key.startswith("gradient")} == {
        "gradient", "gradient/bend", "gradient/grow", "gradient/shrink", "gradient/loss",
    }  # fmt: skip
    by_x, by_gain = lg.grad(composed, argnums=(0, 1))(lg.asarray(START), lg.asarray(1.5, dtype=lg.float64))
    np.testing.assert_allclose(engine.read(slope["x"]), by_x.numpy(), rtol=1e-12)
    np.testing.assert_allclose(engine.read(slope["gain"]), by_gain.numpy(), rtol=1e-12)
    np.testing.assert_allclose(engine.read(after), START - 0.1 * by_x.numpy(), rtol=1e-12)


def test_a_gradient_agrees_with_central_differences():
    engine, bend, *_, loss = diamond()
    slope = engine.add(lg.grad(of=loss, by=[bend["x"], bend["gain"]]))
    engine.step()
    by_x, by_gain = engine.read(slope["x"]), engine.read(slope["gain"])
    check_by_differences(engine, loss, bend["x"], START, by_x)
    check_by_differences(engine, loss, bend["gain"], np.asarray(1.5), by_gain)


def test_a_gradient_follows_numbers_code_and_connections(executor_name):
    engine, bend, grow, shrink, loss = diamond(executor_name)
    slope = engine.add(lg.grad(of=loss, by=[bend["x"]]))
    engine.step()
    engine.set(bend["gain"], 2.0)
    assert engine.step().level is Level.HOT
    expected = lg.grad(composed)(lg.asarray(START), 2.0).numpy()
    np.testing.assert_allclose(engine.read(slope), expected, rtol=1e-12)
    edit(engine, shrink, lambda x: x * x)
    frame = engine.step()
    assert frame.level is Level.CODE
    assert frame.prepared == 2  # the block and its derivative
    bent = np.sin(START * 2.0)
    expected = np.exp(bent) * (bent**2 + 2 * bent) * np.cos(START * 2.0) * 2.0
    np.testing.assert_allclose(engine.read(slope), expected, rtol=1e-12)
    engine.connect(grow, loss["b"])
    assert engine.step().level is Level.COLD
    expected = 2 * np.exp(2 * bent) * np.cos(START * 2.0) * 2.0
    np.testing.assert_allclose(engine.read(slope), expected, rtol=1e-12)
    engine.set(bend["x"], START[:2])
    engine.step()
    np.testing.assert_allclose(engine.read(slope), expected[:2], rtol=1e-12)


def test_gradients_with_respect_to_outputs_states_and_unrelated_pins():
    engine = Engine()
    position = engine.add(State("position", START))
    pull = engine.add(block(lambda x: lg.sum(x**4.0), name="pull"))
    keep = engine.add(block(lambda x: x * 0.5, name="keep"))
    apart = engine.add(block(lambda y=3.0: y * 2.0, name="apart"))
    engine.connect(position, pull["x"])
    engine.connect(position, keep["x"])
    engine.connect(keep, position["next"])
    slope = engine.add(lg.grad(of=pull, by={"force": position["value"], "nothing": apart["y"], "one": pull["result"]}))
    engine.step()
    np.testing.assert_allclose(engine.read(slope["force"]), 4 * START**3, rtol=1e-12)
    assert (float(engine.read(slope["nothing"])), float(engine.read(slope["one"]))) == (0.0, 1.0)
    engine.step()
    np.testing.assert_allclose(engine.read(slope["force"]), 4 * (START / 2) ** 3, rtol=1e-12)


def test_a_seed_pulls_back_any_cotangent():
    engine, bend, grow, *_ = diamond()
    pulled = engine.add(lg.grad(of=grow, by=[bend["x"]], name="pulled"))
    (problem,) = engine.step().problems
    assert problem.block is pulled
    assert "differentiate one real number, or feed `seed`" in str(problem)
    seed = np.array([1.0, 0.0, -2.0, 0.5])
    engine.set(pulled["seed"], seed)
    assert engine.step().ok, engine.frame.problems
    bent = np.sin(1.5 * START)
    np.testing.assert_allclose(engine.read(pulled), seed * np.exp(bent) * np.cos(1.5 * START) * 1.5, rtol=1e-12)


def test_a_gradient_of_a_gradient():
    engine, bend, *_, loss = diamond()
    slope = engine.add(lg.grad(of=loss, by=[bend["x"]], name="slope"))
    length = engine.add(block(lambda g: lg.sum(g * g), name="length"))
    engine.connect(slope, length["g"])
    # Added before the gradient that it differentiates: the order of adding does not matter.
    second = engine.add(lg.grad(of=length, by=[bend["x"]], name="second"))
    assert engine.step().ok, engine.frame.problems
    found = engine.read(second)
    check_by_differences(engine, length, bend["x"], START, found)


def test_a_gradient_of_a_composite_by_names():
    engine = Engine()
    whole = Composite("whole")
    first = whole.graph.add(block(lambda x, k=2.0: x * k, name="first"))
    second = whole.graph.add(block(lambda x, y: lg.sum(lg.tanh(x) * y), name="second"))
    whole.graph.connect(first, second["x"])
    whole.expose(first["x"], "x")
    whole.expose(second["y"], "x")  # one pin, two inputs: their derivatives are summed
    whole.expose(first["k"])
    whole.expose(second["result"], "loss")
    engine.add(whole)
    engine.set(whole["x"], START)
    engine.set(whole["k"], 2.0)
    slope = engine.add(lg.grad(whole, of="loss", by=["x", "k"]))
    assert engine.step().ok, engine.frame.problems
    by_x, by_k = engine.read(slope["x"]), engine.read(slope["k"])
    check_by_differences(engine, whole["loss"], whole["x"], START, by_x)
    check_by_differences(engine, whole["loss"], whole["k"], np.asarray(2.0), by_k)


# --- through regions -------------------------------------------------------------------------------------------------


def body_of(function, **names) -> Composite:
    body = Composite("body")
    inner = body.graph.add(block(function, name="inner", outputs=tuple(names.pop("outputs", ("result",)))))
    for pin in (*inner.inputs.values(), *inner.outputs.values()):
        body.expose(pin)
    return body


def with_loss(region, **settings):
    """A region that reads the result of a block, and a loss of its results."""
    engine = Engine()
    before = engine.add(block(lambda x: x * 1.25, name="before"))
    engine.add(region)
    loss = engine.add(block(lambda y: lg.sum(y * lg.cos(y)), name="loss"))
    engine.set(before["x"], START)
    engine.connect(before, region["x"])
    for name, value in settings.items():
        engine.set(region[name], value)
    engine.connect(region["y"], loss["y"])
    by = {"x": before["x"], **{name: region[name] for name in settings if name == "k"}}
    slope = engine.add(lg.grad(of=loss, by=by))
    assert engine.step().ok, engine.frame.problems
    return engine, before, region, loss, slope


REGIONS = {
    "for": lambda: (For("loop", body_of(lambda x, k, index: lg.sin(x) * k + 0.1 * lg.astype(index, lg.float64),
                                        outputs=("y",)), {"x": "y"}), {"count": 3, "k": 1.3}),
    "if": lambda: (If("gate", body_of(lambda x, k: x * x * k, outputs=("y",))), {"condition": True, "k": 1.3}),
    "if a number": lambda: (If("gate", body_of(lambda x, k: x * k, outputs=("y",))), {"condition": 2, "k": 1.3}),
    "if not a number": lambda: (If("gate", body_of(lambda x, k: x * k, outputs=("y",))), {"condition": 0.0, "k": 1.3}),
    "if not": lambda: (If("gate", body_of(lambda x, k: x * x * k, outputs=("y",))), {"condition": False, "k": 1.3}),
    "if else": lambda: (IfElse("gate", body_of(lambda x, k: x * k, outputs=("y",)),
                               body_of(lambda x, k: x**3.0 * k, outputs=("y",))), {"condition": False, "k": 1.3}),
    "switch": lambda: (Switch("choice", body_of(lambda x, k: x * k, outputs=("y",)),
                              body_of(lambda x, k: lg.exp(x) * k, outputs=("y",))), {"index": 1, "k": 1.3}),
    "switch to none": lambda: (Switch("choice", body_of(lambda x, k: x * k, outputs=("y",))), {"index": 5, "k": 1.3}),
    "while": lambda: (While("loop", body_of(lambda x, k: (x * k, lg.sum(lg.abs(x)) < 20.0),
                                            outputs=("y", "condition")), {"x": "y"}), {"condition": True, "k": 1.7}),
}  # fmt: skip


@pytest.mark.parametrize("kind", REGIONS)
def test_gradients_go_through_regions(kind):
    region, settings = REGIONS[kind]()
    engine, before, region, loss, slope = with_loss(region, **settings)
    by_x, by_k = engine.read(slope["x"]), engine.read(slope["k"])
    assert ("not" in kind or "none" in kind) == (not np.any(by_x))
    check_by_differences(engine, loss, before["x"], START, by_x)
    check_by_differences(engine, loss, region["k"], np.asarray(settings["k"]), by_k)


def test_a_gradient_goes_through_nested_regions():
    body = Composite("body")
    gate = body.graph.add(If("gate", body_of(lambda x, k: lg.sin(x * k), outputs=("y",))))
    test = body.graph.add(block(lambda index: index % 2 == 0, name="test"))
    add = body.graph.add(block(lambda x, y: x + 0.5 * y, name="add"))
    body.graph.connect(test, gate["condition"])
    body.graph.connect(gate["y"], add["y"])
    for pin in (gate["x"], gate["k"], test["index"], add["x"]):
        body.expose(pin)
    body.expose(add["result"], "y")
    engine, before, region, loss, slope = with_loss(For("loop", body, {"x": "y"}), count=4, k=1.3)
    by_x, by_k = engine.read(slope["x"]), engine.read(slope["k"])
    check_by_differences(engine, loss, before["x"], START, by_x)
    check_by_differences(engine, loss, region["k"], np.asarray(1.3), by_k)


UNUSED = {
    "if": lambda: (If("region", body_of(lambda x, k: x * lg.sqrt(k), outputs=("y",))), 0.0),
    "if else": lambda: (IfElse("region", body_of(lambda x, k: x * lg.sqrt(k), outputs=("y",)),
                               body_of(lambda x: x * 2.0, outputs=("y",))), 2.0),
    "switch": lambda: (Switch("region", body_of(lambda x: x * 2.0, outputs=("y",)),
                              body_of(lambda x, k: x * lg.sqrt(k), outputs=("y",))), 2.0),
    "for": lambda: (For("region", body_of(lambda x, k: x * lg.sqrt(k), outputs=("y",)), {"x": "y"}), 1.0),
    "for that carries nothing": lambda: (For("region", body_of(lambda x, k: x * lg.sqrt(k), outputs=("y",)), {}), 0.0),
    "while": lambda: (While("region", body_of(lambda x, k: (x * lg.sqrt(k), lg.sum(x) > 0.0),
                                              outputs=("y", "condition")), {"x": "y"}), 1.0),
}  # fmt: skip


@pytest.mark.parametrize("kind", UNUSED)
def test_an_untaken_body_contributes_zero_gradient_even_if_its_own_is_infinite(kind):
    """Zero times infinity is NaN, so an untaken body must not contribute to the gradient."""
    region, slope_by_x = UNUSED[kind]()
    engine = Engine()
    engine.add(region)
    engine.set(region[region.control_name], 0)
    engine.set(region["x"], np.array([3.0, 4.0]))
    engine.set(region["k"], np.array([0.0, 4.0]))
    loss = engine.add(block(lambda y: lg.sum(y), name="loss"))
    engine.connect(region["y"], loss["y"])
    slope = engine.add(lg.grad(of=loss, by=[region["x"], region["k"]]))
    assert engine.step().ok, engine.frame.problems
    np.testing.assert_array_equal(engine.read(slope["x"]), [slope_by_x] * 2)
    np.testing.assert_array_equal(engine.read(slope["k"]), [0.0, 0.0])


def nested_regions(kind: str, depth: int) -> Composite:
    """`depth` nested regions around a body that squares."""
    inner = body_of(lambda x: x * x * 0.75, outputs=("y",))
    for _ in range(depth):
        region = If("region", inner) if kind == "if" else For("region", inner, {"x": "y"})
        inner = Composite("around")
        inner.graph.add(region)
        inner.graph.set(region[region.control_name], 1)
        for pin in (region["x"], region["y"]):
            inner.expose(pin)
    return inner


@pytest.mark.parametrize("kind", ["if", "for"])
def test_the_gradient_of_nested_regions_visits_each_body_once(kind, monkeypatch):
    looked: list[Network] = []
    monkeypatch.setattr(compose, "sort_nodes", lambda network: looked.append(network) or sort_nodes(network))
    for depth in (4, 8, 16):
        looked.clear()
        engine = Engine()
        regions = engine.add(nested_regions(kind, depth))
        engine.set(regions["x"], START)
        loss = engine.add(block(lambda y: lg.sum(y), name="loss"))
        engine.connect(regions["y"], loss["y"])
        slope = engine.add(lg.grad(of=loss, by=[regions["x"]]))
        assert engine.step().ok, engine.frame.problems
        np.testing.assert_allclose(engine.read(slope), 1.5 * START)
        assert len(looked) == depth


def test_a_whole_optimisation_with_its_gradient_block_is_one_step():
    """The forward pass, gradient, update and convergence test are blocks in the body of a loop."""
    body = Composite("body")
    forward = body.graph.add(block(lambda x, target: lg.sum((x - target) ** 2.0), name="forward"))
    slope = body.graph.add(lg.grad(of=forward, by=[forward["x"]], name="slope"))
    update = body.graph.add(block(lambda x, slope: x - 0.25 * slope, name="update"))
    test = body.graph.add(block(lambda slope: lg.max(lg.abs(slope)) > 1e-6, name="test"))
    body.graph.connect(slope, update["slope"])
    body.graph.connect(slope, test["slope"])
    for pin in (forward["x"], forward["target"], update["x"]):
        body.expose(pin)
    body.expose(update["result"], "better")
    body.expose(test["result"], "condition")
    engine = Engine()
    fit = engine.add(While("fit", body, {"x": "better"}))
    engine.set(fit["x"], START)
    engine.set(fit["target"], START[::-1].copy())
    engine.set(fit["condition"], True)
    frame = engine.step()
    assert frame.ok, frame.problems
    assert frame.ran == ("fit",)
    assert frame.calls["fit/slope"] == frame.calls["fit/update"] > 20
    np.testing.assert_allclose(engine.read(fit["better"]), START[::-1], atol=1e-6)


# --- functions of blocks ---------------------------------------------------------------------------------------------


def test_a_gradient_goes_through_append_buffers():
    engine = Engine()
    writers = [
        engine.add(append_block(lambda x: (x > 0.0, x * x), capacity=3, name="above")),
        engine.add(append_block(lambda x: (x < 0.35, lg.exp(x)), capacity=3, name="below")),
    ]
    both = engine.add(AppendBuffer("both", capacity=4, writers=("first", "second")))
    spread = engine.add(block(lambda x: x + 0.0, name="spread"))
    loss = engine.add(block(lambda v: lg.sum(v * lg.asarray([1.0, 2.0, 3.0, 4.0], dtype=lg.float64)), name="loss"))
    engine.set(spread["x"], START)
    for writer, pin in zip(writers, ("first", "second"), strict=True):
        engine.connect(spread, writer["x"])
        engine.connect(writer["values"], both[pin])
    engine.connect(both["values"], loss["v"])
    slope = engine.add(lg.grad(of=loss, by=[spread["x"]]))
    assert engine.step().ok, engine.frame.problems
    assert engine.frame.warnings == ("both: 5 elements, room for 4",)
    check_by_differences(engine, loss, spread["x"], START, engine.read(slope))


def test_a_gradient_goes_through_functions_of_the_ir_at_other_sizes():
    row = Tensor(f64, (Dimension.symbol("n"),))
    product = trace(lambda x, y: (x * y, x + y), row, row, name="both")
    engine = Engine()
    both = engine.add(block(product, inputs=("x", "y"), outputs=("product", "sum")))
    loss = engine.add(block(lambda p, s: lg.sum(p * s), name="loss", inputs={"p": row, "s": row}))
    engine.connect(both["product"], loss["p"])
    engine.connect(both["sum"], loss["s"])
    slope = engine.add(lg.grad(of=loss, by=[both["x"]]))
    for x in (START, START[:3], START):
        engine.set(both["x"], x)
        engine.set(both["y"], x * 0.5)
        assert engine.step().ok, engine.frame.problems
        np.testing.assert_allclose(engine.read(slope), 2 * x * (x * 0.5) + (x * 0.5) ** 2, rtol=1e-12)
    assert engine.frame.level is Level.WARM


def test_a_gradient_goes_through_assembly_functions():
    text = "length(p) - 1 + sin(4 * p.x) / 4"
    assembly = lg.implicit.add_expression(lg.Assembly(), "blob", text, {"p": "vector"})
    engine = Engine()
    blob = engine.add(block(lg.implicit.to_function(assembly, "blob"), inputs=("p",), name="blob"))
    engine.set(blob["p"], np.array([0.3, -0.7, 1.1], np.float32))
    slope = engine.add(lg.grad(of=blob, by=[blob["p"]]))
    assert engine.step().ok, engine.frame.problems
    p = np.array([0.3, -0.7, 1.1])
    expected = p / np.linalg.norm(p) + np.array([np.cos(4 * p[0]), 0, 0])
    np.testing.assert_allclose(engine.read(slope), expected, rtol=1e-5)


def test_blocks_without_a_derivative_are_errors_of_the_gradient():
    engine = Engine()
    call = engine.add(captured_block(lambda stream, x, y: np.negative(x, out=y), outputs={"y": "same(0)"}, name="call"))
    loss = engine.add(block(lambda y: lg.sum(y), name="loss"))
    whole = engine.add(block(lambda n, x=1.0: n * x, name="whole"))
    engine.set(call["x"], START)
    engine.set(whole["n"], 3)
    engine.connect(call, loss["y"])
    engine.add(lg.grad(of=loss, by=[call["x"]], name="opaque"))
    engine.add(lg.grad(of=whole, by=[whole["n"]], name="integer"))
    messages = {problem.block.name: str(problem) for problem in engine.step().problems}
    assert "calls a library, which has no derivative" in messages["opaque"]
    assert "no derivative with respect to `n`" in messages["integer"]


def test_a_gradient_with_respect_to_a_removed_pin_is_a_problem_until_the_pin_returns(executor_name):
    engine = Engine(executor_name)
    power = engine.add(block(lambda x=2.0, k=3.0: x * x * k, name="power"))
    slope = engine.add(lg.grad(of=power, by=[power["x"], power["k"]], name="slope"))
    assert engine.step().ok
    lg.live.edit(engine, power, lambda x=2.0, gain=1.0: x * gain)
    frame = engine.step()
    assert [(problem.block, "no longer has input `k`" in str(problem.error)) for problem in frame.problems] == [
        (slope, True)
    ]
    lg.live.edit(engine, power, lambda x=2.0, k=5.0: x * k)
    assert engine.step().ok
    assert (float(engine.read(slope["x"])), float(engine.read(slope["k"]))) == (5.0, 2.0)


# --- edits around a gradient -----------------------------------------------------------------------------------------


def working_composite() -> tuple[Any, Composite]:
    composite = Composite("inside")
    work = composite.graph.add(block(lambda x, p=1.0: x + p, name="work"))
    for pin in (*work.inputs, *work.outputs):
        composite.expose(work[pin])
    return work, composite


@pytest.mark.parametrize("kind", ["if", "for", "switch"])
def test_new_code_in_a_region_keeps_the_numbers_that_its_derivative_reads(kind: str) -> None:
    engine = Engine()
    work, inside = working_composite()
    regions = {
        "if": lambda: If("region", inside),
        "for": lambda: For("region", inside, {"x": "result"}),
        "switch": lambda: Switch("region", inside),
    }
    region = engine.add(regions[kind]())
    control = {"if": ("condition", True), "for": ("count", 1), "switch": ("index", 0)}[kind]
    engine.set(region[control[0]], control[1])
    engine.set(region["x"], 3.0)
    slope = engine.add(lg.grad(of=region, by=[region["x"]], name="slope"))
    engine.set(region["p"], 62.0)
    engine.step()
    engine.set(region["p"], 50.0)
    engine.step()
    edit(engine, work, lambda x, p=1.0: x * x + p)
    assert engine.step().ok
    assert (float(engine.read(region)), float(engine.read(slope["x"]))) == (59.0, 6.0)


def test_a_gradient_follows_the_first_connection_to_its_pins() -> None:
    engine = Engine()
    first = engine.add(block(lambda x: x * 2.0, name="first"))
    last = engine.add(block(lambda x, y=0.0: x * 3.0 + y, name="last"))
    engine.set(first["x"], 1.0)
    engine.set(last["x"], 1.0)
    slope = engine.add(lg.grad(of=last, by=[first["x"]], name="slope"))
    found = []
    for change in (lambda: None, lambda: engine.connect(first, last["y"]), lambda: engine.disconnect(last["y"])):
        change()
        engine.step()
        found.append(float(engine.read(slope["x"])))
    assert found == [0.0, 2.0, 0.0]


@pytest.mark.parametrize("number", [1.5, np.float32(1.5), np.float64(1.5)], ids=["float", "f32", "f64"])
@pytest.mark.parametrize("scale", [2.0, np.float64(2.0)], ids=["weak", "strong"])
def test_a_loop_that_starts_with_a_python_number_has_the_same_type_forward_and_backward(
    number: Any, scale: Any
) -> None:
    engine = Engine()
    _, inside = working_composite()
    loop = engine.add(For("loop", inside, {"x": "result"}))
    last = engine.add(block(lambda x: x * x, name="last"))
    engine.set(loop["count"], 2)
    engine.set(loop["x"], number)
    engine.set(loop["p"], scale)
    engine.connect(loop, last["x"])
    slope = engine.add(lg.grad(of=last, by=[loop["x"], loop["p"]], name="slope"))
    if np.asarray(number).dtype == np.float32 and type(scale) is not float:
        assert [problem.pin for problem in engine.step().problems] == ["x"]  # a loop keeps its types
        return
    assert engine.step().problems == ()
    assert [float(engine.read(slope[name])) for name in ("x", "p")] == [11.0, 22.0]


def test_second_derivatives_of_a_region_distinguish_their_inputs() -> None:
    engine = Engine()
    _, inside = working_composite()
    region = engine.add(If("region", inside))
    engine.set(region["condition"], True)
    engine.set(region["x"], 0.5)
    cube = engine.add(block(lambda x, k=1.0: x * x * x * k, name="cube"))
    engine.connect(region, cube["x"])
    first = engine.add(lg.grad(of=cube, by=[region["x"]], name="first"))
    second = engine.add(lg.grad(of=first["x"], by=[region["x"]], name="second"))
    third = engine.add(lg.grad(of=second["x"], by=[region["x"]], name="third"))
    beside = engine.add(lg.grad(of=cube, by=[region["x"], cube["k"]], name="beside"))
    assert engine.step().problems == ()
    found = [float(engine.read(gradient["x"])) for gradient in (first, second, third, beside)]
    assert found == [6.75, 9.0, 6.0, 6.75]
    engine.set(region["p"], 0.5)
    engine.step()
    assert [float(engine.read(gradient["x"])) for gradient in (first, second, third, beside)] == [3.0, 6.0, 6.0, 3.0]


def test_a_gradient_of_an_exposed_output_reports_the_removal_of_its_block(executor_name):
    engine = lg.Engine(executor_name)
    inner, outer = lg.Composite("inner"), lg.Composite("outer")
    square = inner.graph.add(lg.block(lambda x: x * x, name="square"))
    inner.expose(square["x"]), inner.expose(square["result"])
    outer.graph.add(inner)
    outer.expose(inner["x"]), outer.expose(inner["result"])
    engine.add(outer)
    engine.set(outer["x"], 3.0)
    slope = engine.add(lg.grad(of=outer["result"], by=[outer["x"]], name="slope"))
    assert engine.step().ok
    inner.graph.remove(square)
    (problem,) = engine.step().problems
    assert (
        str(problem) == "slope: `outer.result` no longer exists: the block inside was removed, or has lost this output"
    )
    inner.graph.add(square)
    assert engine.step().ok
    assert float(engine.read(slope)) == 6.0


def test_a_gradient_without_pins_is_rejected():
    block = lg.block(lambda x: x * x, name="square")
    with pytest.raises(lg.UsageError, match=r"needs at least one pin in `by`"):
        lg.grad(of=block, by=[])
