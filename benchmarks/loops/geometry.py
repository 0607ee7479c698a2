"""Points, rays and images: simulations and statistics in space."""

from typing import Any

import numpy as np

from benchmarks.loops.program import Array, Program, jnp, lax, lg, normal, prange, random

# --- N bodies --------------------------------------------------------------------------------------------------------

BODY_STEPS = 5


def bodies(n: int) -> tuple[Array, ...]:
    return normal((n, 3)), normal((n, 3), 1), random(n, 2)


def leap(xp: Any, x: Any, v: Any, masses: Any) -> Any:
    """One step: every body pulls every other."""
    offset = x[None] - x[:, None]
    square = xp.sum(offset * offset, axis=-1) + 0.01
    force = masses[None] / (square * xp.sqrt(square))
    v = v + 0.001 * xp.sum(offset * force[..., None], axis=1)
    return x + 0.001 * v, v


def nbody_numpy(x: Array, v: Array, masses: Array) -> Array:
    for _ in range(BODY_STEPS):
        x, v = leap(np, x, v, masses)
    return x


def nbody_livegrad(x: Any, v: Any, masses: Any) -> Any:
    return lg.fori_loop(0, BODY_STEPS, lambda _, state: leap(lg, state[0], state[1], masses), (x, v))[0]


def nbody_jax(x: Any, v: Any, masses: Any) -> Any:
    return lax.fori_loop(0, BODY_STEPS, lambda _, state: leap(jnp, state[0], state[1], masses), (x, v))[0]


def nbody_numba(x: Array, v: Array, masses: Array) -> Array:
    x, v = x.copy(), v.copy()
    n = x.shape[0]
    for _ in range(BODY_STEPS):
        for i in prange(n):
            ax, ay, az = 0.0, 0.0, 0.0
            for j in range(n):
                dx, dy, dz = x[j, 0] - x[i, 0], x[j, 1] - x[i, 1], x[j, 2] - x[i, 2]
                square = dx * dx + dy * dy + dz * dz + 0.01
                force = masses[j] / (square * np.sqrt(square))
                ax, ay, az = ax + dx * force, ay + dy * force, az + dz * force
            v[i, 0] += 0.001 * ax
            v[i, 1] += 0.001 * ay
            v[i, 2] += 0.001 * az
        for i in range(n):
            for c in range(3):
                x[i, c] += 0.001 * v[i, c]
    return x


# --- k-means ---------------------------------------------------------------------------------------------------------

CENTRES = 16
KMEANS_STEPS = 10


def kmeans_inputs(n: int) -> tuple[Array, ...]:
    return normal((n, 4)), normal((CENTRES, 4), 1)


def move_centres(xp: Any, labels: Any, points: Any, centres: Any) -> Any:
    square = xp.sum((points[:, None] - centres) ** 2, axis=-1)
    belongs = xp.where(xp.argmin(square, axis=1)[:, None] == labels, 1.0, 0.0 * square)
    return (belongs.T @ points + 1e-9 * centres) / (xp.sum(belongs, axis=0)[:, None] + 1e-9)


def kmeans_numpy(points: Array, centres: Array) -> Array:
    for _ in range(KMEANS_STEPS):
        centres = move_centres(np, np.arange(CENTRES), points, centres)
    return centres


def kmeans_livegrad(points: Any, centres: Any) -> Any:
    labels = lg.arange(CENTRES)
    return lg.fori_loop(0, KMEANS_STEPS, lambda _, centres: move_centres(lg, labels, points, centres), centres)


def kmeans_jax(points: Any, centres: Any) -> Any:
    labels = jnp.arange(CENTRES)
    return lax.fori_loop(0, KMEANS_STEPS, lambda _, centres: move_centres(jnp, labels, points, centres), centres)


def kmeans_numba(points: Array, centres: Array) -> Array:
    centres = centres.copy()
    label = np.empty(points.shape[0], np.int64)
    for _ in range(KMEANS_STEPS):
        for i in prange(points.shape[0]):
            best = np.inf
            for c in range(CENTRES):
                square = 0.0
                for d in range(4):
                    square += (points[i, d] - centres[c, d]) ** 2
                if square < best:
                    best = square
                    label[i] = c
        totals, counts = 1e-9 * centres, np.full(CENTRES, 1e-9)
        for i in range(points.shape[0]):
            counts[label[i]] += 1.0
            for d in range(4):
                totals[label[i], d] += points[i, d]
        for c in range(CENTRES):
            centres[c] = totals[c] / counts[c]
    return centres


# --- an image, rotated with bilinear interpolation -------------------------------------------------------------------


def bilinear_inputs(n: int) -> tuple[Array, ...]:
    """The image, and where each pixel of the result lies in it."""
    y, x = np.mgrid[:n, :n] - 0.5 * (n - 1)
    rows, columns = 0.8 * y + 0.55 * x + 0.5 * (n - 1), 0.8 * x - 0.55 * y + 0.5 * (n - 1)
    return random((n, n)), np.clip(rows, 0.0, n - 1.001), np.clip(columns, 0.0, n - 1.001)


def interpolate(image: Any, rows: Any, columns: Any, i: Any, j: Any) -> Any:
    u, v = rows - i, columns - j
    top = (1.0 - v) * image[i, j] + v * image[i, j + 1]
    return (1.0 - u) * top + u * ((1.0 - v) * image[i + 1, j] + v * image[i + 1, j + 1])


def bilinear_numpy(image: Array, rows: Array, columns: Array) -> Array:
    return interpolate(image, rows, columns, rows.astype(np.int64), columns.astype(np.int64))


def bilinear_livegrad(image: Any, rows: Any, columns: Any) -> Any:
    return interpolate(image, rows, columns, lg.astype(rows, lg.int64), lg.astype(columns, lg.int64))


def bilinear_jax(image: Any, rows: Any, columns: Any) -> Any:
    return interpolate(image, rows, columns, rows.astype(jnp.int64), columns.astype(jnp.int64))


def bilinear_numba(image: Array, rows: Array, columns: Array) -> Array:
    result = np.empty_like(image)
    n, m = image.shape
    for p in prange(n):
        for q in range(m):
            i, j = int(rows[p, q]), int(columns[p, q])
            u, v = rows[p, q] - i, columns[p, q] - j
            top = (1.0 - v) * image[i, j] + v * image[i, j + 1]
            result[p, q] = (1.0 - u) * top + u * ((1.0 - v) * image[i + 1, j] + v * image[i + 1, j + 1])
    return result


# --- the correlation of every two columns ----------------------------------------------------------------------------


def correlation_inputs(n: int) -> tuple[Array, ...]:
    """Four observations for each of the variables."""
    return (normal((4 * n, n)),)


def correlation_numpy(data: Array) -> Array:
    data = data - data.mean(axis=0)
    data /= np.sqrt(np.sum(data * data, axis=0))
    result = np.eye(data.shape[1])
    for i in range(data.shape[1] - 1):
        result[i, i + 1 :] = result[i + 1 :, i] = data[:, i] @ data[:, i + 1 :]
    return result


def correlation_livegrad(data: Any) -> Any:
    data = data - lg.mean(data, axis=0)
    data = data / lg.sqrt(lg.sum(data * data, axis=0))

    def row(i: Any, result: Any) -> Any:
        result[i] = data[:, i] @ data
        return result

    n = data.shape[1]
    return lg.fori_loop(0, n, row, lg.zeros((n, n), dtype=data.dtype))


def correlation_jax(data: Any) -> Any:
    data = data - jnp.mean(data, axis=0)
    data = data / jnp.sqrt(jnp.sum(data * data, axis=0))
    n = data.shape[1]
    return lax.fori_loop(0, n, lambda i, result: result.at[i].set(data[:, i] @ data), jnp.zeros((n, n)))


def correlation_numba(data: Array) -> Array:
    rows, n = data.shape
    columns = data.T.copy()  # each contiguous
    for i in prange(n):
        columns[i] -= np.mean(columns[i])
        columns[i] /= np.sqrt(np.sum(columns[i] * columns[i]))
    result = np.eye(n)
    for i in prange(n):
        for j in range(i + 1, n):
            total = 0.0
            for k in range(rows):
                total += columns[i, k] * columns[j, k]
            result[i, j] = total
            result[j, i] = total
    return result


PROGRAMS = [
    Program(
        "nbody", "{n} bodies, 5 steps", (64, 160, 1500), 7,
        bodies, nbody_numpy, nbody_livegrad, nbody_numba, nbody_jax, parallel=True,
    ),
    Program(
        "kmeans", "10 steps of k-means, {n} points, 16 centres", (200, 2000, 100_000), 40,
        kmeans_inputs, kmeans_numpy, kmeans_livegrad, kmeans_numba, kmeans_jax, parallel=True,
    ),
    Program(
        "bilinear", "a {n} × {n} image rotated, bilinear", (36, 120, 1500), 9,
        bilinear_inputs, bilinear_numpy, bilinear_livegrad, bilinear_numba, bilinear_jax, parallel=True,
    ),
    Program(
        "correlation", "the correlations of {n} variables", (24, 100, 600), 7,
        correlation_inputs, correlation_numpy, correlation_livegrad, correlation_numba, correlation_jax,
        parallel=True,
    ),
]  # fmt: skip
