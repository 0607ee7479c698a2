"""What loops over large tensors remember: the fewest bytes from which cheap operations give the rest."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from livegrad import ops
from livegrad.ir.dimension import Dimension
from livegrad.ir.function import trace
from livegrad.ir.leaves import constant
from livegrad.ir.node import Function, Node
from livegrad.ir.types import Tensor, Type, f64, i64
from livegrad.ir.walk import nodes_of
from livegrad.passes.differentiate.choose_residuals import choose_residuals
from livegrad.passes.differentiate.forward import jvp
from livegrad.passes.differentiate.report import storage_report
from livegrad.passes.differentiate.reverse import vjp
from livegrad.runtime.cpu import CpuFunction
from livegrad.runtime.reference import evaluate
from tests.differentiate.checks import random_differentials

LARGE, SMALL = 9000, 20


def loop(body: Callable[..., Node], size: object = LARGE) -> Function:
    """Three iterations of `body(y, x)` over tensors, from x."""

    def repeated(x: Node) -> Node:
        return ops.make_for_loop(constant(3, i64), lambda index, y: body(y, x), x)[0]

    return trace(repeated, Tensor(f64, (size,)))  # type: ignore[arg-type]


def several(y: Node, x: Node) -> Node:
    """Three products, each of which needs both of its factors."""
    first = y * x
    second = (y + first * 0.5) * x
    return y + (y + second * 0.5) * x


def mixed(y: Node, x: Node) -> Node:
    """A number beside the tensors."""
    length = ops.lookup(ops.reduce(y * y, kind="sum", axes=(0,)))
    return several(y, x) * ops.broadcast(length * length, shape=(LARGE,), axes=()) * 1e-4


def costly(y: Node, x: Node) -> Node:
    waves = ops.sin(y)
    return waves * (waves + 1.0) * x


def traced_bytes(function: Function) -> list[object]:
    return list(storage_report(function).bytes_per_iteration.values())


def test_what_cheap_operations_give_is_computed_again_from_the_state() -> None:
    assert traced_bytes(loop(several)) == [8 * LARGE]


def test_of_what_is_small_only_sums_and_products_are_computed_again() -> None:
    assert traced_bytes(loop(several, SMALL)) == [8 * SMALL]
    assert traced_bytes(loop(costly, SMALL)) == [2 * 8 * SMALL]


def test_of_a_number_that_is_repeated_along_a_tensor_the_number_is_remembered() -> None:
    def scaled(y: Node, x: Node) -> Node:
        total = ops.reduce(y, kind="sum", axes=(0,))
        return x * ops.broadcast(total * total, shape=(SMALL,), axes=())

    assert traced_bytes(loop(scaled, SMALL)) == [8]


def test_what_is_dear_is_remembered_and_the_rest_computed_from_it() -> None:
    """The slope of sin needs y, and the products need sin(y): the sum with one is computed again."""
    assert traced_bytes(loop(costly)) == [2 * 8 * LARGE]


def test_sizes_that_are_not_known_change_nothing() -> None:
    n = Dimension.symbol("n")
    assert [str(size) for size in traced_bytes(loop(several, n))] == [str(n * 24)]


@pytest.mark.parametrize("body", [several, costly, mixed])
@pytest.mark.parametrize("modes", ["r", "fr", "rr"])
def test_gradients_are_the_same(body: Callable[..., Node], modes: str) -> None:
    function = loop(body)
    for mode in reversed(modes):
        function = jvp(function) if mode == "f" else vjp(function)
    arguments = random_differentials(function.parameter_types, np.random.default_rng(3))
    found, expected = CpuFunction(function)(*arguments), evaluate(function, *arguments)
    for one, other in zip(as_tuple(found), as_tuple(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)


def as_tuple(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def test_the_cut_nearest_to_what_is_wanted_is_taken() -> None:
    """Of equal choices the one that computes nothing again."""
    given = trace(lambda x: (x * 2.0) + 1.0, Tensor(f64, (LARGE,)))
    assert choose_residuals(given.results, given.parameters) == given.results


def test_the_gradient_of_steps_with_shifts_remembers_the_state_alone() -> None:
    """GradBench's Runge and Kutta: each slope is a product with a shifted state."""

    def step(y: Node, x: Node) -> Node:
        def slope(z: Node) -> Node:
            before = ops.slice_(z, start=(0,), size=(LARGE - 1,), step=(1,))
            own = ops.slice_(x, start=(1,), size=(LARGE - 1,), step=(1,))
            return ops.concatenate(ops.slice_(x, start=(0,), size=(1,), step=(1,)), own * before, axis=0)

        first = slope(y)
        return y + slope(y + first * 0.5) * 0.1

    assert traced_bytes(loop(step)) == [8 * LARGE]


def test_a_reshape_is_remembered_in_the_shape_of_its_operand() -> None:
    """Its own shape would need a copy."""

    def column(y: Node, x: Node) -> Node:
        waves = ops.reshape(ops.sin(y), shape=(SMALL, 1))
        return ops.reshape(waves * waves, shape=(SMALL,)) * x

    (types,) = residual_types(loop(column, SMALL))
    assert all(type.shape == (SMALL,) for type in types)  # type: ignore[attr-defined]


def test_sums_of_a_few_elements_are_computed_again() -> None:
    """Distances between points: the points are remembered, and nothing for each pair of them."""
    points = 60

    def attracted(y: Node) -> Node:
        rows = ops.broadcast(y, shape=(points, points, 3), axes=(0, 2))
        apart = rows - ops.broadcast(y, shape=(points, points, 3), axes=(1, 2))
        squares = ops.reduce(apart * apart, kind="sum", axes=(2,)) + 0.1
        weights = ops.broadcast(1.0 / (squares * ops.sqrt(squares)), shape=(points, points, 3), axes=(0, 1))
        return y + ops.reduce(apart * weights, kind="sum", axes=(1,)) * 0.01

    function = trace(
        lambda x: ops.make_for_loop(constant(3, i64), lambda index, y: attracted(y), x)[0],
        Tensor(f64, (points, 3)),
    )
    assert traced_bytes(function) == [8 * points * 3]


def test_a_loop_over_numbers_remembers_its_state_and_not_what_sums_and_products_make_of_it() -> None:
    def step(y: Node, x: Node) -> Node:
        near = (y + 1.0) * x
        return y * near + near * (y - x)

    function = trace(lambda x: ops.make_for_loop(constant(3, i64), lambda index, y: step(y, x), x)[0], f64)
    assert traced_bytes(function) == [8]
    check_gradient(function, np.float64(0.3))


def residual_types(function: Function) -> list[tuple[Type, ...]]:
    """What the tapes of the loops in a gradient hold in each row."""
    nodes = nodes_of(vjp(function))
    tapes = [node.type for node in nodes if node.op is ops.tape_new]
    return [type.element.elements for type in tapes]  # type: ignore[attr-defined]


def check_gradient(function: Function, value: np.float64) -> None:
    """The gradient of a function of a number, against a central difference."""
    step = 1e-6
    above, below = (evaluate(function, value + sign * step) for sign in (1.0, -1.0))
    gradient = CpuFunction(vjp(function))(value, np.float64(1.0))
    np.testing.assert_allclose(gradient, (above - below) / (2.0 * step), rtol=1e-6)
