"""Each element from the one before: filters, prefix sums, checksums, and steps in time."""

from typing import Any

import numpy as np

from benchmarks.loops.program import Array, Program, jax, jnp, lax, lg, normal, prange, random

# --- a filter with feedback (IIR, second order) ----------------------------------------------------------------------


def signal(n: int) -> tuple[Array, ...]:
    return (normal(n),)


def iir_numpy(x: Array) -> Array:
    y = np.zeros_like(x)
    for i in range(2, len(x)):
        y[i] = 0.2 * x[i] + 1.2 * y[i - 1] - 0.5 * y[i - 2]
    return y


def iir_livegrad(x: Any) -> Any:
    def step(i: Any, y: Any) -> Any:
        y[i] = 0.2 * x[i] + 1.2 * y[i - 1] - 0.5 * y[i - 2]
        return y

    return lg.fori_loop(2, x.shape[0], step, lg.zeros_like(x))


def iir_jax(x: Any) -> Any:
    def step(state: Any, x: Any) -> Any:
        before, earlier = state
        y = 0.2 * x + 1.2 * before - 0.5 * earlier
        return (y, before), y

    return jnp.zeros_like(x).at[2:].set(lax.scan(step, (0.0, 0.0), x[2:])[1])


def iir_numba(x: Array) -> Array:
    y = np.zeros_like(x)
    for i in range(2, x.shape[0]):
        y[i] = 0.2 * x[i] + 1.2 * y[i - 1] - 0.5 * y[i - 2]
    return y


# --- a recursive filter of an image, along rows and then along columns -----------------------------------------------


def picture(n: int) -> tuple[Array, ...]:
    return (random((n, n)),)


def image_filter_numpy(x: Array) -> Array:
    x = x.copy()
    for j in range(1, x.shape[1]):
        x[:, j] = 0.3 * x[:, j] + 0.7 * x[:, j - 1]
    for i in range(1, x.shape[0]):
        x[i] = 0.3 * x[i] + 0.7 * x[i - 1]
    return x


def image_filter_livegrad(x: Any) -> Any:
    def column(j: Any, x: Any) -> Any:
        x[:, j] = 0.3 * x[:, j] + 0.7 * x[:, j - 1]
        return x

    def row(i: Any, x: Any) -> Any:
        x[i] = 0.3 * x[i] + 0.7 * x[i - 1]
        return x

    return lg.fori_loop(1, x.shape[0], row, lg.fori_loop(1, x.shape[1], column, x))


def image_filter_jax(x: Any) -> Any:
    def along(x: Any) -> Any:
        def step(before: Any, row: Any) -> Any:
            row = 0.3 * row + 0.7 * before
            return row, row

        return jnp.concatenate([x[:1], lax.scan(step, x[0], x[1:])[1]])

    return along(along(x.T).T)


def image_filter_numba(x: Array) -> Array:
    x = x.copy()
    n, m = x.shape
    for i in prange(n):
        for j in range(1, m):
            x[i, j] = 0.3 * x[i, j] + 0.7 * x[i, j - 1]
    for i in range(1, n):
        for j in range(m):
            x[i, j] = 0.3 * x[i, j] + 0.7 * x[i - 1, j]
    return x


# --- prefix sums, written as a loop ----------------------------------------------------------------------------------


def prefix_sum_numpy(x: Array) -> Array:
    return np.cumsum(x)


def prefix_sum_livegrad(x: Any) -> Any:
    def step(i: Any, x: Any) -> Any:
        x[i] += x[i - 1]
        return x

    return lg.fori_loop(1, x.shape[0], step, x)


def prefix_sum_jax(x: Any) -> Any:
    return jnp.cumsum(x)


def prefix_sum_numba(x: Array) -> Array:
    x = x.copy()
    for i in range(1, x.shape[0]):
        x[i] += x[i - 1]
    return x


# --- Horner's rule: a polynomial of degree 63 at many points ---------------------------------------------------------


def horner_inputs(n: int) -> tuple[Array, ...]:
    return normal(64), random(n, 1)


def horner_numpy(c: Array, x: Array) -> Array:
    y = np.zeros_like(x)
    for coefficient in c:
        y = y * x + coefficient
    return y


def horner_livegrad(c: Any, x: Any) -> Any:
    return lg.fori_loop(0, c.shape[0], lambda k, y: y * x + c[k], lg.zeros_like(x))


def horner_jax(c: Any, x: Any) -> Any:
    return lax.scan(lambda y, coefficient: (y * x + coefficient, None), jnp.zeros_like(x), c)[0]


def horner_numba(c: Array, x: Array) -> Array:
    result = np.empty_like(x)
    for i in prange(x.shape[0]):
        y = 0.0
        for k in range(c.shape[0]):
            y = y * x[i] + c[k]
        result[i] = y
    return result


# --- a scan in a scan: a sum that decays along each row and is carried to the next -----------------------------------


def nested_scan_numpy(x: Array) -> Array:
    result = np.empty_like(x)
    total = 0.0
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            total = 0.9 * total + x[i, j]
            result[i, j] = total
        total *= 0.5
    return result


def nested_scan_livegrad(x: Any) -> Any:
    def element(total: Any, value: Any) -> Any:
        total = 0.9 * total + value
        return total, total

    def row(total: Any, values: Any) -> Any:
        total, sums = lg.scan(element, total, values)
        return 0.5 * total, sums

    return lg.scan(row, 0.0, x)[1]


def nested_scan_jax(x: Any) -> Any:
    def element(total: Any, value: Any) -> Any:
        total = 0.9 * total + value
        return total, total

    def row(total: Any, values: Any) -> Any:
        total, sums = lax.scan(element, total, values)
        return 0.5 * total, sums

    return lax.scan(row, 0.0, x)[1]


def nested_scan_numba(x: Array) -> Array:
    result = np.empty_like(x)
    total = 0.0
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            total = 0.9 * total + x[i, j]
            result[i, j] = total
        total *= 0.5
    return result


# --- CRC-32 with a table of 256 --------------------------------------------------------------------------------------


def crc_inputs(n: int) -> tuple[Array, ...]:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(0xEDB88320), table >> 1)
    return table, np.random.default_rng(0).integers(0, 256, n).astype(np.uint32)


def crc_numpy(table: Array, data: Array) -> Array:
    crc, entries = 0xFFFFFFFF, table.tolist()
    for byte in data.tolist():
        crc = entries[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return np.array([crc ^ 0xFFFFFFFF], np.uint32)


def crc_livegrad(table: Any, data: Any) -> Any:
    def step(i: Any, crc: Any) -> Any:
        return table[(crc ^ data[i]) & 0xFF] ^ (crc >> 8)

    start = lg.asarray(0xFFFFFFFF, dtype=lg.uint32)
    return lg.reshape(lg.fori_loop(0, data.shape[0], step, start) ^ 0xFFFFFFFF, (1,))


def crc_jax(table: Any, data: Any) -> Any:
    def step(crc: Any, byte: Any) -> Any:
        return table[(crc ^ byte) & 0xFF] ^ (crc >> 8), None

    return (lax.scan(step, jnp.uint32(0xFFFFFFFF), data)[0] ^ jnp.uint32(0xFFFFFFFF)).reshape(1)


def crc_numba(table: Array, data: Array) -> Array:
    crc = np.uint32(0xFFFFFFFF)
    for i in range(data.shape[0]):
        crc = table[(crc ^ data[i]) & np.uint32(0xFF)] ^ (crc >> np.uint32(8))
    return np.array([crc ^ np.uint32(0xFFFFFFFF)], np.uint32)


# --- Lorenz: an ensemble of orbits, Runge and Kutta of fourth order --------------------------------------------------

LORENZ_STEPS = 100
H = 0.005


def lorenz_inputs(n: int) -> tuple[Array, ...]:
    return (normal((3, n)),)


def lorenz_step(rate: Any, state: Any) -> Any:
    k1 = rate(state)
    k2 = rate(state + 0.5 * H * k1)
    k3 = rate(state + 0.5 * H * k2)
    k4 = rate(state + H * k3)
    return state + H / 6.0 * (k1 + 2.0 * k2 + 2.0 * k3 + k4)


def lorenz_numpy(state: Array) -> Array:
    def rate(s: Array) -> Array:
        x, y, z = s
        return np.stack([10.0 * (y - x), x * (28.0 - z) - y, x * y - 8.0 / 3.0 * z])

    for _ in range(LORENZ_STEPS):
        state = lorenz_step(rate, state)
    return state


def lorenz_livegrad(state: Any) -> Any:
    def rate(s: Any) -> Any:
        x, y, z = s[0], s[1], s[2]
        return lg.stack([10.0 * (y - x), x * (28.0 - z) - y, x * y - 8.0 / 3.0 * z])

    return lg.fori_loop(0, LORENZ_STEPS, lambda _, state: lorenz_step(rate, state), state)


def lorenz_jax(state: Any) -> Any:
    def rate(s: Any) -> Any:
        x, y, z = s
        return jnp.stack([10.0 * (y - x), x * (28.0 - z) - y, x * y - 8.0 / 3.0 * z])

    def orbit(state: Any) -> Any:
        return lax.fori_loop(0, LORENZ_STEPS, lambda _, state: lorenz_step(rate, state), state)

    return jax.vmap(orbit, in_axes=1, out_axes=1)(state)


def lorenz_numba(state: Array) -> Array:
    result = np.empty_like(state)
    for i in prange(state.shape[1]):
        x, y, z = state[0, i], state[1, i], state[2, i]
        for _ in range(LORENZ_STEPS):
            sx, sy, sz = x, y, z
            tx, ty, tz = 0.0, 0.0, 0.0
            for stage in range(4):
                kx, ky, kz = 10.0 * (sy - sx), sx * (28.0 - sz) - sy, sx * sy - 8.0 / 3.0 * sz
                weight = 1.0 if stage == 0 or stage == 3 else 2.0
                tx, ty, tz = tx + weight * kx, ty + weight * ky, tz + weight * kz
                h = H if stage == 2 else 0.5 * H
                sx, sy, sz = x + h * kx, y + h * ky, z + h * kz
            x, y, z = x + H / 6.0 * tx, y + H / 6.0 * ty, z + H / 6.0 * tz
        result[0, i], result[1, i], result[2, i] = x, y, z
    return result


PROGRAMS = [
    Program(
        "iir", "a filter with feedback of {n} samples", (1000, 20_000, 5_000_000), 9,
        signal, iir_numpy, iir_livegrad, iir_numba, iir_jax, interpreted=True,
    ),
    Program(
        "image_filter", "a recursive filter of a {n} × {n} image", (48, 200, 3000), 9,
        picture, image_filter_numpy, image_filter_livegrad, image_filter_numba, image_filter_jax, parallel=True,
        today=(48, 200, 1000),
    ),
    Program(
        "prefix_sum", "prefix sums of {n} numbers, as a loop", (1000, 20_000, 5_000_000), 9,
        signal, prefix_sum_numpy, prefix_sum_livegrad, prefix_sum_numba, prefix_sum_jax,
    ),
    Program(
        "horner", "a polynomial of degree 63 at {n} points", (1000, 20_000, 4_000_000), 9,
        horner_inputs, horner_numpy, horner_livegrad, horner_numba, horner_jax, parallel=True,
    ),
    Program(
        "nested_scan", "a scan in a scan over {n} × {n} numbers", (48, 200, 1500), 7,
        picture, nested_scan_numpy, nested_scan_livegrad, nested_scan_numba, nested_scan_jax, interpreted=True,
    ),
    Program(
        "crc", "CRC-32 of {n} bytes", (2000, 50_000, 2_000_000), 9,
        crc_inputs, crc_numpy, crc_livegrad, crc_numba, crc_jax, interpreted=True,
    ),
    Program(
        "lorenz", "{n} orbits of Lorenz, 100 steps of Runge and Kutta", (500, 10_000, 500_000), 5,
        lorenz_inputs, lorenz_numpy, lorenz_livegrad, lorenz_numba, lorenz_jax, parallel=True, tolerance=1e-7,
    ),
]  # fmt: skip
