"""Backward loops undo writes, with the same bits as if the whole tensor were stored in each iteration."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import livegrad as lg
from livegrad.runtime.cpu.compiled_plan import CompiledPlan
from livegrad.runtime.cpu.cpu_function import CpuFunction, run_function
from livegrad.runtime.cpu.cpu_target import CPU
from livegrad.tensors.handle import wrap
from livegrad.tensors.tracing import trace_call

N = 40
MATRIX = np.random.default_rng(0).normal(size=(N, N)) * 0.1
WITHOUT = CPU.without("restore_overwritten_tensors")


def by_column(j: Any, t: Any, a: Any) -> Any:
    t[:, j] = a[:, j] - t @ t[j]
    return t


def by_row_twice(i: Any, t: Any, a: Any) -> Any:
    t[i] = lg.sin(t @ a[i])
    t[(i + 3) % N] = t[i] * lg.tanh(lg.sum(t, axis=0))
    return t


def at_computed_rows(i: Any, t: Any, a: Any) -> Any:
    row = lg.astype(lg.abs(t[i, 0] * 1000.0), lg.int64) % N  # depends on the tensor itself
    t[row] = lg.sin(a[i] @ t) + t[i]
    return t


def added(i: Any, t: Any, a: Any) -> Any:
    return t.at[i].add(0.1 * lg.cos(t @ a[i]))


def repeated_elements(i: Any, t: Any, a: Any) -> Any:
    rows = lg.arange(3) // 2 + i % 4
    t[rows] = lg.sin(a[:3] @ (t * t))  # the last of equal rows wins
    return t


def one_element(i: Any, t: Any, a: Any) -> Any:
    t[i, N - 1 - i] = lg.sum(t * t * a)
    return t


def counted(step: Callable[..., Any]) -> Callable[[Any], Any]:
    return lambda a: lg.sum(lg.sin(lg.fori_loop(0, N, lambda i, t: step(i, t, a), a * 0.5)))


def until(step: Callable[..., Any]) -> Callable[[Any], Any]:
    """The same loop, which ends when an element is large: its number of iterations is data."""

    def program(a: Any) -> Any:
        def goes_on(state: Any) -> Any:
            return (state[0] < N - 5) & (lg.sum(state[1] * state[1]) < 1e6)

        def body(state: Any) -> Any:
            return state[0] + 1, step(state[0], state[1], a)

        return lg.sum(lg.sin(lg.while_loop(goes_on, body, (lg.asarray(0), a * 0.5))[1]))

    return program


def two_tensors(a: Any) -> Any:
    def step(i: Any, state: Any) -> Any:
        keys, values = state
        keys[i], values[i] = lg.sin(a[i]), lg.cos(a[i])
        values[(i + 1) % N] = lg.exp(-((keys @ a[i]) ** 2)) @ values
        return keys, values

    return lg.sum(lg.fori_loop(0, N, step, (lg.zeros_like(a), a + 0.0))[1])


STEPS = (by_column, by_row_twice, at_computed_rows, added, repeated_elements, one_element)
PROGRAMS = {step.__name__: counted(step) for step in STEPS}
PROGRAMS |= {f"{step.__name__}_until": until(step) for step in STEPS}
PROGRAMS["two_tensors"] = two_tensors


def gradient(program: Callable[[Any], Any], target: Any) -> tuple[Any, int]:
    """The gradient, and the memory of its plan in bytes."""
    traced = trace_call(lg.grad(program), [lg.asarray(MATRIX).type], "gradient")
    plan = CpuFunction(traced.function).schedule(target=target)
    captures = [np.asarray(wrap(node)) for node in traced.captures]
    return CompiledPlan.from_plan(plan, run_function).run([MATRIX, *captures])[0], plan.arena_bytes


@pytest.mark.parametrize("name", PROGRAMS)
def test_restored_tensors_have_the_same_bits(name: str) -> None:
    restored, less = gradient(PROGRAMS[name], CPU)
    stored, more = gradient(PROGRAMS[name], WITHOUT)
    np.testing.assert_allclose(restored, stored, rtol=1e-13, atol=1e-13)
    if not name.endswith("_until") and name != "repeated_elements":  # whose tapes are not in the arena
        assert 4 * less < more


@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients_agree_with_differences(name: str) -> None:
    program, direction = PROGRAMS[name], np.random.default_rng(1).normal(size=MATRIX.shape)
    slope = np.vdot(np.asarray(lg.grad(program)(lg.asarray(MATRIX))), direction)
    ends = [float(program(lg.asarray(MATRIX + sign * 1e-6 * direction))) for sign in (1.0, -1.0)]
    np.testing.assert_allclose(slope, (ends[0] - ends[1]) / 2e-6, rtol=2e-4, atol=1e-6)


def test_second_derivatives_agree() -> None:
    program = counted(by_column)
    direction = lg.asarray(MATRIX.T.copy())

    def slope(a: Any) -> Any:
        return lg.sum(lg.grad(program)(a) * direction)

    restored, _ = gradient(slope, CPU)
    stored, _ = gradient(slope, WITHOUT)
    np.testing.assert_allclose(restored, stored, rtol=1e-12, atol=1e-12)


def test_members_of_a_batch_restore_their_own_tensors() -> None:
    batch = np.stack([MATRIX[:, :8], MATRIX[:, 8:16], MATRIX[:, 16:24]])

    def program(a: Any) -> Any:
        def step(j: Any, t: Any) -> Any:
            t[j] = lg.sin(a[j] @ lg.matrix_transpose(t) @ t)
            return t

        return lg.sum(lg.fori_loop(0, N, step, a))

    together = np.asarray(lg.vmap(lg.grad(program))(lg.asarray(batch)))
    for member, own in zip(batch, together, strict=True):
        np.testing.assert_allclose(own, np.asarray(lg.grad(program)(lg.asarray(member))), rtol=1e-10, atol=1e-12)


def test_a_tensor_of_which_most_is_overwritten_is_stored() -> None:
    def step(i: Any, t: Any) -> Any:
        t[1:] = lg.sin(t[:-1] @ lg.matrix_transpose(t)) @ t
        return t

    program = lambda a: lg.sum(lg.fori_loop(0, 5, step, a))  # noqa: E731
    assert gradient(program, CPU)[1] == gradient(program, WITHOUT)[1]
