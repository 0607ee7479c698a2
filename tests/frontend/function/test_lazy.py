"""Captured functions on lazy tensors: results are lazy, and gradients of tensor code flow through them."""

from typing import Literal

import numpy as np

import livegrad
import livegrad as lg
from livegrad.tensors.handle import Tensor


@lg.differentiable
class Ball:
    center: lg.vec3
    radius: lg.f32


@lg.differentiable
def distance(p: lg.vec3, ball: Ball) -> lg.f32:
    d = lg.length(p - ball.center) - ball.radius
    if d < 0.0:
        return 2.0 * d
    return d


@lg.differentiable
def scaled(x: lg.f32, k: lg.f32) -> lg.f32:
    total = lg.f32(0.0)
    for i in range(3):
        total += x * k * i
    return total  # type: ignore


def points() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((4, 5, 3)).astype(np.float32)


def test_a_call_with_a_tensor_is_lazy():
    ball = Ball(lg.vec3(0.1, 0.2, 0.3), 0.5)
    tensor = distance(livegrad.asarray(points()), ball)
    assert isinstance(tensor, Tensor)
    assert not tensor.is_computed
    np.testing.assert_allclose(np.asarray(tensor), distance(points(), ball), rtol=1e-6)


def test_tensors_broadcast_and_mix_with_arrays_and_numbers():
    x, k = np.arange(6, dtype=np.float32).reshape(2, 3), np.arange(3, dtype=np.float32)
    np.testing.assert_allclose(np.asarray(scaled(livegrad.asarray(x), k)), 3.0 * x * k)
    np.testing.assert_allclose(np.asarray(scaled(livegrad.asarray(x), 2.0)), 6.0 * x)
    np.testing.assert_allclose(np.asarray(scaled(2.0, livegrad.asarray(k))), 6.0 * k)


def test_a_struct_of_tensors():
    centers, radii = points()[0], np.linspace(0.1, 0.5, 5, dtype=np.float32)
    balls = Ball(livegrad.asarray(centers), livegrad.asarray(radii))
    got = np.asarray(distance(livegrad.asarray(points()[1]), balls))
    np.testing.assert_allclose(got, distance(points()[1], Ball(centers, radii)), rtol=1e-6)


def test_gradients_of_tensor_code_go_through_the_function():
    x = livegrad.asarray(np.arange(4, dtype=np.float32))

    def loss(t):
        return livegrad.sum(scaled(t, 2.0) ** 2)

    np.testing.assert_allclose(np.asarray(livegrad.grad(loss)(x)), 72.0 * np.arange(4))


def test_structs_and_tuples_are_results():
    @lg.differentiable
    def both(x: lg.f32) -> tuple[lg.f32, lg.vec2]:
        return x * x, lg.vec2(x, 1.0)  # type: ignore

    squares, vectors = both(livegrad.asarray(np.arange(3, dtype=np.float32)))
    np.testing.assert_array_equal(np.asarray(squares), [0.0, 1.0, 4.0])
    assert vectors.shape == (3, 2)


def test_a_whole_tensor_is_read_by_index():
    @lg.differentiable
    def total(x: lg.tensor[lg.f32, Literal[1]]) -> lg.f32:
        s = lg.f32(0.0)
        for v in x:
            s += v * v
        return s

    x = livegrad.asarray(np.arange(4, dtype=np.float32))
    assert float(np.asarray(total(x))) == 14.0
    np.testing.assert_allclose(np.asarray(livegrad.grad(lambda t: total(t))(x)), 2.0 * np.arange(4))


@lg.differentiable
def cube(x: float) -> float:
    return x * x * x


@lg.differentiable
def slope_times(x: float) -> float:
    (slope,) = lg.bwd_diff(cube)(x, 1.0)
    return slope * lg.fwd_diff(cube)(lg.pair(x, 1.0)).primal  # 3 x⁵


def test_a_function_that_calls_a_derivative_is_differentiated_as_tensor_code():
    x = lg.asarray([0.5, 2.0], dtype=lg.float64)
    total = lambda x: lg.sum(slope_times(x))  # noqa: E731
    first, second = 15.0 * x.numpy() ** 4, 60.0 * x.numpy() ** 3
    np.testing.assert_allclose(lg.grad(total)(x).numpy(), first)
    np.testing.assert_allclose(lg.vmap(lg.grad(slope_times))(x).numpy(), first)
    np.testing.assert_allclose(lg.jvp(total, (x,), (x,))[1].numpy(), np.sum(first * x.numpy()))
    np.testing.assert_allclose(lg.grad(lambda x: lg.sum(lg.grad(total)(x)))(x).numpy(), second)


def test_a_block_that_calls_a_derivative_has_a_gradient():
    engine = lg.Engine()
    inner = engine.add(lg.block(slope_times, name="inner"))
    loss = engine.add(lg.block(lambda y: lg.sum(y), name="loss"))
    engine.set(inner["x"], np.array([0.5, 2.0]))
    engine.connect(inner, loss["y"])
    gradient = engine.add(lg.grad(of=loss, by=[inner["x"]]))
    engine.step()
    np.testing.assert_allclose(engine.read(gradient), 15.0 * np.array([0.5, 2.0]) ** 4)
