"""Assignments to slices on the device: kernels write in place where the old value is unused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import livegrad as lg
from livegrad.ir.function import trace
from livegrad.ir.types import Tensor, f32
from livegrad.passes.differentiate.reverse import vjp
from livegrad.runtime.cuda import run_ieee
from livegrad.runtime.reference import evaluate
from livegrad.tensors.handle import wrap
from tests.runtime.cuda.simulate import COMPILER, simulated

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler to run kernels with")


def paint(x: Any) -> Any:
    x = lg.copy(x) * 1.0
    x[1:-1, 1:-1] = x[1:-1, :-2] + x[1:-1, 2:]
    x[0] = 5.0
    x[:, -1] = x[:, 0] * 2.0
    x[::2, ::3] = 1.0
    x[::-2, 0] = x[::2, 1]
    x[2:4] += 1.0
    x[2:5, ::-1] *= x[3:6]
    return x


@pytest.mark.parametrize("shape", [(6, 7), (40, 30)])
def test_slices_are_written_as_the_reference_writes_them(shape: tuple[int, int]) -> None:
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    function = trace(lambda x: paint(wrap(x)).node, Tensor(f32, shape))
    derivative = vjp(function)
    for seed in range(2):
        with simulated(seed):
            np.testing.assert_allclose(run_ieee(function, x), evaluate(function, x), rtol=1e-5)
            np.testing.assert_allclose(run_ieee(derivative, x, x), evaluate(derivative, x, x), rtol=1e-4, atol=1e-4)
