"""Convolutions of integers and of complex numbers agree with NumPy, without host steps."""

from typing import Any

import numpy as np
import pytest

from livegrad.ir.function import trace
from livegrad.ir.types import Tensor, c64, c128, i32, u8
from livegrad.ops.convolution import convolve
from livegrad.runtime.cpu import compile_function
from livegrad.runtime.reference import evaluate

RNG = np.random.default_rng(3)
# Image, kernels, strides, padding, dilation and groups.
CASES: list[Any] = [
    ((2, 3, 9), (4, 3, 3), (1,), ((0, 0),), (1,), 1),
    ((2, 4, 8, 7), (6, 2, 3, 2), (2, 1), ((1, 2), (0, 1)), (1, 2), 2),
    ((1, 5, 4, 4), (5, 1, 1, 1), (1, 1), ((0, 0), (0, 0)), (1, 1), 5),
    ((3, 2, 5, 5, 4), (2, 2, 2, 2, 2), (1, 2, 1), ((1, 1), (0, 0), (1, 0)), (1, 1, 1), 1),
]


@pytest.mark.parametrize("element", [i32, u8, c64, c128])
@pytest.mark.parametrize("case", CASES)
def test_convolutions_are_those_of_the_reference(case: Any, element: Any) -> None:
    image, kernels, strides, padding, dilation, groups = case
    attributes: Any = {"strides": strides, "padding": padding, "dilation": dilation, "groups": groups}
    function = trace(lambda x, w: convolve(x, w, **attributes), Tensor(element, image), Tensor(element, kernels))
    x, w = (RNG.integers(0, 200, shape).astype(element.dtype) for shape in (image, kernels))
    if element.kind == "complex":
        x, w = (part + element.dtype.type(1j) * part[..., ::-1] for part in (x, w))
    compiled = compile_function(function)
    np.testing.assert_allclose(compiled(x, w), evaluate(function, x, w), rtol=1e-5)
    assert compiled.plan().only_kernels
