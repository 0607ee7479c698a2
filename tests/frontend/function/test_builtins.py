"""Python's builtins in captured functions: their results, and errors of invalid calls."""

import math
import re

import numpy as np
import pytest

import livegrad as lg


def test_sum_accepts_a_start_value():
    @lg.differentiable
    def f(x: float) -> float:
        return sum([x, 2.0 * x], start=10.0) + sum([x, x], 5.0) + sum((x * i for i in range(3)), start=x)

    assert f(1.5) == f.python(1.5) == 4.5 + 10.0 + 3.0 + 5.0 + 4.5 + 1.5
    assert lg.bwd_diff(f)(1.5, 1.0) == (9.0,)


def test_hypot_of_one_number_is_its_absolute_value():
    @lg.differentiable
    def f(x: float) -> float:
        return math.hypot(x)

    assert [f(-3.0), f(3.0)] == [3.0, 3.0]
    assert lg.bwd_diff(f)(-3.0, 1.0) == (-1.0,)


def test_infinity_and_nan_have_pythons_spellings():
    @lg.function
    def f(values: list[float]) -> tuple[float, float, float]:
        least, most = float("inf"), float("-Infinity")
        for value in values:
            least, most = min(least, value), max(most, value)
        return least, most, float("nan")

    assert f([3.0, 1.0, 2.0])[:2] == (1.0, 3.0)
    assert math.isnan(f([1.0])[2])


def test_a_strict_zip_requires_equal_lengths():
    @lg.function
    def f(x: float) -> float:
        total = 0.0
        for a, b in zip([x, 2.0], [3.0, 4.0], strict=True):
            total += a * b
        return total

    assert f(1.0) == 11.0


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("return float(len([i for i in range(0, 5, 0)]))", "LG107: range's step must not be zero"),
        ("for i in range(0, 5, 0): x += 1.0", "LG107: range's step must not be zero"),
        ("for i in range(2.5): x += 1.0", "LG202: a bound of range must be an int"),
        ("for i in range(10**20): x += 1.0", "LG107: a range beyond 64 bits"),
        ("for i in range(-2**63, 2**63 - 1): x += 1.0", "LG107: a range beyond 64 bits"),
        ("for i in enumerate(): x += 1.0", "LG108: `enumerate` takes an iterable and `start`"),
        ("for i, v in enumerate([x], begin=3): x += i", "LG108: `enumerate` takes an iterable and `start`"),
        ("for i in reversed(): x += 1.0", "LG108: `reversed` takes one iterable"),
        (
            "for a, b in zip([x, x], [x], strict=True): x += a",
            "LG107: the iterables of a strict `zip` have different lengths",
        ),
        ("for a in zip([x], by=2): x += 1.0", "LG108: `zip` takes iterables and `strict`"),
        ("x = sum([x], begin=2.0)", "LG108: `sum` takes values and `start`"),
        ("x = sum()", "LG108: `sum` takes values and `start`"),
        ("x = max()", "LG108: `max` needs an argument"),
        ("x = math.radians()", "LG108: `radians` needs an argument"),
        ("x = round(x, 1, 2)", "LG108: `round` takes 1 argument"),
        ("d = {i: x for i in range(3)}", "LG102: compiled functions do not support dictionaries"),
        ("d = {i for i in range(3)}", "LG102: compiled functions do not support sets"),
        ("yield x", "LG102: compiled functions do not support `yield`"),
    ],
)
def test_invalid_calls_of_builtins_are_rejected_at_their_line(body: str, said: str):
    source = f"import math\nimport livegrad as lg\n@lg.function\ndef f(x: float):\n    {body}\n    return x\n"
    with pytest.raises(lg.FunctionError, match=re.escape(said)) as caught:
        lg.run_source(source)["f"](1.5)
    assert ":5:" in str(caught.value)


# --- numbers and lists from outside ----------------------------------------------------------------------------------


def test_elements_of_arrays_count_as_python_numbers():
    @lg.differentiable
    def square(x: lg.f32) -> lg.f32:
        return x * x

    @lg.function
    def following(n: lg.i32) -> lg.i32:
        return n + 1

    assert [float(square(x)) for x in np.linspace(0.0, 1.0, 3)] == [0.0, 0.25, 1.0]
    assert float(lg.grad(square)(np.float64(3.0))) == 6.0
    assert [int(following(n)) for n in np.arange(2)] == [1, 2]
    with pytest.raises(lg.UsageError, match="expected i32"):
        following(np.int64(2**40))
    with pytest.raises(lg.FunctionError, match="expects i32, found float"):
        following(np.float64(3.0))


def test_a_differential_of_another_length_is_rejected_at_its_line():
    @lg.differentiable
    def both(x: float, y: float) -> tuple[float, float]:
        return x * y, x + y

    @lg.differentiable
    def powers(x: float):
        return [x, x * x]

    assert lg.bwd_diff(both)(1.0, 2.0, np.array([1.0, 1.0])) == (3.0, 2.0)
    for wrong in (lambda: lg.bwd_diff(both)(1.0, 2.0, (1.0,)), lambda: lg.bwd_diff(powers)(1.0, [1.0, 1.0, 1.0])):
        with pytest.raises(lg.LivegradError) as caught:
            wrong()
        assert "test_builtins.py" in str(caught.value)


@pytest.mark.parametrize("digits", [0, 1, 2, 3, 8, 13, 22])
def test_a_float_is_rounded_to_digits_as_python_rounds_its_exact_decimal_value(digits: int):
    names = lg.run_source(f"@lg.function\ndef f(x: float) -> float:\n    return round(x, {digits})\n", {"lg": lg})
    random = np.random.default_rng(digits)
    ties = (2 * random.integers(-(10**6), 10**6, 500) + 1) / 2 / 10.0**digits  # in decimals; most are none in binary
    edges = [math.inf, -math.inf, 0.0, -0.0, -1e-30, 1.115, 2.675, 45035996273704.97, 2.0**53, -(2.0**52) - 1.5, 1e300]
    any_bits = random.integers(0, 1 << 64, 500, dtype=np.uint64).view(np.float64)
    values = np.concatenate([ties, edges, random.normal(size=500), any_bits[np.isfinite(any_bits)]])
    actual, expected = names["f"](values), np.array([round(float(value), digits) for value in values])
    np.testing.assert_array_equal(actual.view(np.uint64), expected.view(np.uint64))


def test_rounding_to_digits_keeps_integers_and_has_no_derivative():
    @lg.function
    def hundreds(x: int) -> int:
        return round(x, -2) + round(x, 3) - round(x, ndigits=None)  # noqa: RUF057 - that is the test

    assert [hundreds(x) for x in range(-400, 400, 25)] == [round(x, -2) for x in range(-400, 400, 25)]

    @lg.differentiable
    def f(x: float) -> float:
        return x * round(x, ndigits=1)

    assert lg.bwd_diff(f)(1.23, 1.0) == (1.2,)
    assert lg.fwd_diff(f)(lg.pair(1.23, 1.0)).differential == 1.2


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("round(x, -2)", "LG201: invalid digits of `round`"),
        ("round(x, int(x))", "LG201: invalid digits of `round`"),
        ("round(lg.vec3(x), 2)", "LG201: `round` to digits takes a number, not vec3"),
        ("int(x, base=2)", "LG108: `int` takes"),
    ],
)
def test_unsupported_digits_of_round_are_rejected(call: str, said: str):
    names = lg.run_source(f"@lg.function\ndef f(x: float) -> float:\n    return {call}\n", {"lg": lg})
    with pytest.raises(lg.FunctionError, match=re.escape(said)):
        names["f"](1.0)
