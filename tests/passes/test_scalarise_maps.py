"""Scalarised maps: sums of tensors become scatter-adds, and nested maps become loops."""

from typing import Any

import numpy as np
import pytest

from livegrad.compiler import lower
from livegrad.ir.function import trace
from livegrad.ir.node import Function, Node
from livegrad.ir.types import Matrix, Tensor, Tuple, Vector, f64, i64
from livegrad.ir.walk import nodes_of
from livegrad.ops.aggregate import get, make_tuple
from livegrad.ops.control import make_cond, make_for_loop, make_switch
from livegrad.ops.elementwise import floor
from livegrad.ops.indexing import lookup
from livegrad.ops.maps import make_map, map_
from livegrad.ops.transcendental import sin
from livegrad.passes.differentiate.reverse import vjp
from livegrad.passes.scalarise_maps import scalarise_maps
from livegrad.passes.scalarise_maps.tensor_sums import find_additions
from livegrad.runtime.cpu import run_function
from livegrad.runtime.reference import evaluate
from tests.schedule.plans import host_ops, plan_of, writing_kernels

TABLE = Tensor(f64, (7,))
IMAGE = Tensor(f64, (4, 5))
PLACES = Tensor(i64, (6,))
AT = np.array([2, 0, 3, 2, 2, 1])


def assert_same(function: Function, *arguments: Any) -> None:
    found, wanted = run_function(function, *arguments), evaluate(function, *arguments)
    for a, b in zip(found, wanted, strict=True) if isinstance(wanted, tuple) else [(found, wanted)]:
        np.testing.assert_allclose(a, b, rtol=1e-13, atol=1e-13)


def mapped(point: Any, *shared: Any) -> Function:
    """`point(index, *shared)` at every index."""
    function = trace(point, i64, *shared, name="point")
    return trace(lambda i, *more: make_map(function, i, *more), PLACES, *shared, name="mapped")


def test_the_gradient_of_a_texture_is_one_kernel_and_additions() -> None:
    function = vjp(mapped(lambda i, t: lookup(t, i) * lookup(t, i + 1), TABLE))
    assert host_ops(plan_of(function)) == []
    assert set(writing_kernels(plan_of(function))) == {"scatter_add"}
    assert_same(function, AT, np.linspace(0.1, 1.0, 7), np.linspace(1.0, 2.0, 6))


def test_the_gradient_of_an_image_is_added_by_two_indices() -> None:
    function = vjp(mapped(lambda i, t: sin(lookup(t, i % 4, i)), IMAGE))
    assert host_ops(plan_of(function)) == []
    assert set(writing_kernels(plan_of(function))) == {"scatter_add"}
    assert_same(function, AT, np.linspace(0.1, 1.0, 20).reshape(4, 5), np.linspace(1.0, 2.0, 6))


def test_a_tensor_of_one_element_gets_a_plain_sum() -> None:
    function = vjp(mapped(lambda i, t: sin(lookup(t)) * 2.0, Tensor(f64, ())))
    assert host_ops(plan_of(function)) == []
    assert_same(function, AT, np.array(0.3), np.linspace(1.0, 2.0, 6))


def test_reads_in_branches_are_added_where_the_branch_ran() -> None:
    def point(i: Node, t: Node) -> Node:
        first = make_cond(i > 1, lambda: lookup(t, i) * lookup(t, i + 2), lambda: lookup(t, i + 1) * 0.5)
        return first * make_switch(i % 3, [lambda: lookup(t, i), lambda: lookup(t, i + 3), lambda: lookup(t, i) * 2.0])

    function = vjp(mapped(point, TABLE))
    assert host_ops(plan_of(function)) == []
    assert set(writing_kernels(plan_of(function))) == {"scatter_add"}
    assert_same(function, AT, np.linspace(0.1, 1.0, 7), np.linspace(1.0, 2.0, 6))


def test_reads_in_loops_are_added_by_one_loop() -> None:
    def point(i: Node, t: Node) -> Node:
        return make_for_loop(i, lambda k, a: a * lookup(t, k), lookup(t, i))[0]

    function = vjp(mapped(point, TABLE))
    assert host_ops(plan_of(function)) == []
    assert_same(function, AT, np.linspace(0.1, 1.0, 7), np.linspace(1.0, 2.0, 6))


def test_one_tensor_by_additions_beside_one_that_a_loop_fills() -> None:
    def point(i: Node, t: Node, image: Node) -> Node:
        return make_for_loop(i, lambda k, a: a * lookup(t, k), lookup(image, i, i))[0] * lookup(image, i, i + 1)

    function = vjp(mapped(point, TABLE, IMAGE))
    assert host_ops(plan_of(function)) == []
    assert_same(function, AT, np.linspace(0.1, 1.0, 7), np.linspace(0.5, 1.0, 20).reshape(4, 5), np.ones(6))


def test_an_index_out_of_range_is_still_reported() -> None:
    function = vjp(mapped(lambda i, t: lookup(t, i + 5) * lookup(t, i), TABLE))
    with pytest.raises(Exception, match="out of range"):
        run_function(function, AT, np.ones(7), np.ones(6))


def test_additions_are_not_told_where_the_tensor_is_computed_otherwise() -> None:
    assert find_additions(trace(lambda t: t * 2.0, TABLE).results[0]) is None


# --- aggregates ------------------------------------------------------------------------------------------------------


def test_tuples_among_operands_and_results_are_taken_apart() -> None:
    pair = Tuple((f64, Vector(f64, 2)))
    lifted = Tuple((Tensor(f64, (3,)), Tensor(f64, (3, 2))))

    def swapped(p: Node) -> Node:
        vector = get(p, index=1)
        return make_tuple(get(vector, index=0) * get(p, index=0), make_tuple(vector + vector, get(p, index=0)))

    function = trace(lambda p: make_map(trace(swapped, pair), p), lifted)
    plan = plan_of(function)
    assert (plan.kernels, len(plan.steps)) == (1, 1)
    first, (second, third) = run_function(function, (np.arange(3.0), np.arange(6.0).reshape(3, 2)))
    np.testing.assert_array_equal(first, [0.0, 2.0, 8.0])
    np.testing.assert_array_equal(second, 2 * np.arange(6.0).reshape(3, 2))
    np.testing.assert_array_equal(third, np.arange(3.0))


# --- inner maps ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("own", "shape"),
    [(f64, (5,)), (f64, (2, 3)), (f64, (2, 2, 3)), (Vector(f64, 2), (4, 2)), (Matrix(f64, 2, 2), (3, 2, 2))],
)
def test_a_sum_over_an_inner_domain_of_any_rank_is_native(own: Any, shape: tuple[int, ...]) -> None:
    def inner(a: Node, x: Node) -> tuple[Node, Node]:
        number = a if own is f64 else get(a, index=1)
        return sin(number * x), number * floor(x)

    def outer(x: Node, values: Node) -> Node:
        sums = make_map(trace(inner, own, f64), values, x, summed=(True, True))
        return get(sums, index=0) * x + get(sums, index=1)

    function = trace(outer, f64, Tensor(f64, shape))
    program = trace(lambda x, v: make_map(function, x, v), Tensor(f64, (4,)), Tensor(f64, shape))
    assert host_ops(plan_of(program)) == []
    values = np.linspace(-1.0, 1.0, int(np.prod(shape))).reshape(shape)
    assert_same(program, np.array([0.3, -0.7, 1.2, 2.0]), values)


def test_an_inner_map_whose_results_are_not_sums_stays() -> None:
    def outer(i: Node, values: Node) -> Node:
        return lookup(make_map(trace(lambda a, b: a * b, f64, f64), values, lookup(values, i)), i)

    program = mapped(outer, TABLE)
    prepared = scalarise_maps(lower(program))
    (found,) = [node for node in nodes_of(prepared) if node.op is map_]
    assert any(node.op is map_ for node in nodes_of(found.attribute("function")))
    assert_same(program, AT, np.linspace(-1.0, 1.0, 7))
