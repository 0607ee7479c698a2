"""Variables that are declared after values have been computed from them: the whole gradient, or an error."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import livegrad as lg
from livegrad.ir.walk import toposort
from livegrad.lazy.lazy_values import leaf_of


def read_often(x: lg.Tensor, steps: int) -> lg.Tensor:
    """Values that depend on x through more and more reads."""
    total = lg.sin(x * 2.0)
    for _ in range(steps):
        total = total * 0.5 + x
        total.execute()
        total.numpy()
    return total


def expected(values: np.ndarray, steps: int) -> np.ndarray:
    slope = 2.0 * np.cos(2.0 * values)
    for _ in range(steps):
        slope = slope * 0.5 + 1.0
    return slope


@pytest.mark.parametrize("size", [3, 3000])
@pytest.mark.parametrize("steps", [0, 1, 4, 8, 12, 30])
def test_a_late_variable_gets_the_whole_gradient_or_an_error(size: int, steps: int) -> None:
    values = np.linspace(0.0, 1.0, size)
    x = lg.asarray(values)
    loss = lg.sum(read_often(x, steps) * 1.0 + x * x)
    x.requires_grad_()
    if steps > 8:
        with pytest.raises(lg.LivegradError, match=r"computed before `requires_grad_\(\)`"):
            loss.backward()
    else:
        loss.backward()
        assert x.grad is not None
        np.testing.assert_allclose(x.grad.numpy(), expected(values, steps) + 2.0 * values, rtol=1e-10)


def late_loss(part: Callable[[lg.Tensor], lg.Tensor]) -> tuple[lg.Tensor, lg.Tensor]:
    x = lg.asarray(np.linspace(0.0, 1.0, 3000))
    history = read_often(x, 20)
    x.requires_grad_()
    return x, lg.sum(x * part(history))


def test_what_is_detached_is_no_error() -> None:
    x, loss = late_loss(lambda history: history.detach())
    loss.backward()
    assert x.grad is not None


def test_other_variables_are_not_concerned() -> None:
    x, _ = late_loss(lambda history: history)
    w = lg.ones(3000).requires_grad_()
    lg.sum(w * w + x.detach()).backward()
    assert w.grad is not None
    x.requires_grad_(False)
    lg.sum(w * read_often(x, 20)).backward()


def test_variables_that_are_declared_first_may_be_read_often() -> None:
    values = np.linspace(0.0, 1.0, 3000)
    x = lg.asarray(values).requires_grad_()
    average = lg.zeros(3000, dtype=lg.float64)
    for _ in range(30):  # of values without their history, as optimizers keep them
        average = average * 0.9 + x.detach() * 0.1
        average.execute()
    lg.sum(read_often(x, 20) + x * average).backward()
    assert x.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), expected(values, 20) + average.numpy(), rtol=1e-10)


# --- variables that are computed themselves --------------------------------------------------------------------------


@pytest.mark.parametrize("size", [3, 3000])
@pytest.mark.parametrize("earlier", [0, 3, 12])
@pytest.mark.parametrize("steps", [0, 1, 5, 12, 30])
def test_a_late_computed_variable_gets_the_whole_gradient_or_an_error(size: int, steps: int, earlier: int) -> None:
    x = lg.asarray(np.linspace(0.1, 1.0, size))
    y = read_often(x, earlier)  # its own history may be cut off before or after that of `loss`
    values = y.numpy()
    loss = lg.sum(read_often(y, steps) * 1.0 + y * y)
    y.requires_grad_()
    try:
        loss.backward()
    except lg.DifferentiationError:
        assert steps + earlier > 6
    else:
        assert steps < 12
        assert y.grad is not None
        np.testing.assert_allclose(y.grad.numpy(), expected(values, steps) + 2.0 * values, rtol=1e-10)


@pytest.mark.parametrize("size", [3, 3000])
def test_an_element_that_becomes_a_variable_late(size: int) -> None:
    x = lg.asarray(np.ones((2, size)))
    row = x[0]
    loss = lg.sum(read_often(row, 20) * row)
    row.requires_grad_()
    with pytest.raises(lg.LivegradError, match=r"computed before `requires_grad_\(\)`"):
        loss.backward()


@pytest.mark.parametrize("size", [3, 3000])
def test_values_that_share_only_data_or_integers_with_a_late_variable_are_no_error(size: int) -> None:
    x = lg.asarray(np.linspace(0.1, 1.0, size))
    y = lg.sin(x)
    y.numpy()
    beside = read_often(lg.cos(x), 20)
    counts = lg.astype(y > 0.5, lg.float64)
    for _ in range(20):
        counts = counts * 0.5 + 1.0
        counts.execute()
        counts.numpy()
    detached = read_often(y.detach(), 20)
    y.requires_grad_()
    lg.sum(y * (beside + counts + detached)).backward()
    assert y.grad is not None
    np.testing.assert_allclose(y.grad.numpy(), (beside + counts + detached).numpy(), rtol=1e-12)


def test_a_tensor_that_is_gone_leaves_no_trace() -> None:
    x = lg.asarray(np.linspace(0.1, 1.0, 3))
    state = x * 1.0
    for _ in range(200):
        state = state * 0.9 + lg.sin(state)
        state.numpy()
    (data,) = [node for node in toposort([state.node]) if (leaf := leaf_of(node)) is not None and leaf.detached][:1]
    assert len(data.attribute("key").ancestors) < 20
