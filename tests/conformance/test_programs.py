"""Programs with control flow, and their derivatives to second order, on every backend: traces, branches and nested
loops as reverse mode makes them."""

import numpy as np
import pytest

from livegrad.backends.reference import evaluate
from tests.conformance.backends import BACKENDS, Backend
from tests.conformance.tolerance import misfit
from tests.differentiate.checks import assert_near, derived
from tests.differentiate.programs import PROGRAMS


@pytest.mark.parametrize("backend", BACKENDS, ids=str)
@pytest.mark.parametrize("modes", ["", "f", "r", "rf", "rr"], ids=lambda modes: modes or "value")
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_and_its_derivatives_run_on_every_backend(name: str, modes: str, backend: Backend) -> None:
    function, values = derived(*PROGRAMS[name], modes, np.random.default_rng(3))
    if reason := backend.reason_to_skip(function):
        pytest.skip(reason)
    actual = backend.run(function, *values)
    assert misfit(actual, function.result_type) is None
    assert_near(actual, evaluate(function, *values), 1e-12)
