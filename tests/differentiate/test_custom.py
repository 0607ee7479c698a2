"""Derivatives that the user gives: used in both modes, nested, in loops, branches and maps, and checked when made."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from livegrad.compiler import lower
from livegrad.diagnostics import DifferentiationError, TypeRuleError
from livegrad.ir.function import inline, trace
from livegrad.ir.leaves import constant
from livegrad.ir.node import Function, Node
from livegrad.ir.types import Struct, Tensor, Vector, f64, i64
from livegrad.ops.aggregate import get, make, make_tuple
from livegrad.ops.control import make_cond, make_for_loop, make_while_loop
from livegrad.ops.custom import custom_call, make_custom_call
from livegrad.ops.differential import bwd_diff, fwd_diff
from livegrad.ops.elementwise import max, round
from livegrad.ops.maps import make_map, map_over
from livegrad.ops.movement import broadcast
from livegrad.ops.reduction import reduce
from livegrad.ops.transcendental import cos, exp, sin
from livegrad.passes.differentiate.forward import jvp
from livegrad.passes.differentiate.reverse import vjp
from livegrad.runtime.cpu import compile_function
from livegrad.runtime.reference import evaluate
from tests.conformance.values import plain_shape
from tests.differentiate.checks import check_orders, gradient_of, op_names, results_of

ROW = Tensor(f64, (4,))
MATERIAL = Struct("Material", (("albedo", Vector(f64, 2)), ("layer", i64), ("roughness", f64)))
SLOPES = Struct("Material.Differential", (("albedo", Vector(f64, 2)), ("roughness", f64)))


def product_rule() -> dict[str, Function]:
    """x * sin(y) with its true derivative, each way of giving it."""
    function = trace(lambda x, y: x * sin(y), f64, f64, name="product")
    return {
        "function": function,
        "forward": trace(lambda x, y, dx, dy: dx * sin(y) + x * cos(y) * dy, *[f64] * 4, name="product_forward"),
        "backward": trace(lambda x, y, ct: (ct * sin(y), x * cos(y) * ct), *[f64] * 3, name="product_backward"),
        "save": trace(lambda x, y: (sin(y), x * cos(y)), f64, f64, name="product_save"),
        "saved": trace(lambda a, b, ct: (ct * a, b * ct), *[f64] * 3, name="product_saved"),
        "stand_in": trace(lambda x, y: sin(y) * x + 0.0, f64, f64, name="product_stand_in"),
    }


WAYS: dict[str, Callable[[Node, Node], Node]] = {}


def _enter_ways() -> None:
    rules = product_rule()
    function, forward, backward = rules["function"], rules["forward"], rules["backward"]
    WAYS["forward"] = lambda x, y: make_custom_call(function, x, y, forward=forward)
    WAYS["backward"] = lambda x, y: make_custom_call(function, x, y, backward=backward)
    WAYS["both"] = lambda x, y: make_custom_call(function, x, y, forward=forward, backward=backward)
    WAYS["saved"] = lambda x, y: make_custom_call(function, x, y, backward=rules["saved"], save=rules["save"])
    WAYS["stand_in"] = lambda x, y: make_custom_call(function, x, y, stand_in=rules["stand_in"])


_enter_ways()

PLACES: dict[str, Callable[[Callable[..., Node]], Function]] = {
    "plain": lambda f: trace(lambda x, y: exp(f(x, y) * 0.5), f64, f64),
    "one_active": lambda f: trace(lambda x: f(x * x, x - x + 0.7), f64),
    "loop": lambda f: trace(lambda x, y: make_for_loop(i64_constant(3), lambda i, a: f(a, y) + x, x)[0], f64, f64),
    "while": lambda f: trace(
        lambda x, y: make_while_loop(lambda a, n: n < 3, lambda i, a, n: (f(a, y) + x, n + 1), x, i64_constant(0))[0],
        f64,
        f64,
    ),
    "branch": lambda f: trace(lambda x, y: make_cond(x > y, lambda a: f(a, y), lambda a: f(y, a) * 2.0, x), f64, f64),
    "map": lambda f: trace(lambda x, y: make_map(trace(lambda a, b: f(a, b) * a, f64, f64), x, y), ROW, f64),
    "sum": lambda f: trace(
        lambda x, y: make_map(trace(lambda a, b: f(a, b) * a, f64, f64), x, y, summed=(True,)), ROW, f64
    ),
}


def i64_constant(value: int) -> Node:
    return constant(value, i64)


def arguments_for(function: Function) -> tuple[Any, ...]:
    rng = np.random.default_rng(3)
    return tuple(rng.uniform(0.4, 1.2, plain_shape(type)) for type in function.parameter_types)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("way", WAYS)
def test_a_given_derivative_agrees_with_differences_in_both_modes_nested(way: str, place: str) -> None:
    function = PLACES[place](WAYS[way])
    check_orders(function, arguments_for(function), order=2)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("way", WAYS)
def test_native_code_gives_the_reference_s_derivatives(way: str, place: str) -> None:
    function = PLACES[place](WAYS[way])
    arguments = arguments_for(function)
    for derived, types in ((jvp(function), function.parameter_types), (vjp(function), function.result_types)):
        ones = [np.ones(plain_shape(type)) for type in types]
        expected = results_of(derived, evaluate(derived, *arguments, *ones))
        found = results_of(derived, compile_function(derived)(*arguments, *ones))
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12)


def test_the_pipeline_leaves_a_plain_program() -> None:
    function = PLACES["loop"](WAYS["both"])
    gradient = vjp(function, with_value=True)
    assert "custom_call" in op_names(gradient), "further derivatives still know the rule"
    lowered = lower(gradient)
    assert op_names(lowered).isdisjoint({"custom_call", "custom_linear", "call"})


# A derivative that is wrong on purpose shows whether it was used.
DOUBLED: dict[str, Any] = {
    "forward": trace(lambda x, dx: dx * 2.0, f64, f64, name="doubled_forward"),
    "backward": trace(lambda x, ct: ct * 2.0, f64, f64, name="doubled_backward"),
    "stand_in": trace(lambda x: x * 2.0, f64, name="doubled"),
}
SQUARE = trace(lambda x: x * x, f64, name="square")


@pytest.mark.parametrize("way", DOUBLED)
def test_either_rule_serves_both_modes(way: str) -> None:
    function = trace(lambda x: make_custom_call(SQUARE, x, **{way: DOUBLED[way]}) + x, f64)
    assert evaluate(jvp(function), 5.0, 1.0) == (30.0, 3.0)
    assert gradient_of(function, 5.0) == (3.0,)


@pytest.mark.parametrize("way", DOUBLED)
def test_values_in_derivatives_keep_the_given_derivative(way: str) -> None:
    """The slope of sin(f(x)) is cos(f(x)) * 2; its slope has the given derivative of f again."""
    function = trace(lambda x: sin(make_custom_call(SQUARE, x, **{way: DOUBLED[way]})), f64)
    expected = -np.sin(0.49) * 4.0
    for outer in (jvp, vjp):
        for inner in (jvp, vjp):
            slope = trace(lambda x, inner=inner: last_of(inner(function), x), f64)
            found = results_of(outer(slope), evaluate(outer(slope), 0.7, 1.0))[-1]
            np.testing.assert_allclose(found, expected, rtol=1e-14)


def last_of(derivative: Function, x: Node) -> Node:
    return inline(derivative, [x, x * 0.0 + 1.0])[-1]


def test_derivatives_asked_for_inside_a_function_use_the_rule() -> None:
    inner = trace(lambda x: make_custom_call(SQUARE, x, backward=DOUBLED["backward"]), f64)
    function = trace(lambda x: bwd_diff(x, x, function=inner) + get(fwd_diff(x, x, function=inner), index=1), f64)
    assert evaluate(function, 3.0) == 12.0
    assert float(compile_function(function)(3.0)) == 12.0


def test_a_straight_through_estimator_differentiates_rounding_as_the_identity() -> None:
    rounded = trace(lambda x: round(x), f64, name="rounded")
    through = trace(lambda x, ct: ct, f64, f64)
    function = trace(lambda x: make_custom_call(rounded, x * 3.0, backward=through) * x, f64)
    np.testing.assert_allclose(gradient_of(function, 0.8), (2.0 + 3.0 * 0.8,))


def test_structs_and_integers_leave_out_what_has_no_derivative() -> None:
    def shade(m: Node, n: Node) -> tuple[Node, Node]:
        albedo, rough = get(m, index=0), get(m, index=2)
        return get(albedo, index=0) * get(albedo, index=1) * rough, get(m, index=1) + n

    def backward(m: Node, n: Node, ct: Node) -> Node:
        albedo, rough = get(m, index=0), get(m, index=2)
        a, b = get(albedo, index=0), get(albedo, index=1)
        slopes = make(b * rough * ct, a * rough * ct, type=Vector(f64, 2))
        return make(slopes, a * b * ct, type=SLOPES)

    plain = trace(shade, MATERIAL, i64)
    rule = trace(backward, MATERIAL, i64, f64)
    function = trace(lambda m, n: get(make_custom_call(plain, m, n, backward=rule), index=0), MATERIAL, i64)
    check_orders(function, ((np.array([0.3, 0.8]), 4, 0.5), 2))


def test_a_whole_tensor_has_a_rule_with_what_was_saved() -> None:
    def softmax(x: Node) -> Node:
        e = exp(x)
        total = reduce(e, kind="sum", axes=(0,))
        return e / broadcast(total, shape=(4,), axes=())

    def backward(y: Node, ct: Node) -> Node:
        inner = reduce(y * ct, kind="sum", axes=(0,))
        return y * (ct - broadcast(inner, shape=(4,), axes=()))

    plain = trace(softmax, ROW)
    rule = trace(backward, ROW, ROW)
    function = trace(lambda x: make_custom_call(plain, x, backward=rule, save=plain) * x, ROW)
    check_orders(function, (np.array([0.3, -0.2, 0.8, 0.1]),))


def test_a_linear_loop_in_a_forward_rule_is_turned_round() -> None:
    """The rule carries values beside tangents; only the tangents are transposed."""

    def power(x: Node) -> Node:
        return make_for_loop(i64_constant(4), lambda i, a: a * x, x)[0]

    def slope(x: Node, dx: Node) -> Node:
        return make_for_loop(i64_constant(4), lambda i, a, da: (a * x, da * x + a * dx), x, dx)[1]

    function = trace(lambda x: make_custom_call(trace(power, f64), x, forward=trace(slope, f64, f64)), f64)
    check_orders(function, (1.3,))


def test_a_rule_that_is_not_linear_cannot_be_turned_round() -> None:
    bent = trace(lambda x, dx: max(dx, 0.0), f64, f64, name="bent")
    function = trace(lambda x: make_custom_call(SQUARE, x, forward=bent), f64)
    assert evaluate(jvp(function), 5.0, 3.0) == (25.0, 3.0)
    with pytest.raises(DifferentiationError, match="`bent` is not linear in its parameter 1"):
        vjp(function)
    backward = trace(lambda x: make_custom_call(SQUARE, x, backward=bent), f64)
    assert gradient_of(backward, 5.0) == (1.0,)
    with pytest.raises(DifferentiationError, match="cannot be transposed"):
        jvp(backward)


def test_results_without_a_derivative_have_none() -> None:
    counted = trace(lambda x: (x * x, i64_constant(3)), f64, name="counted")
    function = trace(lambda x: get(make_custom_call(counted, x, forward=DOUBLED["forward"]), index=0), f64)
    assert evaluate(jvp(function), 5.0, 1.0) == (25.0, 2.0)
    assert gradient_of(function, 5.0) == (2.0,)


def test_several_results_of_which_one_is_read() -> None:
    pair = trace(lambda x, y: (x * y, x + y), f64, f64, name="pair")
    rule = trace(lambda x, y, a, b: (a * y + b, a * x + b), *[f64] * 4)
    function = trace(lambda x, y: get(make_custom_call(pair, x, y, backward=rule), index=1) * x, f64, f64)
    check_orders(function, (0.7, 1.3))
    both = trace(lambda x, y: make_tuple(make_custom_call(pair, x, y, backward=rule)), f64, f64)
    check_orders(both, (0.7, 1.3))


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ({}, "has no custom rule"),
        ({"forward": SQUARE}, r"forward derivative `square` has the wrong parameters.*expected f64, f64, found f64"),
        ({"backward": trace(lambda x, c: (c, c), f64, f64, name="two")}, "backward derivative `two` has the wrong res"),
        ({"stand_in": trace(lambda x, y: x, f64, f64, name="wide")}, "stand-in `wide` has the wrong parameters"),
        ({"forward": DOUBLED["forward"], "save": SQUARE}, "but there is none"),
        ({"forward": DOUBLED["forward"], "stand_in": SQUARE}, "both a substitute and a custom derivative"),
    ],
)
def test_signatures_are_checked_where_the_call_is_written(rules: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeRuleError, match=message) as caught:
        trace(lambda x: make_custom_call(SQUARE, x, **rules), f64)
    assert "test_custom.py" in str(caught.value)


def test_a_map_over_points_uses_the_rule_at_each() -> None:
    function = map_over(trace(lambda x: make_custom_call(SQUARE, x, backward=DOUBLED["backward"]), f64))
    points = np.array([1.0, 2.0, 3.0])
    np.testing.assert_array_equal(compile_function(vjp(function))(points, points), 2.0 * points)
    assert custom_call.name not in op_names(lower(vjp(function)))
