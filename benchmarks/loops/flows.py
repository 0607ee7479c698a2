"""Waves and flows on grids: several fields that step together, by slices and by rolling."""

from typing import Any

import numpy as np

from benchmarks.loops.program import Array, Program, jnp, lax, lg, prange, random

STEPS = 20


def repeated(step: Any, *state: Any) -> Any:
    """The loop of NumPy's ports."""
    for _ in range(STEPS):
        state = step(*state)
    return state


# --- the wave equation -----------------------------------------------------------------------------------------------


def wave_inputs(n: int) -> tuple[Array, ...]:
    return random((n, n)), random((n, n), 1)


def laplacian(u: Any) -> Any:
    return u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4.0 * u[1:-1, 1:-1]


def wave_numpy(before: Array, now: Array) -> tuple[Array, Array]:
    def step(before: Array, now: Array) -> tuple[Array, Array]:
        after = now.copy()
        after[1:-1, 1:-1] = 2.0 * now[1:-1, 1:-1] - before[1:-1, 1:-1] + 0.2 * laplacian(now)
        return now, after

    return repeated(step, before, now)


def wave_livegrad(before: Any, now: Any) -> Any:
    def step(_: Any, fields: Any) -> Any:
        before, now = fields
        after = now + 0.0
        after[1:-1, 1:-1] = 2.0 * now[1:-1, 1:-1] - before[1:-1, 1:-1] + 0.2 * laplacian(now)
        return now, after

    return lg.fori_loop(0, STEPS, step, (before, now))


def wave_jax(before: Any, now: Any) -> Any:
    def step(_: Any, fields: Any) -> Any:
        before, now = fields
        inside = 2.0 * now[1:-1, 1:-1] - before[1:-1, 1:-1] + 0.2 * laplacian(now)
        return now, now.at[1:-1, 1:-1].set(inside)

    return lax.fori_loop(0, STEPS, step, (before, now))


def wave_numba(before: Array, now: Array) -> tuple[Array, Array]:
    before, now, after = before.copy(), now.copy(), now.copy()
    n, m = now.shape
    for _ in range(STEPS):
        for i in prange(1, n - 1):
            for j in range(1, m - 1):
                around = now[i + 1, j] + now[i - 1, j] + now[i, j + 1] + now[i, j - 1] - 4.0 * now[i, j]
                after[i, j] = 2.0 * now[i, j] - before[i, j] + 0.2 * around
        for i in range(n):
            after[i, 0], after[i, m - 1] = now[i, 0], now[i, m - 1]
        for j in range(m):
            after[0, j], after[n - 1, j] = now[0, j], now[n - 1, j]
        before, now, after = now, after, before
    return before, now


# --- Burgers' equation, upwind and periodic --------------------------------------------------------------------------


def line(n: int) -> tuple[Array, ...]:
    return (1.0 + 0.5 * np.sin(np.linspace(0.0, 2.0 * np.pi, n, endpoint=False)),)


def burgers_step(roll: Any, u: Any) -> Any:
    left, right = roll(u, 1), roll(u, -1)
    return u - 0.2 * u * (u - left) + 0.05 * (right - 2.0 * u + left)


def burgers_numpy(u: Array) -> Array:
    return repeated(lambda u: (burgers_step(np.roll, u),), u)[0]


def burgers_livegrad(u: Any) -> Any:
    return lg.fori_loop(0, STEPS, lambda _, u: burgers_step(lg.roll, u), u)


def burgers_jax(u: Any) -> Any:
    return lax.fori_loop(0, STEPS, lambda _, u: burgers_step(jnp.roll, u), u)


def burgers_numba(u: Array) -> Array:
    u, after = u.copy(), u.copy()
    n = u.shape[0]
    for _ in range(STEPS):
        for i in prange(n):
            left = u[i - 1] if i > 0 else u[n - 1]
            right = u[i + 1] if i < n - 1 else u[0]
            after[i] = u[i] - 0.2 * u[i] * (u[i] - left) + 0.05 * (right - 2.0 * u[i] + left)
        u, after = after, u
    return u


# --- shallow water ---------------------------------------------------------------------------------------------------


def water(n: int) -> tuple[Array, ...]:
    return 1.0 + 0.1 * random((n, n)), np.zeros((n, n)), np.zeros((n, n))


def water_step(roll: Any, h: Any, u: Any, v: Any) -> Any:
    """Heights and velocities on a periodic, staggered grid."""
    u = u - 0.1 * (roll(h, -1, axis=0) - h)
    v = v - 0.1 * (roll(h, -1, axis=1) - h)
    return h - 0.1 * (h * (u - roll(u, 1, axis=0)) + h * (v - roll(v, 1, axis=1))), u, v


def water_numpy(h: Array, u: Array, v: Array) -> tuple[Array, ...]:
    return repeated(lambda *fields: water_step(np.roll, *fields), h, u, v)


def water_livegrad(h: Any, u: Any, v: Any) -> Any:
    return lg.fori_loop(0, STEPS, lambda _, fields: water_step(lg.roll, *fields), (h, u, v))


def water_jax(h: Any, u: Any, v: Any) -> Any:
    return lax.fori_loop(0, STEPS, lambda _, fields: water_step(jnp.roll, *fields), (h, u, v))


def water_numba(h: Array, u: Array, v: Array) -> tuple[Array, ...]:
    h, u, v = h.copy(), u.copy(), v.copy()
    n, m = h.shape
    for _ in range(STEPS):
        for i in prange(n):
            down = i + 1 if i < n - 1 else 0
            for j in range(m):
                right = j + 1 if j < m - 1 else 0
                u[i, j] -= 0.1 * (h[down, j] - h[i, j])
                v[i, j] -= 0.1 * (h[i, right] - h[i, j])
        for i in prange(n):
            up = i - 1 if i > 0 else n - 1
            for j in range(m):
                left = j - 1 if j > 0 else m - 1
                h[i, j] -= 0.1 * (h[i, j] * (u[i, j] - u[up, j]) + h[i, j] * (v[i, j] - v[i, left]))
    return h, u, v


# --- a lattice Boltzmann method, D2Q9 --------------------------------------------------------------------------------

DIRECTIONS = ((0, 0), (1, 0), (0, 1), (-1, 0), (0, -1), (1, 1), (-1, 1), (-1, -1), (1, -1))
WEIGHTS = (4 / 9, 1 / 9, 1 / 9, 1 / 9, 1 / 9, 1 / 36, 1 / 36, 1 / 36, 1 / 36)
RELAXATION = 0.8


def gas(n: int) -> tuple[Array, ...]:
    return tuple(weight * (1.0 + 0.1 * random((n, n), k)) for k, weight in enumerate(WEIGHTS))


def lattice_step(roll: Any, *before: Any) -> Any:
    """Populations move to their neighbours and relax towards equilibrium."""
    f = [roll(own, shift, axis=(0, 1)) if any(shift) else own for own, shift in zip(before, DIRECTIONS, strict=True)]
    density = sum(f[1:], f[0])
    x = (f[1] + f[5] + f[8] - f[3] - f[6] - f[7]) / density
    y = (f[2] + f[5] + f[6] - f[4] - f[7] - f[8]) / density
    rest = 1.0 - 1.5 * (x * x + y * y)
    after = []
    for own, weight, (a, b) in zip(f, WEIGHTS, DIRECTIONS, strict=True):
        along = a * x + b * y
        equilibrium = weight * density * (rest + 3.0 * along + 4.5 * along * along)
        after.append(own + RELAXATION * (equilibrium - own))
    return tuple(after)


def lattice_numpy(*f: Array) -> tuple[Array, ...]:
    return repeated(lambda *f: lattice_step(np.roll, *f), *f)


def lattice_livegrad(*f: Any) -> Any:
    return lg.fori_loop(0, STEPS, lambda _, f: lattice_step(lg.roll, *f), f)


def lattice_jax(*f: Any) -> Any:
    return lax.fori_loop(0, STEPS, lambda _, f: lattice_step(jnp.roll, *f), f)


def lattice_numba(
    f0: Array, f1: Array, f2: Array, f3: Array, f4: Array, f5: Array, f6: Array, f7: Array, f8: Array
) -> tuple[Array, ...]:
    n, m = f0.shape
    f, after = np.empty((9, n, m)), np.empty((9, n, m))
    f[0], f[1], f[2], f[3], f[4], f[5], f[6], f[7], f[8] = f0, f1, f2, f3, f4, f5, f6, f7, f8
    for _ in range(STEPS):
        for i in prange(n):
            up, down = (i - 1) % n, (i + 1) % n
            for j in range(m):
                left = j - 1 if j > 0 else m - 1
                right = j + 1 if j < m - 1 else 0
                g0, g1, g2 = f[0, i, j], f[1, up, j], f[2, i, left]
                g3, g4, g5 = f[3, down, j], f[4, i, right], f[5, up, left]
                g6, g7, g8 = f[6, down, left], f[7, down, right], f[8, up, right]
                density = g0 + g1 + g2 + g3 + g4 + g5 + g6 + g7 + g8
                x = (g1 + g5 + g8 - g3 - g6 - g7) / density
                y = (g2 + g5 + g6 - g4 - g7 - g8) / density
                rest = 1.0 - 1.5 * (x * x + y * y)
                after[0, i, j] = g0 + RELAXATION * (WEIGHTS[0] * density * rest - g0)
                for k, g, c in (
                    (1, g1, x), (2, g2, y), (3, g3, -x), (4, g4, -y),
                    (5, g5, x + y), (6, g6, y - x), (7, g7, -x - y), (8, g8, x - y),
                ):  # fmt: skip
                    own = WEIGHTS[1] if k < 5 else WEIGHTS[5]
                    after[k, i, j] = g + RELAXATION * (own * density * (rest + 3.0 * c + 4.5 * c * c) - g)
        f, after = after, f
    return f[0], f[1], f[2], f[3], f[4], f[5], f[6], f[7], f[8]


PROGRAMS = [
    Program(
        "wave", "20 steps of the wave equation over {n} × {n}", (40, 160, 2000), 9,
        wave_inputs, wave_numpy, wave_livegrad, wave_numba, wave_jax, parallel=True,
    ),
    Program(
        "burgers", "20 steps of Burgers' equation over {n} points", (2000, 40_000, 5_000_000), 40,
        line, burgers_numpy, burgers_livegrad, burgers_numba, burgers_jax, parallel=True,
    ),
    Program(
        "shallow_water", "20 steps of shallow water over {n} × {n}", (32, 120, 1500), 9,
        water, water_numpy, water_livegrad, water_numba, water_jax, parallel=True,
    ),
    Program(
        "lattice_boltzmann", "20 steps of D2Q9 over {n} × {n}", (16, 80, 800), 9,
        gas, lattice_numpy, lattice_livegrad, lattice_numba, lattice_jax, parallel=True,
    ),
]  # fmt: skip
