"""Sums over a tensor that a loop fills end where the unwritten part begins, with the same values."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import livegrad as lg
from livegrad.compiler import lower_loops
from livegrad.ir.walk import nodes_of, reachable_functions
from livegrad.ops.failing import constant_integer
from livegrad.runtime.cpu.cpu_function import CpuFunction
from livegrad.runtime.cpu.cpu_target import CPU
from livegrad.schedule.loops.nest import for_cpu
from livegrad.schedule.plan import KernelStep
from livegrad.tensors.tracing import trace_call

N = 70
MATRIX = np.random.default_rng(0).normal(size=(N, N))


def filled(lib: Any, a: Any, start: float, place: Callable[[Any], Any], own: bool, rows: bool) -> Any:
    """Columns or rows of a matrix, each from sums over the previous ones, or over a product with `a`."""
    t = lib.zeros_like(a) + start if lib is np else lib.full(a.shape, start, dtype=a.dtype)

    def step(j: Any, t: Any) -> Any:
        if rows:
            t[place(j)] = a[j] - t[:, j] @ (t if own else a)
        else:
            t[:, place(j)] = a[:, j] - (t if own else a) @ t[j]
        return t

    if lib is not np:
        return lib.fori_loop(0, a.shape[0], step, t)
    for j in range(len(a)):
        t = step(j, t)
    return t


def same(j: Any) -> Any:
    return j


CASES = {
    # start, which part iteration j writes, whether both factors are the tensor, by row; whether sums end early
    "columns": (0.0, same, True, False, True),
    "rows": (0.0, same, True, True, False),  # t[k, j], and t[k] for k < j: rows are added one by one, not in a sum
    "not zero": (0.001, same, True, False, False),
    "negative zero": (-0.0, same, True, False, False),
    "backward": (0.0, lambda j: N - 1 - j, True, False, False),
    "another factor": (0.0, same, False, False, False),  # which may be infinite
}


def sums_with_an_end(program: Callable[[Any], Any]) -> int:
    """The number of vectorised sums with as many terms as there were iterations."""
    plan = CpuFunction(trace_call(program, [lg.asarray(MATRIX).type], "program").function).schedule()
    kernels = [step for step in plan.steps if isinstance(step, KernelStep) and step.kernel.name == "for_loop"]
    bodies = [stage.body for step in kernels for stage in lower_loops(for_cpu(step, CPU, 64)).kernel.stages]
    loops = [node for body in reachable_functions(bodies) for node in nodes_of(body) if node.op.name == "for_loop"]
    sums = [loop for loop in loops if dict(loop.attributes).get("lanes", 1) > 1]
    return sum(constant_integer(loop.operands[0]) is None for loop in sums)


@pytest.mark.parametrize("name", CASES)
def test_sums_end_where_only_zeros_follow(name: str) -> None:
    start, place, own, rows, ends = CASES[name]

    def program(a: Any) -> Any:
        return filled(lg, a, start, place, own, rows)

    assert bool(sums_with_an_end(program)) is ends
    small = MATRIX * 0.05
    found = np.asarray(lg.jit(program)(lg.asarray(small)))
    np.testing.assert_allclose(found, filled(np, small, start, place, own, rows), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["columns", "rows", "another factor"])
def test_what_is_not_finite_stays_so(name: str) -> None:
    start, place, own, rows, _ = CASES[name]
    values = MATRIX * 0.05
    values[3, 40], values[50, 2] = np.inf, np.nan
    with np.errstate(invalid="ignore"):
        expected = filled(np, values, start, place, own, rows)
    found = np.asarray(lg.jit(lambda a: filled(lg, a, start, place, own, rows))(lg.asarray(values)))
    np.testing.assert_array_equal(np.isfinite(found), np.isfinite(expected))
