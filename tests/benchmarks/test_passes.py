"""The passes suite measures what it says: each optimisation changes the programs that its rows run with and without."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import livegrad as lg
from benchmarks import pass_programs
from benchmarks.pass_contenders import BUILDERS
from benchmarks.problems import Problem, agrees, expected, inputs, probe
from livegrad.codegen.llvm.kernel_module import emit_kernel
from livegrad.compiler import OPTIONAL, lower_loops
from livegrad.runtime.cpu.cpu_function import CpuFunction
from livegrad.runtime.cpu.cpu_target import CPU
from livegrad.schedule.loops.nest import for_cpu
from livegrad.schedule.plan import KernelStep, Plan
from livegrad.schedule.target import Target
from livegrad.tensors.tracing import trace_call

ROWS = 2048


def plan_of(kind: str, target: Target) -> Plan:
    arrays = pass_programs.inputs(kind, ROWS)
    types = [lg.asarray(array).type for array in arrays]
    program = pass_programs.KINDS[kind]
    function = trace_call(lambda *tensors: program(lg, *tensors), types, program.__name__).function
    return CpuFunction(function).schedule(target=target)


def modules(plan: Plan, target: Target) -> list[str]:
    nests = [lower_loops(for_cpu(step, target, 64)) for step in plan.steps if isinstance(step, KernelStep)]
    return [emit_kernel(nest).text for nest in nests]


def test_every_optimisation_has_two_programs() -> None:
    assert {name: len(programs) for name, programs in pass_programs.PROGRAMS.items()} == dict.fromkeys(OPTIONAL, 2)


@pytest.mark.parametrize("kind", pass_programs.KINDS)
def test_an_optimisation_changes_its_programs(kind: str) -> None:
    other = CPU.without(kind.partition(":")[0])
    usual, without = plan_of(kind, CPU), plan_of(kind, other)
    if str(usual) == str(without):
        assert modules(usual, CPU) != modules(without, other)


@pytest.mark.parametrize("contender", BUILDERS)
@pytest.mark.parametrize("kind", pass_programs.KINDS)
def test_contenders_compute_the_same(kind: str, contender: str) -> None:
    problem = Problem(kind, 16)
    arrays = inputs(problem)
    assert all(np.isfinite(array).all() for array in arrays)
    assert agrees(problem, probe(BUILDERS[contender][kind](problem)()), expected(problem, arrays))


def test_peers_find_their_problems_without_livegrad() -> None:
    """Their environment has no livegrad: what their processes import must not need it."""
    code = "import sys; sys.modules['livegrad'] = None; import benchmarks.problems, benchmarks.peers.numpy_peer"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
