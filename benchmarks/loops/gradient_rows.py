"""The rows of the loops-gradients suite: each program that has a derivative, at the size of the L2 cache."""

from benchmarks.harness import Benchmark
from benchmarks.loops.derivatives import differentiable_programs
from benchmarks.loops.program import SIZES, Program
from benchmarks.loops.rows import PROCESSES, SAMPLE_SECONDS, title
from benchmarks.problems import PRIMAL, Problem

SIZE = SIZES.index("l2")
CONTENDERS = ("livegrad", "livegrad" + PRIMAL, "livegrad_forward", "jax")


def row(kind: str, program: Program, size: int, wanted: int, processes: int) -> Benchmark:
    return Benchmark(
        f"{program.name}_gradient",
        f"gradient: {title(program, size, wanted)}",
        Problem(kind, size),
        CONTENDERS,
        processes=processes,
        sample_seconds=SAMPLE_SECONDS,
        memory=True,
        processor=True,
    )


def rows(quick: bool) -> list[Benchmark]:
    """All rows; at small sizes, in one process, if it is to be quick."""
    programs = differentiable_programs().items()
    if quick:
        return [row(kind, program, program.small, program.small, 1) for kind, program in programs]
    return [
        row(kind, program, program.measured_sizes[SIZE], program.sizes[SIZE], PROCESSES) for kind, program in programs
    ]
