"""Merging of variables after branches and loops, and rejection of values that leave their region."""

import math

import pytest

import livegrad as lg
from livegrad.diagnostics import VerifyError
from livegrad.frontend.function.branch_regions import close_regions
from livegrad.ir.leaves import input_node
from livegrad.ir.node import Key
from livegrad.ir.types import f64


@lg.differentiable
def assigned_in_a_loop(x: float, n: int) -> float:
    y = x * 2.0
    total = 0.0
    for _ in range(n):
        if y > 2.0:
            z = y
        else:
            z = y
        total += z
    return total


@lg.differentiable
def assigned(x: float) -> float:
    y = x * 2.0
    if y > 2.0:
        z = y
    else:
        z = y
    return z * z


@lg.differentiable
def returned(x: float) -> float:
    y = x * x
    if y > 2.0:
        return y
    else:
        return y


@lg.differentiable
def returned_from_a_loop(x: float) -> float:
    y = x
    for _ in range(4):
        y = y * 1.5
        if y > 2.0:
            return y
        y = y * 1.0
        if y > 1.0:
            return y
    return y


@lg.differentiable
def a_pair_with_two_names(x: float) -> float:
    y = (x * 2.0, x * 3.0)
    if x > 1.0:
        z = y
    else:
        z = y
    return z[0] * z[1]


@lg.differentiable
def square_root(x: float) -> float:
    y = x
    for _ in range(20):
        step = (y * y - x) / (2.0 * y)
        if abs(step) < 1e-12:
            break
        y = y - step
    return y


@lg.differentiable
def square_root_by_return(x: float) -> float:
    y = x
    for _ in range(20):
        step = (y * y - x) / (2.0 * y)
        if abs(step) < 1e-12:
            return y
        y = y - step
    return y


def test_both_paths_of_a_branch_may_assign_the_same_value_in_a_loop():
    assert assigned_in_a_loop(3.0, 2) == 12.0
    assert lg.bwd_diff(assigned_in_a_loop)(3.0, 2, 1.0)[0] == 4.0
    assert lg.bwd_diff(assigned_in_a_loop)(0.5, 2, 1.0)[0] == 4.0


@pytest.mark.parametrize("x", [0.5, 3.0])
@pytest.mark.parametrize(
    ("function", "value", "slope"),
    [
        (assigned, lambda x: 4 * x * x, lambda x: 8 * x),
        (returned, lambda x: x * x, lambda x: 2 * x),
        (returned_from_a_loop, lambda x: x * (1.5 if x > 1 else 2.25), lambda x: 1.5 if x > 1 else 2.25),
        (a_pair_with_two_names, lambda x: 6 * x * x, lambda x: 12 * x),
    ],
)
def test_both_paths_of_a_branch_may_have_the_same_value(function, value, slope, x):
    assert function(x) == value(x)
    assert lg.bwd_diff(function)(x, 1.0) == (slope(x),)
    assert lg.fwd_diff(function)(lg.pair(x, 1.0)).differential == slope(x)


@pytest.mark.parametrize("function", [square_root, square_root_by_return])
def test_a_newton_iteration_that_ends_early_has_a_hessian(function):
    assert math.isclose(function(2.0), math.sqrt(2.0), rel_tol=1e-15)
    assert math.isclose(lg.bwd_diff(function)(2.0, 1.0)[0], 0.5 / math.sqrt(2.0), rel_tol=1e-12)
    assert math.isclose(float(lg.hessian(function)(2.0)), -0.25 * 2.0**-1.5, rel_tol=1e-9)


def test_a_region_that_uses_an_input_of_another_region_is_rejected():
    own, unknown = input_node(Key("own"), f64), input_node(Key("unknown"), f64)
    with pytest.raises(VerifyError, match="`unknown`"):
        close_regions("f", [[own]], {}, [[own + unknown]])
    with pytest.raises(VerifyError, match="`own`"):
        close_regions("f", [[own], []], {}, [[own], [own]])  # a parameter of the other region
    (closed,), captured = close_regions("f", [[own]], {unknown: unknown}, [[own + unknown]])
    assert len(closed.parameters) == 2
    assert captured == [unknown]


def test_values_that_a_loop_cannot_carry_are_rejected_where_they_are_read():
    @lg.function
    def chosen(x: float, n: int) -> float:
        function = math.sin
        for _ in range(n):
            function = math.cos
        return function(x)

    @lg.function
    def paired(x: float, n: int) -> float:
        pair = (math.sin, x)
        for _ in range(n):
            if x > 1.0:
                pair = (math.cos, x * 2.0)
        return pair[1]

    @lg.function
    def read_in_the_loop(x: float, n: int) -> float:
        pair = (math.sin, x)
        for _ in range(n):
            pair = (math.sin, pair[1] * 2.0)
        return x

    @lg.function
    def the_same(x: float, n: int) -> float:
        function = math.sin
        total = 0.0
        for _ in range(n):
            function = math.sin
            total += function(x)
        return total + function(x)

    for refused in (chosen, paired, read_in_the_loop):
        with pytest.raises(lg.FunctionError, match="LG203"):
            refused(2.0, 0)
    assert math.isclose(the_same(2.0, 3), 4.0 * math.sin(2.0))


def test_a_loop_over_an_empty_list_runs_only_its_else():
    @lg.differentiable
    def total(xs: list[float]) -> float:
        found = 1.0
        for x in xs:
            found += x
        else:
            found += 2.0
        return found

    assert total([]) == 3.0
    assert total([2.0]) == 5.0
    assert lg.bwd_diff(total)([], 1.0) == ([],)
