"""Factorisations and iterations on dense matrices, as loops over rows, columns and elements."""

from typing import Any

import numpy as np

from benchmarks.loops.program import Array, Program, jnp, lax, lg, normal, prange, random


def dominant_matrix(n: int) -> tuple[Array, ...]:
    """A matrix that needs no pivots."""
    return (random((n, n)) + n * np.eye(n),)


# --- LU without pivots, one row at a time ----------------------------------------------------------------------------


def lu_numpy(a: Array) -> Array:
    a = a.copy()
    for k in range(len(a) - 1):
        a[k + 1 :, k] /= a[k, k]
        a[k + 1 :, k + 1 :] -= np.outer(a[k + 1 :, k], a[k, k + 1 :])
    return a


def lu_livegrad(a: Any) -> Any:
    n = a.shape[0]
    columns = lg.arange(n)

    def eliminate(k: Any, a: Any) -> Any:
        def row(i: Any, a: Any) -> Any:
            a[i, k] = a[i, k] / a[k, k]
            a[i] = lg.where(columns > k, a[i] - a[i, k] * a[k], a[i])
            return a

        return lg.fori_loop(k + 1, n, row, a)

    return lg.fori_loop(0, n - 1, eliminate, a)


def lu_jax(a: Any) -> Any:
    n = a.shape[0]
    positions = jnp.arange(n)

    def eliminate(k: Any, a: Any) -> Any:
        factors = jnp.where(positions > k, a[:, k] / a[k, k], 0.0)
        a = a - jnp.outer(factors, jnp.where(positions > k, a[k], 0.0))
        return a.at[:, k].set(jnp.where(positions > k, factors, a[:, k]))

    return lax.fori_loop(0, n - 1, eliminate, a)


def lu_numba(a: Array) -> Array:
    a = a.copy()
    n = a.shape[0]
    for k in range(n - 1):
        for i in prange(k + 1, n):
            a[i, k] /= a[k, k]
            for j in range(k + 1, n):
                a[i, j] -= a[i, k] * a[k, j]
    return a


# --- Cholesky, one column at a time ----------------------------------------------------------------------------------


def positive_matrix(n: int) -> tuple[Array, ...]:
    a = random((n, n))
    return (a @ a.T + n * np.eye(n),)


def cholesky_numpy(a: Array) -> Array:
    low = np.zeros_like(a)
    for j in range(len(a)):
        rest = a[j:, j] - low[j:, :j] @ low[j, :j]
        low[j:, j] = rest / np.sqrt(rest[0])
    return low


def cholesky_livegrad(a: Any) -> Any:
    n = a.shape[0]
    rows = lg.arange(n)

    def column(j: Any, low: Any) -> Any:
        rest = a[:, j] - low @ low[j]
        low[:, j] = lg.where(rows >= j, rest / lg.sqrt(rest[j]), 0.0)
        return low

    return lg.fori_loop(0, n, column, lg.zeros_like(a))


def cholesky_jax(a: Any) -> Any:
    n = a.shape[0]
    rows = jnp.arange(n)

    def column(j: Any, low: Any) -> Any:
        rest = a[:, j] - low @ low[j]
        return low.at[:, j].set(jnp.where(rows >= j, rest / jnp.sqrt(rest[j]), 0.0))

    return lax.fori_loop(0, n, column, jnp.zeros_like(a))


def cholesky_numba(a: Array) -> Array:
    low = np.zeros_like(a)
    n = a.shape[0]
    for j in range(n):
        total = a[j, j]
        for k in range(j):
            total -= low[j, k] * low[j, k]
        low[j, j] = np.sqrt(total)
        for i in prange(j + 1, n):
            rest = a[i, j]
            for k in range(j):
                rest -= low[i, k] * low[j, k]
            low[i, j] = rest / low[j, j]
    return low


# --- SYRK: the lower half of C + A Aᵀ, by rank-one updates of rows ---------------------------------------------------


def syrk_inputs(n: int) -> tuple[Array, ...]:
    return random((n, n)), random((n, n), seed=1)


def syrk_numpy(a: Array, c: Array) -> Array:
    c = c.copy()
    for i in range(len(c)):
        for k in range(a.shape[1]):
            c[i, : i + 1] += a[i, k] * a[: i + 1, k]
    return c


def syrk_livegrad(a: Any, c: Any) -> Any:
    columns = lg.arange(c.shape[1])

    def row(i: Any, c: Any) -> Any:
        def term(k: Any, c: Any) -> Any:
            c[i] = c[i] + lg.where(columns <= i, a[i, k] * a[:, k], 0.0)
            return c

        return lg.fori_loop(0, a.shape[1], term, c)

    return lg.fori_loop(0, c.shape[0], row, c)


def syrk_jax(a: Any, c: Any) -> Any:
    columns = jnp.arange(c.shape[1])

    def row(i: Any, c: Any) -> Any:
        return c.at[i].add(jnp.where(columns <= i, a @ a[i], 0.0))

    return lax.fori_loop(0, c.shape[0], row, c)


def syrk_numba(a: Array, c: Array) -> Array:
    c = c.copy()
    for i in prange(c.shape[0]):
        for j in range(i + 1):
            total = c[i, j]
            for k in range(a.shape[1]):
                total += a[i, k] * a[j, k]
            c[i, j] = total
    return c


# --- Gram–Schmidt, modified ------------------------------------------------------------------------------------------


def gram_schmidt_inputs(n: int) -> tuple[Array, ...]:
    return (normal((n, n)),)


def gram_schmidt_numpy(a: Array) -> Array:
    q = a.copy()
    for k in range(q.shape[1]):
        q[:, k] /= np.sqrt(np.sum(q[:, k] ** 2))
        q[:, k + 1 :] -= np.outer(q[:, k], q[:, k] @ q[:, k + 1 :])
    return q


def gram_schmidt_livegrad(a: Any) -> Any:
    n = a.shape[1]

    def normalise(k: Any, q: Any) -> Any:
        q[:, k] = q[:, k] / lg.sqrt(lg.sum(q[:, k] ** 2))

        def subtract(j: Any, q: Any) -> Any:
            q[:, j] = q[:, j] - q[:, k] * lg.sum(q[:, k] * q[:, j])
            return q

        return lg.fori_loop(k + 1, n, subtract, q)

    return lg.fori_loop(0, n, normalise, a)


def gram_schmidt_jax(a: Any) -> Any:
    columns = jnp.arange(a.shape[1])

    def normalise(k: Any, q: Any) -> Any:
        direction = q[:, k] / jnp.sqrt(jnp.sum(q[:, k] ** 2))
        q = q - jnp.outer(direction, jnp.where(columns > k, direction @ q, 0.0))
        return q.at[:, k].set(direction)

    return lax.fori_loop(0, a.shape[1], normalise, a)


def gram_schmidt_numba(a: Array) -> Array:
    q = a.T.copy()  # a column is contiguous
    n, m = q.shape
    for k in range(n):
        total = 0.0
        for i in range(m):
            total += q[k, i] * q[k, i]
        scale = 1.0 / np.sqrt(total)
        for i in range(m):
            q[k, i] *= scale
        for j in prange(k + 1, n):
            overlap = 0.0
            for i in range(m):
                overlap += q[k, i] * q[j, i]
            for i in range(m):
                q[j, i] -= overlap * q[k, i]
    return q.T.copy()


# --- power iteration -------------------------------------------------------------------------------------------------

STEPS = 50


def power_numpy(a: Array) -> Array:
    x = np.ones(len(a))
    for _ in range(STEPS):
        y = a @ x
        x = y / np.sqrt(np.sum(y * y))
    return x


def power_livegrad(a: Any) -> Any:
    def step(_: Any, x: Any) -> Any:
        y = a @ x
        return y / lg.sqrt(lg.sum(y * y))

    return lg.fori_loop(0, STEPS, step, lg.ones(a.shape[0], dtype=a.dtype))


def power_jax(a: Any) -> Any:
    def step(_: Any, x: Any) -> Any:
        y = a @ x
        return y / jnp.sqrt(jnp.sum(y * y))

    return lax.fori_loop(0, STEPS, step, jnp.ones(a.shape[0]))


def power_numba(a: Array) -> Array:
    n = a.shape[0]
    x, y = np.ones(n), np.empty(n)
    for _ in range(STEPS):
        for i in prange(n):
            total = 0.0
            for j in range(n):
                total += a[i, j] * x[j]
            y[i] = total
        norm = 0.0
        for i in range(n):
            norm += y[i] * y[i]
        for i in range(n):
            x[i] = y[i] / np.sqrt(norm)
    return x


PROGRAMS = [
    Program(
        "lu", "LU of a {n} × {n} matrix, row by row", (48, 160, 2048), 8,
        dominant_matrix, lu_numpy, lu_livegrad, lu_numba, lu_jax, parallel=True, today=(48, 160, 272),
    ),
    Program(
        "cholesky", "Cholesky of a {n} × {n} matrix, column by column", (48, 160, 768), 8,
        positive_matrix, cholesky_numpy, cholesky_livegrad, cholesky_numba, cholesky_jax, parallel=True,
    ),
    Program(
        "syrk", "C + A Aᵀ of {n} × {n} matrices, by updates of rows", (40, 128, 1024), 8,
        syrk_inputs, syrk_numpy, syrk_livegrad, syrk_numba, syrk_jax, parallel=True, today=(40, 128, 256),
    ),
    Program(
        "gram_schmidt", "Gram–Schmidt of {n} columns", (48, 160, 1024), 8,
        gram_schmidt_inputs, gram_schmidt_numpy, gram_schmidt_livegrad, gram_schmidt_numba, gram_schmidt_jax,
        parallel=True, tolerance=1e-6, today=(48, 160, 320),
    ),
    Program(
        "power_iteration", "50 steps of power iteration, {n} × {n}", (48, 200, 2048), 8,
        positive_matrix, power_numpy, power_livegrad, power_numba, power_jax, parallel=True,
    ),
]  # fmt: skip
