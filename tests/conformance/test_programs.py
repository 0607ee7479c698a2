"""Programs with control flow, and their derivatives to second order, on every backend: traces, branches and nested
loops as reverse mode makes them."""

import numpy as np
import pytest

from livegrad.runtime.reference import evaluate
from tests.conformance.backends import OTHERS, Backend
from tests.conformance.tolerance import misfit
from tests.differentiate.checks import assert_near, derived
from tests.differentiate.programs import PROGRAMS
from tests.long_forms import LONG

# Second derivatives are long: in the short form their code is quickly made.
SECOND = [pytest.param(modes, marks=[] if LONG else [pytest.mark.code("baseline")]) for modes in ("rf", "rr")]


@pytest.mark.parametrize("backend", OTHERS, ids=str)
@pytest.mark.parametrize("modes", ["", "f", "r", *SECOND], ids=lambda modes: modes or "value")
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_and_its_derivatives_run_on_every_backend(name: str, modes: str, backend: Backend) -> None:
    function, values = derived(*PROGRAMS[name], modes, np.random.default_rng(3))
    if reason := backend.reason_to_skip(function):
        pytest.skip(reason)
    actual, expected = backend.run(function, *values), evaluate(function, *values)
    assert misfit(actual, function.result_type) is None
    assert misfit(expected, function.result_type) is None
    assert_near(actual, expected, 1e-12)
