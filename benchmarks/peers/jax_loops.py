"""JAX in the loops suite, in double precision."""
# pyright: reportMissingImports=false

import jax

from benchmarks.loops.catalogue import KINDS
from benchmarks.loops.derivatives import Gradient, differentiable_programs, directions, positions, total
from benchmarks.problems import Problem, Run, inputs


def build(problem: Problem) -> Run:
    jax.config.update("jax_enable_x64", True)
    function = jax.jit(KINDS[problem.kind].jax)
    arrays = [jax.numpy.asarray(array) for array in inputs(problem)]
    return lambda: jax.block_until_ready(function(*arrays))


def build_gradient(problem: Problem) -> Run:
    jax.config.update("jax_enable_x64", True)
    program, arrays = differentiable_programs()[problem.kind], inputs(problem)
    given = [jax.numpy.asarray(array) for array in arrays]
    moved = [given[index] for index in positions(program)[0]]
    function = total(program, program.jax, jax.numpy.sum, given)
    gradient = jax.jit(jax.grad(function, argnums=tuple(range(len(moved)))))
    along = directions(program, arrays)
    return lambda: Gradient(jax.block_until_ready(gradient(*moved)), along)


BUILDERS = dict.fromkeys(KINDS, build) | dict.fromkeys(differentiable_programs(), build_gradient)
