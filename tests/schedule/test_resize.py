"""Maps over one axis are scheduled once: a resized plan equals the plan that scheduling would build."""

from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pytest

import livegrad as lg
from livegrad import ops
from livegrad.compiler import Compilation
from livegrad.ir.dimension import Dimension
from livegrad.ir.function import trace
from livegrad.ir.leaves import constant
from livegrad.ir.node import Function, Node
from livegrad.ir.types import Tensor, Vector, f32, f64, i64
from livegrad.ops.aggregate import member
from livegrad.ops.maps import map_over
from livegrad.runtime.cpu import CpuFunction, cpu_function
from livegrad.runtime.cpu.compiled_plan import CompiledPlan
from livegrad.runtime.cpu.cpu_function import run_function
from livegrad.schedule.plan import KernelStep, Plan
from livegrad.schedule.resize import resize_plan
from livegrad.state import fresh_session

N = Dimension.symbol("n")
LENGTHS = (2, 5, 64, 513, 4096)


@pytest.fixture
def scheduled(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Function, Any]]:
    """The functions that are scheduled, and for which sizes; no plan comes from disk."""
    actual: list[tuple[Function, Any]] = []

    def record(lowered: Function, target: Any, sizes: Any = None) -> Compilation:
        actual.append((lowered, sizes))
        return Compilation(lowered, target, sizes)

    monkeypatch.setattr(cpu_function, "Compilation", record)
    monkeypatch.setattr(CpuFunction, "_load", lambda self, sizes: None)
    return actual


def spread_out(x: Node, v: Node, k: Node) -> tuple[Node, Node]:
    """Two results, rows of three numbers, and a number that all points share."""
    return ops.sin(x) * k + member(v, 1), v * ops.splat(x, type=v.type)


def looked_up(i: Node, table: Node) -> Node:
    return ops.lookup(table, i % 7) * 2.0


def looped(x: Node) -> Node:
    return ops.make_for_loop(constant(3, i64), lambda i, s: ops.sin(s) + x, x)[0]


MAPS: dict[str, tuple[Callable[..., Any], list[Any], tuple[bool, ...]]] = {
    "several results": (spread_out, [f32, Vector(f32, 3), f32], (True, True, False)),
    "a table": (looked_up, [i64, Tensor(f64, (7,))], (True, False)),
    "a loop": (looped, [f64], (True,)),
}


def made_map(name: str) -> Function:
    body, types, lifted = MAPS[name]
    return map_over(trace(body, *types), lifted)


def random_map(random: Random) -> Function:
    """A function of some numbers and of one that all points share, which is often used."""

    def body(*given: Node) -> list[Node]:
        values = list(given)
        for _ in range(random.randint(1, 20)):
            first, second = random.choice(values), random.choice(values)
            kind = random.choice(["add", "mul", "sin", "choose", "branch"])
            if kind == "sin":
                values.append(ops.sin(first))
            elif kind == "choose":
                values.append(ops.select(first > second, first, second * 0.5))
            elif kind == "branch":
                values.append(ops.make_cond(first > 0.2, lambda v: ops.sqrt(ops.abs(v)), lambda v: v * v, second))
            else:
                values.append(getattr(ops, kind)(first, second))
        computed = values[len(given) :]
        return [value + given[0] for value in computed[-random.randint(1, 3) :]]

    number = random.randint(1, 3)
    return map_over(trace(body, *[random.choice([f32, f64])] * (number + 1)), (*[True] * number, False))


def arguments_for(function: Function, length: int) -> list[Any]:
    rng = np.random.default_rng(length)
    actual: list[Any] = []
    for type in function.parameter_types:
        if isinstance(type, Tensor):
            shape = [length if isinstance(size, Dimension) else size for size in type.shape]
            dtype = type.element.dtype
            actual.append((rng.random(shape) * 9).astype(dtype))
        else:
            actual.append(type.dtype.type(0.5))  # type: ignore[attr-defined]
    return actual


def described(plan: Plan) -> list[Any]:
    """All that there is to a plan of kernels, without the identity of its buffers."""
    steps = [step for step in plan.steps if isinstance(step, KernelStep)]
    assert len(steps) == len(plan.steps)
    views = [
        [(view.buffer.number, view.buffer.shape, view.offset, view.strides) for view in group]
        for step in steps
        for group in (step.reads, step.scalar_arguments, step.outputs)
    ]
    slots = [(str(slot), slot.shape) for slot in (*plan.arguments, *plan.results)]  # type: ignore[union-attr]
    kernels = [(step.kernel, step.domain, step.inner, step.chunk) for step in steps]
    return [str(plan), kernels, views, slots, [buffer.shape for buffer in plan.buffers], plan.arena_bytes]


def assert_planned_once(function: Function, scheduled: list[tuple[Function, Any]]) -> None:
    source = CpuFunction(function)
    for length in LENGTHS:
        arguments = arguments_for(function, length)
        actual = source(*arguments)
        plan = source.schedule({"n": length})
        resized = resize_plan(source.schedule({"n": 37}), source.lowered, {"n": length})
        assert resized is not None
        assert described(resized) == described(plan)
        expected = CompiledPlan.from_plan(plan, run_function).run(arguments)
        for own, other in zip(actual if isinstance(actual, tuple) else (actual,), expected, strict=True):
            np.testing.assert_array_equal(own, other)
    assert len(scheduled) == 1 + 2 * len(LENGTHS)  # all but one were made here, to compare


@pytest.mark.parametrize("name", MAPS)
def test_a_map_has_one_plan_for_all_lengths(name: str, scheduled: list[tuple[Function, Any]]) -> None:
    assert_planned_once(made_map(name), scheduled)


@pytest.mark.parametrize("seed", range(6))
def test_a_random_map_has_one_plan_for_all_lengths(seed: int, scheduled: list[tuple[Function, Any]]) -> None:
    assert_planned_once(random_map(Random(seed)), scheduled)


def test_a_picture_schedules_each_of_its_functions_once(scheduled: list[tuple[Function, Any]]) -> None:
    ball = lg.shapes.sphere(1.375).part(((-2.0, -2.0, -2.0), (2.0, 2.0, 2.0)))
    with fresh_session():
        lg.render(ball, size=(48, 32))
    functions = [lowered for lowered, _ in scheduled]
    assert len(functions) >= 4
    assert len(functions) == len(set(functions))


@pytest.mark.parametrize("length", [0, 1])
def test_lengths_zero_and_one_are_scheduled_separately(length: int, scheduled: list[tuple[Function, Any]]) -> None:
    source = CpuFunction(made_map("a loop"))
    source(np.ones(4))
    assert np.shape(source(np.ones(length))) == (length,)
    assert [sizes for _, sizes in scheduled] == [{"n": 4}, {"n": length}]


def test_an_index_out_of_range_is_found_at_its_element_in_every_length() -> None:
    def row(i: Node, table: Node) -> Node:
        return ops.lookup(table, i)

    source = CpuFunction(map_over(trace(row, i64, Tensor(f64, (7,))), (True, False)))
    source(np.zeros(12, np.int64), np.arange(7.0))
    bad = np.zeros(40, np.int64)
    bad[33] = 9
    with pytest.raises(lg.LivegradError, match=r"index out of range for axis 0, at element 33 \(test_resize.py"):
        source(bad, np.arange(7.0))


def sums(x: Node) -> Node:
    return ops.reduce(x, kind="sum", axes=(0,))


def summed_map(x: Node) -> Node:
    return ops.make_map(trace(lambda x: x * x, f64), x, summed=(True,))


def read_anywhere(i: Node, x: Node) -> Node:
    """A map whose points read the whole array."""
    return ops.make_map(trace(lambda i, x: ops.lookup(x, i), i64, x.type), i, x)


OTHERS: dict[str, tuple[Callable[..., Any], list[Any]]] = {
    "a sum": (sums, [Tensor(f64, (N,))]),
    "a map that is summed": (summed_map, [Tensor(f64, (N,))]),
    "an array as a table": (read_anywhere, [Tensor(i64, (N,)), Tensor(f64, (N,))]),
    "two maps": (lambda x: ops.make_map(trace(ops.sin, f64), ops.cos(x)), [Tensor(f64, (N,))]),
    "another length": (lambda x: ops.make_map(trace(ops.sin, f64), x), [Tensor(f64, (N + 1,))]),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_programs_that_depend_on_the_length_are_scheduled_for_each(name: str) -> None:
    program, types = OTHERS[name]
    source = CpuFunction(trace(program, *types))
    assert resize_plan(source.schedule({"n": 8}), source.lowered, {"n": 9}) is None
