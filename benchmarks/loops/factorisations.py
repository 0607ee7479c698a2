"""Factorisations of dense matrices with products, pivots and rotations inside the loop."""

from typing import Any

import numpy as np

from benchmarks.loops.linear_algebra import dominant_matrix, gram_schmidt_inputs
from benchmarks.loops.program import Array, Program, jnp, lax, lg, normal, prange, random

# --- QR by Householder reflections: R in the upper triangle ----------------------------------------------------------


def householder_numpy(a: Array) -> Array:
    r = a.copy()
    n = len(r)
    for k in range(n - 1):
        v = r[k:, k].copy()
        v[0] += np.copysign(np.sqrt(np.sum(v * v)), v[0])
        v /= np.sqrt(np.sum(v * v))
        r[k:, k:] -= 2.0 * np.outer(v, v @ r[k:, k:])
    return r


def householder_livegrad(a: Any) -> Any:
    n = a.shape[0]
    rows = lg.arange(n)

    def reflect(k: Any, r: Any) -> Any:
        v = lg.where(rows >= k, r[:, k], 0.0)
        length = lg.sqrt(lg.sum(v * v))
        v = lg.where(rows == k, v + lg.where(r[k, k] < 0.0, -length, length), v)
        v = v / lg.sqrt(lg.sum(v * v))
        return r - 2.0 * lg.linalg.outer(v, v @ r)

    return lg.fori_loop(0, n - 1, reflect, a)


def householder_jax(a: Any) -> Any:
    n = a.shape[0]
    rows = jnp.arange(n)

    def reflect(k: Any, r: Any) -> Any:
        v = jnp.where(rows >= k, r[:, k], 0.0)
        length = jnp.sqrt(jnp.sum(v * v))
        v = jnp.where(rows == k, v + jnp.where(r[k, k] < 0.0, -length, length), v)
        v = v / jnp.sqrt(jnp.sum(v * v))
        return r - 2.0 * jnp.outer(v, v @ r)

    return lax.fori_loop(0, n - 1, reflect, a)


def householder_numba(a: Array) -> Array:
    r = a.copy()
    n = r.shape[0]
    v, w = np.empty(n), np.empty(n)
    for k in range(n - 1):
        total = 0.0
        for i in range(k, n):
            v[i] = r[i, k]
            total += v[i] * v[i]
        v[k] += -np.sqrt(total) if v[k] < 0.0 else np.sqrt(total)
        total = 0.0
        for i in range(k, n):
            total += v[i] * v[i]
        for j in range(k, n):
            w[j] = 0.0
        for i in range(k, n):
            for j in range(k, n):
                w[j] += v[i] * r[i, j]
        for i in prange(k, n):
            for j in range(k, n):
                r[i, j] -= 2.0 / total * v[i] * w[j]
    return r


# --- Gauss–Jordan with pivots: the inverse ---------------------------------------------------------------------------


def gauss_jordan_numpy(a: Array) -> Array:
    n = len(a)
    m = np.concatenate([a, np.eye(n)], axis=1)
    for k in range(n):
        p = k + np.argmax(np.abs(m[k:, k]))
        m[[k, p]] = m[[p, k]]
        m[k] /= m[k, k]
        factors = m[:, k].copy()
        factors[k] = 0.0
        m -= np.outer(factors, m[k])
    return m[:, n:].copy()


def gauss_jordan_livegrad(a: Any) -> Any:
    n = a.shape[0]
    rows = lg.arange(n)

    def eliminate(k: Any, m: Any) -> Any:
        p = lg.argmax(lg.where(rows >= k, lg.abs(m[:, k]), -1.0))
        upper, pivot = m[k] + 0.0, m[p] / m[p, k]
        m[p] = upper
        m[k] = pivot

        def row(i: Any, m: Any) -> Any:
            m[i] = lg.where(i == k, m[i], m[i] - m[i, k] * m[k])
            return m

        return lg.fori_loop(0, n, row, m)

    return lg.fori_loop(0, n, eliminate, lg.concat([a, lg.eye(n, dtype=a.dtype)], axis=1))[:, n:]


def gauss_jordan_jax(a: Any) -> Any:
    n = a.shape[0]
    rows = jnp.arange(n)

    def eliminate(k: Any, m: Any) -> Any:
        p = jnp.argmax(jnp.where(rows >= k, jnp.abs(m[:, k]), -1.0))
        upper, pivot = m[k], m[p] / m[p, k]
        m = m.at[p].set(upper).at[k].set(pivot)
        return m - jnp.outer(jnp.where(rows == k, 0.0, m[:, k]), pivot)

    return lax.fori_loop(0, n, eliminate, jnp.concatenate([a, jnp.eye(n)], axis=1))[:, n:]


def gauss_jordan_numba(a: Array) -> Array:
    n = a.shape[0]
    m = np.zeros((n, 2 * n))
    m[:, :n] = a
    for i in range(n):
        m[i, n + i] = 1.0
    for k in range(n):
        p = k
        for i in range(k + 1, n):
            if abs(m[i, k]) > abs(m[p, k]):
                p = i
        scale = 1.0 / m[p, k]
        for j in range(2 * n):
            upper = m[k, j]
            m[k, j] = m[p, j] * scale
            if p != k:
                m[p, j] = upper
        for i in prange(n):
            if i != k:
                factor = m[i, k]
                for j in range(2 * n):
                    m[i, j] -= factor * m[k, j]
    return m[:, n:].copy()


# --- forward substitution, one row at a time -------------------------------------------------------------------------


def triangular_inputs(n: int) -> tuple[Array, ...]:
    return np.tril(random((n, n))) + n * np.eye(n), random(n, 1)


def forward_numpy(a: Array, b: Array) -> Array:
    x = np.zeros_like(b)
    for i in range(len(b)):
        x[i] = (b[i] - a[i, :i] @ x[:i]) / a[i, i]
    return x


def forward_livegrad(a: Any, b: Any) -> Any:
    places = lg.arange(b.shape[0])

    def row(i: Any, x: Any) -> Any:
        known = lg.sum(lg.where(places < i, a[i] * x, 0.0))  # as in NumPy's port, without what is above the diagonal
        x[i] = (b[i] - known) / a[i, i]
        return x

    return lg.fori_loop(0, b.shape[0], row, lg.zeros_like(b))


def forward_jax(a: Any, b: Any) -> Any:
    def row(i: Any, x: Any) -> Any:
        return x.at[i].set((b[i] - a[i] @ x) / a[i, i])

    return lax.fori_loop(0, b.shape[0], row, jnp.zeros_like(b))


def forward_numba(a: Array, b: Array) -> Array:
    x = np.empty_like(b)
    for i in range(b.shape[0]):
        total = b[i]
        for j in range(i):
            total -= a[i, j] * x[j]
        x[i] = total / a[i, i]
    return x


# --- eigenvalues by cyclic Jacobi rotations --------------------------------------------------------------------------

SWEEPS = 2


def symmetric_matrix(n: int) -> tuple[Array, ...]:
    a = normal((n, n))
    return (a + a.T,)


def rotation(lib: Any, p: Any, q: Any, r: Any) -> Any:
    """The cosine and sine that make the element r between the diagonal elements p and q zero."""
    theta = (q - p) / (2.0 * r)
    t = 1.0 / (lib.abs(theta) + lib.sqrt(theta * theta + 1.0))
    t = lib.where(theta < 0.0, -t, t)
    c = 1.0 / lib.sqrt(t * t + 1.0)
    return c, t * c


def jacobi_numpy(a: Array) -> Array:
    a = a.copy()
    n = len(a)
    for _ in range(SWEEPS):
        for i in range(n - 1):
            for j in range(i + 1, n):
                c, s = rotation(np, a[i, i], a[j, j], a[i, j])
                a[i], a[j] = c * a[i] - s * a[j], s * a[i] + c * a[j]
                a[:, i], a[:, j] = c * a[:, i] - s * a[:, j], s * a[:, i] + c * a[:, j]
    return np.diagonal(a).copy()


def jacobi_livegrad(a: Any) -> Any:
    n = a.shape[0]

    def rotate(i: Any, j: Any, a: Any) -> Any:
        c, s = rotation(lg, a[i, i], a[j, j], a[i, j])
        first, second = c * a[i] - s * a[j], s * a[i] + c * a[j]
        a[i], a[j] = first, second
        first, second = c * a[:, i] - s * a[:, j], s * a[:, i] + c * a[:, j]
        a[:, i], a[:, j] = first, second
        return a

    def row(i: Any, a: Any) -> Any:
        return lg.fori_loop(i + 1, n, lambda j, a: rotate(i, j, a), a)

    return lg.linalg.diagonal(lg.fori_loop(0, SWEEPS, lambda _, a: lg.fori_loop(0, n - 1, row, a), a))


def jacobi_jax(a: Any) -> Any:
    n = a.shape[0]

    def rotate(i: Any, j: Any, a: Any) -> Any:
        c, s = rotation(jnp, a[i, i], a[j, j], a[i, j])
        first, second = c * a[i] - s * a[j], s * a[i] + c * a[j]
        a = a.at[i].set(first).at[j].set(second)
        first, second = c * a[:, i] - s * a[:, j], s * a[:, i] + c * a[:, j]
        return a.at[:, i].set(first).at[:, j].set(second)

    def row(i: Any, a: Any) -> Any:
        return lax.fori_loop(i + 1, n, lambda j, a: rotate(i, j, a), a)

    return jnp.diagonal(lax.fori_loop(0, SWEEPS, lambda _, a: lax.fori_loop(0, n - 1, row, a), a))


def jacobi_numba(a: Array) -> Array:
    a = a.copy()
    n = a.shape[0]
    for _ in range(SWEEPS):
        for i in range(n - 1):
            for j in range(i + 1, n):
                theta = (a[j, j] - a[i, i]) / (2.0 * a[i, j])
                t = 1.0 / (abs(theta) + np.sqrt(theta * theta + 1.0))
                if theta < 0.0:
                    t = -t
                c = 1.0 / np.sqrt(t * t + 1.0)
                s = t * c
                for k in range(n):
                    x, y = a[i, k], a[j, k]
                    a[i, k], a[j, k] = c * x - s * y, s * x + c * y
                for k in range(n):
                    x, y = a[k, i], a[k, j]
                    a[k, i], a[k, j] = c * x - s * y, s * x + c * y
    return np.diag(a).copy()


PROGRAMS = [
    Program(
        "householder", "QR of a {n} × {n} matrix by reflections", (48, 160, 768), 8,
        gram_schmidt_inputs, householder_numpy, householder_livegrad, householder_numba, householder_jax,
        parallel=True, tolerance=1e-6,
    ),
    Program(
        "gauss_jordan", "the inverse of a {n} × {n} matrix with pivots", (32, 110, 512), 7,
        dominant_matrix, gauss_jordan_numpy, gauss_jordan_livegrad, gauss_jordan_numba, gauss_jordan_jax,
        parallel=True, tolerance=1e-6,
    ),
    Program(
        "forward_substitution", "a triangular system of {n} unknowns, row by row", (60, 200, 2048), 9,
        triangular_inputs, forward_numpy, forward_livegrad, forward_numba, forward_jax,
    ),
    Program(
        "jacobi_rotations", "two sweeps of Jacobi rotations, {n} × {n}", (24, 64, 160), 6,
        symmetric_matrix, jacobi_numpy, jacobi_livegrad, jacobi_numba, jacobi_jax, tolerance=1e-6,
    ),
]  # fmt: skip
