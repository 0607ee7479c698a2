"""Partners at `i ^ distance` are checked once, before a loop: in range if all bits are below those of the size."""

from __future__ import annotations

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
from tests.runtime.test_scalar_loops import function_of, repeat, run

WITHOUT = CPU.without("version_loops")


def stages(lib: Any, x: Any, distances: Any, partner: Any) -> Any:
    """A line for each distance, computed from the elements of the previous line and their partners."""
    count, size = distances.shape[0], x.shape[0]

    def stage(k: Any, lines: Any) -> Any:
        distance = distances[k]

        def element(i: Any, lines: Any) -> Any:
            lines[k + 1, i] = 0.5 * lines[k, i] - lines[k, partner(i, distance)]
            return lines

        return repeat(lib, 0, size, element, lines)

    lines = lib.zeros((count + 1, size), dtype=x.dtype)
    lines[0] = x
    return repeat(lib, 0, count, stage, lines)


def butterflies(lib: Any, x: Any, distances: Any) -> Any:
    return stages(lib, x, distances, lambda i, distance: i ^ distance)


def joined_bits(lib: Any, x: Any, distances: Any) -> Any:
    return stages(lib, x, distances, lambda i, distance: i | distance)


@pytest.mark.parametrize("program", [butterflies, joined_bits])
@pytest.mark.parametrize("size", [1, 16, 64, 100])
def test_partners_equal_numpys(program: Any, size: int) -> None:
    random = np.random.default_rng(size)
    below = 1 << (size.bit_length() - 1) if size == 1 << (size.bit_length() - 1) else 1
    x, distances = random.normal(size=size), random.integers(0, below, 5)
    actual = run(program, (x, distances), CPU)
    assert actual == run(program, (x, distances), WITHOUT)
    np.testing.assert_allclose(np.frombuffer(actual[0]).reshape(6, size), program(np, x, distances), 1e-12, 1e-12)


@pytest.mark.parametrize("distance", [16, 31, 1 << 40, -200])
def test_a_partner_out_of_range_is_reported(distance: int) -> None:
    actual = lg.jit(lambda x, d: butterflies(lg, x, d))
    with pytest.raises(lg.LivegradError, match="out of range"):
        np.asarray(actual(lg.asarray(np.ones(16)), lg.asarray(np.array([1, distance]))))


def test_one_version_of_a_loop_reads_partners_without_checks() -> None:
    def checked_loops(target: Any) -> list[bool]:
        plan = CpuFunction(function_of(butterflies, (np.ones(64), np.array([1, 2])))).schedule(target=target)
        steps = [step for step in plan.steps if isinstance(step, KernelStep)]
        stages = [stage for step in steps for stage in lower_loops(for_cpu(step, target, 64)).kernel.stages]
        partners = [
            node
            for function in reachable_functions([stage.body for stage in stages])
            for node in nodes_of(function)
            if node.op.name == "lookup" and node.operands[-1].op.name in ("bit_xor", "select")
        ]
        return sorted(node.may_fail for node in partners)

    assert checked_loops(CPU) == [False, True]
    assert checked_loops(WITHOUT) == [True]
