"""Interfaces: dispatch, inheritance, conversion and derivatives of any order; generic functions with bounds."""

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


def test_a_type_that_does_not_implement_the_interface_is_rejected():
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


def test_a_new_implementer_invalidates_compiled_functions():
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


def test_a_generic_function_returns_the_type_of_its_argument():
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


def test_a_generic_function_bound_to_differentiable_is_checked_when_it_is_defined():
    """Its body must compile for some differentiable type, and use only what the bound provides."""
    Any = TypeVar("Any", bound=lg.Differentiable)

    @lg.differentiable
    def squared(a: Any) -> float:
        return lg.dot(a, a)

    assert squared(lg.dvec2(3.0, 4.0)) == 25.0
    text = "@lg.differentiable\ndef bad(a: Any) -> Any:\n    return a.weight\n"
    with pytest.raises(lg.FunctionError, match="LG207: float has no attribute `weight`"):
        lg.run_source(text, {"lg": lg, "Any": Any})


def test_type_variables_have_the_protocol_and_methods_of_their_types():
    Any = TypeVar("Any", bound=lg.Differentiable)

    @lg.differentiable
    def triple(a: Any) -> Any:
        return Any.dadd(Any.dadd(Any.dzero(), a), Any.dmul(2.0, a))  # type: ignore

    @lg.differentiable
    def slope(body: Body, scale: float) -> float:
        by_method = lg.bwd_diff(Body.area)(body, scale, 1.0)[1]  # type: ignore
        return by_method + lg.fwd_diff(body.area)(lg.pair(scale, 1.0)).differential

    assert triple(2.0) == 6.0
    assert lg.bwd_diff(triple)(2.0, 1.0) == (3.0,)
    assert triple(lg.dvec2(1.0, 2.0)).tolist() == [3.0, 6.0]
    assert slope(block(), 3.0) == 44.0


def test_methods_of_interfaces_are_functions_that_dispatch():
    assert Shape.area(block(), 2.0) == 44.0
    assert lg.bwd_diff(Shape.area)(block(), 2.0, 1.0)[1] == 22.0

    @lg.differentiable
    def slope(shape: Shape, scale: float) -> float:
        return lg.bwd_diff(Shape.area)(shape, scale, 1.0)[1] * lg.fwd_diff(shape.area)(lg.pair(scale, 1.0)).differential

    assert slope(block(), 2.0) == 22.0 * 22.0
    d, _ = lg.bwd_diff(slope)(Circle(1.0), 2.0, 1.0)
    assert math.isclose(d.r, 4.0 * math.pi * math.pi)


def test_isinstance_narrows_an_interface_value():
    @lg.differentiable
    def opened(shape: Shape, x: float) -> float:
        if isinstance(shape, Circle):
            return shape.r * x
        if isinstance(shape, Block) and shape.kind == 0:
            return shape.size.x * x
        return shape.area(x) if isinstance(shape, (Ball, Block)) else 0.0

    for shape in (Circle(2.0), block(), block(1), Ball(2.0, 1.0)):
        assert math.isclose(opened(shape, 3.0), opened.python(shape, 3.0), rel_tol=1e-6)
    assert lg.bwd_diff(opened)(Circle(2.0), 3.0, 1.0) == (Circle.Differential(3.0), 2.0)
    assert lg.bwd_diff(opened)(block(), 3.0, 1.0) == (Block.Differential(lg.dvec3(3.0, 0.0, 0.0)), 1.0)


def test_lists_tuples_fields_and_optionals_of_interface_values():
    @lg.differentiable
    class Scene:
        main: Shape
        weight: float

    @lg.differentiable
    def of_list(shapes: lg.array[Shape, 2], x: float) -> float:  # type: ignore[valid-type]
        total = 0.0
        for shape in shapes:
            total += shape.area(x)
        return total

    @lg.differentiable
    def of_field(scene: Scene) -> float:
        return scene.main.area(2.0) * scene.weight

    @lg.differentiable
    def of_tuple(both: tuple[Shape, float]) -> float:
        return both[0].area(both[1])

    @lg.differentiable
    def of_optional(shape: Shape | None) -> float:  # type: ignore
        return 0.0 if shape is None else shape.area(2.0)

    gradients, _ = lg.bwd_diff(of_list)([Circle(1.0), block()], 2.0, 1.0)
    assert gradients == [Circle.Differential(4.0 * math.pi), Block.Differential(lg.dvec3(20.0, 16.0, 12.0))]
    assert lg.bwd_diff(of_field)(Scene(Circle(1.0), 3.0), 1.0)[0].main == Circle.Differential(12.0 * math.pi)
    assert of_tuple((block(), 2.0)) == 44.0
    assert lg.bwd_diff(of_optional)(Circle(1.0), 1.0) == (Circle.Differential(4.0 * math.pi),)


def test_a_method_of_another_signature_does_not_implement_the_interface():
    with pytest.raises(
        lg.FunctionError, match="LG401: `area` of Wrong has a different signature from the one in Shape"
    ):

        @lg.differentiable
        class Wrong(Shape):
            r: float

            @lg.differentiable
            def area(self) -> float:
                return self.r

    assert all(struct.name != "Wrong" for struct in Shape.__livegrad_type__.implementers)
