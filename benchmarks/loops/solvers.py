"""Linear systems: tridiagonal, sparse and many small ones; and products with sparse matrices."""

from typing import Any

import numpy as np

from benchmarks.loops.program import Array, Program, jnp, lax, lg, normal, prange, random

# --- Thomas: one tridiagonal system ----------------------------------------------------------------------------------


def thomas_inputs(n: int) -> tuple[Array, ...]:
    """Diagonals below, on and above, and the right side."""
    return random(n), 4.0 + random(n, 1), random(n, 2), random(n, 3)


def thomas_numpy(a: Array, b: Array, c: Array, d: Array) -> Array:
    n = len(d)
    above, x = np.zeros(n), np.zeros(n)
    above[0], x[0] = c[0] / b[0], d[0] / b[0]
    for i in range(1, n):
        pivot = b[i] - a[i] * above[i - 1]
        above[i] = c[i] / pivot
        x[i] = (d[i] - a[i] * x[i - 1]) / pivot
    for i in range(n - 2, -1, -1):
        x[i] -= above[i] * x[i + 1]
    return x


def thomas_livegrad(a: Any, b: Any, c: Any, d: Any) -> Any:
    n = d.shape[0]
    above, x = lg.zeros_like(d), lg.zeros_like(d)
    above[0], x[0] = c[0] / b[0], d[0] / b[0]

    def forward(i: Any, state: Any) -> Any:
        above, x = state
        pivot = b[i] - a[i] * above[i - 1]
        above[i] = c[i] / pivot
        x[i] = (d[i] - a[i] * x[i - 1]) / pivot
        return above, x

    def backward(k: Any, x: Any) -> Any:
        i = n - 2 - k
        x[i] -= above[i] * x[i + 1]
        return x

    above, x = lg.fori_loop(1, n, forward, (above, x))
    return lg.fori_loop(0, n - 1, backward, x)


def thomas_jax(a: Any, b: Any, c: Any, d: Any) -> Any:
    def forward(state: Any, row: Any) -> Any:
        above, x = state
        a, b, c, d = row
        pivot = b - a * above
        state = c / pivot, (d - a * x) / pivot
        return state, state

    def backward(x: Any, row: Any) -> Any:
        above, rest = row
        x = rest - above * x
        return x, x

    _, (above, x) = lax.scan(forward, (0.0, 0.0), (a, b, c, d))
    return lax.scan(backward, 0.0, (above, x), reverse=True)[1]


def thomas_numba(a: Array, b: Array, c: Array, d: Array) -> Array:
    n = d.shape[0]
    above, x = np.empty(n), np.empty(n)
    above[0], x[0] = c[0] / b[0], d[0] / b[0]
    for i in range(1, n):
        pivot = b[i] - a[i] * above[i - 1]
        above[i] = c[i] / pivot
        x[i] = (d[i] - a[i] * x[i - 1]) / pivot
    for i in range(n - 2, -1, -1):
        x[i] -= above[i] * x[i + 1]
    return x


# --- conjugate gradients on the Laplace operator of a square grid ----------------------------------------------------

CG_STEPS = 40


def square_grid(n: int) -> tuple[Array, ...]:
    return (normal((n, n)),)


def laplace_numpy(x: Array) -> Array:
    y = 4.0 * x
    y[1:] -= x[:-1]
    y[:-1] -= x[1:]
    y[:, 1:] -= x[:, :-1]
    y[:, :-1] -= x[:, 1:]
    return y


def cg_numpy(b: Array) -> Array:
    x, r, p = np.zeros_like(b), b, b
    energy = np.sum(r * r)
    for _ in range(CG_STEPS):
        ap = laplace_numpy(p)
        step = energy / np.sum(p * ap)
        x, r = x + step * p, r - step * ap
        before, energy = energy, np.sum(r * r)
        p = r + energy / before * p
    return x


def cg_livegrad(b: Any) -> Any:
    def laplace(x: Any) -> Any:
        y = 4.0 * x
        y[1:] -= x[:-1]
        y[:-1] -= x[1:]
        y[:, 1:] -= x[:, :-1]
        y[:, :-1] -= x[:, 1:]
        return y

    def step(_: Any, state: Any) -> Any:
        x, r, p, energy = state
        ap = laplace(p)
        length = energy / lg.sum(p * ap)
        r = r - length * ap
        after = lg.sum(r * r)
        return x + length * p, r, r + after / energy * p, after

    return lg.fori_loop(0, CG_STEPS, step, (lg.zeros_like(b), b, b, lg.sum(b * b)))[0]


def cg_jax(b: Any) -> Any:
    def laplace(x: Any) -> Any:
        around = jnp.pad(x, 1)
        return 4.0 * x - around[:-2, 1:-1] - around[2:, 1:-1] - around[1:-1, :-2] - around[1:-1, 2:]

    def step(_: Any, state: Any) -> Any:
        x, r, p, energy = state
        ap = laplace(p)
        length = energy / jnp.sum(p * ap)
        r = r - length * ap
        after = jnp.sum(r * r)
        return x + length * p, r, r + after / energy * p, after

    return lax.fori_loop(0, CG_STEPS, step, (jnp.zeros_like(b), b, b, jnp.sum(b * b)))[0]


def cg_numba(b: Array) -> Array:
    n, m = b.shape
    x, r, p, ap = np.zeros_like(b), b.copy(), b.copy(), np.empty_like(b)
    energy = np.sum(r * r)
    for _ in range(CG_STEPS):
        overlap = 0.0
        for i in prange(n):
            for j in range(m):
                value = 4.0 * p[i, j]
                if i > 0:
                    value -= p[i - 1, j]
                if i < n - 1:
                    value -= p[i + 1, j]
                if j > 0:
                    value -= p[i, j - 1]
                if j < m - 1:
                    value -= p[i, j + 1]
                ap[i, j] = value
                overlap += p[i, j] * value
        step = energy / overlap
        after = 0.0
        for i in prange(n):
            for j in range(m):
                x[i, j] += step * p[i, j]
                r[i, j] -= step * ap[i, j]
                after += r[i, j] * r[i, j]
        for i in prange(n):
            for j in range(m):
                p[i, j] = r[i, j] + after / energy * p[i, j]
        energy = after
    return x


# --- many systems of six unknowns, by elimination --------------------------------------------------------------------


def small_solves_inputs(n: int) -> tuple[Array, ...]:
    return random((n, 6, 6)) + 6.0 * np.eye(6), random((n, 6), 1)


def small_solves_numpy(a: Array, b: Array) -> Array:
    return np.linalg.solve(a, b[..., None])[..., 0]


def small_solves_livegrad(a: Any, b: Any) -> Any:
    return lg.linalg.solve(a, b[..., None])[..., 0]


def small_solves_jax(a: Any, b: Any) -> Any:
    return jnp.linalg.solve(a, b[..., None])[..., 0]


def small_solves_numba(a: Array, b: Array) -> Array:
    result = np.empty_like(b)
    for s in prange(a.shape[0]):
        m, x = a[s].copy(), b[s].copy()
        for k in range(6):
            for i in range(k + 1, 6):
                factor = m[i, k] / m[k, k]
                for j in range(k + 1, 6):
                    m[i, j] -= factor * m[k, j]
                x[i] -= factor * x[k]
        for i in range(5, -1, -1):
            for j in range(i + 1, 6):
                x[i] -= m[i, j] * x[j]
            x[i] /= m[i, i]
        result[s] = x
    return result


# --- a sparse matrix (CSR, about 16 elements a row) times a vector ---------------------------------------------------


def csr_inputs(n: int) -> tuple[Array, ...]:
    """Where rows start, columns, values, and the vector."""
    lengths = np.random.default_rng(0).integers(8, 25, n)
    starts = np.concatenate([[0], np.cumsum(lengths)])
    columns = np.random.default_rng(1).integers(0, n, starts[-1])
    return starts, columns, random(starts[-1], 2), random(n, 3)


def csr_numpy(starts: Array, columns: Array, values: Array, x: Array) -> Array:
    return np.add.reduceat(values * x[columns], starts[:-1])


def csr_livegrad(starts: Any, columns: Any, values: Any, x: Any) -> Any:
    def row(i: Any, y: Any) -> Any:
        y[i] = lg.fori_loop(starts[i], starts[i + 1], lambda k, total: total + values[k] * x[columns[k]], 0.0)
        return y

    return lg.fori_loop(0, x.shape[0], row, lg.zeros_like(x))


def csr_jax(starts: Any, columns: Any, values: Any, x: Any) -> Any:
    n = x.shape[0]
    rows = jnp.repeat(jnp.arange(n), jnp.diff(starts), total_repeat_length=columns.shape[0])
    return jnp.zeros(n).at[rows].add(values * x[columns], indices_are_sorted=True)


def csr_numba(starts: Array, columns: Array, values: Array, x: Array) -> Array:
    y = np.empty_like(x)
    for i in prange(x.shape[0]):
        total = 0.0
        for k in range(starts[i], starts[i + 1]):
            total += values[k] * x[columns[k]]
        y[i] = total
    return y


PROGRAMS = [
    Program(
        "thomas", "a tridiagonal system of {n} unknowns", (500, 10_000, 2_000_000), 9,
        thomas_inputs, thomas_numpy, thomas_livegrad, thomas_numba, thomas_jax, interpreted=True,
    ),
    Program(
        "conjugate_gradients", "40 steps of conjugate gradients on a {n} × {n} grid", (24, 90, 1500), 9,
        square_grid, cg_numpy, cg_livegrad, cg_numba, cg_jax, parallel=True, tolerance=1e-7,
    ),
    Program(
        "small_solves", "{n} systems of 6 unknowns", (80, 1000, 200_000), 4,
        small_solves_inputs, small_solves_numpy, small_solves_livegrad, small_solves_numba, small_solves_jax,
        parallel=True,
    ),
    Program(
        "csr", "a sparse {n} × {n} matrix times a vector", (100, 1500, 500_000), 9,
        csr_inputs, csr_numpy, csr_livegrad, csr_numba, csr_jax, parallel=True,
    ),
]  # fmt: skip
