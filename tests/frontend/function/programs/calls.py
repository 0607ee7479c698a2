"""Calls between functions, keywords, defaults, plain Python helpers, higher-order functions."""

import math

from tests.frontend.function.programs.registry import program


def square(x: float) -> float:
    return x * x


def blend(a, b, t=0.5):
    return a * (1.0 - t) + b * t


def sign_of(x: float) -> float:
    if x > 0.0:
        return 1.0
    return -1.0


def power_sum(x: float, n: int) -> float:
    total = 0.0
    for k in range(n):
        total += x**k
    return total


def min_and_max(x: float, y: float) -> tuple[float, float]:
    return (x, y) if x < y else (y, x)


def apply_twice(f, x):
    return f(f(x))


@program((1.3,))
def call_of_a_helper(x: float) -> float:
    return square(x) + square(x + 1.0) * square(2.0)


@program((1.3, 0.4))
def call_with_keywords(x: float, y: float) -> float:
    return blend(x, y) + blend(b=x, a=y, t=0.25) * blend(x, y, t=x)


@program((1.3,), (-1.3,))
def call_in_a_branch(x: float) -> float:
    return square(x) * sign_of(x) if x > -5.0 else x


@program((0.7, 4))
def call_in_a_loop(x: float, n: int) -> float:
    total = 1.0
    for i in range(n):
        total = blend(total, square(x) * i, 0.3)
    return total


@program((0.7, 4))
def call_of_a_loop(x: float, n: int) -> float:
    return power_sum(x, n) * power_sum(0.5 * x, n + 1)


@program((0.7, 1.4), (1.4, 0.7))
def call_with_two_results(x: float, y: float) -> float:
    low, high = min_and_max(x, y * y)
    return high * high - low


@program((0.7,))
def call_of_a_function_given(x: float) -> float:
    return apply_twice(square, x) + apply_twice(math.sin, x)


@program((0.7,))
def functions_in_a_tuple(x: float) -> float:
    total = 0.0
    for f in (math.sin, math.cos, square):
        total += f(x) * x
    return total


@program((0.7, 3))
def loop_calls_loop(x: float, n: int) -> float:
    total = 0.0
    for i in range(n):
        total += power_sum(x + 0.1 * i, i + 1)
    return total


@program((0.9, 3), (0.9, 0))
def while_calls(x: float, n: int) -> float:
    k = 0
    while k < n and square(x) < 10.0:
        x = blend(x, square(x) + 1.0, 0.2)
        k += 1
    return x


@program((0.3, 0.6))
def spread_arguments(x: float, y: float) -> float:
    values = (x, y)
    return blend(*values) * blend(*[y, x], t=0.1)


@program((2.0,), order=1)  # the path jumps with `a`, so that only the value after the last step is smooth
def bisection(a: float) -> float:
    low, high = 0.0, a + 1.0
    for _ in range(30):
        middle = 0.5 * (low + high)
        if square(middle) > a:
            high = middle
        else:
            low = middle
    # One step of Newton's method gives the derivative that the bisection cannot.
    x = 0.5 * (low + high)
    return x - (square(x) - a) / (2.0 * x)


@program((0.55, 1.0), order=1)
def rejection_by_return(x: float, y: float) -> float:
    if x < 0.0 or y < 0.0:
        return 0.0
    for k in range(4):
        if x * k > y:
            return blend(x, y, 0.1 * k)
    return x + y
