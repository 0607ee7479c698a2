"""Among the ready steps, one that frees memory runs first: values that a gradient no longer needs are freed."""

from typing import Any

import numpy as np

from livegrad.ir.function import trace
from livegrad.ir.node import Function, Node
from livegrad.ir.types import Tensor, f64
from livegrad.ops.control import call
from livegrad.ops.custom import recompute_call
from livegrad.ops.indexing import lookup
from livegrad.ops.linalg import matmul
from livegrad.ops.reduction import reduce
from livegrad.ops.transcendental import sin
from livegrad.passes.differentiate.reverse import vjp
from livegrad.runtime.cpu import compile_function
from livegrad.runtime.reference import evaluate

LAYERS, EXAMPLES, WIDTH = 8, 256, 16
ROWS, WEIGHTS = Tensor(f64, (EXAMPLES, WIDTH)), Tensor(f64, (WIDTH, WIDTH))
ROW_BYTES = EXAMPLES * WIDTH * 8
LAYER = trace(lambda x, w: sin(matmul(x, w)), ROWS, WEIGHTS, name="layer")


def network(mark: Any) -> Function:
    def whole(x: Node, *weights: Node) -> Node:
        for first, second in zip(weights[::2], weights[1::2], strict=True):
            x = mark(x, first, second, function=PAIR_OF_LAYERS)
        return lookup(reduce(x, kind="sum", axes=(0, 1)))

    return trace(whole, ROWS, *[WEIGHTS] * LAYERS)


PAIR_OF_LAYERS = trace(
    lambda x, a, b: call(call(x, a, function=LAYER), b, function=LAYER), ROWS, WEIGHTS, WEIGHTS, name="pair"
)


def peak_in_rows(function: Function) -> float:
    plan = compile_function(function).plan().plan
    assert plan is not None
    return plan.arena_bytes / ROW_BYTES


def test_a_weight_s_gradient_is_computed_while_its_factors_are_there() -> None:
    """Eight layers keep two tensors each in the forward pass; nothing of the backward pass waits for the end."""
    assert peak_in_rows(vjp(network(call))) <= 2 * LAYERS


def test_layers_that_are_computed_again_take_less_memory_with_gradients_of_all_weights() -> None:
    assert peak_in_rows(vjp(network(recompute_call))) < 0.65 * peak_in_rows(vjp(network(call)))


def test_the_order_does_not_change_the_gradient() -> None:
    rng = np.random.default_rng(0)
    function = vjp(network(recompute_call))
    arguments = [rng.normal(size=(EXAMPLES, WIDTH)), *rng.normal(size=(LAYERS, WIDTH, WIDTH)) * 0.3, 1.0]
    for actual, expected in zip(compile_function(function)(*arguments), evaluate(function, *arguments), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-10, atol=1e-12)


def test_many_independent_results_are_ordered_quickly_and_all_run() -> None:
    def fan(x: Node) -> list[Node]:
        return [reduce(sin(x * (0.5 + index)), kind="sum", axes=(1,)) for index in range(300)]

    results = compile_function(trace(fan, ROWS))(np.ones((EXAMPLES, WIDTH)))
    np.testing.assert_allclose([r[0] for r in results], [WIDTH * np.sin(0.5 + i) for i in range(300)], rtol=1e-12)
