"""Loops and branches over complex tensors: kernels compute them from real and imaginary parts, as NumPy does."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import livegrad as lg
from livegrad.runtime.cpu import CpuFunction
from livegrad.schedule.plan import HostStep
from livegrad.tensors.tracing import trace_call

X = np.asarray([0.3 + 0.9j, -0.7 + 0.2j, 0.1 - 0.6j, 0.8 + 0.5j, -0.2 - 0.4j])


def host_steps(function: Callable[..., Any], *arguments: Any) -> list[str]:
    types = [lg.asarray(argument).type for argument in arguments]
    plan = CpuFunction(trace_call(function, types, "program").function).schedule()
    return [step.op.name for step in plan.steps if isinstance(step, HostStep)]


def squared(z: Any) -> Any:
    return lg.fori_loop(0, 6, lambda i, z: z * z * 0.3 + lg.asarray(X), z)


def recurrence(x: Any) -> Any:
    def body(i: Any, x: Any) -> Any:
        x[i] = x[i - 1] * (0.5 + 1j) + lg.conj(x[i])
        return x

    return lg.fori_loop(1, 5, body, x + 0)


@pytest.mark.parametrize("program", [squared, recurrence])
def test_a_loop_of_complex_arithmetic_is_kernels(program: Callable[..., Any]) -> None:
    assert host_steps(program, X) == []


def test_a_loop_over_a_complex_tensor() -> None:
    expected = X.copy()
    for _ in range(6):
        expected = expected * expected * 0.3 + X
    np.testing.assert_allclose(lg.jit(squared)(lg.asarray(X)).numpy(), expected, rtol=1e-14)


def test_reads_and_writes_of_complex_elements() -> None:
    expected = X.copy()
    for i in range(1, 5):
        expected[i] = expected[i - 1] * (0.5 + 1j) + np.conj(expected[i])
    np.testing.assert_allclose(lg.jit(recurrence)(lg.asarray(X)).numpy(), expected, rtol=1e-14)


def test_branches_with_real_and_complex_values() -> None:
    def grown(x: Any, a: Any) -> Any:
        def body(i: Any, state: Any) -> Any:
            return lg.cond(
                lg.real(state[0][0]) > 0.2,
                lambda x, a: (x * a, a * 0.9),
                lambda x, a: (lg.conj(x) + 1, a + 0.1),
                *state,
            )

        return lg.fori_loop(0, 5, body, (x, a))

    x, a = X.copy(), 0.7
    for _ in range(5):
        x, a = (x * a, a * 0.9) if x[0].real > 0.2 else (np.conj(x) + 1, a + 0.1)
    found = lg.jit(grown)(lg.asarray(X), lg.asarray(0.7, dtype=lg.float64))
    np.testing.assert_allclose(found[0].numpy(), x, rtol=1e-14)
    np.testing.assert_allclose(found[1].numpy(), a, rtol=1e-14)


def test_ops_that_numpy_computes_may_be_inside() -> None:
    matrix = np.outer(X, np.conj(X))
    found = lg.jit(lambda x: lg.fori_loop(0, 3, lambda i, x: lg.exp(lg.asarray(matrix) @ x * 0.1), x))(lg.asarray(X))
    expected = X.copy()
    for _ in range(3):
        expected = np.exp(matrix @ expected * 0.1)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-13)


def test_while_loops_and_scans() -> None:
    def turned(x: Any) -> Any:
        return lg.while_loop(
            lambda state: lg.abs(state[0][0]) < 3.0,
            lambda state: (state[0] * (1.1 + 0.1j), state[1] + 1),
            (x, lg.asarray(0)),
        )

    x, count = X.copy(), 0
    while abs(x[0]) < 3.0:
        x, count = x * (1.1 + 0.1j), count + 1
    found = lg.jit(turned)(lg.asarray(X))
    np.testing.assert_allclose(found[0].numpy(), x, rtol=1e-13)
    assert int(found[1]) == count
    start = lg.asarray(1 + 0j, dtype=lg.complex128)
    last, every = lg.jit(lambda x: lg.scan(lambda c, v: (c * v + 1j, c), start, x))(lg.asarray(X))
    c, before = 1 + 0j, []
    for v in X:
        before.append(c)
        c = c * v + 1j
    np.testing.assert_allclose(last.numpy(), c, rtol=1e-14)
    np.testing.assert_allclose(every.numpy(), before, rtol=1e-14)


def test_derivatives_of_both_modes_and_second_order() -> None:
    def loss(t: Any) -> Any:
        last = lg.fori_loop(0, 4, lambda i, z: z * z * 0.3 + t * lg.asarray(X), lg.asarray(X) * t)
        return lg.sum(lg.abs(last) ** 2)

    for function in (loss, lg.grad(loss)):
        lg.check_gradients(function, lg.asarray(0.4, dtype=lg.float64))
