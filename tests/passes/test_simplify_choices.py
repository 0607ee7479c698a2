"""Rules for selects as in derivatives of `min` and `max`: the same bits with fewer instructions."""

import numpy as np
import pytest

from livegrad import ops
from livegrad.ir.function import trace
from livegrad.ir.node import Node
from livegrad.ir.types import bool_, f32, i32
from livegrad.passes.simplify import simplify_function
from livegrad.runtime.reference import evaluate

VALUES = [0.0, -0.0, 1.5, -2.0, np.inf, -np.inf, np.nan]


def half_or_whole(c: Node, x: Node) -> Node:
    return ops.select(c, ops.filled(0.5, f32), ops.filled(1.0, f32)) * x


@pytest.mark.parametrize("condition", [True, False])
def test_factor_of_one_becomes_a_choice_with_the_same_bits(condition: bool):
    function = trace(half_or_whole, bool_, f32)
    simple = simplify_function(function)
    assert simple.results[0].op is ops.select
    for value in VALUES:
        before, after = (np.float32(evaluate(f, condition, value)) for f in (function, simple))
        assert before.tobytes() == after.tobytes() or (np.isnan(before) and np.isnan(after))


def test_factor_that_is_never_one_stays():
    function = trace(lambda c, x: ops.select(c, ops.filled(0.5, f32), ops.filled(2.0, f32)) * x, bool_, f32)
    assert simplify_function(function).results[0].op is ops.mul


@pytest.mark.parametrize(("order", "merged"), [(ops.less, ops.less_equal), (ops.greater, ops.greater_equal)])
def test_order_or_equality_is_one_comparison(order, merged):
    function = trace(lambda x, y: order(x, y) | ops.equal(y, x), f32, f32)
    simple = simplify_function(function)
    assert simple.results[0].op is merged
    for x in VALUES:
        for y in VALUES:
            assert evaluate(function, x, y) == evaluate(simple, x, y)


def test_order_or_equality_of_other_values_stays():
    function = trace(lambda x, y, z: ops.less(x, y) | ops.equal(x, z), i32, i32, i32)
    assert simplify_function(function).results[0].op is ops.bit_or
