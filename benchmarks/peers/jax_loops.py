"""JAX in the loops suite, in double precision."""
# pyright: reportMissingImports=false

import jax

from benchmarks.loops.catalogue import KINDS
from benchmarks.problems import Problem, Run, inputs


def build(problem: Problem) -> Run:
    jax.config.update("jax_enable_x64", True)
    function = jax.jit(KINDS[problem.kind].jax)
    arrays = [jax.numpy.asarray(array) for array in inputs(problem)]
    return lambda: jax.block_until_ready(function(*arrays))


BUILDERS = dict.fromkeys(KINDS, build)
