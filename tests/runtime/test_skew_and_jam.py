"""`skew_and_jam`: tables that are filled cell by cell keep their bits; loops with other dependences do not change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from livegrad.compiler import lower_loops
from livegrad.ir.walk import nodes_of, reachable_functions
from livegrad.runtime.cpu.cpu_function import CpuFunction
from livegrad.runtime.cpu.cpu_target import CPU
from livegrad.schedule.loops.nest import for_cpu
from livegrad.schedule.plan import KernelStep
from livegrad.schedule.target import Target
from tests.runtime.test_scalar_loops import function_of, repeat, run

WITHOUT = CPU.without("skew_and_jam")
Cell = Callable[[Any, Any, Any, Any], Any]  # the new value of a cell, from the library, the table, a row and a column

CELLS: dict[str, Cell] = {
    "left": lambda lib, t, i, j: t[i, j - 1] * 0.5 + t[i, j],
    "left and above": lambda lib, t, i, j: lib.minimum(t[i - 1, j], t[i, j - 1]) + t[i, j],
    "diagonal": lambda lib, t, i, j: lib.where(t[i, j] > 0.3, t[i - 1, j - 1] + 1.0, lib.maximum(t[i, j - 1], 0.1)),
    "above to the right": lambda lib, t, i, j: 0.4 * t[i - 1, j + 1] - 0.3 * t[i, j - 1] + t[i, j],
    "two to the right": lambda lib, t, i, j: 0.4 * t[i - 1, j + 2] - 0.3 * t[i, j - 1] + t[i, j],
    "all neighbours": lambda lib, t, i, j: (t[i - 1, j] + t[i + 1, j] + t[i, j - 1] + t[i, j + 1] - t[i, j]) / 3.0,
    "below to the left": lambda lib, t, i, j: 0.5 * t[i, j - 1] - 0.25 * t[i + 1, j - 1] + t[i - 1, j],
    "far away": lambda lib, t, i, j: 0.3 * t[i - 2, j - 2] - 0.5 * t[i, j - 2] + 0.2 * t[i - 2, j + 2],
    "to the right": lambda lib, t, i, j: 0.5 * t[i, j + 1] - 0.25 * t[i - 1, j + 1] + t[i - 1, j - 1],
    "one column": lambda lib, t, i, j: 0.5 * t[i, j - 1] + t[i, 0],
}
LEFT_ALONE = ("one column", "to the right")  # a dependence only if rows are filled from their end


def table_of(cell: Cell, rows: int, columns: int, transposed: bool = False, downward: bool = False) -> Any:
    """A program that fills the inside of a table by rows, or by columns."""

    def program(lib: Any, table: Any) -> Any:
        wide = table.shape[0 if transposed else 1]

        def row(i: Any, table: Any) -> Any:
            def fill(k: Any, table: Any) -> Any:
                j = 2 + columns - 1 - k if downward else 2 + k
                if transposed:
                    value = cell(lib, _Turned(table), i, j)
                    table[j, i] = value
                else:
                    table[i, j] = cell(lib, table, i, j)
                return table

            assert columns + 4 <= wide
            return repeat(lib, 0, columns, fill, table)

        return repeat(lib, 2, 2 + rows, row, table + 0.0)

    return program


class _Turned:
    """A table with rows and columns exchanged."""

    def __init__(self, table: Any) -> None:
        self.table = table

    def __getitem__(self, at: Any) -> Any:
        return self.table[at[1], at[0]]


@pytest.mark.parametrize("seed", range(72))
def test_random_tables_keep_their_bits(seed: int) -> None:
    random = np.random.default_rng(seed)
    name = list(CELLS)[seed % len(CELLS)]
    rows, columns = int(random.integers(0, 15)), int(random.choice([3, 15, 16, 17, 31]))
    transposed, downward = bool(random.random() < 0.3), bool(random.random() < 0.4)
    shape = (rows + 5, columns + 5)
    table = random.normal(size=shape[::-1] if transposed else shape)
    program = table_of(CELLS[name], rows, columns, transposed, downward)
    usual = run(program, (table,), CPU)
    assert usual == run(program, (table,), WITHOUT)
    expected = program(np, table)
    np.testing.assert_allclose(np.frombuffer(usual[0]).reshape(table.shape), expected, 1e-9, 1e-9)


def cells_per_step(program: Any, arrays: Any, target: Target) -> int:
    """The number of cells that the longest loop body writes."""
    plan = CpuFunction(function_of(program, arrays)).schedule(target=target)
    kernels = [step for step in plan.steps if isinstance(step, KernelStep) and step.kernel.name == "for_loop"]
    stages = [stage for step in kernels for stage in lower_loops(for_cpu(step, target, 64)).kernel.stages]
    functions = reachable_functions([stage.body for stage in stages])
    return max(sum(node.op.name == "assign" for node in nodes_of(function)) for function in functions)


def test_rows_that_are_filled_from_their_end_are_filled_together_too() -> None:
    program = table_of(lambda lib, t, i, j: t[i - 1, j] * 0.5 + t[i, j + 1], 30, 30, downward=True)
    assert cells_per_step(program, (np.ones((40, 40)),), CPU) == 4


@pytest.mark.parametrize("name", [name for name in CELLS if name not in LEFT_ALONE])
def test_each_step_fills_a_cell_of_four_rows(name: str) -> None:
    program, arrays = table_of(CELLS[name], 30, 30), (np.ones((40, 40)),)
    assert cells_per_step(program, arrays, CPU) == 4
    assert cells_per_step(program, arrays, WITHOUT) == 1


def test_rows_without_a_dependence_on_the_previous_cell_are_vectorised() -> None:
    program = table_of(lambda lib, t, i, j: t[i - 1, j] * 0.5 + t[i, j], 30, 30)
    assert cells_per_step(program, (np.ones((40, 40)),), CPU) == 1


@pytest.mark.parametrize("name", LEFT_ALONE)
def test_cells_without_a_fixed_distance_do_not_change(name: str) -> None:
    assert cells_per_step(table_of(CELLS[name], 30, 30), (np.ones((40, 40)),), CPU) == 1
