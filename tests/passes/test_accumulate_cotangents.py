"""What the cotangents of slices and of guarded values become: fewer additions, the same sums."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import livegrad as lg
from livegrad.compiler import Compilation, lower, lower_loops
from livegrad.ir.leaves import constant, constant_op
from livegrad.ir.node import Function, Module, Node
from livegrad.ir.propagate_lines import forget_derivations
from livegrad.ir.types import Tensor, bool_, f64
from livegrad.ir.walk import nodes_of, reachable_functions
from livegrad.ops.control import parameters_of
from livegrad.ops.elementwise import select
from livegrad.ops.indexing import scatter_add
from livegrad.passes.differentiate import accumulate as accumulation
from livegrad.passes.differentiate import transpose
from livegrad.passes.differentiate.guards import add_guarded, as_summand
from livegrad.passes.differentiate.lower import differentiate
from livegrad.passes.differentiate.tangents import add
from livegrad.runtime.cpu.cpu_target import CPU
from livegrad.schedule.loops.nest import for_cpu
from livegrad.schedule.plan import KernelStep
from livegrad.tensors.tracing import trace_call

PROGRAMS = 12


def gradient_ops(function: Callable[..., Any], *shape: int) -> list[str]:
    traced = trace_call(lg.grad(lambda x: lg.sum(function(x))), [Tensor(f64, shape)], "gradient")
    lowered = differentiate(Module((traced.function,))).functions
    return [node.op.name for inner in reachable_functions(lowered) for node in nodes_of(inner)]


def test_the_cotangent_of_a_roll_is_a_roll():
    ops = gradient_ops(lambda x: lg.sin(x) * lg.roll(x, 1, axis=0) * lg.roll(x, -2, axis=1), 6, 5)
    assert ops.count("concatenate") >= 4
    assert "pad" not in ops


def test_the_cotangents_of_three_parts_are_joined():
    ops = gradient_ops(lambda x: lg.concat([lg.sin(x[4:]), x[2:4] ** 2.0, lg.cos(x[:2])]), 7)
    assert "pad" not in ops


def test_the_cotangents_of_parts_that_overlap_are_added():
    assert gradient_ops(lambda x: lg.sin(x[1:]) * x[:-1], 7).count("pad") == 2


def test_the_cotangents_of_every_second_element_are_added_in_place():
    ops = gradient_ops(lambda x: lg.sin(x)[::2, 1:] * x[1::2, :-1] + lg.sin(x[::2, 1:]), 6, 5)
    assert "scatter_add" in ops


def test_a_guarded_cotangent_leaves_a_negative_zero_as_it_is():
    condition, value, total = parameters_of([bool_, f64, f64])
    guarded = select(condition, value, constant(0.0, f64))
    summed = add_guarded(total, guarded, f64)
    assert isinstance(summed, Node)
    function = Function("sum", (condition, value, total), (summed,))
    assert np.signbit(lg.ir.evaluate(function, False, 1.0, -0.0))
    assert lg.ir.evaluate(function, True, 1.0, -0.0) == 1.0
    assert as_summand(value) is value


def _random_program(random: np.random.Generator) -> Callable[[Any], Any]:
    """Sums of products of rolls, slices and masks, some of them in a loop that writes rows."""

    def part(x: Any) -> Any:
        kind = int(random.integers(6))
        shift, axis = int(random.integers(-3, 4)), int(random.integers(2))
        cut = int(random.integers(1, 6))
        rows = lg.reshape(lg.arange(6), (6, 1))
        match kind:
            case 0:
                return lg.roll(x, shift, axis=axis)
            case 1:
                return lg.concat([lg.sin(x[cut:]), x[:cut] ** 2.0])
            case 2:
                return lg.concat([x[::2] * x[1::2], x[1::2]])
            case 3:
                return lg.where(rows >= cut, x, 0.0) * x[:, ::-1]
            case 4:
                return lg.concat([x[:, 1:] - x[:, :-1], x[:, cut - 1 : cut]], axis=1)
        return lg.where(rows > cut, lg.roll(x, shift, axis=axis), lg.cos(x))

    seeds = [int(random.integers(1 << 30)) for _ in range(3)]
    in_loop = bool(random.integers(2))

    def program(x: Any) -> Any:
        nonlocal random
        for seed in seeds:
            random = np.random.default_rng(seed)
            x = lg.sin(part(x)) * part(x) + part(x)
        if not in_loop:
            return x

        def body(i: Any, y: Any) -> Any:
            y[i] = lg.sum(lg.where(lg.reshape(lg.arange(6), (6, 1)) < i, y, 0.0), axis=0) * 0.3 + lg.sin(y[i])
            y[::2, 1::2] = y[::2, 1::2] * 0.5 + y[1::2, :-1:2]
            return y

        return lg.fori_loop(1, 6, body, x)

    return program


def _gradient(program: Callable[[Any], Any], x: Any) -> Any:
    weights = lg.asarray(np.linspace(0.5, 2.0, 30).reshape(6, 5))
    return np.asarray(lg.grad(lambda y: lg.sum(program(y) * weights))(lg.asarray(x)))


def test_gradients_are_those_of_plain_additions(monkeypatch: pytest.MonkeyPatch):
    random = np.random.default_rng(5)
    programs = [_random_program(random) for _ in range(PROGRAMS)]
    points = [np.random.default_rng(seed).normal(size=(6, 5)) for seed in range(PROGRAMS)]
    found = [_gradient(*case) for case in zip(programs, points, strict=True)]
    forget_derivations()
    monkeypatch.setattr(transpose, "accumulate", add)
    monkeypatch.setattr(transpose, "add_to_total", accumulation.add_values)
    for own, program, point in zip(found, programs, points, strict=True):
        np.testing.assert_allclose(own, _gradient(program, point), rtol=1e-12, atol=1e-12)
    forget_derivations()


def test_loops_do_not_add_zeros():
    """Rows after the one that an iteration writes get no cotangent: the backward loop does not touch them."""

    def solve(a: Any, b: Any) -> Any:
        columns = lg.arange(b.shape[0])

        def row(i: Any, x: Any) -> Any:
            x[i] = (b[i] - lg.sum(lg.where(columns < i, a[i] * x, 0.0))) / a[i, i]
            return x

        return lg.sum(lg.fori_loop(0, b.shape[0], row, lg.zeros_like(b)))

    traced = trace_call(lg.grad(solve, (0, 1)), [Tensor(f64, (99, 99)), Tensor(f64, (99,))], "gradient")
    steps = [step for step in Compilation(lower(traced.function, CPU), CPU).plan.steps if isinstance(step, KernelStep)]
    stages = [stage for step in steps for stage in lower_loops(for_cpu(step, CPU, vector_bytes=32)).kernel.stages]
    nodes = [node for inner in reachable_functions([stage.body for stage in stages]) for node in nodes_of(inner)]
    additions = [node for node in nodes if node.op is scatter_add]
    assert additions
    assert not [node for node in additions if node.operands[1].op is constant_op]
