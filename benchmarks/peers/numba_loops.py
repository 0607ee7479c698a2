"""Numba in the loops suite: `njit`, and `njit(parallel=True)` where iterations are independent."""
# pyright: reportMissingImports=false

from collections.abc import Callable
from types import FunctionType
from typing import Any

import numba

from benchmarks.loops.catalogue import KINDS
from benchmarks.problems import Problem, Run, inputs


def compiled(function: Callable[..., Any], parallel: bool) -> Callable[..., Any]:
    """The port with Numba's own `prange`, which is `range` where it is not parallel."""
    assert isinstance(function, FunctionType)
    port = FunctionType(function.__code__, function.__globals__ | {"prange": numba.prange}, function.__name__)
    return numba.njit(parallel=parallel, fastmath=True)(port)


def build_with(parallel: bool) -> Callable[[Problem], Run]:
    def build(problem: Problem) -> Run:
        function, arrays = compiled(KINDS[problem.kind].numba, parallel), inputs(problem)
        return lambda: function(*arrays)

    return build


BUILDERS = dict.fromkeys(KINDS, build_with(parallel=False))
PARALLEL = {kind: build_with(parallel=True) for kind, program in KINDS.items() if program.parallel}
