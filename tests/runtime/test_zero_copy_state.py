"""Loops over tensors read large state from the caller's array, and write it to the array of the result."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import livegrad as lg
from livegrad.runtime.cpu import loop_body, native_loops, zero_copy_state
from livegrad.runtime.cpu.compiled_plan import CompiledPlan
from livegrad.runtime.cpu.cpu_function import CpuFunction, run_function
from livegrad.runtime.cpu.cpu_target import CPU
from livegrad.schedule.plan import HostStep
from livegrad.tensors.tracing import trace_call

GENERATOR = np.random.default_rng(3)
GRID = GENERATOR.normal(size=(9, 11))


def relax(grid: Any) -> Any:
    grid[1:-1, 1:-1] = 0.25 * (grid[2:, 1:-1] + grid[:-2, 1:-1] + grid[1:-1, 2:] + grid[1:-1, :-2])
    return grid


def relaxed(grid: np.ndarray[Any, Any], sweeps: int) -> np.ndarray[Any, Any]:
    grid = grid.copy()
    for _ in range(sweeps):
        grid = relax(grid)
    return grid


@pytest.fixture(params=["zero copy", "copied"])
def limit(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, without_caches: None) -> str:
    """Makes all state zero-copy, or none."""
    bytes_ = 1 if request.param == "zero copy" else 1 << 40
    monkeypatch.setattr(zero_copy_state, "ZERO_COPY_BYTES", bytes_)
    monkeypatch.setattr(loop_body, "ZERO_COPY_BYTES", bytes_)
    monkeypatch.setattr(native_loops.settings, "enabled", False)
    return request.param


@pytest.mark.parametrize("sweeps", [0, 1, 2, 3, 4, 7])
def test_the_argument_does_not_change_for_any_number_of_iterations(limit: str, sweeps: int) -> None:
    run = lg.jit(lambda grid: lg.fori_loop(0, sweeps, lambda _, g: relax(g), grid))
    argument = lg.asarray(GRID)
    for _ in range(3):
        np.testing.assert_allclose(np.asarray(run(argument)), relaxed(GRID, sweeps), rtol=1e-13)
    np.testing.assert_array_equal(np.asarray(argument), GRID)


def test_the_count_may_be_an_argument_and_results_outlive_later_runs(limit: str) -> None:
    run = lg.jit(lambda grid, count: lg.fori_loop(0, count, lambda _, g: relax(g), grid))
    results = [(count, run(GRID * (count + 1.0), count)) for count in (3, 0, 2, 1, 5, 0)]
    for count, actual in results:
        np.testing.assert_allclose(np.asarray(actual), relaxed(GRID * (count + 1.0), count), rtol=1e-13)


def test_a_while_loop_ends_on_either_side(limit: str) -> None:
    def shrink(grid: Any, most: Any) -> Any:
        return lg.while_loop(lambda g: lg.max(lg.abs(g)) > most, lambda g: lg.roll(g, 1, axis=0) * 0.5, grid)

    run = lg.jit(shrink)
    for most in (0.1, 0.3, 0.6, 1.5, 100.0):
        expected = GRID.copy()
        while np.max(np.abs(expected)) > most:
            expected = np.roll(expected, 1, axis=0) * 0.5
        np.testing.assert_array_equal(np.asarray(run(GRID, most)), expected)


def test_fields_that_are_swapped_and_summed_keep_their_values(limit: str) -> None:
    def both(x: Any, y: Any) -> Any:
        a, b, total = lg.fori_loop(0, 5, lambda i, s: (s[1], relax(s[0] + 0.0), s[2] + lg.sum(s[0])), (x, y, 0.0))
        return a + b, b, total

    a, b, total = GRID, GRID * 2.0, 0.0
    for _ in range(5):
        a, b, total = b, relax(a.copy()), total + a.sum()
    for actual, expected in zip(lg.jit(both)(GRID, GRID * 2.0), (a + b, b, total), strict=True):
        np.testing.assert_allclose(np.asarray(actual), expected, rtol=1e-12)


def test_a_body_with_host_steps_finds_its_arrays(limit: str) -> None:
    def step(_: Any, grid: Any) -> Any:
        return lg.sort(grid, axis=0) * 0.9 + lg.roll(grid, 1, axis=1)

    expected = GRID.copy()
    for _ in range(3):
        expected = np.sort(expected, axis=0) * 0.9 + np.roll(expected, 1, axis=1)
    actual = lg.jit(lambda grid: lg.fori_loop(0, 3, step, grid))(GRID)
    np.testing.assert_allclose(np.asarray(actual), expected, rtol=1e-12)


def test_gradients_go_through_the_same_memory(limit: str) -> None:
    def loss(grid: Any) -> Any:
        return lg.sum(lg.fori_loop(0, 3, lambda _, g: relax(lg.sin(g)), grid) ** 2)

    gradient = np.asarray(lg.jit(lg.grad(loss))(GRID))
    direction = GENERATOR.normal(size=GRID.shape)
    step = 1e-6
    up, down = (float(loss(lg.asarray(GRID + sign * step * direction))) for sign in (1.0, -1.0))
    np.testing.assert_allclose(np.sum(gradient * direction), (up - down) / (2 * step), rtol=1e-6)


def test_a_large_state_is_never_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    """State is copied neither in nor out: only steps of the loop access it."""
    grid = GENERATOR.normal(size=(120, 120))
    program = lambda g: lg.fori_loop(0, 4, lambda _, s: relax(s), g)  # noqa: E731
    function = trace_call(program, [lg.asarray(grid).type], "program").function
    plan = CpuFunction(function).schedule(target=CPU)
    assert [step.op.name for step in plan.steps if isinstance(step, HostStep)] == ["for_loop"]
    compiled = CompiledPlan.from_plan(plan, run_function)
    expected = relaxed(grid, 4)
    compiled.run([grid])
    copied: list[int] = []
    copy = np.copyto
    monkeypatch.setattr(np, "copyto", lambda to, value, **options: (copied.append(to.nbytes), copy(to, value)))
    (actual,) = compiled.run([grid])
    assert max(copied, default=0) < grid.nbytes
    np.testing.assert_allclose(actual, expected, rtol=1e-13)
