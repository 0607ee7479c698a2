"""Loops over tensors update state in place if they write only parts of it: NumPy's values, and no copies."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import livegrad as lg
from livegrad.compiler import compile_plan
from livegrad.runtime.cpu.compiled_plan import CompiledPlan
from livegrad.runtime.cpu.cpu_function import CpuFunction, run_function
from livegrad.runtime.cpu.cpu_target import CPU
from livegrad.schedule.plan import HostStep, KernelStep, Plan
from livegrad.tensors.tracing import trace_call

BY_TENSOR = CPU.without("loop_over_elements")  # which would make one kernel of these loops
STEPS = 6


def repeat(lib: Any, step: Callable[[Any, Any], Any], state: Any) -> Any:
    if lib is lg:
        return lg.fori_loop(0, STEPS, step, state)
    for index in range(STEPS):
        state = step(index, tuple(np.array(own) for own in state))
    return state


def function_of(program: Callable[..., Any], arrays: list[Any]) -> Any:
    types = [lg.asarray(array).type for array in arrays]
    return trace_call(lambda *tensors: program(lg, *tensors), types, "program").function


def body_of(program: Callable[..., Any], arrays: list[Any]) -> Plan:
    (step,) = [
        s for s in compile_plan(function_of(program, arrays), BY_TENSOR).steps if isinstance(s, HostStep) and s.loop
    ]
    assert step.loop is not None
    assert step.loop.plan is not None
    return step.loop.plan


def recurrent(lib: Any, x: Any, w: Any) -> Any:
    def step(t: Any, state: Any) -> Any:
        h, out = state
        h = lib.tanh(h @ w + x[t])
        out[t] = h
        return h, out

    return repeat(lib, step, (x[0] * 0.0, x * 0.0))


def cached(lib: Any, x: Any, w: Any) -> Any:
    """Reads the cache after it was written, and a row of the output before."""

    def step(t: Any, state: Any) -> Any:
        cache, out = state
        before = out[t - 1] + 0.0
        cache[t] = x[t] @ w
        out[t] = lib.sum(cache, axis=0) * 0.1 + before
        return cache, out

    return repeat(lib, step, (x * 0.0, x + 0.0))


ARRAYS = [np.random.default_rng(0).normal(size=(STEPS, 4, 16)), np.random.default_rng(1).normal(size=(16, 16)) * 0.2]


@pytest.mark.parametrize(("program", "written"), [(recurrent, [1]), (cached, [0, 1])])
def test_an_iteration_moves_only_the_bytes_it_writes(program: Callable[..., Any], written: list[int]) -> None:
    plan = body_of(program, ARRAYS)
    assert [n for n in range(2) if plan.results[n] is plan.arguments[1 + n]] == written
    notes = [step.note for step in plan.steps if isinstance(step, KernelStep) and step.note]
    assert notes == ["in place"] * len(written)


def run(program: Callable[..., Any], arrays: list[Any], target: Any) -> list[Any]:
    plan = CpuFunction(function_of(program, arrays)).schedule(target=target)
    return [np.asarray(own) for own in CompiledPlan.from_plan(plan, run_function).run(arrays)]


@pytest.mark.parametrize("program", [recurrent, cached])
def test_the_state_of_one_run_is_not_seen_by_the_next(program: Callable[..., Any]) -> None:
    plan = CpuFunction(function_of(program, ARRAYS)).schedule(target=BY_TENSOR)
    compiled = CompiledPlan.from_plan(plan, run_function)
    first = [np.array(own) for own in compiled.run(ARRAYS)]
    for own, again in zip(first, compiled.run(ARRAYS), strict=True):
        np.testing.assert_array_equal(own, again)
    for own, expected in zip(first, program(np, *ARRAYS), strict=True):
        np.testing.assert_allclose(own, expected, 1e-9, 1e-9)


def random_program(seed: int) -> Callable[..., Any]:
    """Three states; each iteration writes rows, columns and elements of them, and reads them before and after."""
    random = np.random.default_rng(seed)
    moves = [tuple(random.integers(0, 6, 5).tolist()) for _ in range(int(random.integers(1, 6)))]
    swapped = bool(random.random() < 0.2)

    def program(lib: Any, x: Any, w: Any) -> Any:
        def step(t: Any, state: Any) -> Any:
            own = list(state)
            old = [value * 1.0 for value in state]  # the compiler sees that this is the state itself
            for kind, target, source, row, column in moves:
                into, other = own[target % 3], (old if kind % 2 else own)[source % 3]
                match kind:
                    case 0 | 1:
                        into[row] = lib.tanh(other[(row + column) % 6] @ w)
                    case 2 | 3:
                        into[t] = other[5 - t] * 0.5 + into[row] * 0.25
                    case 4:
                        into[:, column] = lib.tanh(other[:, row] + other[:, column])
                    case _:
                        into[t, row] = lib.sum(other) * 0.01
                own[target % 3] = into
            return (own[1], own[0], own[2]) if swapped else tuple(own)

        return repeat(lib, step, (x + 0.0, x * 0.5, x - 1.0))

    return program


@pytest.mark.parametrize("seed", range(40))
def test_random_updates_compute_what_numpy_computes(seed: int) -> None:
    random = np.random.default_rng(seed)
    arrays = [random.normal(size=(6, 6)), random.normal(size=(6, 6)) * 0.3]
    program = random_program(seed)
    expected = program(np, *[array.copy() for array in arrays])
    for target in (BY_TENSOR, BY_TENSOR.without("write_in_place"), BY_TENSOR.without("fuse")):
        for actual, own in zip(run(program, arrays, target), expected, strict=True):
            np.testing.assert_allclose(actual, own, 1e-9, 1e-9)


def test_gradients_of_a_loop_that_writes_rows_of_its_state() -> None:
    x, w = (lg.asarray(array) for array in ARRAYS)

    def energy(w: Any) -> Any:
        return lg.sum(recurrent(lg, x, w)[1] ** 2)

    reverse = np.asarray(lg.grad(energy)(w))
    direction = np.random.default_rng(3).normal(size=ARRAYS[1].shape)
    _, forward = lg.jvp(energy, (w,), (lg.asarray(direction),))
    ahead, behind = (np.sum(recurrent(np, ARRAYS[0], ARRAYS[1] + s * direction)[1] ** 2) for s in (1e-6, -1e-6))
    np.testing.assert_allclose(float(forward), (ahead - behind) / 2e-6, rtol=1e-5)
    np.testing.assert_allclose(np.sum(reverse * direction), float(forward), rtol=1e-9)
