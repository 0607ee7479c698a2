"""`check_gradients` accepts correct derivatives and rejects wrong ones; `debug_nans` names the operation."""

from __future__ import annotations

from typing import Any

import pytest

import livegrad as lg
from livegrad.lazy import nan_checks


@pytest.mark.parametrize(
    "function",
    [
        lambda x: lg.sum(lg.sin(x) * x),
        lambda x: (lg.exp(x), {"mean": lg.mean(x)}),
        lambda x: lg.softmax(x, axis=0) @ x,
        lambda x: lg.grad(lambda x: lg.sum(lg.tanh(x) ** 3))(x),
        lambda x: lg.scan(lambda s, v: (s * v + 1.0, s), lg.asarray(1.0, dtype=x.dtype), x),
    ],
)
def test_right_derivatives_pass(function):
    lg.check_gradients(function, lg.asarray([0.5, 1.5, -0.7]))


def test_nests_and_several_arguments_are_checked():
    lg.check_gradients(
        lambda p, x: lg.sum(p["w"] @ x + p["b"]),
        {"w": lg.ones((2, 3)), "b": lg.asarray(0.5)},
        lg.asarray([1.0, 2.0, 3.0]),
    )


def square_with_slope(factor: float) -> Any:
    """A square with a derivative that is `factor` times what it should be."""
    square = lg.custom_jvp(lambda x: x * x)
    square.defjvp(lambda primals, tangents: (primals[0] * primals[0], factor * 2.0 * primals[0] * tangents[0]))
    return square


def test_a_wrong_forward_rule_is_found_with_the_line():
    lg.check_gradients(lambda x: lg.sum(square_with_slope(1.0)(x)), lg.asarray([1.0, 2.0]))
    with pytest.raises(lg.DifferentiationError, match=r"forward mode and central differences.*test_checks\.py"):
        lg.check_gradients(lambda x: lg.sum(square_with_slope(1.01)(x)), lg.asarray([1.0, 2.0]))


def test_debug_nans_finds_a_nan_in_a_derivative():
    with pytest.raises(lg.DifferentiationError, match="disagree"):
        lg.check_gradients(lambda x: lg.sum(lg.sqrt(x)), lg.asarray([0.0, 1.0]))


def test_integers_raise_with_the_source_line():
    with pytest.raises(lg.UsageError, match=r"needs float arguments \(test_checks\.py"):
        lg.check_gradients(lg.sum, lg.asarray([1, 2]))


def test_looking_for_nans_ends_with_the_block_also_after_an_error():
    with pytest.raises(lg.KernelCheckError), lg.debug_nans():
        lg.log(lg.asarray([-1.0])).execute()
    assert not nan_checks.watch.active
    lg.log(lg.asarray([-2.0])).execute()
    with lg.debug_nans(infinities=True):
        with lg.debug_nans():
            lg.log(lg.asarray([0.0])).execute()
        with pytest.raises(lg.KernelCheckError, match="infinity"):
            lg.log(lg.asarray([0.0]) * 1.0).execute()


@pytest.mark.parametrize(
    "loop",
    [
        lambda root, x: lg.scan(lambda state, row: (root(state - row), state), lg.asarray(1.0), x)[0],
        lambda root, x: lg.while_loop(lambda state: state > -9.0, lambda state: root(state) - 1.0, x[0]),
        lambda root, x: lg.cond(x[0] > 0.0, lambda: root(x - 1.0), lambda: x),
    ],
)
def test_the_first_nan_is_found_inside_loops_and_branches(loop: Any) -> None:
    def root(x: lg.Tensor) -> lg.Tensor:
        return lg.sqrt(x)

    with lg.debug_nans(), pytest.raises(lg.KernelCheckError, match="`sqrt` produced the first NaN") as caught:
        loop(root, lg.asarray([0.5, 2.0, 1.0])).execute()
    assert caught.value.where is not None
    assert caught.value.where.line == root.__code__.co_firstlineno + 1
