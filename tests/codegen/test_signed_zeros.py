"""Signs, and products with signs, have the bits of the reference, including those of zeros, infinities and NaN."""

import numpy as np
import pytest

from livegrad import ops
from livegrad.ir.dimension import Dimension
from livegrad.ir.function import trace
from livegrad.ir.types import Scalar, Tensor, f16, f32, f64
from livegrad.ops.maps import make_map
from livegrad.runtime.cpu import CpuFunction
from livegrad.runtime.reference import evaluate

NUMBERS = [0.0, -0.0, 1.0, -1.0, 0.3, -7.5, 1e-7, -1e-7, np.inf, -np.inf, np.nan]


@pytest.mark.parametrize("element", [f16, f32, f64], ids=str)
def test_sign_and_its_products_have_the_bits_of_the_reference(element: Scalar):
    pairs = np.array([(x, y) for x in NUMBERS for y in NUMBERS], element.dtype)
    each = trace(lambda x, y: (ops.sign(x), ops.sign(x) * y, y * ops.sign(x)), element, element)
    axis = Tensor(element, (Dimension.symbol("n"),))

    def everywhere(x, y):
        value = make_map(each, x, y)
        return tuple(ops.get(value, index=index) for index in range(3))

    function = trace(everywhere, axis, axis)
    x, y = (np.ascontiguousarray(column) for column in pairs.T)
    with np.errstate(invalid="ignore"):
        wanted = evaluate(function, x, y)
    for found, expected in zip(CpuFunction(function)(x, y), wanted, strict=True):
        nan = np.isnan(expected)
        assert np.array_equal(nan, np.isnan(found))
        assert found[~nan].tobytes() == np.asarray(expected)[~nan].tobytes()
