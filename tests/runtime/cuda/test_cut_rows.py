"""Kernels with few long rows are cut between sweeps, so that several blocks share each row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import livegrad as lg
from livegrad.codegen.cuda.cuda_target import CUDA
from livegrad.compiler import compile_plan
from livegrad.ir.types import Tensor, f32, f64
from livegrad.runtime.cuda import CudaFunction
from livegrad.runtime.reference import evaluate
from livegrad.schedule.plan import KernelStep
from livegrad.tensors.tracing import trace_call
from tests.runtime.cuda.simulate import COMPILER, simulated
from tests.runtime.cuda.test_rows_and_scans import nests_of

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler here")
CUT, WHOLE = replace(CUDA, cut_rows=(16, 64)), replace(CUDA, cut_rows=None)
RNG = np.random.default_rng(3)


def batch_norm(x: Any) -> Any:
    mean = lg.mean(x, axis=(0, 2, 3), keepdims=True)
    variance = lg.mean((x - mean) ** 2, axis=(0, 2, 3), keepdims=True)
    return (x - mean) / lg.sqrt(variance + 1e-5)


def softmax(x: Any) -> Any:
    return lg.nn.softmax(x, axis=-1)


def spread(x: Any) -> Any:
    """Two reductions of a row, of which one needs the other, and a value for each row."""
    largest = lg.max(lg.abs(x), axis=-1, keepdims=True)
    return lg.sum(lg.cos(x / largest), axis=-1) * largest[..., 0]


PROGRAMS: dict[str, tuple[Callable[[Any], Any], tuple[int, ...]]] = {
    "batch norm": (batch_norm, (6, 3, 5, 7)),
    "gradient of batch norm": (lg.grad(lambda x: lg.sum(lg.sin(batch_norm(x)))), (6, 3, 5, 7)),
    "softmax": (softmax, (5, 200)),
    "gradient of softmax": (lg.grad(lambda x: lg.sum(softmax(x) ** 2)), (5, 200)),
    "spread": (spread, (4, 100)),
    "gradient of spread": (lg.grad(lambda x: lg.sum(spread(x) ** 2)), (4, 100)),
    "rows that are not cut": (batch_norm, (1, 20, 4, 4)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_cut_kernels_compute_what_whole_ones_do(name: str) -> None:
    program, shape = PROGRAMS[name]
    x = RNG.normal(size=shape)
    function = trace_call(program, [Tensor(f64, shape)], "program").function
    expected = evaluate(function, x)
    for target in (CUT, WHOLE):
        compiled = CudaFunction(function)
        compiled.target = target  # type: ignore[misc]
        with simulated():
            np.testing.assert_allclose(compiled(x), expected, rtol=1e-9, atol=1e-11)


def sweeps_of(target: Any, shape: tuple[int, ...]) -> list[int]:
    """How often each kernel of a batch norm reads its rows."""
    function = trace_call(batch_norm, [Tensor(f32, shape)], "batch_norm").function
    steps = [step for step in compile_plan(function, target).steps if isinstance(step, KernelStep)]
    return [sum(stage.level == "point" for stage in step.kernel.stages) for step in steps]


def test_only_few_long_rows_are_cut() -> None:
    assert max(sweeps_of(CUDA, (32, 64, 56, 56))) == 1
    assert max(sweeps_of(CUDA, (2, 64, 8, 8))) > 1


def test_blocks_share_the_rows_of_a_cut_kernel() -> None:
    function = trace_call(batch_norm, [Tensor(f32, (32, 64, 56, 56))], "batch_norm").function
    reducing = [nest for nest in nests_of(function) if nest.inner_rank]
    assert reducing
    assert all(nest.loop("parallel", "inner", "block") is not None for nest in reducing)
