"""Training loops with `backward()` keep a bounded history, however parameters are updated and whatever is read."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import livegrad as lg
from livegrad.ir.node import live_node_count
from livegrad.state import fresh_session

PARAMETERS = 6
Update = Callable[[lg.Tensor, lg.Tensor], None]  # of a parameter and its momentum


def gradient_of(p: lg.Tensor) -> lg.Tensor:
    assert p.grad is not None
    return p.grad


def subtract(p: lg.Tensor, m: lg.Tensor) -> None:
    p -= 0.01 * gradient_of(p)


def subtract_momentum(p: lg.Tensor, m: lg.Tensor) -> None:
    m *= 0.9
    m += gradient_of(p)
    p -= 0.01 * m


def assign(p: lg.Tensor, m: lg.Tensor) -> None:
    p[...] = p.detach() - 0.01 * gradient_of(p)


def average(p: lg.Tensor, m: lg.Tensor) -> None:
    p -= 0.01 * gradient_of(p)
    m *= 0.99
    m += 0.01 * p.detach()


def optimize(p: lg.Tensor, m: lg.Tensor) -> None:
    optimizer = lg.optim.SGD(learning_rate=0.01, momentum=0.9)
    state = {"step": lg.asarray(0), "velocity": m.detach()}
    moved, state = optimizer.update(p.detach(), gradient_of(p), state)
    p[...] = moved
    m[...] = state["velocity"]


UPDATES: list[Update] = [subtract, subtract_momentum, assign, average, optimize]


def train(update: Update, steps: int, reads: Callable[[int], bool]) -> tuple[list[int], bytes]:
    """Returns the number of live nodes after each step, and the parameters at the end."""
    numbers = np.random.default_rng(0)
    parameters = [lg.asarray(numbers.standard_normal((3, 3)) * 0.4).requires_grad_() for _ in range(PARAMETERS)]
    momenta = [lg.zeros((3, 3), dtype=lg.float64) for _ in parameters]
    x = lg.asarray(numbers.standard_normal((3, 3)))
    counts: list[int] = []
    for step in range(steps):
        y = x
        for p in parameters:
            y = lg.tanh(y @ p)
        loss = lg.mean(y * y)
        loss.backward()
        for p, m in zip(parameters, momenta, strict=True):
            update(p, m)
            p.grad = None
        if reads(step):
            float(loss)
        counts.append(live_node_count())
    return counts, b"".join(p.numpy().tobytes() for p in parameters)


@pytest.mark.own_process
@pytest.mark.parametrize("update", UPDATES)
@pytest.mark.parametrize("period", [1, 7, 1000])
def test_the_number_of_nodes_stays_the_same(update: Update, period: int) -> None:
    with fresh_session():
        counts, _ = train(update, 132, lambda step: step % period == period - 1)
    assert max(counts[76:]) <= 1.2 * max(counts[20:76])  # histories are truncated every eight reads


@pytest.mark.parametrize("update", UPDATES)
def test_parameters_do_not_depend_on_what_is_read(update: Update) -> None:
    values = [train(update, 12, reads)[1] for reads in (lambda step: True, lambda step: step % 5 == 0, bool)]
    arrays = [np.frombuffer(value) for value in (*values, train(update, 12, lambda step: False)[1])]
    for array in arrays[1:]:
        np.testing.assert_allclose(array, arrays[0], rtol=1e-11, atol=1e-13)


def test_a_loop_that_reads_each_step_runs_nothing_in_backward() -> None:
    with fresh_session():
        p, x = lg.asarray(np.ones(3)).requires_grad_(), lg.asarray(np.arange(3.0))
        for _ in range(20):
            loss = lg.sum((p * x - 1.0) ** 2)
            before = lg.stats().executions
            loss.backward()
            assert lg.stats().executions == before
            p -= 0.01 * gradient_of(p)
            p.grad = None
            float(loss)
