"""The rows of the suite: single operations at one size, models at three."""

from benchmarks.harness import Benchmark
from benchmarks.problems import Problem
from benchmarks.tensors_gpu.catalogue import ROWS, TEST_ROWS
from livegrad.runtime.cuda import reason_for_no_cuda

CONTENDERS = ("livegrad", "jax", "torch")


def rows(quick: bool) -> list[Benchmark]:
    """All rows; those of the size that tests use, if it is to be quick."""
    return [
        Benchmark(
            name,
            program.title_of(name),
            Problem(name, next(iter(vars(program.sizes_of(name)).values()))),
            CONTENDERS,
            skip=reason_for_no_cuda(),
        )
        for name, program in (TEST_ROWS if quick else ROWS).items()
    ]
