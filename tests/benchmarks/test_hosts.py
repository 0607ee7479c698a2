"""The programs of the hosts suite give the expected values in livegrad and in NumPy."""

import pytest

from benchmarks import host_contenders, host_programs, hosts
from benchmarks.peers.numpy_peer import build_host
from benchmarks.problems import Problem, agrees, expected, inputs, probe


@pytest.mark.parametrize("kind", host_programs.PROGRAMS)
def test_programs_give_the_expected_values(kind: str) -> None:
    problem = Problem(kind, 24)
    for run in (host_contenders.BUILDERS[kind](problem), build_host(problem)):
        assert agrees(problem, probe(run()), expected(problem, inputs(problem)))


def test_each_program_has_a_row() -> None:
    assert [row.name for row in hosts.rows(quick=True)] == list(host_programs.PROGRAMS)
