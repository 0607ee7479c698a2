"""The gradient suite measures what it says: every program and derivative has the values of an independent oracle."""

import numpy as np
import pytest

from benchmarks.gradbench.adjoint import make_adjoint
from benchmarks.gradbench.expected import agree, derivative_shapes
from benchmarks.gradbench.inputs import arrays
from benchmarks.gradbench.ir_programs import runner
from benchmarks.gradbench.programs import PROGRAMS
from benchmarks.gradient_contenders import build_sdf_gradient
from benchmarks.gradients import TITLES, rows
from benchmarks.problems import GRADBENCH, PRIMAL, SDF_GRADIENTS, Problem, agrees, expected, inputs, probe
from benchmarks.requirements import RatioAtMost
from livegrad.runtime.cpu import CpuFunction, compile_function

SIZES = {name: small for name, (_, _, small) in TITLES.items()}


@pytest.mark.parametrize("kind", GRADBENCH)
def test_program_and_derivative_agree_with_steps_along_the_imaginary_axis(kind: str):
    name = kind.removesuffix(PRIMAL)
    problem = Problem(kind, SIZES[name])
    result = runner(name, problem.size, kind.endswith(PRIMAL), compile_function)()
    wanted = expected(problem, inputs(problem))
    assert agrees(problem, probe(result), wanted)
    assert not agrees(problem, [value + 1e-3 * max(map(abs, wanted)) for value in probe(result)], wanted)


@pytest.mark.parametrize("name", PROGRAMS)
def test_derivative_has_the_shapes_that_the_oracle_describes(name: str):
    result = runner(name, SIZES[name], False, compile_function)()
    assert [np.shape(part) for part in result] == derivative_shapes(name, SIZES[name])


def test_adjoint_by_hand_agrees_with_differentiation():
    given = arrays("gmm", 50)
    by_hand = CpuFunction(make_adjoint(50))(*given)
    derived = runner("gmm", 50, False, compile_function)()
    for own, other in zip(by_hand, derived, strict=True):
        assert np.allclose(own, other, rtol=1e-12, atol=1e-12)


def test_agreement_is_relative_where_all_values_are_small():
    assert agree([1e-9], [1e-9])
    assert not agree([1.1e-9], [1e-9])
    assert agree([100.0], [100.001])


@pytest.mark.parametrize("kind", SDF_GRADIENTS)
def test_gradients_of_distances_agree_with_reverse_mode_written_out(kind: str):
    problem = Problem(kind, 1 << 12)
    found, wanted = probe(build_sdf_gradient(problem)()), expected(problem, inputs(problem))
    assert len(found) == len(wanted) > 90
    assert agrees(problem, found, wanted)


def test_every_row_measures_the_function_beside_its_derivative():
    for row in rows(quick=True):
        if not row.name.startswith("first"):
            assert {"livegrad", "livegrad" + PRIMAL, "jax", "jax" + PRIMAL} <= set(row.contenders)


def test_ratio_to_the_function_is_judged_on_best_times():
    requirement = RatioAtMost("gmm", 4.0, "livegrad:primal")
    assert requirement.judge({"livegrad": 3.0, "livegrad:primal": 1.0}) == (3.0, True)
    assert requirement.judge({"livegrad": 5.0, "livegrad:primal": 1.0}) == (5.0, False)
    assert requirement.judge({"livegrad": 5.0}) is None
