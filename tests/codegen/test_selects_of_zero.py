"""Selects whose first choice is zero, which native code emits with the opposite comparison."""

import numpy as np
import pytest

from livegrad import ops
from livegrad.ir.function import trace
from livegrad.ir.node import Node
from livegrad.ir.op import Op
from livegrad.ir.types import Tensor, f32
from livegrad.runtime.cpu import compile_function
from livegrad.runtime.reference import evaluate

COMPARISONS = (ops.less, ops.less_equal, ops.greater, ops.greater_equal, ops.equal, ops.not_equal)


@pytest.mark.parametrize("compare", COMPARISONS, ids=lambda op: op.name)
def test_zero_is_selected_where_the_comparison_holds_even_with_nan(compare: Op, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LIVEGRAD_CODE", "optimised")
    numbers = np.array([-np.inf, -1.0, -0.0, 0.0, 2.0, np.inf, np.nan], np.float32)
    left, right = (side.ravel() for side in np.meshgrid(numbers, numbers))
    axis = Tensor(f32, (left.size,))

    def chosen(x: Node, y: Node) -> Node:
        return ops.select(compare(x, y), ops.zero(axis), x + y)

    function = trace(chosen, axis, axis)
    with np.errstate(invalid="ignore"):
        expected = evaluate(function, left, right)
    found = compile_function(function)(left, right)
    np.testing.assert_array_equal(np.asarray(found), np.asarray(expected))
