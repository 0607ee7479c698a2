"""Derivatives of the programs of the loops suite: right in both modes, at a small size."""

import numpy as np
import pytest

from benchmarks.loop_gradient_contenders import FORWARD, REVERSE
from benchmarks.loops.derivatives import KIND, difference, differentiable_programs, positions
from benchmarks.loops.gradient_rows import CONTENDERS, rows
from benchmarks.problems import Problem, agrees, expected, inputs, probe

PROGRAMS = differentiable_programs()
# `bilinear` clips some samples to the first row and column of pixels, where interpolation has a kink.
AT_KINKS = frozenset({KIND + "bilinear"})


@pytest.mark.parametrize("kind", sorted(PROGRAMS))
def test_both_modes_agree(kind: str):
    problem = Problem(kind, PROGRAMS[kind].small)
    forward = np.asarray(FORWARD[kind](problem)())
    reverse = np.asarray(REVERSE[kind](problem)())
    assert np.allclose(forward, reverse, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", sorted(set(PROGRAMS) - AT_KINKS))
def test_forward_mode_agrees_with_differences_of_numpy(kind: str):
    problem = Problem(kind, PROGRAMS[kind].small)
    wanted = difference(PROGRAMS[kind], inputs(problem))
    assert np.allclose(np.asarray(FORWARD[kind](problem)()), wanted, rtol=2e-5, atol=2e-6)


def test_a_wrong_gradient_is_noticed():
    problem = Problem(KIND + "lu", PROGRAMS[KIND + "lu"].small)
    wanted = expected(problem, inputs(problem))
    assert agrees(problem, probe(REVERSE[problem.kind](problem)()), wanted)
    assert not agrees(problem, [value * (1.0 + 1e-4) for value in wanted], wanted)


def test_every_program_over_floats_is_measured():
    assert len(PROGRAMS) >= 50
    assert all(all(positions(program)) for program in PROGRAMS.values())
    assert [row.problem.kind for row in rows(quick=False)] == list(PROGRAMS)
    assert all(row.contenders == CONTENDERS for row in rows(quick=True))
