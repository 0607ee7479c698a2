"""Local functions, `match`, strings in prints and messages, generic structs, checks in derivatives, cached calls."""

import enum
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
import pytest

import livegrad as lg

Element = TypeVar("Element")
First = TypeVar("First")
Second = TypeVar("Second")


@lg.differentiable
def integrated(f: Callable[[float], float], low: float, high: float, n: int) -> float:
    width = (high - low) / n
    total = 0.0
    for i in range(n):
        total += f(low + (i + 0.5) * width)
    return total * width


# --- functions inside functions --------------------------------------------------------------------------------------


def test_a_local_function_sees_the_variables_at_the_time_of_the_call():
    @lg.differentiable
    def f(x: float, n: int) -> float:
        k = 2.0

        def g(y, s=x * k):
            if y > 1.0:
                return y * k
            y = y + s
            return y * y

        total = 0.0
        for i in range(n):
            k = k + x
            total += g(x + i) if i % 2 == 0 else g(x, 0.5)
        return total

    for x in (0.3, 1.5, -0.7):
        assert math.isclose(f(x, 5), f.python(x, 5), rel_tol=1e-14)
        step = 1e-6
        slope = (f(x + step, 5) - f(x - step, 5)) / (2 * step)
        assert math.isclose(lg.grad(f)(x, 5), slope, rel_tol=1e-6)
        assert math.isclose(lg.fwd_diff(f)(lg.pair(x, 1.0), 5).differential, lg.grad(f)(x, 5), rel_tol=1e-12)


def test_a_standalone_local_function_can_be_passed_as_an_argument():
    @lg.differentiable
    def f(high: float) -> float:
        def cube(t):
            return t * t * t

        return integrated(lambda t: t * t, 0.0, high, 200) + integrated(cube, 0.0, high, 200)

    assert math.isclose(f(2.0), 8.0 / 3.0 + 4.0, rel_tol=1e-4)
    assert math.isclose(lg.grad(f)(2.0), 4.0 + 8.0, rel_tol=1e-4)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("def g(y): return g(y)\n    return g(x)", "`g` calls itself"),
        ("a = [x]\n    def g(y): a[0] = y\n    g(x)\n    return a[0]", "`g` changes `a` of the enclosing function"),
        ("return integrated(lambda t: t * x, 0.0, 1.0, 3)", "it uses variables of the enclosing function"),
        ("y = g(x)\n    def g(t): return t\n    return y", "`g` may be unset here"),
        ("def g(t, *rest): return t\n    return g(x)", r"compiled functions do not support `\*rest`"),
        ("g = lambda t: t\n    return g(x, x)", "`lambda` takes 1 argument"),
        ("def g(t):\n        if t > 0.0: return t\n    return g(x)", "`g` may end without returning a value"),
    ],
)
def test_local_functions_that_are_rejected(body: str, message: str) -> None:
    names = lg.run_source(f"def f(x: float) -> float:\n    {body}", {"integrated": integrated})
    with pytest.raises(lg.FunctionError, match=message):
        lg.differentiable(names["f"])(2.0)


# --- match -----------------------------------------------------------------------------------------------------------


def test_match_supports_values_names_tuples_and_guards():
    @lg.differentiable
    def f(a: int, b: int, x: float) -> float:
        total = 0.0
        for i in range(3):
            match (a + i, b):
                case (0, 0):
                    return x
                case (1, other):
                    total += x * other
                case (2 | 3, _) if x > 1.0:
                    break
                case (_, 1):
                    total += x * x
                    continue
                case _:
                    total -= 1.0
            total += 0.5 * x
        return total

    for a in range(-2, 4):
        for b in range(3):
            for x in (0.5, 1.5):
                assert f(a, b, x) == f.python(a, b, x)
                slope = (f(a, b, x + 1e-6) - f(a, b, x - 1e-6)) / 2e-6
                assert math.isclose(lg.grad(f, 2)(a, b, x), slope, abs_tol=1e-6)


def test_unsupported_patterns_are_rejected():
    names = lg.run_source("def f(x: float):\n    match x:\n        case {'a': 1}:\n            return x\n    return x")
    with pytest.raises(lg.FunctionError, match="compiled functions do not support this pattern"):
        lg.function(names["f"])(1.0)


def test_strings_are_compile_time_values():
    @lg.differentiable
    def f(x: float, name: str) -> float:
        if name == "sin":
            return math.sin(x)
        if name in ("cos", "cosine"):
            return math.cos(x)
        raise ValueError(f"no function {name}")

    assert f(2.0, "sin") == math.sin(2.0)
    assert lg.grad(f)(2.0, "cosine") == -math.sin(2.0)
    with pytest.raises(lg.LivegradError, match="ValueError: no function tan"):
        f(2.0, "tan")


def test_a_call_whose_only_effect_is_a_lost_change_is_rejected():
    @lg.differentiable
    class Particle:
        x: float

        def move(self, by):
            self.x += by

    @lg.function
    def f(x: float) -> float:
        particle = Particle(x)
        particle.move(1.0)
        return particle.x

    with pytest.raises(lg.FunctionError, match="`move` changes its `self`, which is a copy"):
        f(1.0)


# --- text ------------------------------------------------------------------------------------------------------------


def test_f_strings_are_printed_in_order(capsys: pytest.CaptureFixture[str]) -> None:
    @lg.differentiable
    def f(x: float, n: int) -> float:
        for i in range(n):
            if i % 2 == 0:
                print(f"iteration {i}: x = {x:.2f}", x > 1.0, sep=" | ")
            x = x * 1.5
        lg.print("braces {}", f"{x!r} {{}} {n + 1:>3}")
        return x

    f(1.0, 3)
    expected = "iteration 0: x = 1.00 | False\niteration 2: x = 2.25 | True\nbraces {} 3.375 {}   4\n"
    assert capsys.readouterr().out == expected
    lg.bwd_diff(f)(1.0, 3, 1.0)
    assert capsys.readouterr().out == expected


def test_messages_of_checks_name_run_time_values():
    @lg.function
    def f(x: float) -> float:
        assert x < 1.0, f"x is {x}, too large"
        return x

    with pytest.raises(lg.LivegradError, match=r"x is \{x\}, too large"):
        f(2.0)


# --- checks in derivatives -------------------------------------------------------------------------------------------


@lg.differentiable
def checked(x: float, n: int) -> float:
    assert x > 0.0, "x must be positive"
    total = 0.0
    for i in range(n):
        assert total < 10.0, "too much"
        total += x * x * i
    return total


CHECKED: dict[str, Callable[[float], Any]] = {
    "value": lambda x: checked(x, 4),
    "forward": lambda x: lg.fwd_diff(checked)(lg.pair(x, 1.0), 4),
    "backward": lambda x: lg.bwd_diff(checked)(x, 4, 1.0),
    "gradient": lambda x: lg.grad(checked)(x, 4),
    "second": lambda x: lg.grad(lg.grad(checked))(x, 4),
    "forward of backward": lambda x: lg.fwd_diff(lg.bwd_diff(checked))(lg.pair(x, 1.0), 4, lg.pair(1.0, 0.0)),
    "points": lambda x: lg.bwd_diff(checked)(np.array([1.0, x]), 4, 1.0),
    "tensors": lambda x: lg.grad(lambda t: lg.sum(checked(t, 4)))(lg.asarray([1.0, x])).numpy(),
}


@pytest.mark.parametrize("name", CHECKED)
def test_a_failed_check_is_an_error_in_every_derivative(name: str) -> None:
    CHECKED[name](1.0)
    with pytest.raises(lg.LivegradError, match="x must be positive"):
        CHECKED[name](-1.0)
    with pytest.raises(lg.LivegradError, match="too much"):
        CHECKED[name](5.0)


def test_checks_do_not_change_derivatives():
    assert lg.bwd_diff(checked)(1.0, 4, 1.0) == (12.0, None)
    assert lg.grad(lg.grad(checked))(1.0, 4) == 12.0


# --- generic structs -------------------------------------------------------------------------------------------------


@lg.differentiable
class Both(Generic[Element]):
    a: Element
    b: Element

    @lg.differentiable
    def total(self):
        return self.a + self.b  # type: ignore[operator]


@lg.differentiable
class Mixed(Generic[First, Second]):
    parts: tuple[First, Second]
    last: Second


def test_generic_structs():
    @lg.differentiable
    def f(both: Both[float], k: float) -> float:
        scaled = Both[float](both.a * k, both.b)
        return scaled.total() * scaled.a

    both = Both[float](2.0, 3.0)
    assert Both[float] is Both[float]
    assert repr(both) == "Both[float](a=2.0, b=3.0)"
    assert both.copy() == both
    assert f(both, 2.0) == f.python(both, 2.0) == 28.0
    assert lg.bwd_diff(f)(both, 2.0, 1.0) == (Both[float].Differential(a=22.0, b=4.0), 22.0)


def test_generic_structs_of_vectors_in_structs():
    @lg.differentiable
    def f(both: Both[lg.dvec2], mixed: Mixed[float, lg.dvec2]) -> float:
        v = both.total()
        return v.x * v.y + mixed.parts[0] * lg.dot(mixed.last, mixed.parts[1])

    both = Both[lg.dvec2](lg.dvec2(1.0, 2.0), lg.dvec2(3.0, 4.0))
    mixed = Mixed[float, lg.dvec2]((2.0, lg.dvec2(1.0, 1.0)), lg.dvec2(5.0, 6.0))
    by_both, by_mixed = lg.bwd_diff(f)(both, mixed, 1.0)
    np.testing.assert_array_equal(by_both.a, [6.0, 4.0])
    assert by_mixed.parts[0] == 11.0
    np.testing.assert_array_equal(by_mixed.last, [2.0, 2.0])


def test_a_generic_struct_needs_its_types():
    with pytest.raises(lg.FunctionError, match=r"write Both\[float\]"):
        Both(1.0, 2.0)
    with pytest.raises(TypeError, match="takes 1 types"):
        Both[float, float]  # type: ignore


# --- calls -----------------------------------------------------------------------------------------------------------


def test_cached_calls_notice_changes():
    @lg.differentiable
    def f(x: float, scale: float = 2.0) -> float:
        return x * scale

    gradient = lg.grad(f)
    assert [f(3.0), f(3.0, scale=5.0), f(3.0), f(3), gradient(3.0), gradient(3.0)] == [6.0, 15.0, 6.0, 6.0, 2.0, 2.0]

    @f.backward_derivative
    def _(x: float, scale: float, d: float) -> tuple[float, float]:
        return 7.0 * d, 0.0

    assert [gradient(3.0), gradient(3.0)] == [7.0, 7.0]
    compiled = f.compile_count
    f(4.0)
    f(scale=1.0, x=3.0)
    assert f.compile_count == compiled


def test_cached_calls_distinguish_shapes_and_fields():
    @lg.function
    def total(values: list[float]) -> float:
        return sum(values)

    assert [total([1.0]), total([1.0, 2.0]), total([1, 2]), total([1.0])] == [1.0, 3.0, 3.0, 1.0]

    @lg.differentiable
    def f(both: Both[float]) -> float:
        return both.a * both.b

    assert f(Both[float](2.0, 3.0)) == 6.0
    np.testing.assert_array_equal(f(Both[float](np.array([1.0, 2.0]), 3.0)), [3.0, 6.0])  # type: ignore[arg-type]
    assert f(Both[float](4.0, 3.0)) == 12.0


# --- what newcomers write first ---------------------------------------------------------------------------------------


def test_lists_of_lists_take_their_lengths_from_the_argument():
    @lg.differentiable
    def squares(rows: list[list[float]]) -> float:
        total = 0.0
        for row in rows:
            for value in row:
                total += value * value
        return total

    assert squares([[1, 2.0], [3, 4]]) == 30.0
    assert squares([[5.0]]) == 25.0
    assert lg.bwd_diff(squares)([[1.0, 2.0], [3.0, 4.0]], 1.0) == ([[2.0, 4.0], [6.0, 8.0]],)
    for given, found in (([1.0], "array[float, 1]"), (3.0, "float"), (np.ones(2), "float")):
        with pytest.raises(lg.FunctionError) as caught:
            squares(given)  # type: ignore[arg-type]
        assert f"`rows` expects list[list[float]], found {found}" in caught.value.what


def test_a_whole_array_for_a_list_gets_advice_about_tensor_parameters():
    @lg.function
    def total(values: list[float]) -> float:
        return sum(values)

    assert total((1.0, 2.0)) == 3.0  # type: ignore[arg-type]
    with pytest.raises(lg.FunctionError, match=r"a whole array is a parameter of type lg.tensor\[float, 1\]"):
        total(np.array([1.0, 2.0]))  # type: ignore[arg-type]


@pytest.mark.parametrize("both_ways", ["inside", "outside"])
def test_properties_of_structs_are_computed_and_differentiated(both_ways):
    ways: tuple[Any, Any] = (lg.differentiable, property)
    inner, outer = ways if both_ways == "inside" else ways[::-1]

    @lg.differentiable
    class Ball:
        radius: float

        @outer
        @inner
        def area(self) -> float:
            return 3.0 * self.radius * self.radius

        @property
        def half(self) -> float:
            return 0.5 * self.radius

    @lg.differentiable
    def volume(ball: Ball) -> float:
        return ball.area * ball.radius

    @lg.differentiable
    def lost(ball: Ball) -> float:
        return ball.half

    ball = Ball(2.0)  # type: ignore[call-arg]
    assert (ball.area, ball.half, volume(ball)) == (12.0, 1.0, 24.0)
    assert lg.bwd_diff(volume)(ball, 1.0)[0].radius == 36.0
    with pytest.raises(lg.FunctionError, match="LG301: the derivative is lost in the call of `half`"):
        lost(ball)


def test_an_annotation_that_is_not_a_type_gets_a_suggestion():
    @dataclass
    class Plain:
        x: float

    for annotation, said in (
        (Plain, "decorate the class Plain with @lg.differentiable"),
        (dict, "write a struct"),
        (np.ndarray, "lg.tensor[float, 2] is a whole array"),
        (set, "use float, int, f32, vec3"),
    ):

        def f(p: annotation):  # type: ignore[valid-type]
            return p

        with pytest.raises(lg.FunctionError) as caught:
            lg.function(f)(1.0)
        assert said in str(caught.value)


def test_members_of_an_int_enum_are_numbers():
    class Mode(enum.IntEnum):
        PLAIN = 0
        TURNED = 1

    @lg.function
    def f(x: float, mode: int) -> float:
        return -x if mode == Mode.TURNED else x

    assert (f(2.0, Mode.TURNED), f(2.0, Mode.PLAIN), f(2.0, 1)) == (-2.0, 2.0, -2.0)


def test_dictionaries_get_advice_about_structs():
    @lg.function
    def f(x: float) -> float:
        return {"x": x}["x"]

    with pytest.raises(lg.FunctionError, match="use a struct for named fields, or a list"):
        f(1.0)


@pytest.mark.parametrize("use", ["a.shape[0]", "len(a)", "a[0]", "a[1:2]"])
def test_an_array_without_an_annotation_gets_advice_on_declaring_it(use):
    f = lg.function(lg.run_source(f"def f(a):\n    return {use}\n")["f"])
    with pytest.raises(lg.LivegradError) as caught:
        f(np.ones(3))
    assert 'write `a: lg.array[float, "n"]`' in str(caught.value)
