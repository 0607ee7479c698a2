"""Loops capture what a broadcast repeats: the backward pass sums its cotangent instead of keeping one of each copy."""

import numpy as np
import pytest

from livegrad import ops
from livegrad.ir.function import trace
from livegrad.ir.leaves import constant
from livegrad.ir.node import Function, Node
from livegrad.ir.types import Tensor, f64, i64, shape_of
from livegrad.ir.walk import nodes_of
from livegrad.ops.control import for_loop
from livegrad.passes.differentiate.forward import jvp
from livegrad.passes.differentiate.reverse import vjp
from livegrad.passes.differentiate.sink_broadcasts import sink_broadcasts
from livegrad.runtime.cpu import CpuFunction
from tests.differentiate.checks import random_differentials

ROWS, COLUMNS = 5, 7


def weighted(through: str) -> Function:
    """Three iterations of a loop over a matrix that captures a row of weights for each of its rows."""

    def repeated(x: Node, weights: Node) -> Node:
        row = ops.reshape(weights, shape=(1, COLUMNS)) if through == "reshape" else weights
        axes = (0, 1) if through == "reshape" else (1,)
        copies = ops.broadcast(row, shape=(ROWS, COLUMNS), axes=axes)
        return ops.make_for_loop(constant(3, i64), lambda index, y: ops.sin(y) * copies, x)[0]

    return trace(repeated, Tensor(f64, (ROWS, COLUMNS)), Tensor(f64, (COLUMNS,)))


@pytest.mark.parametrize("through", ["broadcast", "reshape"])
def test_the_backward_pass_carries_a_cotangent_of_what_is_repeated(through: str) -> None:
    backward = [node for node in nodes_of(vjp(weighted(through))) if node.op is for_loop][-1]
    shapes = [shape_of(type) for type in backward.attribute("body").result_types]
    assert shapes == [(ROWS, COLUMNS), (COLUMNS,)]


@pytest.mark.parametrize("through", ["broadcast", "reshape"])
def test_both_modes_agree_on_repeated_captures(through: str) -> None:
    function = weighted(through)
    generator = np.random.default_rng(0)
    values = random_differentials(function.parameter_types, generator)
    tangents = random_differentials(function.parameter_types, generator)
    (cotangent,) = random_differentials(function.result_types, generator)
    _, moved = CpuFunction(jvp(function))(*values, *tangents)
    gradients = CpuFunction(vjp(function))(*values, cotangent)
    pairs = zip(gradients, tangents, strict=True)
    np.testing.assert_allclose(sum(np.vdot(*pair) for pair in pairs), np.vdot(cotangent, moved), rtol=1e-12)


def test_broadcasts_of_numbers_and_of_whole_tensors_stay_outside() -> None:
    def repeated(x: Node, scale: Node) -> Node:
        copies = ops.broadcast(scale, shape=(ROWS,), axes=())
        return ops.make_for_loop(constant(3, i64), lambda index, y: y * copies, x)[0]

    function = trace(repeated, Tensor(f64, (ROWS,)), f64)
    assert sink_broadcasts(function).results == function.results
