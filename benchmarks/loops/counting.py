"""Counting, sorting and grouping: writes to computed places, and loops that end early."""

from typing import Any

import numpy as np

from benchmarks.loops.program import Array, Program, jax, jnp, lax, lg, normal, prange, random

# --- histogram -------------------------------------------------------------------------------------------------------

BINS = 64


def values_in_range(n: int) -> tuple[Array, ...]:
    return (random(n),)


def histogram_numpy(x: Array) -> Array:
    return np.bincount((x * BINS).astype(np.int64), minlength=BINS)


def histogram_livegrad(x: Any) -> Any:
    def count(i: Any, counts: Any) -> Any:
        counts[lg.astype(x[i] * BINS, lg.int64)] += 1
        return counts

    return lg.fori_loop(0, x.shape[0], count, lg.zeros(BINS, dtype=lg.int64))


def histogram_jax(x: Any) -> Any:
    return jnp.bincount((x * BINS).astype(jnp.int64), length=BINS)


def histogram_numba(x: Array) -> Array:
    counts = np.zeros(BINS, np.int64)
    for i in range(x.shape[0]):
        counts[int(x[i] * BINS)] += 1
    return counts


# --- the mean of each group ------------------------------------------------------------------------------------------

GROUPS = 100


def groups_inputs(n: int) -> tuple[Array, ...]:
    return np.concatenate([np.arange(GROUPS), np.random.default_rng(0).integers(0, GROUPS, n)]), random(n + GROUPS, 1)


def group_means_numpy(keys: Array, values: Array) -> Array:
    return np.bincount(keys, values, GROUPS) / np.bincount(keys, minlength=GROUPS)


def group_means_livegrad(keys: Any, values: Any) -> Any:
    def add(i: Any, state: Any) -> Any:
        totals, counts = state
        totals[keys[i]] += values[i]
        counts[keys[i]] += 1.0
        return totals, counts

    start = lg.zeros(GROUPS, dtype=values.dtype)
    totals, counts = lg.fori_loop(0, keys.shape[0], add, (start, start))
    return totals / counts


def group_means_jax(keys: Any, values: Any) -> Any:
    zeros = jnp.zeros(GROUPS)
    return zeros.at[keys].add(values) / zeros.at[keys].add(1.0)


def group_means_numba(keys: Array, values: Array) -> Array:
    totals, counts = np.zeros(GROUPS), np.zeros(GROUPS)
    for i in range(keys.shape[0]):
        totals[keys[i]] += values[i]
        counts[keys[i]] += 1.0
    return totals / counts


# --- prime sieve -----------------------------------------------------------------------------------------------------


def sieve_inputs(n: int) -> tuple[Array, ...]:
    """One for each number that may be prime."""
    candidates = np.ones(n, np.int8)
    candidates[:2] = 0
    return (candidates,)


def sieve_numpy(prime: Array) -> Array:
    prime = prime.copy()
    for i in range(2, int(len(prime) ** 0.5) + 1):
        if prime[i]:
            prime[i * i :: i] = 0
    return prime


def sieve_livegrad(prime: Any) -> Any:
    n = prime.shape[0]

    def strike_multiples(i: Any, prime: Any) -> Any:
        def strike(k: Any, prime: Any) -> Any:
            prime[i * k] = 0
            return prime

        return lg.fori_loop(i, lg.where(prime[i] == 1, (n - 1) // i + 1, i), strike, prime)

    return lg.fori_loop(2, int(n**0.5) + 1, strike_multiples, prime)


def sieve_jax(prime: Any) -> Any:
    n = prime.shape[0]
    numbers = jnp.arange(n)

    def strike_multiples(i: Any, prime: Any) -> Any:
        return jnp.where((prime[i] == 1) & (numbers >= i * i) & (numbers % i == 0), 0, prime).astype(jnp.int8)

    return lax.fori_loop(2, int(n**0.5) + 1, strike_multiples, prime)


def sieve_numba(prime: Array) -> Array:
    prime = prime.copy()
    n = prime.shape[0]
    for i in range(2, int(n**0.5) + 1):
        if prime[i]:
            for j in range(i * i, n, i):
                prime[j] = 0
    return prime


# --- Collatz: how many steps each number takes to one ----------------------------------------------------------------


def first_numbers(n: int) -> tuple[Array, ...]:
    return (np.arange(1, n + 1),)


def collatz_numpy(numbers: Array) -> Array:
    lengths, x = np.zeros_like(numbers), numbers
    while np.any(x > 1):
        lengths += x > 1
        x = np.where(x > 1, np.where(x % 2 == 0, x // 2, 3 * x + 1), x)
    return lengths


def collatz_livegrad(numbers: Any) -> Any:
    def length(x: Any) -> Any:
        def step(state: Any) -> Any:
            x, count = state
            return lg.where(x % 2 == 0, x // 2, 3 * x + 1), count + 1

        return lg.while_loop(lambda state: state[0] > 1, step, (x, lg.zeros_like(x)))[1]

    return lg.vmap(length)(numbers)


def collatz_jax(numbers: Any) -> Any:
    def length(x: Any) -> Any:
        def step(state: Any) -> Any:
            x, count = state
            return jnp.where(x % 2 == 0, x // 2, 3 * x + 1), count + 1

        return lax.while_loop(lambda state: state[0] > 1, step, (x, 0))[1]

    return jax.vmap(length)(numbers)


def collatz_numba(numbers: Array) -> Array:
    lengths = np.zeros_like(numbers)
    for i in prange(numbers.shape[0]):
        x, count = numbers[i], 0
        while x > 1:
            x = x // 2 if x % 2 == 0 else 3 * x + 1
            count += 1
        lengths[i] = count
    return lengths


# --- a bitonic sorting network ---------------------------------------------------------------------------------------


def unsorted(n: int) -> tuple[Array, ...]:
    return (normal(n),)


def compare_with_partner(xp: Any, x: Any, positions: Any, block: Any, distance: Any) -> Any:
    """One layer of the network: each element meets the one `distance` away; blocks alternate in direction."""
    other = x[positions ^ distance]
    keeps_smaller = ((positions & distance) == 0) == ((positions & block) == 0)
    return xp.where(keeps_smaller, xp.minimum(x, other), xp.maximum(x, other))


def sorting_network_numpy(x: Array) -> Array:
    positions, levels = np.arange(len(x)), len(x).bit_length() - 1
    for level in range(levels):
        for layer in range(level, -1, -1):
            x = compare_with_partner(np, x, positions, 2 << level, 1 << layer)
    return x


def sorting_network_livegrad(x: Any) -> Any:
    positions, levels = lg.arange(x.shape[0]), x.shape[0].bit_length() - 1
    one = lg.asarray(1)

    def merge(level: Any, x: Any) -> Any:
        def layer(k: Any, x: Any) -> Any:
            return compare_with_partner(lg, x, positions, (one + 1) << level, one << (level - k))

        return lg.fori_loop(0, level + 1, layer, x)

    return lg.fori_loop(0, levels, merge, x)


def sorting_network_jax(x: Any) -> Any:
    positions, levels = jnp.arange(x.shape[0]), x.shape[0].bit_length() - 1

    def merge(level: Any, x: Any) -> Any:
        def layer(k: Any, x: Any) -> Any:
            return compare_with_partner(jnp, x, positions, 2 << level, 1 << (level - k))

        return lax.fori_loop(0, level + 1, layer, x)

    return lax.fori_loop(0, levels, merge, x)


def sorting_network_numba(x: Array) -> Array:
    x = x.copy()
    n = x.shape[0]
    block = 2
    while block <= n:
        distance = block // 2
        while distance > 0:
            for pair in prange(n // 2):
                i = 2 * distance * (pair // distance) + pair % distance
                j = i + distance
                if (x[i] > x[j]) == ((i & block) == 0):
                    x[i], x[j] = x[j], x[i]
            distance //= 2
        block *= 2
    return x


# --- distances to the eight nearest neighbours -----------------------------------------------------------------------

NEAREST = 8


def queries_and_points(n: int) -> tuple[Array, ...]:
    return normal((64, 3)), normal((n, 3), 1)


def neighbours_numpy(queries: Array, points: Array) -> Array:
    squares = np.sum((queries[:, None] - points) ** 2, axis=-1)
    return np.sort(np.partition(squares, NEAREST, axis=1)[:, :NEAREST], axis=1)


def neighbours_livegrad(queries: Any, points: Any) -> Any:
    squares = lg.sum((queries[:, None] - points) ** 2, axis=-1)
    return lg.top_k(squares, NEAREST, largest=False)[0]


def neighbours_jax(queries: Any, points: Any) -> Any:
    squares = jnp.sum((queries[:, None] - points) ** 2, axis=-1)
    return -lax.top_k(-squares, NEAREST)[0]


def neighbours_numba(queries: Array, points: Array) -> Array:
    result = np.full((queries.shape[0], NEAREST), np.inf)
    for q in prange(queries.shape[0]):
        best = result[q]
        for i in range(points.shape[0]):
            square = 0.0
            for c in range(3):
                square += (queries[q, c] - points[i, c]) ** 2
            if square < best[NEAREST - 1]:
                k = NEAREST - 1
                while k > 0 and best[k - 1] > square:
                    best[k] = best[k - 1]
                    k -= 1
                best[k] = square
    return result


PROGRAMS = [
    Program(
        "histogram", "{n} numbers counted into 64 bins", (1000, 50_000, 5_000_000), 50,
        values_in_range, histogram_numpy, histogram_livegrad, histogram_numba, histogram_jax,
    ),
    Program(
        "group_means", "the means of 100 groups of {n} values", (1000, 20_000, 2_000_000), 50,
        groups_inputs, group_means_numpy, group_means_livegrad, group_means_numba, group_means_jax,
    ),
    Program(
        "sieve", "primes below {n}", (5000, 50_000, 2_000_000), 50,
        sieve_inputs, sieve_numpy, sieve_livegrad, sieve_numba, sieve_jax,
    ),
    Program(
        "collatz", "lengths of {n} Collatz sequences", (1000, 20_000, 1_000_000), 20,
        first_numbers, collatz_numpy, collatz_livegrad, collatz_numba, collatz_jax, parallel=True,
    ),
    Program(
        "sorting_network", "{n} numbers through a bitonic network", (1024, 16_384, 1_048_576), 16,
        unsorted, sorting_network_numpy, sorting_network_livegrad, sorting_network_numba, sorting_network_jax,
        parallel=True,
    ),
    Program(
        "neighbours", "the 8 nearest of {n} points to each of 64", (50, 800, 100_000), 20,
        queries_and_points, neighbours_numpy, neighbours_livegrad, neighbours_numba, neighbours_jax, parallel=True,
    ),
]  # fmt: skip
