"""livegrad's contenders in the loops suite: each program compiled with `jit`, on tensors that hold their data."""

from collections.abc import Callable

import livegrad as lg
from benchmarks.loops.catalogue import KINDS
from benchmarks.problems import Problem, Run, inputs


def build(problem: Problem) -> Run:
    function = lg.jit(KINDS[problem.kind].livegrad)
    tensors = [lg.asarray(array) for array in inputs(problem)]
    return lambda: function(*tensors)


BUILDERS: dict[str, Callable[[Problem], Run]] = dict.fromkeys(KINDS, build)
