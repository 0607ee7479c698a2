"""Gradients of loops of any length: one kernel runs the loop that writes tapes and those that read them."""

from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pytest

import livegrad as lg
from livegrad.compiler import Compilation, lower
from livegrad.runtime.cpu.compiled_plan import CompiledPlan
from livegrad.runtime.cpu.cpu_function import run_function
from livegrad.runtime.cpu.cpu_target import CPU
from livegrad.schedule.target import Target
from livegrad.tensors.handle import wrap
from livegrad.tensors.tracing import trace_call
from tests.fuzz import loop_nests

SIZE = 12
LINE = np.random.default_rng(3).uniform(0.5, 1.5, SIZE)
COUNTS = np.array([3, 0, 7, 1, 12, 5])


def compiled(function: Callable[..., Any], *arguments: Any, target: Target = CPU) -> tuple[CompiledPlan, list[Any]]:
    traced = trace_call(function, [lg.asarray(argument).type for argument in arguments], "program")
    plan = CompiledPlan.from_plan(Compilation(lower(traced.function, target), target).plan, run_function)
    return plan, [*arguments, *(np.asarray(wrap(node)) for node in traced.captures)]


def stops(x: Any) -> Any:
    """Ends as soon as a sum is large enough."""

    def body(state: Any) -> Any:
        k, x, total = state
        x[k] = lg.sin(x[k]) * x[k - 1]
        return k + 1, x, total + x[k] * x[k]

    k = lg.asarray(1)
    return lg.while_loop(lambda s: (s[0] < SIZE) & (s[2] < 2.0), body, (k, x, lg.asarray(0.0, dtype=lg.float64)))[1]


def counted(x: Any) -> Any:
    """Inner loops whose counts are data."""
    counts = lg.asarray(COUNTS)

    def outer(i: Any, x: Any) -> Any:
        def inner(k: Any, x: Any) -> Any:
            x[k] = x[k] * lg.cos(x[k - i])
            return x

        return lg.fori_loop(0, counts[i], inner, x)

    return lg.fori_loop(0, len(COUNTS), outer, x)


def halved(x: Any) -> Any:
    """A loop without a bound for each element."""

    def element(k: Any, x: Any) -> Any:
        def half(state: Any) -> Any:
            y, x = state
            x[k] = x[k] + 0.1 * y * x[k - 1]
            return 0.5 * y * x[k], x

        return lg.while_loop(lambda state: state[0] > 0.1, half, (x[k], x))[1]

    return lg.fori_loop(0, SIZE, element, x)


PROGRAMS = {"stops": stops, "counted": counted, "halved": halved}
LOSSES: dict[str, Callable[[Any], Any]] = {
    "weighted": lambda y: lg.sum(y * np.linspace(0.5, 1.5, SIZE)),
    "squared": lambda y: lg.sum(y * y),  # the cotangents are computed from what the loop leaves
}


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients_are_kernels_and_those_of_loops_over_tensors(name: str, loss: str) -> None:
    gradient = lg.grad(lambda x: LOSSES[loss](PROGRAMS[name](x)))
    plan, arguments = compiled(gradient, LINE)
    assert plan.only_kernels
    other, _ = compiled(gradient, LINE, target=CPU.without("lower_tapes"))
    assert not other.only_kernels
    np.testing.assert_allclose(plan.run(arguments)[0], other.run(arguments)[0], rtol=1e-12, atol=1e-12)
    lg.check_gradients(lambda x: LOSSES[loss](PROGRAMS[name](x)), lg.asarray(LINE))


@pytest.mark.parametrize("name", PROGRAMS)
def test_second_derivatives_are_those_of_loops_over_tensors(name: str) -> None:
    def curvature(x: Any) -> Any:
        return lg.grad(lambda x: lg.sum(lg.sin(lg.grad(lambda x: LOSSES["squared"](PROGRAMS[name](x)))(x))))(x)

    plan, arguments = compiled(curvature, LINE)
    other, _ = compiled(curvature, LINE, target=CPU.without("lower_tapes"))
    np.testing.assert_allclose(plan.run(arguments)[0], other.run(arguments)[0], rtol=1e-10, atol=1e-10)


def test_the_value_and_the_gradient_come_from_one_run_of_the_loop() -> None:
    plan, arguments = compiled(lg.value_and_grad(lambda x: LOSSES["weighted"](stops(x))), LINE)
    assert plan.only_kernels
    value, gradient = plan.run(arguments)
    np.testing.assert_allclose(value, np.asarray(LOSSES["weighted"](stops(lg.asarray(LINE)))), rtol=1e-12)
    np.testing.assert_allclose(
        gradient, compiled(lg.grad(lambda x: LOSSES["weighted"](stops(x))), LINE)[0].run(arguments)[0]
    )


def random_program(random: Random) -> Callable[[Any], Any]:
    """A loop that reads and writes elements, ends when a value is large enough, and may contain another such loop."""
    shifts = [random.randrange(SIZE) for _ in range(3)]
    limit, rate = random.uniform(0.5, 4.0), random.uniform(0.1, 0.9)
    operations = [random.choice([lg.sin, lg.cos, lg.tanh, lambda v: v * v * 0.3]) for _ in range(3)]
    has_inner, branches = random.random() < 0.5, random.random() < 0.5

    def body(state: Any) -> Any:
        k, x, total = state
        value = operations[0](x[k]) * rate + operations[1](x[(k + shifts[0]) % SIZE])
        if branches:
            value = lg.where(value > 0.7, value * x[(k + shifts[1]) % SIZE], value)
        x[(k + shifts[2]) % SIZE] = value
        if has_inner:
            inner = (lg.zeros_like(k), x, total * 0.0)
            x = lg.while_loop(lambda s: (s[0] < k % 3) & (s[2] < 1.0), inner_body, inner)[1]
        return k + 1, x, total + lg.abs(value)

    def inner_body(state: Any) -> Any:
        j, x, total = state
        x[j] = operations[2](x[j] + rate * total)
        return j + 1, x, total + 0.4

    start = lg.zeros((), dtype=lg.int64), lg.zeros((), dtype=lg.float64)
    return lambda x: lg.while_loop(lambda s: (s[0] < SIZE) & (s[2] < limit), body, (start[0], x, start[1]))[1]


@pytest.mark.parametrize("seed", range(12))
def test_gradients_of_random_loops_are_those_of_loops_over_tensors(seed: int) -> None:
    program = random_program(Random(seed))
    gradient = lg.grad(lambda x: LOSSES["squared" if seed % 2 else "weighted"](program(x)))
    plan, arguments = compiled(gradient, LINE)
    assert plan.only_kernels
    other, _ = compiled(gradient, LINE, target=CPU.without("lower_tapes"))
    np.testing.assert_allclose(plan.run(arguments)[0], other.run(arguments)[0], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("seed", [61000000, 61000008, 72000014])
def test_a_tape_that_leaves_a_branch_or_loop_keeps_its_type_for_those_who_read_it(seed: int) -> None:
    """Loop nests from the fuzzer: their backward pass reads in one loop or branch what another recorded."""
    assert loop_nests.run_one(seed)


@pytest.mark.parametrize("seed", [90000108])
def test_a_loop_whose_results_nobody_needs_any_more_runs(seed: int) -> None:
    """A loop nest from the fuzzer: a loop of its backward pass keeps only a tape that no iteration reads or writes."""
    assert loop_nests.run_one(seed)
