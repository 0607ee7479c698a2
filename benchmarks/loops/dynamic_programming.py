"""Tables that are filled cell by cell from earlier cells."""

from typing import Any

import numpy as np

from benchmarks.loops.program import Array, Program, jnp, lax, lg, prange, random

# --- edit distance ---------------------------------------------------------------------------------------------------


def two_texts(n: int) -> tuple[Array, ...]:
    generator = np.random.default_rng(0)
    return generator.integers(0, 4, n), generator.integers(0, 4, n)


def edit_distance_numpy(s: Array, t: Array) -> Array:
    n, m = len(s), len(t)
    row = np.arange(m + 1)
    for i in range(1, n + 1):
        after = np.minimum(row[1:] + 1, row[:-1] + (s[i - 1] != t))
        # Insertions run along the row: a running minimum of (cost - place) gives all of them at once.
        after = np.concatenate([[i], after]) - np.arange(m + 1)
        row = np.minimum.accumulate(after) + np.arange(m + 1)
    return row


def edit_distance_livegrad(s: Any, t: Any) -> Any:
    n, m = s.shape[0], t.shape[0]
    table = lg.zeros((n + 1, m + 1), dtype=lg.int64)
    table[0], table[:, 0] = lg.arange(m + 1), lg.arange(n + 1)

    def row(i: Any, table: Any) -> Any:
        def cell(j: Any, table: Any) -> Any:
            change = table[i - 1, j - 1] + lg.astype(s[i - 1] != t[j - 1], lg.int64)
            table[i, j] = lg.minimum(change, lg.minimum(table[i - 1, j], table[i, j - 1]) + 1)
            return table

        return lg.fori_loop(1, m + 1, cell, table)

    return lg.fori_loop(1, n + 1, row, table)[n]


def edit_distance_jax(s: Any, t: Any) -> Any:
    positions = jnp.arange(t.shape[0] + 1)

    def row(before: Any, step: Any) -> Any:
        i, letter = step
        after = jnp.minimum(before[1:] + 1, before[:-1] + (letter != t))
        return lax.cummin(jnp.concatenate([i[None], after]) - positions) + positions, None

    return lax.scan(row, positions, (jnp.arange(1, s.shape[0] + 1), s))[0]


def edit_distance_numba(s: Array, t: Array) -> Array:
    n, m = s.shape[0], t.shape[0]
    before, after = np.arange(m + 1), np.empty(m + 1, np.int64)
    for i in range(1, n + 1):
        after[0] = i
        for j in range(1, m + 1):
            change = before[j - 1] + (s[i - 1] != t[j - 1])
            after[j] = min(change, min(before[j], after[j - 1]) + 1)
        before, after = after, before
    return before


# --- longest common subsequence --------------------------------------------------------------------------------------


def lcs_numpy(s: Array, t: Array) -> Array:
    row = np.zeros(len(t) + 1, np.int64)
    for letter in s:
        row[1:] = np.maximum.accumulate(np.maximum(row[1:], np.where(letter == t, row[:-1] + 1, 0)))
    return row


def lcs_livegrad(s: Any, t: Any) -> Any:
    n, m = s.shape[0], t.shape[0]

    def row(i: Any, table: Any) -> Any:
        def cell(j: Any, table: Any) -> Any:
            longer = lg.maximum(table[i, j + 1], table[i + 1, j])
            table[i + 1, j + 1] = lg.where(s[i] == t[j], table[i, j] + 1, longer)
            return table

        return lg.fori_loop(0, m, cell, table)

    return lg.fori_loop(0, n, row, lg.zeros((n + 1, m + 1), dtype=lg.int64))[n]


def lcs_jax(s: Any, t: Any) -> Any:
    def row(before: Any, letter: Any) -> Any:
        after = lax.cummax(jnp.maximum(before[1:], jnp.where(letter == t, before[:-1] + 1, 0)))
        return before.at[1:].set(after), None

    return lax.scan(row, jnp.zeros(t.shape[0] + 1, jnp.int64), s)[0]


def lcs_numba(s: Array, t: Array) -> Array:
    n, m = s.shape[0], t.shape[0]
    row = np.zeros(m + 1, np.int64)
    for i in range(n):
        diagonal = 0
        for j in range(m):
            above = row[j + 1]
            row[j + 1] = diagonal + 1 if s[i] == t[j] else max(above, row[j])
            diagonal = above
    return row


# --- knapsack --------------------------------------------------------------------------------------------------------


def knapsack_inputs(n: int) -> tuple[Array, ...]:
    """Weights and values of 20 things, and a table for each capacity below n."""
    generator = np.random.default_rng(0)
    return generator.integers(1, max(2, n // 10), 20), generator.random(20), np.zeros(n)


def knapsack_numpy(weights: Array, values: Array, best: Array) -> Array:
    best = best.copy()
    for weight, value in zip(weights, values, strict=True):
        best[weight:] = np.maximum(best[weight:], best[:-weight] + value)
    return best


def knapsack_livegrad(weights: Any, values: Any, best: Any) -> Any:
    n = best.shape[0]

    def thing(i: Any, best: Any) -> Any:
        def capacity(k: Any, best: Any) -> Any:
            c = n - 1 - k  # from the largest down: each thing is taken once
            best[c] = lg.maximum(best[c], best[c - weights[i]] + values[i])
            return best

        return lg.fori_loop(0, n - weights[i], capacity, best)

    return lg.fori_loop(0, weights.shape[0], thing, best)


def knapsack_jax(weights: Any, values: Any, best: Any) -> Any:
    capacities = jnp.arange(best.shape[0])

    def thing(best: Any, item: Any) -> Any:
        weight, value = item
        taken = jnp.where(capacities >= weight, jnp.roll(best, weight) + value, 0.0)
        return jnp.maximum(best, taken), None

    return lax.scan(thing, best, (weights, values))[0]


def knapsack_numba(weights: Array, values: Array, best: Array) -> Array:
    best = best.copy()
    for i in range(weights.shape[0]):
        for c in range(best.shape[0] - 1, weights[i] - 1, -1):
            best[c] = max(best[c], best[c - weights[i]] + values[i])
    return best


# --- the cheapest order of a chain of matrix products ----------------------------------------------------------------


def matrix_chain_inputs(n: int) -> tuple[Array, ...]:
    """Sizes: matrix i is sizes[i] × sizes[i + 1]."""
    return (np.random.default_rng(0).integers(1, 50, n + 1).astype(np.float64),)


def matrix_chain_numpy(sizes: Array) -> Array:
    n = len(sizes) - 1
    cost = np.zeros((n, n))
    for length in range(1, n):
        for i in range(n - length):
            j = i + length
            splits = cost[i, i:j] + cost[i + 1 : j + 1, j] + sizes[i] * sizes[i + 1 : j + 1] * sizes[j + 1]
            cost[i, j] = splits.min()
    return cost


def matrix_chain_livegrad(sizes: Any) -> Any:
    n = sizes.shape[0] - 1

    def diagonal(length: Any, cost: Any) -> Any:
        def pair(i: Any, cost: Any) -> Any:
            j = i + length

            def split(k: Any, best: Any) -> Any:
                return lg.minimum(best, cost[i, k] + cost[k + 1, j] + sizes[i] * sizes[k + 1] * sizes[j + 1])

            cost[i, j] = lg.fori_loop(i, j, split, float("inf"))
            return cost

        return lg.fori_loop(0, n - length, pair, cost)

    return lg.fori_loop(1, n, diagonal, lg.zeros((n, n), dtype=sizes.dtype))


def matrix_chain_jax(sizes: Any) -> Any:
    n = sizes.shape[0] - 1
    k = jnp.arange(n)

    def diagonal(length: Any, cost: Any) -> Any:
        i = k[:, None]
        j = jnp.minimum(i + length, n - 1)
        splits = cost + cost[jnp.minimum(k + 1, n - 1), j] + sizes[i] * sizes[k + 1] * sizes[j + 1]
        best = jnp.min(jnp.where((k >= i) & (k < j), splits, jnp.inf), axis=1)
        return cost.at[k, j[:, 0]].set(jnp.where(k + length < n, best, cost[k, j[:, 0]]))

    return lax.fori_loop(1, n, diagonal, jnp.zeros((n, n)))


def matrix_chain_numba(sizes: Array) -> Array:
    n = sizes.shape[0] - 1
    cost = np.zeros((n, n))
    for length in range(1, n):
        for i in prange(n - length):
            j = i + length
            best = np.inf
            for k in range(i, j):
                best = min(best, cost[i, k] + cost[k + 1, j] + sizes[i] * sizes[k + 1] * sizes[j + 1])
            cost[i, j] = best
    return cost


# --- Floyd–Warshall: shortest paths between all pairs ----------------------------------------------------------------


def distances(n: int) -> tuple[Array, ...]:
    return (random((n, n)),)


def floyd_warshall_numpy(d: Array) -> Array:
    for k in range(len(d)):
        d = np.minimum(d, d[:, k, None] + d[k])
    return d


def floyd_warshall_livegrad(d: Any) -> Any:
    n = d.shape[0]

    def through(k: Any, d: Any) -> Any:
        def row(i: Any, d: Any) -> Any:
            d[i] = lg.minimum(d[i], d[i, k] + d[k])
            return d

        return lg.fori_loop(0, n, row, d)

    return lg.fori_loop(0, n, through, d)


def floyd_warshall_jax(d: Any) -> Any:
    return lax.fori_loop(0, d.shape[0], lambda k, d: jnp.minimum(d, d[:, k, None] + d[k]), d)


def floyd_warshall_numba(d: Array) -> Array:
    d = d.copy()
    n = d.shape[0]
    for k in range(n):
        for i in prange(n):
            first = d[i, k]
            for j in range(n):
                d[i, j] = min(d[i, j], first + d[k, j])
    return d


PROGRAMS = [
    Program(
        "edit_distance", "edit distance of two texts of {n} letters", (40, 120, 3000), 9,
        two_texts, edit_distance_numpy, edit_distance_livegrad, edit_distance_numba, edit_distance_jax,
    ),
    Program(
        "lcs", "longest common subsequence of two texts of {n} letters", (40, 120, 3000), 9,
        two_texts, lcs_numpy, lcs_livegrad, lcs_numba, lcs_jax,
    ),
    Program(
        "knapsack", "knapsack of 20 things, capacities below {n}", (1000, 10_000, 2_000_000), 40,
        knapsack_inputs, knapsack_numpy, knapsack_livegrad, knapsack_numba, knapsack_jax,
    ),
    Program(
        "matrix_chain", "the cheapest order of {n} matrix products", (50, 160, 800), 8,
        matrix_chain_inputs, matrix_chain_numpy, matrix_chain_livegrad, matrix_chain_numba, matrix_chain_jax,
        parallel=True,
    ),
    Program(
        "floyd_warshall", "shortest paths between {n} places", (48, 160, 1024), 8,
        distances, floyd_warshall_numpy, floyd_warshall_livegrad, floyd_warshall_numba, floyd_warshall_jax,
        parallel=True, today=(48, 160, 272),
    ),
]  # fmt: skip
