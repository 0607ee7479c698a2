"""Gradients of scans: native loops that read cotangents in place, and small bodies unrolled to scalars."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import livegrad as lg
from livegrad.compiler import compile_plan
from livegrad.ir.leaves import constant
from livegrad.ir.types import Tape, Tensor, f64, i64
from livegrad.ir.walk import nodes_of
from livegrad.ops.control import for_loop, make_for_loop
from livegrad.ops.reduction import reduce
from livegrad.ops.rules import zero
from livegrad.ops.tape import tape_get, tape_new, tape_set, tape_stack
from livegrad.passes.simplify_tapes import simplify_tapes
from livegrad.runtime.cpu.compiled_plan import CompiledPlan
from livegrad.runtime.cpu.cpu_function import run_function
from livegrad.runtime.cpu.cpu_target import CPU
from livegrad.schedule.plan import HostStep, KernelStep
from livegrad.tensors.tracing import trace_call

X = np.random.default_rng(0).standard_normal((12, 9))


def scan_of_scans(x: Any) -> Any:
    def row(total: Any, values: Any) -> Any:
        total, sums = lg.scan(lambda t, v: (0.9 * t + lg.sin(v), 0.9 * t + lg.sin(v)), total, values)
        return 0.5 * total, sums

    return lg.scan(row, 0.0, x)[1]


def rotated(x: Any) -> Any:
    """A state of three numbers, rotated by a matrix and moved by each row."""
    turn = 0.3 * x[:3, :3]

    def step(state: Any, row: Any) -> Any:
        state = turn @ state + row[:3] * lg.sum(row)
        return state, state

    return lg.scan(step, lg.ones(3, dtype=x.dtype), x)[1]


def used_twice(x: Any) -> Any:
    """The results of a scan are used by another one, and beside it."""
    first = lg.scan(lambda t, v: (t * 0.5 + v, t * v), 1.0, x[0])[1]
    second = lg.scan(lambda t, v: (t * 0.5 + v, t * v), 1.0, first)[1]
    return lg.sum(first) * second


def overwritten_total(x: Any) -> Any:
    """Only the last value that a scan carries has a cotangent."""
    return lg.scan(lambda t, v: (t * v + lg.sin(v), v), 0.5, x[0] * x[1])[0]


def never_used(x: Any) -> Any:
    """The scan inside has no iterations: its results have no cotangents, and no rows."""

    def row(total: Any, values: Any) -> Any:
        total, none = lg.scan(lambda t, v: (t * v, t + v), total, values[:0])
        return lg.sin(total) + lg.sum(values), lg.sum(none) + total

    return lg.scan(row, 0.0, x)[1]


PROGRAMS: list[Callable[[Any], Any]] = [scan_of_scans, rotated, used_twice, overwritten_total, never_used]


def traced_gradient(program: Callable[[Any], Any]) -> lg.ir.Function:
    return trace_call(lg.grad(lambda x: lg.sum(program(x) ** 2)), [lg.asarray(X).type], "gradient").function


@pytest.mark.parametrize("program", PROGRAMS)
def test_gradients_of_scans_are_those_without_the_pass_and_of_forward_mode(program: Callable[[Any], Any]) -> None:
    function = traced_gradient(program)
    targets = (CPU, CPU.without("simplify_tapes"), CPU.without("lower_tapes"))
    results = [CompiledPlan.from_plan(compile_plan(function, own), run_function).run([X])[0] for own in targets]
    for other in results[1:]:
        np.testing.assert_allclose(results[0], other, rtol=1e-12, atol=1e-13)
    along = np.cos(np.arange(X.size)).reshape(X.shape)
    _, forward = lg.jvp(lambda x: lg.sum(program(x) ** 2), (lg.asarray(X),), (lg.asarray(along),))
    np.testing.assert_allclose(np.vdot(results[0], along), float(forward), rtol=1e-11)


@pytest.mark.parametrize("program", [scan_of_scans, rotated])
def test_the_gradient_of_a_scan_runs_no_loop_over_tensors(program: Callable[[Any], Any]) -> None:
    plan = compile_plan(traced_gradient(program), CPU)
    assert not [step for step in plan.steps if isinstance(step, HostStep) and step.loop is not None]


def test_the_backward_pass_of_small_matrices_is_unrolled() -> None:
    """One loop for each direction, without loops over three elements inside."""
    plan = compile_plan(traced_gradient(rotated), CPU)
    bodies = [s.body for step in plan.steps if isinstance(step, KernelStep) for s in step.kernel.stages]
    loops = [node for body in bodies for node in nodes_of(body) if node.op is for_loop]
    assert len(loops) == 2
    assert not any(inner.op is for_loop for loop in loops for inner in nodes_of(loop.attribute("body")))


@pytest.mark.parametrize("program", PROGRAMS)
def test_second_derivatives_of_scans_agree_in_both_modes(program: Callable[[Any], Any]) -> None:
    along = np.cos(np.arange(X.size)).reshape(X.shape)

    def slope(x: Any) -> Any:
        return lg.sum(lg.grad(lambda own: lg.sum(program(own) ** 2))(x) * along)

    reverse = lg.grad(slope)(lg.asarray(X))
    _, forward = lg.jvp(slope, (lg.asarray(X),), (lg.asarray(along),))
    np.testing.assert_allclose(np.vdot(np.asarray(reverse), along), float(forward), rtol=1e-10)


def test_an_empty_tape_that_a_loop_only_reads_stays_where_it_is() -> None:
    """A loop that captures a tape that was never written is not lowered, and reads zeros."""
    element = Tape(Tensor(f64, ()))

    def total(x: lg.ir.Node) -> lg.ir.Node:
        def step(index: lg.ir.Node, sum: lg.ir.Node, tape: lg.ir.Node) -> list[lg.ir.Node]:
            return [sum + tape_get(empty, index), tape_set(tape, index, sum)]

        empty = tape_new(type=element)
        sum, tape = make_for_loop(constant(4, i64), step, x, tape_new(type=element, residuals=True))
        return sum + reduce(tape_stack(tape, size=4), kind="sum", axes=(0,))

    function = lg.ir.trace(total, Tensor(f64, ()))
    (result,) = CompiledPlan.from_plan(compile_plan(function, CPU), run_function).run([np.float64(2.0)])
    assert result == 10.0


def test_a_tape_that_starts_empty_belongs_to_the_loop_that_carries_it() -> None:
    """Captured, it would be one that no loop writes, for which `lower_tapes` has no tensor."""
    element = Tape(Tensor(f64, ()))

    def total(x: lg.ir.Node) -> lg.ir.Node:
        def step(index: lg.ir.Node, sum: lg.ir.Node, tape: lg.ir.Node) -> list[lg.ir.Node]:
            return [sum + tape_get(tape, index), tape_set(tape, index, zero(x.type))]

        return make_for_loop(constant(4, i64), step, x, tape_new(type=element))[0]

    (loop,) = [node for node in nodes_of(simplify_tapes(lg.ir.trace(total, Tensor(f64, ())))) if node.op is for_loop]
    assert loop.attribute("carried") == 2
