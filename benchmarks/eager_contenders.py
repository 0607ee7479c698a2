"""livegrad's contenders in the eager suite: lazy tensors whose values are read at once."""

from collections.abc import Callable

import livegrad as lg
from benchmarks import eager_programs
from benchmarks.problems import Problem, Run, inputs


def build(problem: Problem) -> Run:
    x, y = ((lg.asarray(vector) + 0.0).execute() for vector in inputs(problem))
    return eager_programs.run_of(problem.kind, problem.size, x, y, lg.maximum)


def build_scalars(problem: Problem) -> Run:
    function = lg.jit(eager_programs.scalars)
    return lambda: function(*eager_programs.NUMBERS)


BUILDERS: dict[str, Callable[[Problem], Run]] = {
    **dict.fromkeys(eager_programs.PROGRAMS, build),
    "eager_scalars": build_scalars,
}
