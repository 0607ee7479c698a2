"""The rows of the gradient suite: GradBench, and distances with gradients of points and parameters."""

from benchmarks.harness import Benchmark
from benchmarks.problems import PRIMAL, Problem

PEERS = ("jax", "torch")
# `gradbench.inputs` defines the meaning of each size. These are GradBench's own sizes, or one of them.
TITLES = {
    "hello": ("x² and its derivative", 1, 1),
    "llsq": ("least squares, 128 coefficients, {} places", 4096, 64),
    "lse": ("log-sum-exp of {} numbers", 640_000, 1000),
    "ode": ("Runge and Kutta, 100 steps, {} equations", 10_000, 20),
    "gmm": ("Gaussian mixture, d = 10, k = 25, {} observations", 1000, 100),
    "ba": ("bundle adjustment, the Jacobian's blocks of {} observations", 31_843, 100),
    "kmeans": ("k-means, d = 8, k = 100, {} points: gradient over Hessian diagonal", 10_000, 1000),
    "ht": ("hand tracking, 26 parameters, {} correspondences: the Jacobian", 1000, 50),
    "particle": ("a particle between charges: a loop, with derivatives inside", 1, 1),
    "saddle": ("the inner problem of a saddle point: a loop, with derivatives inside", 1, 1),
    "det": ("determinant by minors, {} rows", 7, 4),
}


def with_primals(*names: str) -> tuple[str, ...]:
    """Each contender with the function and with its derivative."""
    return tuple(name + part for name in names for part in ("", PRIMAL))


def gradbench_rows(quick: bool) -> list[Benchmark]:
    rows = []
    for name, (title, size, small) in TITLES.items():
        chosen = small if quick else size
        contenders = with_primals("livegrad", *PEERS)
        if name == "gmm":
            contenders = (*contenders, "adjoint")
        calls = 200 if name in ("hello", "particle", "saddle", "det") else 1
        rows.append(Benchmark(name, title.format(f"{chosen:,}"), Problem(name, chosen), contenders, calls=calls))
    return rows


def sdf_rows(count: int) -> list[Benchmark]:
    titles = {
        "gradient_algebraic": "value, gradients by point and 20 parameters, of the distance of 310 operations",
        "gradient_transcendental": "the same of 316 operations with 59 of sin, exp, log, tanh, pow",
    }
    return [
        Benchmark(
            name,
            f"{title}, {count:,} points",
            Problem(name, count),
            with_primals("livegrad", *PEERS),
            work=count / 1e6,
            unit="Mpoints/s",
        )
        for name, title in titles.items()
    ]


def first_rows() -> list[Benchmark]:
    titles = {
        "first_gradient_algebraic": "first call of the gradient of a new function, 310 operations",
        "first_gradient_transcendental": "first call of the gradient of a new function, 316 operations with 59 calls",
    }
    return [Benchmark(name, title, Problem(name, 6), ("livegrad", *PEERS)) for name, title in titles.items()]


def rows(quick: bool) -> list[Benchmark]:
    return [*gradbench_rows(quick), *sdf_rows(1 << 18 if quick else 1 << 22), *first_rows()]
