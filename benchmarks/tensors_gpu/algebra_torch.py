"""PyTorch's ports of `algebra`."""
# pyright: reportMissingImports=false

from collections.abc import Callable
from typing import Any

import torch

from benchmarks.tensors_gpu.program import Run, Sizes, Tree
from benchmarks.tensors_gpu.torch_idioms import compiled, value_and_gradient


def cholesky(s: Sizes, x: Any) -> Run:
    return compiled(torch.linalg.cholesky, x)


def gaussian_process(s: Sizes, parameters: Tree, x: Any, y: Any) -> Run:
    points = s.points

    def loss(w: Tree, x: Any, y: Any) -> Any:
        scaled = x / torch.exp(w["scale"])
        squares = (scaled**2).sum(dim=1)
        distances = (squares[:, None] + squares[None, :] - 2.0 * (scaled @ scaled.T)).clamp(min=0.0)
        noise = torch.exp(w["noise"]) * torch.eye(points, device=x.device)
        factor = torch.linalg.cholesky(torch.exp(w["variance"] - 0.5 * distances) + noise)
        weights = torch.cholesky_solve(y[:, None], factor)[:, 0]
        return 0.5 * (y * weights).sum() + torch.log(torch.diagonal(factor)).sum()

    return value_and_gradient(loss, parameters, x, y)


def small_solves(s: Sizes, matrices: Any, right: Any) -> Run:
    return compiled(torch.linalg.solve, matrices, right)


PORTS: dict[str, Callable[..., Run]] = {
    "cholesky": cholesky,
    "gaussian_process": gaussian_process,
    "small_solves": small_solves,
}
