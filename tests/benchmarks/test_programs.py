"""The benchmark functions are what the table says they are, whichever way they are replayed."""

import math

import numpy as np
import pytest

from benchmarks import prospero, sdf
from benchmarks.handwritten import CHUNK, build_sdf
from benchmarks.peers.numpy_peer import build_sdf as build_numpy_sdf
from benchmarks.problems import NUMPY_OPERATIONS, Problem, agrees, expected, inputs, probe

PYTHON_FORMS = {
    "add": "{0} + {1}",
    "sub": "{0} - {1}",
    "mul": "{0} * {1}",
    "sqrt": "math.sqrt({0})",
    "abs": "abs({0})",
    "min": "min({0}, {1})",
    "max": "max({0}, {1})",
    "sin": "math.sin({0})",
    "exp": "math.exp({0})",
    "log": "math.log({0})",
    "tanh": "math.tanh({0})",
    "pow": "{0} ** {1}",
}


def test_algebraic_function_has_310_operations_and_20_parameters():
    program = sdf.algebraic()
    assert (program.count(), program.count(sdf.TRANSCENDENTAL), len(program.parameters)) == (310, 0, 20)
    ops = {instruction.op for instruction in program.instructions} - sdf.LEAVES
    assert ops == {"sub", "mul", "add", "sqrt", "abs", "min", "max"}


def test_transcendental_function_has_316_operations_of_which_59_are_calls():
    program = sdf.transcendental()
    assert (program.count(), program.count(sdf.TRANSCENDENTAL), len(program.parameters)) == (316, 59, 20)


def test_same_seed_gives_the_same_function_and_another_seed_another():
    assert sdf.algebraic(seed=3) == sdf.algebraic(seed=3)
    assert sdf.algebraic(seed=3) != sdf.algebraic(seed=4)


@pytest.mark.parametrize("program", [sdf.algebraic(), sdf.transcendental()], ids=["algebraic", "transcendental"])
def test_source_text_and_replay_agree(program: sdf.Program):
    names = {"x": 0.3, "y": -0.7, "z": 1.1, "p": program.parameters, "math": math}
    exec("\n".join(sdf.python_source(program, PYTHON_FORMS)), names)
    replayed = sdf.evaluate(program, (0.3, -0.7, 1.1), program.parameters, NUMPY_OPERATIONS)
    assert names["result"] == pytest.approx(replayed, rel=1e-12)


@pytest.mark.parametrize("kind", ["sdf_algebraic", "sdf_transcendental"])
@pytest.mark.parametrize("build", [build_sdf, build_numpy_sdf], ids=["handwritten", "numpy"])
def test_contender_gives_the_expected_values(kind: str, build):
    problem = Problem(kind, CHUNK)
    assert agrees(problem, probe(build(problem)()), expected(problem, inputs(problem)))


def test_vm_text_is_read_as_a_program():
    program = prospero.parse("# a circle\n_0 var-x\n_1 square _0\n_2 const 0.25\n_3 sub _1 _2\n")
    x = np.array([0.0, 1.0])
    assert list(sdf.evaluate(program, (x,), (), NUMPY_OPERATIONS)) == [-0.25, 0.75]
