"""Derivatives at kinks, ties, zeros and infinities, where differences cannot tell what is right."""

from typing import Any

import numpy as np
import pytest

from livegrad.ir.dimension import Dimension
from livegrad.ir.function import trace
from livegrad.ir.node import Function, Node
from livegrad.ir.types import Tensor, Vector, c128, f32, f64, i64
from livegrad.ops.aggregate import get
from livegrad.ops.control import make_for_loop
from livegrad.ops.elementwise import abs, clamp, detach, fmod, max, maximum, min, minimum, mod, select
from livegrad.ops.indexing import lookup
from livegrad.ops.maps import make_map
from livegrad.ops.movement import broadcast, slice_
from livegrad.ops.reduction import cumulative, recurrence, reduce
from livegrad.ops.rules import zero
from livegrad.ops.transcendental import atan2, exp, expm1, hypot, log, pow, sqrt
from livegrad.ops.vector import dot, length
from livegrad.passes.differentiate.forward import jvp
from livegrad.passes.differentiate.reverse import vjp
from livegrad.runtime.reference import evaluate
from tests.differentiate.checks import check_orders, results_of

NAN, INFINITY = float("nan"), float("inf")


def gradient(function: Function, *arguments: Any, cotangent: Any = 1.0) -> tuple[float, ...]:
    """By both modes, which must say the same."""
    backward = vjp(function)
    found = results_of(backward, evaluate(backward, *arguments, cotangent))
    forward = jvp(function)
    for index, part in enumerate(found):
        tangents = [1.0 if place == index else 0.0 for place in range(len(found))]
        assert evaluate(forward, *arguments, *tangents)[1] == part
    return tuple(float(part) for part in found)


@pytest.mark.parametrize("op", [min, max, minimum, maximum], ids=str)
def test_a_tie_is_split_evenly(op: Any) -> None:
    assert gradient(trace(op, f64, f64), 2.0, 2.0) == (0.5, 0.5)
    assert gradient(trace(op, f64, f64), 0.0, -0.0) == (0.5, 0.5)


@pytest.mark.parametrize(("op", "larger"), [(min, False), (minimum, False), (max, True), (maximum, True)], ids=str)
def test_away_from_a_tie_the_operand_that_is_taken_has_it_all(op: Any, larger: bool) -> None:
    assert gradient(trace(op, f64, f64), 3.0, 2.0) == ((1.0, 0.0) if larger else (0.0, 1.0))
    assert gradient(trace(op, f64, f64), -INFINITY, INFINITY) == ((0.0, 1.0) if larger else (1.0, 0.0))


@pytest.mark.parametrize("op", [min, max], ids=str)
def test_the_operand_that_is_kept_beside_a_nan_has_it_all(op: Any) -> None:
    assert float(evaluate(trace(op, f64, f64), 2.0, NAN)) == 2.0
    assert gradient(trace(op, f64, f64), 2.0, NAN) == (1.0, 0.0)


@pytest.mark.parametrize("kind", ["max", "min"])
@pytest.mark.parametrize(("values", "share"), [([1, 1, 1, 1], [1, 1, 1, 1]), ([3, 1, 3, 1], [1, 0, 1, 0])])
def test_elements_that_tie_for_an_extremum_share_evenly(kind: str, values: list[int], share: list[int]) -> None:
    sign = 1.0 if kind == "max" else -1.0
    function = trace(lambda x: reduce(x, kind=kind, axes=(0,)), Tensor(f64, (4,)))
    found = evaluate(vjp(function), sign * np.array(values, float), 1.0)
    np.testing.assert_allclose(found, np.array(share) / sum(share))


@pytest.mark.parametrize(("x", "slope"), [(-0.5, 0.0), (0.5, 1.0), (2.0, 0.0), (1.0, 0.5), (0.0, 0.5)])
def test_clamp_has_the_slope_of_what_it_gives(x: float, slope: float) -> None:
    assert gradient(trace(lambda a: clamp(a, 0.0, 1.0), f64), x) == (slope,)


def test_the_slope_of_abs_at_zero_is_zero() -> None:
    assert gradient(trace(abs, f64), 0.0) == (0.0,)
    assert evaluate(vjp(trace(abs, c128)), 0j, 1.0) == 0


def test_the_slope_of_a_length_at_zero_is_zero() -> None:
    function = trace(length, Vector(f64, 3))
    np.testing.assert_array_equal(evaluate(vjp(function), np.zeros(3), 1.0), np.zeros(3))


def test_a_select_takes_no_nan_from_the_choice_that_it_leaves() -> None:
    function = trace(lambda x: select(x > 0.0, sqrt(select(x > 0.0, x, x * 0.0 + 1.0)), x), f64)
    assert gradient(function, -4.0) == (1.0,)
    assert gradient(function, 4.0) == (0.25,)


def test_an_infinite_slope_of_the_choice_that_a_select_leaves_is_not_taken() -> None:
    """Reverse mode multiplies that slope by a cotangent of zero, and must not give NaN."""
    root = trace(lambda x: select(x > 0.0, sqrt(x), zero(f64)), f64)
    assert gradient(root, 0.0) == (0.0,)
    twice = trace(lambda x: select(x > 0.0, zero(f64), log(x * x) * 2.0 + sqrt(x * x)), f64)
    assert gradient(twice, 2.0) == (0.0,)
    deep = trace(lambda x: select(x > 1.0, exp(log(sqrt(x)) * 3.0) + sqrt(x), x), f64)
    assert gradient(deep, 0.0) == (1.0,)


def test_an_infinite_slope_is_not_taken_in_tensors_and_vectors() -> None:
    x = np.array([0.0, 4.0])
    tensor = trace(lambda a: select(a > broadcast(zero(f64), shape=(2,), axes=()), sqrt(a), a), Tensor(f64, (2,)))
    np.testing.assert_array_equal(evaluate(vjp(tensor), x, np.ones(2)), [1.0, 0.25])

    def near(v: Node) -> Node:
        return select(get(v, index=0) > 0.0, sqrt(dot(v, v)), get(v, index=1))

    np.testing.assert_array_equal(evaluate(vjp(trace(near, Vector(f64, 2))), np.zeros(2), 1.0), [0.0, 1.0])


@pytest.mark.parametrize("op", [max, maximum], ids=str)
def test_an_infinite_slope_of_the_lesser_operand_is_not_taken(op: Any) -> None:
    assert gradient(trace(lambda x, y: op(sqrt(x), y), f64, f64), 0.0, 1.0) == (0.0, 1.0)
    assert gradient(trace(lambda x, y: op(y, sqrt(x)), f64, f64), 0.0, 1.0) == (0.0, 1.0)


def test_detach_has_no_derivative() -> None:
    assert gradient(trace(lambda x: detach(x) * x, f64), 3.0) == (3.0,)


# --- where formulas lose their digits --------------------------------------------------------------------------------


def test_the_slope_of_a_hypotenuse_at_zero_is_zero() -> None:
    assert gradient(trace(hypot, f64, f64), 0.0, 0.0) == (0.0, 0.0)
    assert gradient(trace(hypot, f64, f64), 3.0, -4.0) == (0.6, -0.8)


@pytest.mark.parametrize("scale", [1e-30, 1e-19, 1.0, 1e19, 1e30])
def test_the_slope_of_an_angle_holds_at_every_scale(scale: float) -> None:
    by_y, by_x = evaluate(vjp(trace(atan2, f32, f32)), np.float32(3 * scale), np.float32(-4 * scale), np.float32(1))
    np.testing.assert_allclose([by_y, by_x], [-4 / 25 / scale, -3 / 25 / scale], rtol=1e-6)


@pytest.mark.parametrize("x", [-700.0, -40.0, -1.0, 0.0, 1e-20, 3.0])
def test_the_slope_of_expm1_has_all_its_digits(x: float) -> None:
    assert gradient(trace(expm1, f64), x) == pytest.approx((float(np.exp(x)),), rel=1e-15)


# --- loops -----------------------------------------------------------------------------------------------------------


def test_a_carried_value_that_overflows_unread_takes_no_part() -> None:
    def squares(n: Node, x: Node) -> Node:
        return make_for_loop(n, lambda i, a, c: (a * 0.5, c * c), x, x)[0]

    assert evaluate(vjp(trace(squares, i64, f64)), 20, 10.0, 1.0)[1] == 0.5**20


def test_a_captured_value_that_only_an_unread_one_uses_takes_no_part() -> None:
    def squares(n: Node, x: Node, y: Node) -> Node:
        return make_for_loop(n, lambda i, a, c: (a * x, c * c * y), x, y)[0]

    _, by_x, by_y = evaluate(vjp(trace(squares, i64, f64, f64)), 12, 2.0, 10.0, 1.0)
    assert (by_x, by_y) == (13 * 2.0**12, 0.0)


def test_a_cotangent_that_arrives_some_iterations_later_is_carried() -> None:
    def shifted(n: Node, x: Node) -> Node:
        return make_for_loop(n, lambda i, a, b, c: (b, c, c * x), x, x * 2.0, x * 3.0)[0]

    check_orders(trace(shifted, i64, f64), (4, 1.3), order=2)


# --- powers and remainders -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("x", "exponent", "slope"),
    [(0.0, 2.0, 0.0), (0.0, 1.0, 1.0), (0.0, 0.0, 0.0), (-2.0, 3.0, 12.0), (-2.0, 2.0, -4.0), (3.0, 0.0, 0.0)],
)
def test_the_slope_of_a_power_with_a_constant_exponent(x: float, exponent: float, slope: float) -> None:
    assert gradient(trace(lambda a: pow(a, exponent), f64), x) == (slope,)
    by_base, _ = evaluate(vjp(trace(pow, f64, f64)), x, exponent, 1.0)
    assert by_base == slope


def test_a_negative_base_with_a_constant_exponent_has_all_its_derivatives() -> None:
    check_orders(trace(lambda a: pow(a, 3.0) + a * pow(a, 2.0), f64), (-1.3,), order=3)


def test_a_power_of_zero_has_no_slope_by_its_exponent() -> None:
    assert evaluate(vjp(trace(pow, f64, f64)), 0.0, 2.0, 1.0)[1] == 0.0


@pytest.mark.parametrize("exponent", [0.0, 1.0, 2.0, -1.0])
def test_the_mixed_derivative_of_a_power_holds_at_whole_exponents(exponent: float) -> None:
    check_orders(trace(pow, f64, f64), (1.7, exponent), order=3, tolerance=1e-6)


@pytest.mark.parametrize("op", [mod, fmod], ids=str)
@pytest.mark.parametrize("a", [7.3, -7.3])
@pytest.mark.parametrize("b", [2.0, -2.0, 0.3, -0.3])
def test_a_remainder_falls_by_the_quotient_as_its_divisor_grows(op: Any, a: float, b: float) -> None:
    quotient = np.floor(a / b) if op is mod else np.trunc(a / b)
    assert gradient(trace(op, f64, f64), a, b) == (1.0, -quotient)


# --- folds -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("zeros", [(), (1,), (1, 3), (0, 2, 4)])
def test_a_product_with_zeros_has_exact_derivatives(zeros: tuple[int, ...]) -> None:
    x = np.array([1.5, -0.5, 2.0, 3.0, 0.25])
    x[list(zeros)] = 0.0
    function = trace(lambda a: reduce(a, kind="prod", axes=(0,)), Tensor(f64, (5,)))
    expected = [np.prod(np.delete(x, index)) for index in range(5)]
    np.testing.assert_allclose(evaluate(vjp(function), x, 1.0), expected, rtol=1e-15)
    check_orders(function, (x,), order=3)


def test_a_product_over_several_axes_with_zeros_has_exact_derivatives() -> None:
    x = np.array([[1.5, 0.0, 2.0], [3.0, -0.5, 0.25]])
    check_orders(trace(lambda a: reduce(a, kind="prod", axes=(0, 1)), Tensor(f64, (2, 3))), (x,), order=2)


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
def test_a_running_product_with_zeros_has_exact_derivatives(reverse: bool, exclusive: bool) -> None:
    function = trace(
        lambda a: cumulative(a, kind="prod", axis=0, reverse=reverse, exclusive=exclusive), Tensor(f64, (5,))
    )
    check_orders(function, (np.array([1.5, 0.0, 2.0, 0.0, 0.25]),), order=3)


@pytest.mark.parametrize("kind", ["max", "min"])
def test_the_first_element_of_a_running_extremum_is_always_taken(kind: str) -> None:
    function = trace(lambda a: cumulative(a, kind=kind, axis=0, reverse=False, exclusive=False), Tensor(f64, (2,)))
    first = -INFINITY if kind == "max" else INFINITY
    np.testing.assert_array_equal(evaluate(vjp(function), np.array([first, 0.0]), np.array([1.0, 10.0])), [1.0, 10.0])


@pytest.mark.parametrize("size", [0, 1, 4])
def test_folds_over_an_axis_of_unknown_size_can_be_differentiated(size: int) -> None:
    n = Dimension.symbol("n")
    type = Tensor(f64, (n,))
    running = trace(lambda a: cumulative(a, kind="prod", axis=0, reverse=False, exclusive=True), type)
    x, ones = np.linspace(0.5, 2.0, size), np.ones(size)
    assert evaluate(vjp(running), x, ones).shape == (size,)
    solving = trace(lambda a, b: recurrence(a, b, axis=0, reverse=True), type, type)
    by_a, by_b = evaluate(vjp(solving), x, x, ones)
    assert by_a.shape == by_b.shape == (size,)


def test_a_loop_over_a_tensor_of_unknown_size_has_a_gradient() -> None:
    type = Tensor(f64, (Dimension.symbol("n"),))
    function = trace(lambda n, a: make_for_loop(n, lambda i, b: b * a, a)[0], i64, type)
    x = np.array([0.5, 0.7, -0.3])
    np.testing.assert_allclose(evaluate(vjp(function), 3, x, np.ones(3))[1], 4 * x**3)


def test_a_texture_of_unknown_size_has_a_gradient() -> None:
    n, m = Dimension.symbol("n"), Dimension.symbol("m")
    read = trace(lambda i, t: lookup(t, i) * 2.0, i64, Tensor(f64, (n,)), name="read")
    function = trace(lambda i, t: make_map(read, i, t), Tensor(i64, (m,)), Tensor(f64, (n,)))
    found = evaluate(vjp(function), np.array([2, 2]), np.ones(3), np.ones(2))[1]
    np.testing.assert_array_equal(found, [0.0, 0.0, 4.0])


def test_a_deep_chain_is_differentiated_without_recursion() -> None:
    def chain(x: Node) -> Node:
        for _ in range(3000):
            x = x * 1.0001
        return x

    function = trace(chain, f64)
    assert evaluate(vjp(function), 1.0, 1.0) == pytest.approx(1.0001**3000, rel=1e-10)
    assert evaluate(jvp(function), 1.0, 1.0)[1] == pytest.approx(1.0001**3000, rel=1e-10)


def test_an_empty_slice_at_the_end_has_a_gradient() -> None:
    function = trace(lambda a: slice_(a, start=(3,), size=(0,), step=(1,)), Tensor(f64, (3,)))
    np.testing.assert_array_equal(evaluate(vjp(function), np.ones(3), np.ones(0)), np.zeros(3))
