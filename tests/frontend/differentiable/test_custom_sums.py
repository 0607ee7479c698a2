"""Custom `dadd` and `dzero` in derivatives: they compute every sum of differentials of their type.

The `dadd` here saturates at ten, so the result shows where it was used.
"""

from typing import Annotated, Any

import numpy as np
import pytest

import livegrad as lg

MOST = 10.0


@lg.differentiable
class Bounded:
    x: float
    y: float

    @staticmethod
    def dadd(a, b):
        return Bounded.Differential(min(a.x + b.x, MOST), min(a.y + b.y, MOST))


@lg.differentiable
class Holder:
    bounded: Bounded
    factor: float


@lg.differentiable
def once(m: Bounded, s: float) -> float:
    return m.x * s + m.y


@lg.differentiable
def twice(m: Bounded) -> float:
    return once(m, 6.0) + once(m, 7.0)


def bounded(x: float, y: float) -> Any:
    return Bounded.Differential(x, y)


def test_cotangents_of_a_value_with_two_uses_are_added_by_its_dadd():
    assert lg.bwd_diff(twice)(Bounded(1.0, 2.0), 1.0) == (bounded(10.0, 2.0),)
    assert lg.grad(twice)(Bounded(1.0, 2.0)) == bounded(10.0, 2.0)


def test_reads_of_fields_are_summed_as_numbers_first():
    """Cotangents of fields of one use form a single summand; only cotangents of the whole value go through dadd."""

    @lg.differentiable
    def fields(m: Bounded) -> float:
        return m.x * 6.0 + m.x * 7.0 - m.y

    assert lg.bwd_diff(fields)(Bounded(1.0, 2.0), 1.0) == (bounded(13.0, -1.0),)


def test_tangents_need_no_sum_and_forward_mode_is_linear():
    both = lg.fwd_diff(twice)(lg.pair(Bounded(1.0, 2.0), bounded(3.0, 1.0)))
    assert (both.primal, both.differential) == (17.0, 13.0 * 3.0 + 2.0)


@pytest.mark.parametrize("iterations", [0, 1, 2, 5])
def test_cotangents_of_loop_iterations_are_added_by_dadd(iterations: int):
    @lg.differentiable
    def repeated(m: Bounded, n: int) -> float:
        total = 0.0
        for _ in range(n):
            total = total + once(m, 3.0)
        return total

    @lg.differentiable
    def until(m: Bounded, n: int) -> float:
        total = 0.0
        k = 0
        while k < n:
            total = total + once(m, 3.0)
            k += 1
        return total

    expected = bounded(min(3.0 * iterations, 10.0), 1.0 * iterations)
    assert lg.bwd_diff(repeated)(Bounded(1.0, 2.0), iterations, 1.0)[0] == expected
    assert lg.bwd_diff(until)(Bounded(1.0, 2.0), iterations, 1.0)[0] == expected


def test_branches():
    @lg.differentiable
    def either(m: Bounded, p: float) -> float:
        result = once(m, 6.0) if p > 0.0 else once(m, 1.0)
        return result + once(m, p)

    assert lg.bwd_diff(either)(Bounded(1.0, 2.0), 7.0, 1.0) == (bounded(10.0, 2.0), 1.0)
    assert lg.bwd_diff(either)(Bounded(1.0, 2.0), -7.0, 1.0) == (bounded(-6.0, 2.0), 1.0)


def test_types_that_contain_a_type_with_a_dadd_use_it():
    @lg.differentiable
    def held(a: Holder) -> float:
        return once(a.bounded, a.factor) + once(a.bounded, 8.0)

    @lg.differentiable
    def both(a: Holder) -> float:
        return held(a) + held(a) + a.factor

    @lg.differentiable
    def listed(several: lg.array[Bounded, 2]) -> float:  # type: ignore[valid-type]
        return twice(several[0]) + twice(several[0]) + twice(several[1])

    at = Holder(Bounded(1.0, 2.0), 9.0)
    assert lg.bwd_diff(held)(at, 1.0) == (Holder.Differential(bounded(10.0, 2.0), 1.0),)
    assert lg.bwd_diff(both)(at, 1.0) == (Holder.Differential(bounded(10.0, 4.0), 3.0),)
    assert lg.bwd_diff(listed)([at.bounded] * 2, 1.0) == ([bounded(10.0, 4.0), bounded(10.0, 2.0)],)


def test_derivatives_of_derivatives():
    @lg.differentiable
    def curved(m: Bounded, s: float) -> float:
        return m.x * m.x * s

    @lg.differentiable
    def both(m: Bounded) -> float:
        return curved(m, 2.0) + curved(m, 3.0)

    @lg.differentiable
    def slope(m: Bounded) -> float:
        return lg.bwd_diff(both)(m, 1.0)[0].x

    assert slope(Bounded(0.5, 0.0)) == 5.0
    assert lg.bwd_diff(slope)(Bounded(0.5, 0.0), 1.0) == (bounded(10.0, 0.0),)
    assert lg.fwd_diff(slope)(lg.pair(Bounded(0.5, 0.0), bounded(1.0, 0.0))).differential == 10.0
    assert lg.fwd_diff(slope)(lg.pair(Bounded(5.0, 0.0), bounded(1.0, 0.0))).differential == 0.0  # beyond the bound


@lg.interface
class Shape:
    @lg.differentiable
    def area(self, s: float) -> float: ...


@lg.differentiable
class Square(Shape):
    side: float

    @staticmethod
    def dadd(a, b):
        return Square.Differential(min(a.side + b.side, MOST))

    @lg.differentiable
    def area(self, s: float) -> float:
        return self.side * s


@lg.differentiable
class Disc(Shape):
    radius: float
    extra: float

    @lg.differentiable
    def area(self, s: float) -> float:
        return self.radius * s + self.extra


@lg.differentiable
def areas(shape: Shape) -> float:
    return shape.area(6.0) + shape.area(7.0)


def test_interface_values_are_added_by_the_dadd_of_their_type():
    assert lg.bwd_diff(areas)(Square(1.0), 1.0) == (Square.Differential(10.0),)
    assert lg.bwd_diff(areas)(Disc(1.0, 2.0), 1.0) == (Disc.Differential(13.0, 2.0),)


def test_dadd_of_an_interface_inside_functions_uses_the_dadd_of_the_type():
    @lg.function
    def total(a: Shape.__livegrad_type__.differential, b: Shape.__livegrad_type__.differential):  # type: ignore
        return lg.dadd(Shape, a, b)

    null, seven = lg.NullDifferential(), Square.Differential(7.0)
    assert total(seven, seven) == Square.Differential(10.0)
    assert total(null, Square.Differential(12.0)) == Square.Differential(12.0)  # null is neutral, nothing is added
    assert total(null, null) == null
    with pytest.raises(Exception, match="cannot add differentials of different types"):
        total(seven, Disc.Differential(1.0, 1.0))


def test_optional_values():
    @lg.differentiable
    def perhaps(m: Bounded | None) -> float:
        if m is None:
            return 0.0
        return twice(m) + twice(m)

    assert lg.bwd_diff(perhaps)(Bounded(1.0, 2.0), 1.0) == (bounded(10.0, 4.0),)
    assert lg.bwd_diff(perhaps)(None, 1.0) == (None,)


def test_at_every_point_of_a_map():
    (gradient,) = lg.bwd_diff(twice)(Bounded(np.array([1.0, 2.0]), np.array([3.0, 4.0])), np.array([1.0, 0.5]))
    np.testing.assert_array_equal(gradient.x, [10.0, 6.5])
    np.testing.assert_array_equal(gradient.y, [2.0, 1.0])


def test_a_custom_differential_and_a_custom_dzero():
    @lg.differentiable
    class Slope:
        dv: float
        summands: float

    @lg.differentiable
    class Counted:
        Differential = Slope
        v: Annotated[float, lg.derivative_member("dv")]

        @staticmethod
        def dzero():
            return Slope(0.0, 100.0)

        @staticmethod
        def dadd(a, b):
            return Slope(a.dv + b.dv, a.summands + b.summands + 1.0)

    @lg.differentiable
    def square(c: Counted) -> float:
        return c.v * c.v

    assert lg.bwd_diff(square)(Counted(3.0), 1.0) == (Slope(6.0, 101.0),)


def test_a_dadd_is_compiled_again_when_a_global_that_it_uses_changes():
    names = lg.run_source(
        "MOST = 10.0\n"
        "@lg.differentiable\n"
        "class Own:\n"
        "    x: float\n"
        "    @staticmethod\n"
        "    def dadd(a, b):\n"
        "        return Own.Differential(min(a.x + b.x, MOST))\n"
        "@lg.differentiable\n"
        "def times(m: Own, s: float) -> float:\n"
        "    return m.x * s\n"
        "@lg.differentiable\n"
        "def both(m: Own) -> float:\n"
        "    return times(m, 6.0) + times(m, 7.0)\n",
        {"lg": lg},
    )
    gradient = lg.bwd_diff(names["both"])
    assert gradient(names["Own"](1.0), 1.0)[0].x == 10.0
    names["both"].python_function.__globals__["MOST"] = 11.0
    assert gradient(names["Own"](1.0), 1.0)[0].x == 11.0


def test_a_dadd_that_cannot_be_compiled_is_an_error_with_its_line():
    seen = []

    @lg.differentiable
    class Loud:
        x: float

        @staticmethod
        def dadd(a, b):
            seen.append(a)
            return Loud.Differential(a.x + b.x)

    @lg.differentiable
    def use(m: Loud) -> float:
        return m.x

    @lg.differentiable
    def both(m: Loud) -> float:
        return use(m) + use(m)

    with pytest.raises(lg.FunctionError, match=r"test_custom_sums\.py:\d+"):
        lg.bwd_diff(both)(Loud(1.0), 1.0)
