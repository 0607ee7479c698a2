"""Plans as people read them."""

from livegrad.ir.function import trace
from livegrad.ir.node import Node
from livegrad.ir.types import Tensor, f32, f64, i64
from livegrad.ops.control import make_for_loop
from livegrad.ops.linalg import matmul
from livegrad.ops.movement import flip
from livegrad.ops.reduction import reduce
from livegrad.ops.transcendental import sin, tanh
from tests.schedule.plans import plan_of, softmax


def test_a_layer_and_its_softmax() -> None:
    def layer(x: Node, weights: Node) -> Node:
        return softmax(tanh(matmul(x, weights)), 1)

    function = trace(layer, Tensor(f32, (8, 16)), Tensor(f32, (16, 4)))
    assert str(plan_of(function)) == (
        "plan layer: 2 steps, 1 kernel, 1152 bytes moved, peak 128 bytes of 128 without reuse\n"
        "  0: matmul(b0:argument0, b1:argument1) -> b3:matmul\n"
        "  1: kernel reduce+div [8 over 4](b3:matmul) -> b2:result0"
    )


def test_a_long_sum_and_its_use() -> None:
    def scaled(x: Node) -> Node:
        return reduce(sin(x), kind="sum", axes=(0,)) * 2.0

    function = trace(scaled, Tensor(f32, (100_000,)))
    assert str(plan_of(function)) == (
        "plan scaled: 3 steps, 3 kernels, 400068 bytes moved, peak 128 bytes of 128 without reuse\n"
        "  0: kernel reduce [7 over 100000](b0:argument0) -> b3:partial\n"
        "  1: kernel combine sum [1 over 7](b3:partial) -> b2:reduce\n"
        "  2: kernel mul [1](b2:reduce) -> b1:result0"
    )


def test_a_loop_over_tensors_and_its_object() -> None:
    def grown(n: Node, x: Node) -> Node:
        return make_for_loop(n, lambda i, a: flip(a, axes=(0,)) * 2.0, x)[0]

    function = trace(grown, i64, Tensor(f64, (3,)))
    assert str(plan_of(function)) == (
        "plan grown: 2 steps, 0 kernels, 56 bytes moved, peak 0 bytes of 0 without reuse\n"
        "  0: for_loop(b0:argument0, b1:argument1) -> o0:for_loop\n"
        "      each iteration runs 1 kernel\n"
        "      state: 0; invariant: none\n"
        "      plan <lambda>: 1 step, 1 kernel, 48 bytes moved, peak 0 bytes of 0 without reuse\n"
        "        0: kernel mul [3](b1:argument1) -> b2:result0\n"
        "  1: get(o0:for_loop) -> b2:result0"
    )
