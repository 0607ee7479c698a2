"""livegrad's contenders of the gradient suite: GradBench's programs, and distances with their gradients.

As in `contenders`, a builder prepares all that is not measured and returns a run."""

from collections.abc import Callable
from itertools import count

from benchmarks import sdf
from benchmarks.contenders import OPERATIONS, build_call_overhead, build_sdf
from benchmarks.gradbench.adjoint import make_adjoint
from benchmarks.gradbench.inputs import arrays
from benchmarks.gradbench.ir_programs import runner
from benchmarks.problems import (
    FIRST_GRADIENTS,
    GRADBENCH,
    PRIMAL,
    SDF_GRADIENTS,
    Problem,
    Run,
    gradbench_name,
    inputs,
    parameters,
    program,
)
from livegrad import ops
from livegrad.ir.dimension import Dimension
from livegrad.ir.function import trace
from livegrad.ir.leaves import constant
from livegrad.ir.node import Function, Node
from livegrad.ir.types import Tensor, f32
from livegrad.runtime.cpu import CpuFunction
from livegrad.runtime.object_cache import CacheSettings, ObjectCache, set_default_cache


def mapped_gradient(source: sdf.Program) -> Function:
    """(points, parameters) → the distances, their gradients by the points, and by each parameter, summed."""
    parameter_count = len(source.parameters)
    types = [f32] * (3 + parameter_count)

    def distance(*values: Node) -> Node:
        return sdf.evaluate(source, values[:3], values[3:], OPERATIONS, literal=lambda value: constant(value, f32))

    function = trace(distance, *types)

    def at_point(*values: Node) -> tuple[Node, ...]:
        pulled = ops.bwd_diff(*values, constant(1.0, f32), function=function)
        return ops.call(*values, function=function), *(ops.get(pulled, index=i) for i in range(3 + parameter_count))

    each = trace(at_point, *types)

    def everywhere(*values: Node) -> tuple[Node, ...]:
        result = ops.make_map(each, *values, summed=[False] * 4 + [True] * parameter_count)
        return tuple(ops.get(result, index=index) for index in range(4 + parameter_count))

    axis = Tensor(f32, (Dimension.symbol("n"),))
    return trace(everywhere, *[axis] * 3, *[f32] * parameter_count)


def grouped(results: tuple[object, ...]) -> tuple[object, ...]:
    """The value, three gradients by point, and all gradients by parameters as one."""
    return *results[:4], list(results[4:])


def build_sdf_gradient(problem: Problem) -> Run:
    compiled = CpuFunction(mapped_gradient(program(problem)))
    arguments = [*inputs(problem), *parameters(problem).tolist()]
    return lambda: grouped(compiled(*arguments))


def build_first_gradient(problem: Problem) -> Run:
    """Each run traces, differentiates, compiles and runs the gradient of a function not seen before.

    Nothing comes from a cache, but math functions that an earlier run has compiled stay in the process."""
    seeds = count(1)
    points = inputs(problem)
    set_default_cache(ObjectCache(CacheSettings(None)))
    build_call_overhead(Problem("call_overhead", 16))()

    def run() -> object:
        seed = next(seeds)
        compiled = CpuFunction(mapped_gradient(program(problem, seed)))
        return grouped(compiled(*points, *parameters(problem, seed).tolist()))

    return run


def build_gradbench(problem: Problem) -> Run:
    name, is_primal = gradbench_name(problem)
    return runner(name, problem.size, is_primal, CpuFunction)


def build_adjoint(problem: Problem) -> Run:
    compiled = CpuFunction(make_adjoint(problem.size))
    arguments = arrays("gmm", problem.size)
    return lambda: compiled(*arguments)


BUILDERS: dict[str, Callable[[Problem], Run]] = {
    **dict.fromkeys(GRADBENCH, build_gradbench),
    **dict.fromkeys(SDF_GRADIENTS, build_sdf_gradient),
    **dict.fromkeys([kind + PRIMAL for kind in SDF_GRADIENTS], build_sdf),
    **dict.fromkeys(FIRST_GRADIENTS, build_first_gradient),
}
ADJOINTS: dict[str, Callable[[Problem], Run]] = {"gmm": build_adjoint}
