"""Device kernels compute complex numbers as pairs of real numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import livegrad as lg
from livegrad.codegen.cuda.cuda_target import CUDA
from livegrad.compiler import compile_plan
from livegrad.ir.types import Tensor, c64, c128, f64
from livegrad.runtime.cuda.cuda_function import CudaFunction
from livegrad.runtime.cuda.libraries import cufft
from livegrad.runtime.cuda.libraries.cufft import transform_call
from livegrad.runtime.reference import evaluate
from livegrad.schedule.plan import HostStep
from livegrad.tensors.tracing import trace_call
from tests.runtime.cuda.simulate import COMPILER, simulated

needs_compiler = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler to run kernels with")


def products(x: Any, y: Any) -> Any:
    return x * lg.conj(y) + lg.exp(x) / (y + 3.0), lg.sum(lg.abs(x - y), axis=0)


def moves(x: Any, y: Any) -> Any:
    return lg.concat((x.T, y[::-1].T), axis=1) * 2.0, lg.real(x)[1:], lg.imag(y)


def choices(x: Any, y: Any) -> Any:
    return lg.where(lg.real(x) > 0, x, y) - lg.sum(x * y)


PROGRAMS: list[Callable[..., Any]] = [products, moves, choices]


def check(program: Callable[..., Any]) -> int:
    function = trace_call(program, [Tensor(c128, (5, 4))] * 2, program.__name__).function
    random = np.random.default_rng(0)
    arguments = [random.normal(size=(5, 4)) + 1j * random.normal(size=(5, 4)) for _ in range(2)]
    actual, expected = CudaFunction(function)(*arguments), evaluate(function, *arguments)
    actual, expected = (value if isinstance(value, tuple) else (value,) for value in (actual, expected))
    for one, other in zip(actual, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)
    return len(actual)


@needs_compiler
@pytest.mark.parametrize("program", PROGRAMS)
def test_complex_numbers_stay_on_the_device(program):
    with simulated() as driver:
        results = check(program)
        assert driver.count("cuMemcpyDtoHAsync") == results, "nothing on the way"


def around_the_host(x: Any, y: Any) -> Any:
    squares = (x * y)[:4]
    return lg.abs(lg.linalg.eigvals(squares)), lg.linalg.eig(lg.conj(squares))[1] * 2.0


@needs_compiler
def test_host_steps_take_and_return_complex_numbers():
    with simulated():
        check(around_the_host)


@pytest.mark.gpu
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_device_computes_complex_numbers(program):
    check(program)


@pytest.mark.parametrize("axes", [(0,), (1,), (0, 2), (2, 1)])
def test_transforms_along_any_axes_are_calls_of_the_library(monkeypatch, axes):
    monkeypatch.setattr(cufft, "library", lambda: "never called")
    function = trace_call(lambda x: lg.fft.fftn(x, axes=axes), [Tensor(c64, (4, 5, 6))], "transform").function
    steps = [step for step in compile_plan(function, CUDA, {}).steps if isinstance(step, HostStep)]
    assert steps
    assert all(transform_call(step) is not None for step in steps)


@pytest.mark.gpu
@pytest.mark.parametrize("axes", [(0,), (1,), (0, 2), (2, 1)])
def test_a_device_transforms_along_any_axes(axes):
    values = np.random.default_rng(0).normal(size=(4, 5, 6))
    for transform in (lg.fft.fftn, lg.fft.rfftn):
        function = trace_call(lambda x: transform(x, axes=axes), [Tensor(f64, values.shape)], "transform").function  # noqa: B023
        np.testing.assert_allclose(CudaFunction(function)(values), evaluate(function, values), atol=1e-12)
