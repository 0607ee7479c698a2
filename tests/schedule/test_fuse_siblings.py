"""Kernels that write parts of several tensors at the same points are merged unless steps depend on each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import livegrad as lg
from livegrad.runtime.cpu.compiled_plan import CompiledPlan
from livegrad.runtime.cpu.cpu_function import CpuFunction, run_function
from livegrad.runtime.cpu.cpu_target import CPU
from livegrad.schedule.fuse_siblings import fuse_siblings
from livegrad.schedule.plan import KernelStep, Plan
from livegrad.tensors.tracing import trace_call

Program = Callable[..., Any]
GENERATOR = np.random.default_rng(5)
GRID, OTHER = GENERATOR.normal(size=(120, 150)), GENERATOR.normal(size=(120, 150))


def scheduled(program: Program, *arrays: Any, without: tuple[str, ...] = ()) -> Plan:
    function = trace_call(program, [lg.asarray(array).type for array in arrays], "program").function
    return CpuFunction(function).schedule(target=CPU.without(*without))


def fields(x: Any, y: Any) -> Any:
    """Two fields that read the same neighbours on a periodic grid."""
    near = lg.roll(x, 1, axis=1) + lg.roll(y, -1, axis=1)
    return x + 0.1 * near, y - 0.2 * near


def boxes(x: Any, y: Any) -> Any:
    a, b = x + 0.0, y + 0.0
    a[1:-1, 1:-1] = x[2:, 1:-1] - y[:-2, 1:-1]
    b[1:-1, 1:-1] = x[2:, 1:-1] + y[:-2, 1:-1]
    return a, b


def in_turn(x: Any, y: Any) -> Any:
    """The second box lies over part of the first, and the third reads it."""
    a, b = x + 0.0, y + 0.0
    a[1:101, 1:101] = y[:100, :100]
    a[3:103, 3:103] = y[:100, :100] * 2.0
    b[2:102, 2:102] = a[3:103, 3:103] + y[:100, :100]
    return a, b


def padded(x: Any, y: Any) -> Any:
    return lg.concat([x, y], axis=0), lg.concat([y, x * 2.0], axis=0), lg.concat([x[:, ::-1], y + x], axis=0)


PROGRAMS: dict[str, Program] = {"fields": fields, "boxes": boxes, "in turn": in_turn, "padded": padded}


@pytest.mark.parametrize("name", PROGRAMS)
def test_merged_kernels_compute_the_same_bits(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program = PROGRAMS[name]
    together = scheduled(program, GRID, OTHER)
    with monkeypatch.context() as patched:
        patched.setattr("livegrad.schedule.plan_passes.fuse_siblings", lambda steps: steps)
        apart = scheduled(program, GRID, OTHER)
    assert together.kernels < apart.kernels or name == "in turn"
    results = [CompiledPlan.from_plan(plan, run_function).run([GRID, OTHER]) for plan in (together, apart)]
    for one, other in zip(*results, strict=True):
        assert one.tobytes() == other.tobytes()


def test_values_that_several_kernels_read_are_read_once() -> None:
    steps = [step for step in scheduled(fields, GRID, OTHER).steps if isinstance(step, KernelStep)]
    inside = max(steps, key=lambda step: step.domain)
    assert len(inside.outputs) == 2
    assert len(set(inside.reads)) == len(inside.reads) == 4


def test_a_kernel_stays_behind_what_it_reads_or_writes_over() -> None:
    steps = [step for step in scheduled(in_turn, GRID, OTHER, without=("fuse",)).steps if isinstance(step, KernelStep)]
    fused = fuse_siblings(steps)
    for number, step in enumerate(fused):
        assert set(step.inputs).isdisjoint(step.results)
        assert all(set(step.inputs).isdisjoint(other.results) or other in steps for other in fused[number + 1 :])


def test_random_boxes_of_random_fields_keep_their_values() -> None:
    random = np.random.default_rng(11)
    for _ in range(12):
        starts = random.integers(0, 20, (5, 2, 2))
        which = random.integers(0, 3, (5, 2))

        def program(lib: Any, x: Any, y: Any, starts: Any = starts, which: Any = which) -> Any:
            state = [x + 0.0, y + 0.0, x * y]
            for (to, source), (into, out) in zip(which.tolist(), starts.tolist(), strict=True):
                part = state[source][out[0] : out[0] + 100, out[1] : out[1] + 100] * 0.5 + 1.0
                state[to][into[0] : into[0] + 100, into[1] : into[1] + 100] = part
            return tuple(state)

        actual = lg.jit(lambda x, y, program=program: program(lg, x, y))(GRID, OTHER)
        for one, other in zip(actual, program(np, GRID, OTHER), strict=True):
            np.testing.assert_array_equal(np.asarray(one), other)


def test_steps_over_empty_tensors_may_be_merged() -> None:
    x = lg.asarray(np.ones((0, 3)))
    first, second = lg.jit(lambda x: (lg.sin(x[:, :2]) * 2.0, lg.cos(x[:, 1:]) + 1.0))(x)
    assert first.shape == second.shape == (0, 2)
    gradient = lg.jit(lg.grad(lambda x: lg.sum(lg.concat([lg.sin(x), x * x], axis=1))))(x)
    assert gradient.shape == (0, 3)
