"""Optimizers: steps match the textbook, runs reach the minimum, and steps are ordinary functions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import livegrad as lg

RNG = np.random.default_rng(0)
START = RNG.standard_normal(4)
TARGET = RNG.standard_normal(4)
SCALES = np.array([1.0, 2.0, 5.0, 0.5])


def slope(p: np.ndarray) -> np.ndarray:
    return SCALES * (p - TARGET)


def run(optimizer: Any, steps: int) -> np.ndarray:
    parameters = {"p": lg.asarray(START)}
    state = optimizer.init(parameters)
    for _ in range(steps):
        gradients = {"p": lg.asarray(SCALES) * (parameters["p"] - lg.asarray(TARGET))}
        parameters, state = optimizer.update(parameters, gradients, state)
    return parameters["p"].numpy()


def sgd(steps: int, rate: float, momentum: float = 0.0, nesterov: bool = False, decay: float = 0.0) -> np.ndarray:
    p, v = START.copy(), np.zeros(4)
    for _ in range(steps):
        g = slope(p) + decay * p
        v = momentum * v + g
        p = p - rate * (g + momentum * v if nesterov else v)
    return p


def adam(steps: int, rate: float, b1: float = 0.9, b2: float = 0.999, decay: float = 0.0) -> np.ndarray:
    p, m, s = START.copy(), np.zeros(4), np.zeros(4)
    for step in range(1, steps + 1):
        g = slope(p)
        m, s = b1 * m + (1 - b1) * g, b2 * s + (1 - b2) * g * g
        p = p - rate * ((m / (1 - b1**step)) / (np.sqrt(s / (1 - b2**step)) + 1e-8) + decay * p)
    return p


@pytest.mark.parametrize(
    ("optimizer", "expected"),
    [
        (lg.optim.SGD(0.1), sgd(7, 0.1)),
        (lg.optim.SGD(0.05, momentum=0.9), sgd(7, 0.05, 0.9)),
        (lg.optim.SGD(0.05, momentum=0.9, nesterov=True), sgd(7, 0.05, 0.9, nesterov=True)),
        (lg.optim.SGD(0.1, weight_decay=0.2), sgd(7, 0.1, decay=0.2)),
        (lg.optim.Adam(0.1), adam(7, 0.1)),
        (lg.optim.Adam(0.1, betas=(0.5, 0.9)), adam(7, 0.1, 0.5, 0.9)),
        (lg.optim.Adam(0.1, weight_decay=0.3), adam(7, 0.1, decay=0.3)),
    ],
    ids=["sgd", "momentum", "nesterov", "sgd decay", "adam", "adam betas", "adamw"],
)
def test_steps_match_the_textbook(optimizer, expected):
    np.testing.assert_allclose(run(optimizer, 7), expected, rtol=1e-12)


def test_a_step_is_traced_once_and_keeps_element_types():
    for dtype in (lg.float32, lg.float64):
        seen: list[float] = []
        found = lg.optim.minimize(
            lambda p: lg.sum((p["x"] - 2.0) ** 2) + (p["y"] + 1.0) ** 2,
            {"x": lg.zeros(3, dtype=dtype), "y": lg.asarray(0.0, dtype=dtype)},
            lg.optim.Adam(0.2),
            steps=150,
            progress=lambda step, loss, seen=seen: seen.append(loss),
        )
        assert found.parameters["x"].dtype is dtype
        assert seen == found.losses
        np.testing.assert_allclose(found.parameters["x"].numpy(), 2.0, atol=1e-2)
        np.testing.assert_allclose(float(found.parameters["y"]), -1.0, atol=1e-2)


def test_arguments_are_passed_on_and_python_numbers_are_parameters():
    found = lg.optim.minimize(
        lambda x, data, shift: lg.sum((x - data - shift) ** 2),
        1.0,
        lg.optim.SGD(0.1),
        steps=60,
        arguments=(lg.asarray([1.0, 3.0]), 0.5),
    )
    np.testing.assert_allclose(float(found.parameters), 2.5, rtol=1e-5)


def test_a_step_can_be_differentiated_by_its_rate():
    """The loss after one step, differentiated by the learning rate: -|g|^2 for a linear loss."""
    gradient = lg.asarray([3.0, 4.0])

    def after(rate):
        optimizer = lg.optim.SGD(rate)
        moved, _ = optimizer.update(lg.asarray([1.0, 1.0]), gradient, optimizer.init(gradient))
        return lg.sum(moved * gradient)

    np.testing.assert_allclose(float(lg.grad(after)(lg.asarray(0.1))), -25.0)


def rosenbrock(p: Any) -> Any:
    return lg.sum(100.0 * (p[1:] - p[:-1] ** 2) ** 2 + (1.0 - p[:-1]) ** 2)


@pytest.mark.parametrize("size", [2, 10])
def test_lbfgs_finds_the_minimum_of_rosenbrocks_valley(size):
    found = lg.optim.LBFGS(steps=400, tolerance=1e-8).minimize(rosenbrock, lg.zeros(size, dtype=lg.float64))
    assert found.converged
    np.testing.assert_allclose(found.parameters.numpy(), 1.0, atol=1e-6)
    assert all(later <= earlier for earlier, later in zip(found.losses, found.losses[1:], strict=False))


def test_lbfgs_takes_nests_and_arguments():
    matrix = RNG.standard_normal((6, 3))
    right = RNG.standard_normal(6)

    def loss(p, matrix, right):
        return lg.sum((matrix @ p["weights"] + p["bias"] - right) ** 2)

    start = {"weights": lg.zeros(3, dtype=lg.float64), "bias": lg.asarray(0.0, dtype=lg.float64)}
    found = lg.optim.LBFGS(tolerance=1e-9).minimize(loss, start, (lg.asarray(matrix), lg.asarray(right)))
    best = np.linalg.lstsq(np.column_stack([matrix, np.ones(6)]), right, rcond=None)[0]
    np.testing.assert_allclose(found.parameters["weights"].numpy(), best[:3], atol=1e-7)
    np.testing.assert_allclose(float(found.parameters["bias"]), best[3], atol=1e-7)


def test_lbfgs_reports_when_it_did_not_converge():
    assert not lg.optim.LBFGS(steps=2).minimize(rosenbrock, lg.zeros(4)).converged
    lost = lg.optim.LBFGS().minimize(lambda x: lg.sum(lg.log(x)), lg.asarray([-1.0]))
    assert not lost.converged
    assert np.isnan(lost.losses[0])


@pytest.mark.parametrize(
    "make",
    [
        lambda: lg.optim.SGD(-0.1),
        lambda: lg.optim.SGD(float("nan")),
        lambda: lg.optim.SGD("fast"),  # type: ignore[arg-type]
        lambda: lg.optim.SGD(0.1, momentum=1.0),
        lambda: lg.optim.Adam(0.1, betas=(1.0, 0.9)),
        lambda: lg.optim.Adam(0.1, betas=(0.9, -0.1)),
        lambda: lg.optim.Adam(0.1, eps=float("inf")),
        lambda: lg.optim.LBFGS(steps=-1),
        lambda: lg.optim.LBFGS(tolerance=-1.0),
        lambda: lg.optim.minimize(lg.sum, lg.ones(2), steps=-1),
        lambda: lg.optim.minimize(lg.sum, lg.asarray([1, 2]), steps=1),
        lambda: lg.optim.LBFGS().minimize(lambda z: lg.real(lg.sum(z)), lg.asarray([1j])),
        lambda: lg.optim.LBFGS().minimize(lambda z: lg.asarray(1.0), {}),
    ],
)
def test_invalid_settings_raise_with_the_line(make):
    with pytest.raises(lg.UsageError, match=r"test_optim\.py"):
        make()


def test_gradients_with_another_tree_structure_raise():
    optimizer = lg.optim.Adam()
    with pytest.raises(lg.UsageError, match="pytrees have different tree structures"):
        optimizer.update({"a": lg.ones(2)}, {"b": lg.ones(2)}, optimizer.init({"a": lg.ones(2)}))


def test_minimize_takes_every_optimizer() -> None:
    def loss(p: Any, target: Any) -> Any:
        return lg.sum((p["a"] - target) ** 2) + (p["b"] + 1.0) ** 2

    start = {"a": lg.zeros(2, dtype=lg.float64), "b": lg.asarray(0.0, dtype=lg.float64)}
    target, told = lg.asarray([3.0, 4.0], dtype=lg.float64), []
    for optimizer in (lg.optim.SGD(0.2), lg.optim.Adam(0.2), lg.optim.LBFGS()):
        found = lg.optim.minimize(
            loss, start, optimizer, arguments=(target,), progress=lambda index, value: told.append((index, value))
        )
        np.testing.assert_allclose(found.parameters["a"].numpy(), [3.0, 4.0], atol=0.05)
        assert told[-1][1] == found.losses[-1]
    assert found.converged
    assert len(lg.optim.minimize(loss, start, lg.optim.LBFGS(), steps=1, arguments=(target,)).losses) == 2


@pytest.mark.parametrize("optimizer", [lg.optim.SGD(0.1), lg.optim.Adam(0.1)])
def test_a_gradient_of_another_shape_raises(optimizer: Any) -> None:
    parameters = {"a": lg.asarray(1.0)}
    with pytest.raises(lg.ShapeError, match="a gradient must have the shape of its parameter"):
        optimizer.update(parameters, {"a": lg.ones(2)}, optimizer.init(parameters))


@pytest.mark.parametrize("dtype", [lg.float16, lg.bfloat16])
def test_adam_averages_half_floats_in_float32(dtype: Any) -> None:
    start = lg.asarray([1.0, 0.0, 2.0], dtype=dtype)
    scale = lg.asarray([1.0, 1.0, 1e-3], dtype=dtype)  # a zero gradient, and one whose square underflows in float16
    found = lg.optim.minimize(lambda p: lg.sum(scale * p * p), start, lg.optim.Adam(0.05), steps=40)
    assert found.parameters.dtype == dtype
    exact = lg.optim.minimize(
        lambda p: lg.sum(lg.astype(scale, lg.float32) * p * p),
        lg.astype(start, lg.float32),
        lg.optim.Adam(0.05),
        steps=40,
    )
    np.testing.assert_allclose(found.parameters.numpy(), exact.parameters.numpy(), atol=0.05)
