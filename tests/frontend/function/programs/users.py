"""Programs in idiomatic Python, as users write them: small simulations, geometry, searches and solvers."""

import math
from typing import Literal

import livegrad as lg
from tests.frontend.function.programs.registry import program


@program((0.1, 0.2, 1.3), (2.0, 2.0, 0.5))
def ray_meets_sphere(x: float, y: float, radius: float) -> float:
    origin, direction = [x, y, -4.0], [0.0, 0.0, 1.0]
    b = sum(o * d for o, d in zip(origin, direction, strict=True))
    c = sum(o * o for o in origin) - radius**2
    discriminant = b * b - c
    if discriminant < 0.0:
        return -1.0
    root = math.sqrt(discriminant)
    near, far = -b - root, -b + root
    return near if near > 0 else far


@program(([0.1, 0.5, 0.2, 0.7, 0.3], 0.1, 3), order=1)
def fluid_cells(density: list[float], rate: float, steps: int) -> float:
    n = len(density)
    for _ in range(steps):
        following = density.copy()
        for i in range(n):
            left = density[i - 1] if i > 0 else density[i]
            right = density[i + 1] if i < n - 1 else density[i]
            following[i] = density[i] + rate * (left - 2 * density[i] + right) + 0.1 * density[i] ** 2
        density = following
    total = 0.0
    for i, value in enumerate(density):
        total += (i + 1) * value
    return total


@program((1.0, 0.5, 4.0, 0.3, 5))
def springs(x: float, v: float, stiffness: float, damping: float, steps: int) -> tuple[float, float]:
    dt = 0.05
    for _ in range(steps):
        force = -stiffness * x - damping * v
        v += dt * force
        x += dt * v
    return x, v


@program((2.0, 1e-12), (9.5, 1e-6))
def newton_root(a: float, tolerance: float) -> float:
    x = a
    for _ in range(50):
        step = (x * x - a) / (2 * x)
        x -= step
        if abs(step) < tolerance:
            break
    return x


@program((0.1, 0.2, 12), (-0.5, 0.5, 20), (1.0, 1.0, 8))
def mandelbrot_escape(cx: float, cy: float, limit: int) -> float:
    x = y = 0.0
    for i in range(limit):
        if x * x + y * y > 4.0:
            return i + x * y
        x, y = x * x - y * y + cx, 2.0 * x * y + cy
    else:
        return x * x + y * y
    return -1.0


@program((0.5, 0.3, 1.0, -0.2))
def quaternion_turns(angle: float, x: float, y: float, z: float) -> list[float]:
    def product(a, b):
        return [
            a[0] * b[0] - a[1] * b[1] - a[2] * b[2] - a[3] * b[3],
            a[0] * b[1] + a[1] * b[0] + a[2] * b[3] - a[3] * b[2],
            a[0] * b[2] - a[1] * b[3] + a[2] * b[0] + a[3] * b[1],
            a[0] * b[3] + a[1] * b[2] - a[2] * b[1] + a[3] * b[0],
        ]

    half = angle / 2
    q = [math.cos(half), 0.0, math.sin(half), 0.0]
    back = [q[0], -q[1], -q[2], -q[3]]
    return product(product(q, [0.0, x, y, z]), back)[1:]


@program(([0.1, 0.4, 0.9, 1.6, 2.5], 1.1), ([0.1, 0.4, 0.9, 1.6, 2.5], -1.0))
def interpolated_by_binary_search(table: list[float], x: float) -> float:
    low, high = 0, len(table) - 1
    while high - low > 1:
        middle = (low + high) // 2
        if table[middle] <= x:
            low = middle
        else:
            high = middle
    t = (x - table[low]) / (table[high] - table[low])
    return low + t


@program((2.0, 0.3, 0.1, 0.2, 1.5, 0.4, 0.3, 0.1, 3.0), order=1)
def gauss_jordan(a: float, b: float, c: float, d: float, e: float, f: float, g: float, h: float, k: float) -> float:
    m = [a, b, c, 1.0, 0.0, 0.0, d, e, f, 0.0, 1.0, 0.0, g, h, k, 0.0, 0.0, 1.0]
    for column in range(3):
        pivot = m[column * 6 + column]
        for j in range(6):
            m[column * 6 + j] /= pivot
        for row in range(3):
            if row == column:
                continue
            factor = m[row * 6 + column]
            for j in range(6):
                m[row * 6 + j] -= factor * m[column * 6 + j]
    trace = 0.0
    for i in range(3):
        trace += m[i * 6 + 3 + i]
    return trace


@program(([0.5, 1.5, -0.5, 2.0],))
def prefix_sums(values: list[float]) -> list[float]:
    sums = [0.0] * len(values)
    running = 0.0
    for i, value in enumerate(values):
        running += value * value
        sums[i] = running
    return sums


@program((0.7, 4), (-0.4, 4), (3.0, 2))
def many_early_returns(x: float, n: int) -> float:
    total = 0.0
    for i in range(n):
        for j in range(n):
            if i * j > 6:
                return total * x
            if j == 2:
                break
            if x < 0:
                continue
            total += x * (i - j)
            if total > 10.0:
                return total - x
        if i == 3:
            return total + x * x
    return total


@program((1.5, 3), (0.5, -2))
def integers_and_floats(x: float, n: int) -> float:
    a = n / 4 + x
    b = n // 2 * x
    c = int(a) + n % 3
    d = (n + 0.5) * c - x**n if n > 0 else x**2 - n
    return a + b * c + d * float(n) + True * x


@program((0.3, 7), (0.3, 0))
def counting_down(x: float, n: int) -> float:
    y = 1.0
    for i in range(n, 0, -2):
        y = y * x + i
    for i in range(10, -1, -3):
        y += i * x
    return y


@program((0.9, 10), (1.7, 10))
def while_with_else(x: float, n: int) -> float:
    i = 0
    y = x
    while i < n:
        y = math.sin(y) + 0.1 * x
        i += 1
        if y < 0.5:
            y *= 3.0
            break
    else:
        y = -y
    return y * x


@program((0.5, 0.25))
def shadowed_names(max_value: float, sum: float) -> float:
    list = [max_value, sum]
    abs = list[0] * list[1]
    for max_value in range(3):
        abs += max_value * sum
    return abs


def scaled(x: float, factor: float = 2.0, *, offset: float = 0.0) -> float:
    return x * factor + offset


@program((0.3,))
def defaults_and_keywords(x: float) -> float:
    return scaled(x) + scaled(x, 3.0) * scaled(offset=x, x=x, factor=x) + scaled(x, offset=1.0)


@lg.differentiable
class Counter:
    total: float
    count: int

    def added(self, x):
        self.total += x
        self.count += 1
        return self

    def mean(self):
        return self.total / self.count


@program(([0.5, 1.5, 4.0],))
def methods_that_return_the_changed_self(values: list[float]) -> float:
    counter = Counter(0.0, 0)
    for value in values:
        counter = counter.added(value * value)
    return counter.mean()


@program((0.4, 1.2))
def functions_in_functions(x: float, scale: float) -> float:
    def bump(t, width=scale):
        if t < 0.0:
            return 0.0
        return math.exp(-t / width)

    cube = lambda t: t * t * t * scale  # noqa: E731
    total = 0.0
    for i in range(4):
        total += bump(x - 0.3 * i) + cube(x + i)
    return total


@program((0, 0.5), (1, 0.5), (2, 0.5), (7, 0.5))
def kinds_by_match(kind: int, x: float) -> float:
    match kind:
        case 0:
            return math.sin(x)
        case 1 | 2:
            y = x * kind
        case other if other > 5:
            y = x**3
        case _:
            y = 0.0
    return y * x


@program((0.5, 0.8))
def slices_of_lists(x: float, y: float) -> float:
    values = [0.0] * 6
    values[1:3] = [x, y]
    values[3:] = [v * v for v in values[:3]]
    values[::3] = (x * y, values[1] * y)
    return values[0] + values[3] * values[5] + sum(values[1:5])


@program(([3.0, 1.0, 2.0, 0.5],))
def bubble_sort(values: list[float]) -> float:
    n = len(values)
    for i in range(n):
        for j in range(n - 1 - i):
            if values[j] > values[j + 1]:
                values[j], values[j + 1] = values[j + 1], values[j]
    return values[0] + 2 * values[1] + 3 * values[2] + 4 * values[3]


@program((0.7, 30))
def horner_by_series(x: float, terms: int) -> float:
    total, term, n = 0.0, 1.0, 0
    while True:
        total += term
        n += 1
        term *= x / n
        if n >= terms or abs(term) < 1e-15:
            return total


@program((2.0, 3.0))
def swapped_until_ordered(a: float, b: float) -> float:
    steps = 0
    while a < 10.0 and steps < 6:
        a, b = b * 1.1, a + b
        steps += 1
    return a / b + steps


@program((0.3, 0.2, 0.1))
def deep_conditionals(x: float, y: float, z: float) -> float:
    a = x if x > y else (y if y > z else z)
    b = x * y if 0.0 < x < 1.0 and not y > 1.0 else z
    c = (x > 0.0 or 1.0 / (x - x) > 0.0) * z
    return a * b + c


@program(([[1.0, 2.0], [0.5, 3.0]], [0.3, 0.7]))
def matrix_of_lists(matrix: lg.array[lg.array[float, Literal[2]], Literal[2]], vector: list[float]) -> float:
    result = [0.0, 0.0]
    for i in range(2):
        for j in range(2):
            result[i] += matrix[i][j] * vector[j]
    matrix[0][1] = result[1]
    return result[0] * matrix[0][1] + matrix[1][0]


@program((1.3, 4))
def exponentiation_by_squaring(x: float, n: int) -> float:
    result = 1.0
    while n:
        if n & 1:
            result *= x
        x *= x
        n >>= 1
    return result


@program(([0.2, 0.9, 0.4],))
def soft_maximum_of_a_list(values: list[float]) -> float:
    largest = max(values)
    weights = [math.exp(v - largest) for v in values]
    total = sum(weights)
    return math.log(total) + largest + max(w / total for w in weights)


@lg.differentiable
class Hit:
    distance: float
    index: int


@program((1.7, 4), (1.7, 0))
def nearest_with_optional(x: float, n: int) -> float:
    best: Hit | None = None
    for i in range(n):
        distance = (x - i) * (x - i)
        if best is None or distance < best.distance:
            best = Hit(distance, i)
    return -1.0 if best is None else best.distance * best.index


@program((2.0,))
def set_in_the_condition(x: float) -> float:
    while (y := x * x) < 50.0:
        if y > 30.0:
            continue_at = y + 2.0
            x = continue_at
            continue
        x = y + 1.0
    return y
