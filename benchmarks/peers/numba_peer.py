"""Numba: njit with parallel loops and fastmath, from source text written for each function."""
# pyright: reportMissingImports=false

import itertools
import math
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from numba import njit, prange

from benchmarks import sdf
from benchmarks.peers import numba_loops
from benchmarks.problems import Array, Problem, Run, inputs, parameters, program

VERSION = numba.__version__

FORMS = {
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


def sdf_function(task: sdf.Program) -> Callable[..., Any]:
    names: dict[str, Any] = {"math": math, "float32": np.float32, "prange": prange}
    body = sdf.python_source(task, FORMS, literal="float32({0!r})", parameter="p{0}")
    lines = [
        "def distance(xs, ys, zs, p, out):",
        *(f"    p{index} = p[{index}]" for index in range(len(task.parameters))),
        "    for i in prange(out.shape[0]):",
        "        x, y, z = xs[i], ys[i], zs[i]",
        *(f"        {line}" for line in body),
        "        out[i] = result",
    ]
    exec("\n".join(lines), names)
    return njit(parallel=True, fastmath=True)(names["distance"])


def build_sdf(problem: Problem) -> Run:
    arrays, values = inputs(problem), parameters(problem)
    function, out = sdf_function(program(problem)), np.empty_like(arrays[0])

    def run() -> Array:
        function(*arrays, values, out)
        return out

    return run


@njit(parallel=True, fastmath=True)
def softmax_rows(array: Array, out: Array) -> None:
    for row in prange(array.shape[0]):
        largest = array[row, 0]
        for column in range(array.shape[1]):
            largest = max(largest, array[row, column])
        total = np.float32(0.0)
        for column in range(array.shape[1]):
            out[row, column] = math.exp(array[row, column] - largest)
            total += out[row, column]
        scale = np.float32(1.0) / total
        for column in range(array.shape[1]):
            out[row, column] *= scale


def build_softmax(problem: Problem) -> Run:
    (array,) = inputs(problem)
    out = np.empty_like(array)

    def run() -> Array:
        softmax_rows(array, out)
        return out

    return run


@njit(parallel=True, fastmath=True)
def sum_of_squares(left: Array, right: Array) -> Any:
    total = np.float32(0.0)
    for i in prange(left.shape[0]):
        difference = left[i] - right[i]
        total += difference * difference
    return total


def build_sum_of_squares(problem: Problem) -> Run:
    left, right = (array.reshape(-1) for array in inputs(problem))
    return lambda: sum_of_squares(left, right)


@njit(fastmath=True)
def multiply_add(left: Array, right: Array, out: Array) -> None:
    for i in range(out.shape[0]):
        out[i] = left[i] * right[i] + left[i]


def build_call_overhead(problem: Problem) -> Run:
    left, right = inputs(problem)
    out = np.empty_like(left)

    def run() -> Array:
        multiply_add(left, right, out)
        return out

    return run


def build_first_call(problem: Problem) -> Run:
    """Each run compiles a function that has not been seen before."""
    arrays = inputs(problem)
    seeds = itertools.count(1)

    def run() -> Array:
        task = program(problem, next(seeds))
        out = np.empty_like(arrays[0])
        sdf_function(task)(*arrays, np.array(task.parameters, np.float32), out)
        return out

    return run


BUILDERS = {
    **numba_loops.BUILDERS,
    "sdf_algebraic": build_sdf,
    "sdf_transcendental": build_sdf,
    "softmax": build_softmax,
    "sum_of_squares": build_sum_of_squares,
    "call_overhead": build_call_overhead,
    "first_call": build_first_call,
}
