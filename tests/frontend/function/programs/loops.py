"""Loops with static and run-time bounds, `break`, `continue`, `while`, `else`, nested loops."""

import math

from tests.frontend.function.programs.registry import program


@program((1.1, 5), (1.1, 0))
def product_by_a_run_time_loop(x: float, n: int) -> float:
    p = 1.0
    for _ in range(n):
        p = p * x
    return p


@program((0.7, 6), (0.7, 0))
def weighted_mean_in_a_loop(x: float, n: int) -> float:
    total = 0.0
    weight = 1e-3
    for i in range(n):
        w = math.exp(-x * i)
        total += w * i * x
        weight += w
    return total / weight


@program((0.9, 3, 4), (0.9, 0, 4))
def nested_run_time_loops(x: float, n: int, m: int) -> float:
    total = 0.0
    for i in range(n):
        inner = 1.0
        for j in range(m):
            inner = inner * (x + 0.1 * j) + 0.01 * i
        total += inner
    return total


@program((0.8, 7))
def continue_in_a_loop(x: float, n: int) -> float:
    total = 0.0
    for i in range(n):
        if i % 3 == 1:
            continue
        total = total * x + i
    return total


@program((1.3, 20))
def break_in_a_loop(x: float, n: int) -> float:
    p = 1.0
    for _ in range(n):
        p = p * x
        if p > 4.0:
            break
    return p * x


@program((2.0, 5))
def defined_before_used_after(x: float, n: int) -> float:
    scale = x * x
    y = scale
    for _ in range(n):
        y = math.sin(y) + scale * 0.1
    return y * scale


@program((37.0,))
def while_halving(x: float) -> float:
    n = 0
    while x > 1.0:
        x = x * 0.5
        n += 1
    return x * n


@program((2.0,))
def newton_square_root(a: float) -> float:
    x = a
    while abs(x * x - a) > 1e-12:
        x = 0.5 * (x + a / x)
    return x


@program((1.7,))
def while_true_with_break(x: float) -> float:
    y = x
    while True:
        y = y * y
        if y > 100.0:
            break
        y = y + 1.0
    return y


@program((1.7,))
def while_true_with_return(x: float) -> float:
    while True:
        x = x * 1.5
        if x > 10.0:
            return x * x


@program((0.3, 10), (5.0, 10))
def return_from_a_loop(x: float, n: int) -> float:
    total = 0.0
    for i in range(n):
        total += x * i
        if total > 9.0:
            return total * total
    return -total


@program((0.3, 4, 5), (3.0, 4, 5))
def return_from_nested_loops(x: float, n: int, m: int) -> float:
    total = x
    for i in range(n):
        for j in range(m):
            total += x * (i + j)
            if total > 20.0:
                return total * x
    return total


@program((0.5,))
def loop_variable_after_the_loop(x: float) -> float:
    for i in range(5):
        x = x * 1.1 + i
    return x * i  # type: ignore[reportPossiblyUnbound]


@program((0.5,))
def name_set_in_a_loop_that_certainly_runs(x: float) -> float:
    for i in range(3):
        y = x * (i + 1.0)
        x = y + 0.5
    return x * y  # type: ignore[reportPossiblyUnbound]


@program((0.5, 3, 11), (0.5, 8, 2))
def range_with_start_and_step(x: float, a: int, b: int) -> float:
    total = 0.0
    for i in range(a, b, 2):
        total += math.sin(x * i)
    for i in range(b, a, -3):
        total += math.cos(x * i)
    return total


@program((0.5, 7, -2), (0.5, 1, 3))
def range_with_computed_step(x: float, n: int, s: int) -> float:
    total = x
    for i in range(0, n * s, s):
        total = total * x + 0.1 * i
    return total


@program((0.5, 4), (2.0, 4))
def for_else(x: float, n: int) -> float:
    y = x
    for _ in range(n):
        y *= x
        if y > 5.0:
            break
    else:
        y = y + 100.0 * x
    return y


@program((0.5,), (20.0,))
def while_else(x: float) -> float:
    k = 0
    while k < 5:
        x *= 1.1
        k += 1
        if x > 21.0:
            break
    else:
        x = -x
    return x * k


@program((0.9, 12))
def break_and_continue(x: float, n: int) -> float:
    s = 0.0
    for i in range(n):
        if i < 3:
            continue
        if i == 8:
            break
        s = s * x + x / i
    return s


@program((0.6, 5))
def two_carried_values(x: float, n: int) -> float:
    a, b = x, 1.0
    for _ in range(n):
        a, b = b * x, a + b
    return a / b


@program((0.6, 4))
def fibonacci_of_floats(x: float, n: int) -> float:
    a, b = 0.0, x
    for _ in range(n):
        a, b = b, a + b
    return a * a


@program((0.6, 6))
def horner(x: float, n: int) -> float:
    y = 0.0
    for i in range(n):
        y = y * x + (i + 1)
    return y


@program((0.2, 3))
def triangular_loop(x: float, n: int) -> float:
    total = 0.0
    for i in range(n):
        for j in range(i + 1):
            total += x ** (j + 1) / (i + 1)
    return total


@program((0.5, 12))
def euler_integration(k: float, steps: int) -> float:
    y = 1.0
    dt = 1.0 / steps
    for _ in range(steps):
        y += dt * (-k * y + math.sin(y))
    return y


@program((3.0, 2.0))
def euclid_like_subtraction(x: float, y: float) -> float:
    steps = 0
    while abs(x - y) > 0.1 and steps < 20:
        if x > y:
            x = x - 0.5 * y
        else:
            y = y - 0.25 * x
        steps += 1
    return x * y


@program((0.1, 12))
def logistic_map(x: float, n: int) -> float:
    r = 2.8
    for _ in range(n):
        x = r * x * (1.0 - x)
    return x


@program((0.4, 5), (0.4, 1))
def accumulate_in_branch_in_loop(x: float, n: int) -> float:
    even, odd = 0.0, 1.0
    for i in range(n):
        if i % 2 == 0:
            even += x * i
        else:
            odd *= x + i
    return even + odd


@program((0.4, 6))
def continue_then_more(x: float, n: int) -> float:
    s, t = 0.0, x
    for _ in range(n):
        t = t * 1.1
        if t > 0.5:
            continue
        s += t * t
        t += 0.01
    return s + t


@program((0.4, 3), (2.0, 3))
def break_out_of_inner_only(x: float, n: int) -> float:
    total = 0.0
    for i in range(n):
        p = 1.0
        for j in range(10):
            p *= x
            if p > 3.0 or j > i + 2:
                break
            total += p
        total += p * i
    return total


@program((1.3, 4))
def while_with_float_counter(x: float, n: int) -> float:
    t = 0.0
    y = x
    while t < n:
        y = y + 0.1 * math.cos(y * t)
        t += 0.5
    return y


@program((0.7, 4))
def dead_carried_value(x: float, n: int) -> float:
    huge = x
    y = 1.0
    for _ in range(n):
        huge = huge * 1e80
        y = y * x
    return y


@program((0.7, 5))
def power_of_loop_index(x: float, n: int) -> float:
    total = 0.0
    for i in range(n):
        total += x**i
    return total


@program((0.7,))
def loop_over_a_tuple(x: float) -> float:
    total = 0.0
    for a, b in ((1.0, 2.0), (3.0, 4.0)):
        total += a * x**2 + b * x
    return total


@program((0.7,))
def loop_over_a_list(x: float) -> float:
    total = 0.0
    for a in [1.0, x, x * x, 2.0]:
        total = total * x + a
    return total


@program((0.7,))
def enumerate_and_zip(x: float) -> float:
    weights = [0.1, 0.2, 0.3]
    values = [x, x * x, math.sin(x)]
    total = 0.0
    for i, (w, v) in enumerate(zip(weights, values)):  # noqa: B905
        total += (i + 1) * w * v
    return total


@program((0.7, 4))
def reversed_range(x: float, n: int) -> float:
    y = x
    for i in reversed(range(n)):
        y = y * x + i
    return y
