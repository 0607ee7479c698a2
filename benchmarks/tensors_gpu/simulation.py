"""Simulations: gravity, reaction and diffusion, sphere tracing, and random paths."""

from typing import Any

import numpy as np

from benchmarks.tensors_gpu.arrays import seed_inputs
from benchmarks.tensors_gpu.program import Array, Program, Sizes, Tree, normal, one_size, three_sizes, uniform

# --- gravity ---------------------------------------------------------------------------------------------------------

SOFTENING = 0.01


def bodies_inputs(s: Sizes) -> tuple[Array, ...]:
    return normal((s.bodies, 3)), uniform((s.bodies,), 1, 0.5, 1.5)


def energy(xp: Any, positions: Any, masses: Any) -> Any:
    offsets = positions[:, None, :] - positions[None, :, :]
    distances = xp.sqrt(xp.sum(offsets**2, axis=-1) + SOFTENING)
    return -0.5 * xp.sum(masses[:, None] * masses[None, :] / distances)


def nbody_gradient(xp: Any, s: Sizes, positions: Any, masses: Any) -> Tree:
    return xp.grad(lambda x: energy(xp, x, masses))(positions)


TIME_STEP = 1e-4
LEAPS = 10


def nbody_inputs(s: Sizes) -> tuple[Array, ...]:
    return *bodies_inputs(s), normal((s.bodies, 3), 2)


def acceleration(xp: Any, positions: Any, masses: Any) -> Any:
    offsets = positions[None, :, :] - positions[:, None, :]
    squares = xp.sum(offsets**2, axis=-1) + SOFTENING
    return xp.sum(offsets * (masses[None, :] * squares**-1.5)[:, :, None], axis=1)


def nbody(xp: Any, s: Sizes, positions: Any, masses: Any, velocities: Any) -> Tree:
    def leap(_: Any, state: Any) -> Any:
        positions, velocities = state
        velocities = velocities + TIME_STEP * acceleration(xp, positions, masses)
        return positions + TIME_STEP * velocities, velocities

    return xp.fori_loop(0, LEAPS, leap, (positions, velocities))


# --- Gray–Scott ------------------------------------------------------------------------------------------------------

FEED, KILL, SPREAD_U, SPREAD_V = 0.055, 0.062, 0.16, 0.08
REACTIONS = 100


def gray_scott_inputs(s: Sizes) -> tuple[Array, ...]:
    middle = slice(s.side // 2 - s.side // 8, s.side // 2 + s.side // 8)
    u, v = np.ones((s.side, s.side), np.float32), np.zeros((s.side, s.side), np.float32)
    u[middle, middle], v[middle, middle] = 0.5, 0.25
    return u + 0.02 * uniform(u.shape, 1), v + 0.02 * uniform(v.shape, 2)


def laplacian(xp: Any, x: Any) -> Any:
    rows = xp.roll(x, 1, axis=0) + xp.roll(x, -1, axis=0)
    return rows + xp.roll(x, 1, axis=1) + xp.roll(x, -1, axis=1) - 4.0 * x


def gray_scott(xp: Any, s: Sizes, u: Any, v: Any) -> Tree:
    def react(_: Any, state: Any) -> Any:
        u, v = state
        reaction = u * v * v
        return (
            u + SPREAD_U * laplacian(xp, u) - reaction + FEED * (1.0 - u),
            v + SPREAD_V * laplacian(xp, v) + reaction - (FEED + KILL) * v,
        )

    return xp.fori_loop(0, REACTIONS, react, (u, v))


# --- sphere tracing --------------------------------------------------------------------------------------------------

MARCHES = 64
EYE = (0.0, 0.0, -3.0)
LIGHT = (0.48, 0.6, -0.64)


def rays_inputs(s: Sizes) -> tuple[Array, ...]:
    """A direction for each pixel."""
    across = (np.arange(s.side, dtype=np.float32) + 0.5) / s.side * 2.0 - 1.0
    y, x = np.meshgrid(-across, across, indexing="ij")
    rays = np.stack([x, y, np.full_like(x, 2.0)], axis=-1).reshape(-1, 3)
    return rays / np.linalg.norm(rays, axis=1, keepdims=True), np.array(EYE, np.float32), np.array(LIGHT, np.float32)


def length(xp: Any, x: Any) -> Any:
    return xp.sqrt(xp.sum(x * x, axis=-1) + 1e-12)


def scene(xp: Any, p: Any) -> Any:
    """The distance to a sphere blended with a torus, above a floor."""
    sphere = length(xp, p) - 0.6
    around = length(xp, p[..., 0:3:2]) - 0.9
    torus = xp.sqrt(around * around + p[..., 1] ** 2 + 1e-12) - 0.2
    share = xp.clip(0.5 + 2.5 * (torus - sphere), 0.0, 1.0)
    blended = torus + (sphere - torus) * share - 0.2 * share * (1.0 - share)
    return xp.minimum(blended, p[..., 1] + 0.8)


def ray_marcher(xp: Any, s: Sizes, rays: Any, eye: Any, light: Any) -> Tree:
    def march(_: Any, depth: Any) -> Any:
        return xp.minimum(depth + scene(xp, eye + depth[:, None] * rays), 20.0)

    depth = xp.fori_loop(0, MARCHES, march, xp.zeros_like(rays[:, 0]))
    points = eye + depth[:, None] * rays
    normals = xp.grad(lambda p: xp.sum(scene(xp, p)))(points)
    return xp.where(depth < 20.0, xp.clip(xp.sum(normals * light, axis=-1), 0.0, 1.0), 0.0)


# --- random paths ----------------------------------------------------------------------------------------------------

RATE, VOLATILITY, STRIKE = 0.03, 0.2, 1.0
DISCOUNT = float(np.exp(-RATE))


def monte_carlo(xp: Any, s: Sizes, seed: Any) -> Tree:
    """The price of an Asian option, and the deviation of what its paths pay."""
    step = 1.0 / s.steps
    moves = (RATE - 0.5 * VOLATILITY**2) * step + VOLATILITY * step**0.5 * xp.normal(seed, (s.paths, s.steps))
    prices = xp.exp(xp.cumulative_sum(moves, axis=1))
    payoffs = DISCOUNT * xp.maximum(xp.mean(prices, axis=1) - STRIKE, 0.0)
    return xp.mean(payoffs), xp.std(payoffs)


PROGRAMS = [
    Program("nbody_gradient", "gradient of the energy of {bodies} bodies", one_size(bodies=4096), Sizes(bodies=20),
            bodies_inputs, nbody_gradient),
]  # fmt: skip
MODELS = [
    Program("ray_marcher", f"sphere tracing of {{side}} × {{side}} pixels, {MARCHES} steps, shaded by the gradient",
            three_sizes(*(Sizes(side=side) for side in (256, 1024, 2048))), Sizes(side=12), rays_inputs, ray_marcher,
            differing=0.02),
    Program("gray_scott", f"{REACTIONS} steps of Gray–Scott, {{side}} × {{side}}",
            three_sizes(*(Sizes(side=side) for side in (256, 1024, 4096))), Sizes(side=48), gray_scott_inputs,
            gray_scott),
    Program("nbody", f"{LEAPS} steps of gravity between {{bodies}} bodies",
            three_sizes(*(Sizes(bodies=bodies) for bodies in (1024, 4096, 16384))), Sizes(bodies=20), nbody_inputs,
            nbody),
    Program("monte_carlo", "an Asian option by {paths} random paths of {steps} steps",
            three_sizes(*(Sizes(paths=paths, steps=64) for paths in (100_000, 1_000_000, 4_000_000))),
            Sizes(paths=200_000, steps=4), seed_inputs, monte_carlo, tolerance=3e-2),
]  # fmt: skip
