"""Series with small or growing matrices: a Kalman filter, attention with a cache, linear prediction."""

from typing import Any

import numpy as np

from benchmarks.loops.program import Array, Program, jnp, lax, lg, normal

# --- a Kalman filter over a series of measurements -------------------------------------------------------------------

STATES, MEASURED = 4, 2
TURN = np.array([[1.0, 0.1, 0.0, 0.0], [0.0, 0.99, 0.0, 0.05], [0.0, 0.0, 1.0, 0.1], [0.0, -0.05, 0.0, 0.99]])
SEEN = np.array([[1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0]])


def kalman_inputs(n: int) -> tuple[Array, ...]:
    return TURN, SEEN, np.cumsum(normal((n, MEASURED)), axis=0)


def kalman_step(x: Any, p: Any, z: Any, turn: Any, seen: Any, eye: Any) -> Any:
    """The state and its covariance after a prediction and a measurement of two numbers."""
    x, p = turn @ x, turn @ p @ turn.T + 0.01 * eye
    s = seen @ p @ seen.T + 0.1 * eye[:MEASURED, :MEASURED]
    determinant = s[0, 0] * s[1, 1] - s[0, 1] * s[1, 0]
    cross = p @ seen.T
    first = (cross[:, 0] * s[1, 1] - cross[:, 1] * s[1, 0]) / determinant
    second = (cross[:, 1] * s[0, 0] - cross[:, 0] * s[0, 1]) / determinant
    miss = z - seen @ x
    x = x + first * miss[0] + second * miss[1]
    seen_p = seen @ p
    return x, p - first[:, None] * seen_p[0][None, :] - second[:, None] * seen_p[1][None, :]


def kalman_numpy(turn: Array, seen: Array, z: Array) -> Array:
    x, p, eye = np.zeros(STATES), np.eye(STATES), np.eye(STATES)
    path = np.zeros((len(z), STATES))
    for t in range(len(z)):
        x, p = kalman_step(x, p, z[t], turn, seen, eye)
        path[t] = x
    return path


def kalman_livegrad(turn: Any, seen: Any, z: Any) -> Any:
    eye = lg.eye(STATES, dtype=z.dtype)

    def step(state: Any, z: Any) -> Any:
        x, p = kalman_step(state[0], state[1], z, turn, seen, eye)
        return (x, p), x

    return lg.scan(step, (lg.zeros(STATES, dtype=z.dtype), eye), z)[1]


def kalman_jax(turn: Any, seen: Any, z: Any) -> Any:
    eye = jnp.eye(STATES)

    def step(state: Any, z: Any) -> Any:
        x, p = kalman_step(state[0], state[1], z, turn, seen, eye)
        return (x, p), x

    return lax.scan(step, (jnp.zeros(STATES), eye), z)[1]


def kalman_numba(turn: Array, seen: Array, z: Array) -> Array:
    x, p = np.zeros(4), np.eye(4)
    path = np.zeros((z.shape[0], 4))
    t, q, gain = np.zeros((4, 4)), np.zeros(4), np.zeros((4, 2))
    for step in range(z.shape[0]):
        for i in range(4):
            q[i] = 0.0
            for j in range(4):
                q[i] += turn[i, j] * x[j]
                t[i, j] = 0.0
                for k in range(4):
                    t[i, j] += turn[i, k] * p[k, j]
        for i in range(4):
            for j in range(4):
                p[i, j] = 0.01 if i == j else 0.0
                for k in range(4):
                    p[i, j] += t[i, k] * turn[j, k]
        a, b, c, d = p[0, 0] + 0.1, p[0, 2], p[2, 0], p[2, 2] + 0.1
        determinant = a * d - b * c
        for i in range(4):
            gain[i, 0] = (p[i, 0] * d - p[i, 2] * c) / determinant
            gain[i, 1] = (p[i, 2] * a - p[i, 0] * b) / determinant
        first, second = z[step, 0] - q[0], z[step, 1] - q[2]
        for i in range(4):
            x[i] = q[i] + gain[i, 0] * first + gain[i, 1] * second
            path[step, i] = x[i]
            for j in range(4):
                t[i, j] = p[i, j] - gain[i, 0] * p[0, j] - gain[i, 1] * p[2, j]
        p[:, :] = t
    return path


# --- attention of one token at a time, with keys and values kept -----------------------------------------------------

WIDTH = 64


def attention_inputs(n: int) -> tuple[Array, ...]:
    """Tokens, and weights of queries, keys and values."""
    return normal((n, WIDTH)), *[normal((WIDTH, WIDTH), 1 + k) / np.sqrt(WIDTH) for k in range(3)]


def attention_numpy(x: Array, wq: Array, wk: Array, wv: Array) -> Array:
    n = len(x)
    keys, values, out = np.zeros_like(x), np.zeros_like(x), np.zeros_like(x)
    for t in range(n):
        keys[t], values[t] = x[t] @ wk, x[t] @ wv
        scores = keys[: t + 1] @ (x[t] @ wq) / np.sqrt(WIDTH)
        weights = np.exp(scores - np.max(scores))
        out[t] = weights @ values[: t + 1] / np.sum(weights)
    return out


def attention_livegrad(x: Any, wq: Any, wk: Any, wv: Any) -> Any:
    places = lg.arange(x.shape[0])

    def token(t: Any, state: Any) -> Any:
        keys, values, out = state
        keys[t], values[t] = x[t] @ wk, x[t] @ wv
        scores = lg.where(places <= t, keys @ (x[t] @ wq) / np.sqrt(WIDTH), -np.inf)
        weights = lg.exp(scores - lg.max(scores))
        out[t] = weights @ values / lg.sum(weights)
        return keys, values, out

    return lg.fori_loop(0, x.shape[0], token, (lg.zeros_like(x), lg.zeros_like(x), lg.zeros_like(x)))[2]


def attention_jax(x: Any, wq: Any, wk: Any, wv: Any) -> Any:
    places = jnp.arange(x.shape[0])

    def token(t: Any, state: Any) -> Any:
        keys, values, out = state
        keys, values = keys.at[t].set(x[t] @ wk), values.at[t].set(x[t] @ wv)
        scores = jnp.where(places <= t, keys @ (x[t] @ wq) / np.sqrt(WIDTH), -jnp.inf)
        weights = jnp.exp(scores - jnp.max(scores))
        return keys, values, out.at[t].set(weights @ values / jnp.sum(weights))

    return lax.fori_loop(0, x.shape[0], token, (jnp.zeros_like(x), jnp.zeros_like(x), jnp.zeros_like(x)))[2]


def attention_numba(x: Array, wq: Array, wk: Array, wv: Array) -> Array:
    n, width = x.shape
    keys, values, out = np.zeros_like(x), np.zeros_like(x), np.zeros_like(x)
    scores, query = np.empty(n), np.empty(width)
    for t in range(n):
        query[:] = 0.0
        for i in range(width):
            for j in range(width):
                query[j] += x[t, i] * wq[i, j]
                keys[t, j] += x[t, i] * wk[i, j]
                values[t, j] += x[t, i] * wv[i, j]
        best = -np.inf
        for s in range(t + 1):
            total = 0.0
            for j in range(width):
                total += keys[s, j] * query[j]
            scores[s] = total / np.sqrt(width)
            best = max(best, scores[s])
        total = 0.0
        for s in range(t + 1):
            weight = np.exp(scores[s] - best)
            total += weight
            for j in range(width):
                out[t, j] += weight * values[s, j]
        for j in range(width):
            out[t, j] /= total
    return out


# --- Levinson–Durbin: prediction coefficients from autocorrelations --------------------------------------------------


def levinson_inputs(n: int) -> tuple[Array, ...]:
    return (np.exp(-0.1 * np.arange(n + 1.0)) + np.where(np.arange(n + 1) == 0, 0.5, 0.0),)


def levinson_numpy(r: Array) -> Array:
    n = len(r) - 1
    a, error = np.zeros(n), r[0]
    for k in range(n):
        reflection = -(r[k + 1] + a[:k] @ r[k:0:-1]) / error
        a[:k] += reflection * a[:k][::-1]
        a[k] = reflection
        error *= 1.0 - reflection * reflection
    return a


def levinson_livegrad(r: Any) -> Any:
    n = r.shape[0] - 1
    places = lg.arange(n)

    def order(k: Any, state: Any) -> Any:
        a, error = state
        inside = places < k
        turned = lg.where(inside, lg.take(r, lg.where(inside, k - places, 0)), 0.0)
        reflection = -(r[k + 1] + a @ turned) / error
        a = a + reflection * lg.where(inside, lg.take(a, lg.where(inside, k - 1 - places, 0)), 0.0)
        a[k] = reflection
        return a, error * (1.0 - reflection * reflection)

    return lg.fori_loop(0, n, order, (lg.zeros(n, dtype=r.dtype), r[0]))[0]


def levinson_jax(r: Any) -> Any:
    n = r.shape[0] - 1
    places = jnp.arange(n)

    def order(k: Any, state: Any) -> Any:
        a, error = state
        inside = places < k
        turned = jnp.where(inside, r[jnp.where(inside, k - places, 0)], 0.0)
        reflection = -(r[k + 1] + a @ turned) / error
        a = a + reflection * jnp.where(inside, a[jnp.where(inside, k - 1 - places, 0)], 0.0)
        return a.at[k].set(reflection), error * (1.0 - reflection * reflection)

    return lax.fori_loop(0, n, order, (jnp.zeros(n), r[0]))[0]


def levinson_numba(r: Array) -> Array:
    n = r.shape[0] - 1
    a, before, error = np.zeros(n), np.zeros(n), r[0]
    for k in range(n):
        total = r[k + 1]
        for j in range(k):
            total += a[j] * r[k - j]
        reflection = -total / error
        for j in range(k):
            before[j] = a[j]
        for j in range(k):
            a[j] += reflection * before[k - 1 - j]
        a[k] = reflection
        error *= 1.0 - reflection * reflection
    return a


PROGRAMS = [
    Program(
        "kalman", "a Kalman filter over {n} measurements", (100, 2000, 200_000), 9,
        kalman_inputs, kalman_numpy, kalman_livegrad, kalman_numba, kalman_jax, interpreted=True, tolerance=1e-6,
    ),
    Program(
        "attention_cache", "attention of {n} tokens, one by one, with kept keys and values", (16, 128, 1024), 6,
        attention_inputs, attention_numpy, attention_livegrad, attention_numba, attention_jax,
    ),
    Program(
        "levinson", "Levinson–Durbin of order {n}", (100, 600, 4000), 9,
        levinson_inputs, levinson_numpy, levinson_livegrad, levinson_numba, levinson_jax, tolerance=1e-7,
    ),
]  # fmt: skip
