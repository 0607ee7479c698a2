"""Which convolutions cuDNN computes, and from which memory, with a stand-in for its plans."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np
import pytest

from livegrad.ops.convolution import windows_of
from livegrad.runtime.cuda import DeviceArray
from livegrad.runtime.cuda.cuda_function import CudaFunction
from livegrad.runtime.cuda.libraries import cudnn, library_convolution
from livegrad.runtime.cuda.libraries.cudnn import Problem
from livegrad.runtime.reference import evaluate
from tests.runtime.cuda.simulate import COMPILER, simulated
from tests.runtime.cuda.simulated_driver import SimulatedDriver
from tests.runtime.cuda.test_convolutions import convolution, numbers

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler to run kernels with")


class Plan:
    """A plan that NumPy computes on the memory of the simulated driver."""

    def __init__(self, driver: SimulatedDriver, problem: Problem) -> None:
        self.driver, self.problem = driver, problem

    def enqueue(self, stream: Any, image: int, kernels: int, result: int) -> None:
        assert image % 16 == kernels % 16 == result % 16 == 0
        self.driver._enqueue("kernel", stream, lambda: self.compute(image, kernels, result))

    def compute(self, *addresses: int) -> None:
        problem = self.problem
        shapes = (problem.image, problem.kernels, problem.result)
        image, kernels, result = [self.array(*pair) for pair in zip(addresses, shapes, strict=True)]
        rank = len(problem.strides)
        windows = windows_of(image, problem.kernels[2:], problem.strides, problem.dilation)
        axes = [1, *range(2 + rank, 2 + 2 * rank)]
        result[:] = np.moveaxis(np.tensordot(windows, kernels, (axes, [1, *range(2, 2 + rank)])), -1, 1)

    def array(self, address: int, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
        dtype = self.problem.element.dtype
        size = prod(shape) * dtype.itemsize
        return np.ctypeslib.as_array((ctypes.c_ubyte * size).from_address(address)).view(dtype).reshape(shape)


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Plan]]:
    made: list[Plan] = []
    with simulated() as driver:

        def plan_of(problem: Problem) -> Plan:
            made.append(Plan(driver, problem))
            return made[-1]

        monkeypatch.setattr(cudnn, "library", lambda: driver)
        monkeypatch.setattr(cudnn, "plan_of", plan_of)
        monkeypatch.setattr(library_convolution, "_LEAST_OPERATIONS", 1e3)
        monkeypatch.setattr(library_convolution, "_LEAST_INNER", 20)
        yield made


@pytest.mark.parametrize(("image", "kernels", "attributes"), [
    ((2, 9, 7, 10), (11, 9, 3, 3), {"padding": ((1, 1), (0, 2)), "strides": (2, 1), "dilation": (1, 2)}),
    ((3, 8, 40), (9, 8, 5), {"strides": (3,)}),
    ((1, 3, 4, 5, 4), (8, 3, 2, 2, 2), {}),
])  # fmt: skip
def test_large_convolutions_are_computed_by_the_library(plans, image, kernels, attributes):
    function = convolution(image, kernels, "float32", attributes)
    arguments = numbers(image, "float32"), numbers(kernels, "float32")
    np.testing.assert_array_equal(CudaFunction(function)(*arguments), evaluate(function, *arguments))
    assert plans


def test_rows_of_a_larger_array_are_copied_to_where_the_library_reads_them(plans):
    image, kernels = (2, 7, 5, 3), (4, 7, 2, 2)
    function = convolution(image, kernels, "float32", {})
    data, weights = numbers((3, *image[1:]), "float32"), numbers(kernels, "float32")
    rows = DeviceArray.from_host(data).rows(1, 2)
    assert rows.address % 16
    np.testing.assert_array_equal(CudaFunction(function)(rows, weights), evaluate(function, data[1:], weights))
    assert plans


@pytest.mark.parametrize(("image", "kernels", "dtype"), [
    ((2, 9, 7, 10), (3, 9, 1, 2), "float32"), ((2, 9, 7, 10), (11, 9, 3, 3), "int32")
])  # fmt: skip
def test_our_kernels_compute_other_convolutions(plans, image, kernels, dtype):
    function = convolution(image, kernels, dtype, {})
    arguments = numbers(image, dtype), numbers(kernels, dtype)
    np.testing.assert_array_equal(CudaFunction(function)(*arguments), evaluate(function, *arguments))
    assert not plans
