"""Arguments and annotations that derivatives accept or reject: differentials, pairs, optionals, `no_diff`, `Self`."""

from typing import Self, TypeVar

import numpy as np
import pytest

import livegrad as lg


@lg.differentiable
class Material:
    roughness: float
    colour: lg.dvec2


@lg.differentiable
class Other:
    d: float


@lg.differentiable
def square(x: float) -> float:
    return x * x


@lg.differentiable
def same(m: Material) -> Material:
    return m


MATERIAL = Material(1.0, lg.dvec2(1, 2))


@pytest.mark.parametrize("wrong", [Other(1.0), 1.0, [1.0, 2.0], None, (1.0, lg.dvec2(1, 1))])
def test_a_differential_of_another_type_is_rejected_with_both_types(wrong):
    for call in (
        lambda: lg.bwd_diff(same)(MATERIAL, wrong),
        lambda: lg.fwd_diff(same)(lg.pair(MATERIAL, wrong)),
        lambda: lg.jvp(same, (MATERIAL,), (wrong,)) if wrong is not None else lg.bwd_diff(same)(MATERIAL, wrong),
    ):
        with pytest.raises(lg.FunctionError, match="LG310") as caught:
            call()
        assert "expected: Material.Differential" in str(caught.value)
    with pytest.raises(lg.LivegradError, match=r"Material\.Differential"):
        lg.dadd(Material, wrong, wrong)


def test_a_vector_is_not_a_differential_of_a_number():
    with pytest.raises(lg.FunctionError, match="LG310"):
        lg.fwd_diff(square)(lg.pair(3.0, lg.dvec3(1, 2, 3)))
    with pytest.raises(lg.FunctionError, match="LG310"):
        lg.bwd_diff(square)(3.0, lg.dvec3(1, 2, 3))
    several = lg.fwd_diff(square)(lg.pair(3.0, np.array([1.0, 2.0])))  # one number, along two directions
    assert several.differential.tolist() == [6.0, 12.0]


def test_a_pair_of_numbers_matches_pairs_of_any_width():
    @lg.differentiable
    def product(p: lg.Pair[lg.f32]) -> lg.f32:
        return p.primal * p.differential

    @lg.differentiable
    def inside(x: lg.f32) -> lg.f32:
        return product(lg.pair(0.5, 1.0)) * x + product(lg.pair(0.5, x)) + product(lg.pair(x, 2.0))

    @lg.differentiable
    def read(x: lg.f32):
        p = lg.pair(0.5, 1.0)
        return p.primal * x

    assert product(lg.pair(0.5, 1.0)) == 0.5
    assert inside(3.0) == 0.5 * 3.0 + 0.5 * 3.0 + 3.0 * 2.0
    assert type(read(np.float32(3.0))) is np.float32


def test_an_absent_optional_is_passed_to_a_forward_derivative_as_none():
    @lg.differentiable
    def f(x: float, scale: float | None = None) -> float:
        if scale is None:
            return x * x
        return x * scale

    @lg.differentiable
    def inside(x: float) -> float:
        return lg.fwd_diff(f)(lg.pair(x, 1.0), None).differential + lg.fwd_diff(f)(lg.pair(x, 1.0)).differential

    x = lg.pair(2.0, 1.0)
    assert lg.fwd_diff(f)(x).differential == 4.0
    assert lg.fwd_diff(f)(x, None).differential == 4.0
    assert lg.fwd_diff(f)(x, lg.pair(None, None)).differential == 4.0
    assert lg.fwd_diff(f)(x, lg.pair(3.0, 1.0)).differential == 5.0
    assert inside(2.0) == 8.0
    with pytest.raises(lg.FunctionError, match="LG310"):
        lg.fwd_diff(f)(x, 3.0)


def test_optionals_may_hold_any_type():
    @lg.differentiable
    def f(v: lg.dvec2 | None, x: lg.f32 | None, values: lg.array[float, 2] | None) -> float:  # type: ignore
        total = 1.0
        if v is not None:
            total *= v.x
        if x is not None:
            total *= x
        if values is not None:
            total *= values[1]
        return total

    for _ in range(2):  # the second call uses the call cache
        by_v, by_x, by_values = lg.bwd_diff(f)(lg.dvec2(2, 3), 4.0, [5.0, 6.0], 1.0)
        assert (by_v.tolist(), by_x, by_values) == ([24.0, 0.0], 12.0, [0.0, 8.0])
        assert lg.bwd_diff(f)(None, None, None, 1.0) == (None, None, None)
        assert f(lg.dvec2(2, 3), None, None) == 2.0


def test_no_diff_accepts_the_name_of_a_type_as_a_string():
    @lg.differentiable
    class Scene:
        light: lg.no_diff["Light"]
        lights: tuple["Light", float]
        gain: float

    @lg.differentiable
    class Light:
        power: float

    @lg.differentiable
    def shade(scene: Scene, light: lg.no_diff["Light"]) -> float:
        return scene.light.power * scene.gain * light.power * scene.lights[0].power

    scene = Scene(Light(2.0), (Light(5.0), 1.0), 3.0)
    (by_scene, by_light) = lg.bwd_diff(shade)(scene, Light(7.0), 1.0)
    assert (by_scene.gain, by_scene.lights[0].power, by_light) == (70.0, 42.0, None)


def test_no_diff_on_a_call_in_a_function_that_is_not_differentiable_is_rejected():
    @lg.function
    def plain(x: float) -> float:
        return lg.no_diff(square(x))

    with pytest.raises(lg.FunctionError, match="LG304: this `no_diff` does nothing: `plain` is not differentiable"):
        plain(2.0)


def test_self_is_the_type_of_a_methods_first_parameter():
    @lg.interface
    class Shape:
        @lg.differentiable
        def scaled(self, by: float) -> Self: ...

        @lg.differentiable
        def area(self) -> float: ...

    @lg.differentiable
    class Square(Shape):
        side: float

        @lg.differentiable
        def scaled(self, by: float) -> Self:
            return Square(self.side * by)

        @lg.differentiable
        def joined(self, other: Self) -> tuple[Self, float]:
            return Square(self.side + other.side), 1.0

        @lg.differentiable
        def area(self) -> float:
            return self.side * self.side

    @lg.differentiable
    class Disc(Shape):
        radius: float

        @lg.differentiable
        def scaled(self, by: float) -> Self:
            return Disc(self.radius * by)

        @lg.differentiable
        def area(self) -> float:
            return 3.0 * self.radius * self.radius

    @lg.differentiable
    def grown(shape: Shape, by: float) -> float:
        return shape.scaled(by).area()

    assert Square(2.0).scaled(3.0) == Square(6.0)
    assert Square(2.0).joined(Square(3.0))[0] == Square(5.0)
    assert lg.bwd_diff(grown)(Square(2.0), 3.0, 1.0) == (Square.Differential(36.0), 24.0)
    assert lg.bwd_diff(grown)(Disc(2.0), 3.0, 1.0) == (Disc.Differential(108.0), 72.0)
    with pytest.raises(lg.FunctionError, match="`other` expects Square, found Disc"):
        Square(2.0).joined(Disc(1.0))


T = TypeVar("T", bound=lg.Differentiable)


def test_differentiable_types_of_a_generic_function_include_its_variables():
    @lg.differentiable
    def scaled(value: T, by: float) -> T:
        return value * value * lg.dvec2(by, by).x  # type: ignore[operator]

    types = scaled.differentiable_types()
    assert str(types[T]) == "T.Differential"
    assert {str(type): str(differential) for type, differential in types.items() if type is not T} == {
        "f64": "f64",
        "vec<f64, 2>": "vec<f64, 2>",
    }
    assert set(scaled.differentiable_types(float, float)) == {lg.f64, lg.ir.types.Vector(lg.f64, 2)}


def test_a_redeclared_field_occurs_once():
    @lg.differentiable
    class Base:
        x: float
        y: float = 2.0

    @lg.differentiable
    class Narrow(Base):
        x: lg.f32

    assert [field.name for field in Narrow.Differential.fields] == ["x", "y"]
    assert Narrow(1.0).y == 2.0


@lg.differentiable
class Lamp:
    power: float
    limit: lg.no_diff[float] | None
    colour: lg.no_diff["Material"] | None


def test_no_diff_of_a_type_or_none_is_no_diff_of_the_optional():
    @lg.differentiable
    def shine(lamp: Lamp, factor: lg.no_diff[float] | None = None) -> float:
        limit, colour = lamp.limit, lamp.colour
        light = lamp.power * lamp.power
        if limit is not None:
            light = light * limit
        if colour is not None:
            light = light * colour.roughness
        return light if factor is None else light * factor

    (plain, nothing) = lg.bwd_diff(shine)(Lamp(3.0, None, None), None, 1.0)
    assert (plain.power, nothing) == (6.0, None)
    (full, nothing) = lg.bwd_diff(shine)(Lamp(3.0, 2.0, Material(5.0, lg.dvec2(1, 2))), 7.0, 1.0)
    assert (full.power, nothing) == (6.0 * 2.0 * 5.0 * 7.0, None)
    assert lg.no_diff[float] | None == lg.no_diff[float | None]


def test_a_variable_cannot_be_no_diff():
    @lg.differentiable
    def frozen(x: float) -> float:
        y: lg.no_diff[float] = x  # type: ignore
        return y  # type: ignore

    with pytest.raises(lg.FunctionError, match="LG204: a variable cannot be `no_diff`") as raised:
        frozen(1.0)
    assert "assign `detach(value)` to it" in str(raised.value)
