"""`fwd_diff` and `bwd_diff` as ops: derivatives of derivatives in every order agree with finite differences."""

import itertools
from collections.abc import Callable

import numpy as np
import pytest

from livegrad.compiler import lower, lower_module
from livegrad.ir.function import trace
from livegrad.ir.leaves import constant
from livegrad.ir.node import Function, Module, Node
from livegrad.ir.types import Tuple, Vector, f64, i64
from livegrad.ops.aggregate import get, make, make_tuple
from livegrad.ops.control import call, make_cond, make_for_loop, make_while_loop
from livegrad.ops.differential import bwd_diff, fwd_diff
from livegrad.ops.transcendental import exp, sin
from livegrad.ops.vector import dot
from livegrad.passes.differentiate.lower import differentiate
from livegrad.runtime.reference import evaluate

POINT = 0.6


def smooth(x: Node) -> Node:
    return sin(x * x) * exp(x)


def loop(x: Node) -> Node:
    return make_for_loop(constant(4, i64), lambda i, a, b: (a * b + x, sin(b)), x, x * 0.5)[0]


def dynamic(x: Node) -> Node:
    return make_while_loop(lambda a, k: k < 3.0, lambda i, a, k: (a * x + sin(a), k + 1.0), x, constant(0.0, f64))[0]


def branch(x: Node) -> Node:
    return make_cond(x > 0.5, lambda a: a * a * a, lambda a: -a, x * 2.0)


def nested_call(x: Node) -> Node:
    pair = trace(lambda a, b: (a * b, sin(a) + b), f64, f64, name="pair")
    both = call(x, x * x, function=pair)
    return get(both, index=0) * get(both, index=1)


def vectors(x: Node) -> Node:
    v = make(x, sin(x), type=Vector(f64, 2))
    return dot(v, v * v)


PROGRAMS: list[Callable[[Node], Node]] = [smooth, loop, dynamic, branch, nested_call, vectors]


def forward(function: Function) -> Function:
    return trace(lambda x: get(fwd_diff(x, constant(1.0, f64), function=function), index=1), f64, name="forward")


def reverse(function: Function) -> Function:
    return trace(lambda x: bwd_diff(x, constant(1.0, f64), function=function), f64, name="reverse")


MODES = {"f": forward, "r": reverse}
ORDERS = ["".join(order) for number in (1, 2, 3) for order in itertools.product("fr", repeat=number)]


def central_difference(function: Callable[[float], float], step: float = 1e-5) -> float:
    return (function(POINT + step) - function(POINT - step)) / (2.0 * step)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_derivatives_of_derivatives_agree_with_differences(program: Callable[[Node], Node], order: str) -> None:
    previous = function = trace(program, f64)
    for mode in order:
        previous, function = function, MODES[mode](function)
    names = ("previous", "derived")
    module = Module(
        tuple(Function(n, f.parameters, f.results) for n, f in zip(names, (previous, function), strict=True))
    )
    lowered = differentiate(module)
    expected = central_difference(lambda x: float(evaluate(lowered.functions[0], x)))
    assert evaluate(lowered.functions[1], POINT) == pytest.approx(expected, rel=1e-6, abs=1e-6)
    compiled = lower_module(module)
    assert evaluate(compiled.functions[1], POINT) == pytest.approx(evaluate(lowered.functions[1], POINT), rel=1e-12)


def test_several_results_come_as_a_pair_of_tuples() -> None:
    both = trace(lambda x, y: (x * y, x + y), f64, f64, name="both")
    function = trace(lambda x, y: fwd_diff(x, y, x * 0.0 + 1.0, y * 0.0, function=both), f64, f64, name="f")
    after = lower(function)
    assert evaluate(after, 2.0, 3.0) == ((6.0, 5.0), (3.0, 1.0))


def test_what_carries_no_derivative_gives_the_unit() -> None:
    mixed = trace(lambda n, x: (n + 1, x * x), i64, f64, name="mixed")

    def f(n: Node, x: Node) -> Node:
        unit = make(type=Tuple(()))
        one = x * 0.0 + 1.0
        return make_tuple(
            fwd_diff(n, x, unit, one, function=mixed),
            bwd_diff(n, x, unit, one, function=mixed),
        )

    after = lower(trace(f, i64, f64))
    assert evaluate(after, 1, 3.0) == (((2, 9.0), ((), 6.0)), ((), 6.0))


def test_a_derivative_inside_a_body_is_lowered_there() -> None:
    """Newton's method for the square root: the derivative is taken inside the loop."""
    residual = trace(lambda x, a: x * x - a, f64, f64, name="residual")

    def root(a: Node) -> Node:
        def body(i: Node, x: Node) -> Node:
            both = fwd_diff(x, a, constant(1.0, f64), constant(0.0, f64), function=residual)
            return x - get(both, index=0) / get(both, index=1)

        return make_for_loop(constant(8, i64), body, a)[0]

    function = trace(root, f64)
    slope = trace(lambda a: bwd_diff(a, constant(1.0, f64), function=function), f64, name="slope")
    compiled = lower_module(Module((function, slope)))
    assert evaluate(compiled.functions[0], 2.0) == pytest.approx(np.sqrt(2.0))
    assert evaluate(compiled.functions[1], 2.0) == pytest.approx(0.5 / np.sqrt(2.0))


def test_a_value_that_a_loop_throws_away_does_not_spoil_the_gradient() -> None:
    """The unread value overflows: infinity times its cotangent of zero would be NaN."""

    def halve(x: Node) -> Node:
        return make_for_loop(constant(12, i64), lambda i, a, b: (a * x, b * b), x, x * 10.0)[0]

    function = trace(halve, f64)
    for order, expected in (("r", 13.0), ("rr", 13.0 * 12.0), ("fr", 13.0 * 12.0)):
        derived = function
        for mode in order:
            derived = MODES[mode](derived)
        after = lower(derived)
        assert evaluate(after, 1.0) == pytest.approx(expected)
