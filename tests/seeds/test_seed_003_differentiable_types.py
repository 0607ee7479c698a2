"""Seed 003, the types of automatic differentiation: one test a requirement, under the heading that it comes from."""

import math
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
import pytest

import livegrad as lg
from livegrad.compiler import lower
from livegrad.frontend.differentiable.pair import pair_type
from livegrad.frontend.function.function_types import RecordType
from livegrad.frontend.function.type_reading import plain_type
from livegrad.ir.text import print_function
from livegrad.ir.types import Struct


@lg.differentiable
class Inner:
    weight: float
    count: int


@lg.differentiable
class Outer:
    inner: Inner
    offset: lg.dvec2
    pairs: lg.array[float, Literal[2]]
    both: tuple[float, int]


def outer(scale: float) -> Any:
    d = Outer.Differential
    return d(Inner.Differential(scale), lg.dvec2(scale, 2 * scale), [scale, 3 * scale], (scale, None))


def test_interface_idifferentiable_has_a_differential_and_the_three_operations():
    """`interface IDifferentiable`: Differential, dadd, dzero, dmul; derivative values form a vector space."""
    assert [field.name for field in Outer.Differential.fields] == ["inner", "offset", "pairs", "both"]
    assert [field.name for field in Inner.Differential.fields] == ["weight"]
    assert Outer.dadd(outer(1.0), Outer.dzero()) == outer(1.0)
    assert Outer.dadd(outer(1.0), outer(2.0)) == Outer.dadd(outer(2.0), outer(1.0)) == outer(3.0)
    assert Outer.dmul(2.0, outer(1.5)) == outer(3.0)


def test_the_operations_of_a_type_are_those_that_derivatives_add_with():
    """`interface IDifferentiable`, points 2 and 3: dadd adds what comes back from several uses, dzero is where the sum
    starts. The dadd of this type ends at ten, so that it shows."""

    @lg.differentiable
    class Limited:
        x: float

        @staticmethod
        def dzero():
            return Limited.Differential(0.0)

        @staticmethod
        def dadd(a, b):
            return Limited.Differential(min(a.x + b.x, 10.0))

    @lg.differentiable
    def times(v: Limited, s: float) -> float:
        return v.x * s

    @lg.differentiable
    def uses(v: Limited, n: int) -> float:
        total = times(v, 6.0)
        for k in range(n):
            total += times(v, 1.0 + k)
        return total

    assert lg.bwd_diff(uses)(Limited(1.0), 2, 1.0)[0] == Limited.Differential(9.0)
    assert lg.bwd_diff(uses)(Limited(1.0), 3, 1.0)[0] == Limited.Differential(10.0)


def test_derivative_member_associations():
    """Derivative member associations: `[DerivativeMember(MyDiffType.db)]` maps a field to the Differential's."""

    @lg.differentiable
    class MyDiffType:
        db: float

    @lg.differentiable
    class MyType:
        Differential = MyDiffType
        a: lg.no_diff[float]
        b: Annotated[float, lg.derivative_member("db")]

    @lg.differentiable
    def make(x: float) -> MyType:
        return MyType(2.0, x * x)

    @lg.differentiable
    def read(m: MyType) -> float:
        return m.a * m.b

    assert lg.fwd_diff(make)(lg.pair(3.0, 1.0)).differential == MyDiffType(6.0)
    assert lg.bwd_diff(make)(
        3.0,
        MyDiffType(10.0),
    ) == (60.0,)
    assert lg.bwd_diff(read)(MyType(2.0, 5.0), 1.0) == (MyDiffType(2.0),)


def test_derivative_member_associations_as_the_seed_writes_them():
    """Derivative member associations: `a` has no member and no derivative; the Differential is defined later."""

    @lg.differentiable
    class MyType:
        Differential = "MyDiffType"
        a: float
        b: Annotated[float, lg.derivative_member("MyDiffType.db")]

    @lg.differentiable
    class MyDiffType:
        db: float

    @lg.differentiable
    def make(x: float) -> MyType:
        return MyType(2.0, x * x)

    @lg.differentiable
    def read(m: MyType) -> float:
        return m.a * m.b

    @lg.differentiable
    def lost(x: float) -> MyType:
        return MyType(x, x * x)

    assert MyType.Differential is plain_type(MyDiffType)
    assert lg.fwd_diff(make)(lg.pair(3.0, 1.0)).differential == MyDiffType(6.0)
    assert lg.bwd_diff(make)(3.0, MyDiffType(10.0)) == (60.0,)
    assert lg.bwd_diff(read)(MyType(2.0, 5.0), 1.0) == (MyDiffType(2.0),)
    with pytest.raises(lg.FunctionError, match="LG302: the derivative is lost in the field `a`"):
        lg.bwd_diff(lost)(3.0, MyDiffType(1.0))


def test_derivative_member_associations_name_the_field_through_its_type():
    """Derivative member associations: `[DerivativeMember(MyDiffType.db)]`."""

    @lg.differentiable
    class MyDiffType:
        db: float

    @lg.differentiable
    class MyType:
        Differential = MyDiffType
        b: Annotated[float, lg.derivative_member(MyDiffType.db)]

    @lg.differentiable
    def read(m: MyType) -> float:
        return m.b * m.b

    assert lg.bwd_diff(read)(MyType(5.0), 1.0) == (MyDiffType(10.0),)


def test_automatic_synthesis_is_fully_inductive_for_dadd_and_dzero():
    """Automatic Synthesis, point 4: dadd and dzero call those of the fields, also where a field has its own."""
    calls = []

    @lg.differentiable
    class Special:
        x: float

        @staticmethod
        def dadd(a, b):
            calls.append("dadd")
            return Special.Differential(a.x + b.x)

        @staticmethod
        def dzero():
            calls.append("dzero")
            return Special.Differential(0.0)

    @lg.differentiable
    class Holder:
        special: Special
        y: float

    d = Holder.Differential(Special.Differential(1.0), 2.0)
    assert Holder.dadd(d, Holder.dzero()) == d
    assert calls == ["dzero", "dadd"]


def test_automatic_synthesis_of_dmul_has_a_common_scalar_of_any_real_type():
    """Automatic Synthesis, point 4: dmul passes the one scalar to all fields; it may be of any real type."""
    for scalar in (2, 2.0, np.float32(2.0), np.float16(2.0), np.int8(2), np.uint64(2)):
        assert Outer.dmul(scalar, outer(1.0)) == outer(2.0)


def test_automatic_synthesis_of_types_that_refer_to_each_other_in_any_order():
    """Automatic Synthesis, point 3: a constituent's Differential may not have been synthesised yet."""
    names = lg.run_source(
        "@lg.differentiable\n"
        "class First:\n"
        "    second: 'Second'\n"
        "    x: float\n"
        "@lg.differentiable\n"
        "class Second:\n"
        "    y: float\n"
        "    n: int\n",
        {"lg": lg, "__name__": __name__},
    )
    globals()["Second"] = names["Second"]
    first = names["First"].Differential
    assert first.fields[0].type is names["Second"].Differential
    del globals()["Second"]


def test_types_made_by_differentiation_conform_too():
    """Automatic Synthesis, point 5: what differentiation makes can be differentiated again."""
    pairs = pair_type(Inner.__livegrad_type__)
    twice = pair_type(pairs)
    assert twice.fields[1].type is pairs.differential
    assert isinstance(pairs.differential, RecordType)
    assert pairs.differential.differential is pairs.differential


def test_differentiable_type_dictionaries():
    """Differentiable Type Dictionaries: each function knows the differentiable types it uses, and their conformance."""

    @lg.differentiable
    def f(o: Outer, n: int) -> float:
        return o.inner.weight * n + o.offset.x

    types = f.differentiable_types()
    assert types[Outer.__livegrad_type__] is Outer.Differential
    assert types[Inner.__livegrad_type__] is Inner.Differential
    assert types[lg.f64] is lg.f64
    assert lg.i64 not in types


def test_generic_types():
    """Looking up Differential Info on Generic types: `T myFunc<T:IDifferentiable>(T a) { return a * a; }`."""
    T = TypeVar("T", bound=lg.Differentiable)

    @lg.differentiable
    def my_func(a: T) -> T:
        return a * a  # type: ignore

    assert lg.bwd_diff(my_func)(3.0, 1.0) == (6.0,)
    (gradient,) = lg.bwd_diff(my_func)(lg.dvec2(3.0, 4.0), lg.dvec2(1.0, 1.0))
    np.testing.assert_array_equal(gradient, [6.0, 8.0])
    assert lg.fwd_diff(my_func)(lg.pair(np.float32(3.0), np.float32(1.0))).differential.dtype == np.float32
    with pytest.raises(lg.FunctionError, match=r"LG402.*must be differentiable, found int"):
        my_func(3)


def test_generic_functions_use_the_protocol_of_their_type():
    """Looking up Differential Info on Generic types: T.dzero, T.dadd inside a generic function."""
    T = TypeVar("T", bound=lg.Differentiable)

    @lg.differentiable
    def triple(kind, a: T) -> T:
        return lg.dadd(kind, lg.dadd(kind, a, a), lg.dadd(kind, lg.dzero(kind), lg.dmul(kind, 1.0, a)))

    assert triple(float, 2.0) == 6.0
    assert lg.bwd_diff(triple)(float, 2.0, 1.0) == (3.0,)


def test_type_variables_look_up_the_operations_of_their_type():
    """Looking up Differential Info on Generic types: `T.Differential da = T.dzero(); da = T.dadd(dpa.p * dOut, da)`."""
    T = TypeVar("T", bound=lg.Differentiable)

    @lg.differentiable
    def bwd_my_func(p: T, d_out: T) -> T:
        da = T.dzero()  # type: ignore
        da = T.dadd(p * d_out, da)  # type: ignore
        return T.dadd(p * d_out, da)  # type: ignore

    assert bwd_my_func(3.0, 1.0) == 6.0
    np.testing.assert_array_equal(bwd_my_func(lg.dvec2(3.0, 4.0), lg.dvec2(1.0, 0.5)), [6.0, 4.0])


@lg.interface
class IInterface:
    @lg.differentiable
    def foo(self, val: float) -> "IInterface": ...

    @lg.differentiable
    def bar(self) -> float: ...


@lg.differentiable
class Linear(IInterface):
    k: float

    @lg.differentiable
    def foo(self, val: float) -> "Linear":
        return Linear(self.k * val)

    @lg.differentiable
    def bar(self) -> float:
        return 3.0 * self.k


@lg.differentiable
class Quadratic(IInterface):
    n: int
    p: float
    q: float

    @lg.differentiable
    def foo(self, val: float) -> "Quadratic":
        return Quadratic(self.n, self.p + val, self.q)

    @lg.differentiable
    def bar(self) -> float:
        return self.p * self.p * self.q


@lg.differentiable
def my_func(obj: IInterface, a: float) -> float:
    k = obj.foo(a)
    return k.bar()


@pytest.mark.parametrize("obj", [Linear(2.0), Quadratic(7, 2.0, 5.0)], ids=repr)
def test_existential_types_are_dispatched_at_run_time(obj: Any):
    """Looking up Differential Info on Existential types: the example `myFunc(IInterface obj, float a)`."""
    assert my_func(obj, 1.5) == my_func.python(obj, 1.5)


def test_differential_type_of_an_existential():
    """Differential type of an Existential: that of the concrete type which the value has at run time."""
    assert lg.bwd_diff(my_func)(Linear(2.0), 1.5, 1.0) == (Linear.Differential(4.5), 6.0)
    d, da = lg.bwd_diff(my_func)(Quadratic(7, 2.0, 5.0), 1.5, 1.0)
    assert d == Quadratic.Differential(p=2 * 3.5 * 5.0, q=3.5**2)
    assert da == 35.0


def test_an_existential_is_as_large_as_the_largest_implementer_in_use():
    """Differential type of an Existential, any-value-size inference: no larger than the types that are there."""
    layout = IInterface.__livegrad_type__.ir
    assert isinstance(layout, Struct)
    assert [str(type) for _, type in layout.fields] == ["i32", "f64", "f64", "i64"]


def test_second_derivatives_through_an_existential():
    """Existential types nest like all others."""

    @lg.differentiable
    def slope(obj: IInterface, a: float) -> float:
        return lg.bwd_diff(my_func)(obj, a, 1.0)[1]

    assert slope(Quadratic(0, 2.0, 5.0), 1.5) == 35.0
    d, second = lg.bwd_diff(slope)(Quadratic(0, 2.0, 5.0), 1.5, 1.0)
    assert second == 10.0
    assert d == Quadratic.Differential(p=10.0, q=7.0)


def test_dzero_for_closed_existential_types_is_the_null_differential():
    """`dzero()` for "closed" Existential type: NullDifferential, the none type of any existential."""
    assert lg.dzero(IInterface) == lg.NullDifferential()
    null = lg.NullDifferential()
    assert lg.fwd_diff(my_func)(lg.pair(Linear(2.0), null), lg.pair(1.5, 1.0)).differential == 6.0


def test_dadd_for_closed_existential_types():
    """`dadd()` for "closed" Existential types: null gives way, equal types are added, others are refused."""
    null, d = lg.NullDifferential(), Linear.Differential(2.0)
    assert lg.dadd(IInterface, null, null) == null
    assert lg.dadd(IInterface, null, d) == d
    assert lg.dadd(IInterface, d, null) == d
    assert lg.dadd(IInterface, d, d) == Linear.Differential(4.0)
    with pytest.raises(TypeError, match="different types"):
        lg.dadd(IInterface, d, Quadratic.Differential(1.0, 1.0))


def test_dadd_and_dzero_for_closed_existential_types_in_functions():
    """The same inside functions, where the tag is known when they run."""

    @lg.function
    def total(a: IInterface.__livegrad_type__.differential, b: IInterface.__livegrad_type__.differential):
        return lg.dadd(IInterface, lg.dadd(IInterface, lg.dzero(IInterface), a), lg.dmul(IInterface, 2.0, b))

    null, d = lg.NullDifferential(), Linear.Differential(2.0)
    assert total(null, null) == null
    assert total(d, null) == d
    assert total(null, d) == Linear.Differential(4.0)
    assert total(d, d) == Linear.Differential(6.0)
    with pytest.raises(Exception, match="cannot add differentials of different types"):
        total(d, Quadratic.Differential(1.0, 1.0))


def test_dadd_and_dzero_for_open_existential_types():
    """`dadd()` and `dzero()` for "open" Existential types: those of the concrete type."""

    @lg.function
    def total(a: Linear.Differential, b: Linear.Differential):
        return Linear.dadd(Linear.dadd(a, b), Linear.dzero())

    assert total(Linear.Differential(1.0), Linear.Differential(2.0)) == Linear.Differential(3.0)


def test_an_existential_value_is_opened_by_asking_for_its_type():
    """`dadd()` and `dzero()` for "open" Existential types: the concrete value, and the operations of its type."""

    @lg.differentiable
    def opened(obj: IInterface, a: float) -> float:
        if isinstance(obj, Linear):
            return Linear.dadd(Linear.dzero(), lg.bwd_diff(Linear.bar)(obj, a)[0]).k * obj.k
        return obj.bar()

    assert opened(Linear(2.0), 5.0) == 3.0 * 5.0 * 2.0
    assert lg.bwd_diff(opened)(Linear(2.0), 5.0, 1.0) == (Linear.Differential(15.0), 6.0)
    assert opened(Quadratic(0, 2.0, 5.0), 5.0) == 20.0


def test_derivatives_of_interface_and_constrained_methods():
    """Type Checking of Auto-Diff Calls: the methods of interfaces, and of types bound to one, are functions too."""
    T = TypeVar("T", bound=IInterface)

    @lg.differentiable
    def by_bound(obj: T, a: float) -> float:
        return lg.fwd_diff(obj.foo)(lg.pair(a, 1.0)).primal.bar()

    assert lg.bwd_diff(IInterface.bar)(Linear(2.0), 1.0) == (Linear.Differential(3.0),)
    assert by_bound(Linear(2.0), 1.5) == my_func(Linear(2.0), 1.5)
    assert lg.bwd_diff(by_bound)(Linear(2.0), 1.5, 1.0) == (Linear.Differential(4.5), 6.0)


def test_a_differential_of_another_type_than_the_value_is_refused():
    """A pair whose tags do not fit is an error when it is used, never a wrong number."""
    with pytest.raises(Exception, match="different type"):
        lg.fwd_diff(my_func)(lg.pair(Linear(2.0), Quadratic.Differential(1.0, 1.0)), lg.pair(1.5, 0.0))


def test_differential_pairs_have_a_primal_and_a_differential():
    """`struct DifferentialPair<T>`: passes and receives derivatives."""

    @lg.differentiable
    def f(x: float) -> float:
        return math.sin(x)

    result = lg.fwd_diff(f)(lg.pair(1.0, 2.0))
    assert (result.primal, result.differential) == (f(1.0), 2.0 * math.cos(1.0))


def test_pairs_are_lowered_to_structs():
    """Pair type lowering: once differentiation is done, a pair is a struct and its accessors field reads."""

    @lg.differentiable
    def f(p: lg.Pair[float]) -> float:
        return p.primal * p.differential

    function = f.specialization_for().function
    assert "struct Pair[float]" in print_function(function) or isinstance(function.parameter_types[0], Struct)
    lowered = lower(function)
    assert isinstance(lowered.parameter_types[0], Struct)


def test_user_code_pairs_are_ordinary_structs_for_the_outer_derivative():
    """ "User-code" Differential Pairs: differentiating code that uses pairs."""

    @lg.differentiable
    def f(x: float) -> float:
        return x * x * x

    @lg.differentiable
    def g(x: float, dx: float) -> float:
        inner = lg.fwd_diff(f)(lg.pair(x, dx))
        return inner.primal + inner.differential

    assert g(2.0, 3.0) == 8.0 + 36.0
    assert lg.bwd_diff(g)(2.0, 3.0, 1.0) == (12.0 + 36.0, 12.0)
    assert lg.fwd_diff(g)(lg.pair(2.0, 1.0), lg.pair(3.0, 0.0)).differential == 48.0


@pytest.mark.parametrize("modes", ["ff", "fr", "rf", "rr"])
def test_derivatives_nest_in_every_combination(modes: str):
    """Both operators are function-to-function transformations, also of each other's results."""

    @lg.differentiable
    def f(x: float) -> float:
        return x * x * x * math.sin(x)

    x = 1.3
    second = 6 * x * math.sin(x) + 6 * x * x * math.cos(x) - x**3 * math.sin(x)
    first = 3 * x * x * math.sin(x) + x**3 * math.cos(x)
    got = {
        "ff": lambda: (
            lg.fwd_diff(lg.fwd_diff(f))(lg.pair(lg.pair(x, 1.0), lg.pair(1.0, 0.0))).differential.differential
        ),
        "fr": lambda: lg.fwd_diff(lg.bwd_diff(f))(lg.pair(x, 1.0), lg.pair(1.0, 0.0)).differential[0],
        "rf": lambda: lg.bwd_diff(lg.fwd_diff(f))(lg.pair(x, 1.0), lg.pair(0.0, 1.0))[0].primal,
        "rr": lambda: lg.bwd_diff(lg.bwd_diff(f))(x, 1.0, (1.0,))[0],
    }[modes]()
    assert math.isclose(got, second, rel_tol=1e-13)
    assert math.isclose(lg.bwd_diff(f)(x, 1.0)[0], first, rel_tol=1e-13)


def test_higher_order_function_call_checking_resolves_overloads_on_transformed_signatures():
    """Higher-order Function Call Checking: the example with `f: int -> float` and `f: double, double -> float`."""

    @lg.differentiable
    def f(n: int) -> lg.f32:
        return lg.f32(n)

    @f.overload
    def _(x: lg.f64, y: lg.f64) -> lg.f32:
        return lg.f32(x * y)

    one, zero, three = np.float32(1.0), np.float32(0.0), np.float32(3.0)
    result = lg.fwd_diff(f)(lg.pair(three, zero), lg.pair(one, one))
    assert result.primal.dtype == np.float32
    assert (result.primal, result.differential) == (3.0, 3.0)
    assert lg.fwd_diff(f)(5) == lg.pair(np.float32(5.0), np.float32(0.0))


def test_higher_order_calls_are_checked_inside_functions():
    """Type Checking of Auto-Diff Calls: arguments are checked and widened in functions as from Python."""

    @lg.differentiable
    def f(x: lg.f64) -> lg.f64:
        return x * x  # type: ignore

    @lg.differentiable
    def g(x: lg.f32) -> lg.f64:
        return lg.fwd_diff(f)(lg.pair(x, lg.f32(1.0))).differential

    assert g(3.0) == 6.0
    assert lg.bwd_diff(g)(3.0, 1.0) == (2.0,)


def test_attributed_types_no_diff_parameters():
    """Attributed Types: `float myFunc(float a, no_diff float b)` and its forward derivative."""

    @lg.differentiable
    def f(a: float, b: lg.no_diff[float]) -> float:
        return a * b

    assert lg.fwd_diff(f)(lg.pair(2.0, 1.0), 5.0) == lg.pair(10.0, 5.0)
    assert lg.bwd_diff(f)(2.0, 5.0, 1.0) == (5.0, None)
    with pytest.raises(lg.FunctionError, match="LG310: `f`: `b` has no derivative and takes no pair"):
        lg.fwd_diff(f)(lg.pair(2.0, 1.0), lg.pair(5.0, 1.0))


def test_no_diff_is_irrelevant_where_types_are_compared():
    """Attributed Types: unwrapped for equality and overloads."""

    @lg.differentiable
    def f(a: lg.no_diff[float]) -> float:
        return a  # type: ignore

    @lg.differentiable
    def g(x: float) -> float:
        return f(x) + x

    assert g(2.0) == 4.0
    assert lg.bwd_diff(g)(2.0, 1.0) == (1.0,)


def test_derivative_data_flow_analysis_finds_a_forgotten_annotation():
    """Derivative Data-Flow Analysis: the example without `no_diff`."""
    names = lg.run_source(
        "def non_diff_func(x: float) -> float:\n"
        "    return x + 1.0\n"
        "def differentiable_func(x: float) -> float:  # forgot to annotate\n"
        "    return x * x\n"
        "@lg.differentiable\n"
        "def main(x: float) -> float:\n"
        "    return non_diff_func(x) * differentiable_func(x)\n",
        {"lg": lg},
    )
    with pytest.raises(lg.FunctionError, match=r"LG301: the derivative is lost in the call of `non_diff_func`"):
        names["main"](1.0)


def test_derivative_data_flow_analysis_accepts_no_diff():
    """Derivative Data-Flow Analysis: the same example with `no_diff` enforcement."""

    def non_diff_func(x: float) -> float:
        return x + 1.0

    @lg.differentiable
    def differentiable_func(x: float) -> float:
        return x * x

    @lg.differentiable
    def main(x: float) -> float:
        return lg.no_diff(non_diff_func(x)) * differentiable_func(x)

    assert main(3.0) == 36.0
    assert lg.bwd_diff(main)(3.0, 1.0) == (4.0 * 6.0,)


def test_derivative_data_flow_analysis_leaves_alone_what_expects_no_derivative():
    """Derivative Data-Flow Analysis, points 1 and 2: only what expects a derivative must produce one."""

    def non_diff_func(x: float) -> float:
        return x + 1.0

    @lg.differentiable
    def main(x: float) -> float:
        if non_diff_func(x) > 2.0:
            return x * non_diff_func(3.0)
        return x

    assert lg.bwd_diff(main)(5.0, 1.0) == (4.0,)


def test_no_diff_goes_only_on_calls():
    """Derivative Data-Flow Analysis: a `no_diff` can only be used directly on a function call."""

    @lg.differentiable
    def main(x: float) -> float:
        return lg.no_diff(x * 2.0) * x

    with pytest.raises(lg.FunctionError, match="LG303"):
        main(1.0)
