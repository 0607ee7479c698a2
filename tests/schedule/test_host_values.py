"""Values that buffers cannot hold: tuples, tapes and complex numbers between kernels and host steps."""

from typing import Any

import numpy as np
import pytest

from livegrad.ir.function import trace
from livegrad.ir.leaves import constant
from livegrad.ir.node import Function, Node
from livegrad.ir.types import Tensor, c128, f64, i64
from livegrad.ops.aggregate import get, make_tuple
from livegrad.ops.control import make_cond, make_for_loop
from livegrad.ops.conversion import cast
from livegrad.ops.indexing import lookup
from livegrad.ops.maps import make_map
from livegrad.ops.movement import broadcast
from livegrad.ops.transcendental import sin
from livegrad.passes.differentiate.reverse import vjp
from livegrad.runtime.cpu import CpuFunction, run_function
from livegrad.runtime.reference import evaluate

TABLE = Tensor(f64, (5,))
VALUES = np.linspace(-1.0, 1.0, 5)


def assert_same(function: Function, *arguments: Any) -> None:
    actual, expected = run_function(function, *arguments), evaluate(function, *arguments)
    for a, b in zip(actual, expected, strict=True) if isinstance(expected, tuple) else [(actual, expected)]:
        np.testing.assert_allclose(a, b, rtol=1e-13, atol=1e-13)


def test_a_tuple_that_a_kernel_and_a_host_loop_use() -> None:
    def mixed(n: Node, x: Node, table: Node) -> tuple[Node, ...]:
        pair = make_cond(x > 0.0, lambda: (x * 2.0, x), lambda: (x, x))

        def step(i: Node, a: Node, b: Node) -> tuple[Node, Node]:
            return a * broadcast(get(b, index=0), shape=(5,), axes=()), b

        grown, kept = make_for_loop(n, step, table, pair)
        return grown, get(pair, index=1) + get(kept, index=0), table * 0.5

    assert_same(trace(mixed, i64, f64, TABLE), 3, 0.7, VALUES)


def test_all_results_of_a_map_that_a_host_loop_carries() -> None:
    two = trace(lambda a: (a * 2.0, sin(a)), f64)

    def carried(n: Node, table: Node) -> tuple[Node, Node]:
        both = make_map(two, table)
        last = make_for_loop(n, lambda i, p: make_tuple(get(p, index=0) + get(p, index=1), get(p, index=1)), both)[0]
        return get(last, index=0), get(both, index=1)

    assert_same(trace(carried, i64, TABLE), 3, VALUES)


def test_a_map_in_a_loop_over_scalars() -> None:
    product = trace(lambda a, b: a * b, f64, f64)

    def looped(n: Node, table: Node) -> Node:
        def step(i: Node, a: Node) -> Node:
            return make_map(product, table, a, summed=(True,)) * 0.3 + a

        return make_for_loop(n, step, lookup(table, n))[0]

    function = trace(looped, i64, TABLE)
    assert_same(function, 3, VALUES)
    assert_same(vjp(function), 3, VALUES, 1.0)


@pytest.mark.parametrize("type", [c128, Tensor(c128, (3,))], ids=str)
def test_complex_results_that_are_arguments_or_returned_twice(type: Any) -> None:
    value = 0.5 - 1j if type is c128 else np.arange(3) * (0.5 - 1j)
    assert_same(trace(lambda z: (z, z * z, z * z), type), value)


def test_a_map_over_no_points_gives_a_gradient_of_zeros() -> None:
    read = trace(lambda i, t: lookup(t, i) * lookup(t, i), i64, TABLE)
    function = vjp(trace(lambda i, t: make_map(read, i, t), Tensor(i64, (0,)), TABLE))
    assert_same(function, np.zeros(0, np.int64), VALUES, np.zeros(0))


def test_loop_over_tensors_hands_its_numbers_to_the_body_without_conversion(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A body runs many times: what it is given is what kernels take, so nothing is looked at twice."""
    state = Tensor(f64, (3,))

    def looped(x: Node) -> Node:
        def add_index(index: Node, y: Node) -> Node:
            return y + broadcast(cast(index, type=f64), shape=(3,), axes=())

        return make_for_loop(constant(5, i64), add_index, x)[0]

    compiled = CpuFunction(trace(looped, state))
    given = np.zeros(3)
    assert compiled(given).tolist() == [10.0] * 3
    monkeypatch.setattr(CpuFunction, "_convert_leaves", lambda *_: pytest.fail("the body's arguments were converted"))
    assert compiled(given).tolist() == [10.0] * 3
