"""State that a loop stores for its derivative lives on the tape: the same bits, and a kernel less in each iteration."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import livegrad as lg
from livegrad.runtime.cpu import loop_body
from livegrad.runtime.cpu.state_rows import StateRow, find_state_rows
from livegrad.state import fresh_session

ITERATIONS = 7


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[StateRow]]:
    """The state that was found to live on tapes."""
    rows: list[StateRow] = []

    def find(*arguments: Any) -> list[StateRow]:
        rows.extend(find_state_rows(*arguments))
        return find_state_rows(*arguments)

    monkeypatch.setattr(loop_body, "find_state_rows", find)
    with fresh_session():
        yield rows


def transported(x: Any, n: int) -> Any:
    return lg.fori_loop(0, n, lambda _, u: lg.sin(lg.roll(u, 1, axis=0)) * u + u * 0.5, x)


def two_fields(x: Any, n: int) -> Any:
    def step(_: Any, state: Any) -> Any:
        u, v = state
        return u + 0.1 * lg.roll(u * v, 1, axis=0), v - 0.1 * lg.sin(u) * lg.roll(v, -1, axis=1)

    u, v = lg.fori_loop(0, n, step, (x, lg.cos(x)))
    return u * v


def delayed(x: Any, n: int) -> Any:
    """A wave: the state has the value before the last one too."""

    def step(_: Any, state: Any) -> Any:
        before, now = state
        return now, lg.sin(now) * 2.0 - before + 0.1 * lg.roll(now, 1, axis=0) * before

    return lg.fori_loop(0, n, step, (x, lg.sin(x)))[1]


def edges(x: Any, n: int) -> Any:
    """The first row is the same in all iterations."""
    return lg.fori_loop(0, n, lambda _, u: lg.concat([u[:1], lg.sin(u[1:]) * u[:-1]]), x)


def of_loops(x: Any, n: int) -> Any:
    return lg.fori_loop(0, 3, lambda _, u: transported(u, n) * lg.mean(u), x)


def scanned(x: Any, n: int) -> Any:
    def step(u: Any, row: Any) -> Any:
        u = lg.tanh(lg.roll(u, 1, axis=0) * u + row)
        return u, u * row

    last, ys = lg.scan(step, x, x[:n] if n else x[:0])
    return last + lg.sum(ys)


PROGRAMS: list[Callable[[Any, int], Any]] = [transported, two_fields, delayed, edges, of_loops, scanned]


def gradients(program: Callable[[Any, int], Any], n: int) -> list[Any]:
    x, d = (lg.asarray(np.random.default_rng(seed).normal(size=(8, 5)) * 0.4) for seed in (0, 1))
    gradient = lg.jit(lg.grad(lambda y: lg.sum(program(y, n) ** 2)))
    second = lg.jit(lambda y: lg.jvp(gradient, [y], [d])[1])
    return [np.asarray(value) for value in (gradient(x), gradient(d), gradient(x), second(x))]


@pytest.mark.parametrize("n", [0, 1, 2, ITERATIONS])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_gradients_have_the_same_bits_where_state_is_copied(program: Callable[[Any, int], Any], n: int) -> None:
    with fresh_session():
        own = gradients(program, n)
    with pytest.MonkeyPatch.context() as patch, fresh_session():
        patch.setattr(loop_body, "find_state_rows", lambda *_: [])
        for value, other in zip(own, gradients(program, n), strict=True):
            np.testing.assert_array_equal(value, other)


@pytest.mark.parametrize("program", [transported, two_fields], ids=lambda program: program.__name__)
def test_the_state_of_a_loop_lives_on_the_tape(program: Callable[[Any, int], Any], found: list[StateRow]) -> None:
    x = lg.asarray(np.random.default_rng(0).normal(size=(8, 5)))
    np.asarray(lg.grad(lambda y: lg.sum(program(y, ITERATIONS)))(x))
    assert found


def test_results_of_earlier_calls_stay(found: list[StateRow]) -> None:
    """The last state is a row of a tape, which the next call must not overwrite."""

    def values(x: Any) -> Any:
        y, back = lg.vjp(lambda z: transported(z, ITERATIONS), x)
        return y, back(lg.ones_like(y))

    run = lg.jit(values)
    points = [lg.asarray(np.random.default_rng(seed).normal(size=(8, 5))) for seed in range(4)]
    results = [run(point) for point in points]
    again = [[np.asarray(value) for value in run(point)] for point in points]
    for result, other in zip(results, again, strict=True):
        for one, two in zip(result, other, strict=True):
            np.testing.assert_array_equal(np.asarray(one), two)
    assert found
