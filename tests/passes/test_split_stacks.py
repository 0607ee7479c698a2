"""Arithmetic on stacked tensors is computed by component, without intermediate stacks."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import livegrad as lg
from livegrad.compiler import compile_plan
from livegrad.ir.walk import nodes_of
from livegrad.ops.movement import concatenate
from livegrad.passes.split_stacks import split_stacks
from livegrad.runtime.cpu.compiled_plan import CompiledPlan
from livegrad.runtime.cpu.cpu_function import run_function
from livegrad.runtime.cpu.cpu_target import CPU
from livegrad.tensors.tracing import trace_call

POINTS = 100


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(3).standard_normal(shape)


def run(program: Callable[..., Any], *arrays: np.ndarray, splits: bool = True) -> list[np.ndarray]:
    """The results, which are the same with and without the pass."""
    function = trace_call(program, [lg.asarray(array).type for array in arrays], "program").function
    usual, other = compile_plan(function, CPU), compile_plan(function, CPU.without("split_stacks"))
    assert (str(usual) != str(other)) == splits
    found = CompiledPlan.from_plan(usual, run_function).run(list(arrays))
    wanted = CompiledPlan.from_plan(other, run_function).run(list(arrays))
    for own, right in zip(found, wanted, strict=True):
        assert own.dtype == right.dtype
        np.testing.assert_allclose(own, right, 1e-13, 1e-13)
    return found


def rate(s: Any) -> Any:
    return lg.stack([s[1], (1.0 - s[0] * s[0]) * s[1] - s[0]])


def heun(s: Any) -> Any:
    first = rate(s)
    return s + 0.05 * (first + rate(s + 0.1 * first))


def test_steps_of_an_oscillator_are_one_kernel() -> None:
    function = trace_call(heun, [lg.asarray(numbers(2, POINTS)).type], "heun").function
    assert compile_plan(function, CPU).kernels == 1
    assert compile_plan(function, CPU.without("split_stacks")).kernels > 2
    s = numbers(2, POINTS)

    def rate_of(s: np.ndarray) -> np.ndarray:
        return np.stack([s[1], (1.0 - s[0] * s[0]) * s[1] - s[0]])

    expected = s + 0.05 * (rate_of(s) + rate_of(s + 0.1 * rate_of(s)))
    np.testing.assert_allclose(run(heun, s)[0], expected, 1e-13)


def test_a_loop_that_stops_by_the_largest_error_moves_less_memory() -> None:
    def program(s: Any) -> Any:
        def step(state: Any) -> Any:
            s, _ = state
            moved = heun(s)
            return moved, lg.max(lg.abs(moved - s))

        return lg.while_loop(lambda state: state[1] > 0.05, step, (s, lg.ones((), dtype=s.dtype)))[0]

    run(program, 0.1 * numbers(2, POINTS))


@pytest.mark.parametrize("kind", ["sum", "prod", "max", "min"])
@pytest.mark.parametrize("axis", [0, 1, (0, 1), (1, 2), (0, 1, 2)])
def test_reductions_of_stacks(axis: Any, kind: str) -> None:
    def program(x: Any, y: Any) -> Any:
        stacked = lg.stack([x, lg.sin(y), x * y], axis=1) * 0.5 + 1.0
        return getattr(lg, kind)(stacked, axis=axis), stacked[:, 1] - stacked[:, 2]

    run(program, numbers(5, POINTS), numbers(5, POINTS))


def test_a_sum_of_negative_zeros_is_positive() -> None:
    def program(x: Any) -> Any:
        return lg.sum(lg.stack([x, x]) * 2.0, axis=0)

    (total,) = run(program, -np.zeros(POINTS))
    assert not np.signbit(total).any()


def test_parts_of_components_and_other_operands() -> None:
    def program(x: Any, y: Any, z: Any) -> Any:
        stacked = lg.where(z > 0.0, lg.stack([x, y, x - y]), 2.0) + x[None] * z
        return stacked[2, 3:50:2], stacked[0], stacked[1:], lg.sum(stacked, axis=1)

    run(program, numbers(POINTS), numbers(POINTS), numbers(3, POINTS))


def test_stacks_along_the_last_axis_and_small_ones_stay() -> None:
    def points(x: Any) -> Any:
        pairs = lg.stack([x, lg.sin(x)], axis=-1) * 2.0
        return pairs[:, 0] + lg.sum(pairs, axis=1)

    run(points, numbers(POINTS), splits=False)
    run(heun, numbers(2, 20), splits=False)


def test_a_stack_that_is_only_returned_stays() -> None:
    function = trace_call(lambda x: lg.stack([x, -x]) * 2.0, [lg.asarray(numbers(POINTS)).type], "pair").function
    assert split_stacks(function) is function
    assert any(node.op is concatenate for node in nodes_of(function))


@pytest.mark.parametrize("seed", range(12))
def test_random_chains_of_stacks(seed: int) -> None:
    generator = np.random.default_rng(seed)
    number, axis = int(generator.integers(2, 6)), int(generator.integers(0, 2))
    choices = generator.integers(0, 5, 6)

    def program(x: Any, y: Any) -> Any:
        s, total = lg.stack([x * float(k + 1) for k in range(number)], axis=axis), lg.sum(y)
        for choice in choices:
            rows = [s[k] if axis == 0 else s[:, k] for k in range(number)]
            if choice == 0:
                s = s * 0.5 + lg.stack(rows[::-1], axis=axis)
            elif choice == 1:
                s = lg.stack([lg.sin(rows[0] + y), *rows[1:]], axis=axis)
            elif choice == 2:
                total = total + lg.max(lg.abs(s))
            elif choice == 3:
                s = lg.where(s > 0.1, s, lg.expand_dims(y, axis=axis))
            else:
                s = s - 0.1 * lg.sum(s, axis=axis, keepdims=True)
        return s, total, lg.min(s, axis=axis)

    run(program, numbers(9, POINTS), numbers(9, POINTS))
