"""Batches of divergent loops that write arrays by index run as a loop over members, in one kernel."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import livegrad as lg
from livegrad.codegen.cuda.cuda_target import CUDA
from livegrad.compiler import compile_plan, lower
from livegrad.ir.walk import ops_in, reachable_functions
from livegrad.ops.members import members_call
from livegrad.runtime.cpu.compiled_plan import CompiledPlan
from livegrad.runtime.cpu.cpu_function import CpuFunction, run_function
from livegrad.runtime.cpu.cpu_target import CPU
from livegrad.runtime.reference import evaluate
from livegrad.tensors.tracing import trace_call
from tests.schedule.plans import host_ops

ROW = 12


def insertion_sort(row: Any) -> Any:
    def insert(i: Any, row: Any) -> Any:
        value = row[i]

        def shift(state: Any) -> Any:
            k, row = state
            row[k] = row[k - 1]
            return k - 1, row

        k, row = lg.while_loop(
            lambda state: (state[0] > 0) & (state[1][lg.maximum(state[0] - 1, 0)] > value), shift, (i, row)
        )
        row[k] = value
        return row

    return lg.fori_loop(1, row.shape[0], insert, row)


def longest_increasing(row: Any) -> Any:
    """The length of the longest increasing subsequence, by binary search among the least ends of each length."""

    def place(i: Any, state: Any) -> Any:
        ends, length = state
        value = row[i]

        def halve(bounds: Any) -> Any:
            low, high = bounds
            middle = (low + high) // 2
            right = ends[middle] < value
            return lg.where(right, middle + 1, low), lg.where(right, high, middle)

        at, _ = lg.while_loop(lambda bounds: bounds[0] < bounds[1], halve, (lg.zeros((), dtype=lg.int64), length))
        ends[at] = value
        return ends, lg.maximum(length, at + 1)

    return lg.fori_loop(0, row.shape[0], place, (lg.zeros_like(row), lg.zeros((), dtype=lg.int64)))[1]


def count_by_python(rows: np.ndarray) -> np.ndarray:
    def length(row: np.ndarray) -> int:
        best = [1] * len(row)
        for i in range(len(row)):
            best[i] = 1 + max([best[j] for j in range(i) if row[j] < row[i]], default=0)
        return max(best)

    return np.array([length(row) for row in rows])


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(5).standard_normal(shape)


def function_of(program: Callable[..., Any], *arrays: np.ndarray) -> Any:
    return trace_call(program, [lg.asarray(array).type for array in arrays], "program").function


def run(program: Callable[..., Any], *arrays: np.ndarray) -> list[np.ndarray]:
    """The results, which are the same bits together and in turn; in turn, nothing runs on the host."""
    source = CpuFunction(function_of(program, *arrays))
    usual, other = source.schedule(), source.schedule(target=CPU.without("run_members_in_turn"))
    assert not host_ops(usual)
    assert str(usual) != str(other) or len(arrays[0]) < 2, "one member alone needs no loop"
    found = CompiledPlan.from_plan(usual, run_function).run(list(arrays))
    wanted = CompiledPlan.from_plan(other, run_function).run(list(arrays))
    for own, right in zip(found, wanted, strict=True):
        assert own.dtype == right.dtype
        np.testing.assert_array_equal(own, right)
    return found


@pytest.mark.parametrize("length", [9, ROW, 70])
@pytest.mark.parametrize("members", [0, 1, 23])
def test_each_member_sorts_its_own_row(members: int, length: int) -> None:
    rows = numbers(members, length)
    np.testing.assert_array_equal(run(lg.vmap(insertion_sort), rows)[0], np.sort(rows, axis=1))


def test_members_give_numbers_and_arrays_of_their_own() -> None:
    rows = numbers(40, 35)
    (lengths,) = run(lg.vmap(longest_increasing), rows)
    np.testing.assert_array_equal(lengths, count_by_python(rows))


def test_arrays_of_a_few_elements_stay_in_registers() -> None:
    for program, length in ((insertion_sort, 8), (longest_increasing, 32)):
        assert members_call not in ops_in(function_of(lg.vmap(program), numbers(23, length)))
        assert members_call in ops_in(function_of(lg.vmap(program), numbers(23, length + 1)))


def test_members_share_tensors_and_take_several_axes() -> None:
    def search(table: Any, row: Any, start: Any) -> Any:
        def visit(state: Any) -> Any:
            node, counts, steps = state
            counts[node] = counts[node] + row[steps]
            return table[node, steps % 3], counts, steps + 1

        ends = lg.while_loop(
            lambda state: (state[1][state[0]] < 1.0) & (state[2] < ROW - 1), visit, (start, lg.zeros_like(row), start)
        )
        return ends[1], ends[2]

    table = np.random.default_rng(1).integers(0, ROW, (ROW, 3))
    rows, starts = np.abs(numbers(ROW, 31)), np.random.default_rng(2).integers(0, 3, 31)
    counts, steps = run(lg.vmap(search, in_axes=(None, 1, 0)), table, rows, starts)
    for member in range(31):
        node, own, k = starts[member], np.zeros(ROW), starts[member]
        while own[node] < 1.0 and k < ROW - 1:
            own[node] += rows[k, member]
            node, k = table[node, k % 3], k + 1
        np.testing.assert_array_equal(counts[member], own)
        assert steps[member] == k


def test_a_batch_of_batches_is_one_kernel() -> None:
    cubes = numbers(4, 5, ROW)
    np.testing.assert_array_equal(run(lg.vmap(lg.vmap(insertion_sort)), cubes)[0], np.sort(cubes, axis=2))


def test_derivatives_of_members_in_turn() -> None:
    rows, weights = numbers(6, ROW), numbers(6, ROW)

    def loss(rows: Any) -> Any:
        return lg.sum(lg.vmap(insertion_sort)(rows) * lg.asarray(weights))

    value, tangent = lg.jvp(loss, (lg.asarray(rows),), (lg.asarray(weights),))
    ranks = np.argsort(np.argsort(rows, axis=1), axis=1)
    gradient = np.take_along_axis(weights, ranks, axis=1)
    assert float(value) == pytest.approx(np.sum(np.sort(rows, axis=1) * weights))
    assert float(tangent) == pytest.approx(np.sum(gradient * weights))


def test_a_member_that_writes_out_of_range_is_reported() -> None:
    def walk(row: Any, limit: Any) -> Any:
        def step(state: Any) -> Any:
            k, row = state
            row[k] = 0.0
            return k + 1, row

        return lg.while_loop(lambda state: state[0] < limit, step, (lg.zeros((), dtype=lg.int64), row))[1]

    walked = lg.jit(lg.vmap(walk))
    rows, limits = numbers(3, ROW), np.array([2, ROW, 0])
    expected = np.where(np.arange(ROW) < limits[:, None], 0.0, rows)
    np.testing.assert_array_equal(np.asarray(walked(lg.asarray(rows), lg.asarray(limits))), expected)
    with pytest.raises(lg.LivegradError, match="out of range"):
        np.asarray(walked(lg.asarray(rows), lg.asarray(np.array([2, ROW + 1, 0]))))


def test_devices_run_members_together() -> None:
    function = function_of(lg.vmap(insertion_sort), numbers(20, ROW))
    assert members_call in ops_in(function)
    for target in (CPU, CUDA):
        assert all(members_call not in ops_in(own) for own in reachable_functions([lower(function, target)]))
    assert compile_plan(function, CUDA).kernels == compile_plan(function, CPU.without("run_members_in_turn")).kernels


def test_the_reference_runs_members_together() -> None:
    rows = numbers(3, ROW)
    np.testing.assert_array_equal(evaluate(function_of(lg.vmap(insertion_sort), rows), rows), np.sort(rows, axis=1))


# --- random walks over arrays ---


def random_program(generator: np.random.Generator) -> Callable[[Any, Any], Any]:
    """Each member writes, adds and swaps at indices that depend on its values, for its own number of iterations."""
    operations = [str(name) for name in generator.choice(["write", "add", "swap", "prefix"], 3)]
    factor, bound = float(generator.uniform(0.5, 2.0)), int(generator.integers(3, 9))

    def member(row: Any, seed: Any) -> Any:
        n = row.shape[0]

        def step(state: Any) -> Any:
            k, row, total = state
            for number, name in enumerate(operations):
                i, j = (seed * (k + 3) + number) % n, (seed + k * (number + 1)) % n
                if name == "write":
                    row[i] = factor * row[j] - total
                elif name == "add":
                    row[j] = row[j] + lg.sin(row[i])
                elif name == "swap":
                    first, second = row[i], row[j]
                    row[i] = second
                    row[j] = first
                else:
                    total = 0.5 * total + lg.max(row) * 0.25
            return k + 1, row, total

        start = (lg.zeros((), dtype=lg.int64), row, row[0] * 0.5)
        ends = lg.while_loop(lambda state: state[0] < seed % bound, step, start)
        return ends[1], ends[2]

    return lg.vmap(member)


@pytest.mark.parametrize("seed", range(12))
def test_random_members_compute_the_same_in_turn_and_together(seed: int) -> None:
    generator = np.random.default_rng(seed)
    rows = generator.standard_normal((int(generator.integers(1, 40)), int(generator.integers(9, 40))))
    run(random_program(generator), rows, generator.integers(0, 50, len(rows)))
