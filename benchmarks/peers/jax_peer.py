"""JAX: jit on the CPU, inputs already on the device, each run waited for."""
# pyright: reportMissingImports=false

import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks import sdf
from benchmarks.peers import jax_gradients, jax_loops, jax_tensors
from benchmarks.problems import (
    FIRST_GRADIENTS,
    GRADBENCH,
    PRIMAL,
    SDF_GRADIENTS,
    Problem,
    Run,
    inputs,
    parameters,
    program,
)

VERSION = jax.__version__

OPERATIONS: dict[str, Callable[..., Any]] = {
    "add": jnp.add,
    "sub": jnp.subtract,
    "mul": jnp.multiply,
    "neg": jnp.negative,
    "square": jnp.square,
    "sqrt": jnp.sqrt,
    "abs": jnp.abs,
    "min": jnp.minimum,
    "max": jnp.maximum,
    "sin": jnp.sin,
    "exp": jnp.exp,
    "log": jnp.log,
    "tanh": jnp.tanh,
    "pow": jnp.power,
}


def compiled(problem: Problem, function: Callable[..., Any], *extra: Any) -> Run:
    arguments = [jnp.asarray(array) for array in (*inputs(problem), *extra)]
    jitted = jax.jit(function)
    return lambda: jitted(*arguments).block_until_ready()


def sdf_function(task: sdf.Program) -> Callable[..., Any]:
    def distance(*arguments: Any) -> Any:
        *coordinates, values = arguments
        return sdf.evaluate(task, coordinates, values, OPERATIONS)

    return distance


def build_sdf(problem: Problem) -> Run:
    return compiled(problem, sdf_function(program(problem)), parameters(problem))


def build_softmax(problem: Problem) -> Run:
    return compiled(problem, lambda array: jax.nn.softmax(array, axis=1))


def build_sum_of_squares(problem: Problem) -> Run:
    return compiled(problem, lambda left, right: jnp.sum((left - right) ** 2))


def build_call_overhead(problem: Problem) -> Run:
    return compiled(problem, lambda left, right: left * right + left)


def build_first_call(problem: Problem) -> Run:
    """Each run compiles a function that has not been seen before."""
    arrays = [jnp.asarray(array) for array in inputs(problem)]
    seeds = itertools.count(1)

    def run() -> Any:
        task = program(problem, next(seeds))
        return jax.jit(sdf_function(task))(*arrays, jnp.asarray(task.parameters, jnp.float32)).block_until_ready()

    return run


def build_sdf_gradient(problem: Problem) -> Run:
    return jax_gradients.build_sdf_gradient(problem, OPERATIONS)


def build_first_gradient(problem: Problem) -> Run:
    return jax_gradients.build_first_gradient(problem, OPERATIONS)


BUILDERS = {
    **jax_tensors.BUILDERS,
    **jax_loops.BUILDERS,
    **dict.fromkeys(GRADBENCH, jax_gradients.build_gradbench),
    **dict.fromkeys(SDF_GRADIENTS, build_sdf_gradient),
    **dict.fromkeys([kind + PRIMAL for kind in SDF_GRADIENTS], build_sdf),
    **dict.fromkeys(FIRST_GRADIENTS, build_first_gradient),
    "sdf_algebraic": build_sdf,
    "sdf_transcendental": build_sdf,
    "softmax": build_softmax,
    "sum_of_squares": build_sum_of_squares,
    "call_overhead": build_call_overhead,
    "first_call": build_first_call,
}
