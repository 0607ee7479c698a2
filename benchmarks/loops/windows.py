"""Filters of images and signals by shifted slices: windows that are summed, sorted, weighted and scanned."""

from typing import Any

import numpy as np

from benchmarks.loops.program import Array, Program, jnp, lg, prange, random

WINDOW = 9
RADIUS = 2


def image(n: int) -> tuple[Array, ...]:
    return (random((n, n)),)


# --- Sobel's edges ---------------------------------------------------------------------------------------------------


def sobel(sqrt: Any, x: Any) -> Any:
    across = x[:-2, 2:] - x[:-2, :-2] + 2.0 * (x[1:-1, 2:] - x[1:-1, :-2]) + x[2:, 2:] - x[2:, :-2]
    down = x[2:, :-2] - x[:-2, :-2] + 2.0 * (x[2:, 1:-1] - x[:-2, 1:-1]) + x[2:, 2:] - x[:-2, 2:]
    return sqrt(across * across + down * down)


def sobel_numba(x: Array) -> Array:
    n, m = x.shape
    result = np.empty((n - 2, m - 2))
    for i in prange(n - 2):
        for j in range(m - 2):
            a, b, c = x[i, j], x[i, j + 1], x[i, j + 2]
            d, f = x[i + 1, j], x[i + 1, j + 2]
            g, h, k = x[i + 2, j], x[i + 2, j + 1], x[i + 2, j + 2]
            across = c - a + 2.0 * (f - d) + k - g
            down = g - a + 2.0 * (h - b) + k - c
            result[i, j] = np.sqrt(across * across + down * down)
    return result


# --- the median of 3 × 3 points --------------------------------------------------------------------------------------

# Compare and exchange these, in turn: the fifth of nine is the median (Smith, "Implementing median filters", 1996).
EXCHANGES = (
    (1, 2), (4, 5), (7, 8), (0, 1), (3, 4), (6, 7), (1, 2), (4, 5), (7, 8), (0, 3), (5, 8), (4, 7), (3, 6), (1, 4),
    (2, 5), (4, 7), (4, 2), (6, 4), (4, 2),
)  # fmt: skip


def median(minimum: Any, maximum: Any, x: Any) -> Any:
    n, m = x.shape
    near = [x[i : n - 2 + i, j : m - 2 + j] for i in range(3) for j in range(3)]
    for a, b in EXCHANGES:
        near[a], near[b] = minimum(near[a], near[b]), maximum(near[a], near[b])
    return near[4]


def median_numba(x: Array) -> Array:
    n, m = x.shape
    result = np.empty((n - 2, m - 2))
    for i in prange(n - 2):
        near = np.empty(9)
        for j in range(m - 2):
            for k in range(9):
                near[k] = x[i + k // 3, j + k % 3]
            for a, b in EXCHANGES:
                low, high = min(near[a], near[b]), max(near[a], near[b])
                near[a], near[b] = low, high
            result[i, j] = near[4]
    return result


# --- the bilateral filter: weights fall off with distance and with contrast ------------------------------------------


def bilateral(exp: Any, zeros_like: Any, x: Any) -> Any:
    n, m = x.shape
    side = 2 * RADIUS
    centre = x[RADIUS : n - RADIUS, RADIUS : m - RADIUS]
    total, weights = zeros_like(centre), zeros_like(centre)
    for i in range(side + 1):
        for j in range(side + 1):
            near = x[i : n - side + i, j : m - side + j]
            distance = 0.1 * ((i - RADIUS) ** 2 + (j - RADIUS) ** 2)
            weight = exp(-distance - 20.0 * (near - centre) * (near - centre))
            total, weights = total + weight * near, weights + weight
    return total / weights


def bilateral_numba(x: Array) -> Array:
    n, m = x.shape
    side = 2 * RADIUS
    result = np.empty((n - side, m - side))
    for i in prange(n - side):
        for j in range(m - side):
            centre = x[i + RADIUS, j + RADIUS]
            total = weights = 0.0
            for k in range(side + 1):
                for p in range(side + 1):
                    near = x[i + k, j + p]
                    distance = 0.1 * ((k - RADIUS) ** 2 + (p - RADIUS) ** 2)
                    weight = np.exp(-distance - 20.0 * (near - centre) * (near - centre))
                    total += weight * near
                    weights += weight
            result[i, j] = total / weights
    return result


# --- means of boxes by sums of sums ----------------------------------------------------------------------------------


def box_means(lib: Any, cumsum: Any, x: Any) -> Any:
    """The summed-area table, and four corners of each box."""
    n, m = x.shape
    sums = cumsum(cumsum(x, axis=0), axis=1)
    table = lib.concatenate([lib.zeros((1, m + 1)), lib.concatenate([lib.zeros((n, 1)), sums], axis=1)], axis=0)
    k = WINDOW
    return (table[k:, k:] - table[:-k, k:] - table[k:, :-k] + table[:-k, :-k]) / (k * k)


def box_livegrad(x: Any) -> Any:
    n, m = x.shape
    sums = lg.cumulative_sum(lg.cumulative_sum(x, axis=0), axis=1)
    sums = lg.concat([lg.zeros((n, 1), dtype=x.dtype), sums], axis=1)
    table = lg.concat([lg.zeros((1, m + 1), dtype=x.dtype), sums], axis=0)
    k = WINDOW
    return (table[k:, k:] - table[:-k, k:] - table[k:, :-k] + table[:-k, :-k]) / (k * k)


def box_numba(x: Array) -> Array:
    n, m = x.shape
    table = np.zeros((n + 1, m + 1))
    for i in range(n):
        row = 0.0
        for j in range(m):
            row += x[i, j]
            table[i + 1, j + 1] = table[i, j + 1] + row
    k = WINDOW
    result = np.empty((n - k + 1, m - k + 1))
    for i in prange(n - k + 1):
        for j in range(m - k + 1):
            result[i, j] = (table[i + k, j + k] - table[i, j + k] - table[i + k, j] + table[i, j]) / (k * k)
    return result


# --- the maximum of a moving window ----------------------------------------------------------------------------------


def signal(n: int) -> tuple[Array, ...]:
    return (random(n),)


def moving_maximum(maximum: Any, x: Any) -> Any:
    count = x.shape[0] - WINDOW + 1
    result = x[:count]
    for k in range(1, WINDOW):
        result = maximum(result, x[k : k + count])
    return result


def moving_maximum_numba(x: Array) -> Array:
    count = x.shape[0] - WINDOW + 1
    result = np.empty(count)
    for i in prange(count):
        most = x[i]
        for k in range(1, WINDOW):
            most = max(most, x[i + k])
        result[i] = most
    return result


# --- a Gaussian along rows, then along columns -----------------------------------------------------------------------

GAUSSIAN = tuple(float(weight) for weight in np.exp(-0.5 * (np.arange(7) - 3.0) ** 2))


def blurred(x: Any) -> Any:
    n, m = x.shape
    rows: Any = sum(weight * x[:, k : m - 6 + k] for k, weight in enumerate(GAUSSIAN))
    return sum(weight * rows[k : n - 6 + k, :] for k, weight in enumerate(GAUSSIAN))


def blurred_numba(x: Array) -> Array:
    n, m = x.shape
    rows, result = np.empty((n, m - 6)), np.empty((n - 6, m - 6))
    for i in prange(n):
        for j in range(m - 6):
            total = 0.0
            for k in range(7):
                total += GAUSSIAN[k] * x[i, j + k]
            rows[i, j] = total
    for i in prange(n - 6):
        for j in range(m - 6):
            total = 0.0
            for k in range(7):
                total += GAUSSIAN[k] * rows[i + k, j]
            result[i, j] = total
    return result


PROGRAMS = [
    Program(
        "sobel", "Sobel's edges of a {n} × {n} image", (48, 200, 2500), 9,
        image, lambda x: sobel(np.sqrt, x), lambda x: sobel(lg.sqrt, x), sobel_numba, lambda x: sobel(jnp.sqrt, x),
        parallel=True,
    ),
    Program(
        "median_3x3", "the median of 3 × 3 points of a {n} × {n} image", (48, 200, 2500), 9,
        image, lambda x: median(np.minimum, np.maximum, x), lambda x: median(lg.minimum, lg.maximum, x),
        median_numba, lambda x: median(jnp.minimum, jnp.maximum, x), parallel=True,
    ),
    Program(
        "bilateral", "a bilateral filter of 5 × 5 points over a {n} × {n} image", (48, 200, 1500), 9,
        image, lambda x: bilateral(np.exp, np.zeros_like, x), lambda x: bilateral(lg.exp, lg.zeros_like, x),
        bilateral_numba, lambda x: bilateral(jnp.exp, jnp.zeros_like, x), parallel=True,
    ),
    Program(
        "box_means", "means of 9 × 9 boxes of a {n} × {n} image by sums of sums", (48, 200, 2500), 14,
        image, lambda x: box_means(np, np.cumsum, x), box_livegrad, box_numba,
        lambda x: box_means(jnp, jnp.cumsum, x), parallel=True,
    ),
    Program(
        "moving_maximum", "the maximum of 9 neighbours of {n} numbers", (2000, 40_000, 5_000_000), 40,
        signal, lambda x: moving_maximum(np.maximum, x), lambda x: moving_maximum(lg.maximum, x),
        moving_maximum_numba, lambda x: moving_maximum(jnp.maximum, x), parallel=True,
    ),
    Program(
        "gaussian_blur", "a Gaussian of 7 weights along rows and columns of {n} × {n}", (48, 200, 2500), 14,
        image, blurred, blurred, blurred_numba, blurred, parallel=True,
    ),
]  # fmt: skip
