"""The differential protocol: vector-space laws for every differentiable type, in Python and in captured functions."""

from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import livegrad as lg
from livegrad.frontend.function.function_types import ArrayType, FrontType, RecordType, TupleType, differential_type
from livegrad.frontend.function.type_reading import plain_type
from livegrad.ir import types as ir
from tests.long_forms import LONG


@lg.differentiable
class Leaf:
    x: float
    n: int
    v: lg.dvec3
    frozen: lg.no_diff[float]


@lg.differentiable
class Tree:
    left: Leaf
    right: Leaf
    table: lg.array[Leaf, Literal[2]]
    mixed: tuple[float, int, Leaf]
    m: lg.dmat2


TYPES: dict[str, Any] = {
    "float": float,
    "f32": lg.f32,
    "f16": lg.f16,
    "c128": lg.c128,
    "vec3": lg.vec3,
    "dmat2": lg.dmat2,
    "array": lg.array[float, 3],
    "tuple": tuple[float, int, lg.dvec2],
    "optional": float | None,
    "Leaf": Leaf,
    "Tree": Tree,
    "Leaf.Differential": Leaf.Differential,
    "Pair": lg.Pair[Leaf],
    "Pair of pairs": lg.Pair[lg.Pair[float]],
}

# Whole numbers, so that the laws hold to the bit.
numbers = st.integers(-8, 8).map(float)


def values(type: FrontType) -> st.SearchStrategy[Any]:
    """Values of a Differential."""
    if isinstance(type, RecordType):
        parts = {field.name: values(field.type) for field in type.fields}
        return st.fixed_dictionaries(parts).map(lambda given: type.make(**given))
    if isinstance(type, TupleType):
        return st.tuples(*map(values, type.elements))
    if isinstance(type, ArrayType):
        return st.lists(values(type.element), min_size=type.size, max_size=type.size)
    if isinstance(type, ir.Vector | ir.Matrix):
        count = len(ir.components(type))
        shape = (type.size,) if isinstance(type, ir.Vector) else (type.rows, type.columns)
        return st.lists(numbers, min_size=count, max_size=count).map(
            lambda items: np.array(items, type.element.dtype).reshape(shape)
        )
    if isinstance(type, ir.Scalar):
        return numbers.map(type.dtype.type)
    inner = getattr(type, "element", None)
    if inner is not None:
        return st.none() | values(inner)
    return st.none()


def same(first: Any, second: Any) -> bool:
    if isinstance(first, tuple | list):
        return len(first) == len(second) and all(map(same, first, second))
    record = getattr(first, "__livegrad_type__", None)
    if record is not None:
        return all(same(getattr(first, f.name), getattr(second, f.name)) for f in record.fields)
    if first is None or second is None:
        return (first or 0.0) == (second or 0.0)
    return bool(np.all(np.asarray(first) == np.asarray(second)))


@pytest.mark.parametrize("name", TYPES)
@settings(max_examples=100 if LONG else 15)
@given(data=st.data())
def test_differentials_form_a_vector_space(name: str, data: st.DataObject):
    type = TYPES[name]
    differential = differential_type(plain_type(type))
    assert differential is not None
    a, b, c = (data.draw(values(differential)) for _ in range(3))
    s, t = data.draw(numbers), data.draw(numbers)

    def add(x: Any, y: Any) -> Any:
        return lg.dadd(type, x, y)

    def scale(factor: float, x: Any) -> Any:
        return lg.dmul(type, factor, x)

    zero = lg.dzero(type)
    assert same(add(a, b), add(b, a))
    assert same(add(add(a, b), c), add(a, add(b, c)))
    assert same(add(a, zero), a)
    assert same(scale(s, add(a, b)), add(scale(s, a), scale(s, b)))
    assert same(scale(s + t, a), add(scale(s, a), scale(t, a)))
    assert same(scale(s, scale(t, a)), scale(s * t, a))
    assert same(scale(1.0, a), a)
    assert same(add(a, scale(-1.0, a)), zero)


def test_the_differential_of_a_differential_is_itself():
    for name in ("float", "vec3", "Leaf.Differential", "array"):
        differential = differential_type(plain_type(TYPES[name]))
        assert differential is not None
        assert differential_type(differential) == differential


def test_fields_without_a_derivative_are_not_in_the_differential():
    assert [field.name for field in Leaf.Differential.fields] == ["x", "v"]


def test_operations_inside_a_function_agree_with_those_on_python_values():
    @lg.function
    def combine(a: Tree.Differential, b: Tree.Differential, s: float):
        return Tree.dadd(Tree.dmul(s, a), Tree.dadd(b, Tree.dzero()))

    rng = np.random.default_rng(0)

    def leaf() -> Any:
        return Leaf.Differential(float(rng.integers(9)), rng.integers(0, 9, 3).astype(float))

    def tree() -> Any:
        return Tree.Differential(
            leaf(), leaf(), [leaf(), leaf()], (float(rng.integers(9)), None, leaf()), rng.integers(0, 9, (2, 2)) * 1.0
        )

    a, b = tree(), tree()
    assert same(combine(a, b, 3.0), Tree.dadd(Tree.dmul(3.0, a), b))


def test_a_custom_dadd_is_used_inside_functions():
    @lg.differentiable
    class Angle:
        turns: float

        @staticmethod
        def dadd(a: "Angle.Differential", b: "Angle.Differential"):  # type: ignore[name-defined]
            return Angle.Differential((a.turns + b.turns) * 1.0 + 100.0)

    @lg.function
    def total(a: Angle.Differential, b: Angle.Differential):
        return lg.dadd(Angle, a, b)

    assert total(Angle.Differential(1.0), Angle.Differential(2.0)).turns == 103.0


def test_a_type_without_floats_is_not_differentiable():
    @lg.differentiable
    class Count:
        n: int

    assert Count.Differential is None
    with pytest.raises(lg.FunctionError, match="LG306: Count is not differentiable"):
        Count.dzero()


def test_no_diff_fields_stop_derivatives():
    @lg.differentiable
    def f(leaf: Leaf) -> float:
        return leaf.x * leaf.frozen * leaf.n + lg.dot(leaf.v, leaf.v)

    leaf = Leaf(2.0, 3, lg.dvec3(1.0, 2.0, 3.0), 5.0)
    (d,) = lg.bwd_diff(f)(leaf, 1.0)
    assert same(d, Leaf.Differential(15.0, np.array([2.0, 4.0, 6.0])))
    moved = lg.fwd_diff(f)(lg.pair(leaf, Leaf.Differential(1.0, lg.dvec3(0.0))))
    assert (moved.primal, moved.differential) == (44.0, 15.0)


def test_nested_values_through_a_derivative():
    @lg.differentiable
    def f(t: Tree, k: int) -> float:
        total = t.left.x * t.right.x + t.mixed[0] * t.mixed[2].x
        for leaf in t.table:
            total += leaf.x * leaf.v.x
        return total * t.table[k].x + t.m[0, 1]

    def leaf(x: float) -> Any:
        return Leaf(x, 1, lg.dvec3(x, 0.0, 0.0), 0.0)

    t = Tree(leaf(1.0), leaf(2.0), [leaf(3.0), leaf(4.0)], (5.0, 6, leaf(7.0)), lg.dmat2(1.0, 2.0, 3.0, 4.0))
    total = 2.0 + 35.0 + 9.0 + 16.0
    assert f(t, 1) == total * 4.0 + 2.0
    d, _ = lg.bwd_diff(f)(t, 1, 1.0)
    assert (d.left.x, d.right.x, d.mixed[0], d.mixed[2].x) == (8.0, 4.0, 28.0, 20.0)
    assert (d.table[0].x, d.table[1].x) == (12.0, 16.0 + total)
    assert d.m[0, 1] == 1.0
    assert d.mixed[1] is None
