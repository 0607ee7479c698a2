"""Values that a loop changes by a constant in each iteration have bounds, and indices within them no checks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import livegrad as lg
from livegrad.compiler import lower_loops
from livegrad.ir.walk import nodes_of, reachable_functions
from livegrad.runtime.cpu.cpu_function import CpuFunction
from livegrad.runtime.cpu.cpu_target import CPU
from livegrad.schedule.loops.nest import for_cpu
from livegrad.schedule.plan import KernelStep
from tests.runtime.test_scalar_loops import function_of, run

WITHOUT = CPU.without("eliminate_bounds_checks", "version_loops")
SIZE = 30


def checks_of(program: Any, *arrays: Any) -> int:
    """How many reads and writes of the kernels' loops may still fail."""
    plan = CpuFunction(function_of(program, arrays)).schedule()
    steps = [step for step in plan.steps if isinstance(step, KernelStep)]
    stages = [stage for step in steps for stage in lower_loops(for_cpu(step, CPU, 64)).kernel.stages]
    functions = reachable_functions([stage.body for stage in stages])
    return sum(node.may_fail for function in functions for node in nodes_of(function))


def walk(start: int, step: int, holds: Callable[[Any], Any], shift: int = 0) -> Any:
    """A loop, run twice, that changes the elements that it walks along, and then writes where it ended."""

    def program(lib: Any, line: Any) -> Any:
        def advance(state: Any) -> Any:
            k, line = state
            line[k + shift] = line[k + shift] * 0.5 + 1.0
            return k + step, line

        def again(i: Any, line: Any) -> Any:
            k, line = lib.while_loop(lambda state: holds(state[0]) & (line[0] < 9.0), advance, (start, line))
            line[lib.maximum(lib.minimum(k, SIZE - 1), 0)] = 7.0
            return line

        return lib.fori_loop(0, 2, again, line + 0.0)

    return program


PROVEN = {
    "up": walk(0, 1, lambda k: k < SIZE),
    "up to the end": walk(3, 1, lambda k: k <= SIZE - 1),
    "by two": walk(0, 2, lambda k: k < SIZE),
    "down": walk(SIZE - 1, -1, lambda k: k >= 0),
    "down to the first": walk(SIZE - 1, -3, lambda k: k > 0),
    "between": walk(5, 1, lambda k: (k < SIZE - 2) & (k > 3)),
    "shifted": walk(1, 1, lambda k: k - 1 < SIZE - 1, shift=-1),
    "the other way round": walk(0, 1, lambda k: k < SIZE),
}
FAILING = {
    "one too far": walk(0, 1, lambda k: k <= SIZE),
    "below the first": walk(4, -1, lambda k: k > -SIZE - 3),
    "shifted too far": walk(0, 1, lambda k: k < SIZE, shift=1),
}


@pytest.mark.parametrize("name", PROVEN)
def test_indices_that_a_condition_bounds_are_not_checked(name: str) -> None:
    line = np.linspace(0.0, 1.0, SIZE)
    assert checks_of(PROVEN[name], line) == 0
    assert run(PROVEN[name], (line,), CPU) == run(PROVEN[name], (line,), WITHOUT)


@pytest.mark.parametrize("name", FAILING)
def test_an_index_beyond_its_axis_is_still_reported(name: str) -> None:
    line = lg.asarray(np.linspace(0.0, 1.0, SIZE))
    with pytest.raises(lg.LivegradError, match="out of range"):
        np.asarray(lg.jit(lambda line: FAILING[name](lg, line))(line))


@pytest.mark.parametrize("seed", range(40))
def test_random_walks_give_the_same_or_fail_alike(seed: int) -> None:
    random = np.random.default_rng(seed)
    step, start = int(random.choice([-3, -1, 1, 2])), int(random.integers(-2, SIZE + 2))
    limit, shift = int(random.integers(-2, SIZE + 3)), int(random.integers(-2, 3))
    holds = (lambda k: k < limit) if step > 0 else (lambda k: k > limit)
    program = walk(start, step, holds, shift)
    line, results = np.linspace(0.0, 1.0, SIZE), []
    for target in (CPU, WITHOUT):
        try:
            results.append(run(program, (line,), target))
        except lg.LivegradError as error:
            results.append(str(error))
    assert results[0] == results[1]


def test_what_a_counted_loop_carries_is_known_too() -> None:
    def program(lib: Any, line: Any) -> Any:
        def fill(i: Any, state: Any) -> Any:
            place, line = state
            line[place] = line[place + 1] + 1.0
            return place + 2, line

        return lib.fori_loop(0, 2, lambda i, line: lib.fori_loop(0, 10, fill, (3, line))[1], line + 0.0)

    line = np.linspace(0.0, 1.0, SIZE)
    assert checks_of(program, line) == 0
    assert run(program, (line,), CPU) == run(program, (line,), WITHOUT)


def test_a_number_that_other_steps_change_is_checked() -> None:
    def program(lib: Any, line: Any, steps: Any) -> Any:
        def advance(state: Any) -> Any:
            k, line = state
            line[k] = 1.0
            return k + steps[0], line

        return lib.while_loop(lambda state: state[0] < SIZE, advance, (0, line + 0.0))[1]

    assert checks_of(program, np.zeros(SIZE), np.array([4])) > 0
