"""The programs of the eager suite give the expected values in livegrad and in NumPy."""

import pytest

from benchmarks import eager, eager_contenders, eager_programs
from benchmarks.peers.numpy_peer import build_eager
from benchmarks.problems import Problem, agrees, expected, inputs, probe
from benchmarks.requirements import requirements_of


@pytest.mark.parametrize("kind", eager_programs.KINDS)
def test_livegrad_gives_the_expected_values(kind: str) -> None:
    problem = Problem(kind, 16)
    run = eager_contenders.BUILDERS[kind](problem)
    for _ in range(3):  # the first run of a structure goes another way than those that follow
        assert agrees(problem, probe(run()), expected(problem, inputs(problem)))


@pytest.mark.parametrize("kind", eager_programs.PROGRAMS)
def test_numpy_gives_the_expected_values(kind: str) -> None:
    problem = Problem(kind, 16)
    assert agrees(problem, probe(build_eager(problem)()), expected(problem, inputs(problem)))


def test_every_row_has_a_requirement() -> None:
    assert all(requirements_of(row.name) for row in eager.rows(quick=True))
