"""Programs that optional optimisations should speed up: at least two for each, other than the one it was made for.

Each is written once, for NumPy and for livegrad, and takes the library: peers import this file without livegrad.
`expected` runs it in float64 with NumPy, where gradients are by hand. A kind is `optimisation:program`.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Program = Callable[..., Any]  # takes a library and arrays

COLUMNS = 1024
ITERATIONS = 24


def repeat(lib: Any, count: Any, step: Callable[[Any, Any], Any], state: Any) -> Any:
    if lib is not np:
        return lib.fori_loop(0, count, step, state)
    for index in range(int(count)):
        state = step(index, state)
    return state


# --- fuse ---


def polar(lib: Any, x: Any, y: Any) -> Any:
    return lib.sqrt(x * x + y * y), lib.atan2(y, x)


def moments(lib: Any, x: Any, y: Any) -> Any:
    return lib.sum(x, axis=1), lib.sum(x * x, axis=1), lib.sum(x * y, axis=1)


# --- fuse_siblings ---


def coupled_waves(lib: Any, x: Any, y: Any) -> Any:
    """Half a time step of two fields on a staggered grid, with fixed borders."""
    height, flow = lib.concat([x[:1], x[1:] - 0.1 * (y[1:] - y[:-1])]), lib.concat([y[:1], y[1:] + 0.1 * x[1:]])
    return height, flow


def split_signal(lib: Any, x: Any, y: Any) -> Any:
    """Sums and differences of neighbours, in the first half of each row, as a wavelet filter stores them."""
    low, high = x + 0.0, y + 0.0
    low[:, : COLUMNS // 2] = x[:, ::2] + x[:, 1::2]
    high[:, : COLUMNS // 2] = x[:, ::2] - x[:, 1::2]
    return low, high


# --- store_repeated ---


def _blur(lib: Any, x: Any) -> Any:
    return 0.25 * (x[:, :-4] + x[:, 1:-3] + x[:, 3:-1] + x[:, 4:]) * lib.tanh(x[:, 2:-2])


def filtered_twice(lib: Any, x: Any, y: Any) -> Any:
    return _blur(lib, _blur(lib, x))


def outer_distances(lib: Any, x: Any, y: Any) -> Any:
    """Of each row to a common profile, which is computed once and not for each row."""
    return lib.abs(x - lib.exp(lib.sin(y[:1]) * lib.cos(y[1:2])))


# --- interchange_elementwise_loops: gradients, whose tapes belong to the points ---


def _iterated_gradient(lib: Any, x: Any, step: Callable[[Any], Any], slope: Callable[[Any], Any]) -> Any:
    """The gradient of the sum after some iterations of a step at each point; NumPy multiplies the slopes of all."""
    if lib is not np:
        return lib.grad(lambda x: lib.sum(lib.fori_loop(0, ITERATIONS, lambda i, s: step(s), x)))(x)
    gradient = np.ones_like(x)
    for _ in range(ITERATIONS):
        gradient, x = gradient * slope(x), step(x)
    return gradient


def logistic_map(lib: Any, x: Any, y: Any) -> Any:
    step = lambda s: s * 0.9 + 0.1 / (1.0 + s * s) * y  # noqa: E731
    return _iterated_gradient(lib, x, step, lambda s: 0.9 - 0.2 * s / (1.0 + s * s) ** 2 * y)


def cube_roots(lib: Any, x: Any, y: Any) -> Any:
    """Newton's method for the cube roots of y, by where it starts."""
    a = lib.abs(y) + 1.0
    step = lambda s: s - (s * s * s - a) / (3.0 * s * s)  # noqa: E731
    return _iterated_gradient(lib, lib.abs(x) + 1.0, step, lambda s: (2.0 - 2.0 * a / (s * s * s)) / 3.0)


# --- run_members_in_turn ---


def row_medians(lib: Any, x: Any, y: Any) -> Any:
    """The medians of rows of 15, which are sorted by insertion."""
    rows = x[:, :15]
    if lib is np:
        return np.median(rows, axis=1)

    def median(row: Any) -> Any:
        def insert(i: Any, row: Any) -> Any:
            value = row[i]

            def shift(state: Any) -> Any:
                k, row = state
                row[k] = row[k - 1]
                return k - 1, row

            def goes_on(state: Any) -> Any:
                return (state[0] > 0) & (state[1][lib.maximum(state[0] - 1, 0)] > value)

            k, row = lib.while_loop(goes_on, shift, (i, row))
            row[k] = value
            return row

        return lib.fori_loop(1, 15, insert, row)[7]

    return lib.vmap(median)(rows)


def visit_counts(lib: Any, x: Any, y: Any) -> Any:
    """Walks on a ring of 20 cells that count their visits until one cell has four."""
    rows = x[:, :20]
    if lib is np:
        counts = np.zeros_like(rows)
        for row, own in zip(rows, counts, strict=True):
            cell = 0
            while own[cell] < 4.0:
                own[cell] += 1.0
                cell = (cell + (3 if row[cell] > 0.1 * own[cell] else 7)) % 20
        return counts

    def walk(row: Any) -> Any:
        def step(state: Any) -> Any:
            cell, counts = state
            visits = counts[cell] + 1.0
            counts[cell] = visits
            return (cell + lib.where(row[cell] > 0.1 * visits, 3, 7)) % 20, counts

        return lib.while_loop(
            lambda state: state[1][state[0]] < 4.0, step, (lib.zeros((), dtype=lib.int64), lib.zeros_like(row))
        )[1]

    return lib.vmap(walk)(rows)


# --- split_stacks ---


def predator_and_prey(lib: Any, x: Any, y: Any) -> Any:
    """A step of Runge and Kutta for each of many pairs of populations, and the largest change."""

    def rate(s: Any) -> Any:
        return lib.stack([s[0] * (1.0 - s[1]), s[1] * (s[0] - 1.0)])

    s = lib.stack([x + 2.0, y + 2.0])
    first = rate(s)
    second = rate(s + 0.05 * first)
    third = rate(s + 0.05 * second)
    moved = s + 0.1 / 6.0 * (first + 2.0 * second + 2.0 * third + rate(s + 0.1 * third))
    return moved, lib.max(lib.abs(moved - s))


def saturated_colours(lib: Any, x: Any, y: Any) -> Any:
    """Three channels that move away from their mean, within bounds."""
    channels = lib.stack([x, y, x * y])
    grey = lib.mean(channels, axis=0)
    vivid = lib.where(lib.abs(channels) < 0.9, channels + 0.3 * (channels - grey), channels)
    return vivid[0] * vivid[1] - vivid[2], lib.max(vivid)


# --- select_by_insertion ---


def nearest_numbers(lib: Any, x: Any, y: Any) -> Any:
    """The mean distance from each of 100 numbers to the four nearest of a row."""
    distances = lib.astype(1000.0 * lib.abs(lib.reshape(x[:1, :100], (100, 1, 1)) - x[None, :8]), lib.int16)
    nearest = np.sort(distances, axis=-1)[..., :4] if lib is np else lib.top_k(distances, 4, largest=False)[0]
    return lib.mean(nearest, axis=-1)


def sparse_rows(lib: Any, x: Any, y: Any) -> Any:
    """Rows of which all but the ten largest numbers are zero."""
    x = lib.astype(1000.0 * x, lib.int16)
    tenth = np.sort(x, axis=1)[:, -10:-9] if lib is np else lib.top_k(x, 10)[0][:, 9:]
    return lib.where(x >= tenth, x, 0)


# --- interchange_point_loops ---


def rotations(lib: Any, x: Any, y: Any) -> Any:
    """Points of the plane that turn, faster the farther they are from the origin."""

    def turn(i: Any, p: Any) -> Any:
        angle = 0.1 * lib.sum(p * p, axis=0)
        return lib.cos(angle) * p + lib.sin(angle) * lib.stack([-p[1], p[0]])

    return repeat(lib, ITERATIONS, turn, lib.reshape(x, (2, -1)))


def palette_colours(lib: Any, x: Any, y: Any) -> Any:
    """Colours of three channels that approach one entry of a palette after the other."""
    palette = lib.reshape(lib.reshape(y, (-1,))[:96], (32, 3))

    def approach(i: Any, colours: Any) -> Any:
        colours = colours + 0.3 * (palette[i] - colours)
        return colours / (1.0 + lib.max(lib.abs(colours), axis=1, keepdims=True))

    return repeat(lib, ITERATIONS, approach, lib.reshape(x[:, :1023], (-1, 3)))


# --- unroll_small_matmuls ---


def covariances(lib: Any, x: Any, y: Any) -> Any:
    m = lib.reshape(x, (-1, 4, 2))
    return lib.matrix_transpose(m) @ m


def projections(lib: Any, x: Any, y: Any) -> Any:
    return lib.reshape(x, (-1, 4, 4)) @ lib.reshape(y, (-1, 4, 4))[:, :, :1]


# --- split_at_concatenations ---


def advection(lib: Any, x: Any, y: Any) -> Any:
    flat = lib.reshape(x, (-1,))
    return flat - 0.3 * (flat - lib.roll(flat, 1)) + 0.1 * lib.roll(flat, -1)


def clamped_differences(lib: Any, x: Any, y: Any) -> Any:
    above, below = lib.concat([x[:1], x[:-1]], axis=0), lib.concat([x[1:], x[-1:]], axis=0)
    return (below - above) * 0.5 + y


# --- unguard_invariants: the number of iterations is known at run time only ---


def decay(lib: Any, x: Any, y: Any, count: Any) -> Any:
    return repeat(lib, count, lambda i, s: s * 0.5 + lib.sin(y), x)


def drift(lib: Any, x: Any, y: Any, count: Any) -> Any:
    return repeat(lib, count, lambda i, s: s + 0.1 * lib.sqrt(lib.abs(y) + 1.0), x)


# --- scalarise_loops: each element of a line depends on the one before ---


def _recurrence(lib: Any, line: Any, step: Callable[[Any, Any], Any]) -> Any:
    def advance(i: Any, state: Any) -> Any:
        state[i + 1] = step(state[i], state[i + 1])
        return state

    return repeat(lib, line.shape[0] - 1, advance, line + 0.0)


def smoothed(lib: Any, x: Any, y: Any) -> Any:
    return _recurrence(lib, x[:, 0], lambda before, value: 0.9 * before + 0.1 * value)


def envelope(lib: Any, x: Any, y: Any) -> Any:
    return _recurrence(lib, x[:, 0], lambda before, value: lib.maximum(before * 0.99, value))


# --- loop_over_elements: rows and columns of a grid depend on the ones before ---


def exchanged_columns(lib: Any, x: Any, y: Any) -> Any:
    """Each column takes a part of the column before, in the opposite order of rows."""

    def advance(j: Any, state: Any) -> Any:
        state[:, j + 1] = 0.75 * state[:, j + 1] + 0.25 * lib.flip(state[:, j], axis=0)
        return state

    return repeat(lib, x.shape[1] - 1, advance, x + 0.0)


def normalised_rows(lib: Any, x: Any, y: Any) -> Any:
    """Each row is made orthogonal to the row before."""

    def advance(i: Any, state: Any) -> Any:
        overlap = lib.sum(state[i] * state[i + 1]) / (lib.sum(state[i] * state[i]) + 1.0)
        state[i + 1] = state[i + 1] - overlap * state[i]
        return state

    return repeat(lib, x.shape[0] - 1, advance, x + 0.0)


# --- lower_tapes: gradients of lines whose elements depend on the ones before ---


def _recurrence_gradient(lib: Any, line: Any, step: Program, by_state: Program, by_value: Program) -> Any:
    """The gradient of the sum of all states; NumPy takes the derivatives of a step by the state and by the value."""
    if lib is not np:
        return lib.grad(lambda values: lib.sum(_recurrence(lib, values, step)))(line)
    states, result = _recurrence(np, line, step), np.ones_like(line)
    for i in reversed(range(len(line) - 1)):
        result[i] += result[i + 1] * by_state(states[i], line[i + 1])
        result[i + 1] *= by_value(states[i], line[i + 1])
    return result


def sine_chain_gradient(lib: Any, x: Any, y: Any) -> Any:
    def step(before: Any, value: Any) -> Any:
        return value + 0.5 * lib.sin(before)

    return _recurrence_gradient(lib, x[:, 0], step, lambda before, _: 0.5 * np.cos(before), lambda *_: 1.0)


def products_gradient(lib: Any, x: Any, y: Any) -> Any:
    def step(before: Any, value: Any) -> Any:
        return 0.5 * before * value + 1.0

    return _recurrence_gradient(lib, x[:, 0], step, lambda _, value: 0.5 * value, lambda before, _: 0.5 * before)


# --- thread_accumulators: gradients of nested loops that read a tensor by index ---


def _loop_gradient(lib: Any, x: Any, term: Callable[[Any, Any], Any]) -> Any:
    """The gradient, with respect to eight columns, of the sum of a term over all their elements, by nested loops."""
    rows, columns = x.shape[0], 8

    def total(values: Any) -> Any:
        def row(i: Any, s: Any) -> Any:
            return lib.fori_loop(0, columns, lambda j, t: t + term(values, i * columns + j), s)

        return lib.fori_loop(0, rows, row, lib.sum(values) * 0.0)

    return lib.grad(total)(lib.reshape(x[:, :columns], (-1,)))


def sum_of_squares_gradient(lib: Any, x: Any, y: Any) -> Any:
    if lib is np:
        return 0.2 * x[:, :8].reshape(-1)
    return _loop_gradient(lib, x, lambda values, k: 0.1 * values[k] ** 2)


def neighbours_gradient(lib: Any, x: Any, y: Any) -> Any:
    if lib is np:
        flat = x[:, :8].reshape(-1)
        return 0.5 * (np.roll(flat, 1) + np.roll(flat, -1))
    return _loop_gradient(lib, x, lambda values, k: 0.5 * values[k] * values[(k + 1) % values.shape[0]])


# --- merge_updates: gradients of loops that write rows over rows ---


def _rows_gradient(lib: Any, x: Any, row: Callable[[Any, Any], Any]) -> Any:
    """The gradient of half the sum of squares after a loop that replaces each row but the first one."""

    def total(values: Any) -> Any:
        def write(i: Any, values: Any) -> Any:
            values[i] = row(i, values)
            return values

        return 0.5 * lib.sum(lib.fori_loop(1, x.shape[0], write, values) ** 2)

    return lib.grad(total)(x)


def damped_rows_gradient(lib: Any, x: Any, y: Any) -> Any:
    if lib is np:
        return np.concatenate([x[:1], np.where(np.arange(x.shape[1]) > 4, 0.25, 1.0).astype(x.dtype) * x[1:]])
    columns = lib.arange(x.shape[1])
    return _rows_gradient(lib, x, lambda i, rows: lib.where(columns > 4, 0.5 * rows[i], rows[i]))


def smoothed_rows_gradient(lib: Any, x: Any, y: Any) -> Any:
    if lib is np:
        after = x.copy()
        for i in range(1, len(x)):
            after[i] = 0.5 * after[i] + 0.25 * after[i - 1]
        for i in range(len(x) - 1, 0, -1):
            after[i - 1] += 0.25 * after[i]
            after[i] *= 0.5
        return after
    return _rows_gradient(lib, x, lambda i, rows: 0.5 * rows[i] + 0.25 * rows[i - 1])


# --- simplify_tapes: gradients of scans ---


def _scan_gradient(lib: Any, x: Any, decay: float) -> Any:
    """The gradient of the sum of a decaying sum along each row, carried on to the next row."""

    def step(total: Any, value: Any) -> Any:
        total = decay * total + value
        return total, total

    return lib.grad(lambda rows: lib.sum(lib.scan(lambda t, row: lib.scan(step, t, row), 0.0, rows)[1]))(x)


def _decayed(x: Any, decay: float) -> Any:
    powers = np.minimum(np.arange(x.size, 0, -1), 10_000.0).reshape(x.shape)
    return ((1.0 - decay**powers) / (1.0 - decay)).astype(x.dtype)


def decayed_rows_gradient(lib: Any, x: Any, y: Any) -> Any:
    return _decayed(x[:, :64], 0.9) if lib is np else _scan_gradient(lib, x[:, :64], 0.9)


def short_memory_gradient(lib: Any, x: Any, y: Any) -> Any:
    return _decayed(x[:, :8], 0.5) if lib is np else _scan_gradient(lib, x[:, :8], 0.5)


# --- restore_overwritten_tensors: gradients of loops that fill a tensor and read all of it ---


def recalled_rows_gradient(lib: Any, x: Any, y: Any) -> Any:
    """Each row is written after all rows are read, weighted by their product with it: an associative memory."""
    x = 0.1 * x[:256, :48]
    if lib is not np:

        def recall(i: Any, t: Any, x: Any) -> Any:
            t[i] = x[i] + 0.001 * ((t @ x[i]) @ t)
            return t

        return lib.grad(lambda x: lib.sum(lib.fori_loop(0, len(x), lambda i, t: recall(i, t, x), x)))(x)
    t, before = x.copy(), list[Any]()
    for i in range(len(x)):
        before.append(t.copy())
        t[i] = x[i] + 0.001 * ((t @ x[i]) @ t)
    change, gradient = np.ones_like(x), np.zeros_like(x)
    for i in range(len(x) - 1, -1, -1):
        row, t = change[i].copy(), before[i]
        change[i] = 0.0
        weights = 0.001 * (t @ row)
        change += 0.001 * np.outer(t @ x[i], row) + np.outer(weights, x[i])
        gradient[i] += row + weights @ t
    return gradient + change


def column_sums_gradient(lib: Any, x: Any, y: Any) -> Any:
    """Each column from the products of all columns with a row, as left-looking factorisations do."""
    x = x[:64, :64]
    if lib is not np:

        def column(j: Any, t: Any, x: Any) -> Any:
            t[:, j] = x[:, j] - 0.01 * (t @ t[j])
            return t

        return lib.grad(lambda x: lib.sum(lib.fori_loop(0, len(x), lambda j, t: column(j, t, x), x)))(x)
    t, before = x.copy(), list[Any]()
    for j in range(len(x)):
        before.append(t.copy())
        t[:, j] = x[:, j] - 0.01 * (t @ t[j])
    change, gradient = np.ones_like(x), np.zeros_like(x)
    for j in range(len(x) - 1, -1, -1):
        column_change, t = change[:, j].copy(), before[j]
        change[:, j] = 0.0
        gradient[:, j] += column_change
        change -= 0.01 * np.outer(column_change, t[j])
        change[j] -= 0.01 * (column_change @ t)
    return gradient + change


# --- privatise_map_sums: gradients of tables that points read in a loop ---


def polynomial_fit_gradient(lib: Any, x: Any, y: Any) -> Any:
    """By the coefficients of a polynomial, from its values at 65,536 points."""
    points, coefficients = lib.sin(x[:64]), y[0, :24]
    if lib is np:
        powers = [np.ones_like(points)]
        for _ in range(23):
            powers.append(powers[-1] * points)
        return np.stack([np.sum(power) for power in powers[::-1]])

    def total(c: Any) -> Any:
        return lib.sum(lib.fori_loop(0, 24, lambda k, s: s * points + c[k], lib.zeros_like(points)))

    return lib.grad(total)(coefficients)


def mixture_gradient(lib: Any, x: Any, y: Any) -> Any:
    """By the heights and places of 12 bumps, from the sum of the sines of their sum at each point."""
    points, heights, places = x[:64], y[0, :12], y[1, :12]
    if lib is np:
        bumps = np.exp(-((points[..., None] - places) ** 2))
        slope = np.cos(bumps @ heights)[..., None] * bumps
        return np.sum(slope, axis=(0, 1)), np.sum(slope * 2.0 * heights * (points[..., None] - places), axis=(0, 1))

    def total(heights: Any, places: Any) -> Any:
        def bump(k: Any, s: Any) -> Any:
            return s + heights[k] * lib.exp(-((points - places[k]) ** 2))

        return lib.sum(lib.sin(lib.fori_loop(0, 12, bump, lib.zeros_like(points))))

    return lib.grad(total, argnums=(0, 1))(heights, places)


# --- sum_products_after_loops: gradients of matrices that loops apply to a vector ---


def _applied_gradient(lib: Any, matrix: Any, times: int) -> Any:
    if lib is np:
        rows, columns = [np.ones(len(matrix), matrix.dtype)], [np.ones(len(matrix), matrix.dtype)]
        for _ in range(times - 1):
            columns.append(matrix @ columns[-1])
            rows.append(rows[-1] @ matrix)
        return sum(np.outer(row, column) for row, column in zip(rows[::-1], columns, strict=True))
    return lib.grad(
        lambda m: lib.sum(lib.fori_loop(0, times, lambda _, v: m @ v, lib.ones(m.shape[0], dtype=m.dtype)))
    )(matrix)


def power_gradient(lib: Any, x: Any, y: Any) -> Any:
    return _applied_gradient(lib, 0.01 * x.T @ x, 8)


def markov_gradient(lib: Any, x: Any, y: Any) -> Any:
    return _applied_gradient(lib, 0.001 * (x.T @ y), 30)


# --- push_transpose_through_matmul ---


def transposed_product(lib: Any, x: Any, y: Any) -> Any:
    return lib.matrix_transpose(x @ lib.matrix_transpose(y)[:, :256])


def weight_gradient(lib: Any, x: Any, y: Any) -> Any:
    if lib is np:
        return 2.0 * np.matrix_transpose(x @ np.matrix_transpose(y[:256])) @ x
    return lib.grad(lambda w: lib.sum((x @ lib.matrix_transpose(w)) ** 2))(y[:256])


# --- share_row_reductions ---


def rows_and_total(lib: Any, x: Any, y: Any) -> Any:
    return lib.sum(lib.abs(x), axis=1), lib.sum(x * x)


def maxima_and_mean(lib: Any, x: Any, y: Any) -> Any:
    return lib.max(x, axis=1), lib.mean(x)


# --- guard_padded_loads ---


def correlation_gradient(lib: Any, x: Any, y: Any) -> Any:
    if lib is np:
        return np.pad(x[3:], ((0, 3), (0, 0))) + np.pad(x[:-3], ((3, 0), (0, 0)))
    return lib.grad(lambda p: lib.sum(p[:-3] * p[3:]))(x)


def smoothness_gradient(lib: Any, x: Any, y: Any) -> Any:
    if lib is np:
        step = 2.0 * (x[:, 1:] - x[:, :-1])
        return np.pad(step, ((0, 0), (1, 0))) - np.pad(step, ((0, 0), (0, 1)))
    return lib.grad(lambda p: lib.sum((p[:, 1:] - p[:, :-1]) ** 2))(x)


# --- write_in_place ---


def cleared_total(lib: Any, x: Any, y: Any) -> Any:
    result = lib.cumulative_sum(lib.reshape(x, (-1,)))
    result[lib.astype(lib.floor(lib.abs(y[:, 0]) * 50.0), lib.int64)] = 0.5
    return result


def cleared_rows(lib: Any, x: Any, y: Any) -> Any:
    result = lib.cumulative_sum(x, axis=1)
    result[lib.astype(lib.floor(lib.abs(y[:8, 0]) * 5.0), lib.int64)] = 0.5
    return result


# --- store_loop_results ---


def diffused(lib: Any, x: Any, y: Any) -> Any:
    def step(i: Any, s: Any) -> Any:
        ends = s[:, :1], s[:, 1:-1] + 0.1 * (s[:, 2:] - 2.0 * s[:, 1:-1] + s[:, :-2]), s[:, -1:]
        return lib.concat(ends, axis=1)

    return repeat(lib, 4, step, x)


def prefix_totals(lib: Any, x: Any, y: Any) -> Any:
    """Running sums along rows by doubling."""
    total = x
    for shift in (1, 2):
        total = repeat(lib, 2, lambda i, s, n=shift: lib.concat([s[:, :n], s[:, n:] + s[:, :-n]], axis=1), total)
    return total


# --- tile_row_chains ---


def two_layers(lib: Any, x: Any, y: Any) -> Any:
    hidden = x @ y[:COLUMNS, :512]
    return lib.maximum(hidden, hidden * 0.0) @ y[:512, :64]


def kernel_regression(lib: Any, x: Any, y: Any) -> Any:
    similar = x[:, :64] @ lib.matrix_transpose(y[:512, :64])
    return lib.exp(similar * 0.01) @ y[:512, :32]


# --- interleave_lanes: applies to processors with AVX-512 ---


def rational_functions(lib: Any, x: Any, y: Any) -> Any:
    total = x
    for index in range(8):
        top, bottom = x * 0.1, y * y
        for power in range(4):
            top, bottom = top * x + (index - power) * 0.05, bottom * 0.5 + (power + 0.1 * index + 1.0)
        total = total * 0.5 + top / bottom
    return total


def saturated_polynomials(lib: Any, x: Any, y: Any) -> Any:
    total = y
    for index in range(6):
        value = total * 0.1
        for power in range(7):
            value = value * x * 0.3 + (index + power) * 0.01
        total = value / lib.sqrt(1.0 + value * value) + total * 0.5 * x
    return total


# --- peel_remainders ---


def smoothed_rows(lib: Any, x: Any, y: Any) -> Any:
    """A filter of nine weights along rows."""
    weights = (0.01, 0.05, 0.12, 0.2, 0.24, 0.2, 0.12, 0.05, 0.01)
    width = COLUMNS - len(weights) + 1
    return sum(weight * x[:, start : start + width] for start, weight in enumerate(weights))


def edges(lib: Any, x: Any, y: Any) -> Any:
    """Sobel's operator."""
    across = x[:-2, 2:] - x[:-2, :-2] + 2.0 * (x[1:-1, 2:] - x[1:-1, :-2]) + x[2:, 2:] - x[2:, :-2]
    down = x[2:, :-2] - x[:-2, :-2] + 2.0 * (x[2:, 1:-1] - x[:-2, 1:-1]) + x[2:, 2:] - x[:-2, 2:]
    return lib.sqrt(across * across + down * down)


# --- eliminate_bounds_checks, version_loops, optimise_scalar_loops: loops that read and write elements ---


def _element_by_element(lib: Any, x: Any, element: Callable[[Any, Any, Any], Any]) -> Any:
    """A grid of 64 columns in which each element but those at the sides is computed in turn."""

    def row(i: Any, grid: Any) -> Any:
        def advance(j: Any, grid: Any) -> Any:
            grid[i + 1, j + 1] = element(grid, i + 1, j + 1)
            return grid

        return repeat(lib, 62, advance, grid)

    return repeat(lib, x.shape[0] - 2, row, x[:, :64] + 0.0)


def relaxed(lib: Any, x: Any, y: Any) -> Any:
    return _element_by_element(lib, x, lambda u, i, j: 0.25 * (u[i - 1, j] + u[i, j - 1] + u[i + 1, j] + u[i, j + 1]))


def path_costs(lib: Any, x: Any, y: Any) -> Any:
    return _element_by_element(lib, x, lambda cost, i, j: cost[i, j] + lib.minimum(cost[i - 1, j], cost[i - 1, j - 1]))


def updated_rows(lib: Any, x: Any, y: Any) -> Any:
    return _element_by_element(lib, x, lambda grid, i, j: grid[i, j] - 0.5 * y[i, j] * grid[0, j])


def row_products(lib: Any, x: Any, y: Any) -> Any:
    return _element_by_element(lib, x, lambda grid, i, j: 0.9 * grid[i, j] + y[i, j] * y[i - 1, j + 1])


def _shifted(lib: Any, x: Any, y: Any, term: Callable[[Any, Any], Any]) -> Any:
    """A line in which elements at distances that data give are joined, from the end down to the start."""
    line, shifts = lib.reshape(x[:, :8], (-1,)) + 0.0, lib.astype(lib.floor(lib.abs(y[:16, 0]) * 50.0), lib.int64)
    size = line.shape[0]

    def shift_once(t: Any, line: Any) -> Any:
        shift = shifts[t]

        def advance(k: Any, line: Any) -> Any:
            line[size - 1 - k] = term(line[size - 1 - k], line[size - 1 - k - shift])
            return line

        return repeat(lib, size - shift, advance, line)

    return repeat(lib, 16, shift_once, line)


def shifted_maxima(lib: Any, x: Any, y: Any) -> Any:
    return _shifted(lib, x, y, lambda value, far: lib.maximum(value, far - 0.01))


def echoes(lib: Any, x: Any, y: Any) -> Any:
    return _shifted(lib, x, y, lambda value, far: 0.75 * value + 0.25 * far)


# --- parallelise_loops: iterations that write rows of their own ---


def _row_by_row(lib: Any, x: Any, y: Any, start: Callable[[Any], Any], step: Callable[[Any, Any], Any]) -> Any:
    """A row of numbers, each of which a loop over a row of x computes from those before."""
    rows, columns = x.shape[0], 64

    def row(i: Any, out: Any) -> Any:
        out[i] = repeat(lib, columns, lambda j, total: step(total, x[i, j]), start(y[i, 0]))
        return out

    return repeat(lib, rows, row, x[:, 0] + 0.0)


def row_recurrences(lib: Any, x: Any, y: Any) -> Any:
    return _row_by_row(lib, x, y, lambda first: first * 0.5, lambda total, value: lib.sin(total) * 0.9 + value)


def row_fractions(lib: Any, x: Any, y: Any) -> Any:
    return _row_by_row(lib, x, y, lambda first: first + 0.0, lambda total, value: value / (2.0 + lib.abs(total)))


# --- split_index_sets: rows of which a mask that moves with the row leaves a part as it is ---


def upper_triangle(lib: Any, x: Any, y: Any) -> Any:
    columns = lib.arange(x.shape[1])

    def advance(i: Any, state: Any) -> Any:
        state[i + 1] = lib.where(columns > i, 0.5 * state[i + 1] + 0.25 * state[i], state[i + 1])
        return state

    return repeat(lib, x.shape[0] - 1, advance, x + 0.0)


def decaying_heads(lib: Any, x: Any, y: Any) -> Any:
    """The first columns of a row, more of them from row to row, take the exponential of the row before."""
    columns = lib.arange(x.shape[1])

    def advance(i: Any, state: Any) -> Any:
        state[i + 1] = lib.where(columns < i, lib.exp(-lib.abs(state[i])), state[i + 1])
        return state

    return repeat(lib, x.shape[0] - 1, advance, x + 0.0)


# --- unroll_and_jam: rows to which a loop adds one multiple of a row after the other ---


def _added_rows(lib: Any, x: Any, combine: Callable[[Any, Any, Any], Any]) -> Any:
    """The first rows, at most 64, each combined with all of them, one after the other."""
    rows = min(x.shape[0], 64)

    def row(i: Any, state: Any) -> Any:
        def add(k: Any, state: Any) -> Any:
            state[i] = combine(state[i], x[k, i], x[k])
            return state

        return repeat(lib, rows, add, state)

    return repeat(lib, rows, row, x[:rows] + 0.0)


def weighted_rows(lib: Any, x: Any, y: Any) -> Any:
    return _added_rows(lib, x, lambda row, weight, other: row + weight * other)


def largest_products(lib: Any, x: Any, y: Any) -> Any:
    return _added_rows(lib, x, lambda row, weight, other: lib.maximum(row, weight * other))


# --- skew_and_jam: tables in which each cell waits for the one before it ---


def _table(lib: Any, x: Any, y: Any, cell: Callable[[Any, Any, Any, Any], Any]) -> Any:
    """A table over the first rows and columns, filled cell by cell."""
    rows, columns = min(x.shape[0], 256) - 1, 255

    def row(i: Any, table: Any) -> Any:
        def fill(j: Any, table: Any) -> Any:
            table[i + 1, j + 1] = cell(table, y[i, j], i, j)
            return table

        return repeat(lib, columns, fill, table)

    return repeat(lib, rows, row, x[: rows + 1, : columns + 1] + 0.0)


def time_warping(lib: Any, x: Any, y: Any) -> Any:
    def cell(table: Any, cost: Any, i: Any, j: Any) -> Any:
        return cost + lib.minimum(table[i, j], lib.minimum(table[i, j + 1], table[i + 1, j]))

    return _table(lib, x, y, cell)


def filtered_plane(lib: Any, x: Any, y: Any) -> Any:
    """A recursive filter over an image, from the upper left corner on."""
    return _table(lib, x, y, lambda table, new, i, j: new + 0.4 * table[i, j + 1] + 0.3 * table[i + 1, j])


# --- share_lockstep: searches that end at different places ---


def first_letters(lib: Any, x: Any, y: Any) -> Any:
    """How many signs at each place of a line are those of a short one."""
    line, wanted = lib.reshape(x[:, :16], (-1,)) > 0.0, y[0, :12] > 0.0
    number = line.shape[0] - 12
    if lib is np:
        windows = np.lib.stride_tricks.sliding_window_view(line, 12)[:number]
        return np.cumprod(windows == wanted, axis=1).sum(axis=1).astype(np.float32)

    def at(start: Any) -> Any:
        def goes_on(k: Any) -> Any:
            safe = lib.minimum(k, 11)
            return (k < 12) & (line[start + safe] == wanted[safe])

        return lib.astype(lib.while_loop(goes_on, lambda k: k + 1, 0), lib.float32)

    return lib.vmap(at)(lib.arange(number))


def steps_to_a_sum(lib: Any, x: Any, y: Any) -> Any:
    """How many weighted numbers from each place on it takes to reach a sum."""
    line, weights = lib.abs(lib.reshape(x[:, :16], (-1,))), lib.abs(y[0, :32])
    number = line.shape[0] - 32
    if lib is np:
        windows = np.lib.stride_tricks.sliding_window_view(line, 32)[:number]
        return (np.cumsum(windows * weights, axis=1) < 2.0).sum(axis=1).astype(np.float32)

    def at(start: Any) -> Any:
        def goes_on(state: Any) -> Any:
            return (state[0] < 32) & (state[1] < 2.0)

        def add(state: Any) -> Any:
            k, total = state
            safe = lib.minimum(k, 31)
            return k + 1, total + line[start + safe] * weights[safe]

        k, total = lib.while_loop(goes_on, add, (0, lib.zeros((), dtype=x.dtype)))
        return lib.astype(k, lib.float32) - lib.where(total < 2.0, 0.0, 1.0)

    return lib.vmap(at)(lib.arange(number))


# --- unroll_small_solves: factorisations of many small matrices ---


def _small_matrices(lib: Any, x: Any) -> Any:
    """Rows of 16 numbers as matrices of 4 rows that can be inverted."""
    return lib.reshape(x[:, :16], (-1, 4, 4)) + 4.0 * lib.eye(4, dtype=x.dtype)


def small_inverses(lib: Any, x: Any, y: Any) -> Any:
    return lib.linalg.inv(_small_matrices(lib, x))


def whitened_points(lib: Any, x: Any, y: Any) -> Any:
    """Mahalanobis distances: each point has a covariance of its own."""
    matrices, points = _small_matrices(lib, x), lib.reshape(x[:, 16:20], (-1, 4, 1))
    spread = lib.matmul(matrices, lib.matrix_transpose(matrices))
    return lib.sum(points * lib.linalg.solve(spread, points), axis=(1, 2))


# --- unroll_short_axes: pairs of points ---


def screened_forces(lib: Any, x: Any, y: Any) -> Any:
    points = x[:, :2]
    offsets = points[None, :, :] - points[:, None, :]
    distances = lib.sqrt(lib.sum(offsets**2, axis=-1) + 0.01)
    return lib.sum(offsets * (lib.exp(-distances) / distances)[:, :, None], axis=1)


def soft_assignments(lib: Any, x: Any, y: Any) -> Any:
    """The mean squared distance of each point to 64 centres, weighted by nearness."""
    squares = lib.sum((lib.reshape(x, (-1, 1, 4)) - lib.reshape(y[:64, :4], (1, -1, 4))) ** 2, axis=-1)
    weights = lib.exp(-squares)
    return lib.sum(weights * squares, axis=1) / lib.sum(weights, axis=1)


PROGRAMS: dict[str, tuple[Program, ...]] = {
    "fuse": (polar, moments),
    "fuse_siblings": (coupled_waves, split_signal),
    "guard_padded_loads": (correlation_gradient, smoothness_gradient),
    "store_repeated": (filtered_twice, outer_distances),
    "unguard_invariants": (decay, drift),
    "lower_tapes": (sine_chain_gradient, products_gradient),
    "loop_over_elements": (exchanged_columns, normalised_rows),
    "scalarise_loops": (smoothed, envelope),
    "interchange_elementwise_loops": (logistic_map, cube_roots),
    "run_members_in_turn": (row_medians, visit_counts),
    "split_stacks": (predator_and_prey, saturated_colours),
    "select_by_insertion": (nearest_numbers, sparse_rows),
    "interchange_point_loops": (rotations, palette_colours),
    "unroll_small_matmuls": (covariances, projections),
    "unroll_short_axes": (screened_forces, soft_assignments),
    "unroll_small_solves": (small_inverses, whitened_points),
    "split_at_concatenations": (advection, clamped_differences),
    "thread_accumulators": (sum_of_squares_gradient, neighbours_gradient),
    "merge_updates": (damped_rows_gradient, smoothed_rows_gradient),
    "simplify_tapes": (decayed_rows_gradient, short_memory_gradient),
    "restore_overwritten_tensors": (recalled_rows_gradient, column_sums_gradient),
    "privatise_map_sums": (polynomial_fit_gradient, mixture_gradient),
    "sum_products_after_loops": (power_gradient, markov_gradient),
    "push_transpose_through_matmul": (transposed_product, weight_gradient),
    "share_row_reductions": (rows_and_total, maxima_and_mean),
    "write_in_place": (cleared_total, cleared_rows),
    "store_loop_results": (diffused, prefix_totals),
    "tile_row_chains": (two_layers, kernel_regression),
    "peel_remainders": (smoothed_rows, edges),
    "interleave_lanes": (rational_functions, saturated_polynomials),
    "eliminate_bounds_checks": (relaxed, path_costs),
    "unroll_and_jam": (weighted_rows, largest_products),
    "skew_and_jam": (time_warping, filtered_plane),
    "share_lockstep": (first_letters, steps_to_a_sum),
    "split_index_sets": (upper_triangle, decaying_heads),
    "parallelise_loops": (row_recurrences, row_fractions),
    "version_loops": (shifted_maxima, echoes),
    "optimise_scalar_loops": (updated_rows, row_products),
}
KINDS = {f"{name}:{program.__name__}": program for name, programs in PROGRAMS.items() for program in programs}


def inputs(kind: str, rows: int) -> tuple[Array, ...]:
    """Two arrays of so many rows, and a number of iterations where that is an argument; the second has 1024 rows."""
    generator = np.random.default_rng(0)
    fewest = COLUMNS if kind.startswith(("tile_row_chains", "push_transpose")) else rows
    arrays = tuple(generator.uniform(-1.0, 1.0, (count, COLUMNS)).astype(np.float32) for count in (rows, fewest))
    return (*arrays, np.array(ITERATIONS // 4)) if kind.startswith("unguard_invariants") else arrays


def expected(kind: str, arrays: tuple[Array, ...]) -> Any:
    wide = [array.astype(np.float64) if array.dtype == np.float32 else array for array in arrays]
    return KINDS[kind](np, *wide)
