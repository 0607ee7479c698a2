"""Tuples and lists: construction, indexing, in-place changes, comprehensions."""

import math

import numpy as np

from tests.frontend.function.programs.registry import program

WEIGHTS = [0.2, 0.5, 0.3]
TABLE = np.array([0.5, 1.5, 2.5, 3.5, 4.5])


@program((0.5, 1.5))
def tuple_result(x: float, y: float) -> tuple[float, float]:
    return x * y, x - y * y


@program((0.5, 1.5))
def tuple_unpacking(x: float, y: float) -> float:
    p = (x, y, x * y)
    a, b, c = p
    return a * b + c * p[1] - p[-1]


@program((0.5,))
def list_building(x: float) -> float:
    values = [x, x * x, 3.0]
    return values[0] * values[1] + values[-1] * len(values)


@program((0.5, 2), (0.5, -1))
def list_with_computed_index(x: float, k: int) -> float:
    values = [x, x * x, math.sin(x)]
    return values[k] * 2.0


@program((0.5,))
def list_elements_changed(x: float) -> float:
    values = [0.0] * 4
    for i in range(4):
        values[i] = x * (i + 1)
    for i in range(1, 4):
        values[i] += values[i - 1] * values[i]
    return values[3]


@program((0.5, 4))
def prefix_sums_in_place(x: float, n: int) -> float:
    values = [x] * 6
    for i in range(1, n):
        values[i] = values[i] * 1.5 + values[i - 1]
    return values[n - 1] * values[0]


@program(([0.3, 0.5, 0.7],))
def list_parameter(values: list[float]) -> float:
    total = 0.0
    for value in values:
        total += value * value
    return math.sqrt(total)


@program(([0.3, 0.5, 0.7],))
def softmax_entropy(values: list[float]) -> float:
    m = max(values)
    exps = [math.exp(v - m) for v in values]
    z = sum(exps)
    entropy = 0.0
    for e in exps:
        p = e / z
        entropy -= p * math.log(p)
    return entropy


@program((0.5,))
def comprehension(x: float) -> float:
    powers = [x**k for k in range(4)]
    return sum(powers) + sum([p * p for p in powers])


@program((0.5, 5))
def generator_sum(x: float, n: int) -> float:
    return sum(math.sin(x * i) for i in range(n))


@program((0.5,))
def comprehension_with_condition(x: float) -> float:
    return sum([x**k for k in range(6) if k % 2 == 0])


@program((0.5,))
def slices(x: float) -> float:
    values = [x, 2.0 * x, x * x, x**3]
    head, tail = values[:2], values[2:]
    return head[0] * tail[1] + head[1] * tail[0] + values[::2][1]


@program((0.5,))
def starred_unpacking(x: float) -> float:
    first, *rest = [x, x * x, x**3]
    return first * rest[0] + rest[1]


@program((0.5,))
def list_concatenation(x: float) -> float:
    values = [x, x * x] + [1.0]  # noqa: RUF005
    return values[0] + values[1] * values[2]


@program((0.5,))
def constants_from_the_module(x: float) -> float:
    total = 0.0
    for i in range(3):
        total += WEIGHTS[i] * x**i
    return total


@program((0.5, 3))
def table_from_the_module(x: float, k: int) -> float:
    return TABLE[k] * x + TABLE[k - 1] * x * x


@program((0.5, 0.7))
def nested_tuples(x: float, y: float) -> float:
    pair = ((x, y), (x * y, 2.0))
    (a, b), (c, d) = pair
    return a * d + b * c


@program(((0.5, 0.7),))
def tuple_parameter(p: tuple[float, float]) -> float:
    x, y = p
    return x * x * y


@program((0.5,))
def nested_lists(x: float) -> float:
    m = [[x, 1.0], [2.0, x * x]]
    return m[0][0] * m[1][1] - m[0][1] * m[1][0]


@program((0.5,))
def nested_list_changed(x: float) -> float:
    m = [[0.0, 0.0], [0.0, 0.0]]
    for i in range(2):
        for j in range(2):
            m[i][j] = x ** (i + 1) * (j + 1)
    return m[0][1] * m[1][0]


@program(([0.3, 0.5, 0.7, 0.1],))
def bubble_sort_pass(values: list[float]) -> float:
    v = list(values)
    for i in range(3):
        if v[i] > v[i + 1]:
            v[i], v[i + 1] = v[i + 1], v[i]
    return v[0] + 2.0 * v[1] * v[2] + v[3] ** 3


@program(([0.3, 0.5, 0.7],))
def running_maximum(values: list[float]) -> float:
    best = values[0]
    for value in values[1:]:
        best = max(best, value)
    return best * sum(values)


@program((0.5,))
def carried_list(x: float) -> float:
    state = [x, 1.0]
    for _ in range(5):
        state = [state[1], state[0] + 0.5 * state[1] * x]
    return state[0] * state[1]


@program((0.5, 4))
def carried_tuple(x: float, n: int) -> float:
    state = (x, 1.0)
    for _ in range(n):
        state = (state[1], state[0] * x)
    return state[0] + state[1]


@program((0.5, 0.25))
def dot_of_lists(x: float, y: float) -> float:
    a, b = [x, y, 1.0], [y, 2.0, x]
    return sum(p * q for p, q in zip(a, b))  # noqa: B905
