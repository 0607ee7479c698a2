"""Schedules, masks, wrappers and further optimizers: beside PyTorch where it is installed, and beside textbooks."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

import livegrad as lg

O = lg.optim
RNG = np.random.default_rng(1)
WEIGHT, BIAS, INPUTS = RNG.standard_normal((4, 3)), RNG.standard_normal(3), RNG.standard_normal((5, 4))
EVERY = [
    O.SGD(0.05, momentum=0.9, nesterov=True, weight_decay=0.02), O.SGD(0.1), O.Adam(0.05),
    O.AdamW(0.05, betas=(0.8, 0.95), weight_decay=0.1), O.RMSprop(0.05, alpha=0.9),
    O.RMSprop(0.02, alpha=0.9, momentum=0.8, centered=True, weight_decay=0.1), O.Adafactor(0.1, weight_decay=0.05),
    O.Lion(0.01, weight_decay=0.1), O.Muon(0.02), O.chain(O.clip_by_global_norm(1.0), O.Adam(O.CosineSchedule(0.1, 9))),
    O.accumulate(O.Adam(0.05), every=2), O.average(O.SGD(0.05), 0.9),
]  # fmt: skip


def loss(p: Any) -> Any:
    return lg.sum(lg.tanh(lg.asarray(INPUTS, dtype=p["w"].dtype) @ p["w"] + p["b"]) ** 2)


def start(dtype: Any = lg.float64) -> Any:
    return {"w": lg.asarray(WEIGHT, dtype=dtype), "b": lg.asarray(BIAS, dtype=dtype)}


def run(optimizer: Any, steps: int = 6, dtype: Any = lg.float64) -> Any:
    parameters = start(dtype)
    state = optimizer.init(parameters)
    step = lg.jit(lambda parameters, state: optimizer.update(parameters, lg.grad(loss)(parameters), state))
    for _ in range(steps):
        parameters, state = step(parameters, state)
    return parameters


@pytest.mark.parametrize(
    ("ours", "name", "settings"),
    [
        (EVERY[0], "SGD", {"lr": 0.05, "momentum": 0.9, "nesterov": True, "weight_decay": 0.02}),
        (EVERY[2], "Adam", {"lr": 0.05}),
        (EVERY[3], "AdamW", {"lr": 0.05, "betas": (0.8, 0.95), "weight_decay": 0.1}),
        (EVERY[4], "RMSprop", {"lr": 0.05, "alpha": 0.9}),
        (EVERY[5], "RMSprop", {"lr": 0.02, "alpha": 0.9, "momentum": 0.8, "centered": True, "weight_decay": 0.1}),
        (EVERY[6], "Adafactor", {"lr": 0.1, "weight_decay": 0.05}),
    ],
)
def test_steps_are_those_of_pytorch(ours: Any, name: str, settings: Any) -> None:
    torch = pytest.importorskip("torch")
    w, b, x = (torch.tensor(values, requires_grad=True) for values in (WEIGHT, BIAS, INPUTS))
    theirs = getattr(torch.optim, name)([w, b], **settings)
    for _ in range(6):
        theirs.zero_grad()
        ((x @ w + b).tanh() ** 2).sum().backward()
        theirs.step()
    found = run(ours)
    np.testing.assert_allclose(found["w"].numpy(), w.detach().numpy(), rtol=1e-12)
    np.testing.assert_allclose(found["b"].numpy(), b.detach().numpy(), rtol=1e-12)


def gradients(w: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    y = np.tanh(INPUTS @ w + b)
    inner = 2.0 * y * (1.0 - y * y)
    return INPUTS.T @ inner, inner.sum(0)


def textbook(rule: Any, steps: int = 6) -> tuple[np.ndarray, np.ndarray]:
    parts, memory = [WEIGHT, BIAS], [{}, {}]
    for count in range(1, steps + 1):
        slopes = gradients(*parts)
        parts = [rule(p, g, m, count) for p, g, m in zip(parts, slopes, memory, strict=True)]
    return parts[0], parts[1]


def rmsprop(p: Any, g: Any, memory: Any, count: int) -> Any:
    memory["s"] = 0.9 * memory.get("s", 0.0) + 0.1 * g * g
    return p - 0.05 * g / (np.sqrt(memory["s"]) + 1e-8)


def lion(p: Any, g: Any, memory: Any, count: int) -> Any:
    m = memory.get("m", np.zeros_like(g))
    memory["m"] = 0.99 * m + 0.01 * g
    return p - 0.01 * (np.sign(0.9 * m + 0.1 * g) + 0.1 * p)


def adafactor(p: Any, g: Any, memory: Any, count: int) -> Any:
    share, rms = count**-0.8, lambda x: np.sqrt(np.mean(x * x))
    if p.ndim == 2:
        for axis, name in ((1, "rows"), (0, "columns")):
            old = memory.get(name, 0.0)
            memory[name] = old + share * ((g * g).mean(axis, keepdims=True) - old)
        square = memory["rows"] * memory["columns"] / memory["rows"].mean()
    else:
        square = memory["s"] = memory.get("s", 0.0) + share * (g * g - memory.get("s", 0.0))
    direction = g / np.sqrt(square)
    size = max(rms(p), 1e-3) * min(0.1, count**-0.5)
    return p * (1 - 0.1 * 0.05) - size * direction / max(1.0, rms(direction))


@pytest.mark.parametrize(("optimizer", "rule"), [(EVERY[4], rmsprop), (EVERY[7], lion), (EVERY[6], adafactor)])
def test_steps_are_those_of_the_textbook(optimizer: Any, rule: Any) -> None:
    found = run(optimizer)
    for name, expected in zip(("w", "b"), textbook(rule), strict=True):
        np.testing.assert_allclose(found[name].numpy(), expected, rtol=1e-10)


@pytest.mark.parametrize("optimizer", EVERY, ids=lambda optimizer: repr(optimizer)[:40])
def test_every_optimizer_is_the_same_in_jit_and_resumes_to_the_bit(optimizer: Any, tmp_path: Any) -> None:
    def step(parameters: Any, state: Any) -> Any:
        return optimizer.update(parameters, lg.grad(loss)(parameters), state)

    jitted = lg.jit(step)
    once = jitted(start(), optimizer.init(start()))
    for a, b in zip(lg.tree_leaves(once), lg.tree_leaves(step(start(), optimizer.init(start()))), strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-12, atol=1e-14)
    lg.save(tmp_path / "state.npz", once)
    without_pause, resumed = once, lg.load(tmp_path / "state.npz", like=once)
    for _ in range(2):
        without_pause, resumed = jitted(*without_pause), jitted(*resumed)
    assert jitted.traces == 1
    for a, b in zip(lg.tree_leaves(resumed), lg.tree_leaves(without_pause), strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())
    assert pickle.loads(pickle.dumps(optimizer)) == optimizer


@pytest.mark.parametrize("dtype", [lg.float16, lg.bfloat16, lg.float32])
@pytest.mark.parametrize("optimizer", EVERY, ids=lambda optimizer: repr(optimizer)[:40])
def test_parameters_keep_their_types_and_the_loss_falls(optimizer: Any, dtype: Any) -> None:
    found = run(optimizer, steps=8, dtype=dtype)
    assert {value.dtype for value in found.values()} == {dtype}
    assert float(loss(found)) < float(loss(start(dtype)))


def test_weight_decay_applies_to_what_the_mask_selects() -> None:
    model, zero = {"w": lg.ones((2, 2)), "b": lg.ones(2)}, {"w": lg.zeros((2, 2)), "b": lg.zeros(2)}
    for mask in (lambda path, p: len(p.shape) == 2, lambda path, p: path[-1] == "w", {"w": True, "b": False}):
        optimizer = O.AdamW(0.1, weight_decay=0.5, mask=mask)
        moved, _ = optimizer.update(model, zero, optimizer.init(model))
        np.testing.assert_allclose(moved["w"].numpy(), np.full((2, 2), 0.95), rtol=1e-6)
        np.testing.assert_array_equal(moved["b"].numpy(), np.ones(2))


def test_gradients_above_the_norm_are_scaled_together_and_zero_stays_zero() -> None:
    clip = O.clip_by_global_norm(1.0)
    assert [float(x) for x in clip.transform([lg.asarray(3.0), lg.asarray(4.0)])] == pytest.approx([0.6, 0.8])
    assert [float(x) for x in clip.transform([lg.asarray(0.3), lg.asarray(0.4)])] == pytest.approx([0.3, 0.4])
    np.testing.assert_array_equal(clip.transform(lg.zeros(3)).numpy(), np.zeros(3))


def test_accumulated_gradients_make_the_step_of_their_mean() -> None:
    parts = [lg.asarray([1.0, 2.0]), lg.asarray([3.0, -4.0]), lg.asarray([2.0, 2.0])]
    optimizer, x = O.accumulate(O.Adam(0.1), every=3), lg.asarray([1.0, 1.0])
    expected, _ = O.Adam(0.1).update(x, (parts[0] + parts[1] + parts[2]) / 3.0, O.Adam(0.1).init(x))
    state, moved = optimizer.init(x), x
    for number, part in enumerate(parts):
        np.testing.assert_array_equal(moved.numpy(), x.numpy())
        moved, state = optimizer.update(moved, part, state)
        assert int(state["count"]) == (number + 1) % 3
    np.testing.assert_allclose(moved.numpy(), expected.numpy(), rtol=1e-6)


def test_muon_steps_along_orthogonal_matrices_and_leaves_vectors_to_others() -> None:
    model = {"w": lg.asarray(RNG.standard_normal((6, 3)) @ np.diag([10.0, 1.0, 0.1])), "b": lg.ones(3)}
    optimizer = O.Muon(1.0, momentum=0.0, nesterov=False, weight_decay=0.0, others=O.SGD(0.5))
    moved, _ = optimizer.update(model, model, optimizer.init(model))
    step = (model["w"] - moved["w"]).numpy() / (0.2 * np.sqrt(6.0))
    np.testing.assert_array_less(np.abs(np.linalg.svd(step, compute_uv=False) - 0.95), 0.3)
    np.testing.assert_allclose(moved["b"].numpy(), 0.5)


@pytest.mark.parametrize(
    ("schedule", "formula"),
    [
        (O.LinearSchedule(1.0, 0.2, 8), lambda t: 1.0 - 0.8 * min(t / 8, 1.0)),
        (O.ExponentialSchedule(0.5, 0.1, 4), lambda t: 0.5 * 0.1 ** (t / 4)),
        (O.StepSchedule(1.0, {3: 0.1, 6: 0.5}), lambda t: (0.1 if t >= 3 else 1.0) * (0.5 if t >= 6 else 1.0)),
        (
            O.CosineSchedule(2.0, 10, warmup=4, end=0.1),
            lambda t: t / 2 if t < 4 else 0.1 + 0.95 * (1 + np.cos(np.pi * min((t - 4) / 6, 1.0))),
        ),
        (
            O.OneCycleSchedule(1.0, 10, rising=0.4),
            lambda t: (
                0.04 + 0.48 * (1 - np.cos(np.pi * t / 4))
                if t < 4
                else 1e-4 + (1 - 1e-4) * (1 + np.cos(np.pi * min((t - 4) / 6, 1.0))) / 2
            ),
        ),
    ],
)
def test_schedules_follow_their_formulas_inside_and_outside_of_jit(schedule: Any, formula: Any) -> None:
    jitted = lg.jit(schedule)
    for step in range(13):
        np.testing.assert_allclose(float(schedule(step)), formula(step), rtol=1e-5, atol=1e-7)
        np.testing.assert_allclose(float(jitted(lg.asarray(step))), formula(step), rtol=1e-5, atol=1e-7)
    assert jitted.traces == 1


def test_an_optimizer_uses_the_rate_of_its_step() -> None:
    optimizer, x = O.SGD(O.StepSchedule(1.0, {1: 0.5})), lg.asarray(0.0)
    state = optimizer.init(x)
    for expected in (-1.0, -1.5, -2.0):
        x, state = optimizer.update(x, lg.asarray(1.0), state)
        assert float(x) == expected


UNTYPED: Any = O


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: O.Adam(betas=(0.9,)), r"`betas` cannot be \(0.9,\).*expected two numbers"),  # type: ignore[arg-type]
        (lambda: O.Lion(betas=(0.9, 1.0)), "`betas` cannot be 1.0"),
        (lambda: O.Adam("fast"), "`learning_rate` cannot be 'fast'"),
        (lambda: O.chain(), "`chain` needs an optimizer"),
        (lambda: O.chain(O.Adam(), O.Adam()), "only the last part of a chain is an optimizer"),
        (lambda: O.chain(O.clip_by_value(1.0)), "not an optimizer"),
        (lambda: O.accumulate(O.Adam(), every=0), "`every` cannot be 0"),
        (lambda: O.average(O.Adam(), decay=1.5), "`decay` cannot be 1.5"),
        (lambda: O.clip_by_global_norm(-1.0), "`largest` cannot be -1.0"),
        (lambda: UNTYPED.Adam(lr=0.1), "learning_rate"),
        (lambda: UNTYPED.Adam(b1=0.1), "betas"),
    ],
)
def test_wrong_settings_say_what_is_expected(make: Any, message: str) -> None:
    with pytest.raises((lg.UsageError, lg.CallError, TypeError), match=message):
        make()
