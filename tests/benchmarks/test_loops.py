"""The loops suite measures what it says: at a small size, every port gives the values of plain NumPy."""

import numpy as np
import pytest

import livegrad as lg
from benchmarks.loops.catalogue import PROGRAMS
from benchmarks.loops.rows import rows
from benchmarks.requirements import AtLeast, requirements_of


def arrays(result) -> list[np.ndarray]:
    return [np.asarray(part) for part in (result if isinstance(result, tuple) else (result,))]


def assert_same(program, actual, wanted) -> None:
    assert len(actual) == len(wanted)
    for own, other in zip(actual, wanted, strict=True):
        assert own.shape == other.shape
        assert own.dtype.kind == other.dtype.kind
        assert np.allclose(own, other, rtol=program.tolerance, atol=program.tolerance)


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_livegrad_gives_the_values_of_numpy(program):
    given = program.inputs(program.small)
    actual = lg.jit(program.livegrad)(*map(lg.asarray, given))
    assert_same(program, arrays(actual), arrays(program.numpy(*given)))


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_loops_for_numba_give_the_values_of_numpy_as_plain_python(program):
    given = program.inputs(program.small)
    assert_same(program, arrays(program.numba(*given)), arrays(program.numpy(*given)))


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_numpy_leaves_its_arguments_as_they_were(program):
    given, untouched = program.inputs(program.small), program.inputs(program.small)
    program.numpy(*given)
    assert all(np.array_equal(own, other) for own, other in zip(given, untouched, strict=True))


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_a_wrong_result_is_noticed(program):
    wanted = np.concatenate([part.ravel() for part in arrays(program.numpy(*program.inputs(program.small)))])
    wanted = wanted.astype(np.float64)
    assert program.agrees(wanted, wanted)
    assert not program.agrees(wanted + 1e-3 * np.max(np.abs(wanted)), wanted)


def test_there_are_at_least_forty_programs_of_three_sizes_each():
    assert len(PROGRAMS) >= 40
    for program in PROGRAMS.values():
        for sizes in (program.sizes, program.measured_sizes):
            assert sorted(set(sizes)) == list(sizes)
        assert all(own <= wanted for own, wanted in zip(program.measured_sizes, program.sizes, strict=True))


def test_every_row_must_reach_half_the_speed_of_the_best_peer():
    for row in rows(quick=False):
        assert requirements_of(row.name) == [AtLeast(row.name, 0.5, row.contenders[1:])]
