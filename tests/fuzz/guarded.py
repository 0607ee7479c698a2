"""Random tensor programs and their derivatives in memory that ends at unmapped pages: nothing goes beyond its buffers.

An access beyond a buffer ends the process, which the driver reports with its seed. Values are compared with the
reference backend.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from livegrad.backends.reference import evaluate
from tests.conformance.guarded_memory import guarding_buffers, run_guarded
from tests.fuzz.fusion import trace_with_derivatives
from tests.fuzz.programs import random_program

SHORT = 8
SIZES = (1, 2, 3, 5, 7, 11, 16, 17, 33, 67)


def run_one(seed: int) -> Mapping[str, int]:
    """Runs one program twice: with what a first run leaves behind, too."""
    program = random_program(seed, SIZES, (3, 7), fusing=True)
    try:
        function, arguments = trace_with_derivatives(program, seed)
        with np.errstate(all="ignore"):
            expected = evaluate(function, *arguments)
        tolerance = 1e-3 if program.float_type == "float32" else 1e-9
        with guarding_buffers():
            for _ in range(2):
                found = run_guarded(function, *arguments)
                pairs = zip(found, expected, strict=True) if isinstance(expected, tuple) else [(found, expected)]
                for own, other in pairs:
                    size = np.max(np.abs(other), initial=0.0, where=np.isfinite(other))
                    np.testing.assert_allclose(own, other, rtol=tolerance, atol=tolerance * (1.0 + size))
    except Exception as error:
        error.add_note(f"seed {seed}\n{program}")
        raise
    return {**program.counts, program.float_type: 1}
