"""Sorting keeps the order of equal elements in both directions, puts NaN where it counts as the greatest, and hands
derivatives to the elements that were moved."""

import numpy as np
import pytest

from livegrad.diagnostics import KernelCheckError, TypeRuleError
from livegrad.ir.dimension import Dimension
from livegrad.ir.function import trace
from livegrad.ir.leaves import parameter
from livegrad.ir.types import Scalar, Tensor, bool_, c64, f32, f64, i64
from livegrad.ops.reduction import reduce
from livegrad.ops.sorting import argsort, searchsorted, sort, take_along_axis, top_k, top_positions
from livegrad.passes.expand import expand_ops
from livegrad.runtime.cpu import run_function
from livegrad.runtime.reference import evaluate
from tests.differentiate.checks import check_orders, gradient_of


def order_of(values: list[float], descending: bool) -> list[int]:
    function = trace(lambda x: argsort(x, axis=0, descending=descending, stable=True), Tensor(f64, (len(values),)))
    return list(evaluate(function, np.array(values)))


@pytest.mark.parametrize(("descending", "order"), [(False, [1, 4, 0, 2, 3]), (True, [0, 2, 3, 1, 4])])
def test_equal_elements_keep_their_order_in_both_directions(descending: bool, order: list[int]) -> None:
    assert order_of([2.0, 1.0, 2.0, 2.0, 1.0], descending) == order


def test_a_nan_is_greater_than_every_number() -> None:
    values = [1.0, np.nan, np.inf, -np.inf, np.nan]
    assert order_of(values, descending=False) == [3, 0, 2, 1, 4]
    assert order_of(values, descending=True) == [1, 4, 2, 0, 3]


def test_zeros_of_both_signs_are_equal() -> None:
    assert order_of([0.0, -0.0, 0.0], descending=False) == [0, 1, 2]
    function = trace(lambda x: sort(x, axis=0, descending=True, stable=True), Tensor(f64, (3,)))
    assert list(np.signbit(evaluate(function, np.array([0.0, -0.0, 0.0])))) == [False, True, False]


def test_the_derivative_of_a_sort_goes_where_the_elements_came_from() -> None:
    weights = np.array([1.0, 10.0, 100.0])
    function = trace(
        lambda x, w: sort(x, axis=0, descending=True, stable=True) * w, Tensor(f64, (3,)), Tensor(f64, (3,))
    )
    check_orders(function, (np.array([0.5, 3.0, -1.0]), weights))


def test_taking_along_an_axis_broadcasts_both_operands() -> None:
    shapes = Tensor(f64, (2, 1, 5)), Tensor(i64, (1, 3, 4))
    function = trace(lambda x, i: take_along_axis(x, i, 2), *shapes)
    x, index = np.arange(10.0).reshape(2, 1, 5), np.array([[[0, 4, 1, 1], [2, 2, 2, 3], [0, 0, 0, 0]]])
    wide = np.broadcast_to(x, (2, 3, 5)), np.broadcast_to(index, (2, 3, 4))
    expected = np.take_along_axis(*wide, axis=2)
    for run in (evaluate, run_function):
        np.testing.assert_array_equal(run(function, x, index), expected)
    check_orders(function, (x, index), order=1)


def test_taking_beyond_the_end_is_an_error() -> None:
    function = trace(lambda x, i: take_along_axis(x, i, 0), Tensor(f32, (3,)), Tensor(i64, (2,)))
    for run in (evaluate, run_function):
        with pytest.raises(KernelCheckError, match="out of range"):
            run(function, np.zeros(3, np.float32), np.array([0, 3]))


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("element", [f32, f64, i64, bool_])
def test_the_first_few_are_those_of_the_stable_order(element: Scalar, largest: bool) -> None:
    random = np.random.default_rng(3)
    values = random.integers(-4, 4, (5, 40, 3)).astype(element.dtype)  # many are equal
    if element.kind == "float":
        values[:, 7] = -0.0
        values[1, 3:20] = values[2, 0] = np.nan
        values[3] = np.nan
    for count in (0, 1, 4, 9, 40):
        function = trace(
            lambda x, count=count: (
                top_positions(x, axis=1, count=count, largest=largest),
                argsort(x, axis=1, descending=largest, stable=True),
            ),
            Tensor(element, values.shape),
        )
        first, order = run_function(function, values)
        np.testing.assert_array_equal(first, order[:, :count])
        np.testing.assert_array_equal(evaluate(expand_ops(function, lambda n: n.op is top_positions), values)[0], first)


def test_top_k_gives_values_positions_and_derivatives() -> None:
    function = trace(lambda x: top_k(x, 2, axis=1), Tensor(f64, (2, 4)))
    x = np.array([[1.0, 5.0, 5.0, 2.0], [0.0, -1.0, 3.0, 2.0]])
    values, positions = evaluate(function, x)
    np.testing.assert_array_equal(values, [[5, 5], [3, 2]])
    np.testing.assert_array_equal(positions, [[1, 2], [2, 3]])
    lowest = trace(lambda x: reduce(top_k(x, 1, axis=0, largest=False)[0], kind="sum", axes=(0,)), Tensor(f64, (3,)))
    np.testing.assert_array_equal(gradient_of(lowest, np.array([2.0, -1.0, 0.5]))[0], [0, 1, 0])


def test_sizes_may_be_symbolic() -> None:
    n = Dimension.symbol("n")
    function = trace(lambda x: top_k(sort(x, axis=0, descending=False, stable=True), 2, axis=0)[0], Tensor(f32, (n,)))
    for size in (2, 9):
        x = np.arange(size, dtype=np.float32)[::-1]
        np.testing.assert_array_equal(run_function(function, np.ascontiguousarray(x)), [size - 1, size - 2])


def test_what_has_no_order_is_refused() -> None:
    with pytest.raises(TypeRuleError, match="c64 has no order"):
        sort(parameter(0, Tensor(c64, (3,))), axis=0, descending=False, stable=True)
    with pytest.raises(TypeRuleError, match="no axis 1"):
        sort(parameter(0, Tensor(f32, (3,))), axis=1, descending=False, stable=True)
    with pytest.raises(TypeRuleError, match="one dimension"):
        searchsorted(parameter(0, Tensor(f32, (3, 2))), parameter(1, Tensor(f32, (3,))), side="left")
    with pytest.raises(TypeRuleError, match="cannot take 4 elements"):
        top_k(parameter(0, Tensor(f32, (3,))), 4, axis=0)
