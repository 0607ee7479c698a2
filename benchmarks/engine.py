"""The engine suite: what a change costs the host when a thousand kernels run as one CUDA Graph, beside the rows of the
CPU and of the distance functions on a GPU.

The time of a row is the host's: `set` and `step`, until the frame is launched. What each frame computes is checked in
the first; the device is idle when a sample begins. `python -m benchmarks.engine` prints the memory of the graph with
and without reuse."""

from typing import Any

from benchmarks import engine_cpu, engine_sdf
from benchmarks.engine_cuda_contenders import peak_bytes
from benchmarks.harness import Benchmark
from benchmarks.problems import Problem
from livegrad.runtime.cuda import reason_for_no_cuda

_TITLES = {
    "hot": "one number changed, one block is stale",
    "hot_all": "one number changed, every block is stale",
    "new_set": "one number changed, half of the blocks are stale and were never so together: a new executable",
    "code": "one block computes another function, compiled already",
    "cold": "one edge changed at the top: a new graph of loaded kernels, of which every one runs",
    "loop": "an optimisation of 1,000 steps as one launch, until its result is there",
}


def rows(quick: bool) -> list[Benchmark]:
    """Rows of a GPU, then those of the CPU, then the distance functions."""
    return [*gpu_rows(quick), *engine_cpu.rows(quick), *engine_sdf.rows(quick)]


def gpu_rows(quick: bool) -> list[Benchmark]:
    """A thousand kernels as one graph; `python -m benchmarks.sdf_cuda` measures the distance functions alone."""
    blocks = 50 if quick else 1_000
    calls = {"hot": 200, "hot_all": 40, "new_set": 1, "code": 20, "cold": 1, "loop": 1}
    return [
        Benchmark(
            f"engine_cuda_{kind}",
            title if kind == "loop" else f"host time of a frame of {blocks:,} kernels: {title}",
            Problem(f"engine_cuda_{kind}", blocks),
            ("livegrad",),
            calls=calls[kind],
            skip=reason_for_no_cuda(),
        )
        for kind, title in _TITLES.items()
    ]


def memory_note(blocks: int = 1_000, points: int = 1 << 18) -> str:
    """A sentence about the memory of a long chain, with and without buffer reuse."""
    naive, shared = (peak_bytes(blocks, points, reuse) / 1e6 for reuse in (False, True))
    told = f"Memory of a chain of {blocks:,} blocks of {points:,} floats that are all stale together"
    return f"{told}: {naive:,.1f} MB without reuse, {shared:,.1f} MB with."


def gpu_notes() -> dict[str, Any]:
    """The additional record of a run on a GPU."""
    return {"title": "The engine on a GPU", "notes": [memory_note()]}


def main() -> None:
    print(memory_note())


if __name__ == "__main__":
    main()
