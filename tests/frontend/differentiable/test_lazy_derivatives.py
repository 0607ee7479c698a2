"""Derivatives of captured functions at lazy tensors: they are lazy, and can be transformed and compiled; Hessians."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import livegrad as lg


@lg.differentiable
def cube(x: float) -> float:
    return x * x * x


@lg.differentiable
class Point:
    weight: float
    at: lg.dvec2


@lg.differentiable
def scaled(p: Point, by: float) -> Point:
    return Point(p.weight * by, p.at * by)


@lg.differentiable
def of_a_table(x: lg.tensor[float, 1]) -> float:  # type: ignore[valid-type]
    return x[0] * x[0] * x[1]


X = np.array([1.0, 2.0])


def backward(x: Any) -> Any:
    return lg.bwd_diff(cube)(x, lg.ones_like(x))[0]


def forward(x: Any) -> Any:
    return lg.fwd_diff(cube)(lg.pair(x, 1.0)).differential


def by_gradient(x: Any) -> Any:
    return lg.bwd_diff(lg.bwd_diff(cube))(x, 1.0, (1.0,))[1]


@pytest.mark.parametrize("derivative", [backward, forward, by_gradient])
def test_a_derivative_of_tensors_is_a_tensor_that_is_computed_when_it_is_read(derivative: Callable[[Any], Any]):
    x = lg.asarray(X)
    before = lg.stats().executions
    result = derivative(x)
    assert isinstance(result, lg.Tensor)
    assert lg.stats().executions == before
    assert result.tolist() == [3.0, 12.0]


@pytest.mark.parametrize("derivative", [backward, forward, by_gradient])
def test_a_derivative_of_tensors_works_under_every_transform(derivative: Callable[[Any], Any]):
    x = lg.asarray(X)
    assert lg.jit(derivative)(x).tolist() == [3.0, 12.0]
    assert lg.grad(lambda x: lg.sum(derivative(x)))(x).tolist() == [6.0, 12.0]
    assert lg.jit(lg.grad(lambda x: lg.sum(derivative(x))))(x).tolist() == [6.0, 12.0]
    assert lg.jvp(derivative, (x,), (lg.ones_like(x),))[1].tolist() == [6.0, 12.0]
    second = lg.grad(lambda x: lg.sum(lg.grad(lambda y: lg.sum(derivative(y)))(x)))
    assert second(x).tolist() == [6.0, 6.0]


def test_a_derivative_inside_vmap_has_one_value_for_each_row():
    assert lg.vmap(lambda x: lg.bwd_diff(cube)(x, 1.0)[0])(lg.asarray(X)).tolist() == [3.0, 12.0]


def test_derivatives_of_structs_of_tensors_are_structs_of_tensors():
    point = Point(lg.asarray(X), lg.asarray(np.ones((2, 2))))
    seed = Point.Differential(1.0, lg.dvec2(1, 2))
    by_point, by_scale = lg.bwd_diff(scaled)(point, 2.0, seed)
    assert by_point.weight.tolist() == [2.0, 2.0]
    assert by_point.at.tolist() == [[2.0, 4.0], [2.0, 4.0]]
    assert by_scale.tolist() == [4.0, 5.0]
    moved = lg.fwd_diff(scaled)(lg.pair(point, seed), lg.pair(2.0, 0.0))
    assert moved.differential.at.tolist() == [[2.0, 4.0], [2.0, 4.0]]
    assert moved.primal.weight.tolist() == [2.0, 4.0]


def test_a_jitted_function_returns_pairs_and_structs():
    pair_result = lg.jit(lambda x: lg.fwd_diff(cube)(lg.pair(x, x)))(lg.asarray(X))
    assert (pair_result.primal.tolist(), pair_result.differential.tolist()) == ([1.0, 8.0], [3.0, 24.0])
    result = lg.jit(lambda x: scaled(Point(x, lg.asarray(np.ones((2, 2)))), 3.0))(lg.asarray(X))
    assert isinstance(result, Point)
    assert result.weight.tolist() == [3.0, 6.0]


def test_a_derivative_with_respect_to_a_whole_array_takes_a_tensor():
    assert lg.bwd_diff(of_a_table)(lg.asarray(X), 1.0)[0].tolist() == [4.0, 1.0]
    assert lg.jit(lambda x: lg.bwd_diff(of_a_table)(x, 1.0)[0])(lg.asarray(X)).tolist() == [4.0, 1.0]
    assert lg.fwd_diff(of_a_table)(lg.pair(lg.asarray(X), lg.asarray(X))).differential.item() == 6.0


# --- Hessians --------------------------------------------------------------------------------------------------------


def test_a_hessian_at_arrays_has_one_block_per_point():
    @lg.differentiable
    def f(v: lg.dvec2, k: float) -> float:
        return v.x * v.x * v.y * k

    assert lg.hessian(cube)(X).tolist() == [6.0, 12.0]
    points = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    expected = [[[2 * y * 2, 2 * x * 2], [2 * x * 2, 0.0]] for x, y in points]
    assert lg.hessian(f)(points, 2.0).tolist() == expected
    by_both = lg.hessian(f, argnums=(0, 1))(points, 2.0)
    assert by_both[0][1].tolist() == [[2 * x * y, x * x] for x, y in points]
    assert np.shape(by_both[1][1]) == (3,)


def test_a_hessian_with_respect_to_a_struct_is_a_struct_of_structs():
    @lg.differentiable
    def f(p: Point, k: float) -> float:
        return p.weight * p.weight * p.at.x * p.at.y * k

    result = lg.hessian(f, argnums=(0, 1))(Point(1.0, lg.dvec2(2, 3)), 1.0)
    by_point = result[0][0]
    assert by_point.weight.weight == 12.0
    assert by_point.weight.at.tolist() == [6.0, 4.0]
    assert by_point.at.weight.tolist() == [6.0, 4.0]
    assert by_point.at.at.tolist() == [[0.0, 1.0], [1.0, 0.0]]
    assert (result[0][1].weight, result[0][1].at.tolist(), result[1][1]) == (12.0, [3.0, 2.0], 0.0)
    assert result[1][0].at.tolist() == [3.0, 2.0]


def test_a_hessian_with_respect_to_lists_and_tuples_has_their_structure():
    @lg.differentiable
    def f(pairs: tuple[float, lg.dvec2], values: list[float]) -> float:
        return pairs[0] * pairs[1].x * values[0] * values[1]

    result = lg.hessian(f, argnums=(0, 1))((2.0, lg.dvec2(3, 4)), [5.0, 6.0])
    assert result[1][1].tolist() == [[0.0, 6.0], [6.0, 0.0]]
    assert result[0][0][0][1].tolist() == [30.0, 0.0]
    assert result[0][1][0].tolist() == [18.0, 15.0]


def test_a_hessian_with_respect_to_an_optional_is_an_error_with_advice():
    @lg.differentiable
    def f(x: float | None) -> float:
        return 1.0 if x is None else x * x

    with pytest.raises(lg.FunctionError, match="LG306"):
        lg.hessian(f)(3.0)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64])
def test_structs_and_pairs_of_arrays_mix_with_tensors(dtype: Any) -> None:
    weights = np.array([1, 2], dtype)
    tensor = lg.asarray([3.0, 5.0], dtype=lg.float64)
    moved = scaled(Point(weights, lg.dvec2(1.0, 2.0)), tensor)
    assert moved.weight.tolist() == [3.0, 10.0]
    assert moved.at.tolist() == [[3.0, 6.0], [5.0, 10.0]]
    moved = scaled(Point(2.0, np.array([[1, 2], [3, 4]], dtype)), tensor)
    assert moved.at.tolist() == [[3.0, 6.0], [15.0, 20.0]]

    @lg.differentiable
    def product(x: float, y: float) -> float:
        return x * y

    pair_result = lg.fwd_diff(product)(lg.pair(tensor, 1.0), lg.pair(weights, np.array([1, 0], dtype)))
    assert pair_result.primal.tolist() == [3.0, 10.0]
    assert pair_result.differential.tolist() == [1.0 + 3.0, 2.0]
    by_point = lg.grad(lambda k: lg.sum(scaled(Point(weights, lg.dvec2(0.0)), k).weight ** 2))(tensor)
    assert by_point.tolist() == [6.0, 40.0]
