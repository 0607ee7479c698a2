"""Sequence models: recurrent networks, hidden states, and an ODE whose steps adapt."""

from typing import Any

import numpy as np

from benchmarks.loops.program import Array, Program, jnp, lax, lg, normal, prange, random

LENGTH = 32  # steps of a recurrent network
BATCH = 8

# --- a recurrent network ---------------------------------------------------------------------------------------------


def rnn_inputs(n: int) -> tuple[Array, ...]:
    """Inputs by time, weights of the input and of the state."""
    return normal((LENGTH, BATCH, n)), normal((n, n), 1) / np.sqrt(n), normal((n, n), 2) / np.sqrt(n)


def rnn_numpy(x: Array, w: Array, u: Array) -> Array:
    h = np.zeros(x.shape[1:])
    outputs = np.zeros_like(x)
    for t in range(len(x)):
        h = np.tanh(x[t] @ w + h @ u)
        outputs[t] = h
    return outputs


def rnn_livegrad(x: Any, w: Any, u: Any) -> Any:
    def step(t: Any, state: Any) -> Any:
        h, outputs = state
        h = lg.tanh(x[t] @ w + h @ u)
        outputs[t] = h
        return h, outputs

    return lg.fori_loop(0, x.shape[0], step, (lg.zeros_like(x[0]), lg.zeros_like(x)))[1]


def rnn_jax(x: Any, w: Any, u: Any) -> Any:
    def step(h: Any, x: Any) -> Any:
        h = jnp.tanh(x @ w + h @ u)
        return h, h

    return lax.scan(step, jnp.zeros(x.shape[1:]), x)[1]


def rnn_numba(x: Array, w: Array, u: Array) -> Array:
    h = np.zeros_like(x[0])
    outputs = np.zeros_like(x)
    for t in range(x.shape[0]):
        h = np.tanh(np.dot(x[t], w) + np.dot(h, u))
        outputs[t] = h
    return outputs


# --- an LSTM ---------------------------------------------------------------------------------------------------------


def lstm_inputs(n: int) -> tuple[Array, ...]:
    return normal((LENGTH, BATCH, n)), normal((n, 4 * n), 1) / np.sqrt(n), normal((n, 4 * n), 2) / np.sqrt(n)


def lstm_cell(sigmoid: Any, tanh: Any, gates: Any, c: Any) -> Any:
    """The four gates side by side, and the cell; gives the output and the new cell."""
    n = c.shape[-1]
    enter, forget, out, new = (gates[:, k * n : (k + 1) * n] for k in range(4))
    c = sigmoid(forget) * c + sigmoid(enter) * tanh(new)
    return sigmoid(out) * tanh(c), c


def lstm_numpy(x: Array, w: Array, u: Array) -> Array:
    h, c = np.zeros(x.shape[1:]), np.zeros(x.shape[1:])
    for t in range(len(x)):
        h, c = lstm_cell(lambda v: 1.0 / (1.0 + np.exp(-v)), np.tanh, x[t] @ w + h @ u, c)
    return h


def lstm_livegrad(x: Any, w: Any, u: Any) -> Any:
    def step(state: Any, x: Any) -> Any:
        h, c = state
        return lstm_cell(lg.sigmoid, lg.tanh, x @ w + h @ u, c), None

    return lg.scan(step, (lg.zeros_like(x[0]), lg.zeros_like(x[0])), x)[0][0]


def lstm_jax(x: Any, w: Any, u: Any) -> Any:
    def step(state: Any, x: Any) -> Any:
        h, c = state
        return lstm_cell(lambda v: 1.0 / (1.0 + jnp.exp(-v)), jnp.tanh, x @ w + h @ u, c), None

    return lax.scan(step, (jnp.zeros(x.shape[1:]), jnp.zeros(x.shape[1:])), x)[0][0]


def lstm_numba(x: Array, w: Array, u: Array) -> Array:
    h, c = np.zeros_like(x[0]), np.zeros_like(x[0])
    rows, n = h.shape
    for t in range(x.shape[0]):
        gates = np.dot(x[t], w) + np.dot(h, u)
        for r in range(rows):
            for i in range(n):
                enter = 1.0 / (1.0 + np.exp(-gates[r, i]))
                forget = 1.0 / (1.0 + np.exp(-gates[r, n + i]))
                out = 1.0 / (1.0 + np.exp(-gates[r, 2 * n + i]))
                c[r, i] = forget * c[r, i] + enter * np.tanh(gates[r, 3 * n + i])
                h[r, i] = out * np.tanh(c[r, i])
    return h


# --- Viterbi: the likeliest path through hidden states ---------------------------------------------------------------

HIDDEN = 16


def viterbi_inputs(n: int) -> tuple[Array, ...]:
    """Logarithms: of going from one state to another, and of what is seen at each time."""
    return np.log(random((HIDDEN, HIDDEN)) + 0.01), np.log(random((n, HIDDEN), 1) + 0.01)


def viterbi_numpy(moves: Array, seen: Array) -> Array:
    n = len(seen)
    score, origin, path = seen[0], np.zeros(seen.shape, np.int64), np.zeros(n, np.int64)
    for t in range(1, n):
        total = score[:, None] + moves
        origin[t] = total.argmax(axis=0)
        score = total.max(axis=0) + seen[t]
    path[-1] = score.argmax()
    for t in range(n - 1, 0, -1):
        path[t - 1] = origin[t, path[t]]
    return path


def viterbi_livegrad(moves: Any, seen: Any) -> Any:
    n = seen.shape[0]

    def forward(t: Any, state: Any) -> Any:
        score, origin = state
        total = score[:, None] + moves
        origin[t] = lg.argmax(total, axis=0)
        return lg.max(total, axis=0) + seen[t], origin

    score, origin = lg.fori_loop(1, n, forward, (seen[0], lg.zeros(seen.shape, dtype=lg.int64)))
    path = lg.zeros(n, dtype=lg.int64)
    path[n - 1] = lg.argmax(score)

    def backward(k: Any, path: Any) -> Any:
        t = n - 1 - k
        path[t - 1] = origin[t, path[t]]
        return path

    return lg.fori_loop(0, n - 1, backward, path)


def viterbi_jax(moves: Any, seen: Any) -> Any:
    def forward(score: Any, seen: Any) -> Any:
        total = score[:, None] + moves
        return jnp.max(total, axis=0) + seen, jnp.argmax(total, axis=0)

    def backward(state: Any, origin: Any) -> Any:
        before = origin[state]
        return before, before

    score, origins = lax.scan(forward, seen[0], seen[1:])
    last = jnp.argmax(score)
    return jnp.append(lax.scan(backward, last, origins, reverse=True)[1], last)


def viterbi_numba(moves: Array, seen: Array) -> Array:
    n, states = seen.shape
    score, after = seen[0].copy(), np.empty(states)
    origin, path = np.zeros((n, states), np.int64), np.zeros(n, np.int64)
    for t in range(1, n):
        for j in range(states):
            best, state = score[0] + moves[0, j], 0
            for i in range(1, states):
                value = score[i] + moves[i, j]
                if value > best:
                    best, state = value, i
            origin[t, j] = state
            after[j] = best + seen[t, j]
        score, after = after, score
    path[n - 1] = np.argmax(score)
    for t in range(n - 1, 0, -1):
        path[t - 1] = origin[t, path[t]]
    return path


# --- an adaptive ODE: Van der Pol oscillators by Bogacki and Shampine, steps chosen by the error ---------------------


def oscillators(n: int) -> tuple[Array, ...]:
    return (normal((2, n)),)


def advance(stack: Any, largest: Any, smallest: Any, t: Any, h: Any, s: Any) -> Any:
    """One step: what is reached, the error relative to what is allowed, and the next step's length."""

    def rate(s: Any) -> Any:
        x, v = s[0], s[1]
        return stack([v, (1.0 - x * x) * v - x])

    k1 = rate(s)
    k2 = rate(s + 0.5 * h * k1)
    k3 = rate(s + 0.75 * h * k2)
    reached = s + h * (2.0 * k1 + 3.0 * k2 + 4.0 * k3) / 9.0
    k4 = rate(reached)
    error = largest(h * (-5.0 * k1 + 6.0 * k2 + 8.0 * k3 - 9.0 * k4) / 72.0) / 1e-5
    return reached, error, h * smallest(5.0, 0.9 * (error + 1e-12) ** (-1.0 / 3.0))


def ode_numpy(s: Array) -> Array:
    t, h = 0.0, 0.01
    while t < 5.0:
        h = min(h, 5.0 - t)
        reached, error, after = advance(np.stack, lambda e: np.max(np.abs(e)), min, t, h, s)
        if error <= 1.0:
            t, s = t + h, reached
        h = after
    return s


def ode_livegrad(s: Any) -> Any:
    def step(state: Any) -> Any:
        t, h, s = state
        h = lg.minimum(h, 5.0 - t)
        reached, error, after = advance(lg.stack, lambda e: lg.max(lg.abs(e)), lg.minimum, t, h, s)
        is_good = error <= 1.0
        return lg.where(is_good, t + h, t), after, lg.where(is_good, reached, s)

    start = lg.asarray(0.0, dtype=s.dtype), lg.asarray(0.01, dtype=s.dtype), s
    return lg.while_loop(lambda state: state[0] < 5.0, step, start)[2]


def ode_jax(s: Any) -> Any:
    def step(state: Any) -> Any:
        t, h, s = state
        h = jnp.minimum(h, 5.0 - t)
        reached, error, after = advance(jnp.stack, lambda e: jnp.max(jnp.abs(e)), jnp.minimum, t, h, s)
        is_good = error <= 1.0
        return jnp.where(is_good, t + h, t), after, jnp.where(is_good, reached, s)

    return lax.while_loop(lambda state: state[0] < 5.0, step, (0.0, 0.01, s))[2]


def ode_numba(s: Array) -> Array:
    s, reached = s.copy(), np.empty_like(s)
    n = s.shape[1]
    t, h = 0.0, 0.01
    while t < 5.0:
        h = min(h, 5.0 - t)
        errors = np.zeros(n)
        for i in prange(n):
            x, v = s[0, i], s[1, i]
            a1, b1 = v, (1.0 - x * x) * v - x
            p, q = x + 0.5 * h * a1, v + 0.5 * h * b1
            a2, b2 = q, (1.0 - p * p) * q - p
            p, q = x + 0.75 * h * a2, v + 0.75 * h * b2
            a3, b3 = q, (1.0 - p * p) * q - p
            p, q = x + h * (2.0 * a1 + 3.0 * a2 + 4.0 * a3) / 9.0, v + h * (2.0 * b1 + 3.0 * b2 + 4.0 * b3) / 9.0
            a4, b4 = q, (1.0 - p * p) * q - p
            reached[0, i], reached[1, i] = p, q
            first = abs(h * (-5.0 * a1 + 6.0 * a2 + 8.0 * a3 - 9.0 * a4) / 72.0)
            errors[i] = max(first, abs(h * (-5.0 * b1 + 6.0 * b2 + 8.0 * b3 - 9.0 * b4) / 72.0))
        error = np.max(errors) / 1e-5
        if error <= 1.0:
            t += h
            s, reached = reached, s
        h = h * min(5.0, 0.9 * (error + 1e-12) ** (-1.0 / 3.0))
    return s


PROGRAMS = [
    Program(
        "rnn", "a recurrent network of {n} units, 32 steps", (16, 64, 768), 4,
        rnn_inputs, rnn_numpy, rnn_livegrad, rnn_numba, rnn_jax,
    ),
    Program(
        "lstm", "an LSTM of {n} units, 32 steps", (8, 48, 512), 4,
        lstm_inputs, lstm_numpy, lstm_livegrad, lstm_numba, lstm_jax,
    ),
    Program(
        "viterbi", "the likeliest path of {n} steps through 16 states", (100, 1500, 200_000), 9,
        viterbi_inputs, viterbi_numpy, viterbi_livegrad, viterbi_numba, viterbi_jax, today=(100, 1500, 30_000),
    ),
    Program(
        "adaptive_ode", "{n} oscillators, steps chosen by the error", (500, 10_000, 500_000), 5,
        oscillators, ode_numpy, ode_livegrad, ode_numba, ode_jax, parallel=True, tolerance=1e-6,
    ),
]  # fmt: skip
