"""Loops that read and write rows, columns and slices: one kernel computes them by element and writes in place."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import livegrad as lg
from livegrad.compiler import Compilation, lower
from livegrad.runtime.cpu.compiled_plan import CompiledPlan
from livegrad.runtime.cpu.cpu_function import run_function
from livegrad.runtime.cpu.cpu_target import CPU
from livegrad.schedule.plan import KernelStep
from livegrad.schedule.target import Target
from livegrad.tensors.handle import wrap
from livegrad.tensors.tracing import trace_call

SIZE = 5
GRID = np.sin(np.arange(25.0)).reshape(SIZE, SIZE) + 3.0 * np.eye(SIZE)


def repeat(lib: Any, start: Any, stop: Any, body: Callable[[Any, Any], Any], state: Any) -> Any:
    """The same loop for livegrad and for NumPy, whose arrays are copied first."""
    if lib is lg:
        return lg.fori_loop(start, stop, body, state)
    state = tuple(map(np.array, state)) if isinstance(state, tuple) else np.array(state)
    for index in range(int(start), int(stop)):
        state = body(index, state)
    return state


def rows(lib: Any, x: Any) -> Any:
    def body(i: Any, x: Any) -> Any:
        x[i] = x[i - 1] * 0.5 + lib.sin(x[i])
        return x

    return repeat(lib, 1, SIZE, body, x)


def columns(lib: Any, x: Any) -> Any:
    def body(j: Any, x: Any) -> Any:
        x[:, j] = 0.3 * x[:, j] + 0.7 * x[:, j - 1]
        return x

    return repeat(lib, 1, SIZE, body, x)


def turned(lib: Any, x: Any) -> Any:
    """Each element reads the other end of the row that is written."""

    def body(i: Any, x: Any) -> Any:
        x[i] = x[i][::-1] * 0.5 + x[i - 1]
        return x

    return repeat(lib, 1, SIZE, body, x)


def elimination(lib: Any, x: Any) -> Any:
    places = lib.arange(SIZE)

    def eliminate(k: Any, x: Any) -> Any:
        def row(i: Any, x: Any) -> Any:
            x[i, k] = x[i, k] / x[k, k]
            x[i] = lib.where(places > k, x[i] - x[i, k] * x[k], x[i])
            return x

        return repeat(lib, k + 1, SIZE, row, x)

    return repeat(lib, 0, SIZE - 1, eliminate, x)


def orthogonal(lib: Any, x: Any) -> Any:
    def normalise(k: Any, q: Any) -> Any:
        q[:, k] = q[:, k] / lib.sqrt(lib.sum(q[:, k] ** 2))

        def subtract(j: Any, q: Any) -> Any:
            q[:, j] = q[:, j] - q[:, k] * lib.sum(q[:, k] * q[:, j])
            return q

        return repeat(lib, k + 1, SIZE, subtract, q)

    return repeat(lib, 0, SIZE, normalise, x)


def shortest_paths(lib: Any, x: Any) -> Any:
    """New versions of the whole tensor, from a row and a column of the old one."""

    def inner(k: Any, d: Any) -> Any:
        return lib.minimum(d, d[:, k, None] + d[None, k, :])

    def outer(k: Any, d: Any) -> Any:
        return repeat(lib, 0, 2, lambda _, d: inner(k, d), d)

    return repeat(lib, 0, SIZE, outer, lib.abs(x))


def two_tensors(lib: Any, x: Any) -> Any:
    """Copies a row of one tensor to a column of another, and a sum of the latter back."""

    def body(i: Any, state: Any) -> Any:
        x, y = state
        row = x[i] * 2.0
        x[i] = x[i] + y[:, i]
        y[:, SIZE - 1 - i] = row + lib.sum(x[i])
        return x, y

    x, y = repeat(lib, 0, SIZE, body, (x, x * 0.25))
    return x + y


def gathered(lib: Any, x: Any) -> Any:
    order = lib.asarray(np.array([3, 1, 4, 0, 2]))

    def body(i: Any, x: Any) -> Any:
        x[i] = x[i][order] + x[(i + 1) % SIZE]
        return x

    return repeat(lib, 0, SIZE, body, x)


def chosen(lib: Any, x: Any) -> Any:
    """The index of the largest element determines what is written."""

    def body(i: Any, x: Any) -> Any:
        best = lib.argmax(x[i])
        x[i, best] = lib.sum(x[:, best]) * 0.25
        x[:, i] = lib.maximum(x[:, i], x[i])
        return x

    return repeat(lib, 0, SIZE, body, x)


PROGRAMS = {
    program.__name__: program
    for program in (
        rows,
        columns,
        turned,
        elimination,
        orthogonal,
        shortest_paths,
        two_tensors,
        gathered,
        chosen,
    )
}


def compiled(function: Callable[..., Any], *arguments: Any, target: Target = CPU) -> tuple[CompiledPlan, list[Any]]:
    """The plan of a function of arrays, and its arguments."""
    traced = trace_call(function, [lg.asarray(argument).type for argument in arguments], "program")
    plan = CompiledPlan.from_plan(Compilation(lower(traced.function, target), target).plan, run_function)
    return plan, [*arguments, *(np.asarray(wrap(node)) for node in traced.captures)]


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_nest_is_kernels_and_computes_what_numpy_does(name: str) -> None:
    program = PROGRAMS[name]
    plan, arguments = compiled(lambda x: program(lg, x), GRID)
    assert plan.only_kernels
    np.testing.assert_allclose(plan.run(arguments)[0], program(np, GRID), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients_are_kernels_and_those_of_loops_over_tensors(name: str) -> None:
    program = PROGRAMS[name]
    gradient = lg.grad(lambda x: lg.sum(program(lg, x) * np.linspace(0.5, 1.5, 25).reshape(SIZE, SIZE)))
    plan, arguments = compiled(gradient, GRID)
    assert plan.only_kernels
    other, _ = compiled(gradient, GRID, target=CPU.without("loop_over_elements", "lower_tapes"))
    np.testing.assert_allclose(plan.run(arguments)[0], other.run(arguments)[0], rtol=1e-9, atol=1e-12)
    lg.check_gradients(lambda x: lg.sum(program(lg, x) ** 2), lg.asarray(GRID))


def test_a_row_is_written_in_place_whatever_the_number_of_rows() -> None:
    def halved(x: Any) -> Any:
        def body(i: Any, x: Any) -> Any:
            x[i] = x[i] * 0.5
            return x

        return lg.fori_loop(0, 10, body, x)

    for count in (100, 10_000):
        plan = Compilation(lower(trace_call(halved, [lg.zeros((count, 8)).type], "program").function, CPU), CPU).plan
        *copies, loop = plan.steps
        assert [step.results[0].size for step in copies] == [count * 8]  # the argument belongs to the caller
        assert isinstance(loop, KernelStep)
        assert loop.kernel.written


def test_nested_loops_over_rows_call_no_python_between_iterations() -> None:
    def program(count: int) -> Callable[[Any], Any]:
        def outer(k: Any, x: Any) -> Any:
            def inner(i: Any, x: Any) -> Any:
                x[i] = x[i] * 0.5 + x[k]
                return x

            return lg.fori_loop(0, SIZE, inner, x)

        return lambda x: lg.fori_loop(0, count, outer, x)

    def calls(count: int) -> int:
        plan, arguments = compiled(program(count), GRID)
        plan.run(arguments)
        actual = []
        sys.setprofile(lambda frame, event, argument: actual.append(event))
        try:
            plan.run(arguments)
        finally:
            sys.setprofile(None)
        return len(actual)

    assert calls(2) == calls(5)


def test_branches_and_while_loops_write_rows() -> None:
    def step(lib: Any, i: Any, x: Any) -> Any:
        x[i] = x[i] * 0.5 + x[(i + 1) % SIZE]
        return x

    def body(state: Any) -> Any:
        i, x = state
        x = lg.cond(x[i, 0] > 0.0, lambda x: step(lg, i, x), lambda x: x * 0.75, x)
        return i + 1, x

    def program(x: Any) -> Any:
        return lg.while_loop(lambda s: (s[0] < SIZE) & (lg.sum(s[1][0]) < 50.0), body, (lg.asarray(0), x))[1]

    plan, arguments = compiled(program, GRID)
    assert plan.only_kernels
    expected = GRID.copy()
    for i in range(SIZE):
        expected = step(np, i, expected) if expected[i, 0] > 0.0 else expected * 0.75
    np.testing.assert_allclose(plan.run(arguments)[0], expected, rtol=1e-12)


def test_rows_swapped_between_tensors_are_right() -> None:
    """Each tensor needs the old version of the other, so no order of in-place writes exists."""

    def body(i: Any, state: Any) -> Any:
        x, y = state
        first, second = x[i] + 0.0, y[i] + 0.0
        x[i], y[i] = second, first
        return y, x

    plan, arguments = compiled(lambda x, y: lg.fori_loop(0, 3, body, (x, y)), GRID, GRID * 2.0)
    x, y = GRID.copy(), GRID * 2.0
    for i in range(3):
        x[i], y[i] = y[i].copy(), x[i].copy()
        x, y = y, x
    for result, expected in zip(plan.run(arguments), (x, y), strict=True):
        np.testing.assert_array_equal(result, expected)


def test_a_loop_over_whole_tensors_stays_one() -> None:
    """Threads and lanes run whole tensors faster than a loop over elements."""
    shape = (1000, 1000)

    def program(x: Any) -> Any:
        def body(i: Any, state: Any) -> Any:
            x, total = state
            total[i] = lg.sum(x)
            return lg.sin(x) * 2.0, total

        return lg.fori_loop(0, 10, body, (x, lg.zeros(10, dtype=lg.float64)))[0]

    plan, _ = compiled(program, np.ones(shape))
    assert not plan.only_kernels


def test_a_row_out_of_range_names_the_users_line() -> None:
    def beyond(x: Any) -> Any:
        def body(i: Any, x: Any) -> Any:
            x[i + 3] = x[i] * 2.0  # the line of the error
            return x

        return lg.fori_loop(0, 4, body, x)

    with pytest.raises(lg.LivegradError, match=r"index out of range.*test_loops_over_rows\.py") as raised:
        lg.jit(beyond)(lg.zeros((5, 3))).numpy()
    line = int(str(raised.value).split("test_loops_over_rows.py:")[1].split(":")[0].split(")")[0])
    assert "the line of the error" in Path(__file__).read_text("utf-8").splitlines()[line - 1]
