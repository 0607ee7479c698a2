"""livegrad with and without one optional optimisation, which the problem's kind names."""

from collections.abc import Callable

import livegrad as lg
from benchmarks.pass_programs import KINDS
from benchmarks.problems import Problem, Run, inputs
from livegrad.runtime.cpu.compiled_plan import CompiledPlan
from livegrad.runtime.cpu.cpu_function import CpuFunction, run_function
from livegrad.runtime.cpu.cpu_target import CPU
from livegrad.runtime.cpu.kernel_code import KernelCompiler
from livegrad.runtime.cpu.tier_up import background_compiler
from livegrad.schedule.target import Target
from livegrad.tensors.tracing import trace_call


def build(problem: Problem, target: Target) -> Run:
    """The program, compiled beforehand for a target. A run returns the results."""
    program, arrays = KINDS[problem.kind], inputs(problem)
    types = [lg.asarray(array).type for array in arrays]
    function = trace_call(lambda *tensors: program(lg, *tensors), types, program.__name__).function
    plan = CpuFunction(function).schedule(target=target)
    compiled = CompiledPlan.from_plan(plan, run_function, compiler=KernelCompiler(target))
    background_compiler.current.wait()
    return lambda: tuple(compiled.run(list(arrays)))


def build_without(problem: Problem) -> Run:
    return build(problem, CPU.without(problem.kind.partition(":")[0]))


BUILDERS: dict[str, dict[str, Callable[[Problem], Run]]] = {
    "livegrad": dict.fromkeys(KINDS, lambda problem: build(problem, CPU)),
    "without": dict.fromkeys(KINDS, build_without),
}
