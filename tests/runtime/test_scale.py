"""Large programs in native code: many ops, deep loops, wide vectors, nested structs, many parameters and results."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import livegrad as lg
from livegrad import compiler, ops
from livegrad.ir.node import Module
from livegrad.ir.walk import reachable_functions
from livegrad.runtime.cpu.native.pool import set_threads, threads

N = lg.ir.Dimension.symbol("n")


@pytest.fixture(autouse=True)
def _keep_threads() -> Iterator[None]:
    before = threads()
    yield
    set_threads(before)


def test_three_thousand_ops_in_one_kernel() -> None:
    def long_chain(x: lg.ir.Node) -> lg.ir.Node:
        value = x
        for number in range(1000):
            value = ops.sqrt(value * value + float(number % 7)) * 0.5
        return value

    function = lg.ir.trace(long_chain, lg.f64)
    values = np.linspace(0, 1, 37)
    expected = values
    for number in range(1000):
        expected = np.sqrt(expected * expected + number % 7) * 0.5
    np.testing.assert_allclose(lg.ir.compile(lg.ir.map_over(function))(values), expected, rtol=1e-12)


def _nest(depth: int, value: lg.ir.Node) -> lg.ir.Node:
    if depth == 0:
        return value * 1.01 + 0.001

    def body(index: lg.ir.Node, inner: lg.ir.Node) -> lg.ir.Node:
        return _nest(depth - 1, inner + ops.cast(index, type=lg.f64) * 0.01)

    return ops.make_for_loop(lg.ir.constant(3, lg.i64), body, value)[0]


def test_loops_six_deep_and_their_derivative() -> None:
    function = lg.ir.trace(lambda x: _nest(6, x), lg.f64)
    values = np.linspace(0, 1, 19)
    actual = lg.ir.compile(lg.ir.map_over(function))(values)
    np.testing.assert_allclose(actual[::6], [lg.ir.evaluate(function, v) for v in values[::6]], rtol=1e-12)
    gradient = lg.ir.compile(lg.ir.map_over(lg.vjp(function)))(values, np.ones(19))
    np.testing.assert_allclose(gradient, np.full(19, 1.01**729), rtol=1e-9)


def test_loops_that_end_differently_in_every_lane_six_deep() -> None:
    def nest(depth: int, value: lg.ir.Node) -> lg.ir.Node:
        if depth == 0:
            return value * 1.01 + 0.001
        iterations = ops.cast(ops.mod(ops.floor(value * 7.0), 3.0), type=lg.i64)
        return ops.make_for_loop(iterations + 1, lambda i, inner: nest(depth - 1, inner), value)[0]

    function = lg.ir.trace(lambda x: nest(6, x), lg.f64)
    values = np.linspace(0, 3, 101)
    actual = lg.ir.compile(lg.ir.map_over(function))(values)
    np.testing.assert_allclose(actual[::9], [lg.ir.evaluate(function, v) for v in values[::9]], rtol=1e-9)


def test_vectors_of_sixty_four_components() -> None:
    vector = lg.ir.Vector(lg.f32, 64)
    function = lg.ir.trace(lambda a, b: (ops.dot(a, b), a * b + a), vector, vector)
    left = np.random.default_rng(0).random((50, 64), dtype=np.float32)
    right = left[::-1].copy()
    products, sums = lg.ir.compile(lg.ir.map_over(function))(left, right)
    np.testing.assert_allclose(products, (left * right).sum(1), rtol=1e-5)
    np.testing.assert_allclose(sums, left * right + left, rtol=1e-6)


def test_structs_in_structs_go_in_and_out() -> None:
    inner = lg.ir.Struct("Inner", (("place", lg.ir.Vector(lg.f32, 3)), ("kind", lg.i32)))
    fields = (("first", inner), ("turn", lg.ir.Matrix(lg.f32, 2, 2)), ("both", lg.ir.Tuple((lg.f64, inner))))
    outer = lg.ir.Struct("Outer", (*fields, ("all", lg.ir.Array(inner, 2)), ("grid", lg.ir.types.Tensor(lg.u8, (N,)))))
    item = ([1.0, 2.0, 3.0], 4)
    value = (item, [[1.0, 2.0], [3.0, 4.0]], (5.5, item), (item, item), np.array([7, 8], np.uint8))

    def plain(part: Any) -> Any:
        return [plain(member) for member in part] if isinstance(part, tuple | list) else np.asarray(part).tolist()

    same = lg.ir.compile(lg.ir.trace(lambda x: x, outer))
    assert plain(same(value)) == plain(value)
    swapped = lg.ir.compile(lg.ir.trace(lambda x: ops.get(ops.get(ops.get(x, index=2), index=1), index=0), outer))
    assert swapped(value).tolist() == [1.0, 2.0, 3.0]


@pytest.mark.parametrize("type", [lg.f32, lg.ir.types.Tensor(lg.f32, (N,))], ids=["scalars", "arrays"])
def test_a_hundred_parameters_and_results(type: Any) -> None:
    def mix(*values: lg.ir.Node) -> tuple[lg.ir.Node, ...]:
        return tuple(values[k] + values[(k + 1) % 100] * float(k) for k in range(100))

    inputs = [float(k) if type is lg.f32 else np.full(33, k, np.float32) for k in range(100)]
    results = lg.ir.compile(lg.ir.trace(mix, *[type] * 100))(*inputs)
    assert [np.ravel(result)[-1] for result in results] == [k + (k + 1) % 100 * k for k in range(100)]


def test_many_kernels_in_one_plan() -> None:
    def alternate(x: lg.ir.Node) -> lg.ir.Node:
        for _ in range(40):
            total = ops.reduce(x, kind="max", axes=(0,))
            x = x / ops.spread_back(total, (N,), (0,)) + 1.0
        return x

    values = np.linspace(1, 2, 1001)
    expected = values
    for _ in range(40):
        expected = expected / expected.max() + 1.0
    actual = lg.ir.compile(lg.ir.trace(alternate, lg.ir.types.Tensor(lg.f64, (N,))))(values)
    np.testing.assert_allclose(actual, expected, rtol=1e-12)


def test_many_sizes_in_a_row() -> None:
    compiled = lg.ir.compile(
        lg.ir.trace(lambda x: ops.reduce(x, kind="sum", axes=(0,)), lg.ir.types.Tensor(lg.i64, (N,)))
    )
    for size in range(140):
        assert compiled(np.arange(size)) == size * (size - 1) // 2


def test_more_threads_than_items_and_processors() -> None:
    set_threads(32)
    compiled = lg.ir.compile(lg.ir.trace(lambda x: x + 1.0, lg.ir.types.Tensor(lg.f32, (N,))))
    for size in (0, 1, 5, 100_000):
        assert np.all(compiled(np.zeros(size, np.float32)) == 1.0)


def _lowered_functions(depth: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """The number of functions that `lower` processes for the gradient of nested branches."""

    def level(depth: int, x: lg.Tensor) -> lg.Tensor:
        if not depth:
            return x * 2.0
        return lg.cond(x > 0.01 * depth, lambda: lg.sin(x) + level(depth - 1, x), lambda: x * x)

    lowered: list[int] = []
    original = compiler.lower_module

    def count(module: Module, *arguments: Any) -> Module:
        lowered.append(len(reachable_functions(module.functions)))
        return original(module, *arguments)

    monkeypatch.setattr(compiler, "lower_module", count)
    x = np.float64(0.5 + depth)  # a program that no other test compiles
    actual = lg.grad(lambda x: level(depth, x))(lg.asarray(x))
    np.testing.assert_allclose(actual, 2.0 + depth * np.cos(x), rtol=1e-12)
    monkeypatch.undo()
    return sum(lowered)


def test_nested_branches_are_lowered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    five, ten = (_lowered_functions(depth, monkeypatch) for depth in (5, 10))
    assert ten <= 2 * five
