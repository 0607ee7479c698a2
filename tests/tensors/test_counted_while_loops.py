"""While loops that count become `for_loop`s with the same values and derivatives, for any bounds."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import livegrad as lg
from livegrad.ir.walk import nodes_of
from livegrad.tensors.tracing import trace_call


def loops_in(function: Callable[..., Any], *arrays: Any) -> list[str]:
    traced = trace_call(function, [lg.asarray(array).type for array in arrays], "f").function
    return [node.op.name for node in nodes_of(traced) if node.op.name in ("for_loop", "while_loop")]


def count(condition: Callable[[Any, Any], Any], step: Callable[[Any], Any]) -> Callable[..., Any]:
    """Returns the number of iterations and the result of a loop from `start` up to `stop`."""

    def run(start: Any, stop: Any, x: Any) -> Any:
        state = (start, stop, lg.asarray(0), x)
        state = lg.while_loop(
            lambda s: condition(s[0], s[1]), lambda s: (step(s[0]), s[1], s[2] + 1, lg.sin(s[3]) + s[3] * 0.5), state
        )
        return state[0], state[2], state[3]

    return run


def plainly(condition: Callable[[Any, Any], Any], step: Callable[[Any], Any], start: int, stop: int, x: Any) -> Any:
    times = 0
    while condition(start, stop):
        start, times, x = step(start), times + 1, np.sin(x) + x * 0.5
    return start, times, x


COUNTING = {
    "k < n": (lambda k, n: k < n, lambda k: k + 1),
    "n > k": (lambda k, n: n > k, lambda k: 1 + k),
    "k <= n": (lambda k, n: k <= n, lambda k: k + 1),
    "n >= k, by 3": (lambda k, n: n >= k, lambda k: k + 3),
    "k < n, by 4": (lambda k, n: k < n, lambda k: k + 4),
}
OTHERS = {
    "down": (lambda k, n: n < k, lambda k: k - 1),
    "doubled": (lambda k, n: k < n, lambda k: k * 2 + 1),
    "not equal": (lambda k, n: k != n, lambda k: k + 1),
}


@pytest.mark.parametrize("name", COUNTING)
@pytest.mark.parametrize(("start", "stop"), [(0, 7), (3, 3), (5, 2), (-4, 6), (0, 1), (-9, -8)])
def test_a_loop_that_counts_runs_as_often_as_in_python(name: str, start: int, stop: int) -> None:
    condition, step = COUNTING[name]
    x = np.linspace(-1.0, 1.0, 5)
    assert loops_in(count(condition, step), np.asarray(start), np.asarray(stop), x) == ["for_loop"]
    found = count(condition, step)(lg.asarray(start), lg.asarray(stop), lg.asarray(x))
    for one, other in zip(found, plainly(condition, step, start, stop, x), strict=True):
        np.testing.assert_allclose(np.asarray(one), other, rtol=1e-14)


@pytest.mark.parametrize("name", OTHERS)
def test_other_loops_stay_while_loops(name: str) -> None:
    condition, step = OTHERS[name]
    assert loops_in(count(condition, step), np.asarray(0), np.asarray(3), np.ones(2)) == ["while_loop"]


def test_a_bound_that_changes_or_a_limit_keeps_the_while_loop() -> None:
    def moving(x: Any) -> Any:
        return lg.while_loop(lambda s: s[0] < s[1], lambda s: (s[0] + 2, s[1] + 1, s[2] * x), (lg.asarray(0), 4, x))[2]

    def limited(x: Any) -> Any:
        return lg.while_loop(lambda s: s[0] < 9, lambda s: (s[0] + 1, s[1] * x), (lg.asarray(0), x), max_iters=5)[1]

    assert loops_in(moving, np.ones(2)) == loops_in(limited, np.ones(2)) == ["while_loop"]
    np.testing.assert_allclose(np.asarray(moving(lg.asarray([2.0]))), [32.0])
    with pytest.raises(lg.LivegradError, match="limit of 5"):
        np.asarray(limited(lg.asarray([2.0])))


def test_derivatives_and_batches_of_a_counting_loop_equal_those_of_a_fori_loop() -> None:
    x, steps = lg.asarray(np.linspace(0.1, 1.0, 6)), lg.asarray(np.asarray([0, 1, 5, 2, 3, 4]))

    def by_while(x: Any, n: Any) -> Any:
        return lg.while_loop(lambda s: s[0] < n, lambda s: (s[0] + 1, lg.sin(s[1]) * x), (lg.asarray(0), x))[1]

    def by_fori(x: Any, n: Any) -> Any:
        return lg.fori_loop(0, n, lambda i, y: lg.sin(y) * x, x)

    for function in (lambda f: lg.vmap(f)(x, steps), lambda f: lg.vmap(lg.grad(f))(x, steps)):
        np.testing.assert_array_equal(np.asarray(function(by_while)), np.asarray(function(by_fori)))


@lg.differentiable
def typed(x: float, n: int):
    y = x
    k = 0
    while k < n:
        y = lg.sin(y) * 1.5
        k += 1
    return y


def test_a_typed_while_loop_that_counts_is_a_for_loop() -> None:
    assert "for_loop" in typed.ir()
    assert "while_loop" not in typed.ir()
    assert typed(0.3, 4) == typed.python(0.3, 4)
    slope = (typed.python(0.3 + 1e-6, 4) - typed.python(0.3 - 1e-6, 4)) / 2e-6
    np.testing.assert_allclose(lg.grad(typed)(0.3, 4), slope, rtol=1e-8)
