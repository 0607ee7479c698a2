"""The rows of the engine suite on the CPU: what a frame costs beside the work itself, for each level of change."""

from benchmarks.harness import Benchmark
from benchmarks.problems import Problem

_TITLES = {
    "nothing": "nothing changed",
    "hot": "one number changed, one block is stale",
    "hot_all": "one number changed, every block is stale",
    "code": "one block computes another function, known already",
    "cold": "one edge changed",
    "cold_add": "a block added and connected, and another one removed",
}


def rows(quick: bool) -> list[Benchmark]:
    blocks = dict.fromkeys(_TITLES, 50 if quick else 1_000) | {"cold_add": 100 if quick else 5_000}
    calls = {"nothing": 200, "hot": 200, "hot_all": 10, "code": 20, "cold": 10, "cold_add": 10}
    return [
        Benchmark(
            f"engine_cpu_{kind}",
            f"a frame of {blocks[kind]:,} blocks: {title}",
            Problem(f"engine_cpu_{kind}", blocks[kind]),
            ("livegrad",),
            calls=calls[kind],
        )
        for kind, title in _TITLES.items()
    ]
