"""Hoisted invariants of loops with a run-time count lose their guard where that cannot be observed."""

from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pytest

import livegrad as lg
from livegrad.ir.node import Function
from livegrad.ir.walk import ops_below
from livegrad.ops.control import cond
from livegrad.passes.unguard_invariants import unguard_invariants
from livegrad.runtime.cpu import CpuFunction
from livegrad.runtime.cpu.compiled_plan import CompiledPlan
from livegrad.runtime.cpu.cpu_function import run_function
from livegrad.runtime.cpu.cpu_target import CPU
from livegrad.schedule.plan import KernelStep
from livegrad.tensors.tracing import trace_call

X, C = np.linspace(0.0, 1.0, 12), np.linspace(-1.0, 2.0, 12)  # roots and logarithms of some are NaN
Program = Callable[[Any, Any, Any], Any]


def traced(program: Program) -> Function:
    types = [lg.asarray(value).type for value in (X, C, np.int64(0))]
    return trace_call(program, types, "program").function


def results(function: Function, trips: int, *without: str) -> list[Any]:
    plan = CpuFunction(function).schedule(target=CPU.without(*without))
    return CompiledPlan.from_plan(plan, run_function).run([X, C, np.array(trips)])


def test_values_of_tensors_around_a_loop_are_computed_in_its_kernel() -> None:
    function = traced(lambda x, c, k: lg.fori_loop(0, k, lambda i, s: s * lg.sin(c) + lg.cos(c) * 0.1, x))
    (step,) = CpuFunction(function).schedule().steps
    assert isinstance(step, KernelStep)
    assert len(CpuFunction(function).schedule(target=CPU.without("unguard_invariants")).steps) > 1
    np.testing.assert_array_equal(results(function, 0)[0], X)


KEPT: dict[str, Program] = {
    "read elsewhere": lambda x, c, k: (lambda y: lg.fori_loop(0, k, lambda i, s: s * y, x) + y)(
        lg.cond(k > 0, lambda: lg.sin(c), lambda: lg.zeros_like(c))
    ),
    "another count": lambda x, c, k: (lambda y: lg.fori_loop(0, k + 1, lambda i, s: s * y, x))(
        lg.cond(k > 0, lambda: lg.sin(c), lambda: lg.zeros_like(c))
    ),
    "where the loop starts": lambda x, c, k: lg.fori_loop(
        0, k, lambda i, s: s * 0.5, lg.cond(k > 0, lambda: lg.sin(c), lambda: lg.zeros_like(c))
    ),
    "may fail": lambda x, c, k: lg.fori_loop(0, k, lambda i, s: s * lg.sin(c[k]), x),
    "a reduction": lambda x, c, k: lg.fori_loop(0, k, lambda i, s: s * lg.sum(c), x),
    "other than zeros": lambda x, c, k: (lambda y: lg.fori_loop(0, k, lambda i, s: s * y, x))(
        lg.cond(k > 0, lambda: lg.sin(c), lambda: lg.cos(c))
    ),
}


@pytest.mark.parametrize("name", KEPT)
def test_a_guard_that_makes_a_difference_stays(name: str) -> None:
    lowered = CpuFunction(traced(KEPT[name])).lowered
    assert cond in ops_below(unguard_invariants(lowered))
    for trips in (0, 2):
        for found, expected in zip(results(lowered, trips), results(lowered, trips, "unguard_invariants"), strict=True):
            np.testing.assert_array_equal(found, expected)


def random_program(random: Random) -> Program:
    """Nested loops and branches, over values of outer tensors that are sometimes undefined."""
    functions = [lg.sin, lg.sqrt, lg.log, lambda v: 1.0 / v, lambda v: v * 0.5, lg.sum]

    def value(depth: int, s: Any, c: Any, k: Any) -> Any:
        kind = random.choice(["times", "plus", "loop", "branch"] if depth else ["times", "plus"])
        invariant = random.choice(functions)(random.choice(functions)(c))
        if kind == "times":
            return s * invariant
        if kind == "plus":
            return s + invariant
        if kind == "loop":
            trips = random.choice([k, k - 1, 2])
            return lg.fori_loop(0, trips, lambda i, s: value(depth - 1, s, c, k), s * 0.5)
        return lg.cond(k > random.randint(0, 1), lambda: value(depth - 1, s, c, k), lambda: s)

    return lambda x, c, k: lg.fori_loop(0, k, lambda i, s: value(2, s, c, k), x)


def with_gradient(program: Program) -> Program:
    def both(x: Any, c: Any, k: Any) -> Any:
        return lg.value_and_grad(lambda c: lg.sum(program(x, c, k)))(c)

    return both


@pytest.mark.parametrize("seed", range(6))
def test_random_loops_have_the_same_values_and_gradients_with_guards(seed: int) -> None:
    function = traced(with_gradient(random_program(Random(seed))))
    for trips in (-1, 0, 1, 3):
        found, expected = results(function, trips), results(function, trips, "unguard_invariants")
        for own, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(own, other, rtol=1e-12)
        if trips < 1:
            np.testing.assert_array_equal(found[1], np.zeros_like(C))
