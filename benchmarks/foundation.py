"""The rows of the foundation suite: throughput of fused functions, memory-bound kernels, and latencies."""

from benchmarks import prospero
from benchmarks.harness import Benchmark
from benchmarks.problems import Problem

COMPILERS = ("jax", "torch", "numba")
PEERS = (*COMPILERS, "numpy")


def sdf_rows(count: int) -> list[Benchmark]:
    titles = {
        "sdf_algebraic": "signed distance, 310 operations",
        "sdf_transcendental": "signed distance, 316 operations with 59 of sin, exp, log, tanh, pow",
    }
    return [
        Benchmark(
            name=name,
            title=f"{title}, {count:,} points",
            problem=Problem(name, count),
            contenders=("livegrad", "handwritten", *PEERS),
            work=count / 1e6,
            unit="Mpoints/s",
        )
        for name, title in titles.items()
    ]


def memory_rows(rows: int) -> list[Benchmark]:
    """Each of these moves the same number of bytes: one array read and one written, or two read."""
    gigabytes = 2 * rows * 4096 * 4 / 1e9
    titles = {
        "softmax": (f"softmax over rows of {rows} × 4096", ("livegrad", *PEERS)),
        "sum_of_squares": (f"sum((a - b)²) at {rows} × 4096", ("livegrad", *PEERS)),
        "memcpy": (f"memcpy of {rows} × 4096 floats", ("memcpy", "torch", "numpy")),
    }
    return [
        Benchmark(name, title, Problem(name, rows), names, work=gigabytes, unit="GB/s")
        for name, (title, names) in titles.items()
    ]


def latency_rows(side: int) -> list[Benchmark]:
    return [
        Benchmark(
            "first_call_310",
            "first call of a new function, 310 operations",
            Problem("first_call", 6),
            ("livegrad", *COMPILERS),
        ),
        Benchmark(
            "first_call_3000",
            "first call of a new function, 3,010 operations",
            Problem("first_call", 60),
            ("livegrad", "jax", "numba"),
        ),
        Benchmark(
            "prospero",
            f"prospero.vm, 7,866 operations: compile and draw {side} × {side} pixels",
            Problem("prospero", side),
            ("livegrad",),
            skip=prospero.missing(),
        ),
        Benchmark(
            "warm_cache",
            "first call of a function of 310 operations that is in the disk cache",
            Problem("warm_cache", 6),
            ("livegrad",),
        ),
        Benchmark(
            "call_overhead",
            "one call of a compiled kernel on 64 elements",
            Problem("call_overhead", 64),
            ("livegrad", *PEERS),
            calls=2000,
        ),
    ]


def rows(quick: bool) -> list[Benchmark]:
    points, matrix_rows, side = (1 << 20, 1024, 256) if quick else (1 << 24, 4096, 1024)
    return [*sdf_rows(points), *memory_rows(matrix_rows), *latency_rows(side)]
