"""Kernels with many calls of math functions use eight registers per value: tails, masks and checks at that width."""

from typing import Any

import numpy as np
import pytest

import livegrad as lg
from livegrad import ops
from livegrad.runtime.reference import evaluate

LENGTHS = (1, 127, 128, 129, 1000)


def waves(x: lg.ir.Node) -> lg.ir.Node:
    """More than eight calls, which makes a kernel wide."""
    total = x
    for number in range(1, 6):
        total = total + 0.1 * (ops.sin(x * float(number)) + ops.exp(-x * x * float(number)) + ops.tanh(x - number))
    return total


def branched(x: lg.ir.Node) -> lg.ir.Node:
    return ops.make_cond(x > 0.5, waves, lambda x: ops.log1p(x * x), x)


def repeated(x: lg.ir.Node) -> lg.ir.Node:
    """Each lane iterates until its value is small, some lanes not at all."""
    return ops.make_while_loop(lambda y: y > 0.75, lambda index, y: waves(y) * 0.5, x)[0]


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("element", [lg.f32, lg.f64], ids=str)
@pytest.mark.parametrize("function", [waves, branched, repeated])
def test_wide_kernels_agree_with_the_reference(function: Any, element: Any, length: int) -> None:
    mapped = lg.ir.map_over(lg.ir.trace(function, element), lifted=(True,))
    x = np.linspace(-1.5, 2.0, length).astype(element.dtype)
    tolerance = 64 * np.finfo(element.dtype).eps
    np.testing.assert_allclose(lg.ir.compile(mapped)(x), evaluate(mapped, x), rtol=tolerance, atol=tolerance)


def test_a_failing_check_names_its_element() -> None:
    def checked(x: lg.ir.Node, n: lg.ir.Node) -> lg.ir.Node:
        return waves(x) + ops.cast(ops.floor_div(n, n), type=lg.f32)

    compiled = lg.ir.compile(lg.ir.map_over(lg.ir.trace(checked, lg.f32, lg.i32), lifted=(True, True)))
    numbers = np.ones(300, np.int32)
    numbers[[201, 250]] = 0
    with pytest.raises(lg.KernelCheckError, match="201"):
        compiled(np.zeros(300, np.float32), numbers)
