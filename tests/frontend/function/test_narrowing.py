"""Type narrowing: tests for None and classes narrow variables and fields exactly on the paths where they hold."""

import math

import pytest

import livegrad as lg


@lg.interface
class Shape:
    @lg.differentiable
    def area(self) -> float: ...


@lg.differentiable
class Circle(Shape):
    r: float

    @lg.differentiable
    def area(self) -> float:
        return math.pi * self.r * self.r


@lg.differentiable
class Square(Shape):
    side: float

    @lg.differentiable
    def area(self) -> float:
        return self.side * self.side


@lg.differentiable
class Material:
    weight: float
    tint: float | None


@lg.differentiable
class Item:
    material: Material
    shape: Shape
    scale: lg.no_diff[float] | None = None


def test_a_field_has_a_value_after_an_early_return():
    @lg.differentiable
    def f(m: Material) -> float:
        if m.tint is None:
            return m.weight
        return m.weight * m.tint * m.tint

    assert [f(Material(2.0, None)), f(Material(2.0, 3.0))] == [2.0, 18.0]
    assert lg.bwd_diff(f)(Material(2.0, 3.0), 1.0) == (Material.Differential(9.0, 12.0),)
    assert lg.bwd_diff(f)(Material(2.0, None), 1.0) == (Material.Differential(1.0, None),)


def test_fields_are_narrowed_by_every_kind_of_test():
    @lg.differentiable
    def f(m: Material, x: float) -> float:
        by_choice = m.tint if m.tint is not None else 10.0
        by_or = 0.0 if m.tint is None or m.tint > x else m.tint
        by_not = 0.0
        if not (m.tint is None or x < 0.0):
            by_not += m.tint
            if x > 0.0:
                by_not += m.tint * x
        return by_choice + 100.0 * by_or + 1000.0 * by_not

    assert f(Material(1.0, 3.0), 4.0) == 3.0 + 300.0 + 15000.0
    assert f(Material(1.0, 3.0), 2.0) == 3.0 + 9000.0
    assert f(Material(1.0, None), 4.0) == 10.0


def test_chains_of_fields_and_fields_without_derivative():
    @lg.differentiable
    def f(item: Item) -> float:
        total = 0.0
        if item.material.tint is not None:
            total += item.material.tint * item.material.weight
        if item.scale is not None:
            total *= item.scale
        return total

    item = Item(Material(2.0, 3.0), Circle(1.0), 5.0)
    assert f(item) == 30.0
    assert lg.bwd_diff(f)(item, 1.0)[0].material == Material.Differential(15.0, 10.0)
    assert f(Item(Material(2.0, None), Circle(1.0))) == 0.0


def test_a_field_is_narrowed_to_the_class_of_isinstance():
    @lg.differentiable
    def f(item: Item) -> float:
        if isinstance(item.shape, Circle):
            return item.shape.r * 10.0
        return item.shape.area()

    assert [f(Item(Material(1.0, None), shape)) for shape in (Circle(2.0), Square(3.0))] == [20.0, 9.0]


def test_a_loop_without_changes_keeps_narrowed_types():
    @lg.differentiable
    def f(m: Material, n: int) -> float:
        if m.tint is None:
            return 0.0
        total = 0.0
        for i in range(n):
            total += m.tint * i
        return total

    assert [f(Material(1.0, 2.0), 4), f(Material(1.0, None), 4)] == [12.0, 0.0]


def test_a_method_narrows_fields_of_self():
    @lg.differentiable
    class Spring:
        stiffness: float
        damping: float | None

        @lg.differentiable
        def force(self, x: float, v: float) -> float:
            if self.damping is not None:
                return -self.stiffness * x - self.damping * v
            return -self.stiffness * x

    assert [Spring(2.0, 3.0).force(1.0, 1.0), Spring(2.0, None).force(1.0, 1.0)] == [-5.0, -2.0]


def test_a_field_that_is_assigned_after_the_test_may_be_none():
    @lg.function
    def field(m: Material) -> float:
        if m.tint is not None:
            m = Material(m.weight, m.tint)
            m.tint = None
            return m.tint * 2.0  # pyright: ignore[reportOperatorIssue]
        return 0.0

    @lg.function
    def variable(m: Material, other: Material) -> float:
        if m.tint is not None:
            m = other
            return m.tint * 2.0
        return 0.0

    @lg.function
    def loop(m: Material, n: int) -> float:
        total = 0.0
        if m.tint is not None:
            for _ in range(n):
                total += m.tint * 2.0
                m = Material(1.0, None)
        return total

    @lg.function
    def after(m: Material) -> float:
        total = 0.0
        if m.tint is not None:
            total = m.tint
        return total + m.tint * 2.0  # pyright: ignore[reportOptionalOperand]

    material = Material(1.0, 2.0)
    for call in (
        lambda: field(material),
        lambda: variable(material, material),
        lambda: loop(material, 3),
        lambda: after(material),
    ):
        with pytest.raises(lg.LivegradError, match=r"float \| None"):
            call()
