"""Sweeps over grids that use what the same sweep has just written."""

from typing import Any

import numpy as np

from benchmarks.loops.program import Array, Program, jnp, lax, lg, prange, random

SWEEPS = 10


def square_grid(n: int) -> tuple[Array, ...]:
    return (random((n, n)),)


# --- Gauss–Seidel in the order of reading ----------------------------------------------------------------------------

GAUSS_SEIDEL_SWEEPS = 2


def gauss_seidel_numpy(u: Array) -> Array:
    u = u.copy()
    n = len(u)
    for _ in range(GAUSS_SEIDEL_SWEEPS):
        for d in range(2, 2 * n - 3):  # points of one antidiagonal do not meet
            i = np.arange(max(1, d - n + 2), min(d, n - 1))
            j = d - i
            u[i, j] = 0.25 * (u[i - 1, j] + u[i, j - 1] + u[i + 1, j] + u[i, j + 1])
    return u


def gauss_seidel_livegrad(u: Any) -> Any:
    n = u.shape[0]

    def sweep(_: Any, u: Any) -> Any:
        def row(i: Any, u: Any) -> Any:
            def point(j: Any, u: Any) -> Any:
                u[i, j] = 0.25 * (u[i - 1, j] + u[i, j - 1] + u[i + 1, j] + u[i, j + 1])
                return u

            return lg.fori_loop(1, n - 1, point, u)

        return lg.fori_loop(1, n - 1, row, u)

    return lg.fori_loop(0, GAUSS_SEIDEL_SWEEPS, sweep, u)


def gauss_seidel_jax(u: Any) -> Any:
    def row(above: Any, rows: Any) -> Any:
        current, below = rows
        rest = above[1:-1] + below[1:-1] + current[2:]

        def point(left: Any, rest: Any) -> Any:
            value = 0.25 * (left + rest)
            return value, value

        current = current.at[1:-1].set(lax.scan(point, current[0], rest)[1])
        return current, current

    def sweep(_: Any, u: Any) -> Any:
        return u.at[1:-1].set(lax.scan(row, u[0], (u[1:-1], u[2:]))[1])

    return lax.fori_loop(0, GAUSS_SEIDEL_SWEEPS, sweep, u)


def gauss_seidel_numba(u: Array) -> Array:
    u = u.copy()
    n = u.shape[0]
    for _ in range(GAUSS_SEIDEL_SWEEPS):
        for i in range(1, n - 1):
            for j in range(1, n - 1):
                u[i, j] = 0.25 * (u[i - 1, j] + u[i, j - 1] + u[i + 1, j] + u[i, j + 1])
    return u


# --- Gauss–Seidel, red points before black ones ----------------------------------------------------------------------

COLOURS = ((1, 1), (2, 2), (1, 2), (2, 1))  # where every second row and column starts


def red_black_numpy(u: Array) -> Array:
    u = u.copy()
    for _ in range(SWEEPS):
        for i, j in COLOURS:
            column = u[i - 1 : -2 : 2, j:-1:2] + u[i + 1 :: 2, j:-1:2]
            row = u[i:-1:2, j - 1 : -2 : 2] + u[i:-1:2, j + 1 :: 2]
            u[i:-1:2, j:-1:2] = 0.25 * (column + row)
    return u


def red_black_livegrad(u: Any) -> Any:
    def sweep(_: Any, u: Any) -> Any:
        for i, j in COLOURS:
            column = u[i - 1 : -2 : 2, j:-1:2] + u[i + 1 :: 2, j:-1:2]
            row = u[i:-1:2, j - 1 : -2 : 2] + u[i:-1:2, j + 1 :: 2]
            u[i:-1:2, j:-1:2] = 0.25 * (column + row)
        return u

    return lg.fori_loop(0, SWEEPS, sweep, u)


def red_black_jax(u: Any) -> Any:
    rows, columns = jnp.indices(u.shape)
    inside = (rows > 0) & (rows < u.shape[0] - 1) & (columns > 0) & (columns < u.shape[1] - 1)
    colours = [inside & ((rows + columns) % 2 == parity) for parity in (0, 1)]

    def sweep(_: Any, u: Any) -> Any:
        for colour in colours:
            padded = jnp.pad(u, 1)
            around = padded[:-2, 1:-1] + padded[2:, 1:-1] + padded[1:-1, :-2] + padded[1:-1, 2:]
            u = jnp.where(colour, 0.25 * around, u)
        return u

    return lax.fori_loop(0, SWEEPS, sweep, u)


def red_black_numba(u: Array) -> Array:
    u = u.copy()
    n = u.shape[0]
    for _ in range(SWEEPS):
        for parity in range(2):
            for i in prange(1, n - 1):
                for j in range(1 + (i + parity + 1) % 2, n - 1, 2):
                    u[i, j] = 0.25 * (u[i - 1, j] + u[i + 1, j] + u[i, j - 1] + u[i, j + 1])
    return u


# --- ADI: implicit along columns, then along rows --------------------------------------------------------------------


def adi_numpy(u: Array) -> Array:
    u = u.copy()
    n = len(u)
    for _ in range(SWEEPS):
        for _ in range(2):
            v, p, q = np.ones_like(u), np.zeros_like(u), np.ones_like(u)
            for j in range(1, n - 1):
                pivot = 2.5 - p[1:-1, j - 1]
                p[1:-1, j] = 1.0 / pivot
                explicit = u[:-2, j] - 0.5 * u[1:-1, j] + u[2:, j]
                q[1:-1, j] = (explicit + q[1:-1, j - 1]) / pivot
            for j in range(n - 2, 0, -1):
                v[1:-1, j] = p[1:-1, j] * v[1:-1, j + 1] + q[1:-1, j]
            u = v.T.copy()
    return u


def adi_livegrad(u: Any) -> Any:
    n = u.shape[0]

    def half_step(_: Any, u: Any) -> Any:
        def forward(j: Any, state: Any) -> Any:
            p, q = state
            pivot = 2.5 - p[1:-1, j - 1]
            p[1:-1, j] = 1.0 / pivot
            explicit = u[:-2, j] - 0.5 * u[1:-1, j] + u[2:, j]
            q[1:-1, j] = (explicit + q[1:-1, j - 1]) / pivot
            return p, q

        p, q = lg.fori_loop(1, n - 1, forward, (lg.zeros_like(u), lg.ones_like(u)))

        def backward(k: Any, v: Any) -> Any:
            j = n - 2 - k
            v[1:-1, j] = p[1:-1, j] * v[1:-1, j + 1] + q[1:-1, j]
            return v

        return lg.matrix_transpose(lg.fori_loop(0, n - 2, backward, lg.ones_like(u)))

    return lg.fori_loop(0, 2 * SWEEPS, half_step, u)


def adi_jax(u: Any) -> Any:
    n = u.shape[0]

    def half_step(_: Any, u: Any) -> Any:
        explicit = (u[:-2] - 0.5 * u[1:-1] + u[2:]).T[1:-1]

        def forward(state: Any, row: Any) -> Any:
            p, q = state
            pivot = 2.5 - p
            state = 1.0 / pivot, (row + q) / pivot
            return state, state

        def backward(v: Any, row: Any) -> Any:
            p, q = row
            v = p * v + q
            return v, v

        _, rows = lax.scan(forward, (jnp.zeros(n - 2), jnp.ones(n - 2)), explicit)
        return jnp.ones_like(u).at[1:-1, 1:-1].set(lax.scan(backward, jnp.ones(n - 2), rows, reverse=True)[1])

    return lax.fori_loop(0, 2 * SWEEPS, half_step, u)


def adi_numba(u: Array) -> Array:
    u = u.copy()
    n = u.shape[0]
    p, q = np.zeros_like(u), np.ones_like(u)
    for _ in range(2 * SWEEPS):
        v = np.ones_like(u)
        for i in prange(1, n - 1):
            for j in range(1, n - 1):
                pivot = 2.5 - p[i, j - 1]
                p[i, j] = 1.0 / pivot
                explicit = u[i - 1, j] - 0.5 * u[i, j] + u[i + 1, j]
                q[i, j] = (explicit + q[i, j - 1]) / pivot
            for j in range(n - 2, 0, -1):
                v[j, i] = p[i, j] * (v[j + 1, i]) + q[i, j]
        u = v
    return u


# --- flood fill: sweeps until nothing changes ------------------------------------------------------------------------


def maze(n: int) -> tuple[Array, ...]:
    """Open cells, and one that is filled."""
    is_open = random((n, n)) < 0.75
    filled = np.zeros((n, n), bool)
    is_open[n // 2, n // 2] = filled[n // 2, n // 2] = True
    return is_open, filled


def flood_fill_numpy(is_open: Array, filled: Array) -> Array:
    while True:
        after = filled.copy()
        after[1:] |= filled[:-1]
        after[:-1] |= filled[1:]
        after[:, 1:] |= filled[:, :-1]
        after[:, :-1] |= filled[:, 1:]
        after &= is_open
        if np.array_equal(after, filled):
            return filled.astype(np.int32)
        filled = after


def flood_fill_livegrad(is_open: Any, filled: Any) -> Any:
    def sweep(state: Any) -> Any:
        filled, _ = state
        after = filled | False  # a tensor of its own, which is written to
        after[1:] |= filled[:-1]
        after[:-1] |= filled[1:]
        after[:, 1:] |= filled[:, :-1]
        after[:, :-1] |= filled[:, 1:]
        after &= is_open
        return after, lg.any(after != filled)

    filled, _ = lg.while_loop(lambda state: state[1], sweep, (filled, lg.asarray(True)))
    return lg.astype(filled, lg.int32)


def flood_fill_jax(is_open: Any, filled: Any) -> Any:
    def sweep(state: Any) -> Any:
        filled, _ = state
        padded = jnp.pad(filled, 1)
        after = padded[:-2, 1:-1] | padded[2:, 1:-1] | padded[1:-1, :-2] | padded[1:-1, 2:]
        after = (after | filled) & is_open
        return after, jnp.any(after != filled)

    return lax.while_loop(lambda state: state[1], sweep, (filled, True))[0].astype(jnp.int32)


def flood_fill_numba(is_open: Array, filled: Array) -> Array:
    n, m = filled.shape
    filled = filled.copy()
    changed = True
    while changed:
        changed = False
        for sweep in range(2):  # down and right, then up and left: what was just filled goes on filling
            for a in range(n):
                for b in range(m):
                    i, j = (a, b) if sweep == 0 else (n - 1 - a, m - 1 - b)
                    if is_open[i, j] and not filled[i, j]:
                        near = (i > 0 and filled[i - 1, j]) or (i < n - 1 and filled[i + 1, j])
                        if near or (j > 0 and filled[i, j - 1]) or (j < m - 1 and filled[i, j + 1]):
                            filled[i, j] = True
                            changed = True
    return filled.astype(np.int32)


PROGRAMS = [
    Program(
        "gauss_seidel", "2 sweeps of Gauss–Seidel over {n} × {n}", (32, 120, 2000), 7,
        square_grid, gauss_seidel_numpy, gauss_seidel_livegrad, gauss_seidel_numba, gauss_seidel_jax,
    ),
    Program(
        "red_black", "10 sweeps of Gauss–Seidel over {n} × {n}, red points before black", (48, 200, 2500), 9,
        square_grid, red_black_numpy, red_black_livegrad, red_black_numba, red_black_jax, parallel=True,
    ),
    Program(
        "adi", "10 steps of alternating directions over {n} × {n}", (32, 120, 1500), 7,
        square_grid, adi_numpy, adi_livegrad, adi_numba, adi_jax, parallel=True, today=(32, 120, 600),
    ),
    Program(
        "flood_fill", "flood fill of {n} × {n} cells by sweeps", (64, 250, 1000), 9,
        maze, flood_fill_numpy, flood_fill_livegrad, flood_fill_numba, flood_fill_jax, today=(64, 250, 600),
    ),
]  # fmt: skip
