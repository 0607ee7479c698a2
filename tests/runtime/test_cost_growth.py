"""How the cost of loops grows with array sizes and iterations, counted in plans, code and Python calls."""

# ruff: noqa: F821  (names of sizes are variables of a captured function)
# pyright: reportUndefinedVariable=false, reportReturnType=false, reportInvalidTypeForm=false

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import livegrad as lg
from livegrad.codegen.llvm.kernel_module import emit_kernel
from livegrad.compiler import Compilation, lower, lower_loops
from livegrad.ir.node import Function
from livegrad.ir.types import Tensor
from livegrad.runtime.cpu.compiled_plan import CompiledPlan
from livegrad.runtime.cpu.cpu_function import run_function
from livegrad.runtime.cpu.cpu_target import CPU
from livegrad.schedule.loops.nest import for_cpu
from livegrad.schedule.plan import KernelStep, Plan
from livegrad.tensors.handle import wrap
from livegrad.tensors.tracing import trace_call

SMALL, LARGE = 1_000, 10_000_000
WRITES = 500  # in each program below, for all array sizes


def set_element(i: Any, x: Any) -> Any:
    x[i] = x[i + 1] * 0.5 + i
    return x


def add_to_element(i: Any, x: Any) -> Any:
    return x.at[2 * i % 700].add(1.5)


def set_slice(i: Any, x: Any) -> Any:
    x[i : i + 8] = x[i : i + 8] * 0.5 + 1.0
    return x


def set_by_index(i: Any, x: Any) -> Any:
    place = lg.astype(abs(x[i]) * 10.0, lg.int64) % 900
    x[place] = x[i] + 1.0
    return x


def set_in_branch(i: Any, x: Any) -> Any:
    return lg.cond(x[i] > 0.0, lambda x: x.at[i].set(-x[i]), lambda x: x.at[i + 1].mul(0.5), x)


def set_in_nest(i: Any, x: Any) -> Any:
    return lg.fori_loop(0, 4, lambda j, x: x.at[i + j].set(x[i + j + 1] * 0.5), x)


BODIES = (set_element, add_to_element, set_slice, set_by_index, set_in_branch, set_in_nest)


def repeated(body: Callable[[Any, Any], Any]) -> Callable[[Any], Any]:
    return lambda x: lg.fori_loop(0, WRITES, body, x)


def until_it_sums_up(x: Any) -> Any:
    def step(state: Any) -> Any:
        i, total, x = state
        x[i] = x[i] * 0.5 + total
        return i + 1, total + 0.25, x

    return lg.while_loop(lambda s: s[1] < 100.0, step, (lg.asarray(0), lg.asarray(0.0, dtype=lg.float64), x))[2]


def scanned(x: Any) -> Any:
    def step(x: Any, i: Any) -> Any:
        x[i] = x[i + 1] + 1.0
        return x, x[i]

    return lg.scan(step, x, lg.arange(WRITES))


PROGRAMS = {body.__name__: repeated(body) for body in BODIES} | {"while_loop": until_it_sums_up, "scan": scanned}


def plan_of(function: Function) -> Plan:
    return Compilation(lower(function, CPU), CPU).plan


def traced(program: Callable[..., Any], *shapes: tuple[int, ...]) -> Any:
    return trace_call(program, [Tensor(lg.f64, shape) for shape in shapes], "program")


def kernels_of_loops(plan: Plan) -> list[KernelStep]:
    return [s for s in plan.steps if isinstance(s, KernelStep) and s.kernel.written and s.kernel.name.endswith("_loop")]


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_write_in_a_loop_runs_the_same_code_at_a_thousand_and_at_ten_million_elements(name: str) -> None:
    texts = []
    for size in (SMALL, LARGE):
        plan = plan_of(traced(PROGRAMS[name], (size,)).function)
        loops = kernels_of_loops(plan)
        assert loops, f"no native loop writes in place:\n{plan}"
        kernel_texts = [emit_kernel(lower_loops(for_cpu(step, CPU, vector_bytes=64))).text for step in loops]
        texts.append([text.replace(f" {size}", " SIZE") for text in kernel_texts])  # a negative index adds the size
    assert texts[0] == texts[1]


@pytest.mark.parametrize("name", PROGRAMS)
def test_nothing_but_the_argument_is_copied_for_writes_in_a_loop(name: str) -> None:
    """The caller keeps the argument, so it is copied once. All other traffic is the same at both sizes."""

    def bytes_beside_the_copy(size: int) -> int:
        plan = plan_of(traced(PROGRAMS[name], (size,)).function)
        moved = 0
        copies = 0
        for step in plan.steps:
            assert isinstance(step, KernelStep)
            whole = [buffer for buffer in (*step.inputs, *step.results) if buffer.size >= size]
            if step in kernels_of_loops(plan):
                moved += sum(buffer.bytes for buffer in (*step.inputs, *step.results) if buffer.size < size)
            elif whole:
                copies += 1
        assert copies == 1, f"{copies} copies of the array:\n{plan}"
        return moved

    assert bytes_beside_the_copy(SMALL) == bytes_beside_the_copy(LARGE)


# --- Python calls ----------------------------------------------------------------------------------------------------


def nested(count: int) -> Callable[..., Any]:
    def row(i: Any, x: Any) -> Any:
        return lg.fori_loop(0, 7, lambda j, x: x.at[i % 9, j].set(x[i % 9, j + 1] * 0.5 + x[(i + 1) % 9, j]), x)

    return lambda x: lg.fori_loop(0, count, row, x)


def scan_in_scan(count: int) -> Callable[..., Any]:
    def outer(x: Any, total: Any) -> Any:
        return lg.scan(lambda t, v: (lg.sin(t) + v * 0.1, None), total, x[1])[0], total

    return lambda x: lg.scan(lambda total, _: outer(x, total), x[0, 0], None, length=count)


def while_in_loop(count: int) -> Callable[..., Any]:
    def halve(i: Any, x: Any) -> Any:
        return lg.while_loop(lambda x: x[i % 9, 0] > 1.0, lambda x: x.at[i % 9, 0].mul(0.5), x.at[i % 9, 0].add(3.0))

    return lambda x: lg.fori_loop(0, count, halve, x)


def branch_in_loop(count: int) -> Callable[..., Any]:
    def change(i: Any, x: Any) -> Any:
        return lg.cond(x[i % 9, 1] > 0.0, lambda x: x.at[i % 9].set(x[(i + 1) % 9]), lambda x: x.at[0, 0].add(1.0), x)

    return lambda x: lg.fori_loop(0, count, change, x)


def complex_loop(count: int) -> Callable[..., Any]:
    return lambda x: abs(lg.fori_loop(0, count, lambda i, z: z * z * 0.5 + 0.1j, lg.astype(x, lg.complex128)))


def gradient(program: Callable[[int], Callable[..., Any]]) -> Callable[[int], Callable[..., Any]]:
    return lambda count: lg.grad(lambda x: lg.sum(lg.tree_map(lg.sum, program(count)(x))))


NESTS: dict[str, Callable[[int], Callable[..., Any]]] = {
    "nested": nested,
    "scan in scan": scan_in_scan,
    "while in loop": while_in_loop,
    "branch in loop": branch_in_loop,
    "complex": complex_loop,
    "gradient of nested": gradient(nested),
}


def python_calls(program: Callable[..., Any], array: Any) -> int:
    """The number of Python calls while a compiled program runs."""
    function = trace_call(program, [lg.asarray(array).type], "program")
    plan = CompiledPlan.from_plan(plan_of(function.function), run_function)
    arguments = [array, *(np.asarray(wrap(node)) for node in function.captures)]
    for _ in range(2):  # the second run of a process makes a built-in function
        plan.run(arguments)
    return events_of(lambda: plan.run(arguments))


def events_of(action: Callable[[], Any]) -> int:
    """The number of Python calls and returns."""
    events: list[str] = []
    sys.setprofile(lambda frame, event, argument: events.append(event))
    try:
        action()
    finally:
        sys.setprofile(None)
    return len(events)


@pytest.mark.parametrize("name", NESTS)
def test_nested_loops_cost_no_python_calls_an_iteration(name: str) -> None:
    array = np.random.default_rng(0).normal(size=(9, 8))
    assert python_calls(NESTS[name](1_000), array) == python_calls(NESTS[name](4_000), array)


def test_a_jitted_scan_over_positions_in_a_scan_costs_no_python_calls_an_iteration() -> None:
    def calls(count: int) -> int:
        def inner(total: Any) -> Any:
            return lg.scan(lambda t, j: (lg.sin(t) + j * 0.1, None), total, lg.arange(5))[0]

        run = lg.jit(lambda x: lg.scan(lambda total, _: (inner(total), total), x, None, length=count))
        x = lg.asarray(np.asarray(0.5))
        run(x)
        run(x)  # creates the fast call
        return events_of(lambda: run(x))

    assert calls(4_000) < calls(1_000) + 100  # for tensors that are collected meanwhile


@lg.function
def kernel(a: lg.inout[lg.array[float, "n", "m"]], steps: int):
    for t in range(steps):
        for i in range(1, n - 1):
            for j in lg.parallel(m):
                a[i, j] = a[i - 1, j] * 0.5 + a[i + 1, j] * 0.25 + t


def test_array_kernels_cost_no_python_calls_an_iteration() -> None:
    def calls(steps: int) -> int:
        array = np.ones((9, 8))
        for _ in range(3):  # the first call compiles, and the second caches the call
            kernel(array, steps)
        return events_of(lambda: kernel(array, steps))

    assert calls(1_000) == calls(4_000)
