"""livegrad's contenders in the loops-gradients suite: the program, its gradient, and one forward-mode derivative."""

from collections.abc import Callable

import livegrad as lg
from benchmarks.loops.derivatives import Gradient, differentiable_programs, directions, positions, total
from benchmarks.problems import PRIMAL, Problem, Run, inputs

PROGRAMS = differentiable_programs()


def build_primal(problem: Problem) -> Run:
    function = lg.jit(PROGRAMS[problem.kind.removesuffix(PRIMAL)].livegrad)
    tensors = [lg.asarray(array) for array in inputs(problem)]
    return lambda: function(*tensors)


def build_reverse(problem: Problem) -> Run:
    program, arrays = PROGRAMS[problem.kind], inputs(problem)
    tensors = [lg.asarray(array) for array in arrays]
    given = [tensors[index] for index in positions(program)[0]]
    function = total(program, program.livegrad, lg.sum, tensors)
    gradient = lg.jit(lg.grad(function, argnums=tuple(range(len(given)))))
    along = directions(program, arrays)
    return lambda: Gradient(gradient(*given), along)


def build_forward(problem: Problem) -> Run:
    program, arrays = PROGRAMS[problem.kind], inputs(problem)
    tensors = [lg.asarray(array) for array in arrays]
    given = [tensors[index] for index in positions(program)[0]]
    along = [lg.asarray(direction) for direction in directions(program, arrays)]
    function = total(program, program.livegrad, lg.sum, tensors)
    derivative = lg.jit(lambda *values: lg.jvp(function, values[: len(given)], values[len(given) :])[1])
    return lambda: derivative(*given, *along)


Builders = dict[str, Callable[[Problem], Run]]
REVERSE: Builders = dict.fromkeys(PROGRAMS, build_reverse) | {kind + PRIMAL: build_primal for kind in PROGRAMS}
FORWARD: Builders = dict.fromkeys(PROGRAMS, build_forward)
