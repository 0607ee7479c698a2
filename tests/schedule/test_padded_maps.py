"""Points read fixed columns of padded or overwritten results of a map, also out of the bounds of these results."""

from collections.abc import Callable

import numpy as np
import pytest

import livegrad as lg


@lg.function
def bend(v: lg.dvec4) -> lg.dvec4:
    if v.x > 1.0:
        return v * 3.0
    return v * 2.0


@lg.function
def bend_pair(v: lg.dvec2) -> lg.dvec2:
    if v.x > 1.0:
        return v * 5.0
    return v * 7.0


@lg.function
def measure(v: lg.dvec4) -> lg.f64:
    if v.x > 1.0:
        return v.y * v.z * v.w
    return v.x * v.x * v.y + v.w


@lg.function
def measure_pair(v: lg.dvec2) -> lg.f64:
    if v.x > 1.0:
        return v.x * v.y
    return v.x * v.x * v.y


def bent(row: np.ndarray, factors: tuple[float, float] = (3.0, 2.0)) -> np.ndarray:
    return row * (factors[0] if row[0] > 1.0 else factors[1])


def measured(row: np.ndarray) -> float:
    return row[1:].prod() if row[0] > 1.0 else row[0] * row[0] * row[1] + row[-1] * (len(row) == 4)


def gradient_by_differences(function: Callable[[np.ndarray], float], x: np.ndarray) -> np.ndarray:
    result, step = np.zeros_like(x), 1e-6
    for index in np.ndindex(*x.shape):
        offset = np.zeros_like(x)
        offset[index] = step
        result[index] = (function(x + offset) - function(x - offset)) / (2 * step)
    return result


@pytest.mark.parametrize("start", [0, 1, 2])
@pytest.mark.parametrize("wrap", [lambda f: f, lg.jit], ids=["eager", "jit"])
def test_the_gradient_of_a_part_of_each_vector_is_zero_beside_it(
    start: int, wrap: Callable[..., Callable[[lg.Tensor], lg.Tensor]]
) -> None:
    x = np.linspace(0.1, 2.6, 12).reshape(3, 4)
    gradient = wrap(lg.grad(lambda p: lg.sum(measure_pair(bend(p)[:, start : start + 2]))))

    def loss(p: np.ndarray) -> float:
        pairs = [bent(row)[start : start + 2] for row in p]
        return sum(a * b if a > 1.0 else a * a * b for a, b in pairs)

    np.testing.assert_allclose(np.asarray(gradient(lg.asarray(x))), gradient_by_differences(loss, x), rtol=1e-6)


@pytest.mark.parametrize("columns", [slice(0, 2), slice(1, 3), slice(2, 4), slice(0, 3, 2)])
@pytest.mark.parametrize("wrap", [lambda f: f, lg.jit], ids=["eager", "jit"])
def test_points_read_vectors_of_which_other_points_changed_a_part(
    columns: slice, wrap: Callable[..., Callable[[lg.Tensor], lg.Tensor]]
) -> None:
    x = np.linspace(0.1, 2.6, 12).reshape(3, 4)

    def program(p: lg.Tensor) -> lg.Tensor:
        return measure(bend(p).at[:, columns].add(bend_pair(p[:, 1:3])))

    def model(p: np.ndarray) -> np.ndarray:
        rows = np.stack([bent(row) for row in p])
        rows[:, columns] += np.stack([bent(row, (5.0, 7.0)) for row in p[:, 1:3]])
        return np.array([measured(row) for row in rows])

    np.testing.assert_allclose(np.asarray(wrap(program)(lg.asarray(x))), model(x), rtol=1e-12)
    gradient = wrap(lg.grad(lambda p: lg.sum(program(p))))(lg.asarray(x))
    expected = gradient_by_differences(lambda p: model(p).sum(), x)
    np.testing.assert_allclose(np.asarray(gradient), expected, rtol=1e-6, atol=1e-8)
