"""Arithmetic with Python's rules: division, remainder, powers, rounding, mixed number types, math and NumPy."""

import math

import numpy as np

from tests.frontend.function.programs.registry import program

GAIN = 2.5


@program((7.3, 2.1), (-7.3, 2.1), (7.3, -2.1))
def float_remainder(x: float, y: float) -> float:
    return x % y + x * y


@program((7.3, 2.1), (-7.3, 2.1))
def float_floor_division(x: float, y: float) -> float:
    return (x // y) * x + y


@program((1.5, 7, 2), (1.5, -7, 2), (1.5, 7, -2))
def integer_division(x: float, a: int, b: int) -> float:
    return x * (a // b) + x * x * (a % b) + a / b


@program((1.5,), (-0.7,))
def whole_powers(x: float) -> float:
    return x**2 + x**3 - x**5 + x**0 + 2.0 * x**1


@program((1.5,), (2.5,))
def negative_powers(x: float) -> float:
    return x**-1 + x**-2


@program((1.5, 2.5))
def real_powers(x: float, y: float) -> float:
    return x**y + x**0.5 + 2.0**y


@program((0.7, 3), (0.7, 0))
def integer_power_at_run_time(x: float, n: int) -> float:
    return x * 2**n + x**n


@program((1.7,), (-1.7,))
def rounding(x: float) -> float:
    return x * round(x) + x * math.floor(x) + math.ceil(x) * x * x + int(x) * x


@program((0.6,))
def transcendental(x: float) -> float:
    return math.sin(x) * math.cos(x) + math.tan(x) + math.exp(-x) + math.log(1.0 + x) + math.sqrt(x)


@program((0.6,))
def inverse_trigonometric(x: float) -> float:
    return math.asin(x) + math.acos(x) * x + math.atan(x) + math.atan2(x, 2.0) + math.atan2(1.0, x)


@program((0.6,))
def hyperbolic(x: float) -> float:
    return math.sinh(x) + math.cosh(x) + math.tanh(x) + math.asinh(x) + math.acosh(1.0 + x) + math.atanh(x)


@program((0.6,))
def numpy_names(x: float) -> float:
    return np.sin(x) + np.exp(x) * np.arctan(x) + np.sqrt(x) + np.power(x, 3.0) + np.maximum(x, 0.2)


@program((0.6,))
def other_math(x: float) -> float:
    return math.erf(x) + math.log1p(x) + math.expm1(x) + math.hypot(x, 1.0) + math.log2(x) + math.log10(x)


@program((0.6,))
def logarithm_with_base(x: float) -> float:
    return math.log(x + 1.0, 3.0) + math.fabs(-x) + math.copysign(x, -1.0)


@program((0.6,))
def module_constants(x: float) -> float:
    return GAIN * x + math.pi * x**2 - math.e


@program((0.6, 3))
def mixed_integers_and_floats(x: float, n: int) -> float:
    k = n * 2 + 1
    return x * k / 3 + n - k * 0.5 + (n / 2) * x


@program((0.6, 3))
def augmented_assignment(x: float, n: int) -> float:
    y = x
    y += 1
    y -= 0.25
    y *= n
    y /= 3
    y **= 2
    return y


@program((0.6,))
def unary_operators(x: float) -> float:
    return -x + (+x) * x - (-2.0) * x


@program((0.6, 5, 3))
def bits(x: float, a: int, b: int) -> float:
    return x * (a & b) + x * (a | b) + (a ^ b) + (a << 1) * x + (a >> 1) + (~a) * x


@program((0.6,))
def annotated_locals(x: float) -> float:
    y: float = 2
    z: int = 3
    return x * y * z


@program((0.6, 0.2))
def walrus(x: float, y: float) -> float:
    if (d := x - y) > 0:
        return d * d
    return d


@program((2.6, 1.2), (-2.6, 1.2))
def divmod_of_floats(x: float, y: float) -> float:
    q, r = divmod(x, y)
    return q * x + r * r


@program((0.3,), (0.9,))
def smooth_minimum(x: float) -> float:
    a, b = x * x, 1.0 - x
    h = max(0.0, min(1.0, 0.5 + 0.5 * (b - a) / 0.2))
    return b * (1.0 - h) + a * h - 0.2 * h * (1.0 - h)


@program((1.0, 1.0), order=1)
def is_finite_guard(x: float, y: float) -> float:
    r = x / y
    return r if math.isfinite(r) else 0.0


@program((0.25, 1.5, -0.5))
def quadratic_formula(a: float, b: float, c: float) -> float:
    d = b * b - 4.0 * a * c
    if d < 0.0:
        return 0.0
    return (-b + math.sqrt(d)) / (2.0 * a)


@program((0.3, 0.4))
def rosenbrock(x: float, y: float) -> float:
    return (1.0 - x) ** 2 + 100.0 * (y - x**2) ** 2


@program((0.3, 0.4))
def log_sum_exp(x: float, y: float) -> float:
    m = max(x, y)
    return m + math.log(math.exp(x - m) + math.exp(y - m))


@program((0.3,))
def default_and_keyword(x: float, scale: float = 2.0) -> float:
    return x * x * scale


@program((0.8, 1.7))
def numpy_where(x: float, y: float) -> float:
    return float(np.where(x < y, x * y, x - y))


@program((0.8,))
def degrees_and_radians(x: float) -> float:
    return math.sin(math.radians(x * 50.0)) + math.degrees(x)


@program((0.4, 0.9))
def planck(x: float, y: float) -> float:
    return x**3 / math.expm1(x * y + 0.1)


@program((0.4,))
def nested_conditionals(x: float) -> float:
    return (x if x > 0.5 else 2.0 * x if x > 0.3 else 3.0 * x) ** 2


@program((0.4, 3), (0.4, 4))
def parity(x: float, n: int) -> float:
    return x * (1.0 if n % 2 == 0 else -1.0) + x ** (n % 3)


@program((0.4, 1.7))
def clamped(x: float, y: float) -> float:
    return max(0.1, min(x, 1.0)) * max(0.1, min(y, 1.0)) + min(x, y, 0.2) + max([x, y])


@program((5.3,), (-5.3,))
def wrapped_angle(x: float) -> float:
    return ((x + math.pi) % (2.0 * math.pi) - math.pi) ** 2


@program((0.4, 0.2))
def complete_the_square(a: float, b: float) -> float:
    p, q = -b / (2 * a), (4 * a - b * b) / (4 * a)
    return p * q + a


@program((0.4,))
def long_chain(x: float) -> float:
    a = math.sin(x)
    b = a * x + math.cos(a)
    c = b / (a + 2.0)
    d = c**2 - b * a
    e = math.sqrt(d * d + 1.0)
    return math.log(e + c * c) * d
