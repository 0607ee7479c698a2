"""livegrad's contenders in the tensors suite: the programs on lazy tensors, compiled with `jit`."""

from collections.abc import Callable
from typing import Any

import livegrad as lg
from benchmarks import workloads
from benchmarks.problems import Problem, Run, inputs, preceded
from livegrad.runtime.cpu.kernel_code import forget_kernels
from livegrad.runtime.object_cache import CacheSettings, ObjectCache, set_default_cache

LIBRARY = workloads.Library(
    exp=lg.exp,
    sin=lg.sin,
    tanh=lg.tanh,
    sqrt=lg.sqrt,
    abs=lg.abs,
    relu=lg.relu,
    total=lambda x, axis: lg.sum(x, axis=axis, keepdims=axis is not None),
    highest=lambda x, axis: lg.max(x, axis=axis, keepdims=True),
    turned=lg.matrix_transpose,
    gradient=lambda function, count: lg.value_and_grad(function, tuple(range(count))),
)


def compiled(kind: str) -> Any:
    program = workloads.program_of(kind)
    return lg.jit(lambda *tensors: program(LIBRARY, *tensors))


def build(problem: Problem) -> Run:
    """The program compiled beforehand, on tensors that hold their data."""
    function = compiled(problem.kind)
    tensors = [lg.asarray(array) for array in inputs(problem)]
    return lambda: function(*tensors)


def build_first(problem: Problem) -> Run:
    """Each run traces and compiles the program with empty caches, in memory and on disk.

    Emptying the caches is not part of a first call, and is not timed for any contender."""
    tensors = [lg.asarray(array) for array in inputs(problem)]
    set_default_cache(ObjectCache(CacheSettings(None)))
    (lg.ones(3).execute() + 1.0).execute()  # starting the runtime is not part of a first call

    def forget() -> None:
        forget_kernels()
        lg.clear_caches()

    return preceded(forget, lambda: compiled(problem.kind)(*tensors))


def build_graph(problem: Problem) -> Run:
    """Each run builds a chain of that many additions and drops it; nothing is computed."""
    first, second = (lg.asarray(array) for array in inputs(problem))

    def run() -> Any:
        chain = first
        for _ in range(problem.size):
            chain = chain + second
        return first

    return run


def build_long_chain(problem: Problem) -> Run:
    """Each run builds a chain of that many additions and subtractions in turns, computes it and drops it."""
    first, second = (lg.asarray(array) for array in inputs(problem))

    def run() -> Any:
        chain = first
        for _ in range(problem.size // 2):
            chain = chain + second - second
        return chain.execute()

    return run


def build_small_call(problem: Problem) -> Run:
    """One call of a compiled function of two short tensors."""
    first, second = (lg.asarray(array) for array in inputs(problem))
    function = lg.jit(lambda a, b: a * b + a)
    return lambda: function(first, second)


BUILDERS: dict[str, Callable[[Problem], Run]] = {
    **dict.fromkeys(workloads.PROGRAMS, build),
    **dict.fromkeys(workloads.FIRST, build_first),
    "build": build_graph,
    "long_chain": build_long_chain,
    "small_call": build_small_call,
}
