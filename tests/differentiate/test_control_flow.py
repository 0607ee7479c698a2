"""Derivatives of programs with calls, branches, loops and maps: both modes, all nestings, against differences."""

from typing import Any

import numpy as np
import pytest

from livegrad.ir.function import inline, trace
from livegrad.ir.node import Function, Node
from livegrad.ir.types import Tensor, Type, Vector, f64, i64
from livegrad.ops.aggregate import get, make_tuple
from livegrad.ops.control import make_cond, make_for_loop, make_switch, make_while_loop
from livegrad.ops.conversion import cast
from livegrad.ops.indexing import lookup
from livegrad.ops.maps import make_map
from livegrad.ops.transcendental import log, sin, sqrt
from livegrad.ops.vector import dot
from livegrad.passes.differentiate.forward import jvp
from livegrad.passes.differentiate.reverse import vjp
from livegrad.runtime.reference import evaluate
from tests.differentiate.checks import check_first_order, check_nesting, gradient_of, op_names
from tests.differentiate.programs import PROGRAMS, TABLE, VALUES

THIRD_ORDER = ["product_loop", "weighted_mean", "nested_branches", "component_written_twice", "newton_root", "texture"]
TRACES = {"tape_new", "tape_set", "tape_get", "tape_add", "tape_sum"}


@pytest.mark.parametrize("name", PROGRAMS)
def test_both_modes_agree_with_differences(name: str) -> None:
    function, arguments = PROGRAMS[name]
    check_first_order(function, arguments, np.random.default_rng(0))


@pytest.mark.parametrize("inner", ["f", "r"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_both_modes_on_top_of_a_mode_agree_with_differences(name: str, inner: str) -> None:
    function, arguments = PROGRAMS[name]
    check_nesting(function, arguments, inner, np.random.default_rng(1))


@pytest.mark.parametrize("name", THIRD_ORDER)
@pytest.mark.parametrize("modes", ["ff", "fr", "rf", "rr"])
def test_third_order_agrees_with_differences(name: str, modes: str) -> None:
    function, arguments = PROGRAMS[name]
    check_nesting(function, arguments, modes, np.random.default_rng(2), tolerance=1e-6)


def along_x(function: Function) -> Function:
    """The derivative of a function of (n, x) by x, as a function of (n, x)."""

    def slope(n: Node, x: Node) -> Node:
        return inline(jvp(function), [n, x, make_tuple(), x * 0.0 + 1.0])[1]

    return trace(slope, i64, f64)


def test_a_product_loop_has_the_derivatives_of_a_power() -> None:
    power, _ = PROGRAMS["product_loop"]  # x ** (n + 1)
    slope = along_x(power)
    curvature = along_x(slope)
    x = 1.3
    assert gradient_of(power, 4, x)[1] == pytest.approx(5 * x**4, rel=1e-14)
    assert gradient_of(slope, 4, x)[1] == pytest.approx(20 * x**3, rel=1e-14)
    assert gradient_of(curvature, 4, x)[1] == pytest.approx(60 * x**2, rel=1e-14)


@pytest.mark.parametrize("n", [0, 1, 2, 7])
def test_a_product_loop_through_zero_is_right(n: int) -> None:
    expected = 1.0 if n == 0 else 0.0
    assert gradient_of(PROGRAMS["product_loop"][0], n, 0.0)[1] == expected


def test_the_gradient_of_a_weighted_mean_is_the_textbook_one() -> None:
    function, (n, values, weights) = PROGRAMS["weighted_mean"]
    w = weights**2
    mean = np.sum(w * values) / np.sum(w)
    _, by_value, by_weight = gradient_of(function, n, values, weights)
    np.testing.assert_allclose(by_value, w / np.sum(w), rtol=1e-13)
    np.testing.assert_allclose(by_weight, 2 * weights * (values - mean) / np.sum(w), rtol=1e-12)


# --- what the backward pass stores ------------------------------------------------------------------------------------


def summing(n: Node, table: Node, x: Node) -> Node:
    return make_for_loop(n, lambda i, a: a + sin(lookup(table, i)) * x, x * 0.0)[0]


def counting(n: Node, x: Node) -> Node:
    return make_for_loop(n, lambda i, a: a + cast(i, type=f64) * x * x, x)[0]


def summing_vectors(n: Node, v: Node) -> Node:
    return dot(make_for_loop(n, lambda i, a: a + v * v, v)[0], v)


@pytest.mark.parametrize(
    ("program", "types"),
    [(summing, (i64, TABLE, f64)), (counting, (i64, f64)), (summing_vectors, (i64, Vector(f64, 3)))],
)
def test_a_sum_over_a_loop_remembers_nothing(program: Any, types: tuple[Type, ...]) -> None:
    backward = vjp(trace(program, *types))
    assert not op_names(backward) & TRACES


def test_a_sum_in_a_map_remembers_nothing() -> None:
    inner = trace(lambda n, t, x: summing(n, t, x), i64, TABLE, f64, name="summing")
    whole = trace(lambda n, t, x: make_map(inner, n, t, x), Tensor(i64, (4,)), TABLE, Tensor(f64, (4,)))
    assert not op_names(vjp(whole)) & TRACES


def test_a_product_over_a_loop_remembers_its_factors() -> None:
    assert op_names(vjp(PROGRAMS["product_loop"][0])) & TRACES


def test_forward_mode_remembers_nothing() -> None:
    for function, _ in PROGRAMS.values():
        assert not op_names(jvp(function)) & TRACES


def test_reads_by_index_transpose_to_additions_at_the_index() -> None:
    backward = vjp(PROGRAMS["texture"][0])
    assert "scatter_add" in op_names(backward)
    table = gradient_of_table(backward)
    x = np.linspace(0.3, 3.6, 6)
    low = x.astype(int)
    weight = x - low
    expected = np.zeros(5)
    np.add.at(expected, low, 1 - weight)
    np.add.at(expected, low + 1, weight**2)
    np.testing.assert_allclose(table, expected, rtol=1e-13)


def gradient_of_table(backward: Function) -> Any:
    return evaluate(backward, *PROGRAMS["texture"][1], np.ones(6))[1]


def test_points_that_read_the_same_place_add_up() -> None:
    read = trace(lambda i, t: lookup(t, i), i64, TABLE, name="read")
    whole = trace(lambda i, t: make_map(read, i, t), Tensor(i64, (4,)), TABLE)
    gradient = evaluate(vjp(whole), np.array([2, 2, 0, 2]), VALUES, np.array([1.0, 10.0, 100.0, 1000.0]))[1]
    np.testing.assert_array_equal(gradient, [100.0, 0.0, 1011.0, 0.0, 0.0])


# --- what does not happen has no derivative --------------------------------------------------------------------------


def safe_root(x: Node) -> Node:
    return make_cond(x > 0.0, lambda a: sqrt(a) + log(a), lambda a: a * 0.0, x)


def switched_root(x: Node) -> Node:
    return make_switch(cast(x * 0.0, type=i64), [lambda a: a * 2.0, lambda a: sqrt(a - 1.0) / (a * 0.0)], x)


def loop_that_does_not_run(x: Node) -> Node:
    return make_for_loop(cast(x * 0.0, type=i64), lambda i, a: sqrt(a) / a, x)[0]


def while_that_does_not_run(x: Node) -> Node:
    return make_while_loop(lambda a: a > 1.0, lambda i, a: log(a - 5.0), x)[0]


def loop_over_an_invariant(x: Node) -> Node:
    return make_for_loop(cast(x * 0.0, type=i64), lambda i, a: a * sqrt(x), x + 2.0)[0]


def while_over_an_invariant(x: Node) -> Node:
    return make_while_loop(lambda a: a < 1.0, lambda i, a: a * sqrt(x) + log(x), x + 2.0)[0]


@pytest.mark.parametrize(
    ("program", "slope"),
    [
        (safe_root, 0.0),
        (switched_root, 2.0),
        (loop_that_does_not_run, 1.0),
        (while_that_does_not_run, 1.0),
        (loop_over_an_invariant, 1.0),
        (while_over_an_invariant, 1.0),
    ],
)
@pytest.mark.parametrize("mapped", [False, True], ids=["alone", "mapped"])
def test_a_branch_that_is_not_taken_leaves_no_nan(program: Any, slope: float, mapped: bool) -> None:
    function = trace(program, f64)
    x, one = (np.zeros(3), np.ones(3)) if mapped else (0.0, 1.0)
    if mapped:
        inner = function
        function = trace(lambda a: make_map(inner, a), Tensor(f64, (3,)))
    np.testing.assert_array_equal(evaluate(jvp(function), x, one)[1], slope * one)
    np.testing.assert_array_equal(evaluate(vjp(function), x, one), slope * one)
    # The slope's own slope is zero, by both ways to nest.
    nothing = 0.0 * one
    np.testing.assert_array_equal(evaluate(vjp(jvp(function)), x, one, nothing, one)[0], nothing)
    np.testing.assert_array_equal(evaluate(jvp(vjp(function)), x, one, one, nothing)[1], nothing)


def test_lanes_that_take_different_branches_have_their_own_derivatives() -> None:
    inner = trace(safe_root, f64, name="safe_root")
    whole = trace(lambda a: make_map(inner, a), Tensor(f64, (4,)))
    x = np.array([-1.0, 0.0, 1.0, 4.0])
    expected = np.array([0.0, 0.0, 1.5, 0.5])
    np.testing.assert_allclose(evaluate(vjp(whole), x, np.ones(4)), expected, rtol=1e-15)


# --- integers among the values ---------------------------------------------------------------------------------------


def test_integers_have_the_unit_for_a_differential() -> None:
    function, (n, t) = PROGRAMS["tuple_carried"]
    by_iterations, by_tuple = gradient_of(function, n, t)
    assert by_iterations == ()
    assert by_tuple[0] == ()
    assert by_tuple[2][1] == ()


def test_a_struct_differential_has_only_the_fields_that_can_move() -> None:
    function, (n, body) = PROGRAMS["struct_carried"]
    _, by_body = gradient_of(function, n, body)
    place, mass = by_body
    assert place.shape == (3,)
    assert np.ndim(mass) == 0


def test_an_integer_result_takes_no_cotangent() -> None:
    function = trace(lambda x: (sin(x), cast(x, type=i64)), f64)
    assert evaluate(vjp(function), 2.5, 1.0, ()) == pytest.approx(np.cos(2.5))
    assert evaluate(jvp(function), 2.5, 1.0)[3] == ()


def test_an_unused_argument_has_a_gradient_of_zero() -> None:
    function = trace(lambda x, y, v: x * x, f64, f64, Vector(f64, 3))
    _, by_y, by_v = gradient_of(function, 1.5, 2.5, np.ones(3))
    assert by_y == 0.0
    np.testing.assert_array_equal(by_v, np.zeros(3))


def test_a_value_asked_for_comes_before_the_gradient() -> None:
    function = trace(lambda x, y: (x * y, sin(x)), f64, f64)
    value, other, by_x, by_y = evaluate(vjp(function, with_value=True), 0.5, 3.0, 1.0, 2.0)
    assert (value, by_y) == (1.5, 0.5)
    assert other == np.sin(0.5)
    assert by_x == pytest.approx(3.0 + 2.0 * np.cos(0.5))


def test_a_result_that_is_an_argument_passes_its_cotangent_through() -> None:
    function = trace(lambda x: (x, x, get(make_tuple(x, x), index=1)), f64)
    assert evaluate(vjp(function), 0.5, 1.0, 10.0, 100.0) == 111.0
