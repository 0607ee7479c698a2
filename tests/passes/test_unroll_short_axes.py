"""Arithmetic on the components of points: split by component, it computes what NumPy computes."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import livegrad as lg
from livegrad.ir.function import trace
from livegrad.ir.node import Function
from livegrad.ir.types import Tensor, f32
from livegrad.passes.unroll_short_axes import unroll_short_axes
from livegrad.runtime.cpu import CpuFunction, run_function
from livegrad.runtime.cpu.compiled_plan import CompiledPlan
from livegrad.runtime.cpu.cpu_target import CPU
from livegrad.runtime.reference import evaluate
from livegrad.schedule.plan import KernelStep
from livegrad.schedule.target import Target
from livegrad.tensors.handle import wrap
from livegrad.tensors.tracing import trace_call
from tests.schedule.plans import plan_of

WITHOUT = CPU.without("unroll_short_axes")
POINTS = np.random.default_rng(3).normal(size=(40, 3))


def run(function: Function, target: Target, x: Any) -> Any:
    (result,) = CompiledPlan.from_plan(CpuFunction(function).schedule(target=target), run_function).run([x])
    return result


def attraction(x: Any) -> Any:
    offsets = x[None, :, :] - x[:, None, :]
    squares = lg.sum(offsets * offsets, axis=-1) + 0.1
    return lg.sum(offsets * (squares**-1.5)[:, :, None], axis=1)


def random_program(seed: int) -> Any:
    """Random sums over axes of three values for pairs, with work that the components share."""
    choose = random.Random(seed)

    def run(x: Any) -> Any:
        pairs = x[None, :, :] - x[:, None, :] if choose.random() < 0.7 else x[:, None, :] * x[None, :, ::-1]
        if choose.random() < 0.3:
            pairs = lg.permute_dims(pairs, choose.choice([(1, 0, 2), (2, 0, 1), (0, 2, 1)]))
        short = next(axis for axis, size in enumerate(pairs.shape) if size == 3)
        fold = choose.choice([lg.sum, lg.sum, lg.max, lg.min, lg.prod])
        within = fold(choose.choice([pairs * pairs, lg.abs(pairs), pairs, lg.exp(-pairs)]), axis=short)
        shared = lg.expand_dims(choose.choice([lg.exp(-lg.abs(within)), 1.0 / (1.0 + within * within)]), axis=short)
        terms = choose.choice([shared * pairs, pairs / (shared + 1.0), lg.where(pairs > 0.2, shared, pairs)])
        axis = choose.choice([other for other in range(3) if other != short] + [short])
        return choose.choice([lg.sum, lg.mean, lg.max])(terms, axis=axis)

    return run


@pytest.mark.parametrize("seed", range(40))
def test_random_sums_over_pairs_equal_the_references(seed: int) -> None:
    function = trace_call(random_program(seed), [Tensor(f32, POINTS.shape)], "program").function
    x = POINTS.astype(np.float32)
    expected = evaluate(function, x)
    for target in (CPU, WITHOUT):
        result = run(function, target, x)
        np.testing.assert_allclose(result, expected, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("seed", range(8))
def test_gradients_of_sums_over_pairs_are_the_same_without_the_pass(seed: int) -> None:
    program = random_program(100 + seed)
    function = trace_call(lg.grad(lambda x: lg.sum(lg.sin(program(x)))), [lg.asarray(POINTS).type], "g").function
    results = [run(function, target, POINTS) for target in (CPU, WITHOUT)]
    np.testing.assert_allclose(*results, rtol=1e-9, atol=1e-9)


def test_forces_between_pairs_are_one_kernel_and_store_no_pairs() -> None:
    function = trace(lambda x: attraction(wrap(x)).node, Tensor(f32, (400, 3)))
    plan = plan_of(function)
    assert max(np.prod(view.buffer.shape) for step in kernels(plan) for view in step.outputs) <= 3 * 400
    assert sum(bool(step.inner) for step in kernels(plan)) == 1, "one kernel sums over pairs"
    stored = plan_of(function, target=WITHOUT)
    assert max(np.prod(view.buffer.shape) for step in kernels(stored) for view in step.outputs) == 400 * 400


def kernels(plan: Any) -> list[KernelStep]:
    return [step for step in plan.steps if isinstance(step, KernelStep)]


def test_a_sum_of_negative_zeros_is_zero() -> None:
    function = trace(lambda x: (lg.sum(wrap(x) * wrap(x)[0], axis=1) * 1.0).node, Tensor(f32, (8, 3)))
    assert unroll_short_axes(function) is not function
    x = np.full((8, 3), -0.0, np.float32)
    x[0] = 1.0
    assert not np.signbit(run(function, CPU, x)[1:]).any()


def test_long_expressions_and_long_axes_stay() -> None:
    def long(x: Any) -> Any:
        for _ in range(300):
            x = lg.sin(x) * x[0]
        return lg.sum(x, axis=1) * 2.0

    alone = lambda x: lg.sum(x * x, axis=1) * 2.0  # noqa: E731
    for program, shape in ((long, (8, 3)), (lambda x: lg.sum(x * x[0], axis=1) * 2.0, (8, 5)), (alone, (8, 3))):
        function = trace(lambda x, program=program: program(wrap(x)).node, Tensor(f32, shape))
        assert unroll_short_axes(function) is function
