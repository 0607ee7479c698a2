"""NumPy: one thread, functions evaluated block by block so that temporaries stay in the cache."""

import numpy as np

from benchmarks import eager_programs, host_programs, sdf, workloads
from benchmarks.loops import catalogue as loops
from benchmarks.problems import NUMPY_OPERATIONS, Array, Problem, Run, inputs, parameters, program

VERSION = np.__version__
BLOCK = 1 << 14


def build_sdf(problem: Problem) -> Run:
    arrays, values, task = inputs(problem), list(parameters(problem)), program(problem)
    result = np.empty_like(arrays[0])

    def run() -> Array:
        for start in range(0, result.size, BLOCK):
            block = [array[start : start + BLOCK] for array in arrays]
            result[start : start + BLOCK] = sdf.evaluate(task, block, values, NUMPY_OPERATIONS)
        return result

    return run


def build_softmax(problem: Problem) -> Run:
    (array,) = inputs(problem)

    def run() -> Array:
        powers = np.exp(array - array.max(axis=1, keepdims=True))
        powers /= powers.sum(axis=1, keepdims=True)
        return powers

    return run


def build_sum_of_squares(problem: Problem) -> Run:
    left, right = inputs(problem)
    return lambda: np.square(left - right).sum()


def build_memcpy(problem: Problem) -> Run:
    (array,) = inputs(problem)
    result = np.zeros_like(array)

    def run() -> Array:
        np.copyto(result, array)
        return result

    return run


def build_call_overhead(problem: Problem) -> Run:
    left, right = inputs(problem)
    return lambda: left * right + left


def build_workload(problem: Problem) -> Run:
    arrays, program = inputs(problem), workloads.program_of(problem.kind)
    return lambda: program(workloads.NUMPY, *arrays)


def build_loops(problem: Problem) -> Run:
    arrays, program = inputs(problem), loops.KINDS[problem.kind].numpy
    return lambda: program(*arrays)


def build_eager(problem: Problem) -> Run:
    x, y = inputs(problem)
    return eager_programs.run_of(problem.kind, problem.size, x, y, np.maximum)


def build_host(problem: Problem) -> Run:
    (x,), program = inputs(problem), host_programs.PROGRAMS[problem.kind]
    return lambda: program(host_programs.NUMPY, x)


BUILDERS = {
    **dict.fromkeys(host_programs.PROGRAMS, build_host),
    **dict.fromkeys(eager_programs.PROGRAMS, build_eager),
    **dict.fromkeys(loops.KINDS, build_loops),
    **dict.fromkeys(("chain", "reductions", "softmax_tensors", "layer_norm", "attention"), build_workload),
    "sdf_algebraic": build_sdf,
    "sdf_transcendental": build_sdf,
    "softmax": build_softmax,
    "sum_of_squares": build_sum_of_squares,
    "memcpy": build_memcpy,
    "call_overhead": build_call_overhead,
}
