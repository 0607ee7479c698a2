"""Random walks and light paths, from numbers that each library computes alike."""

from typing import Any

import numpy as np

from benchmarks.loops.program import Array, Program, jnp, lax, lg, prange, random

# --- Monte Carlo: a price that walks at random; the mean of the highest ----------------------------------------------

WALK = 64


def seeds(n: int) -> tuple[Array, ...]:
    return (np.random.default_rng(0).integers(1, 2**32, n).astype(np.uint32),)


def scramble(x: Any) -> Any:
    """The next of Marsaglia's xorshift numbers of 32 bits."""
    x = x ^ (x << 13)
    x = x ^ (x >> 17)
    return x ^ (x << 5)


def walk_step(xp: Any, seed: Any, price: Any, highest: Any, uniform: Any) -> Any:
    price = price * (1.0 + 0.02 * (uniform - 0.5))
    return seed, price, xp.maximum(highest, price)


def monte_carlo_numpy(seed: Array) -> Array:
    price, highest = np.ones(len(seed)), np.ones(len(seed))
    for _ in range(WALK):
        seed = scramble(seed)
        seed, price, highest = walk_step(np, seed, price, highest, seed.astype(np.float64) / 2.0**32)
    return highest


def monte_carlo_livegrad(seed: Any) -> Any:
    def step(_: Any, state: Any) -> Any:
        seed, price, highest = state
        seed = scramble(seed)
        return walk_step(lg, seed, price, highest, lg.astype(seed, lg.float64) / 2.0**32)

    ones = lg.ones(seed.shape, dtype=lg.float64)
    return lg.fori_loop(0, WALK, step, (seed, ones, ones))[2]


def monte_carlo_jax(seed: Any) -> Any:
    def step(_: Any, state: Any) -> Any:
        seed, price, highest = state
        seed = scramble(seed)
        return walk_step(jnp, seed, price, highest, seed.astype(jnp.float64) / 2.0**32)

    ones = jnp.ones(seed.shape)
    return lax.fori_loop(0, WALK, step, (seed, ones, ones))[2]


def monte_carlo_numba(seed: Array) -> Array:
    result = np.empty(seed.shape[0])
    for i in prange(seed.shape[0]):
        s = seed[i]
        price, highest = 1.0, 1.0
        for _ in range(WALK):
            s = np.uint32(s ^ (s << np.uint32(13)))  # Numba shifts in 64 bits
            s = np.uint32(s ^ (s >> np.uint32(17)))
            s = np.uint32(s ^ (s << np.uint32(5)))
            price *= 1.0 + 0.02 * (np.float64(s) / 4294967296.0 - 0.5)
            highest = max(highest, price)
        result[i] = highest
    return result


# --- paths of light between spheres ----------------------------------------------------------------------------------

BOUNCES = 4


def scene(n: int) -> tuple[Array, ...]:
    """Spheres (centre, radius, brightness) and the direction of the ray through each pixel."""
    spheres = np.concatenate([4.0 * random((8, 3)) - [2.0, 2.0, -4.0], 0.5 + random((8, 1), 1), random((8, 1), 2)], 1)
    y, x = np.mgrid[:n, :n] / n - 0.5
    rays = np.stack([x.ravel(), y.ravel(), np.ones(n * n)])
    return spheres, rays / np.sqrt(np.sum(rays * rays, axis=0))


def bounce(xp: Any, loop: Any, spheres: Any, state: Any) -> Any:
    """Each ray goes to the nearest sphere and is reflected; one that meets none sees the sky."""
    origin, ray, light, throughput = state

    def nearer(k: Any, closest: Any) -> Any:
        nearest, centre, bright = closest
        offset = origin - spheres[k, :3][:, None]
        half = xp.sum(offset * ray, axis=0)
        root = half * half - xp.sum(offset * offset, axis=0) + spheres[k, 3] ** 2
        distance = -half - xp.sqrt(xp.maximum(root, 0.0))
        is_hit = (root > 0.0) & (distance > 1e-4) & (distance < nearest)
        centre = xp.where(is_hit, spheres[k, :3][:, None], centre)
        return xp.where(is_hit, distance, nearest), centre, xp.where(is_hit, spheres[k, 4], bright)

    far, centre, bright = loop(0, 8, nearer, (0.0 * light + 1e9, 0.0 * origin, 0.0 * light))
    is_hit = far < 1e8
    light = light + xp.where(is_hit, 0.0, throughput * (0.5 + 0.5 * ray[1]))
    throughput = xp.where(is_hit, throughput * bright, 0.0)
    hit = origin + xp.where(is_hit, far, 0.0) * ray
    normal = hit - centre
    normal = normal / xp.sqrt(xp.sum(normal * normal, axis=0) + 1e-12)
    ray = xp.where(is_hit, ray - 2.0 * xp.sum(ray * normal, axis=0) * normal, ray)
    return hit, ray, light, throughput


def python_loop(lower: int, upper: int, body: Any, state: Any) -> Any:
    for k in range(lower, upper):
        state = body(k, state)
    return state


def path_tracing(xp: Any, loop: Any, spheres: Any, rays: Any) -> Any:
    light = 0.0 * rays[0]
    state = (0.0 * rays, rays, light, light + 1.0)
    return loop(0, BOUNCES, lambda _, state: bounce(xp, loop, spheres, state), state)[2]


def path_tracing_numpy(spheres: Array, rays: Array) -> Array:
    return path_tracing(np, python_loop, spheres, rays)


def path_tracing_livegrad(spheres: Any, rays: Any) -> Any:
    return path_tracing(lg, lg.fori_loop, spheres, rays)


def path_tracing_jax(spheres: Any, rays: Any) -> Any:
    return path_tracing(jnp, lax.fori_loop, spheres, rays)


def path_tracing_numba(spheres: Array, rays: Array) -> Array:
    result = np.zeros(rays.shape[1])
    for i in prange(rays.shape[1]):
        ox, oy, oz = 0.0, 0.0, 0.0
        rx, ry, rz = rays[0, i], rays[1, i], rays[2, i]
        throughput = 1.0
        for _ in range(BOUNCES):
            nearest, hit = 1e9, -1
            for k in range(8):
                x, y, z = ox - spheres[k, 0], oy - spheres[k, 1], oz - spheres[k, 2]
                half = x * rx + y * ry + z * rz
                root = half * half - (x * x + y * y + z * z) + spheres[k, 3] ** 2
                if root > 0.0:
                    distance = -half - np.sqrt(root)
                    if distance > 1e-4 and distance < nearest:
                        nearest, hit = distance, k
            if hit < 0:
                result[i] += throughput * (0.5 + 0.5 * ry)
                break
            throughput *= spheres[hit, 4]
            ox, oy, oz = ox + nearest * rx, oy + nearest * ry, oz + nearest * rz
            x, y, z = ox - spheres[hit, 0], oy - spheres[hit, 1], oz - spheres[hit, 2]
            scale = 1.0 / np.sqrt(x * x + y * y + z * z + 1e-12)
            x, y, z = x * scale, y * scale, z * scale
            along = 2.0 * (rx * x + ry * y + rz * z)
            rx, ry, rz = rx - along * x, ry - along * y, rz - along * z
    return result


PROGRAMS = [
    Program(
        "monte_carlo", "{n} random walks of 64 steps", (1000, 20_000, 2_000_000), 9,
        seeds, monte_carlo_numpy, monte_carlo_livegrad, monte_carlo_numba, monte_carlo_jax, parallel=True,
    ),
    Program(
        "path_tracing", "paths of light between 8 spheres, {n} × {n} pixels", (24, 90, 800), 9,
        scene, path_tracing_numpy, path_tracing_livegrad, path_tracing_numba, path_tracing_jax,
        parallel=True, differing=1e-3, tolerance=1e-6,
    ),
]  # fmt: skip
