"""Derivative operators: custom derivatives, methods, optionals, transforms, recomputation, `detach` and `no_diff`."""

import math
from typing import Literal, TypeVar

import numpy as np
import pytest

import livegrad as lg


def test_a_custom_forward_derivative_is_used_in_both_modes():
    @lg.differentiable
    def step(x: float) -> float:
        return 1.0 if x > 0.0 else 0.0

    @step.forward_derivative
    def _(x: lg.Pair[float]) -> lg.Pair[float]:
        p = 1.0 / (1.0 + math.exp(-x.primal))
        return lg.pair(1.0 if x.primal > 0.0 else 0.0, p * (1.0 - p) * x.differential)

    @lg.differentiable
    def f(x: float) -> float:
        return step(2.0 * x) * x

    slope = math.exp(-2.0) / (1.0 + math.exp(-2.0)) ** 2
    assert math.isclose(lg.fwd_diff(f)(lg.pair(1.0, 1.0)).differential, 2.0 * slope + 1.0)
    assert math.isclose(lg.bwd_diff(f)(1.0, 1.0)[0], 2.0 * slope + 1.0)


def test_a_custom_backward_derivative_is_used_in_both_modes():
    @lg.differentiable
    def clip(x: float, low: lg.no_diff[float]) -> float:
        return max(x, low)  # type: ignore

    @clip.backward_derivative
    def _(x: float, low: float, d_result: float):
        return 7.0 * d_result, None

    @lg.differentiable
    def f(x: float) -> float:
        return clip(x, 2.0) * x

    assert lg.bwd_diff(f)(3.0, 1.0) == (7.0 * 3.0 + 3.0,)
    assert lg.fwd_diff(f)(lg.pair(3.0, 1.0)).differential == 24.0
    assert lg.bwd_diff(clip)(1.0, 2.0, 1.0) == (7.0, None)


def test_a_primal_substitute_is_differentiated_instead():
    @lg.differentiable
    def quantized(x: float) -> float:
        return round(x * 8.0) / 8.0

    @quantized.primal_substitute
    def _(x: float) -> float:
        return x

    assert quantized(0.3) == 0.25
    assert lg.bwd_diff(quantized)(0.3, 1.0) == (1.0,)
    assert lg.fwd_diff(quantized)(lg.pair(0.3, 2.0)).differential == 2.0


def test_second_derivatives_are_those_of_the_custom_derivative():
    @lg.differentiable
    def f(x: float) -> float:
        return x

    @f.forward_derivative
    def _(x: lg.Pair[float]) -> lg.Pair[float]:
        return lg.pair(x.primal, x.primal * x.primal * x.differential)

    @lg.differentiable
    def slope(x: float) -> float:
        return lg.fwd_diff(f)(lg.pair(x, 1.0)).differential

    assert slope(3.0) == 9.0
    assert lg.bwd_diff(slope)(3.0, 1.0) == (6.0,)


def test_a_custom_derivative_on_a_method_a_struct_and_an_overload():
    @lg.differentiable
    class Box:
        w: float
        h: float

        @lg.differentiable
        def area(self) -> float:
            return self.w * self.h

    @Box.area.backward_derivative
    def _(self: Box, d_result: float):
        return (Box.Differential(d_result, 2.0 * d_result),)

    @lg.differentiable
    def f(b: Box) -> float:
        return b.area() * 3.0

    assert lg.bwd_diff(f)(Box(5.0, 7.0), 1.0) == (Box.Differential(3.0, 6.0),)


def test_derivatives_of_methods():
    @lg.differentiable
    class Spring:
        k: float

        @lg.differentiable
        def energy(self, x: float) -> float:
            return 0.5 * self.k * x * x

        @lg.differentiable
        def rest(self: lg.no_diff[object], x: float) -> float:  # type: ignore
            return x

        @lg.differentiable
        def force(self, x: float) -> float:
            return -lg.bwd_diff(Spring.energy)(self, x, 1.0)[1]

    spring = Spring(3.0)
    assert lg.bwd_diff(Spring.energy)(spring, 2.0, 1.0) == (Spring.Differential(2.0), 6.0)
    assert spring.force(2.0) == -6.0
    assert lg.bwd_diff(Spring.force)(spring, 2.0, 1.0) == (Spring.Differential(-2.0), -3.0)


def test_no_diff_on_self_and_on_the_result():
    @lg.differentiable
    class Gain:
        k: float

        @lg.differentiable
        def apply(self: "lg.no_diff[Gain]", x: float) -> float:  # type: ignore
            return self.k * x

    @lg.differentiable
    def rounded(x: float) -> lg.no_diff[float]:
        return x * x  # type: ignore

    @lg.differentiable
    def f(x: float) -> float:
        return rounded(x) * x

    assert lg.bwd_diff(Gain.apply)(Gain(3.0), 2.0, 1.0) == (None, 3.0)
    assert lg.bwd_diff(f)(3.0, 1.0) == (9.0,)


def test_detach_drops_the_derivative_of_any_value():
    @lg.differentiable
    class Two:
        a: float
        b: lg.dvec2

    @lg.differentiable
    def f(t: Two, x: float) -> float:
        fixed = lg.detach(t)
        y, z = lg.detach((x, x * 2.0))
        return fixed.a * x + t.a * fixed.b.x + y * z

    d, dx = lg.bwd_diff(f)(Two(3.0, lg.dvec2(5.0, 6.0)), 2.0, 1.0)
    assert (d.a, list(d.b), dx) == (5.0, [0.0, 0.0], 3.0)


def test_optionals():
    @lg.differentiable
    def f(x: float, y: float | None = None) -> float:
        scale = y if y is not None else 10.0
        if y is None or x > 5.0:
            return x * scale
        return x * y * y

    assert [f(2.0), f(2.0, 3.0), f(6.0, 3.0)] == [20.0, 18.0, 18.0]
    assert lg.bwd_diff(f)(2.0, 3.0, 1.0) == (9.0, 12.0)
    assert lg.bwd_diff(f)(2.0, None, 1.0) == (10.0, None)


def test_an_optional_result():
    @lg.differentiable
    def root(x: float) -> float | None:
        if x < 0.0:
            return None
        return math.sqrt(x)

    assert root(4.0) == 2.0
    assert root(-4.0) is None
    assert lg.fwd_diff(root)(lg.pair(4.0, 1.0)).differential == 0.25
    assert lg.bwd_diff(root)(4.0, 1.0) == (0.25,)


def test_an_optional_number_is_true_like_the_number():
    @lg.function
    def f(y: float | None) -> int:
        return 1 if y else 0

    assert [f(None), f(0.0), f(2.0)] == [0, 0, 1]


def test_transforms_of_functions():
    @lg.differentiable
    def f(x: float, y: float, n: int = 1) -> float:
        return x * x * y * n

    assert lg.grad(f)(3.0, 2.0, 1) == 12.0
    assert lg.grad(f)(3.0, y=2.0) == 12.0
    assert lg.grad(f, -2)(3.0, 2.0, 1) == 9.0
    assert lg.value_and_grad(f, (0, 1))(3.0, 2.0, 1) == (18.0, (12.0, 9.0))
    assert lg.jvp(f, (3.0, 2.0, 1), (1.0, 1.0, None)) == (18.0, 21.0)
    value, pull = lg.vjp(f, 3.0, 2.0, 1)
    assert value == 18.0
    assert pull(2.0) == (24.0, 18.0, None)


def test_gradients_of_gradients():
    @lg.differentiable
    def f(x: float, y: float) -> float:
        return x**3 * y

    assert lg.grad(lg.grad(f))(2.0, 5.0) == 60.0
    assert lg.grad(lg.grad(lg.grad(f)), 1)(2.0, 5.0) == 6.0 * 2.0
    assert lg.value_and_grad(lg.grad(f, 1))(2.0, 5.0) == (8.0, 12.0)
    assert lg.jvp(lg.grad(f), (2.0, 5.0), (0.0, 1.0)) == (60.0, 12.0)


def test_gradients_inside_functions():
    @lg.differentiable
    def energy(x: float, k: float) -> float:
        return 0.5 * k * x * x

    @lg.differentiable
    def power(x: float, k: float) -> float:
        value, (force, by_stiffness) = lg.value_and_grad(energy, argnums=(0, 1))(x, k)
        return value + force * lg.grad(lg.grad(energy))(x, k) + by_stiffness

    assert power(3.0, 2.0) == 9.0 + 6.0 * 2.0 + 4.5
    # x²k/2 + k²x + x²/2
    assert lg.bwd_diff(power)(3.0, 2.0, 1.0) == (6.0 + 4.0 + 3.0, 4.5 + 12.0)


def test_defaults_have_zero_tangents_in_forward_derivatives():
    @lg.differentiable
    def f(x: float, k: float = 3.0) -> float:
        return x * x * k

    @lg.differentiable
    def slope(x: float) -> float:
        return lg.fwd_diff(f)(lg.pair(x, 1.0)).differential

    assert lg.fwd_diff(f)(lg.pair(2.0, 1.0)) == lg.pair(12.0, 12.0)
    assert (slope(2.0), lg.grad(slope)(2.0)) == (12.0, 6.0)


def test_gradients_of_methods():
    @lg.differentiable
    class Spring:
        stiffness: float

        @lg.differentiable
        def energy(self, x: float, rest: float = 0.0) -> float:
            return 0.5 * self.stiffness * (x - rest) ** 2

    spring = Spring(4.0)
    assert spring.energy(2.0) == 8.0
    assert lg.grad(spring.energy)(2.0) == 8.0
    assert lg.grad(spring.energy)(2.0, rest=1.0) == 4.0
    assert lg.value_and_grad(spring.energy, (0, -1))(2.0, 1.0) == (2.0, (4.0, -4.0))
    assert lg.hessian(spring.energy)(2.0) == 4.0
    assert lg.grad(Spring.energy)(spring, 2.0) == Spring.Differential(stiffness=2.0)
    assert lg.jvp(spring.energy, (2.0,), (3.0,)) == (8.0, 24.0)
    value, pull = lg.vjp(spring.energy, 2.0, 1.0)
    assert (value, pull(1.0)) == (2.0, (4.0, -4.0))
    values, slopes = lg.jvp(spring.energy, (lg.asarray([2.0, 3.0]),), (lg.asarray([1.0, 1.0]),))
    np.testing.assert_array_equal([values, slopes], [[8.0, 18.0], [8.0, 12.0]])


@lg.differentiable
class Sprung:
    stiffness: float

    @lg.differentiable
    def energy(self, x: float) -> float:
        return self.stiffness * x * x * x


def test_derivatives_of_bound_methods_are_by_their_arguments():
    spring = Sprung(4.0)
    assert lg.bwd_diff(spring.energy)(2.0, 1.0) == (48.0,)
    assert lg.fwd_diff(spring.energy)(lg.pair(2.0, 0.5)) == lg.pair(32.0, 24.0)
    assert lg.fwd_diff(lg.bwd_diff(spring.energy))(lg.pair(2.0, 1.0), lg.pair(1.0, 0.0)).differential == (48.0,)
    assert lg.bwd_diff(lg.fwd_diff(spring.energy))(lg.pair(2.0, 1.0), lg.pair(0.0, 1.0))[0].primal == 48.0
    np.testing.assert_array_equal(lg.bwd_diff(spring.energy)(np.array([1.0, 2.0]), np.ones(2))[0], [12.0, 48.0])
    derivative = lg.bwd_diff(spring.energy)
    derivative(2.0, 1.0)
    spring.stiffness = 1.0
    assert derivative(2.0, 1.0) == (12.0,)


def test_derivatives_of_methods_of_values_inside_functions():
    @lg.differentiable
    def slope(spring: Sprung, x: float) -> float:
        return lg.bwd_diff(spring.energy)(x, 1.0)[0]

    @lg.differentiable
    def pushed(spring: Sprung, x: float) -> float:
        return lg.fwd_diff(spring.energy)(lg.pair(x, 1.0)).differential

    @lg.differentiable
    def gradient(spring: Sprung, x: float) -> float:
        return lg.grad(spring.energy)(x)

    for function in (slope, pushed, gradient):
        assert function(Sprung(4.0), 2.0) == 48.0
        assert lg.bwd_diff(function)(Sprung(4.0), 2.0, 1.0) == (Sprung.Differential(12.0), 48.0)


def test_a_method_of_an_instance_is_compiled_by_jit():
    x = lg.asarray(np.array([1.0, 2.0]))
    np.testing.assert_array_equal(lg.jit(Sprung(4.0).energy)(x), [4.0, 32.0])


def test_a_bound_method_outside_a_function_uses_the_current_instance():
    spring = Sprung(4.0)
    derivative = lg.bwd_diff(spring.energy)

    @lg.differentiable
    def use(x: float) -> float:
        return derivative(x, 1.0)[0] + spring.stiffness + spring.energy(1.0)

    assert use(2.0) == 48.0 + 4.0 + 4.0
    spring.stiffness = 1.0
    assert use(2.0) == 12.0 + 1.0 + 1.0


def test_gradients_at_tensors_stay_lazy():
    @lg.differentiable
    def f(x: float) -> float:
        return x * x * x

    x = lg.asarray(2.0, dtype=lg.float64)
    assert isinstance(lg.grad(f)(x), lg.Tensor)
    assert float(lg.grad(f)(x)) == 12.0
    assert float(lg.grad(lg.grad(f))(x)) == 12.0
    assert float(lg.hessian(f)(x)) == 12.0
    value, slope = lg.jvp(f, [x], [x])
    assert (float(value), float(slope)) == (8.0, 24.0)


def test_gradients_at_arrays_have_one_value_per_point():
    @lg.differentiable
    def f(x: float, k: float) -> float:
        return x * x * k

    xs = np.arange(3.0)
    np.testing.assert_array_equal(lg.grad(f)(xs, 3.0), 6.0 * xs)


def test_gradients_that_do_not_exist_are_rejected():
    @lg.differentiable
    def f(x: float, n: int) -> float:
        return x * n

    @lg.differentiable
    def two(x: float) -> tuple[float, float]:
        return x, x

    @lg.function
    def plain(x: float) -> float:
        return x

    with pytest.raises(lg.FunctionError, match="argument 1 of `f` has no derivative"):
        lg.grad(f, 1)(1.0, 2)
    with pytest.raises(lg.FunctionError, match="has no argument 2"):
        lg.grad(f, 2)(1.0, 2)
    with pytest.raises(lg.FunctionError, match="must return one float"):
        lg.grad(two)(1.0)
    with pytest.raises(lg.FunctionError, match="LG305"):
        lg.grad(plain)(1.0)
    with pytest.raises(lg.UsageError, match="no auxiliary results"):
        lg.grad(two, has_aux=True)


def test_gradients_of_structs_and_arrays():
    @lg.differentiable
    class Line:
        slope: float
        seed: lg.no_diff[float]
        offset: float

    @lg.differentiable
    def loss(line: Line, xs: lg.tensor[float, Literal[1]]) -> float:
        total = line.seed
        for x in xs:
            total += (line.slope * x + line.offset) ** 2
        return total

    xs = np.arange(4.0)
    value, (line, dxs) = lg.value_and_grad(loss, (0, 1))(Line(2.0, 5.0, 1.0), xs)
    assert value == 5.0 + np.sum((2.0 * xs + 1.0) ** 2)
    assert line == Line.Differential(slope=2.0 * np.sum((2.0 * xs + 1.0) * xs), offset=2.0 * np.sum(2.0 * xs + 1.0))
    np.testing.assert_array_equal(dxs, 4.0 * (2.0 * xs + 1.0))


def test_the_hessian():
    @lg.differentiable
    def f(x: float, y: float) -> float:
        return math.sin(x) * y * y

    x, y = 0.7, 1.3
    expected = [[-math.sin(x) * y * y, 2 * math.cos(x) * y], [2 * math.cos(x) * y, 2 * math.sin(x)]]
    np.testing.assert_allclose(lg.hessian(f, (0, 1))(x, y), expected, rtol=1e-13)
    assert lg.hessian(f)(x, y) == pytest.approx(expected[0][0], rel=1e-13)


def test_the_hessian_with_respect_to_vectors_and_arrays():
    @lg.differentiable
    def f(v: lg.dvec2, weights: lg.tensor[float, Literal[1]], n: int) -> float:
        return v.x * v.x * v.y * weights[0] * weights[1] * n

    v, weights = lg.dvec2(2.0, 3.0), np.array([5.0, 7.0])
    by_v = np.array([[2.0 * v.y, 2.0 * v.x], [2.0 * v.x, 0.0]]) * 35.0
    np.testing.assert_array_equal(lg.hessian(f)(v, weights, 1), by_v)
    (first, mixed), (turned, second) = lg.hessian(f, (0, 1))(v, weights, 1)
    np.testing.assert_array_equal(first, by_v)
    np.testing.assert_array_equal(mixed, np.outer([12.0, 4.0], [7.0, 5.0]))
    np.testing.assert_array_equal(turned, mixed.T)
    np.testing.assert_array_equal(second, [[0.0, 12.0], [12.0, 0.0]])


def test_recomputed_functions_have_the_same_derivative():
    def body(x: float, n: int) -> float:
        for _ in range(n):
            x = math.sin(x) * 1.1
        return x

    plain, again = lg.differentiable(body), lg.prefer_recompute(lg.differentiable(body))

    @lg.differentiable
    def f(x: float) -> float:
        return again(x * 2.0, 5) * x

    @lg.differentiable
    def g(x: float) -> float:
        return plain(x * 2.0, 5) * x

    assert lg.bwd_diff(f)(0.7, 1.0) == pytest.approx(lg.bwd_diff(g)(0.7, 1.0), rel=1e-14)
    assert "recompute_call" in f.ir()


def test_derivatives_are_built_only_when_they_are_called():
    @lg.differentiable
    def f(x: float) -> float:
        return x * x

    derivative = lg.bwd_diff(f)
    assert f.compile_count == 0
    assert derivative is lg.bwd_diff(f)
    derivative(1.0, 1.0)
    derivative(2.0, 1.0)
    assert f.compile_count == 1
    assert len(derivative._resolved) == 1


def test_derivatives_are_mapped_over_arrays():
    @lg.differentiable
    def f(p: lg.dvec2, k: float) -> float:
        return lg.dot(p, p) * k

    points = np.arange(6.0).reshape(3, 2)
    dp, dk = lg.bwd_diff(f)(points, 2.0, np.ones(3))
    np.testing.assert_array_equal(dp, 4.0 * points)
    np.testing.assert_array_equal(dk, np.sum(points**2, axis=1))
    moved = lg.fwd_diff(f)(lg.pair(points, np.ones((3, 2))), lg.pair(2.0, 0.0))
    np.testing.assert_array_equal(moved.differential, 4.0 * points.sum(axis=1))


def test_the_storage_report_names_the_lines_of_stored_values():
    names = lg.run_source(
        "@lg.differentiable\n"
        "def f(x: float, n: int) -> float:\n"
        "    for i in range(n):\n"
        "        x = x * x\n"
        "    return x\n"
        "@lg.differentiable\n"
        "def g(x: float, n: int) -> float:\n"
        "    total = 0.0\n"
        "    for i in range(n):\n"
        "        total += x * i\n"
        "    return total\n",
        {"lg": lg},
    )
    report = names["f"].remembered()
    ((loop, size),) = report.bytes_per_iteration.items()
    assert (loop.line, size) == (3, 8)
    assert not names["g"].remembered().bytes_per_iteration


def test_a_custom_derivative_of_a_generic_function():
    T = TypeVar("T", bound=lg.Differentiable)

    @lg.differentiable
    def product(x: T, y: T) -> T:
        return x * y  # type: ignore

    @product.forward_derivative
    def _(x: lg.Pair[T], y: lg.Pair[T]) -> lg.Pair[T]:  # type: ignore
        return lg.pair(x.primal * y.primal, x.differential * 100.0)  # type: ignore

    assert lg.fwd_diff(product)(lg.pair(1.0, 1.0), lg.pair(2.0, 0.0)) == lg.pair(2.0, 100.0)
    assert lg.bwd_diff(product)(1.0, 2.0, 1.0) == (100.0, 0.0)
    assert product.differentiable_types(float, float) == {lg.f64: lg.f64}


def test_a_number_is_not_a_differential_of_a_tuple():
    @lg.differentiable
    def both(x: float) -> tuple[float, float]:
        return x, x

    with pytest.raises(
        lg.FunctionError, match=r"LG310: `bwd_diff\(both\)` takes the differential of the result as its last argument"
    ):
        lg.bwd_diff(both)(1.0, 1.0)


def test_no_diff_on_self_with_the_name_of_the_class():
    assert lg.bwd_diff(Gain.apply)(Gain(3.0), 2.0, 1.0) == (None, 3.0)


@lg.differentiable
class Gain:
    factor: float

    @lg.differentiable
    def apply(self: lg.no_diff["Gain"], x: float) -> float:  # type: ignore
        return self.factor * x
