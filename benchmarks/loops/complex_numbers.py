"""Loops over complex numbers: fractals and an integral along a contour."""

from typing import Any

import numpy as np

from benchmarks.loops.program import Array, Program, jnp, lax, lg, prange, random

STEPS = 50


def plane(n: int) -> tuple[Array, ...]:
    """A square of the complex plane around the Mandelbrot set."""
    x, y = np.linspace(-2.0, 0.6, n), np.linspace(-1.2, 1.2, n)
    return (x + 1j * y[:, None],)


# --- Mandelbrot ------------------------------------------------------------------------------------------------------


def mandelbrot_numpy(c: Array) -> Array:
    z, counts = np.zeros_like(c), np.zeros(c.shape, np.int32)
    for _ in range(STEPS):
        inside = np.real(z) ** 2 + np.imag(z) ** 2 <= 4.0
        z = np.where(inside, z * z + c, z)
        counts += inside
    return counts


def mandelbrot_livegrad(c: Any) -> Any:
    def step(_: Any, state: Any) -> Any:
        z, counts = state
        inside = lg.real(z) ** 2 + lg.imag(z) ** 2 <= 4.0
        return lg.where(inside, z * z + c, z), counts + lg.astype(inside, lg.int32)

    return lg.fori_loop(0, STEPS, step, (lg.zeros_like(c), lg.zeros(c.shape, dtype=lg.int32)))[1]


def mandelbrot_jax(c: Any) -> Any:
    def step(_: Any, state: Any) -> Any:
        z, counts = state
        inside = z.real**2 + z.imag**2 <= 4.0
        return jnp.where(inside, z * z + c, z), counts + inside

    return lax.fori_loop(0, STEPS, step, (jnp.zeros_like(c), jnp.zeros(c.shape, jnp.int32)))[1]


def mandelbrot_numba(c: Array) -> Array:
    counts = np.zeros(c.shape, np.int32)
    n, m = c.shape
    for i in prange(n):
        for j in range(m):
            z = 0.0 + 0.0j
            count = 0
            while count < STEPS and z.real**2 + z.imag**2 <= 4.0:
                z = z * z + c[i, j]
                count += 1
            counts[i, j] = count
    return counts


# --- Julia: z ← z² + c, always as many times -------------------------------------------------------------------------

JULIA_STEPS = 20
JULIA = -0.1 + 0.2j


def disc(n: int) -> tuple[Array, ...]:
    """Points that stay bounded."""
    return (0.5 * random((n, n)) * np.exp(2j * np.pi * random((n, n), 1)),)


def julia_numpy(z: Array) -> tuple[Array, Array]:
    for _ in range(JULIA_STEPS):
        z = z * z + JULIA
    return np.real(z), np.imag(z)


def julia_livegrad(z: Any) -> Any:
    z = lg.fori_loop(0, JULIA_STEPS, lambda _, z: z * z + JULIA, z)
    return lg.real(z), lg.imag(z)


def julia_jax(z: Any) -> Any:
    z = lax.fori_loop(0, JULIA_STEPS, lambda _, z: z * z + JULIA, z)
    return z.real, z.imag


def julia_numba(z: Array) -> tuple[Array, Array]:
    real, imaginary = np.empty(z.shape), np.empty(z.shape)
    n, m = z.shape
    for i in prange(n):
        for j in range(m):
            w = z[i, j]
            for _ in range(JULIA_STEPS):
                w = w * w + JULIA
            real[i, j], imaginary[i, j] = w.real, w.imag
    return real, imaginary


# --- Cauchy's integral of exp(z) / (z - a) around the unit circle, for many points a ---------------------------------

NODES = 64


def poles(n: int) -> tuple[Array, ...]:
    angles = 2.0 * np.pi * np.arange(NODES) / NODES
    return np.exp(1j * angles), 0.7 * random(n) * np.exp(2j * np.pi * random(n, 1))


def contour_numpy(circle: Array, a: Array) -> tuple[Array, Array]:
    total = np.zeros_like(a)
    for z in circle:
        total = total + z * np.exp(z) / (z - a)
    total = total / NODES
    return total.real, total.imag


def contour_livegrad(circle: Any, a: Any) -> Any:
    def add(k: Any, total: Any) -> Any:
        z = circle[k]
        return total + z * lg.exp(z) / (z - a)

    total = lg.fori_loop(0, NODES, add, lg.zeros_like(a)) / NODES
    return lg.real(total), lg.imag(total)


def contour_jax(circle: Any, a: Any) -> Any:
    def add(total: Any, z: Any) -> Any:
        return total + z * jnp.exp(z) / (z - a), None

    total = lax.scan(add, jnp.zeros_like(a), circle)[0] / NODES
    return total.real, total.imag


def contour_numba(circle: Array, a: Array) -> tuple[Array, Array]:
    real, imaginary = np.empty(a.shape), np.empty(a.shape)
    weights = circle * np.exp(circle)
    for i in prange(a.shape[0]):
        total = 0.0 + 0.0j
        for k in range(NODES):
            total += weights[k] / (circle[k] - a[i])
        real[i], imaginary[i] = total.real / NODES, total.imag / NODES
    return real, imaginary


PROGRAMS = [
    Program(
        "mandelbrot", "Mandelbrot, {n} × {n} points, 50 steps", (32, 120, 1500), 9,
        plane, mandelbrot_numpy, mandelbrot_livegrad, mandelbrot_numba, mandelbrot_jax, parallel=True, differing=1e-3,
    ),
    Program(
        "julia", "z² + c, 20 times, of {n} × {n} complex numbers", (32, 120, 1500), 9,
        disc, julia_numpy, julia_livegrad, julia_numba, julia_jax, parallel=True,
    ),
    Program(
        "contour_integral", "Cauchy's integral for {n} points, 64 nodes", (500, 8000, 500_000), 9,
        poles, contour_numpy, contour_livegrad, contour_numba, contour_jax, parallel=True,
    ),
]  # fmt: skip
