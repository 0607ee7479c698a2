"""Random tensor programs and their derivatives through every value pass of each target, one pass at a time.

The oracle is the reference backend, which evaluates node by node with NumPy, before a pass and after it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from livegrad.codegen.cuda.cuda_target import CUDA
from livegrad.compiler import passes_for
from livegrad.diagnostics import KernelCheckError
from livegrad.ir.node import Function, Module
from livegrad.passes.pipeline import run_passes
from livegrad.runtime.cpu.cpu_target import CPU
from livegrad.runtime.reference import evaluate
from livegrad.schedule.target import Target
from tests.fuzz.fusion import trace_with_derivatives
from tests.fuzz.programs import Program, random_program
from tests.fuzz.reference import Reference, must_fail

SHORT = 4
SIZES = (1, 2, 3, 4, 5, 64, 65)  # of 64 rows of 64, and of matrices up to 4 by 4, passes have rules of their own


def run_one(seed: int) -> Mapping[str, int]:
    """Runs one program through the passes of one target; counts which of them changed it."""
    program = random_program(seed, SIZES, (3, 6), fusing=True)
    try:
        function, arguments = trace_with_derivatives(program, seed)
        return {**program.counts, **_compare(function, arguments, program, CPU if seed % 3 else CUDA)}
    except AssertionError as error:
        raise AssertionError(f"seed {seed}: {error}\n{program}") from None
    except Exception as error:
        error.add_note(f"seed {seed}\n{program}")
        raise


def _compare(function: Function, arguments: list[Any], program: Program, target: Target) -> dict[str, int]:
    first, *others = [step for part in passes_for(target) for step in part]
    function = run_passes(Module((function,)), [first]).functions[0]  # derivatives: their fuzzer compares them
    try:
        reference = Reference(function, arguments, program.float_type)
    except KernelCheckError:  # such as a value that does not fit its type
        lowered = run_passes(Module((function,)), others).functions[0]
        return must_fail(lambda: evaluate(lowered, *arguments))
    counts: dict[str, int] = {target.name: 1}
    steady = True
    for value_pass in others:
        after = run_passes(Module((function,)), [value_pass]).functions[0]
        if after == function:
            continue
        counts[value_pass.name] = 1
        found = evaluate(after, *arguments)
        steady &= reference.agrees(found if isinstance(found, tuple) else (found,), f"after {value_pass.name}")
        function = after
    return counts if steady else {**counts, "magnifies rounding": 1}
