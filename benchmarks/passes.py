"""The rows of the passes suite: what each optional optimisation gains on programs that it was not made for."""

from benchmarks.harness import Benchmark
from benchmarks.pass_programs import COLUMNS, KINDS
from benchmarks.problems import Problem


def rows(quick: bool) -> list[Benchmark]:
    lines = 64 if quick else 2048
    return [
        Benchmark(
            f"{program}_{optimisation}",
            f"{program.replace('_', ' ')} of {lines} × {COLUMNS}, with and without `{optimisation}`",
            Problem(kind, lines),
            ("livegrad", "without"),
        )
        for kind in KINDS
        for optimisation, _, program in [kind.partition(":")]
    ]
