"""Derivatives of every op, on the reference: jvp against central differences in float64, vjp against jvp by the
dot-product identity, and the derivatives of derivatives of the elementwise ops."""

import numpy as np
import pytest

from livegrad.ir.op import Op
from livegrad.ir.types import Scalar, Type, c128, differential_of, f64, inner_types, is_differentiable
from livegrad.ir.verify import verify_function
from livegrad.passes.differentiate.forward import jvp
from livegrad.passes.differentiate.reverse import vjp
from livegrad.runtime.reference import evaluate
from tests.conformance.case import Case, grouped
from tests.conformance.cases import CASES, NEVER_RUN
from tests.conformance.cases_elementwise import elementwise_ops
from tests.conformance.tolerance import misfit
from tests.differentiate.checks import check_first_order, check_nesting, flat, op_names, random_differentials

pytestmark = pytest.mark.code("baseline")  # the rules make the same ops again
# Ops whose cases have no operand in which a derivative could be taken.
WITHOUT_OPERANDS = {"iota"}
CUT_ON_PURPOSE = {"detach"}


def is_double(type: Type) -> bool:
    """Whether every number in the type that carries a derivative has 64-bit parts."""
    scalars = [inner for inner in inner_types(type) if isinstance(inner, Scalar)]
    return all(scalar in (f64, c128) for scalar in scalars if is_differentiable(scalar))


def can_be_differenced(case: Case) -> bool:
    types = case.function.parameter_types
    return (
        case.smooth
        and any(map(is_differentiable, types))
        and all(map(is_double, (*types, *case.function.result_types)))
    )


SMOOTH = [case for case in CASES if can_be_differenced(case)]
ROUGH = [case for case in CASES if not can_be_differenced(case)]
ELEMENTWISE = [case for case in SMOOTH if case.op in elementwise_ops() and "[" not in case.name]
CONSTANT = [case for case in SMOOTH if not case.op.differentiable]
OTHERS = [case for case in SMOOTH if case.op not in elementwise_ops()]


def test_every_op_that_can_have_a_derivative_is_differentiated() -> None:
    exact = {
        op.name
        for op in Op.table.values()
        if not any(case.op is op and any(map(is_differentiable, case.function.parameter_types)) for case in CASES)
    }
    missing = Op.table.keys() - {case.op.name for case in SMOOTH} - NEVER_RUN.keys() - exact - CUT_ON_PURPOSE
    assert missing == set()
    assert exact - NEVER_RUN.keys() - WITHOUT_OPERANDS <= {
        name for name, op in Op.table.items() if not op.differentiable
    }


@pytest.mark.parametrize("case", SMOOTH, ids=str)
def test_jvp_is_the_central_difference_and_vjp_its_transpose(case: Case) -> None:
    check_first_order(case.function, case.arguments(), case.generator())


@pytest.mark.parametrize("modes", ["f", "r"])
@pytest.mark.parametrize("case", ELEMENTWISE, ids=str)
def test_derivatives_of_elementwise_ops_have_derivatives(case: Case, modes: str) -> None:
    check_nesting(case.function, case.arguments(), modes, case.generator())


@pytest.mark.parametrize("case", OTHERS[::3], ids=str)
def test_derivatives_of_other_ops_have_derivatives(case: Case) -> None:
    check_nesting(case.function, case.arguments(), "r", case.generator())


@grouped(ROUGH)
def test_derivatives_in_every_type_are_of_the_differential_s_type(cases: list[Case]) -> None:
    """At types that differences cannot judge (integers, half and single precision, special values) they still run."""
    for case in cases:
        function, arguments, rng = case.function, case.arguments(), case.generator()
        with np.errstate(all="ignore"):
            tangents = random_differentials(function.parameter_types, rng)
            cotangents = random_differentials(function.result_types, rng)
        for derived, own, given in (
            (jvp(function), function.parameter_types, tangents),
            (vjp(function), function.result_types, cotangents),
        ):
            verify_function(derived)
            assert derived.parameter_types == function.parameter_types + tuple(map(differential_of, own))
            assert misfit(evaluate(derived, *arguments, *given), derived.result_type) is None, case.name
        assert jvp(function).result_types[len(function.results) :] == tuple(map(differential_of, function.result_types))
        assert vjp(function).result_types == tuple(map(differential_of, function.parameter_types))


@pytest.mark.parametrize("case", CONSTANT, ids=str)
def test_an_op_that_is_constant_where_it_is_smooth_has_no_tangent(case: Case) -> None:
    arguments, rng = case.arguments(), case.generator()
    forward, backward = jvp(case.function), vjp(case.function)
    tangents = random_differentials(case.function.parameter_types, rng)
    moved = evaluate(forward, *arguments, *tangents)[len(case.function.results) :]
    cotangents = random_differentials(case.function.result_types, rng)
    assert not np.any(flat(moved))
    assert not np.any(flat((evaluate(backward, *arguments, *cotangents),)))
    assert case.op.name not in op_names(backward), "a gradient that is zero computes nothing"
