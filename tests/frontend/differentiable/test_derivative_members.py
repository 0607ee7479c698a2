"""Members of custom Differentials: association with fields, shared members, fields without a member."""

from typing import Annotated, Any

import pytest

import livegrad as lg


@lg.differentiable
class Shared:
    d: float


@lg.differentiable
class Tied:
    Differential = Shared
    a: Annotated[float, lg.derivative_member("d")]
    b: Annotated[float, lg.derivative_member("d")]


@lg.differentiable
def product(s: Tied) -> float:
    return s.a * s.b


@lg.differentiable
def tied(x: float) -> Tied:
    return Tied(x, x)


@lg.differentiable
def same(s: Tied) -> Tied:
    return s


def test_fields_that_share_a_member_have_the_sum_of_their_derivatives():
    assert lg.fwd_diff(product)(lg.pair(Tied(3.0, 5.0), Shared(1.0))).differential == 8.0
    assert lg.bwd_diff(product)(Tied(3.0, 5.0), 1.0) == (Shared(8.0),)
    assert lg.grad(product)(Tied(3.0, 5.0)) == Shared(8.0)


def test_the_derivative_of_the_identity_is_the_identity_if_fields_share_a_member():
    assert lg.fwd_diff(same)(lg.pair(Tied(3.0, 5.0), Shared(1.0))).differential == Shared(1.0)
    assert lg.bwd_diff(same)(Tied(3.0, 5.0), Shared(1.0)) == (Shared(1.0),)


def test_the_chain_rule_holds_if_fields_that_share_a_member_move_together():
    x = 3.0
    moved = lg.fwd_diff(tied)(lg.pair(x, 1.0))
    assert lg.fwd_diff(product)(moved).differential == 2 * x
    back = lg.bwd_diff(product)(tied(x), 1.0)[0]
    assert lg.bwd_diff(tied)(x, back) == (2 * x,)


def test_custom_derivatives_of_fields_that_share_a_member_agree_with_those_of_the_program():
    @lg.differentiable
    def custom(s: Tied) -> float:
        return s.a * s.b

    @custom.backward_derivative
    def _(s: Tied, d: float):
        return Shared((s.a + s.b) * d)

    @lg.differentiable
    def around(s: Tied) -> float:
        return custom(s) * custom(Tied(2.0 * s.a, 2.0 * s.b))

    point = Tied(3.0, 5.0)
    assert lg.bwd_diff(around)(point, 1.0)[0].d == pytest.approx(2 * 4 * 15.0 * 8.0)
    assert lg.fwd_diff(around)(lg.pair(point, Shared(1.0))).differential == pytest.approx(2 * 4 * 15.0 * 8.0)


@lg.differentiable
class Swapped:
    d2: float
    d1: float


@lg.differentiable
class Ordered:
    Differential = Swapped
    p: Annotated[float, lg.derivative_member("d1")]
    q: Annotated[float, lg.derivative_member("d2")]


def test_operations_follow_the_member_order_of_the_differential():
    @lg.function
    def added(a: Swapped, b: Swapped) -> Swapped:
        return lg.dadd(Ordered, lg.dmul(Ordered, 2.0, a), b)

    assert added(Swapped(1.0, 10.0), Swapped(100.0, 1000.0)) == Swapped(102.0, 1020.0)
    assert lg.dadd(Ordered, Swapped(1.0, 2.0), Swapped(10.0, 20.0)) == Swapped(11.0, 22.0)
    assert lg.dzero(Ordered) == Swapped(0.0, 0.0)


@lg.interface
class Shape:
    @lg.differentiable
    def area(self) -> float: ...


@lg.differentiable
class Weighted(Shape):
    w: lg.no_diff[float]
    x: float

    @lg.differentiable
    def area(self) -> float:
        return self.w * self.x * self.x


@lg.differentiable
class Turned(Shape):
    Differential = Swapped
    p: Annotated[float, lg.derivative_member("d1")]
    q: Annotated[float, lg.derivative_member("d2")]

    @lg.differentiable
    def area(self) -> float:
        return self.p * self.p * self.q


@lg.differentiable
class Maybe(Shape):
    side: float
    scale: float | None

    @lg.differentiable
    def area(self) -> float:
        scale = self.scale
        if scale is None:
            return self.side
        return self.side * scale


@lg.differentiable
def area(s: Shape) -> float:
    return s.area()


@lg.differentiable
def same_shape(s: Shape) -> Shape:
    return s


SHAPES: list[tuple[Any, Any, Any, float]] = [
    (Weighted(2.0, 3.0), Weighted.Differential(12.0), Weighted.Differential(5.0), 60.0),
    (Turned(2.0, 3.0), Swapped(4.0, 12.0), Swapped(1.0, 10.0), 124.0),
    (Maybe(2.0, 3.0), Maybe.Differential(3.0, 2.0), Maybe.Differential(1.0, 10.0), 23.0),
    (Maybe(2.0, None), Maybe.Differential(1.0, None), Maybe.Differential(7.0, None), 7.0),
]


@pytest.mark.parametrize(("value", "gradient", "direction", "slope"), SHAPES)
def test_an_interface_value_has_the_derivative_of_its_own_type(value, gradient, direction, slope):
    assert lg.bwd_diff(area)(value, 1.0) == (gradient,)
    assert lg.fwd_diff(area)(lg.pair(value, direction)).differential == slope
    assert lg.bwd_diff(same_shape)(value, direction) == (direction,)
    assert lg.fwd_diff(same_shape)(lg.pair(value, direction)).differential == direction
    assert lg.bwd_diff(area)(value, 0.0)[0] == lg.bwd_diff(same_shape)(value, lg.NullDifferential())[0]


def test_a_list_of_interface_values_contains_different_types():
    @lg.differentiable
    def total(shapes: list[Shape]) -> float:
        result = 0.0
        for shape in shapes:
            result += shape.area()
        return result

    shapes = [value for value, *_ in SHAPES]
    assert total(shapes) == sum(area(shape) for shape in shapes)
    assert lg.bwd_diff(total)(shapes, 1.0) == ([gradient for _, gradient, *_ in SHAPES],)
    assert lg.grad(total)(shapes) == [gradient for _, gradient, *_ in SHAPES]
    with pytest.raises(lg.LivegradError):
        total([Weighted(1.0, 2.0), 3.0])


# --- what is refused -------------------------------------------------------------------------------------------------


def error_message(fields: dict[str, Any], differential: type) -> str:
    struct = lg.differentiable(type("Made", (), {"__annotations__": fields, "Differential": differential}))
    with pytest.raises(lg.FunctionError) as caught:
        lg.dzero(struct)
    assert caught.value.code == "LG308"
    return str(caught.value)


def test_a_member_for_a_field_without_a_derivative_is_rejected():
    both = Annotated[float, lg.derivative_member("d")]
    assert "int has no derivative" in error_message({"n": Annotated[int, lg.derivative_member("d")], "b": both}, Shared)
    quiet = Annotated[lg.no_diff[float], lg.derivative_member("d")]
    assert "the field is `no_diff`" in error_message({"n": quiet, "b": both}, Shared)


def test_derivative_member_without_a_custom_differential_is_rejected():
    @lg.differentiable
    class Lonely:
        x: Annotated[float, lg.derivative_member("d")]

    with pytest.raises(lg.FunctionError, match="Lonely does not define a Differential"):
        lg.dzero(Lonely)


def test_a_field_and_a_member_without_counterparts_are_a_misspelt_name():
    assert "field `weight` of Made has no member in Shared" in error_message({"weight": float}, Shared)


def test_fields_of_optionals_cannot_share_a_member():
    @lg.differentiable
    class Held:
        d: float | None

    member = Annotated[float | None, lg.derivative_member("d")]
    assert "share the member `d`" in error_message({"a": member, "b": member}, Held)


def test_a_rejected_struct_stays_rejected():
    struct = lg.differentiable(type("Made", (), {"__annotations__": {"weight": float}, "Differential": Shared}))
    for _ in range(2):
        with pytest.raises(lg.FunctionError, match="LG308"):
            lg.dzero(struct)
