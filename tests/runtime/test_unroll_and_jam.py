"""`unroll_and_jam`: loops that repeatedly add to the same elements keep their bits; other loops do not change."""

from __future__ import annotations

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

WITHOUT = CPU.without("unroll_and_jam")


def random_nest(seed: int) -> Any:
    """A nest that updates elements of c from a and b. Some of its forms may be jammed."""
    random = np.random.default_rng(seed)
    terms, columns, form = int(random.integers(1, 80)), int(random.integers(1, 40)), seed % 6
    scale = float(random.uniform(0.5, 1.5))

    def program(lib: Any, a: Any, b: Any, c: Any, number: Any) -> Any:
        def change(i: Any, k: Any, j: Any, c: Any) -> Any:
            value = a[k, j] * b[i, k] - scale
            if form == 1:  # an element that an earlier iteration of the inner loop wrote
                value = value + c[i, lib.where(j > 0, j - 1, 0)]
            if form == 2:  # another row in each iteration of the outer loop
                c[i, j] = c[(i + k) % 3, j] * 0.5 + value
            elif form == 3:  # no accumulation: the last write wins
                c[i, j] = value
            else:
                c[i, j] = c[i, j] * 0.75 + lib.where(j > i, value, c[i, j])
            return c

        def row(i: Any, c: Any) -> Any:
            # forms 4 and 5: the number of terms depends on data, and that of columns on the terms
            last = terms if form != 4 else number[0]

            def term(k: Any, c: Any) -> Any:
                end = columns if form != 5 else lib.where(k < columns, k, columns)
                return repeat(lib, 0, end, lambda j, c: change(i, k, j, c), c)

            return repeat(lib, 0, last, term, c)

        return repeat(lib, 0, 3, row, c + 0.0)

    arrays = [random.normal(size=shape) for shape in ((terms, columns), (3, terms), (3, columns))]
    return program, (*arrays, np.array([int(random.integers(-2, terms + 1))]))


@pytest.mark.parametrize("seed", range(48))
def test_random_nests_keep_their_bits(seed: int) -> None:
    program, arrays = random_nest(seed)
    usual = run(program, arrays, CPU)
    assert usual == run(program, arrays, WITHOUT)
    expected = program(np, *[np.copy(array) for array in arrays])
    np.testing.assert_allclose(np.frombuffer(usual[0]).reshape(expected.shape), expected, 1e-8, 1e-8)


def writes_of(program: Any, arrays: Any, target: Target) -> list[int]:
    """The number of operations of each function that writes an element."""
    plan = CpuFunction(function_of(program, arrays)).schedule(target=target)
    kernels = [step for step in plan.steps if isinstance(step, KernelStep) and step.kernel.name == "for_loop"]
    stages = [stage for step in kernels for stage in lower_loops(for_cpu(step, target, 64)).kernel.stages]
    functions = reachable_functions([stage.body for stage in stages])
    bodies = [function for function in functions if any(node.op.name == "assign" for node in nodes_of(function))]
    return sorted(sum(node.op.name == "mul" for node in nodes_of(body)) for body in bodies)


def rank_one_updates(lib: Any, a: Any, c: Any) -> Any:
    def update(k: Any, c: Any) -> Any:
        def row(i: Any, c: Any) -> Any:
            def element(j: Any, c: Any) -> Any:
                c[i, j] = c[i, j] + a[i, k] * a[k, j]
                return c

            return repeat(lib, 0, a.shape[0], element, c)

        return repeat(lib, 0, a.shape[0], row, c)

    return repeat(lib, 0, a.shape[0], update, c + 0.0)


@pytest.mark.parametrize(("size", "several"), [(12, 4), (64, 8)])
def test_an_element_is_written_once_for_several_terms(size: int, several: int) -> None:
    square = np.ones((size, size))
    assert max(writes_of(rank_one_updates, (square, square), CPU)) == several
    assert max(writes_of(rank_one_updates, (square, square), WITHOUT)) == 1


def elimination(lib: Any, a: Any) -> Any:
    """Each term reads elements that the previous terms have written."""

    def step(k: Any, a: Any) -> Any:
        def row(i: Any, a: Any) -> Any:
            a[i] = a[i] - a[i, k] * a[k]
            return a

        return repeat(lib, 0, a.shape[0], row, a)

    return repeat(lib, 0, a.shape[0], step, a + 0.0)


def test_a_loop_that_reads_elements_which_it_writes_elsewhere_does_not_change() -> None:
    square = np.random.default_rng(0).normal(size=(16, 16))
    assert writes_of(elimination, (square,), CPU) == writes_of(elimination, (square,), WITHOUT)
    assert run(elimination, (square,), CPU) == run(elimination, (square,), WITHOUT)
