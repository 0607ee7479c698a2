"""Trial builds during fusion leave no trace: failed trials and placeholder buffers are not in the plan."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from livegrad.ir.function import trace
from livegrad.ir.node import Node
from livegrad.ir.types import Tensor, f64, i64
from livegrad.ops.indexing import lookup
from livegrad.ops.movement import broadcast, flip, index_along, pad, permute, slice_
from livegrad.ops.rules import zero
from livegrad.ops.transcendental import exp
from livegrad.runtime.cpu import compile_function
from livegrad.runtime.reference import evaluate
from livegrad.schedule import work
from livegrad.schedule.plan import KernelStep, Plan
from tests.schedule.plans import along, layer_norm, plan_of, softmax, total

SQUARE = Tensor(f64, (24, 24))


def needed_elsewhere(x: Node) -> tuple[Node, ...]:
    """A fold whose rows are needed along the columns, which its own kernel cannot give; and one that it can."""
    sums = total(exp(x), 1)
    across = broadcast(sums, shape=(24, 24), axes=(1,)) * flip(x, axes=(0,))
    return x / along(sums, x, 1), across, sums


def turned(x: Node) -> tuple[Node, ...]:
    powers = softmax(x, 1)
    return flip(powers, axes=(1,)) + permute(powers, axes=(1, 0)), total(powers, 0)


def shared(x: Node) -> tuple[Node, ...]:
    """Values that several groups need are stored in a second round."""
    powers = exp(exp(x) + 1.0)
    return total(powers, 0), total(powers, 1), layer_norm(powers, 1)


Program = Callable[[Node], tuple[Node, ...]]
PROGRAMS: list[Program] = [needed_elsewhere, turned, shared]


def unused_reads(plan: Plan) -> list[str]:
    """Accesses of kernels that no stage has for an argument."""
    actual = []
    for step in plan.steps:
        if isinstance(step, KernelStep):
            used = {source.number for stage in step.kernel.stages for source in stage.sources if source.kind == "read"}
            actual += [step.kernel.name for number in range(len(step.reads)) if number not in used]
    return actual


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_kernel_reads_only_what_its_stages_use_and_only_memory_of_the_plan(
    program: Program,
) -> None:
    plan = plan_of(program, SQUARE)
    assert unused_reads(plan) == []
    own = set(plan.buffers)
    assert all(buffer in own for step in plan.steps for buffer in (*step.inputs, *step.results))


@pytest.mark.parametrize("program", PROGRAMS)
def test_plans_after_trials_compute_what_the_reference_computes(program: Program) -> None:
    function = trace(program, SQUARE)
    x = np.random.default_rng(3).standard_normal((24, 24))
    for actual, expected in zip(compile_function(function)(x), evaluate(function, x), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-12)


def test_a_root_is_built_once_in_a_group_that_accepts_it_at_first(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[Node] = []
    original = work.KernelBuilder.build_work

    def counting(self: work.KernelBuilder, root: Node) -> work.Work:
        built.append(root)
        return original(self, root)

    monkeypatch.setattr(work.KernelBuilder, "build_work", counting)
    plan = plan_of(lambda x: softmax(x, 1), SQUARE)
    assert len(plan.steps) == 1
    assert len(built) == len(set(built)) == 3


def quotients(x: Node, y: Node) -> Node:
    return x // y


def looked_up(x: Node, y: Node) -> Node:
    return lookup(x, index_along((3,), 0)) + y


@pytest.mark.parametrize("inner", [quotients, looked_up])
def test_ops_that_may_fail_are_not_computed_out_of_bounds(inner: Callable[[Node, Node], Node]) -> None:
    def program(x: Node, y: Node) -> Node:
        padded = pad(inner(x, y), zero(i64), low=(0,), high=(3,), interior=(0,))
        return slice_(padded, start=(2,), size=(3,), step=(1,))  # as many points as there are quotients

    function = trace(program, Tensor(i64, (3,)), Tensor(i64, (3,)))
    values = np.array([8, 9, 10]), np.array([2, 3, 5])
    assert np.array_equal(compile_function(function)(*values), evaluate(function, *values))
