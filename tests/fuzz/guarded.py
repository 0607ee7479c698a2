"""Random tensor programs and their derivatives in memory that ends at unmapped pages: nothing goes beyond its buffers.

An access beyond a buffer ends the process, which the driver reports with its seed. Values are compared with the
reference backend.
"""

from __future__ import annotations

from collections.abc import Mapping

from livegrad.diagnostics import KernelCheckError
from tests.conformance.guarded_memory import guarding_buffers, run_guarded
from tests.fuzz.fusion import trace_with_derivatives
from tests.fuzz.programs import random_program
from tests.fuzz.reference import Reference, must_fail

SHORT = 5
SIZES = (1, 2, 3, 5, 7, 11, 16, 17, 33, 67)


def run_one(seed: int) -> Mapping[str, int]:
    """Runs one program twice: with what a first run leaves behind, too."""
    program = random_program(seed, SIZES, (3, 7), fusing=True)
    try:
        function, arguments = trace_with_derivatives(program, seed)
        try:
            reference = Reference(function, arguments, program.float_type)
        except KernelCheckError:
            with guarding_buffers():
                return must_fail(lambda: run_guarded(function, *arguments))
        steady = True
        with guarding_buffers():
            for run in range(2):
                found = run_guarded(function, *arguments)
                steady &= reference.agrees(found if isinstance(found, tuple) else (found,), f"run {run}")
    except Exception as error:
        error.add_note(f"seed {seed}\n{program}")
        raise
    return {**program.counts, program.float_type: 1, "magnifies rounding": int(not steady)}
