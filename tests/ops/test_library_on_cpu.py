"""Derivatives of library ops on the native backend, with host steps and kernels, agree with the reference."""

from collections.abc import Iterator

import numpy as np
import pytest

from livegrad.ir.types import Tensor, c128, f64
from livegrad.passes.differentiate.forward import jvp
from livegrad.passes.differentiate.reverse import vjp
from livegrad.runtime.cpu import run_function
from livegrad.runtime.reference import evaluate
from tests.conformance import cases_library
from tests.conformance.case import Case
from tests.differentiate.checks import assert_near, random_differentials

SOURCES = (
    cases_library.sorting_cases,
    cases_library.decomposition_cases,
    cases_library.solving_cases,
    cases_library.pseudo_inverse_cases,
    cases_library.fourier_cases,
    cases_library.convolution_cases,
    cases_library.window_cases,
)


def second_of_each() -> Iterator[Case]:
    """For each op and scalar type the second of its cases, which mostly is one with a batch."""
    observed: dict[tuple[str, object], int] = {}
    for source in SOURCES:
        for case in source():
            type = case.function.parameter_types[0]
            if isinstance(type, Tensor) and type.element in (f64, c128) and case.op.differentiable:
                key = (case.op.name, type.element)
                observed[key] = observed.get(key, 0) + 1
                if observed[key] == 2:
                    yield case


@pytest.mark.parametrize("case", list(second_of_each()), ids=str)
def test_native_derivatives_of_library_ops_are_the_reference_s(case: Case) -> None:
    rng = case.generator()
    arguments = case.arguments()
    for derive, types in ((jvp, case.function.parameter_types), (vjp, case.function.result_types)):
        function = derive(case.function)
        values = (*arguments, *random_differentials(types, rng))
        assert_near((run_function(function, *values),), (evaluate(function, *values),), 1e-12)
    assert np.all([np.size(argument) > 0 for argument in arguments]), "a case that computes something"
