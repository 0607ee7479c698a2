"""In a mapped call, all points share a struct of single lazy values; its gradient is the sum over the points."""

import numpy as np

import livegrad as lg


@lg.differentiable
class Line:
    slope: lg.f32
    shift: lg.f32


@lg.differentiable
def height(x: lg.f32, line: Line) -> lg.f32:
    return line.slope * x + line.shift


def total(numbers: lg.Tensor, points: lg.Tensor) -> lg.Tensor:
    return lg.sum(height(points, Line(*lg.unstack(numbers))) ** 2)


def test_a_struct_of_single_values_is_shared_by_all_points() -> None:
    points = np.arange(5, dtype=np.float32)
    found = height(lg.asarray(points), Line(lg.asarray(2.0), lg.asarray(1.0)))
    np.testing.assert_array_equal(found.numpy(), 2 * points + 1)


def test_fields_of_a_struct_may_be_shared_while_others_are_not() -> None:
    points = np.arange(5, dtype=np.float32)
    found = height(lg.asarray(points), Line(lg.asarray(points), lg.asarray(1.0)))
    np.testing.assert_array_equal(found.numpy(), points**2 + 1)


def test_a_shared_struct_gets_the_sum_of_the_gradients() -> None:
    points = np.arange(5, dtype=np.float32)
    slope, shift = lg.grad(total)(lg.asarray([2.0, 1.0]), lg.asarray(points)).numpy()
    assert slope == np.sum(2 * (2 * points + 1) * points)
    assert shift == np.sum(2 * (2 * points + 1))
