"""Sweeps over grids, where each point takes its neighbours by slices."""

from typing import Any

import numpy as np

from benchmarks.loops.program import Array, Program, jnp, lax, lg, prange, random

SWEEPS = 20


def square_grid(n: int) -> tuple[Array, ...]:
    return (random((n, n)),)


# --- Jacobi in two dimensions ----------------------------------------------------------------------------------------


def jacobi_numpy(u: Array) -> Array:
    u = u.copy()
    for _ in range(SWEEPS):
        u[1:-1, 1:-1] = 0.25 * (u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2])
    return u


def jacobi_livegrad(u: Any) -> Any:
    def sweep(_: Any, u: Any) -> Any:
        u[1:-1, 1:-1] = 0.25 * (u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2])
        return u

    return lg.fori_loop(0, SWEEPS, sweep, u)


def jacobi_jax(u: Any) -> Any:
    def sweep(_: Any, u: Any) -> Any:
        return u.at[1:-1, 1:-1].set(0.25 * (u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2]))

    return lax.fori_loop(0, SWEEPS, sweep, u)


def jacobi_numba(u: Array) -> Array:
    u, v = u.copy(), u.copy()
    n, m = u.shape
    for _ in range(SWEEPS):
        for i in prange(1, n - 1):
            for j in range(1, m - 1):
                v[i, j] = 0.25 * (u[i + 1, j] + u[i - 1, j] + u[i, j + 1] + u[i, j - 1])
        u, v = v, u
    return u


# --- heat in three dimensions ----------------------------------------------------------------------------------------


def cubic_grid(n: int) -> tuple[Array, ...]:
    return (random((n, n, n)),)


def heat_numpy(u: Array) -> Array:
    u = u.copy()
    for _ in range(SWEEPS):
        c = u[1:-1, 1:-1, 1:-1]
        u[1:-1, 1:-1, 1:-1] = (
            c
            + 0.1 * (u[2:, 1:-1, 1:-1] - 2.0 * c + u[:-2, 1:-1, 1:-1])
            + 0.1 * (u[1:-1, 2:, 1:-1] - 2.0 * c + u[1:-1, :-2, 1:-1])
            + 0.1 * (u[1:-1, 1:-1, 2:] - 2.0 * c + u[1:-1, 1:-1, :-2])
        )
    return u


def heat_livegrad(u: Any) -> Any:
    def step(_: Any, u: Any) -> Any:
        c = u[1:-1, 1:-1, 1:-1]
        u[1:-1, 1:-1, 1:-1] = (
            c
            + 0.1 * (u[2:, 1:-1, 1:-1] - 2.0 * c + u[:-2, 1:-1, 1:-1])
            + 0.1 * (u[1:-1, 2:, 1:-1] - 2.0 * c + u[1:-1, :-2, 1:-1])
            + 0.1 * (u[1:-1, 1:-1, 2:] - 2.0 * c + u[1:-1, 1:-1, :-2])
        )
        return u

    return lg.fori_loop(0, SWEEPS, step, u)


def heat_jax(u: Any) -> Any:
    def step(_: Any, u: Any) -> Any:
        c = u[1:-1, 1:-1, 1:-1]
        return u.at[1:-1, 1:-1, 1:-1].add(
            0.1 * (u[2:, 1:-1, 1:-1] - 2.0 * c + u[:-2, 1:-1, 1:-1])
            + 0.1 * (u[1:-1, 2:, 1:-1] - 2.0 * c + u[1:-1, :-2, 1:-1])
            + 0.1 * (u[1:-1, 1:-1, 2:] - 2.0 * c + u[1:-1, 1:-1, :-2])
        )

    return lax.fori_loop(0, SWEEPS, step, u)


def heat_numba(u: Array) -> Array:
    u, v = u.copy(), u.copy()
    n = u.shape[0]
    for _ in range(SWEEPS):
        for i in prange(1, n - 1):
            for j in range(1, n - 1):
                for k in range(1, n - 1):
                    around = u[i + 1, j, k] + u[i - 1, j, k] + u[i, j + 1, k] + u[i, j - 1, k]
                    around += u[i, j, k + 1] + u[i, j, k - 1]
                    v[i, j, k] = u[i, j, k] + 0.1 * (around - 6.0 * u[i, j, k])
        u, v = v, u
    return u


# --- FDTD: electric and magnetic fields in turns ---------------------------------------------------------------------


def fdtd_inputs(n: int) -> tuple[Array, ...]:
    return random((n, n)), random((n, n), 1), random((n, n), 2)


def fdtd_numpy(ex: Array, ey: Array, hz: Array) -> tuple[Array, ...]:
    ex, ey, hz = ex.copy(), ey.copy(), hz.copy()
    for t in range(SWEEPS):
        ey[0, :] = t
        ey[1:, :] -= 0.5 * (hz[1:, :] - hz[:-1, :])
        ex[:, 1:] -= 0.5 * (hz[:, 1:] - hz[:, :-1])
        hz[:-1, :-1] -= 0.7 * (ex[:-1, 1:] - ex[:-1, :-1] + ey[1:, :-1] - ey[:-1, :-1])
    return ex, ey, hz


def fdtd_livegrad(ex: Any, ey: Any, hz: Any) -> Any:
    def step(t: Any, fields: Any) -> Any:
        ex, ey, hz = fields
        ey[0, :] = lg.astype(t, ey.dtype)
        ey[1:, :] -= 0.5 * (hz[1:, :] - hz[:-1, :])
        ex[:, 1:] -= 0.5 * (hz[:, 1:] - hz[:, :-1])
        hz[:-1, :-1] -= 0.7 * (ex[:-1, 1:] - ex[:-1, :-1] + ey[1:, :-1] - ey[:-1, :-1])
        return ex, ey, hz

    return lg.fori_loop(0, SWEEPS, step, (ex, ey, hz))


def fdtd_jax(ex: Any, ey: Any, hz: Any) -> Any:
    def step(t: Any, fields: Any) -> Any:
        ex, ey, hz = fields
        ey = ey.at[0, :].set(t)
        ey = ey.at[1:, :].add(-0.5 * (hz[1:, :] - hz[:-1, :]))
        ex = ex.at[:, 1:].add(-0.5 * (hz[:, 1:] - hz[:, :-1]))
        curl = ex[:-1, 1:] - ex[:-1, :-1] + ey[1:, :-1] - ey[:-1, :-1]
        return ex, ey, hz.at[:-1, :-1].add(-0.7 * curl)

    return lax.fori_loop(0, SWEEPS, step, (ex, ey, hz))


def fdtd_numba(ex: Array, ey: Array, hz: Array) -> tuple[Array, ...]:
    ex, ey, hz = ex.copy(), ey.copy(), hz.copy()
    n, m = ex.shape
    for t in range(SWEEPS):
        for i in prange(n):
            for j in range(m):
                if i == 0:
                    ey[i, j] = t
                else:
                    ey[i, j] -= 0.5 * (hz[i, j] - hz[i - 1, j])
                if j > 0:
                    ex[i, j] -= 0.5 * (hz[i, j] - hz[i, j - 1])
        for i in prange(n - 1):
            for j in range(m - 1):
                hz[i, j] -= 0.7 * (ex[i, j + 1] - ex[i, j] + ey[i + 1, j] - ey[i, j])
    return ex, ey, hz


# --- a filter of 5 × 5 weights over an image -------------------------------------------------------------------------


def filter_inputs(n: int) -> tuple[Array, ...]:
    return random((n, n)), random((5, 5), 1)


def filter_numpy(image: Array, weights: Array) -> Array:
    n, m = image.shape
    result = np.zeros((n - 4, m - 4))
    for i in range(5):
        for j in range(5):
            result += weights[i, j] * image[i : n - 4 + i, j : m - 4 + j]
    return result


def filter_livegrad(image: Any, weights: Any) -> Any:
    n, m = image.shape
    result = lg.zeros((n - 4, m - 4), dtype=image.dtype)
    for i in range(5):
        for j in range(5):
            result += weights[i, j] * image[i : n - 4 + i, j : m - 4 + j]
    return result


def filter_jax(image: Any, weights: Any) -> Any:
    n, m = image.shape
    return sum(weights[i, j] * image[i : n - 4 + i, j : m - 4 + j] for i in range(5) for j in range(5))


def filter_numba(image: Array, weights: Array) -> Array:
    n, m = image.shape
    result = np.empty((n - 4, m - 4))
    for i in prange(n - 4):
        for j in range(m - 4):
            total = 0.0
            for k in range(5):
                for p in range(5):
                    total += weights[k, p] * image[i + k, j + p]
            result[i, j] = total
    return result


# --- the game of life ------------------------------------------------------------------------------------------------


def cells(n: int) -> tuple[Array, ...]:
    return ((random((n, n)) < 0.3).astype(np.int32),)


def neighbours_by_rolling(roll: Any, c: Any) -> Any:
    row = roll(c, 1, axis=1) + c + roll(c, -1, axis=1)
    return roll(row, 1, axis=0) + row + roll(row, -1, axis=0) - c


def life_numpy(c: Array) -> Array:
    for _ in range(SWEEPS):
        around = neighbours_by_rolling(np.roll, c)
        c = ((around == 3) | ((c == 1) & (around == 2))).astype(np.int32)
    return c


def life_livegrad(c: Any) -> Any:
    def step(_: Any, c: Any) -> Any:
        around = neighbours_by_rolling(lg.roll, c)
        return lg.astype((around == 3) | ((c == 1) & (around == 2)), lg.int32)

    return lg.fori_loop(0, SWEEPS, step, c)


def life_jax(c: Any) -> Any:
    def step(_: Any, c: Any) -> Any:
        around = neighbours_by_rolling(jnp.roll, c)
        return ((around == 3) | ((c == 1) & (around == 2))).astype(jnp.int32)

    return lax.fori_loop(0, SWEEPS, step, c)


def life_numba(c: Array) -> Array:
    c, after = c.copy(), c.copy()
    n, m = c.shape
    for _ in range(SWEEPS):
        for i in prange(n):
            up, down = (i - 1) % n, (i + 1) % n
            for j in range(m):
                left = j - 1 if j > 0 else m - 1
                right = j + 1 if j < m - 1 else 0
                around = c[up, left] + c[up, j] + c[up, right] + c[i, left]
                around += c[i, right] + c[down, left] + c[down, j] + c[down, right]
                after[i, j] = 1 if around == 3 or (c[i, j] == 1 and around == 2) else 0
        c, after = after, c
    return c


PROGRAMS = [
    Program(
        "jacobi", "20 sweeps of Jacobi over {n} × {n}", (48, 200, 2500), 9,
        square_grid, jacobi_numpy, jacobi_livegrad, jacobi_numba, jacobi_jax, parallel=True,
    ),
    Program(
        "heat", "20 steps of heat over {n}³ points", (14, 36, 170), 6,
        cubic_grid, heat_numpy, heat_livegrad, heat_numba, heat_jax, parallel=True,
    ),
    Program(
        "fdtd", "20 steps of FDTD over {n} × {n}", (32, 120, 1500), 9,
        fdtd_inputs, fdtd_numpy, fdtd_livegrad, fdtd_numba, fdtd_jax, parallel=True,
    ),
    Program(
        "filter_5x5", "a filter of 5 × 5 weights over a {n} × {n} image", (48, 200, 2500), 9,
        filter_inputs, filter_numpy, filter_livegrad, filter_numba, filter_jax, parallel=True,
    ),
    Program(
        "life", "20 generations of life on {n} × {n} cells", (64, 250, 2500), 9,
        cells, life_numpy, life_livegrad, life_numba, life_jax, parallel=True,
    ),
]  # fmt: skip
