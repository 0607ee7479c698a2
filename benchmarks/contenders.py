"""livegrad's own contenders, one builder for each kind of problem.

A builder prepares everything that is not measured and returns a zero-argument callable that performs one run and
returns its result as an array, which is checked against the expected values. It raises `Unavailable` when it cannot."""

import tempfile
from collections.abc import Callable
from itertools import count
from pathlib import Path

import livegrad.ops.elementwise as elementwise
import livegrad.ops.transcendental as transcendental
from benchmarks import prospero, sdf
from benchmarks.problems import Problem, Run, inputs, parameters, program
from livegrad.ir.dimension import Dimension
from livegrad.ir.function import trace
from livegrad.ir.leaves import constant
from livegrad.ir.node import Function, Node
from livegrad.ir.types import Tensor, f32
from livegrad.ops.maps import make_map
from livegrad.ops.reduction import reduce, spread_back
from livegrad.runtime.cpu import CpuFunction
from livegrad.runtime.cpu.kernel_code import forget_kernels
from livegrad.runtime.cpu.tier_up import background_compiler
from livegrad.runtime.object_cache import CacheSettings, ObjectCache, set_default_cache

OPERATIONS: dict[str, Callable[..., Node]] = {
    "add": elementwise.add,
    "sub": elementwise.sub,
    "mul": elementwise.mul,
    "neg": elementwise.neg,
    "square": lambda x: x * x,
    "sqrt": transcendental.sqrt,
    "abs": elementwise.abs,
    "min": elementwise.min,
    "max": elementwise.max,
    "sin": transcendental.sin,
    "exp": transcendental.exp,
    "log": transcendental.log,
    "tanh": transcendental.tanh,
    "pow": transcendental.pow,
}


class Unavailable(Exception):
    """Raised if a contender cannot be measured here; the table prints the reason."""


def mapped(source: sdf.Program, dimensions: int) -> Function:
    """The program at every point of as many coordinate arrays as it has dimensions, then its parameters."""
    parameter_count = len(source.parameters)

    def at_point(*values: Node) -> Node:
        points, parameters = values[:dimensions], values[dimensions:]
        return sdf.evaluate(source, points, parameters, OPERATIONS, literal=lambda value: constant(value, f32))

    function = trace(at_point, *[f32] * (dimensions + parameter_count))
    axis = Tensor(f32, (Dimension.symbol("n"),))
    return trace(lambda *values: make_map(function, *values), *[axis] * dimensions, *[f32] * parameter_count)


def build_sdf(problem: Problem) -> Run:
    """The function `program(problem)` over `inputs(problem)`, with `parameters(problem)` given at run time.

    Compiled beforehand; a run evaluates all points and returns the values."""
    compiled = CpuFunction(mapped(program(problem), 3))
    arguments = [*inputs(problem), *parameters(problem).tolist()]
    return lambda: compiled(*arguments)


def build_softmax(problem: Problem) -> Run:
    """Softmax over each row of `inputs(problem)[0]`; a run returns an array of the same shape."""
    (values,) = inputs(problem)
    shape = values.shape

    def softmax(x: Node) -> Node:
        highest = reduce(x, kind="max", axes=(1,))
        weights = transcendental.exp(x - spread_back(highest, shape, (1,)))
        return weights / spread_back(reduce(weights, kind="sum", axes=(1,)), shape, (1,))

    compiled = CpuFunction(trace(softmax, Tensor(f32, shape)))
    return lambda: compiled(values)


def build_sum_of_squares(problem: Problem) -> Run:
    """sum((a - b)²) of the two arrays of `inputs(problem)`; a run returns the scalar."""
    first, second = inputs(problem)
    type = Tensor(f32, first.shape)
    compiled = CpuFunction(trace(lambda a, b: reduce((a - b) * (a - b), kind="sum", axes=(0, 1)), type, type))
    return lambda: compiled(first, second)


def build_first_call(problem: Problem) -> Run:
    """Each run traces, compiles and runs a new function: `program(problem, seed)` with seed 1, 2, 3, …

    Nothing comes from a cache, neither in memory nor on disk. A run returns the values at `inputs(problem)`."""
    seeds = count(1)
    points = inputs(problem)
    set_default_cache(ObjectCache(CacheSettings(None)))
    build_call_overhead(Problem("call_overhead", 16))()  # starting the runtime is not part of a kernel's first call

    def run() -> object:
        seed = next(seeds)
        return CpuFunction(mapped(program(problem, seed), 3))(*points, *parameters(problem, seed).tolist())

    return run


def build_warm_cache(problem: Problem) -> Run:
    """Each run loads the compiled `program(problem)` from the disk cache, which was filled beforehand, and runs it.

    The in-memory cache is dropped before each run. A run returns the values at `inputs(problem)`."""
    set_default_cache(ObjectCache(CacheSettings(Path(tempfile.mkdtemp()))))
    forget_kernels()  # kernels in memory may not be in this disk cache
    compiled = CpuFunction(mapped(program(problem), 3))
    arguments = [*inputs(problem), *parameters(problem).tolist()]
    compiled(*arguments)
    background_compiler.current.wait()

    def run() -> object:
        forget_kernels()
        compiled.forget_plans()
        return compiled(*arguments)

    return run


def build_call_overhead(problem: Problem) -> Run:
    """a * b + a over two short arrays, already compiled: one call from Python, returning the result."""
    first, second = inputs(problem)
    type = Tensor(f32, first.shape)
    compiled = CpuFunction(trace(lambda a, b: a * b + a, type, type))
    return lambda: compiled(first, second)


def build_prospero(problem: Problem) -> Run:
    """Each run recompiles `program(problem)`, evaluates it at `inputs(problem)` and returns the pixels."""
    if prospero.missing() is not None:
        raise Unavailable(prospero.missing())
    set_default_cache(ObjectCache(CacheSettings(None)))
    source, grid = program(problem), inputs(problem)

    def run() -> object:
        forget_kernels()
        return CpuFunction(mapped(source, 2))(*grid)

    return run


BUILDERS: dict[str, Callable[[Problem], Run]] = {
    "sdf_algebraic": build_sdf,
    "sdf_transcendental": build_sdf,
    "softmax": build_softmax,
    "sum_of_squares": build_sum_of_squares,
    "first_call": build_first_call,
    "warm_cache": build_warm_cache,
    "call_overhead": build_call_overhead,
    "prospero": build_prospero,
}
