"""`parallelise_loops`: which loops run on threads, equal bits for all numbers of threads, errors, Ctrl-C, callers."""

# ruff: noqa: F821  (names of sizes are variables of a captured function)
# pyright: reportUndefinedVariable=false, reportReturnType=false, reportInvalidTypeForm=false

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import livegrad as lg
from livegrad.compiler import lower_loops
from livegrad.runtime.cpu.compiled_plan import CompiledPlan
from livegrad.runtime.cpu.cpu_function import CpuFunction, run_function
from livegrad.runtime.cpu.cpu_target import CPU
from livegrad.runtime.cpu.kernel_code import KernelCompiler
from livegrad.runtime.cpu.native import pool
from livegrad.runtime.cpu.tier_up import background_compiler
from livegrad.schedule.loops.nest import for_cpu
from livegrad.schedule.plan import KernelStep
from livegrad.schedule.target import Target
from livegrad.tensors.tracing import trace_call

Line, Grid, Square = lg.array[float, "n"], lg.array[float, "n", "m"], lg.array[float, "n", "n"]
Whole, Counts = lg.array[int, "n"], lg.array[int, "m"]
EAGER = replace(CPU, least_parallel_work=0.0)  # threads share all loops that they can
SERIAL = CPU.without("parallelise_loops")


@contextmanager
def threads(count: int) -> Iterator[None]:
    before = pool.threads()
    pool.set_threads(count)
    try:
        yield
    finally:
        pool.set_threads(before)


def function_of(function: Any, arrays: tuple[Any, ...]) -> Any:
    """The value IR of a captured function, or of a function of tensors."""
    if hasattr(function, "specialization_for"):
        return function.specialization_for(*[lg.asarray(a).type if np.ndim(a) else type(a) for a in arrays]).function
    return trace_call(function, [lg.asarray(array).type for array in arrays], "f").function


def notes(function: Any, *arrays: Any, target: Target = EAGER) -> list[str]:
    """The message for each loop of a function's kernels, without its line."""
    plan = CpuFunction(function_of(function, arrays)).schedule(target=target)
    kernels = [step for step in plan.steps if isinstance(step, KernelStep)]
    lines = [note for step in kernels for note in lower_loops(for_cpu(step, target, 64)).loop_notes]
    return [line.split(" at ")[0].rstrip(":") + ":" + line.split(":")[-1] if " at " in line else line for line in lines]


def run(function: Any, arrays: tuple[Any, ...], target: Target, count: int) -> list[bytes]:
    plan = CpuFunction(function_of(function, arrays)).schedule(target=target)
    compiled = CompiledPlan.from_plan(plan, run_function, compiler=KernelCompiler(target))
    background_compiler.current.wait()
    with threads(count):
        return [np.asarray(result).tobytes() for result in compiled.run(list(arrays))]


def parallel_runs(action: Callable[[], Any]) -> int:
    before = pool.stats().parallel_runs
    action()
    return pool.stats().parallel_runs - before


# --- programs --------------------------------------------------------------------------------------------------------


@lg.function
def heat(u: Grid) -> Grid:
    v = u.copy()
    for i in range(1, n - 1):
        for j in range(1, m - 1):
            v[i, j] = 0.25 * (u[i - 1, j] + u[i + 1, j] + u[i, j - 1] + u[i, j + 1])
    return v


@lg.function
def gauss_seidel(u: lg.inout[Grid]):
    for i in range(1, n - 1):
        for j in range(1, m - 1):
            u[i, j] = 0.25 * (u[i - 1, j] + u[i + 1, j] + u[i, j - 1] + u[i, j + 1])


@lg.function
def factorise(a: lg.inout[Square]):
    for k in range(n):
        for i in range(k + 1, n):
            a[i, k] /= a[k, k]
            for j in range(k + 1, n):
                a[i, j] -= a[i, k] * a[k, j]


@lg.function
def flattened(a: lg.inout[Line]):
    for i in range(6):
        for j in range(7):
            a[i * 7 + j] = a[i * 7 + 6 - j] * 0.5 + i


@lg.function
def overlapping(a: lg.inout[Line]):
    for i in range(6):
        for j in range(8):
            a[i * 7 + j] = a[i * 7 + j] * 0.5 + i


@lg.function
def alternating(a: lg.inout[Line]):
    for i in range(1, 20):
        a[2 * i] = 0.5 * (a[2 * i - 1] + a[2 * i + 1])


@lg.function
def triangle(a: lg.inout[Square]):
    for i in range(n):
        for j in range(i):
            a[i, j] = a[i, j] + a[i, i]
            a[j, j] = a[j, j]


@lg.function
def convolved(x: Line, out: lg.inout[Line]):
    for i in lg.parallel(n):
        window = lg.zeros(4)
        for k in range(4):
            window[k] = x[(i + k) % n] * k
        for k in range(3):
            window[k + 1] += window[k]
        out[i] = window[3]


@lg.function
def permuted(x: Line, order: Whole, out: lg.inout[Line]):
    for i in lg.parallel(n):
        out[order[i]] = x[i] * 2.0


@lg.function
def counted(order: Whole, out: lg.inout[Counts]):
    for i in lg.parallel(n):
        out[order[i]] += 1


@lg.function
def increase(a: lg.inout[Counts], k: int):
    a[k] = a[k] + 1


@lg.function
def counted_by_a_helper(order: Whole, out: lg.inout[Counts]):
    for i in lg.parallel(n):
        increase(out, order[i])


@lg.function
def added_rows(x: Grid, out: lg.inout[Line]):
    for i in lg.parallel(n):
        for j in range(m):
            out[i] += x[i, j]


@lg.function
def last_write(x: Line, out: lg.inout[Line]) -> float:
    kept = 0.0
    for i in lg.parallel(n):
        out[i] = x[i]
        kept = x[i]
    return kept + out[0]


@lg.function
def beyond(x: Line, k: int, out: lg.inout[Line]):
    for i in lg.parallel(n):
        out[i] = x[i + k]


def rows_of_tensors(u: Any) -> Any:
    def row(i: Any, v: Any) -> Any:
        return v.at[i, 1:-1].set(0.25 * (u[i - 1, 1:-1] + u[i + 1, 1:-1] + u[i, :-2] + u[i, 2:]))

    return lg.fori_loop(1, u.shape[0] - 1, row, u)


def rows_in_place(u: Any) -> Any:
    def row(i: Any, v: Any) -> Any:
        return v.at[i, 1:].set(lg.flip(v[i, 1:]) * 0.5 + v[i, :1])

    return lg.fori_loop(0, u.shape[0], row, u)


GRID = np.random.default_rng(1).normal(size=(13, 11))
SQUARE = np.random.default_rng(2).normal(size=(12, 12)) + 12.0 * np.eye(12)
LINE = np.random.default_rng(3).normal(size=43)
ORDER = np.random.default_rng(4).permutation(43)
PROGRAMS: dict[str, tuple[Any, tuple[Any, ...], str]] = {
    "heat": (heat, (GRID,), "for_loop: parallel"),
    "gauss_seidel": (gauss_seidel, (GRID,), "one thread, because iterations may access the same element"),
    "factorise": (factorise, (SQUARE,), "  for_loop: parallel"),
    "flattened": (flattened, (LINE,), "for_loop: parallel"),
    "overlapping": (overlapping, (LINE,), "one thread, because iterations may access the same element"),
    "alternating": (alternating, (LINE,), "for_loop: parallel"),
    "triangle": (triangle, (SQUARE,), "one thread, because iterations may access the same element"),
    "convolved": (convolved, (LINE, LINE), "1 private to a thread"),
    "permuted": (permuted, (LINE, ORDER, LINE), "for_loop: parallel"),
    "counted": (counted, (ORDER % 5, np.zeros(5, int)), "one thread, because iterations may access the same element"),
    "counted_by_a_helper": (
        counted_by_a_helper,
        (ORDER % 5, np.zeros(5, int)),
        "one thread, because iterations may access the same element",
    ),
    "added_rows": (added_rows, (GRID, LINE[:13]), "for_loop: parallel"),
    "last_write": (last_write, (LINE, LINE), "one thread, because each iteration needs a value from the previous one"),
    "rows_of_tensors": (rows_of_tensors, (GRID,), "for_loop: parallel"),
    "rows_in_place": (rows_in_place, (GRID,), "private to a thread"),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_loop_nest_says_whether_threads_share_a_loop_and_why_not(name: str) -> None:
    function, arrays, expected = PROGRAMS[name]
    assert any(expected in line for line in notes(function, *arrays)), notes(function, *arrays)


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_bits_are_the_same_for_any_number_of_threads(name: str) -> None:
    function, arrays, _ = PROGRAMS[name]
    expected = run(function, arrays, SERIAL, 1)
    for count in (1, 2, 3):
        assert run(function, arrays, EAGER, count) == expected, f"{count} threads"


@pytest.mark.parametrize("name", [name for name, program in PROGRAMS.items() if hasattr(program[0], "python")])
def test_parallel_loops_compute_what_python_computes(name: str) -> None:
    function, arrays, _ = PROGRAMS[name]
    expected = function.python(*[np.copy(array) for array in arrays])
    actual = np.frombuffer(run(function, arrays, EAGER, 3)[0], np.asarray(expected).dtype)
    np.testing.assert_allclose(actual, np.ravel(expected), rtol=1e-13, atol=1e-13)


def test_threads_do_the_work_of_a_large_loop_and_not_that_of_a_small_one() -> None:
    large, small = np.ones((600, 600)), np.ones((20, 20))
    for grid in (large, small):
        heat(grid)
    with threads(2):
        assert parallel_runs(lambda: heat(small)) == 0
        assert parallel_runs(lambda: heat(large)) >= 1


@pytest.mark.parametrize(("size", "shared"), [(160, False), (1200, True)])
def test_sums_in_lanes_take_less_time_than_their_terms_one_by_one(size: int, shared: bool) -> None:
    def relax(a: Any, x: Any) -> Any:
        def row(i: Any, x: Any) -> Any:
            x[i, 0] = x[i, 0] + lg.sum(a[i] * a[0])
            return x

        return lg.fori_loop(0, a.shape[0], row, x)

    lines = notes(relax, np.ones((size, size)), np.ones((size, 1)), target=CPU)
    assert any("parallel" in line for line in lines) is shared


@pytest.mark.parametrize(("dtype", "shared"), [(bool, False), (np.int8, False), (np.float64, True)])
def test_vectors_have_more_lanes_of_small_elements(dtype: Any, shared: bool) -> None:
    def spread(a: Any) -> Any:
        def row(i: Any, b: Any) -> Any:
            return b.at[i].set(b[i] | a[0] if dtype is not np.float64 else b[i] + a[0])

        return lg.fori_loop(0, a.shape[0], row, a)

    lines = notes(spread, np.ones((200, 200), dtype), target=CPU)
    assert any(": parallel" in line for line in lines) is shared, lines


def test_an_index_out_of_range_in_a_parallel_loop_names_the_line() -> None:
    def fail(count: int) -> str:
        with threads(count), pytest.raises(lg.LivegradError) as caught:
            beyond(np.ones(200_000), 7, np.zeros(200_000))
        return str(caught.value)

    assert notes(beyond, np.ones(200_000), 7, np.zeros(200_000), target=CPU)[0].startswith("for_loop: parallel")
    assert fail(2) == fail(1)
    assert fail(3) == fail(1)
    assert "test_parallel_loops.py" in fail(2)


def test_a_kernel_with_parallel_loops_runs_in_several_threads_of_the_user() -> None:
    grids = [np.random.default_rng(seed).normal(size=(400, 300)) for seed in range(4)]
    expected = [heat(grid) for grid in grids]
    wrong: list[int] = []

    def work(number: int) -> None:
        for _ in range(20):
            if not np.array_equal(heat(grids[number]), expected[number]):
                wrong.append(number)

    with threads(3):
        workers = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    assert wrong == []


@lg.function
def endless(x: Line, out: lg.inout[Line]):
    for i in lg.parallel(n):
        s = x[i]
        for _ in range(10_000_000_000):
            s = lg.sin(s) + 1.0
        out[i] = s


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_an_interrupt_ends_a_parallel_loop_on_all_threads() -> None:
    arrays = np.ones(64), np.zeros(64)
    assert notes(endless, *arrays, target=CPU)[0].startswith("for_loop: parallel")

    def interrupt() -> None:
        time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGINT)

    with threads(3):
        waiting = threading.Thread(target=interrupt)
        waiting.start()
        with pytest.raises(KeyboardInterrupt):
            endless(*arrays)
        waiting.join()
        np.testing.assert_array_equal(heat(np.ones((5, 5))), np.ones((5, 5)))


# --- derivatives -----------------------------------------------------------------------------------------------------


@lg.differentiable
def waves(x: Line, w: float) -> Line:
    out = lg.zeros(n)
    for i in lg.parallel(n):
        s = x[i]
        for _ in range(5):
            s = lg.sin(s) * w
        out[i] = s
    return out


def both_modes(x: Any, w: Any) -> Any:
    value, slope = lg.jvp(lambda x: waves(x, w), (x,), (lg.cos(x),))
    return value, slope, *lg.grad(lambda x, w: lg.sum(waves(x, w) ** 2), argnums=(0, 1))(x, w)


def test_derivatives_of_parallel_loops_have_the_same_bits_for_any_number_of_threads() -> None:
    arrays = (np.linspace(-1.0, 1.0, 50), np.asarray(0.7))
    assert sum("parallel" in line for line in notes(both_modes, *arrays)) >= 3, notes(both_modes, *arrays)
    expected = run(both_modes, arrays, SERIAL, 1)
    for count in (1, 2, 3):
        assert run(both_modes, arrays, EAGER, count) == expected, f"{count} threads"


@pytest.mark.parametrize("fold", [lg.cumulative_sum, lg.max, lg.sum])
def test_a_stage_that_reduces_what_loops_compute_has_no_loop_for_threads(fold: Callable[[Any], Any]) -> None:
    def steps(x: Any, count: Any) -> Any:
        return lg.fori_loop(0, count, lambda i, total: total * 0.5 + x, x)

    x, counts = np.array([0.5, 0.25]), np.array([2, 3])
    actual = lg.jit(lambda x, n: fold(lg.vmap(steps)(x, n)))(x, counts)
    expected = fold(lg.asarray([0.5 * 0.25 + 0.75, 0.25 * 0.125 + 0.4375]))
    assert np.array_equal(np.asarray(actual), np.asarray(expected))
