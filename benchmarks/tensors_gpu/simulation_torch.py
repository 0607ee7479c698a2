"""PyTorch's ports of `simulation`. Loops are Python's, over compiled steps: unrolled, they take minutes to compile."""
# pyright: reportMissingImports=false

from collections.abc import Callable
from typing import Any

import torch

from benchmarks.tensors_gpu.program import Run, Sizes, Tree
from benchmarks.tensors_gpu.simulation import (
    DISCOUNT,
    FEED,
    KILL,
    LEAPS,
    MARCHES,
    RATE,
    REACTIONS,
    SOFTENING,
    SPREAD_U,
    SPREAD_V,
    STRIKE,
    TIME_STEP,
    VOLATILITY,
)
from benchmarks.tensors_gpu.torch_idioms import compiled, compiled_gradient


def energy(positions: Any, masses: Any) -> Any:
    offsets = positions[:, None, :] - positions[None, :, :]
    distances = torch.sqrt((offsets**2).sum(dim=-1) + SOFTENING)
    return -0.5 * (masses[:, None] * masses[None, :] / distances).sum()


def nbody_gradient(s: Sizes, positions: Any, masses: Any) -> Run:
    run = compiled_gradient(energy, (0,), positions, masses)
    return lambda: run()[0]


def nbody(s: Sizes, positions: Any, masses: Any, velocities: Any) -> Run:
    def leap(positions: Any, velocities: Any, masses: Any) -> Tree:
        offsets = positions[None, :, :] - positions[:, None, :]
        squares = (offsets**2).sum(dim=-1) + SOFTENING
        velocities = velocities + TIME_STEP * (offsets * (masses[None, :] * squares**-1.5)[:, :, None]).sum(dim=1)
        return positions + TIME_STEP * velocities, velocities

    fast = torch.compile(leap)

    def run() -> Tree:
        state = positions, velocities
        for _ in range(LEAPS):
            state = fast(*state, masses)
        return state

    return run


def laplacian(x: Any) -> Any:
    rows = torch.roll(x, 1, 0) + torch.roll(x, -1, 0)
    return rows + torch.roll(x, 1, 1) + torch.roll(x, -1, 1) - 4.0 * x


def gray_scott(s: Sizes, u: Any, v: Any) -> Run:
    chunk = 5  # steps in one graph

    def react(u: Any, v: Any) -> Tree:
        for _ in range(chunk):
            reaction = u * v * v
            u, v = (
                u + SPREAD_U * laplacian(u) - reaction + FEED * (1.0 - u),
                v + SPREAD_V * laplacian(v) + reaction - (FEED + KILL) * v,
            )
        return u, v

    fast = torch.compile(react)

    def run() -> Tree:
        state = u, v
        for _ in range(REACTIONS // chunk):
            state = fast(*state)
        return state

    return run


def length(x: Any) -> Any:
    return torch.sqrt((x * x).sum(dim=-1) + 1e-12)


def scene(p: Any) -> Any:
    sphere = length(p) - 0.6
    around = length(p[..., 0:3:2]) - 0.9
    torus = torch.sqrt(around * around + p[..., 1] ** 2 + 1e-12) - 0.2
    share = torch.clamp(0.5 + 2.5 * (torus - sphere), 0.0, 1.0)
    blended = torus + (sphere - torus) * share - 0.2 * share * (1.0 - share)
    return torch.minimum(blended, p[..., 1] + 0.8)


def ray_marcher(s: Sizes, rays: Any, eye: Any, light: Any) -> Run:
    chunk = 8  # steps in one kernel

    def march(depth: Any, rays: Any, eye: Any) -> Any:
        for _ in range(chunk):
            depth = torch.clamp(depth + scene(eye + depth[:, None] * rays), max=20.0)
        return depth

    def shade(depth: Any, rays: Any, eye: Any, light: Any) -> Any:
        normals = torch.func.grad(lambda p: scene(p).sum())(eye + depth[:, None] * rays)
        return torch.where(depth < 20.0, torch.clamp((normals * light).sum(dim=-1), 0.0, 1.0), 0.0)

    fast_march, fast_shade = torch.compile(march), torch.compile(shade)

    def run() -> Tree:
        depth = torch.zeros_like(rays[:, 0])
        for _ in range(MARCHES // chunk):
            depth = fast_march(depth, rays, eye)
        return fast_shade(depth, rays, eye, light)

    return run


def monte_carlo(s: Sizes, seed: Any) -> Run:
    paths, steps, device = s.paths, s.steps, seed.device
    drift, spread = (RATE - 0.5 * VOLATILITY**2) / steps, VOLATILITY * steps**-0.5

    def price() -> Tree:
        moves = drift + spread * torch.randn(paths, steps, device=device)
        payoffs = DISCOUNT * torch.clamp(torch.exp(torch.cumsum(moves, dim=1)).mean(dim=1) - STRIKE, min=0.0)
        return payoffs.mean(), payoffs.std(correction=0)

    return compiled(price)


PORTS: dict[str, Callable[..., Run]] = {
    "nbody_gradient": nbody_gradient,
    "nbody": nbody,
    "gray_scott": gray_scott,
    "ray_marcher": ray_marcher,
    "monte_carlo": monte_carlo,
}
