"""Compares the bits of a function whose loops threads share with those of one thread, for one to three threads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from livegrad.compiler import Compilation, lower, lower_loops
from livegrad.ir.node import Function
from livegrad.runtime.cpu.compiled_plan import CompiledPlan
from livegrad.runtime.cpu.cpu_function import run_function
from livegrad.runtime.cpu.cpu_target import CPU
from livegrad.runtime.cpu.kernel_code import KernelCompiler
from livegrad.runtime.cpu.native import pool
from livegrad.schedule.loops.nest import for_cpu
from livegrad.schedule.plan import KernelStep, Plan
from livegrad.schedule.target import Target

EAGER = replace(CPU, least_parallel_work=0.0)  # threads share whatever they can
SERIAL = CPU.without("parallelise_loops")
_THREADS = (1, 2, 3)


def compare_threads(function: Function, arguments: Sequence[Any], counts: Counter[str]) -> None:
    """Runs a function on one thread and on several; the results must not differ by a bit."""
    plan = Compilation(lower(function, EAGER), EAGER).plan
    _count_loops(plan, counts)
    expected = _run(CompiledPlan.from_plan(plan, run_function, compiler=KernelCompiler(SERIAL)), arguments)
    shared = CompiledPlan.from_plan(plan, run_function, compiler=KernelCompiler(EAGER))
    before = pool.threads()
    pool.share_every_run(True)
    try:
        for count in _THREADS:
            pool.set_threads(count)
            assert _run(shared, arguments) == expected, f"other bits with {count} threads"
    finally:
        pool.set_threads(before)


def _run(plan: CompiledPlan, arguments: Sequence[Any]) -> list[bytes]:
    return [np.asarray(result).tobytes() for result in plan.run([np.array(argument) for argument in arguments])]


def _count_loops(plan: Plan, counts: Counter[str], target: Target = EAGER) -> None:
    for step in plan.steps:
        if isinstance(step, KernelStep):
            for note in lower_loops(for_cpu(step, target, 64)).loop_notes:
                kinds = ("private to a thread", "parallel, ")
                counts[
                    next((f"loops {kind.strip(', ')}" for kind in kinds if kind in note), "loops on one thread")
                ] += 1
