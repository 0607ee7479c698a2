"""Products of many small matrices are kernels with lanes across them, and dimensions of one cost no copies."""

import numpy as np
import pytest

from livegrad.ir.function import trace
from livegrad.ir.types import Scalar, Tensor, f32, f64
from livegrad.ops.linalg import matmul, swap_last
from livegrad.ops.movement import reshape
from livegrad.ops.reduction import cumulative
from livegrad.ops.transcendental import tanh
from livegrad.runtime.cpu import run_function
from tests.schedule.plans import host_ops, plan_of

RNG = np.random.default_rng(5)


def numbers(element: Scalar, *shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(element.dtype)


@pytest.mark.parametrize("element", [f32, f64])
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ((200, 3, 3), (200, 3, 3)),
        ((200, 3, 3), (200, 3, 1)),
        ((200, 1, 3), (200, 3, 2)),
        ((13, 17, 2, 4), (13, 17, 4, 1)),
        ((4000, 3), (3, 3)),
        ((5, 1000, 4), (4, 2)),
    ],
)
def test_many_small_matrices_are_multiplied_by_a_kernel(element: Scalar, first, second) -> None:
    types, values = (
        [Tensor(element, shape) for shape in (first, second)],
        [numbers(element, *s) for s in (first, second)],
    )
    plain = trace(lambda a, b: tanh(matmul(a, b)), *types)
    assert host_ops(plan_of(plain)) == []
    tolerance = {f32: 1e-5, f64: 1e-13}[element]
    np.testing.assert_allclose(run_function(plain, *values), np.tanh(np.matmul(*values)), tolerance, tolerance)


def test_turned_matrices_are_read_where_they_lie() -> None:
    types, values = [Tensor(f64, (300, 3, 3))] * 2, [numbers(f64, 300, 3, 3) for _ in range(2)]
    function = trace(lambda a, b: matmul(swap_last(a), b), *types)
    assert len(plan_of(function).steps) == 1
    np.testing.assert_allclose(run_function(function, *values), np.swapaxes(values[0], 1, 2) @ values[1], 1e-13, 1e-13)
    rows = trace(lambda p, r: matmul(p, swap_last(r)), Tensor(f64, (3000, 3)), Tensor(f64, (4, 3)))
    assert len(plan_of(rows).steps) == 1
    points, frame = numbers(f64, 3000, 3), numbers(f64, 4, 3)
    np.testing.assert_allclose(run_function(rows, points, frame), points @ frame.T, 1e-13, 1e-13)


@pytest.mark.parametrize(("first", "second"), [((20, 3, 3), (20, 3, 3)), ((200, 8, 8), (200, 8, 8)), ((64, 3), (3, 3))])
def test_few_or_larger_matrices_are_products_as_before(first, second) -> None:
    assert host_ops(plan_of(matmul, Tensor(f32, first), Tensor(f32, second))) == ["matmul"]


def test_a_matrix_by_a_vector_is_one_step() -> None:
    function = trace(
        lambda a, v: reshape(matmul(a, reshape(v, shape=(40, 1))), shape=(30,)),
        Tensor(f64, (30, 40)),
        Tensor(f64, (40,)),
    )
    assert len(plan_of(function).steps) == 1
    a, v = numbers(f64, 30, 40), numbers(f64, 40)
    np.testing.assert_allclose(run_function(function, a, v), a @ v, 1e-13, 1e-13)


def test_what_only_gets_dimensions_of_one_is_written_where_it_is_wanted() -> None:
    function = trace(
        lambda v: (
            reshape(cumulative(v, kind="sum", axis=0, reverse=False, exclusive=False), shape=(1, 9)),
            reshape(v, shape=(9, 1)),
        ),
        Tensor(f64, (9,)),
    )
    v = numbers(f64, 9)
    running, column = run_function(function, v)
    np.testing.assert_allclose(running, np.cumsum(v)[None], 1e-13, 1e-13)
    np.testing.assert_array_equal(column, v[:, None])
    assert not np.shares_memory(column, v)
