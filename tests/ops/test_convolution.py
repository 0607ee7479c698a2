"""Convolutions and pooling against explicit loops, and their derivatives."""

from itertools import product
from typing import Any

import numpy as np
import pytest

from livegrad.diagnostics import TypeRuleError
from livegrad.ir.dimension import Dimension
from livegrad.ir.function import trace
from livegrad.ir.leaves import parameter
from livegrad.ir.types import Tensor, f32, f64, i8, shape_of
from livegrad.ir.walk import nodes_of
from livegrad.ops import convolution
from livegrad.ops.convolution import convolve
from livegrad.ops.reduction import reduce
from livegrad.ops.windows import arg_reduce_window, reduce_window
from livegrad.passes.differentiate.reverse import vjp
from livegrad.runtime.cpu import run_function
from livegrad.runtime.reference import evaluate
from tests.conformance.cases_library import CONVOLUTIONS
from tests.differentiate.checks import gradient_of, op_names


def convolved(x: Any, w: Any, strides: Any, padding: Any, dilation: Any, groups: int) -> Any:
    """The definition, one product after the other."""
    padded = np.pad(x, ((0, 0), (0, 0), *padding))
    outputs, depth, *window = w.shape
    share = outputs // groups
    rooms = zip(padded.shape[2:], window, strides, dilation, strict=True)
    counts = [max((n - (k - 1) * d - 1) // s + 1, 0) for n, k, s, d in rooms]
    result = np.zeros((x.shape[0], outputs, *counts))
    for place in product(*map(range, counts)):
        for tap in product(*map(range, window)):
            at = tuple(p * s + t * d for p, s, t, d in zip(place, strides, tap, dilation, strict=True))
            for output in range(outputs):
                first = output // share * depth
                values = padded[(slice(None), slice(first, first + depth), *at)]
                result[(slice(None), output, *place)] += values @ w[(output, slice(None), *tap)]
    return result


@pytest.mark.parametrize("row", CONVOLUTIONS, ids=str)
@pytest.mark.parametrize("chunk", [1, 1 << 25])
def test_a_convolution_is_the_sum_of_products(row: Any, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(convolution, "_CHUNK_BYTES", chunk)
    image, kernels, strides, padding, dilation, groups = row
    rng = np.random.default_rng(5)
    x, w = rng.standard_normal(image), rng.standard_normal(kernels)
    attributes = {"strides": strides, "padding": padding, "dilation": dilation, "groups": groups}
    function = trace(lambda x, w: convolve(x, w, **attributes), Tensor(f64, image), Tensor(f64, kernels))
    np.testing.assert_allclose(evaluate(function, x, w), convolved(x, w, **attributes), atol=1e-12)


def test_the_gradients_of_a_convolution_are_convolutions() -> None:
    n = Dimension.symbol("n")
    function = trace(
        lambda x, w: convolve(x, w, strides=(2, 2), padding=((1, 1), (1, 1)), dilation=(1, 1), groups=1),
        Tensor(f32, (n, 3, 8, 8)),
        Tensor(f32, (5, 3, 3, 3)),
    )
    gradient = vjp(function)
    assert gradient.result_types == function.parameter_types
    assert op_names(gradient) <= {"convolve", "pad", "slice", "flip", "permute", "reshape", "parameter", "constant"}
    rng = np.random.default_rng(6)
    for size in (1, 3):
        x, w = (rng.standard_normal(s).astype(np.float32) for s in ((size, 3, 8, 8), (5, 3, 3, 3)))
        ct = rng.standard_normal((size, 5, 4, 4)).astype(np.float32)
        for actual, expected in zip(run_function(gradient, x, w, ct), evaluate(gradient, x, w, ct), strict=True):
            np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-4)


def pooled(x: Any, kind: str, **attributes: Any) -> Any:
    element = {"f": f64, "i": i8}[x.dtype.kind]
    op = arg_reduce_window if kind.startswith("arg") else reduce_window
    function = trace(lambda x: op(x, kind=kind.removeprefix("arg"), **attributes), Tensor(element, x.shape))
    return evaluate(function, x)


BY_TWO = {"window": (2,), "strides": (1,), "padding": ((1, 1),), "dilation": (1,)}


def test_padding_never_is_an_extremum() -> None:
    x = np.array([-3, -128, -5], np.int8)
    np.testing.assert_array_equal(pooled(x, "max", **BY_TWO), [-3, -3, -5, -5])
    np.testing.assert_array_equal(pooled(x, "argmax", **BY_TWO), [1, 0, 1, 0])
    lowest = np.array([-128, -128], np.int8)
    np.testing.assert_array_equal(pooled(lowest, "argmax", **BY_TWO), [1, 0, 0])
    np.testing.assert_array_equal(pooled(np.array([-2.0]), "max", **BY_TWO), [-2, -2])


def test_a_window_of_nothing_but_padding_has_no_element() -> None:
    around = {"window": (1,), "strides": (1,), "padding": ((1, 1),), "dilation": (1,)}
    np.testing.assert_array_equal(pooled(np.array([7.0]), "max", **around), [-np.inf, 7, -np.inf])
    np.testing.assert_array_equal(pooled(np.array([7.0]), "argmax", **around), [-1, 0, -1])
    function = trace(lambda x: reduce(reduce_window(x, kind="max", **around), kind="sum", axes=(0,)), Tensor(f64, (1,)))
    np.testing.assert_array_equal(gradient_of(function, np.array([7.0]))[0], [1])


def test_a_nan_is_the_extremum_of_its_windows() -> None:
    x = np.array([1.0, np.nan, 3.0, 2.0])
    np.testing.assert_array_equal(pooled(x, "max", **BY_TWO), [1, np.nan, np.nan, 3, 2])
    np.testing.assert_array_equal(pooled(x, "argmin", **BY_TWO), [1, 1, 0, 1, 0])


def test_of_equal_elements_the_first_gets_the_derivative() -> None:
    attributes = {"window": (2, 2), "strides": (2, 2), "padding": ((0, 0), (0, 0)), "dilation": (1, 1)}
    function = trace(
        lambda x: reduce(reduce_window(x, kind="max", **attributes), kind="sum", axes=(0, 1)), Tensor(f64, (2, 4))
    )
    (gradient,) = gradient_of(function, np.array([[0.0, 5.0, 1.0, 1.0], [5.0, 0.0, 1.0, 1.0]]))
    np.testing.assert_array_equal(gradient, [[0, 1, 1, 0], [0, 0, 0, 0]])


def test_sizes_may_be_symbolic_where_the_count_of_windows_is_a_polynomial() -> None:
    n = Dimension.symbol("n")
    halves = {"window": (2,), "strides": (2,), "padding": ((0, 0),), "dilation": (1,)}
    assert reduce_window(parameter(0, Tensor(f32, (2 * n,))), kind="max", **halves).type is Tensor(f32, (n,))
    with pytest.raises(TypeRuleError, match="a stride of 2 over an extent of n"):
        reduce_window(parameter(0, Tensor(f32, (n,))), kind="max", **halves)
    image = parameter(0, Tensor(f32, (1, 1, n)))
    kernel = parameter(1, Tensor(f32, (1, 1, 3)))
    same = convolve(image, kernel, strides=(1,), padding=((1, 1),), dilation=(1,), groups=1)
    assert same.type is image.type


def test_what_does_not_fit_is_refused() -> None:
    x, w = parameter(0, Tensor(f32, (1, 4, 9))), parameter(1, Tensor(f32, (3, 2, 3)))
    one = {"strides": (1,), "padding": ((0, 0),), "dilation": (1,)}
    with pytest.raises(TypeRuleError, match="4 channels in 1 groups do not fit kernels of 2"):
        convolve(x, w, **one, groups=1)
    with pytest.raises(TypeRuleError, match="3 outputs cannot be shared by 2 groups"):
        convolve(x, w, **one, groups=2)
    with pytest.raises(TypeRuleError, match="at least 1"):
        reduce_window(x, kind="sum", window=(1, 1, 0), strides=(1, 1, 1), padding=((0, 0),) * 3, dilation=(1, 1, 1))
    with pytest.raises(TypeRuleError, match="for each of 3 dimensions"):
        reduce_window(x, kind="sum", window=(2,), strides=(1,), padding=((0, 0),), dilation=(1,))


@pytest.mark.parametrize("kind", ["max", "sum"])
@pytest.mark.parametrize("window", [2, 3])
def test_pools_of_symbolic_sizes_have_gradients(kind: str, window: int) -> None:
    n, m = Dimension.symbol("n"), Dimension.symbol("m")
    step = 2 if window == 2 else 1
    attributes = {"window": (1, window), "strides": (1, step), "padding": ((0, 0),) * 2, "dilation": (1, 1)}
    function = trace(lambda x: reduce_window(x, kind=kind, **attributes), Tensor(f32, (n, 2 * m)))
    gradient = vjp(function)
    assert not {"scatter_add", "lookup"} & op_names(gradient)
    for shape in ((1, 4), (3, 10)):
        x = np.random.default_rng(7).standard_normal(shape).astype(np.float32)
        ct = np.random.default_rng(8).standard_normal(evaluate(function, x).shape).astype(np.float32)
        np.testing.assert_array_equal(run_function(gradient, x, ct), evaluate(gradient, x, ct))


def test_gradients_by_images_multiply_no_zeros_between_windows() -> None:
    def strided(x: Any, w: Any) -> Any:
        return convolve(x, w, strides=(2, 2), padding=((1, 1), (1, 1)), dilation=(1, 1), groups=1)

    gradient = vjp(trace(strided, Tensor(f32, (1, 3, 16, 16)), Tensor(f32, (5, 3, 3, 3))))
    shapes = [
        tuple(shape_of(operand.type)[1:] for operand in node.operands)
        for node in nodes_of(gradient)
        if node.op is convolve and shape_of(node.type)[0] == 1
    ]
    # Four phases of three channels, of two by two taps each, over cotangents that lie side by side.
    assert shapes == [((5, 10, 10), (5, 2, 2))]
