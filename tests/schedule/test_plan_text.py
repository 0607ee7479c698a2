"""Golden files: each `*.txt` is the readable text of a plan."""

from collections.abc import Callable
from pathlib import Path

import pytest

from livegrad.ir.function import trace
from livegrad.ir.node import Function, Node
from livegrad.ir.types import Tensor, f32, f64, i64
from livegrad.ops.control import make_for_loop
from livegrad.ops.linalg import matmul
from livegrad.ops.movement import flip
from livegrad.ops.reduction import reduce
from livegrad.ops.transcendental import sin, tanh
from tests.schedule.plans import plan_of, softmax


def layer(x: Node, weights: Node) -> Node:
    return softmax(tanh(matmul(x, weights)), 1)


def scaled(x: Node) -> Node:
    return reduce(sin(x), kind="sum", axes=(0,)) * 2.0


def grown(n: Node, x: Node) -> Node:
    return make_for_loop(n, lambda i, a: flip(a, axes=(0,)) * 2.0, x)[0]


PROGRAMS = {
    "a_layer_and_its_softmax": trace(layer, Tensor(f32, (8, 16)), Tensor(f32, (16, 4))),
    "a_long_sum_and_its_use": trace(scaled, Tensor(f32, (100_000,))),
    "a_loop_over_tensors_and_its_object": trace(grown, i64, Tensor(f64, (3,))),
}


@pytest.mark.parametrize(("name", "function"), PROGRAMS.items(), ids=PROGRAMS)
def test_a_plan_reads_as_expected(name: str, function: Function, check_golden: Callable[[Path, str], None]) -> None:
    check_golden(Path(__file__).parent / f"{name}.txt", f"{plan_of(function)}\n")
