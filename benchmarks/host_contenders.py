"""livegrad's contenders in the hosts suite: the programs on tensors, compiled with `jit`."""

from collections.abc import Callable

import livegrad as lg
from benchmarks import host_programs
from benchmarks.problems import Problem, Run, inputs

LIBRARY = host_programs.Library(
    fft2=lambda x: lg.fft.fftn(x, axes=(-2, -1)),
    fft=lg.fft.fft,
    rfft=lg.fft.rfft,
    real=lg.real,
    log=lg.log,
    argsort=lg.argsort,
    largest=lambda x, count: lg.top_k(x, count)[0],
    cholesky=lg.linalg.cholesky,
    eigvalsh=lg.linalg.eigvalsh,
)


def build(problem: Problem) -> Run:
    program = host_programs.PROGRAMS[problem.kind]
    function = lg.jit(lambda x: program(LIBRARY, x))
    (tensor,) = (lg.asarray(array) for array in inputs(problem))
    return lambda: function(tensor)


BUILDERS: dict[str, Callable[[Problem], Run]] = dict.fromkeys(host_programs.PROGRAMS, build)
