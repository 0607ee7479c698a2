"""Counted loops over tensors become kernels of the enclosing plan, for all kinds of state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import livegrad as lg
from livegrad.diagnostics import KernelCheckError
from livegrad.runtime.cpu import native_loops
from livegrad.runtime.cpu.compiled_plan import CompiledPlan
from livegrad.runtime.cpu.cpu_function import compile_function
from livegrad.runtime.cpu.native_loops import NativeLoop
from livegrad.state import fresh_session
from livegrad.tensors.tracing import trace_call

GENERATOR = np.random.default_rng(5)
GRID = GENERATOR.normal(size=(70, 60))

Body = Callable[[Any, Any], Any]


def diffuse(u: Any) -> Any:
    after = u + 0.0
    after[1:-1, 1:-1] = 0.2 * (u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] + u[1:-1, 1:-1])
    return after


def plan_of(function: Callable[..., Any], *arrays: Any) -> CompiledPlan:
    types = [lg.asarray(array).type for array in arrays]
    return compile_function(trace_call(function, types, "traced").function).plan({})


def loops_in(plan: CompiledPlan) -> list[NativeLoop]:
    return [call for call in plan.calls if isinstance(call, NativeLoop)]


def run_both_ways(function: Callable[..., Any], *arrays: Any) -> list[list[np.ndarray[Any, Any]]]:
    """The results of three calls with native loops, and of one without."""
    runs = []
    for enabled in (True, False):
        with fresh_session(), pytest.MonkeyPatch.context() as patch:
            patch.setattr(native_loops.settings, "enabled", enabled)
            compiled, tensors = lg.jit(function), [lg.asarray(array) for array in arrays]
            runs += [[np.array(leaf) for leaf in compiled(*tensors)] for _ in range(3 if enabled else 1)]
            for tensor, array in zip(tensors, arrays, strict=True):
                np.testing.assert_array_equal(np.asarray(tensor), array)
    return runs


def wave(steps: int) -> Callable[..., Any]:
    def step(_: Any, fields: Any) -> Any:
        before, now = fields
        return now, 2.0 * diffuse(now) - before

    return lambda before, now: lg.fori_loop(0, steps, step, (before, now))


def test_a_run_is_one_native_call_and_old_values_are_not_copied() -> None:
    plan = plan_of(wave(9), GRID, GRID)
    plan.run([GRID, 2.0 * GRID])
    plan.run([GRID, 2.0 * GRID])  # the second run makes the native entry
    assert plan._entry is not None
    assert len(loops_in(plan)) == 1
    memory = loops_in(plan)[0].code.memory
    assert len(memory.dropped) == 1
    assert not memory.copies_before
    assert not memory.copies_after
    assert (memory.lead, memory.period) == (2, 3)


@pytest.mark.parametrize("steps", range(9))
def test_state_that_rotates_ends_where_the_results_belong(steps: int) -> None:
    before, now = GRID, GRID[::-1].copy()
    runs = run_both_ways(wave(steps), before, now)
    for _ in range(steps):
        before, now = now, 2.0 * diffuse(now) - before
    for run in runs:
        np.testing.assert_allclose(run, [before, now], rtol=1e-11)
        assert all(np.array_equal(actual, first) for actual, first in zip(run, runs[0], strict=True))


def random_body(choose: np.random.Generator, count: int) -> Body:
    """A body whose leaves are computed, updated in place, delayed, swapped or unchanged."""
    kinds = [
        str(choose.choice(["computed", "part", "delayed", "older", "same", "rolled", "index", "nested"]))
        for _ in range(count)
    ]
    kinds[-1] = "computed"
    others = [int(choose.integers(count)) for _ in range(count)]

    def body(index: Any, state: Any) -> Any:
        results = []
        for leaf, (value, kind, other) in enumerate(zip(state, kinds, others, strict=True)):
            match kind:
                case "older":
                    results.append(state[leaf + 1])
                case "computed":
                    results.append(diffuse(value) + 0.25 * state[other])
                case "part":
                    changed = value + 0.0
                    changed[3, :] = 0.5 * state[other][4, :]
                    results.append(changed)
                case "delayed":
                    results.append(state[other])
                case "nested":
                    results.append(lg.fori_loop(0, 1 + other, lambda _, u: lg.roll(diffuse(u), 1, axis=1), value))
                case "rolled":
                    results.append(lg.roll(state[other], 1, axis=0) - 0.5 * value)
                case "index":
                    results.append(value + 0.1 * lg.astype(index, value.dtype))
                case _:
                    results.append(value)
        return tuple(results)

    return body


@pytest.mark.parametrize("seed", range(40))
def test_random_bodies_have_the_bits_of_loops_that_python_runs(seed: int) -> None:
    choose = np.random.default_rng(seed)
    count, steps = int(choose.integers(1, 6)), int(choose.integers(0, 8))
    body = random_body(choose, count)
    arrays = [GENERATOR.normal(size=(70, 60)) for _ in range(count)]
    runs = run_both_ways(lambda *state: lg.fori_loop(0, steps, body, state), *arrays)
    for run in runs[:-1]:
        for actual, expected in zip(run, runs[-1], strict=True):
            np.testing.assert_array_equal(actual, expected)


def test_most_random_bodies_are_native() -> None:
    native = delayed = in_place = 0
    for seed in range(40):
        choose = np.random.default_rng(seed)
        count, steps = int(choose.integers(1, 6)), int(choose.integers(0, 8))
        body = random_body(choose, count)
        for loop in loops_in(plan_of(lambda *state, b=body, n=steps: lg.fori_loop(0, n, b, state), *[GRID] * count)):
            memory = loop.code.memory
            native, delayed, in_place = (
                native + 1,
                delayed + bool(memory.dropped),
                in_place + bool(memory.copies_before),
            )
    assert min(native - 15, delayed, in_place) >= 5, (native, delayed, in_place)


def relaxations(u: Any) -> Any:
    """Smoothing on two grids, in a loop."""

    def relax(u: Any, steps: int) -> Any:
        return lg.fori_loop(0, steps, lambda _, u: diffuse(u), u)

    def cycle(_: Any, u: Any) -> Any:
        u = relax(u, 2)
        correction = relax(u[::2, ::2] + 0.0, 3)
        u[::2, ::2] = correction
        return relax(u, 2)

    return lg.fori_loop(0, 3, cycle, u)


def test_loops_inside_loops_are_native_too() -> None:
    large = np.random.default_rng(3).normal(size=(300, 260))
    plan = plan_of(relaxations, large)
    assert [len(loop.code.loops) for loop in loops_in(plan)] == [3]
    runs = run_both_ways(lambda u: (relaxations(u), u), large)
    for run in runs[:-1]:
        np.testing.assert_array_equal(run[0], runs[-1][0])


def test_a_failed_check_of_a_loop_inside_ends_all_loops() -> None:
    def walk(u: Any, start: Any) -> Any:
        def inner(u: Any, where: Any) -> Any:
            return lg.fori_loop(0, 2, lambda _, s: (lg.roll(s[0], 1, axis=1) + s[0][s[1]], s[1] + 20), (u, where))

        return lg.fori_loop(0, 2, lambda _, s: (inner(s[0], s[1])[0], s[1] + 1), (u, start))

    large = np.random.default_rng(3).normal(size=(300, 260))
    good, bad = lg.asarray(5), lg.asarray(290)
    plan = plan_of(walk, large, good)
    assert [[inner.has_checks for inner in loop.code.loops] for loop in loops_in(plan)] == [[True]]
    run = lg.jit(walk)
    expected = np.asarray(run(lg.asarray(large), good)[0])
    for _ in range(2):
        with pytest.raises(KernelCheckError, match="index out of range"):
            np.asarray(run(lg.asarray(large), bad)[0])
        np.testing.assert_array_equal(np.asarray(run(lg.asarray(large), good)[0]), expected)


def test_results_are_reused_and_one_argument_may_be_two_states() -> None:
    def twice(u: Any) -> Any:
        a, b = wave(5)(u, u)
        c, d = wave(4)(a + b, b)
        return a, lg.sum(c), d

    runs = run_both_ways(twice, GRID)
    for actual, expected in zip(runs[0], runs[-1], strict=True):
        np.testing.assert_array_equal(actual, expected)


def test_a_failed_check_ends_the_loop_and_the_next_run_is_clean() -> None:
    def walk(u: Any, start: Any) -> Any:
        def step(i: Any, state: Any) -> Any:
            u, where = state
            return lg.roll(u, 1, axis=1) + u[where] * 0.5, where + 20

        return lg.fori_loop(0, 3, step, (u, start))

    run = lg.jit(walk)
    good, bad = lg.asarray(5), lg.asarray(45)
    assert [loop.status_address != 0 for loop in loops_in(plan_of(walk, GRID, good))] == [True]
    expected = np.asarray(run(lg.asarray(GRID), good)[0])
    for _ in range(3):
        with pytest.raises(KernelCheckError):
            np.asarray(run(lg.asarray(GRID), bad)[0])
        np.testing.assert_array_equal(np.asarray(run(lg.asarray(GRID), good)[0]), expected)
