"""JAX in the tensors suite."""
# pyright: reportMissingImports=false

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks import eager_programs, host_programs, workloads
from benchmarks.problems import Problem, Run, inputs, preceded

LIBRARY = workloads.Library(
    exp=jnp.exp,
    sin=jnp.sin,
    tanh=jnp.tanh,
    sqrt=jnp.sqrt,
    abs=jnp.abs,
    relu=jax.nn.relu,
    total=lambda x, axis: jnp.sum(x, axis=axis, keepdims=axis is not None),
    highest=lambda x, axis: jnp.max(x, axis=axis, keepdims=True),
    turned=jnp.matrix_transpose,
    gradient=lambda function, count: jax.value_and_grad(function, tuple(range(count))),
)


def compiled(kind: str) -> Callable[..., Any]:
    program = workloads.program_of(kind)
    return jax.jit(lambda *arrays: program(LIBRARY, *arrays))


def build(problem: Problem) -> Run:
    function = compiled(problem.kind)
    arrays = [jnp.asarray(array) for array in inputs(problem)]
    return lambda: jax.block_until_ready(function(*arrays))


def build_first(problem: Problem) -> Run:
    arrays = [jnp.asarray(array) for array in inputs(problem)]
    return preceded(jax.clear_caches, lambda: jax.block_until_ready(compiled(problem.kind)(*arrays)))


def build_small_call(problem: Problem) -> Run:
    first, second = (jnp.asarray(array) for array in inputs(problem))
    function = jax.jit(lambda a, b: a * b + a)
    return lambda: function(first, second).block_until_ready()


def build_scalars(problem: Problem) -> Run:
    function = jax.jit(eager_programs.scalars)
    return lambda: function(*eager_programs.NUMBERS)


HOSTS = host_programs.Library(
    fft2=jnp.fft.fft2,
    fft=jnp.fft.fft,
    rfft=jnp.fft.rfft,
    real=jnp.real,
    log=jnp.log,
    argsort=lambda x: jnp.argsort(x, stable=True),
    largest=lambda x, count: jax.lax.top_k(x, count)[0],
    cholesky=jnp.linalg.cholesky,
    eigvalsh=jnp.linalg.eigvalsh,
)


def build_host(problem: Problem) -> Run:
    program = host_programs.PROGRAMS[problem.kind]
    function = jax.jit(lambda x: program(HOSTS, x))
    (x,) = (jnp.asarray(array) for array in inputs(problem))
    return lambda: function(x).block_until_ready()


BUILDERS = {
    **dict.fromkeys(host_programs.PROGRAMS, build_host),
    "small_call": build_small_call,
    "eager_scalars": build_scalars,
    **dict.fromkeys(workloads.PROGRAMS, build),
    **dict.fromkeys(workloads.FIRST, build_first),
}
