"""Additions to one tensor at the same points are one kernel; what reads the tensor between them is not merged."""

from typing import Any

import numpy as np
import pytest

import livegrad as lg
from livegrad.diagnostics import KernelCheckError
from livegrad.runtime.cpu.compiled_plan import CompiledPlan
from livegrad.runtime.cpu.cpu_function import CpuFunction, run_function
from livegrad.runtime.cpu.cpu_target import CPU
from livegrad.schedule.plan import Plan
from livegrad.tensors.tracing import trace_call
from tests.schedule.plans import writing_kernels

N = 500
GENERATOR = np.random.default_rng(0)
VALUES = GENERATOR.normal(size=N)
PLACES = GENERATOR.integers(0, 37, size=N)
TABLE = GENERATOR.normal(size=40)


def plans(program: Any, *arrays: Any) -> tuple[Plan, Plan]:
    function = trace_call(program, [lg.asarray(array).type for array in arrays], "program").function
    source = CpuFunction(function)
    return source.schedule(), source.schedule(target=CPU.without("fuse_siblings"))


def results(plan: Plan, *arrays: Any) -> list[Any]:
    return CompiledPlan.from_plan(plan, run_function).run(list(arrays))


def test_additions_at_the_same_points_are_one_kernel() -> None:
    def program(table: Any, values: Any, places: Any) -> Any:
        return table.at[places].add(values).at[places + 1].add(2.0 * values).at[places + 2].add(values * values)

    merged, separate = plans(program, TABLE, VALUES, PLACES)
    assert len(writing_kernels(merged)) == 1
    assert len(writing_kernels(separate)) == 3
    wanted = TABLE.copy()
    for shift, values in enumerate((VALUES, 2.0 * VALUES, VALUES * VALUES)):
        np.add.at(wanted, PLACES + shift, values)
    for plan in (merged, separate):
        np.testing.assert_allclose(results(plan, TABLE, VALUES, PLACES)[0], wanted, rtol=1e-13, atol=1e-13)


def test_additions_that_read_the_sum_so_far_are_not_merged() -> None:
    def program(table: Any, values: Any, places: Any) -> Any:
        table = table.at[places].add(values)
        return table.at[places + 1].add(table[places] * values)

    merged, _ = plans(program, TABLE, VALUES, PLACES)
    wanted = TABLE.copy()
    np.add.at(wanted, PLACES, VALUES)
    np.add.at(wanted, PLACES + 1, wanted[PLACES] * VALUES)
    np.testing.assert_allclose(results(merged, TABLE, VALUES, PLACES)[0], wanted, rtol=1e-12, atol=1e-12)


def test_assignments_keep_their_order() -> None:
    def program(table: Any, values: Any, places: Any) -> Any:
        return table.at[places].set(values).at[places + 1].set(2.0 * values).at[places].add(values)

    merged, _ = plans(program, TABLE, VALUES, PLACES)
    wanted = TABLE.copy()
    wanted[PLACES] = VALUES
    wanted[PLACES + 1] = 2.0 * VALUES
    np.add.at(wanted, PLACES, VALUES)
    np.testing.assert_allclose(results(merged, TABLE, VALUES, PLACES)[0], wanted, rtol=1e-13, atol=1e-13)


def test_an_index_out_of_range_is_reported_for_its_own_addition() -> None:
    def program(table: Any, values: Any, places: Any) -> Any:
        return lg.sum(table.at[places].add(values).at[places + 9].add(values))

    function = lg.jit(program)
    with pytest.raises(KernelCheckError, match=r"test_merge_additions.py:\d+:\d+\): expected 0 to 39, found 4"):
        np.asarray(function(lg.asarray(TABLE), lg.asarray(VALUES), lg.asarray(PLACES)))


def test_the_gradient_of_an_interpolation_is_one_kernel_of_additions() -> None:
    image, at = GENERATOR.normal(size=(20, 20)), GENERATOR.uniform(0.0, 18.0, size=(2, 300))

    def program(image: Any, at: Any) -> Any:
        i, j = lg.astype(at[0], lg.int64), lg.astype(at[1], lg.int64)
        u, v = at[0] - i, at[1] - j
        upper = (1.0 - v) * image[i, j] + v * image[i, j + 1]
        return lg.sum(((1.0 - u) * upper + u * ((1.0 - v) * image[i + 1, j] + v * image[i + 1, j + 1])) ** 2)

    gradient = lg.grad(program)
    merged, separate = plans(gradient, image, at)
    assert len(writing_kernels(merged)) == 1
    np.testing.assert_allclose(results(merged, image, at)[0], results(separate, image, at)[0], rtol=1e-12, atol=1e-12)


def test_additions_that_threads_share_are_not_merged() -> None:
    """The rows of one addition are other rows of the next: threads would add to one element at the same time."""

    def program(table: Any, values: Any) -> Any:
        rows = lg.arange(60)
        places = lg.astype(values * 10.0, lg.int64) % 40
        return table.at[rows, places].add(values).at[rows + 1, places].add(2.0 * values)

    table, values = GENERATOR.normal(size=(61, 40)), np.abs(GENERATOR.normal(size=60))
    merged, _ = plans(program, table, values)
    assert len(writing_kernels(merged)) == 2
    wanted, places = table.copy(), (values * 10.0).astype(np.int64) % 40
    wanted[np.arange(60), places] += values
    wanted[np.arange(60) + 1, places] += 2.0 * values
    np.testing.assert_allclose(results(merged, table, values)[0], wanted, rtol=1e-13, atol=1e-13)
