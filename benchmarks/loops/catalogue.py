"""Every program of the suite, by name and by the kind of its problems."""

from typing import Any

from benchmarks.loops import (
    chance,
    complex_numbers,
    counting,
    dynamic_programming,
    factorisations,
    filters,
    flows,
    geometry,
    linear_algebra,
    points,
    recurrences,
    sequences,
    solvers,
    stencils,
    sweeps,
    windows,
)
from benchmarks.loops.program import Array, Program

MODULES: tuple[Any, ...] = (
    linear_algebra, factorisations, filters, solvers, dynamic_programming, recurrences, stencils, windows, flows,
    sweeps, sequences, counting, complex_numbers, geometry, chance, points,
)  # fmt: skip
PROGRAMS: dict[str, Program] = {program.name: program for module in MODULES for program in module.PROGRAMS}
KINDS: dict[str, Program] = {program.kind: program for program in PROGRAMS.values()}


def inputs(kind: str, size: int) -> tuple[Array, ...]:
    return KINDS[kind].inputs(size)


def expected(kind: str, arrays: tuple[Array, ...]) -> Any:
    return KINDS[kind].numpy(*arrays)
