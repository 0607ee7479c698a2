"""Variables that are declared after values have been computed from them: the whole gradient, or an error."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import livegrad as lg


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
