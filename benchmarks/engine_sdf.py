"""Rows of the engine suite: the distance functions over 64M points on a GPU, beside JAX and PyTorch in this Python."""

from benchmarks.harness import Benchmark
from benchmarks.problems import SDF_CUDA, Problem
from benchmarks.sdf_cuda import KINDS
from livegrad.runtime.cuda import reason_for_no_cuda

TITLES = {"value": "distances", "by_point": "gradients by point", "by_parameter": "gradients by 20 parameters"}


def rows(quick: bool) -> list[Benchmark]:
    """One row for each variant and result; `livegrad_ieee` rounds division and square root as IEEE 754 says."""
    count = 1 << 20 if quick else 1 << 26
    return [
        Benchmark(
            SDF_CUDA + kind,
            f"{TITLES[kind.partition('_')[2]]} of the {kind.partition('_')[0]} function, {count:,} points on a GPU",
            Problem(SDF_CUDA + kind, count),
            ("livegrad", "livegrad_ieee", "jax_gpu", "torch_gpu"),
            work=count / 1e6,
            unit="Mpoints/s",
            skip=reason_for_no_cuda(),
        )
        for kind in KINDS
    ]
