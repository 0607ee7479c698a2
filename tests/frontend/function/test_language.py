"""The language beyond the corpus of programs: types, mapping over arrays, aliasing, overloads, printing, checks."""

import math
from typing import Any, Literal

import numpy as np
import pytest

import livegrad as lg
from livegrad.frontend.function.execution import apply_mapped
from livegrad.ir.leaves import parameter
from livegrad.ir.types import Tensor


def test_literals_take_the_type_of_the_other_operand():
    @lg.function
    def f(x: lg.f32):
        return 1.0 + x * 2 - 0.1

    assert f(1.0).dtype == np.float32


def test_an_accumulator_takes_the_type_that_is_added_to_it():
    @lg.function
    def f(x: lg.f32, n: int):
        total = 0.0
        for _ in range(n):
            total += x
        return total

    assert f(0.1, 3).dtype == np.float32
    assert f(0.1, 3) == np.float32(0.1) + np.float32(0.1) + np.float32(0.1)


def test_an_integer_accumulator_becomes_a_float_when_floats_are_added():
    @lg.function
    def f(x: float, n: int):
        total = 0
        for _ in range(n):
            total += x
        return total

    assert f(0.5, 3) == 1.5


def test_casts():
    @lg.function
    def f(x: float):
        return lg.f32(x), lg.i32(x), int(x), float(3), bool(x)

    assert f(2.7) == (np.float32(2.7), 2, 2, 3.0, True)


def test_scalars_are_mapped_over_arrays():
    @lg.differentiable
    def f(x: float, y: float) -> float:
        if x > y:
            return x - y
        return 0.0

    xs = np.linspace(0.0, 1.0, 12).reshape(3, 4)
    np.testing.assert_array_equal(f(xs, 0.5), np.where(xs > 0.5, xs - 0.5, 0.0))
    np.testing.assert_array_equal(f(xs[:, :1], xs[:1]), np.maximum(xs[:, :1] - xs[:1], 0.0))


def test_vectors_and_structs_are_mapped_over_arrays():
    @lg.differentiable
    class Ball:
        center: lg.dvec3
        radius: float

    @lg.differentiable
    def distance(p: lg.dvec3, ball: Ball) -> float:
        return lg.length(p - ball.center) - ball.radius

    points = np.random.default_rng(0).standard_normal((5, 2, 3))
    ball = Ball(lg.dvec3(0.1, 0.2, 0.3), 0.5)
    expected = np.linalg.norm(points - ball.center, axis=-1) - 0.5
    np.testing.assert_allclose(distance(points, ball), expected, rtol=1e-14)
    balls = Ball(np.random.default_rng(1).standard_normal((2, 3)), np.array([0.5, 1.0]))
    expected = np.linalg.norm(points - balls.center, axis=-1) - balls.radius
    np.testing.assert_allclose(distance(points, balls), expected, rtol=1e-14)


def test_a_mapped_function_on_nodes_broadcasts():
    @lg.function
    def add(x: float, y: float) -> float:
        return x + y

    function = add.specialization_for().function
    nodes = [parameter(0, Tensor(lg.f64, (4, 1))), parameter(1, Tensor(lg.f64, (5,)))]
    assert apply_mapped(function, nodes).type is Tensor(lg.f64, (4, 5))
    assert apply_mapped(function, [nodes[0], parameter(1, lg.f64)]).type is Tensor(lg.f64, (4, 1))


def test_components_of_vectors_are_read_and_changed():
    @lg.differentiable
    def f(v: lg.dvec3) -> float:
        v.x += v.y * v.z
        v.z = v.x
        v[1] *= 2.0
        v.xy = v.yx
        return v.x + 10.0 * v.y + 100.0 * v.z

    x, y, z = 1.0, 2.0, 3.0
    x2 = x + y * z
    assert f(lg.dvec3(x, y, z)) == 2 * y + 10.0 * x2 + 100.0 * x2
    (gradient,) = lg.bwd_diff(f)(lg.dvec3(x, y, z), 1.0)
    np.testing.assert_allclose(gradient, [110.0, 2.0 + 110.0 * z, 110.0 * y])


def test_read_modify_write_of_components_in_a_loop():
    @lg.differentiable
    def f(v: lg.dvec3, n: int) -> float:
        for i in range(n):
            v[i % 3] = v[i % 3] * v[(i + 1) % 3]
        return v.x + v.y + v.z

    def by_hand(v, n):
        v = list(v)
        for i in range(n):
            v[i % 3] = v[i % 3] * v[(i + 1) % 3]
        return sum(v)

    start = [1.1, 0.9, 1.3]
    (gradient,) = lg.bwd_diff(f)(lg.dvec3(*start), 5, 1.0)[:1]
    for k in range(3):
        step = np.eye(3)[k] * 1e-6
        difference = (by_hand(start + step, 5) - by_hand(start - step, 5)) / 2e-6
        assert math.isclose(gradient[k], difference, rel_tol=1e-8)


def test_matrices():
    @lg.differentiable
    def f(m: lg.dmat2, v: lg.dvec2) -> float:
        w = m @ v
        m[0, 1] = 3.0
        return lg.dot(w, w) + lg.determinant(m) + (m @ m)[1, 0] + m[0][0]

    m, v = lg.dmat2(1.0, 2.0, 3.0, 4.0), lg.dvec2(0.5, 0.25)
    changed = np.array([[1.0, 3.0], [3.0, 4.0]])
    expected = np.sum((np.asarray(m) @ v) ** 2) + np.linalg.det(changed) + (changed @ changed)[1, 0] + 1.0
    assert math.isclose(f(m, v), expected)
    assert lg.bwd_diff(f)(m, v, 1.0)[0][0, 1] == 2.0 * (1.0 * 0.5 + 2.0 * 0.25) * 0.25


def test_geometry():
    @lg.function
    def f(a: lg.dvec3, b: lg.dvec3):
        return lg.cross(a, b), lg.normalize(a), lg.mix(a, b, 0.5), lg.clamp(a.x, 0.0, 0.5), lg.smoothstep(0.0, 1.0, b.y)

    a, b = lg.dvec3(1.0, 2.0, 3.0), lg.dvec3(0.5, 0.25, 0.125)
    for got, expected in zip(f(a, b), f.python(a, b), strict=True):
        np.testing.assert_allclose(got, expected)


def test_arguments_are_values():
    """Changing a parameter changes a copy of the caller's value."""

    @lg.function
    def f(values: list[float]):
        values[0] = 5.0
        return values[0] + values[1]

    values = [1.0, 2.0]
    assert f(values) == 7.0
    assert values == [1.0, 2.0]


def test_a_copy_can_be_changed():
    @lg.function
    def f(x: float):
        a = [x, 2.0]
        b = list(a)
        b[0] = 7.0
        c = a.copy()
        c[1] = 9.0
        return a[0] + b[0] + c[1]

    assert f(1.0) == 17.0


def test_overloads_are_chosen_by_type_with_the_fewest_conversions():
    @lg.function
    def kind(x: int) -> int:
        return 1

    @kind.overload
    def _(x: float) -> int:
        return 2

    @kind.overload
    def _(x: lg.dvec2) -> int:
        return 3

    assert [kind(1), kind(1.0), kind(lg.dvec2(1.0)), kind(np.float32(2.0))] == [1, 2, 3, 2]


def test_overloads_inside_functions():
    @lg.differentiable
    def half(x: float) -> float:
        return x / 2.0

    @half.overload
    def _(x: int) -> int:
        return x // 2

    @lg.differentiable
    def f(x: float, n: int) -> float:
        return half(x) * half(n)

    assert f(3.0, 5) == 3.0


def test_defaults_and_keywords():
    @lg.differentiable
    def f(x: float, scale: float = 2.0, *, offset: float = 1.0) -> float:
        return x * scale + offset

    @lg.differentiable
    def g(x: float) -> float:
        return f(x, offset=x) + f(x, 3.0) + f(scale=x, x=2.0)

    assert f(3.0) == 7.0
    assert f(3.0, offset=0.0) == 6.0
    assert g(5.0) == (10.0 + 5.0) + (15.0 + 1.0) + (10.0 + 1.0)


def test_functions_as_arguments():
    @lg.differentiable
    def twice(f, x: float) -> float:
        return f(f(x))

    @lg.differentiable
    def square(x: float) -> float:
        return x * x

    @lg.differentiable
    def use(x: float) -> float:
        return twice(square, x)

    assert use(3.0) == 81.0
    assert twice(square, 2.0) == 16.0
    assert lg.bwd_diff(use)(3.0, 1.0) == (108.0,)


def test_unrolled_loops():
    @lg.differentiable
    def f(x: float) -> float:
        items = (1.0, x, lg.dvec2(x, 2.0))
        total = 0.0
        for k in lg.unroll(range(2)):
            total += items[k] * x
        for k in lg.unroll(range(10)):
            if total > 20.0:
                break
            total += k * x
        return total + items[2].y

    assert f(2.0) == f.python(2.0)
    assert "for_loop" not in f.ir()


def test_asserts_and_raises_end_the_run():
    @lg.differentiable
    def f(x: float, n: int) -> float:
        assert x > 0.0, "x must be positive"
        for _ in range(n):
            if x > 100.0:
                raise ValueError("too large")
            x = x * 10.0
        return x

    assert f(1.0, 2) == 100.0
    with pytest.raises(Exception, match="x must be positive"):
        f(-1.0, 0)
    with pytest.raises(Exception, match="ValueError: too large"):
        f(1.0, 5)


def test_printing(capsys: pytest.CaptureFixture[str]):
    @lg.differentiable
    def f(x: float, n: int) -> float:
        print("start", x)
        for i in range(n):
            x = x * 2.0
            if i > 0:
                print(i, x)
        return x

    assert f(1.0, 3) == 8.0
    assert capsys.readouterr().out == "start 1.0\n1 4.0\n2 8.0\n"


def test_running_past_the_limit_of_bounded_is_an_error():
    @lg.differentiable
    def f(x: float) -> float:
        while lg.bounded(x < 1000.0, 5):
            x = x * 2.0
        return x

    assert f(100.0) == 1600.0
    assert lg.bwd_diff(f)(100.0, 1.0) == (16.0,)
    with pytest.raises(Exception, match="limit"):
        f(1.0)


def test_an_untaken_branch_causes_no_nan_in_gradients():
    @lg.differentiable
    def f(x: float) -> float:
        if x > 0.0:
            return math.sqrt(x) + math.log(x)
        return 2.0 * x

    assert lg.bwd_diff(f)(0.0, 1.0) == (2.0,)
    assert lg.fwd_diff(f)(lg.pair(0.0, 1.0)).differential == 2.0


def test_ties_of_max_split_evenly():
    @lg.differentiable
    def f(x: float, y: float) -> float:
        return max(x, y)

    assert lg.bwd_diff(f)(1.0, 1.0, 1.0) == (0.5, 0.5)


def test_a_sum_over_a_loop_stores_nothing_for_reverse_mode():
    @lg.differentiable
    def f(x: float, n: int) -> float:
        total = 0.0
        for i in range(n):
            total += math.sin(x * i)
        return total

    assert "trace" not in lg.bwd_diff(f).ir()


def test_the_dictionary_of_differentiable_types():
    @lg.differentiable
    class Thing:
        x: float
        n: int

    @lg.differentiable
    def f(t: Thing, v: lg.vec3) -> float:
        return t.x * lg.f64(v.x)

    types = f.differentiable_types()
    assert types[Thing.__livegrad_type__] is Thing.Differential
    assert types[lg.vec3.type] is lg.vec3.type
    assert lg.i64 not in types


def test_plain_python_steps_into_called_functions():
    seen = []

    def note(x: float) -> float:
        seen.append(x)
        return x

    inner = lg.function(note)

    @lg.function
    def half(x: float) -> float:
        return inner(x) * lg.f64(0.5)

    @half.overload
    def _(x: int) -> int:
        return x // 2

    @lg.function
    def f(values: list[float]) -> float:
        values[0] = half(values[0])
        return values[0] + half(3)

    values = [4.0]
    assert f.python(values) == 3.0
    assert seen == [4.0]
    assert values == [4.0]


def test_structs_of_equal_layout_are_distinguished():
    def make() -> Any:
        @lg.differentiable
        class Point:
            x: float

        return Point

    first, second = make(), make()

    @lg.differentiable
    def f(p) -> float:
        return p.x * p.x

    (a,), (b,) = lg.bwd_diff(f)(first(3.0), 1.0), lg.bwd_diff(f)(second(3.0), 1.0)
    assert a == first.Differential(6.0)
    assert b == second.Differential(6.0)
    assert a.__livegrad_type__ is not b.__livegrad_type__


def test_a_value_shared_in_a_branch_or_loop_cannot_be_changed_in_place():
    @lg.function
    def f(x: float, n: int):
        a = [x, x]
        b = [x, 1.0]
        for i in range(n):
            b[0] = x * i
            b = a
        return a[0] + b[0]

    with pytest.raises(lg.FunctionError, match="LG106"):
        f(1.0, 3)

    @lg.function
    def g(x: float):
        a = [x, x]
        b = [1.0, 2.0]
        if x > 0.0:
            b = a
        b[0] = 5.0
        return a[0]

    with pytest.raises(lg.FunctionError, match="LG106"):
        g(1.0)


def test_arrays_that_are_read_by_index():
    @lg.differentiable
    def loss(
        x: lg.tensor[float, Literal[2]], w: lg.tensor[float, Literal[1]], y: lg.no_diff[lg.tensor[float, Literal[1]]]
    ) -> float:
        total = 0.0
        for i in range(len(x)):
            predicted = 0.0
            for j in range(x.shape[1]):
                predicted += x[i, j] * w[j]
            total += (predicted - y[i]) ** 2
        for weight in w:
            total += 0.1 * weight * weight
        return total / x.shape[0] + w[-1]

    rng = np.random.default_rng(0)
    x, w, y = rng.standard_normal((50, 4)), rng.standard_normal(4), rng.standard_normal(50)
    residual = x @ w - y
    assert math.isclose(loss(x, w, y), (residual @ residual + 0.1 * w @ w) / 50 + w[-1])
    dx, dw, dy = lg.bwd_diff(loss)(x, w, y, 1.0)
    np.testing.assert_allclose(dx, 2.0 * np.outer(residual, w) / 50, rtol=1e-12)
    np.testing.assert_allclose(dw, (2.0 * x.T @ residual + 0.2 * w) / 50 + [0, 0, 0, 1], rtol=1e-12)
    assert dy is None
    moved = lg.fwd_diff(loss)(lg.pair(x, np.zeros_like(x)), lg.pair(w, np.ones(4)), y)
    assert math.isclose(moved.differential, dw.sum())


def test_checks_of_called_functions_are_effective():
    def require(x: float) -> None:
        assert x > 0.0, "x must be positive"

    def both(x: float) -> None:
        require(x)
        require(x + 1.0)

    @lg.differentiable
    def f(x: float, n: int) -> float:
        for i in range(n):
            both(x - i)
        return 2.0 * x

    assert f(3.0, 3) == 6.0
    with pytest.raises(Exception, match="x must be positive"):
        f(3.0, 4)


def test_long_unrolled_loops():
    @lg.function
    def f(x: float) -> float:
        for k in lg.unroll(range(1500)):
            x = x + k
        return x

    assert f(0.0) == sum(range(1500))


def test_structs_are_compared_field_by_field():
    @lg.differentiable
    class Point:
        v: lg.dvec2
        n: int

    @lg.function
    def same(a: Point, b: Point) -> bool:
        return a == b

    assert same(Point(lg.dvec2(1.0, 2.0), 3), Point(lg.dvec2(1.0, 2.0), 3))
    assert not same(Point(lg.dvec2(1.0, 2.0), 3), Point(lg.dvec2(1.0, 2.5), 3))
    assert not same(Point(lg.dvec2(1.0, 2.0), 3), Point(lg.dvec2(1.0, 2.0), 4))


def test_python_numbers_match_overloads_of_every_width():
    @lg.function
    def f(x: lg.f32) -> int:
        return 1

    @f.overload
    def _(x: lg.vec2) -> int:
        return 2

    assert f(1.0) == 1


def test_a_loop_without_iterations_has_zero_derivatives_even_if_its_body_has_infinite_ones():
    @lg.differentiable
    def counted(k: float, n: int) -> float:
        s = 3.0
        for _ in range(n):
            s = s * math.sqrt(k) + math.log(k)
        return s

    @lg.differentiable
    def tested(k: float, n: int) -> float:
        s, i = 3.0, 0
        while i < n:
            s, i = s / k, i + 1
        return s

    @lg.differentiable
    def slopes(k: float, n: int) -> float:
        return lg.bwd_diff(counted)(k, n, 1.0)[0] + lg.bwd_diff(tested)(k, n, 1.0)[0]

    assert [lg.bwd_diff(f)(0.0, 0, 1.0)[0] for f in (counted, tested, slopes)] == [0.0, 0.0, 0.0]
    assert slopes(4.0, 1) == 3.0 / 4.0 + 1.0 / 4.0 - 3.0 / 16.0


def test_a_positional_only_parameter_is_not_a_keyword() -> None:
    @lg.function
    def scaled(a: float, /, b: float = 2.0) -> float:
        return a * b

    assert scaled(1.5, b=4.0) == 6.0
    with pytest.raises(lg.LivegradError, match="takes `a` by position"):
        scaled(a=1.5)
