"""Interfaces: dispatch, inheritance, conversion, derivatives of any order; generics bound to them."""

import math
from typing import Any, TypeVar

import pytest

import livegrad as lg


@lg.interface
class Shape:
    @lg.differentiable
    def area(self, scale: float) -> float: ...


@lg.interface
class Solid(Shape):
    @lg.differentiable
    def volume(self) -> float: ...


@lg.differentiable
class Circle(Shape):
    r: float

    @lg.differentiable
    def area(self, scale: float) -> float:
        return math.pi * self.r * self.r * scale


@lg.differentiable
class Ball(Solid):
    r: lg.f32
    density: float

    @lg.differentiable
    def area(self, scale: float) -> float:
        return 4.0 * math.pi * lg.f64(self.r) ** 2 * scale

    @lg.differentiable
    def volume(self) -> float:
        return 4.0 / 3.0 * math.pi * lg.f64(self.r) ** 3 * self.density


@lg.differentiable
class Block(Solid):
    size: lg.dvec3
    kind: int

    @lg.differentiable
    def area(self, scale: float) -> float:
        s = self.size
        return 2.0 * (s.x * s.y + s.y * s.z + s.z * s.x) * scale

    @lg.differentiable
    def volume(self) -> float:
        s = self.size
        return s.x * s.y * s.z if self.kind == 0 else 0.0


def block(kind: int = 0) -> Any:
    return Block(lg.dvec3(1.0, 2.0, 3.0), kind)


@lg.differentiable
def total(shape: Shape, scale: float) -> float:
    return shape.area(scale) * scale


@lg.differentiable
def weight(solid: Solid) -> float:
    return solid.volume() + total(solid, 2.0)


def test_methods_are_dispatched_by_the_type_at_run_time():
    for shape in (Circle(2.0), Ball(2.0, 3.0), block()):
        assert math.isclose(total(shape, 1.5), total.python(shape, 1.5))


def test_a_derived_interface_can_be_used_as_its_base():
    for solid in (Ball(2.0, 3.0), block(), block(1)):
        assert math.isclose(weight(solid), weight.python(solid))


def test_a_type_that_does_not_implement_the_interface_is_refused():
    with pytest.raises(lg.FunctionError, match="LG108: `weight`: `solid` expects Solid, found Circle"):
        weight(Circle(1.0))


def test_gradients_have_the_type_of_the_value():
    d, ds = lg.bwd_diff(total)(block(), 2.0, 1.0)
    assert list(d.size) == [2 * 5 * 4.0, 2 * 4 * 4.0, 2 * 3 * 4.0]
    assert ds == 22.0 * 2.0 * 2.0
    (d,) = lg.bwd_diff(weight)(Ball(1.0, 3.0), 1.0)
    assert math.isclose(d.r, 4.0 * math.pi * 3.0 + 8.0 * math.pi * 4.0, rel_tol=1e-6)
    assert math.isclose(d.density, 4.0 / 3.0 * math.pi)


def test_a_variable_may_hold_either_type():
    @lg.differentiable
    def f(x: float) -> float:
        shape = Circle(x) if x > 1.0 else Block(lg.dvec3(x, 1.0, 1.0), 0)
        if x > 5.0:
            shape = Ball(2.0, x)
        return shape.area(1.0)

    for x in (0.5, 2.0, 6.0):
        assert math.isclose(f(x), f.python(x))
    assert lg.bwd_diff(f)(0.5, 1.0) == (4.0,)
    assert lg.bwd_diff(f)(6.0, 1.0) == (0.0,)


def test_an_interface_value_in_a_loop():
    @lg.differentiable
    def f(x: float, n: int) -> float:
        shape: Shape = Circle(x)
        area = 0.0
        for i in range(n):
            area += shape.area(x)
            if i == 1:
                shape = Block(lg.dvec3(x, x, x), 0)
        return area

    assert math.isclose(f(1.5, 4), f.python(1.5, 4))
    x = 1.5
    assert math.isclose(lg.bwd_diff(f)(x, 4, 1.0)[0], 2 * 3 * math.pi * x * x + 2 * 6 * 3 * x * x)


def test_third_derivatives_through_dispatch():
    @lg.differentiable
    def cube(s: float, solid: Solid) -> float:
        return solid.area(s) * s * s

    @lg.differentiable
    def first(s: float, solid: Solid) -> float:
        return lg.fwd_diff(cube)(lg.pair(s, 1.0), lg.pair(solid, lg.dzero(Solid))).differential

    @lg.differentiable
    def second(s: float, solid: Solid) -> float:
        return lg.bwd_diff(first)(s, solid, 1.0)[0]

    assert math.isclose(second(2.0, block()), 6 * 22.0 * 2.0)
    assert math.isclose(lg.bwd_diff(second)(2.0, block(), 1.0)[0], 6 * 22.0)


def test_a_new_implementer_is_seen_by_compiled_functions():
    @lg.interface
    class Source:
        @lg.differentiable
        def at(self, x: float) -> float: ...

    @lg.differentiable
    class One(Source):
        a: float

        @lg.differentiable
        def at(self, x: float) -> float:
            return self.a * x

    @lg.differentiable
    def f(source: Source, x: float) -> float:
        return source.at(x)

    assert f(One(2.0), 3.0) == 6.0

    @lg.differentiable
    class Two(Source):
        a: float
        b: float

        @lg.differentiable
        def at(self, x: float) -> float:
            return self.a * x * x + self.b

    assert f(Two(2.0, 1.0), 3.0) == 19.0
    assert f(One(2.0), 3.0) == 6.0


Body = TypeVar("Body", bound=Solid)


def test_generic_functions_are_specialised_for_each_type():
    @lg.differentiable
    def ratio(body: Body, scale: float) -> float:
        return body.volume() / body.area(scale)

    assert math.isclose(ratio(block(), 1.0), 6.0 / 22.0)
    assert math.isclose(ratio(Ball(2.0, 1.0), 1.0), 2.0 / 3.0)
    assert "switch" not in ratio.ir(Ball.__livegrad_type__)
    d, _ = lg.bwd_diff(ratio)(Ball(2.0, 1.0), 1.0, 1.0)
    assert math.isclose(d.r, 1.0 / 3.0, rel_tol=1e-6)


def test_a_generic_function_is_checked_when_it_is_defined():
    text = (
        "@lg.differentiable\n"
        "def bad(body: Body) -> float:\n"
        "    return body.volume() + body.size.x\n"
    )  # fmt: skip
    with pytest.raises(lg.FunctionError, match="LG207: Body has no attribute `size`"):
        lg.run_source(text, {"lg": lg, "Body": Body})


def test_a_generic_function_gives_back_its_own_type():
    @lg.differentiable
    def same(body: Body) -> Body:
        return body

    assert same(Ball(2.0, 1.0)) == Ball(2.0, 1.0)


def test_a_bound_is_checked_where_the_function_is_called():
    @lg.differentiable
    def f(body: Body) -> float:
        return body.volume()

    with pytest.raises(lg.FunctionError, match="LG402: `f`: `body` must implement Solid, found Circle"):
        f(Circle(1.0))
