"""The rows of the loops suite: every program at three sizes, beside the idiom of each peer."""

from dataclasses import replace

from benchmarks.harness import Benchmark
from benchmarks.loops.catalogue import PROGRAMS
from benchmarks.loops.program import Program
from benchmarks.problems import Problem

PROCESSES = 3
SAMPLE_SECONDS = 0.005


def title(program: Program, size: int, wanted: int) -> str:
    text = program.title.format(n=f"{size:,}")
    return text if size == wanted else f"{text} (to be {wanted:,})"


def program_rows(program: Program) -> list[Benchmark]:
    return [
        Benchmark(
            name,
            title(program, size, wanted),
            Problem(program.kind, size),
            ("livegrad", *program.peers),
            processes=PROCESSES,
            sample_seconds=SAMPLE_SECONDS,
        )
        for name, size, wanted in zip(program.row_names(), program.measured_sizes, program.sizes, strict=True)
    ]


def rows(quick: bool) -> list[Benchmark]:
    """All rows; those of the smallest size alone, in one process, if it is to be quick."""
    if quick:
        return [replace(program_rows(program)[0], processes=1) for program in PROGRAMS.values()]
    return [row for program in PROGRAMS.values() for row in program_rows(program)]
