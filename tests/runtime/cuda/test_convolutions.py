"""Convolutions on the device and their gradients equal NumPy's, without host steps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import livegrad as lg
from livegrad.ir.function import trace
from livegrad.ir.node import Function
from livegrad.ir.types import Tensor, f32, f64, scalar_of_dtype
from livegrad.ops.convolution import convolve
from livegrad.runtime.cuda.cuda_function import CudaFunction
from livegrad.runtime.cuda.libraries.device_convolution import Convolution
from livegrad.runtime.cuda.libraries.tiled_product_kernels import SLOTS, source_of
from livegrad.runtime.cuda.nvrtc import compile_source
from livegrad.runtime.reference import evaluate
from tests.runtime.cuda.simulate import COMPILER, simulated
from tests.runtime.cuda.simulated_driver import SimulatedDriver
from tests.runtime.cuda.test_layout import COMPILED_FOR, parameters_of

needs_compiler = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler to run kernels with")

CASES = [  # image, kernels, attributes
    ((2, 9, 7, 10), (11, 9, 3, 3), {"padding": ((1, 1), (1, 1))}),
    ((1, 4, 9, 8), (70, 4, 2, 3), {"strides": (2, 1), "dilation": (1, 2)}),
    ((2, 16, 6, 5), (16, 8, 3, 2), {"groups": 2, "strides": (1, 2), "padding": ((0, 1), (2, 0))}),
    ((2, 6, 7, 6), (6, 1, 3, 3), {"groups": 6}),
    ((3, 2, 40), (9, 2, 5), {"strides": (3,)}),
    ((1, 3, 4, 5, 4), (8, 3, 2, 2, 2), {}),
]


def convolution(image: tuple[int, ...], kernels: tuple[int, ...], dtype: str, attributes: dict[str, Any]) -> Function:
    rank = len(image) - 2
    filled = {"strides": (1,) * rank, "dilation": (1,) * rank, "padding": ((0, 0),) * rank, "groups": 1} | attributes
    element = scalar_of_dtype(np.dtype(dtype))
    return trace(lambda x, w: convolve(x, w, **filled), Tensor(element, image), Tensor(element, kernels))


def numbers(shape: tuple[int, ...], dtype: str) -> np.ndarray[Any, Any]:
    """Small whole numbers: sums of their products are exact in any order."""
    return np.random.default_rng(sum(shape)).integers(-3, 4, shape).astype(dtype)


@pytest.fixture
def driver() -> Iterator[SimulatedDriver]:
    with simulated() as simulated_driver:
        yield simulated_driver


def check_on_the_device(function: Function, *arguments: Any) -> None:
    compiled = CudaFunction(function)
    actual, expected = compiled(*arguments), evaluate(function, *arguments)
    for one, other in zip(_listed(actual), _listed(expected), strict=True):
        np.testing.assert_array_equal(one, other)


def _listed(results: Any) -> tuple[Any, ...]:
    return results if isinstance(results, tuple) else (results,)


@needs_compiler
@pytest.mark.parametrize(("image", "kernels", "attributes"), CASES)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
def test_a_convolution_equals_numpys_and_stays_on_the_device(driver, image, kernels, attributes, dtype):
    if dtype == "int32" and len(image) > 4:
        pytest.skip("one element type is enough for more dimensions")
    check_on_the_device(convolution(image, kernels, dtype, attributes), numbers(image, dtype), numbers(kernels, dtype))
    assert driver.count("cuMemcpyDtoHAsync") == 1, "the result, and nothing on the way"


@needs_compiler
@pytest.mark.parametrize(("image", "kernels", "attributes"), CASES)
def test_the_gradients_of_a_convolution_are_convolutions_on_the_device(driver, image, kernels, attributes):
    function = convolution(image, kernels, "float32", attributes)
    shape = function.results[0].type.shape  # type: ignore[attr-defined]
    arguments = [numbers(one, "float32") for one in (image, kernels, shape)]
    check_on_the_device(lg.vjp(function), *arguments)
    assert driver.count("cuMemcpyDtoHAsync") == 2


@needs_compiler
@pytest.mark.parametrize("rows", [3, 8])
def test_blocks_that_share_the_inner_dimension_add_their_parts(driver, rows):
    image, kernels = (2, 40, 3, 21), (rows, 40, 3, 20)
    check_on_the_device(
        convolution(image, kernels, "float32", {}), numbers(image, "float32"), numbers(kernels, "float32")
    )
    call = Convolution(f32, image, kernels, (1, 2), (1, 1), (1, 1), 1)
    assert call.splits > 1
    assert call.chunk * (call.splits - 1) < call.inner <= call.chunk * call.splits


def test_every_part_of_the_inner_dimension_has_work():
    for inner in range(1, 3000, 7):
        call = Convolution(f32, (1, inner, 1), (8, inner, 1), (1,), (1,), (1,), 1)
        assert call.chunk * (call.splits - 1) < inner <= call.chunk * call.splits


@pytest.mark.parametrize("architecture", COMPILED_FOR)
@pytest.mark.parametrize("element", [f32, f64])
def test_the_kernels_compile_and_take_one_struct_of_slots(architecture, element):
    cubin = compile_source(source_of(element, wide=False, along_inner=True), architecture)
    for symbol in ("tiles", "elements", "sum_splits"):
        assert parameters_of(cubin, symbol) == [(0, 8 * len(SLOTS))]


LARGE = [  # for cuDNN, where it is installed
    ((4, 64, 30, 30), (96, 64, 3, 3), {}),
    ((8, 32, 40, 41), (64, 32, 3, 5), {"padding": ((1, 1), (2, 2)), "strides": (2, 1), "dilation": (1, 2)}),
    ((16, 64, 1000), (64, 64, 9), {"strides": (2,)}),
    ((2, 32, 20, 20, 20), (32, 32, 3, 3, 3), {}),
    ((4, 128, 30, 30), (128, 32, 3, 3), {"groups": 4}),
    ((8, 128, 30, 30), (128, 128, 3, 3), {"padding": ((1, 1), (1, 1))}),
]


@pytest.mark.gpu
@pytest.mark.parametrize(("image", "kernels", "attributes"), [*CASES, *LARGE])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
def test_a_device_computes_convolutions_and_their_gradients_exactly(image, kernels, attributes, dtype):
    function = convolution(image, kernels, dtype, attributes)
    check_on_the_device(function, numbers(image, dtype), numbers(kernels, dtype))
    if dtype != "int32":
        shape = function.results[0].type.shape  # type: ignore[attr-defined]
        check_on_the_device(lg.vjp(function), *[numbers(one, dtype) for one in (image, kernels, shape)])
