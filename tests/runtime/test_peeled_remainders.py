"""Full groups of lanes and the remainder of a row have separate code, which computes the same bits."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import livegrad as lg
from livegrad.codegen.llvm.kernel_module import emit_kernel
from livegrad.compiler import lower_loops
from livegrad.ir.node import Function
from livegrad.runtime.cpu.compiled_plan import CompiledPlan
from livegrad.runtime.cpu.cpu_function import CpuFunction, run_function
from livegrad.runtime.cpu.cpu_target import CPU
from livegrad.runtime.cpu.kernel_code import KernelCompiler
from livegrad.runtime.cpu.tier_up import background_compiler
from livegrad.schedule.loops.nest import LoopNest, for_cpu
from livegrad.schedule.plan import KernelStep
from livegrad.schedule.target import Target
from livegrad.tensors.tracing import trace_call

Program = Callable[[Any, Any], Any]


def filtered(x: Any, y: Any) -> Any:
    columns = x.shape[1] - 2
    return sum(y[i, j] * x[i : x.shape[0] - 2 + i, j : j + columns] for i in range(3) for j in range(3))


PROGRAMS: dict[str, Program] = {
    "filter": filtered,
    "differences": lambda x, y: (x[1:, :] - x[:-1, :]) * 0.5 + x[1:, :] * y[1:, :],
    "sums of columns": lambda x, y: lg.sum(x * y, axis=0),
    "every second column": lambda x, y: lg.sqrt(lg.abs(x[:, ::2])) / (1.0 + y[:, ::2]),
    "by row": lambda x, y: x * y[:, :1] + x[:, :1],
    "running sums": lambda x, y: lg.cumulative_sum(x - y, axis=0),
    "softmax": lambda x, y: lg.exp(x) / lg.sum(lg.exp(x), axis=0),
    "of two results": lambda x, y: (lg.max(x, axis=0), x - lg.max(x, axis=0)),
}


def traced(program: Program, arrays: list[Any]) -> Function:
    return trace_call(program, [lg.asarray(array).type for array in arrays], "program").function


def nests(function: Function, target: Target) -> list[LoopNest]:
    steps = CpuFunction(function).schedule(target=target).steps
    return [lower_loops(for_cpu(step, target, 64)) for step in steps if isinstance(step, KernelStep)]


def run(function: Function, arrays: list[Any], target: Target) -> list[bytes]:
    """The results of the optimised tier, as bytes."""
    plan = CpuFunction(function).schedule(target=target)
    compiled = CompiledPlan.from_plan(plan, run_function, compiler=KernelCompiler(target))
    background_compiler.current.wait()
    return [np.asarray(result).tobytes() for result in compiled.run(arrays)]


@pytest.mark.parametrize("name", PROGRAMS)
def test_peeling_keeps_the_bits_for_random_shapes_and_types(name: str) -> None:
    random = np.random.default_rng(len(name))
    for columns in (3, 15, 16, 17, 32, 33, 100, *random.integers(3, 300, 3)):
        for dtype in (np.float32, np.float64):
            shape = (int(random.integers(3, 9)), int(columns))
            arrays = [random.normal(size=shape).astype(dtype) for _ in range(2)]
            function = traced(PROGRAMS[name], arrays)
            assert run(function, arrays, CPU) == run(function, arrays, CPU.without("peel_remainders"))


def test_full_groups_have_no_branches_between_loads_and_stores() -> None:
    arrays = [np.ones((20, 100)), np.ones((20, 100))]
    (nest,) = nests(traced(filtered, arrays), CPU)
    assert nest.peels_remainder
    blocks = re.split(r"\n(?=\w+:\n)", emit_kernel(nest).text)
    loads = [len(re.findall(r"= load <", block)) for block in blocks]
    full = blocks[loads.index(max(loads))]
    assert max(loads) == 9
    assert "store <" in full
    assert "masked" not in full


def test_one_block_has_the_masked_code() -> None:
    arrays = [np.ones((20, 100)), np.ones((20, 100))]
    (nest,) = nests(traced(filtered, arrays), CPU)
    text = emit_kernel(nest).text
    assert text.count("call void @llvm.masked.store") == 1
    assert text.count("= load <") == 9


def test_the_baseline_tier_and_long_kernels_have_one_loop() -> None:
    arrays = [np.ones((20, 100)), np.ones((20, 100))]
    (nest,) = nests(traced(filtered, arrays), CPU)
    (without,) = nests(traced(filtered, arrays), CPU.without("peel_remainders"))
    assert emit_kernel(nest, is_baseline=True).text == emit_kernel(without, is_baseline=True).text

    def long(x: Any, y: Any) -> Any:
        for step in range(120):
            x = x * y + float(step)
        return x

    (nest,) = nests(traced(long, arrays), CPU)
    assert not nest.peels_remainder
