"""Derivatives of overloaded functions: the overload that matches the call is differentiated."""

import numpy as np
import pytest

import livegrad as lg


def make_overloads():
    @lg.differentiable
    def f(a: lg.f32) -> lg.f32:
        return a * a

    @f.overload
    @lg.differentiable
    def of_vectors(a: lg.vec3) -> lg.f32:
        return 10.0 * (a.x + a.y + a.z)

    return f


VECTOR = lg.vec3(1, 2, 3)


def test_the_called_overload_is_differentiated():
    f = make_overloads()
    assert f(VECTOR) == 60.0
    assert lg.bwd_diff(f)(VECTOR, 1.0)[0].tolist() == [10.0, 10.0, 10.0]
    assert lg.fwd_diff(f)(lg.pair(VECTOR, lg.vec3(1, 0, 0))).differential == 10.0
    assert lg.grad(f)(VECTOR).tolist() == [10.0, 10.0, 10.0]
    assert lg.jvp(f, (VECTOR,), (lg.vec3(1, 1, 0),)) == (60.0, 20.0)
    assert lg.vjp(f, VECTOR)[1](2.0)[0].tolist() == [20.0, 20.0, 20.0]


def test_python_numbers_match_derivatives_of_overloads_of_any_width():
    f = make_overloads()
    assert lg.bwd_diff(f)(3.0, 1.0) == (6.0,)
    assert lg.fwd_diff(f)(lg.pair(3.0, 1.0)).differential == 6.0
    assert lg.fwd_diff(f)(lg.pair(3, 1)).differential == 6.0
    assert lg.hessian(f)(3.0) == 2.0


def test_derivatives_of_overloads_are_resolved_inside_functions():
    f = make_overloads()

    @lg.differentiable
    def uses(a: lg.vec3, x: lg.f32) -> lg.f32:
        return lg.bwd_diff(f)(a, x)[0].y + lg.fwd_diff(f)(lg.pair(x, 1.0)).differential + f(a) + f(x)

    assert uses(VECTOR, 3.0) == 30.0 + 6.0 + 60.0 + 9.0
    gradients = lg.bwd_diff(uses)(VECTOR, 3.0, 1.0)
    assert (gradients[0].tolist(), gradients[1]) == ([10.0] * 3, 10.0 + 2.0 + 6.0)


def test_an_overload_keeps_its_custom_derivatives():
    @lg.differentiable
    def f(a: float) -> float:
        return a * a

    @lg.differentiable
    def g(a: lg.dvec2) -> float:
        return a.x * a.y

    @g.backward_derivative
    def _(a: lg.dvec2, d: float):
        return lg.dvec2(100.0 * d, 200.0 * d)

    f.overload(g)
    assert lg.bwd_diff(f)(lg.dvec2(1, 2), 1.0)[0].tolist() == [100.0, 200.0]
    assert lg.bwd_diff(f)(3.0, 1.0) == (6.0,)
    assert lg.grad(f)(lg.dvec2(1, 2)).tolist() == [100.0, 200.0]

    @g.backward_derivative
    def _(a: lg.dvec2, d: float):
        return lg.dvec2(7.0, 7.0)

    assert lg.bwd_diff(f)(lg.dvec2(1, 2), 1.0)[0].tolist() == [7.0, 7.0]


def test_overloads_that_are_added_later_are_used_by_compiled_functions():
    @lg.differentiable
    def f(x: float) -> float:
        return x * x

    @lg.differentiable
    def uses(n: int, x: float) -> float:
        return f(n) * x

    assert uses(3, 1.0) == 9.0

    @f.overload
    @lg.differentiable
    def _(n: int) -> float:
        return 100.0 * n

    assert uses(3, 1.0) == 300.0
    assert lg.bwd_diff(uses)(3, 1.0, 1.0) == (None, 300.0)


def test_no_overload_matches_a_pair_if_none_has_a_derivative():
    @lg.differentiable
    def f(n: int) -> float:
        return 1.0 * n

    @f.overload
    @lg.differentiable
    def _(v: lg.dvec2) -> float:
        return v.x

    with pytest.raises(lg.FunctionError, match="no overload of `f` matches"):
        lg.fwd_diff(f)(lg.pair(1.0, 1.0))
    assert lg.fwd_diff(f)(lg.pair(lg.dvec2(1, 2), lg.dvec2(3, 4))).differential == 3.0
    assert np.isclose(f(3), 3.0)


def make_overloads_of_many_kinds():
    @lg.differentiable
    class Point:
        x: float
        y: float

    @lg.differentiable
    def f(a: list[float]) -> float:
        return sum(v * v for v in a)

    @f.overload
    @lg.differentiable
    def of_point(a: Point) -> float:
        return a.x * a.y

    @f.overload
    @lg.differentiable
    def of_vector(a: lg.dvec3) -> float:
        return 10.0 * a.x

    @f.overload
    @lg.differentiable
    def of_pair(a: tuple[float, float]) -> float:
        return a[0] - a[1]

    @f.overload
    @lg.differentiable
    def of_int(a: int) -> float:
        return 1.0

    @f.overload
    @lg.differentiable
    def of_float(a: float) -> float:
        return a * 3.0

    return f, Point


def test_an_overload_of_the_exact_type_is_preferred_to_one_of_lists():
    f, Point = make_overloads_of_many_kinds()
    assert (f([1.0, 2.0]), f(Point(2.0, 3.0)), f(lg.dvec3(1, 2, 3)), f((5.0, 2.0))) == (5.0, 6.0, 10.0, 3.0)
    assert f((1.0, 2.0, 3.0)) == 14.0  # a tuple that no other overload takes
    gradient = lg.grad(f)(Point(2.0, 3.0))
    assert (gradient.x, gradient.y) == (3.0, 2.0)
    assert lg.bwd_diff(f)([1.0, 2.0], 1.0) == ([2.0, 4.0],)
    assert lg.bwd_diff(f)(lg.dvec3(1, 2, 3), 1.0)[0].tolist() == [10.0, 0.0, 0.0]


def test_a_conversion_that_keeps_the_kind_of_value_is_preferred():
    f, _ = make_overloads_of_many_kinds()
    assert (f(np.int32(7)), f(np.float32(7)), f(lg.vec3(1, 2, 3))) == (1.0, 21.0, 10.0)


def test_a_struct_is_not_a_list():
    _, Point = make_overloads_of_many_kinds()

    @lg.differentiable
    def total(values: list[float]) -> float:
        return sum(v for v in values)

    with pytest.raises(lg.FunctionError, match=r"LG108: `total`: `values` expects list\[float\], found Point"):
        total(Point(1.0, 2.0))
