"""Points that each run a loop of their own: searches, roots, walks and automata that end at different times."""

from typing import Any

import numpy as np

from benchmarks.loops.program import Array, Program, jax, jnp, lax, lg, prange, random

# --- Euclid's algorithm ----------------------------------------------------------------------------------------------


def pairs_of_integers(n: int) -> tuple[Array, ...]:
    generator = np.random.default_rng(0)
    return generator.integers(1, 1_000_000, n), generator.integers(1, 1_000_000, n)


def gcd_numpy(a: Array, b: Array) -> Array:
    while np.any(b != 0):
        rest = np.where(b == 0, 0, a % np.where(b == 0, 1, b))
        a, b = np.where(b == 0, a, b), rest
    return a


def gcd_livegrad(a: Any, b: Any) -> Any:
    def divisor(a: Any, b: Any) -> Any:
        return lg.while_loop(lambda state: state[1] != 0, lambda state: (state[1], state[0] % state[1]), (a, b))[0]

    return lg.vmap(divisor)(a, b)


def gcd_jax(a: Any, b: Any) -> Any:
    def divisor(a: Any, b: Any) -> Any:
        return lax.while_loop(lambda state: state[1] != 0, lambda state: (state[1], state[0] % state[1]), (a, b))[0]

    return jax.vmap(divisor)(a, b)


def gcd_numba(a: Array, b: Array) -> Array:
    result = np.empty_like(a)
    for i in prange(a.shape[0]):
        x, y = a[i], b[i]
        while y != 0:
            x, y = y, x % y
        result[i] = x
    return result


# --- binary search in a table ----------------------------------------------------------------------------------------

TABLE = 1000


def table_and_queries(n: int) -> tuple[Array, ...]:
    return np.sort(random(TABLE)), random(n, 1)


def binary_search_numpy(table: Array, queries: Array) -> Array:
    return np.searchsorted(table, queries)


def halve(xp: Any, table: Any, query: Any, state: Any) -> Any:
    low, high = state
    middle = (low + high) // 2
    is_right = table[middle] < query
    return xp.where(is_right, middle + 1, low), xp.where(is_right, high, middle)


def binary_search_livegrad(table: Any, queries: Any) -> Any:
    def search(query: Any) -> Any:
        start = (lg.asarray(0), lg.asarray(table.shape[0]))
        return lg.while_loop(lambda state: state[0] < state[1], lambda state: halve(lg, table, query, state), start)[0]

    return lg.vmap(search)(queries)


def binary_search_jax(table: Any, queries: Any) -> Any:
    def search(query: Any) -> Any:
        start = (jnp.asarray(0), jnp.asarray(table.shape[0]))
        return lax.while_loop(lambda state: state[0] < state[1], lambda state: halve(jnp, table, query, state), start)[
            0
        ]

    return jax.vmap(search)(queries)


def binary_search_numba(table: Array, queries: Array) -> Array:
    result = np.empty(queries.shape[0], np.int64)
    for i in prange(queries.shape[0]):
        low, high = 0, table.shape[0]
        while low < high:
            middle = (low + high) // 2
            if table[middle] < queries[i]:
                low = middle + 1
            else:
                high = middle
        result[i] = low
    return result


# --- Kepler's equation by Newton's method ----------------------------------------------------------------------------


def orbits(n: int) -> tuple[Array, ...]:
    return 2 * np.pi * random(n), 0.95 * random(n, 1)


def kepler_numpy(anomaly: Array, eccentricity: Array) -> Array:
    angle, active = anomaly.copy(), np.ones(len(anomaly), bool)
    while np.any(active):
        step = (angle - eccentricity * np.sin(angle) - anomaly) / (1.0 - eccentricity * np.cos(angle))
        angle = np.where(active, angle - step, angle)
        active &= np.abs(step) > 1e-12
    return angle


def newton_step(xp: Any, anomaly: Any, eccentricity: Any, state: Any) -> Any:
    angle, _ = state
    step = (angle - eccentricity * xp.sin(angle) - anomaly) / (1.0 - eccentricity * xp.cos(angle))
    return angle - step, xp.abs(step)


def kepler_livegrad(anomaly: Any, eccentricity: Any) -> Any:
    def solve(anomaly: Any, eccentricity: Any) -> Any:
        return lg.while_loop(
            lambda state: state[1] > 1e-12,
            lambda state: newton_step(lg, anomaly, eccentricity, state),
            (anomaly, lg.ones_like(anomaly)),
        )[0]

    return lg.vmap(solve)(anomaly, eccentricity)


def kepler_jax(anomaly: Any, eccentricity: Any) -> Any:
    def solve(anomaly: Any, eccentricity: Any) -> Any:
        return lax.while_loop(
            lambda state: state[1] > 1e-12,
            lambda state: newton_step(jnp, anomaly, eccentricity, state),
            (anomaly, jnp.ones_like(anomaly)),
        )[0]

    return jax.vmap(solve)(anomaly, eccentricity)


def kepler_numba(anomaly: Array, eccentricity: Array) -> Array:
    result = np.empty_like(anomaly)
    for i in prange(anomaly.shape[0]):
        angle, step = anomaly[i], 1.0
        while abs(step) > 1e-12:
            step = (angle - eccentricity[i] * np.sin(angle) - anomaly[i]) / (1.0 - eccentricity[i] * np.cos(angle))
            angle -= step
        result[i] = angle
    return result


# --- Newton fractal: how soon each complex number comes to a root of z³ = 1 -------------------------------------------

MOST_STEPS = 60


def complex_plane(n: int) -> tuple[Array, ...]:
    y, x = np.mgrid[:n, :n] / n * 4.0 - 2.0
    return (x + 1j * y + 1e-3,)


def newton_fractal_numpy(z: Array) -> Array:
    counts, active = np.zeros(z.shape, np.int64), np.ones(z.shape, bool)
    for _ in range(MOST_STEPS):
        residual = z * z * z - 1.0
        active = active & (residual.real**2 + residual.imag**2 > 1e-12)
        z = np.where(active, z - residual / np.where(active, 3.0 * z * z, 1.0), z)
        counts += active
    return counts


def newton_fractal_livegrad(z: Any) -> Any:
    def count(z: Any) -> Any:
        def goes_on(state: Any) -> Any:
            z, steps = state
            residual = z * z * z - 1.0
            return (lg.real(residual) ** 2 + lg.imag(residual) ** 2 > 1e-12) & (steps < MOST_STEPS)

        def step(state: Any) -> Any:
            z, steps = state
            return z - (z * z * z - 1.0) / (3.0 * z * z), steps + 1

        return lg.while_loop(goes_on, step, (z, lg.asarray(0)))[1]

    return lg.vmap(lg.vmap(count))(z)


def newton_fractal_jax(z: Any) -> Any:
    def count(z: Any) -> Any:
        def goes_on(state: Any) -> Any:
            z, steps = state
            residual = z * z * z - 1.0
            return (residual.real**2 + residual.imag**2 > 1e-12) & (steps < MOST_STEPS)

        def step(state: Any) -> Any:
            z, steps = state
            return z - (z * z * z - 1.0) / (3.0 * z * z), steps + 1

        return lax.while_loop(goes_on, step, (z, jnp.asarray(0)))[1]

    return jax.vmap(jax.vmap(count))(z)


def newton_fractal_numba(z: Array) -> Array:
    counts = np.zeros(z.shape, np.int64)
    for i in prange(z.shape[0]):
        for j in range(z.shape[1]):
            own, steps = z[i, j], 0
            residual = own * own * own - 1.0
            while residual.real**2 + residual.imag**2 > 1e-12 and steps < MOST_STEPS:
                own = own - residual / (3.0 * own * own)
                residual = own * own * own - 1.0
                steps += 1
            counts[i, j] = steps
    return counts


# --- sphere tracing: how far each ray goes until it meets a torus or a box -------------------------------------------


def camera_rays(n: int) -> tuple[Array, ...]:
    y, x = np.mgrid[:n, :n] / n - 0.5
    rays = np.stack([x.ravel(), y.ravel(), np.ones(n * n)], axis=1)
    return (rays / np.sqrt(np.sum(rays * rays, axis=1, keepdims=True)),)


def distance_to_scene(xp: Any, x: Any, y: Any, z: Any) -> Any:
    z = z - 3.0
    ring = xp.sqrt(x * x + z * z) - 1.0
    torus = xp.sqrt(ring * ring + y * y) - 0.25
    a, b, c = xp.abs(x) - 0.3, xp.abs(y) - 0.3, xp.abs(z) - 0.3
    outside = xp.maximum(a, 0.0) ** 2 + xp.maximum(b, 0.0) ** 2 + xp.maximum(c, 0.0) ** 2
    box = xp.sqrt(outside) + xp.minimum(xp.maximum(a, xp.maximum(b, c)), 0.0)
    return xp.minimum(torus, box)


def ray_marching_numpy(rays: Array) -> Array:
    along, steps = np.zeros(len(rays)), np.zeros(len(rays), np.int64)
    while True:
        distance = distance_to_scene(np, *(along[:, None] * rays).T)
        active = (distance > 1e-6) & (along < 10.0) & (steps < 100)
        if not np.any(active):
            return along
        along, steps = np.where(active, along + distance, along), steps + active


def ray_marching_livegrad(rays: Any) -> Any:
    def march(ray: Any) -> Any:
        def distance(along: Any) -> Any:
            point = along * ray
            return distance_to_scene(lg, point[0], point[1], point[2])

        def goes_on(state: Any) -> Any:
            along, steps = state
            return (distance(along) > 1e-6) & (along < 10.0) & (steps < 100)

        start = (lg.asarray(0.0, dtype=lg.float64), lg.asarray(0))
        return lg.while_loop(goes_on, lambda state: (state[0] + distance(state[0]), state[1] + 1), start)[0]

    return lg.vmap(march)(rays)


def ray_marching_jax(rays: Any) -> Any:
    def march(ray: Any) -> Any:
        def distance(along: Any) -> Any:
            point = along * ray
            return distance_to_scene(jnp, point[0], point[1], point[2])

        def goes_on(state: Any) -> Any:
            along, steps = state
            return (distance(along) > 1e-6) & (along < 10.0) & (steps < 100)

        start = (jnp.asarray(0.0), jnp.asarray(0))
        return lax.while_loop(goes_on, lambda state: (state[0] + distance(state[0]), state[1] + 1), start)[0]

    return jax.vmap(march)(rays)


def ray_marching_numba(rays: Array) -> Array:
    result = np.zeros(rays.shape[0])
    for i in prange(rays.shape[0]):
        along = 0.0
        for _ in range(100):
            x, y, z = along * rays[i, 0], along * rays[i, 1], along * rays[i, 2] - 3.0
            ring = np.sqrt(x * x + z * z) - 1.0
            torus = np.sqrt(ring * ring + y * y) - 0.25
            a, b, c = abs(x) - 0.3, abs(y) - 0.3, abs(z) - 0.3
            outside = max(a, 0.0) ** 2 + max(b, 0.0) ** 2 + max(c, 0.0) ** 2
            distance = min(torus, np.sqrt(outside) + min(max(a, max(b, c)), 0.0))
            if not (distance > 1e-6 and along < 10.0):
                break
            along += distance
        result[i] = along
    return result


# --- random walks until they leave an interval -----------------------------------------------------------------------


def walkers(n: int) -> tuple[Array, ...]:
    return (np.random.default_rng(0).integers(1, 2**32, n).astype(np.uint32),)


def next_random(x: Any) -> Any:
    x = x ^ (x << 13)
    x = x ^ (x >> 17)
    return x ^ (x << 5)


def exit_times_numpy(seeds: Array) -> Array:
    position, steps = np.zeros(len(seeds), np.int64), np.zeros(len(seeds), np.int64)
    while np.any(active := np.abs(position) < 12):
        seeds = next_random(seeds)
        position = np.where(active, position + np.where(seeds & 1024, 1, -1), position)
        steps += active
    return steps


def exit_times_livegrad(seeds: Any) -> Any:
    def walk(seed: Any) -> Any:
        def step(state: Any) -> Any:
            seed, position, steps = state
            seed = next_random(seed)
            return seed, position + lg.where((seed & 1024) != 0, 1, -1), steps + 1

        return lg.while_loop(lambda state: lg.abs(state[1]) < 12, step, (seed, lg.asarray(0), lg.asarray(0)))[2]

    return lg.vmap(walk)(seeds)


def exit_times_jax(seeds: Any) -> Any:
    def walk(seed: Any) -> Any:
        def step(state: Any) -> Any:
            seed, position, steps = state
            seed = next_random(seed)
            return seed, position + jnp.where((seed & 1024) != 0, 1, -1), steps + 1

        return lax.while_loop(lambda state: jnp.abs(state[1]) < 12, step, (seed, 0, 0))[2]

    return jax.vmap(walk)(seeds)


def exit_times_numba(seeds: Array) -> Array:
    result = np.empty(seeds.shape[0], np.int64)
    for i in prange(seeds.shape[0]):
        s, position, steps = seeds[i], 0, 0
        while abs(position) < 12:
            s = np.uint32(s ^ (s << np.uint32(13)))  # Numba shifts in 64 bits
            s = np.uint32(s ^ (s >> np.uint32(17)))
            s = np.uint32(s ^ (s << np.uint32(5)))
            position += 1 if s & np.uint32(1024) else -1
            steps += 1
        result[i] = steps
    return result


# --- string matching: how much of a pattern begins at each place of a text --------------------------------------------

PATTERN = 12


def text_and_pattern(n: int) -> tuple[Array, ...]:
    generator = np.random.default_rng(0)
    return generator.integers(0, 2, n + PATTERN).astype(np.int32), generator.integers(0, 2, PATTERN).astype(np.int32)


def string_matching_numpy(text: Array, pattern: Array) -> Array:
    windows = np.lib.stride_tricks.sliding_window_view(text, PATTERN)[:-1]
    return np.cumprod(windows == pattern, axis=1).sum(axis=1)


def string_matching_livegrad(text: Any, pattern: Any) -> Any:
    def matched(start: Any) -> Any:
        def goes_on(k: Any) -> Any:
            safe = lg.minimum(k, PATTERN - 1)
            return (k < PATTERN) & (text[start + safe] == pattern[safe])

        return lg.while_loop(goes_on, lambda k: k + 1, lg.asarray(0))

    return lg.vmap(matched)(lg.arange(text.shape[0] - PATTERN))


def string_matching_jax(text: Any, pattern: Any) -> Any:
    def matched(start: Any) -> Any:
        return lax.while_loop(
            lambda k: (k < PATTERN) & (text[start + k] == pattern[jnp.minimum(k, PATTERN - 1)]), lambda k: k + 1, 0
        )

    return jax.vmap(matched)(jnp.arange(text.shape[0] - PATTERN))


def string_matching_numba(text: Array, pattern: Array) -> Array:
    result = np.empty(text.shape[0] - PATTERN, np.int64)
    for i in prange(result.shape[0]):
        k = 0
        while k < PATTERN and text[i + k] == pattern[k]:
            k += 1
        result[i] = k
    return result


# --- a finite automaton over many strings ----------------------------------------------------------------------------

STATES, LETTERS, LENGTH = 16, 8, 64


def automaton_inputs(n: int) -> tuple[Array, ...]:
    generator = np.random.default_rng(0)
    return generator.integers(0, STATES, (STATES, LETTERS)), generator.integers(0, LETTERS, (n, LENGTH))


def automaton_numpy(table: Array, strings: Array) -> Array:
    state = np.zeros(len(strings), np.int64)
    for k in range(LENGTH):
        state = table[state, strings[:, k]]
    return state


def automaton_livegrad(table: Any, strings: Any) -> Any:
    def run(string: Any) -> Any:
        return lg.fori_loop(0, LENGTH, lambda k, state: table[state, string[k]], lg.asarray(0))

    return lg.vmap(run)(strings)


def automaton_jax(table: Any, strings: Any) -> Any:
    def run(string: Any) -> Any:
        return lax.fori_loop(0, LENGTH, lambda k, state: table[state, string[k]], jnp.asarray(0))

    return jax.vmap(run)(strings)


def automaton_numba(table: Array, strings: Array) -> Array:
    result = np.empty(strings.shape[0], np.int64)
    for i in prange(strings.shape[0]):
        state = 0
        for k in range(LENGTH):
            state = table[state, strings[i, k]]
        result[i] = state
    return result


# --- insertion sort of each row --------------------------------------------------------------------------------------

ROW = 32


def unsorted_rows(n: int) -> tuple[Array, ...]:
    return (random((n, ROW)),)


def insertion_sort_numpy(rows: Array) -> Array:
    return np.sort(rows, axis=1)


def insertion_sort_livegrad(rows: Any) -> Any:
    def sort(row: Any) -> Any:
        def insert(i: Any, row: Any) -> Any:
            value = row[i]

            def goes_on(state: Any) -> Any:
                k, row = state
                return (k > 0) & (row[lg.maximum(k - 1, 0)] > value)

            def shift(state: Any) -> Any:
                k, row = state
                row[k] = row[k - 1]
                return k - 1, row

            k, row = lg.while_loop(goes_on, shift, (i, row))
            row[k] = value
            return row

        return lg.fori_loop(1, ROW, insert, row)

    return lg.vmap(sort)(rows)


def insertion_sort_jax(rows: Any) -> Any:
    def sort(row: Any) -> Any:
        def insert(i: Any, row: Any) -> Any:
            value = row[i]
            k, row = lax.while_loop(
                lambda state: (state[0] > 0) & (state[1][jnp.maximum(state[0] - 1, 0)] > value),
                lambda state: (state[0] - 1, state[1].at[state[0]].set(state[1][state[0] - 1])),
                (i, row),
            )
            return row.at[k].set(value)

        return lax.fori_loop(1, ROW, insert, row)

    return jax.vmap(sort)(rows)


def insertion_sort_numba(rows: Array) -> Array:
    rows = rows.copy()
    for r in prange(rows.shape[0]):
        for i in range(1, ROW):
            value, k = rows[r, i], i
            while k > 0 and rows[r, k - 1] > value:
                rows[r, k] = rows[r, k - 1]
                k -= 1
            rows[r, k] = value
    return rows


PROGRAMS = [
    Program(
        "gcd", "greatest common divisors of {n} pairs", (1000, 10_000, 2_000_000), 50,
        pairs_of_integers, gcd_numpy, gcd_livegrad, gcd_numba, gcd_jax, parallel=True,
    ),
    Program(
        "binary_search", "{n} searches in a sorted table of 1000", (500, 20_000, 2_000_000), 50,
        table_and_queries, binary_search_numpy, binary_search_livegrad, binary_search_numba, binary_search_jax,
        parallel=True,
    ),
    Program(
        "kepler", "Kepler's equation for {n} orbits", (500, 10_000, 1_000_000), 50,
        orbits, kepler_numpy, kepler_livegrad, kepler_numba, kepler_jax, parallel=True,
    ),
    Program(
        "newton_fractal", "Newton's method on {n} × {n} complex numbers", (24, 90, 700), 9,
        complex_plane, newton_fractal_numpy, newton_fractal_livegrad, newton_fractal_numba, newton_fractal_jax,
        parallel=True, differing=1e-2,
    ),
    Program(
        "ray_marching", "sphere tracing of {n} × {n} rays", (24, 90, 700), 9,
        camera_rays, ray_marching_numpy, ray_marching_livegrad, ray_marching_numba, ray_marching_jax,
        parallel=True, differing=1e-2, tolerance=1e-5,
    ),
    Program(
        "exit_times", "{n} random walks until they leave an interval", (500, 10_000, 500_000), 50,
        walkers, exit_times_numpy, exit_times_livegrad, exit_times_numba, exit_times_jax, parallel=True,
    ),
    Program(
        "string_matching", "a pattern of 12 at {n} places of a text", (2000, 50_000, 5_000_000), 50,
        text_and_pattern, string_matching_numpy, string_matching_livegrad, string_matching_numba,
        string_matching_jax, parallel=True,
    ),
    Program(
        "automaton", "a finite automaton over {n} strings of 64", (50, 800, 100_000), 20,
        automaton_inputs, automaton_numpy, automaton_livegrad, automaton_numba, automaton_jax, parallel=True,
    ),
    Program(
        "insertion_sort", "{n} rows of 32 sorted by insertion", (100, 1500, 100_000), 9,
        unsorted_rows, insertion_sort_numpy, insertion_sort_livegrad, insertion_sort_numba, insertion_sort_jax,
        parallel=True,
    ),
]  # fmt: skip
