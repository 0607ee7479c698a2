"""Linear algebra: a Cholesky factor, regression with a Gaussian process, and many small systems."""

from typing import Any

import numpy as np

from benchmarks.tensors_gpu.program import Array, Program, Sizes, Tree, normal, one_size, three_sizes


def cholesky_inputs(s: Sizes) -> tuple[Array, ...]:
    x = normal((s.side, s.side))
    return (x @ x.T / np.float32(s.side) + np.eye(s.side, dtype=np.float32),)


def cholesky(xp: Any, s: Sizes, x: Any) -> Tree:
    return xp.linalg.cholesky(x)


def process_inputs(s: Sizes) -> tuple[Tree, ...]:
    """Logarithms of the kernel's scale, of its variance and of the noise; places and observations."""
    x = normal((s.points, 8))
    parameters = {"scale": np.float32(0.5), "variance": np.float32(0.0), "noise": np.float32(-1.0)}
    return {name: np.asarray(value) for name, value in parameters.items()}, x, np.sin(x[:, 0]) + 0.1 * x[:, 1]


def gaussian_process(xp: Any, s: Sizes, parameters: Tree, x: Any, y: Any) -> Tree:
    def loss(w: Tree) -> Any:
        scaled = x / xp.exp(w["scale"])
        squares = xp.sum(scaled**2, axis=1)
        distances = xp.maximum(squares[:, None] + squares[None, :] - 2.0 * (scaled @ scaled.T), 0.0)
        noise = xp.exp(w["noise"]) * xp.eye(s.points, dtype=x.dtype)
        covariance = xp.exp(w["variance"] - 0.5 * distances) + noise
        factor = xp.linalg.cholesky(covariance)
        weights = xp.solve_positive(covariance, factor, y[:, None])[:, 0]
        return 0.5 * xp.sum(y * weights) + xp.sum(xp.log(xp.linalg.diagonal(factor)))

    return xp.value_and_grad(loss)(parameters)


def systems_inputs(s: Sizes) -> tuple[Array, ...]:
    identity = 3.0 * np.eye(6, dtype=np.float32)
    return normal((s.systems, 6, 6), 0, 0.5) + identity, normal((s.systems, 6, 1), 1)


def small_solves(xp: Any, s: Sizes, matrices: Any, right: Any) -> Tree:
    return xp.linalg.solve(matrices, right)


PROGRAMS = [
    Program("cholesky", "Cholesky factor of {side} × {side}", one_size(side=1024), Sizes(side=12), cholesky_inputs,
            cholesky, one_library=True),
]  # fmt: skip
MODELS = [
    Program("gaussian_process", "likelihood of a Gaussian process with gradients, {points} points",
            three_sizes(*(Sizes(points=points) for points in (512, 2048, 4096))), Sizes(points=24), process_inputs,
            gaussian_process, tolerance=1e-2),
    Program("small_solves", "{systems} systems of 6 × 6",
            three_sizes(*(Sizes(systems=count) for count in (10_000, 100_000, 1_000_000))), Sizes(systems=20),
            systems_inputs, small_solves, tolerance=5e-3),
]  # fmt: skip
