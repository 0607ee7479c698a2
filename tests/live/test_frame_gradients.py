"""Gradients through frames against frames that run, the unrolled program and differences."""

import random
from typing import Any

import numpy as np
import pytest

import livegrad as lg
from livegrad.live.blocks import rollout

GRAVITY, DRAG, STEP = np.float64(9.8), np.float64(0.1), np.float64(0.05)
P3, P7, P2 = np.float64(0.3), np.float64(0.7), np.float64(0.2)


def pendulum():
    """A pendulum with two states, a parameter with a default, one inside a composite, and an array."""
    engine = lg.Engine()
    angle, speed = engine.add(lg.State("angle", np.float64(0.4))), engine.add(lg.State("speed", np.float64(0.0)))
    group: Any = lg.Composite("group")
    force = group.graph.add(
        lg.block(lambda angle, speed, g=GRAVITY, drag=DRAG: -g * lg.sin(angle) - drag * speed, name="force")
    )
    for pin in ("angle", "speed", "g", "result"):
        group.expose(force[pin])
    engine.add(group)
    push = engine.add(lg.block(lambda speed, force, h=STEP: speed + h * force, name="push"))
    turn = engine.add(lg.block(lambda angle, speed, h=STEP: angle + h * speed, name="turn"))
    loss = engine.add(lg.block(lambda angle, w: lg.sum(w * (angle - 0.1) ** 2), name="loss"))
    engine.connect(angle, group["angle"])
    engine.connect(speed, group["speed"])
    engine.connect(speed, push["speed"])
    engine.connect(group["result"], push["force"])
    engine.connect(angle, turn["angle"])
    engine.connect(push, turn["speed"])
    engine.connect(push, speed["next"])
    engine.connect(turn, angle["next"])
    engine.connect(turn, loss["angle"])
    engine.set(loss["w"], np.array([1.0, 2.0]))
    engine.step()
    return engine, angle, group["g"], force["drag"], push["h"], loss


def unrolled(angle, speed, g, drag, push_h, w, frames):
    loss = None
    for _ in range(frames):
        force = -g * lg.sin(angle) - drag * speed
        speed = speed + push_h * force
        angle = angle + 0.05 * speed
        loss = lg.sum(w * (angle - 0.1) ** 2)
    return loss


@pytest.mark.parametrize("frames", [1, 2, 7, 40])
def test_values_and_gradients_equal_those_of_the_unrolled_program(frames):
    engine, angle, g, drag, h, loss = pendulum()
    start = [lg.asarray(engine.read(block)) for block in (engine.graph.blocks["angle"], engine.graph.blocks["speed"])]
    numbers = [lg.asarray(np.float64(value)) for value in (9.8, 0.1, 0.05)]
    w = lg.asarray(np.array([1.0, 2.0]))
    expected = lg.grad(lambda a, g, drag, h, w: unrolled(a, start[1], g, drag, h, w, frames), (0, 1, 2, 3, 4))(
        start[0], *numbers, w
    )
    gradient = lg.grad(engine, of=loss, by=[angle, g, drag, h, loss["w"]], frames=frames)
    found = list(gradient.read().values())
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, np.asarray(other), rtol=1e-9, atol=1e-14)
    value = unrolled(start[0], start[1], numbers[0], numbers[1], numbers[2], w, frames)
    np.testing.assert_allclose(gradient.value(), np.asarray(value), rtol=1e-12)
    for _ in range(frames):
        engine.step()
    np.testing.assert_allclose(np.asarray(value), engine.read(loss), rtol=1e-12)


def test_both_modes_agree_with_differences():
    engine, _, g, drag, h, loss = pendulum()
    pins = [g, drag, h]
    gradient = lg.grad(engine, of=loss, by=pins, frames=25)
    slopes = gradient.read()
    for pin in pins:
        step = 1e-5
        difference = (gradient.value({pin: step}) - gradient.value({pin: -step})) / (2 * step)
        np.testing.assert_allclose(slopes[pin], difference, rtol=1e-6)
        np.testing.assert_allclose(gradient.tangent({pin: 1.0}), slopes[pin], rtol=1e-10)


def test_one_frame_equals_the_gradient_block():
    engine, _, _, _, h, loss = pendulum()
    block = engine.add(lg.grad(of=loss, by={"h": h, "w": loss["w"]}, name="gradient"))
    engine.step()
    # The block shows the last frame; the states have advanced since.
    before = engine.read(block["h"]), engine.read(block["w"])
    gradient = lg.grad(engine, of=loss, by=[h, loss["w"]], frames=1).read()
    engine.step()
    np.testing.assert_allclose(gradient[h], engine.read(block["h"]), rtol=1e-12)
    np.testing.assert_allclose(gradient[loss["w"]], engine.read(block["w"]), rtol=1e-12)
    assert not np.allclose(before[0], gradient[h])


def test_checkpointing_gives_the_same_gradient(monkeypatch):
    engine, _, g, drag, _, loss = pendulum()
    exact = lg.grad(engine, of=loss, by=[g, drag], frames=60).read()
    monkeypatch.setattr(rollout, "MAX_RESIDUAL_BYTES", 1)
    split = lg.grad(engine, of=loss, by=[g, drag], frames=60).read()
    for pin in (g, drag):
        np.testing.assert_allclose(split[pin], exact[pin], rtol=1e-12)


def test_numbers_edits_and_states_are_those_of_now():
    engine, angle, _, _, h, loss = pendulum()
    gradient = lg.grad(engine, of=loss, by=[h], frames=5)
    seen = []

    def check():
        step = 1e-6
        difference = (gradient.value({h: step}) - gradient.value({h: -step})) / (2 * step)
        found = gradient.read()[h]
        np.testing.assert_allclose(found, difference, rtol=1e-5, atol=1e-8)
        seen.append(float(found))

    check()
    engine.set(loss["w"], np.array([3.0, 0.5]))
    check()  # a value need not wait for a frame
    engine.step()
    assert lg.grad(engine, of=loss, by=[h], frames=5).read()[h] != seen[-1]  # the state has advanced
    check()
    engine.set(angle, 1.0)
    engine.step()
    check()
    lg.live.edit(engine, engine.graph.blocks["turn"], lambda angle, speed, h=STEP: angle + 2.0 * h * speed)
    with pytest.raises(lg.UsageError, match=r"edits wait for the next frame \(test_frame_gradients.py:\d+"):
        gradient.read()
    engine.step()
    check()
    assert len(set(seen)) == 5
    engine.remove(engine.graph.blocks["push"])
    engine.step()
    with pytest.raises(lg.LivegradError):
        gradient.read()


def test_nothing_in_the_engine_runs_or_changes():
    engine, angle, g, _, _, loss = pendulum()
    before = engine.read(angle), engine.frame.number
    gradient = lg.grad(engine, of=loss, by=[g], frames=9)
    gradient.read()
    gradient.value({g: 1.0})
    assert (engine.read(angle), engine.frame.number) == before


def test_gradients_go_through_regions_weak_numbers_and_features():
    engine = lg.Engine()
    x = engine.add(lg.State("x", 1.0))
    body = lg.Composite("body")
    work = body.graph.add(
        lg.block(lambda x, gain=0.9: x * gain + lg.contexts.context_tensor("animation_time") * 0.1, name="work")
    )
    body.expose(work["x"])
    body.expose(work["result"])
    loop = engine.add(lg.For("loop", body, carried={"x": "result"}))
    engine.set(loop["count"], 3)
    engine.connect(x, loop["x"])
    engine.connect(loop["result"], x["next"])
    out = engine.add(lg.block(lambda y, scale=2.0: y * scale * scale, name="out"))
    engine.connect(loop["result"], out["y"])
    engine.set_feature("animation_time", 0.5)
    engine.step()
    gradient = lg.grad(engine, of=out, by=[out["scale"], x], frames=2)
    value = 1.0 * 0.9**3 + 0.05 * (1 + 0.9 + 0.81)
    for _ in range(2):
        value = value * 0.9**3 + 0.05 * (1 + 0.9 + 0.81)
    np.testing.assert_allclose(gradient.value(), 4.0 * value, rtol=1e-5)
    found = gradient.read()
    np.testing.assert_allclose(found[out["scale"]], 4.0 * value, rtol=1e-5)
    np.testing.assert_allclose(found[x["value"]], 4.0 * 0.9**6, rtol=1e-5)


@pytest.mark.parametrize("seed", range(8))
def test_random_graphs_agree_with_frames_that_run(seed):
    chance = random.Random(seed)
    engine = lg.Engine()
    states = [engine.add(lg.State(f"s{index}", np.float64(chance.uniform(-1, 1)))) for index in range(3)]
    outputs: list[Any] = list(states)
    pins = []
    bodies: list[Any] = [
        lambda a, b, p=P3: lg.sin(a) * p + b * 0.5,
        lambda a, b, p=P7: lg.tanh(a + p) - 0.3 * b,
        lambda a, b, p=P2: a * p * 0.5 + lg.cos(b) * 0.4,
    ]
    for index in range(8):
        block = engine.add(lg.block(chance.choice(bodies), name=f"b{index}"))
        for pin in ("a", "b"):
            engine.connect(chance.choice(outputs), block[pin])
        outputs.append(block)
        pins.append(block["p"])
    for state in states:
        engine.connect(chance.choice(outputs[3:]), state["next"])
    engine.step()
    frames = chance.randrange(1, 12)
    gradient = lg.grad(engine, of=outputs[-1], by=[*pins, states[0]], frames=frames)
    value, slopes = gradient.value(), gradient.read()
    for pin in gradient.by:
        difference = (gradient.value({pin: 1e-6}) - gradient.value({pin: -1e-6})) / 2e-6
        np.testing.assert_allclose(slopes[pin], difference, rtol=1e-5, atol=1e-8)
        np.testing.assert_allclose(gradient.tangent({pin: 1.0}), slopes[pin], rtol=1e-9, atol=1e-14)
    for _ in range(frames):
        engine.step()
    np.testing.assert_allclose(engine.read(outputs[-1]), value, rtol=1e-12)


def test_invalid_arguments_name_the_line():
    engine, _, g, _, h, loss = pendulum()
    mistakes: list[Any] = [
        (lambda: lg.grad(loss, of=loss, by=[h], frames=2), "needs the engine"),
        (lambda: lg.grad(engine, of=loss, by=[h], frames=0), "`frames` counts frames"),
        (lambda: lg.grad(engine, of=h, by=[h], frames=1), "is not an output"),
        (lambda: lg.grad(engine, of=loss, by=[], frames=1), "at least one pin"),
        (lambda: lg.grad(engine, of=loss, by=["h"], frames=1), "`by` takes pins"),
        (lambda: lg.grad(engine, of=loss, by=[h], frames=1).value({g: 1.0}), "is not in `by`"),
        (lambda: lg.grad(engine, of=loss, by=[loss["result"]], frames=1).read(), "cannot differentiate with respect"),
        (lambda: lg.grad(engine, of=loss, by=[h], frames=1).read(seed=[1.0, 2.0]), "needs a seed of its shape"),
    ]
    for mistake, said in mistakes:
        with pytest.raises(lg.UsageError, match=said) as caught:
            mistake()
        assert "test_frame_gradients.py" in str(caught.value)


def test_integers_and_library_calls_have_no_gradient():
    engine = lg.Engine()
    block = engine.add(lg.block(lambda n=3, x=2.0: x * n, name="block"))
    engine.step()
    with pytest.raises(lg.LivegradError, match=r"no derivative with respect to `block\.n`"):
        lg.grad(engine, of=block, by=[block["n"]], frames=1).read()


def test_states_that_were_set_start_from_their_new_values():
    engine = lg.Engine()
    x = engine.add(lg.State("x", 1.0))
    grow = engine.add(lg.block(lambda x, rate=2.0: x * rate, name="grow"))
    engine.connect(x, grow["x"])
    engine.connect(grow, x["next"])
    engine.step()
    gradient = lg.grad(engine, of=grow, by=[grow["rate"]], frames=2)
    assert float(gradient.value()) == 8.0
    engine.set(x, 5.0)
    assert float(gradient.value()) == 20.0
    assert float(gradient.read()[grow["rate"]]) == 20.0
    engine.step()
    engine.step()
    assert float(engine.read(grow)) == 20.0


def test_blocks_with_symbolic_sizes_are_differentiated():
    engine = lg.Engine()
    points = engine.add(lg.block(lambda a=0.5: lg.linspace(0.0, 1.0, 5) * a, name="points"))
    body = lg.ir.map_over(lg.ir.trace(lambda x, gain: x * x * gain, lg.f32, lg.f32), [True, False])
    field = engine.add(lg.block(body, name="field", inputs=("x", "gain")))
    engine.connect(points, field["x"])
    engine.set(field["gain"], 3.0)
    total = engine.add(lg.block(lambda y: lg.sum(y), name="total"))
    engine.connect(field, total["y"])
    engine.step()
    gradient = lg.grad(engine, of=total, by=[points["a"], field["gain"]], frames=1)
    slopes = gradient.read()
    squares = float(np.sum(np.linspace(0.0, 1.0, 5) ** 2))
    assert float(slopes[points["a"]]) == pytest.approx(2 * 0.5 * 3.0 * squares, rel=1e-5)
    assert float(slopes[field["gain"]]) == pytest.approx(0.25 * squares, rel=1e-5)
