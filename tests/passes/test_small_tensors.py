"""Loops over tensors of a few elements are unrolled: the values of NumPy, one kernel, and derivatives in both modes."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import livegrad as lg
from livegrad.compiler import compile_plan
from livegrad.ir.walk import nodes_of, reachable_functions
from livegrad.runtime.cpu.compiled_plan import CompiledPlan
from livegrad.runtime.cpu.cpu_function import CpuFunction, run_function
from livegrad.runtime.cpu.cpu_target import CPU
from livegrad.schedule.plan import KernelStep
from livegrad.tensors.tracing import trace_call

STEPS = 7


def scan(lib: Any, step: Callable[[Any, Any], Any], state: Any, series: Any) -> Any:
    if lib is lg:
        return lg.scan(step, state, series)
    outputs = []
    for row in series:
        state, output = step(state, row)
        outputs.append(output)
    return state, np.stack(outputs)


def filtered(lib: Any, turn: Any, series: Any) -> Any:
    """A state and its covariance, with products, transposes and rows that are joined."""

    def step(state: Any, z: Any) -> Any:
        x, p = state
        x, p = turn @ x, turn @ p @ turn.T + 0.1
        gain = p[:, 0] / (p[0, 0] + 1.0)
        x = x + gain * (z[0] - x[0])
        p = p - gain[:, None] * p[0][None, :]
        return (x, p), lib.concat([x[1:], x[:1] * z[1:2]]) if lib is lg else np.concatenate([x[1:], x[:1] * z[1:2]])

    start = (series[0, :3] * 0.0, turn * 0.1)
    return scan(lib, step, start, series)[1]


def function_of(program: Callable[..., Any], arrays: list[Any]) -> Any:
    types = [lg.asarray(array).type for array in arrays]
    return trace_call(lambda *tensors: program(lg, *tensors), types, "program").function


GENERATOR = np.random.default_rng(4)
ARRAYS = [GENERATOR.normal(size=(3, 3)) * 0.5, GENERATOR.normal(size=(STEPS, 4))]


def test_a_filter_is_one_native_loop() -> None:
    steps = compile_plan(function_of(filtered, ARRAYS), CPU).steps
    assert all(isinstance(step, KernelStep) for step in steps)
    assert [step.note for step in steps if step.kernel.name == "for_loop"] == ["native loop, in place"]  # type: ignore[union-attr]
    bodies = [stage.body for step in steps for stage in step.kernel.stages]  # type: ignore[union-attr]
    ops = [node.op.name for inner in reachable_functions(bodies) for node in nodes_of(inner)]
    assert ops.count("for_loop") == 1


def random_program(seed: int) -> Callable[..., Any]:
    """A matrix and a vector, rearranged, multiplied and reduced by random statements; rows of a series are written."""
    random = np.random.default_rng(seed)
    moves = [tuple(random.integers(0, 9, 2).tolist()) for _ in range(int(random.integers(1, 6)))]

    def program(lib: Any, a: Any, series: Any) -> Any:
        join = lg.concat if lib is lg else np.concatenate

        def step(t: Any, state: Any) -> Any:
            a, x, series = state
            for kind, other in moves:
                match kind:
                    case 0:
                        x = lib.tanh(a @ x)
                    case 1:
                        a = lib.tanh(a @ a.T + other * 0.1)
                    case 2:
                        x = join([x[1:], x[:1] + other])
                    case 3:
                        x = x * lib.max(a, axis=0) + lib.sum(a[other % 3])
                    case 4:
                        a = a - x[:, None] * lib.flip(x, axis=0)[None, :] * 0.1
                    case 5:
                        x = x + lib.where(x > 0.1 * other, a[0], a[:, 1])
                    case 6:
                        series[t] = lib.tanh(x + series[STEPS - 1 - t])
                    case 7:
                        a = lib.reshape(lib.reshape(a, (9,)) * 0.9 + other * 0.01, (3, 3))
                    case _:
                        x = x / (1.0 + lib.sqrt(lib.sum(x * x)))
            return lib.tanh(a), x, series

        state = (a, a[0] * 1.0, series[:, :3] * 1.0)
        if lib is lg:
            return lg.fori_loop(0, STEPS, step, state)
        for t in range(STEPS):
            state = step(t, state)
        return state

    return program


@pytest.mark.parametrize("seed", range(40))
def test_random_small_loops_compute_what_numpy_computes(seed: int) -> None:
    program = random_program(seed)
    expected = program(np, *[array.copy() for array in ARRAYS])
    for target in (CPU, CPU.without("loop_over_elements"), CPU.without("scalarise_loops")):
        plan = CpuFunction(function_of(program, ARRAYS)).schedule(target=target)
        for found, own in zip(CompiledPlan.from_plan(plan, run_function).run(ARRAYS), expected, strict=True):
            np.testing.assert_allclose(found, own, 1e-9, 1e-9)


def test_derivatives_of_a_filter_agree_in_both_modes() -> None:
    turn, series = ARRAYS

    def energy(turn: Any) -> Any:
        return lg.sum(filtered(lg, turn, lg.asarray(series)) ** 2)

    direction = GENERATOR.normal(size=turn.shape)
    reverse = np.asarray(lg.grad(energy)(lg.asarray(turn)))
    _, forward = lg.jvp(energy, (lg.asarray(turn),), (lg.asarray(direction),))
    ahead, behind = (np.sum(filtered(np, turn + s * direction, series) ** 2) for s in (1e-6, -1e-6))
    np.testing.assert_allclose(float(forward), (ahead - behind) / 2e-6, rtol=1e-5)
    np.testing.assert_allclose(np.sum(reverse * direction), float(forward), rtol=1e-9)
