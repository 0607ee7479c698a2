"""Maps that read a tensor in two ways: its value at the point, and any of its elements by index."""

import numpy as np
import pytest

import livegrad as lg
from livegrad import ops
from livegrad.ops.maps import make_map

WHOLE = lg.ir.types.Tensor(lg.f32, (4,))
BESIDE = lg.ir.trace(lambda x, table: x + ops.lookup(table, ops.cast(x, type=lg.i64)), lg.f32, WHOLE, name="beside")


@pytest.mark.parametrize(
    "shared",
    [lambda a: a, lambda a: a + a, lambda a: ops.sin(a)],
    ids=["the tensor itself", "computed from it", "a math function of it"],
)
def test_a_tensor_may_be_lifted_and_shared_at_once(shared):
    function = lg.ir.trace(lambda a: make_map(BESIDE, a, shared(a)), WHOLE)
    values = np.array([0.0, 3.0, 1.0, 2.0], np.float32)
    np.testing.assert_allclose(lg.ir.compile(function)(values), lg.ir.evaluate(function, values), rtol=1e-6)
