"""The problems that contenders solve: their inputs, the same in every process, and their expected values.

A contender's run returns its result; `probe` picks a few elements of it and `expected` computes them in float64."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks import (
    context_document,
    eager_programs,
    host_programs,
    parts_expected,
    pass_programs,
    problems_engine,
    prospero,
    sdf,
    sdf_gradient,
    workloads,
)
from benchmarks.gradbench import expected as gradbench
from benchmarks.gradbench.programs import PROGRAMS
from benchmarks.loops import catalogue as loops
from benchmarks.loops import derivatives

Array = NDArray[Any]
Run = Callable[[], Any]  # may have a `before`: what is done before each call and not timed
PROBES = 97
LATENCY_POINTS = 1024  # a first call runs on few points, because it measures the compiler
PRIMAL = ":primal"  # suffix of the kind of a problem whose derivative is another problem
SDF_GRADIENTS = ("gradient_algebraic", "gradient_transcendental")
FIRST_GRADIENTS = tuple(f"first_{kind}" for kind in SDF_GRADIENTS)
SDF_CUDA = "sdf_cuda_"  # prefix of the kind of a problem on a GPU
TILE = 1 << 18  # the period of their points, so that sums over all points follow from one period
GRADBENCH = tuple(name for program in PROGRAMS for name in (program, program + PRIMAL))

NUMPY_OPERATIONS: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "neg": np.negative,
    "square": np.square,
    "sqrt": np.sqrt,
    "abs": np.abs,
    "min": np.minimum,
    "max": np.maximum,
    "sin": np.sin,
    "exp": np.exp,
    "log": np.log,
    "tanh": np.tanh,
    "pow": np.power,
}


@dataclass(frozen=True)
class Problem:
    """A kind of work and its size: points, rows of 4096 columns, pairs of shapes, or pixels on a side."""

    kind: str
    size: int


def gradbench_name(problem: Problem) -> tuple[str, bool]:
    """The GradBench program, and whether to run the program itself or its derivative."""
    return problem.kind.removesuffix(PRIMAL), problem.kind.endswith(PRIMAL)


def is_sdf_gradient(problem: Problem) -> bool:
    return problem.kind.removesuffix(PRIMAL) in SDF_GRADIENTS


def program(problem: Problem, seed: int = 1) -> sdf.Program:
    if "transcendental" in problem.kind:
        return sdf.transcendental(seed=seed)
    if problem.kind in ("first_call", "warm_cache"):
        return sdf.algebraic(pairs=problem.size, seed=seed)
    if problem.kind == "prospero":
        return prospero.load()
    return sdf.algebraic(seed=seed)


def points(count: int) -> tuple[Array, Array, Array]:
    generator = np.random.default_rng(0)
    x, y, z = (generator.uniform(-1.5, 1.5, count).astype(np.float32) for _ in range(3))
    return x, y, z


def inputs(problem: Problem) -> tuple[Array, ...]:
    """The arrays a run reads; in float32, except in the loops suite."""
    if problem.kind in context_document.KINDS:
        return ()  # contexts, not arrays
    if problem.kind in parts_expected.KINDS or problem.kind in problems_engine.KINDS:
        return ()  # each contender makes its own
    if problem.kind in eager_programs.KINDS:
        return eager_programs.inputs()
    if problem.kind in host_programs.PROGRAMS:
        return host_programs.inputs(problem.kind, problem.size)
    if problem.kind in workloads.KINDS:
        return workloads.inputs(problem.kind, problem.size)
    if problem.kind in pass_programs.KINDS:
        return pass_programs.inputs(problem.kind, problem.size)
    if problem.kind in loops.KINDS:
        return loops.inputs(problem.kind, problem.size)
    if problem.kind.startswith(derivatives.KIND):
        return derivatives.inputs(problem.kind.removesuffix(PRIMAL), problem.size)
    generator = np.random.default_rng(0)
    if problem.kind.startswith(SDF_CUDA):
        return tuple(np.tile(axis, -(-problem.size // TILE))[: problem.size] for axis in points(TILE))
    if problem.kind.startswith("sdf") or is_sdf_gradient(problem):
        return points(problem.size)
    if problem.kind in GRADBENCH:
        return ()  # each contender makes its own
    if problem.kind in ("first_call", *FIRST_GRADIENTS, "warm_cache"):
        return points(LATENCY_POINTS)
    if problem.kind == "prospero":
        return prospero.grid(problem.size)
    if problem.kind == "call_overhead":
        return (
            generator.standard_normal(problem.size, np.float32),
            generator.standard_normal(problem.size, np.float32),
        )
    count = 2 if problem.kind == "sum_of_squares" else 1
    return tuple(generator.standard_normal((problem.size, 4096), np.float32) for _ in range(count))


def parameters(problem: Problem, seed: int = 1) -> Array:
    return np.array(program(problem, seed).parameters, np.float32)


def probe_indices(length: int) -> Array:
    return np.linspace(0, length - 1, PROBES).astype(np.int64)


def preceded(before: Callable[[], Any], run: Run) -> Run:
    """A run with an untimed action before each call."""

    def call() -> Any:
        return run()

    call.before = before  # type: ignore[attr-defined]
    return call


class Timing(NamedTuple):
    """The seconds of one call, and those that all threads of the process spent on processors in it."""

    seconds: float
    processor: float


def time_calls(run: Run, calls: int) -> Timing:
    """The time of one of several calls, without the run's `before` action."""
    before = getattr(run, "before", None)
    if before is None:
        start, processor = time.perf_counter(), time.process_time()
        for _ in range(calls):
            run()
        return Timing((time.perf_counter() - start) / calls, (time.process_time() - processor) / calls)
    seconds = processor_seconds = 0.0
    for _ in range(calls):
        before()
        start, processor = time.perf_counter(), time.process_time()
        run()
        seconds += time.perf_counter() - start
        processor_seconds += time.process_time() - processor
    return Timing(seconds / calls, processor_seconds / calls)


def probe(result: Any) -> list[float]:
    """A few elements of a result, spread evenly; a few of each of several arrays."""
    if isinstance(result, tuple):
        return [value for part in result for value in probe(np.asarray(part))[:: len(result)]]
    flat = np.asarray(result).reshape(-1)
    return [float(value) for value in flat[probe_indices(flat.size)]]


def expected(problem: Problem, arrays: Sequence[Array]) -> list[float]:
    """The probed elements, computed in float64."""
    if problem.kind in context_document.KINDS:
        return probe(context_document.expected(problem.kind, problem.size))
    if problem.kind in problems_engine.KINDS:
        return probe(problems_engine.expected(problem.kind, problem.size))
    if problem.kind == "prospero_drawn":
        return parts_expected.drawn_at(problem.size, probe_indices(problem.size**2))
    if problem.kind in parts_expected.KINDS:
        return probe(parts_expected.expected(problem.kind, problem.size))
    if problem.kind in host_programs.PROGRAMS:
        return probe(host_programs.expected(problem.kind, arrays[0]))
    if problem.kind in eager_programs.KINDS:
        return probe(eager_programs.expected(problem.kind, problem.size))
    if problem.kind in workloads.KINDS:
        return probe(workloads.expected(problem.kind, tuple(arrays)))
    if problem.kind in pass_programs.KINDS:
        return probe(pass_programs.expected(problem.kind, tuple(arrays)))
    if problem.kind in loops.KINDS:
        return probe(loops.expected(problem.kind, tuple(arrays)))
    if problem.kind.startswith(derivatives.KIND):
        return probe(derivatives.expected(problem.kind.removesuffix(PRIMAL), problem.kind.endswith(PRIMAL), arrays))
    if problem.kind in GRADBENCH:
        return expected_of_gradbench(problem)
    if problem.kind.startswith(SDF_CUDA):
        return expected_of_sdf_cuda(problem, arrays)
    if is_sdf_gradient(problem) or problem.kind in FIRST_GRADIENTS:
        return expected_of_sdf_gradient(problem, arrays)
    if problem.kind == "sum_of_squares":
        left, right = (array.astype(np.float64) for array in arrays)
        return probe(np.square(left - right).sum())
    if problem.kind == "softmax":
        rows, columns = np.divmod(probe_indices(arrays[0].size), arrays[0].shape[1])
        chosen = arrays[0][rows].astype(np.float64)
        powers = np.exp(chosen - chosen.max(axis=1, keepdims=True))
        return list((powers / powers.sum(axis=1, keepdims=True))[np.arange(PROBES), columns])
    if problem.kind == "memcpy":
        return probe(arrays[0])
    picked = [array.reshape(-1)[probe_indices(array.size)].astype(np.float64) for array in arrays]
    if problem.kind == "call_overhead":
        return list(picked[0] * picked[1] + picked[0])
    task = program(problem)
    return list(sdf.evaluate(task, picked, task.parameters, NUMPY_OPERATIONS))


def expected_of_gradbench(problem: Problem) -> list[float]:
    name, is_primal = gradbench_name(problem)
    if is_primal:
        return probe(gradbench.expected_primal(name, problem.size))
    wanted: list[int] = []
    before, shapes = 0, gradbench.derivative_shapes(name, problem.size)
    for shape in shapes:  # as `probe` picks them
        wanted += (before + probe_indices(int(np.prod(shape)))[:: len(shapes)]).tolist()
        before += int(np.prod(shape))
    return gradbench.expected_derivative(name, problem.size, wanted)


def expected_of_sdf_gradient(problem: Problem, arrays: Sequence[Array]) -> list[float]:
    """The value, its gradient by point, and the sums over all points of that by each parameter."""
    if problem.kind.endswith(PRIMAL):
        picked = [array[probe_indices(array.size)].astype(np.float64) for array in arrays]
        task = program(problem)
        return list(sdf.evaluate(task, picked, task.parameters, NUMPY_OPERATIONS))
    value, by_point, by_parameter = sdf_gradient.gradients(program(problem), arrays, NUMPY_OPERATIONS)
    return probe((value, *by_point, by_parameter))


def expected_of_sdf_cuda(problem: Problem, arrays: Sequence[Array]) -> list[float]:
    """The values, their gradients by point, or the sums of those by parameters."""
    if problem.kind.endswith("by_parameter"):
        repeats = max(1, problem.size // TILE)
        few = [axis[: problem.size // repeats] for axis in arrays]
        return probe((repeats * sdf_gradient.gradients(program(problem), few, NUMPY_OPERATIONS)[2],))
    picked = [axis[probe_indices(axis.size)] for axis in arrays]
    value, by_point, _ = sdf_gradient.gradients(program(problem), picked, NUMPY_OPERATIONS)
    return list(value) if problem.kind.endswith("value") else [v for part in by_point for v in part[::3]]


def agrees(problem: Problem, actual: Sequence[float], wanted: Sequence[float]) -> bool:
    if problem.kind in GRADBENCH:
        return gradbench.agree(actual, wanted)
    if problem.kind in loops.KINDS:
        return loops.KINDS[problem.kind].agrees(actual, wanted)
    if problem.kind.startswith(derivatives.KIND):
        return derivatives.agrees(problem.kind.removesuffix(PRIMAL), problem.kind.endswith(PRIMAL), actual, wanted)
    if problem.kind.startswith(SDF_CUDA) and problem.kind.endswith("by_parameter"):
        # Sums of millions of numbers of both signs have an error relative to the sum of their magnitudes.
        return bool(np.allclose(actual, wanted, rtol=1e-3, atol=1e-5 * problem.size))
    tolerance = 2e-3 if problem.kind in ("prospero", *workloads.KINDS, *pass_programs.KINDS) else 1e-4
    if problem.kind in parts_expected.TRIANGLES:
        tolerance = parts_expected.tolerance(problem.kind, problem.size)
    return bool(np.allclose(actual, wanted, rtol=tolerance, atol=tolerance))
