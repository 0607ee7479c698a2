"""Loops of elementwise ops become maps of loops; all others stay loops over tensors."""

import numpy as np
import pytest

from livegrad.diagnostics import KernelCheckError
from livegrad.ir.function import inline, trace
from livegrad.ir.leaves import constant
from livegrad.ir.node import Function, Node
from livegrad.ir.types import Tensor, f64, i64
from livegrad.ops.comparison import less
from livegrad.ops.control import make_for_loop
from livegrad.ops.conversion import cast
from livegrad.ops.elementwise import floor_div, select
from livegrad.ops.indexing import lookup
from livegrad.ops.movement import broadcast, flip, index_along
from livegrad.ops.reduction import reduce
from livegrad.ops.tape import tape_get, tape_unstack
from livegrad.ops.transcendental import sin
from livegrad.passes.differentiate.reverse import vjp
from livegrad.runtime.cpu import run_function
from livegrad.runtime.reference import evaluate
from tests.fuzz import value_passes
from tests.schedule.plans import host_ops, plan_of

ROWS = Tensor(f64, (5, 7))


def spread(value: Node) -> Node:
    return broadcast(value, shape=(5, 7), axes=())


def check(function: Function, *values: object, loops: int = 0) -> None:
    assert host_ops(plan_of(function)).count("for_loop") == loops
    found, wanted = run_function(function, *values), evaluate(function, *values)
    for own, right in zip(found, wanted, strict=True) if isinstance(wanted, tuple) else [(found, wanted)]:
        np.testing.assert_allclose(own, right, 1e-13, 1e-13)
        assert np.shape(own) == np.shape(right)


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(11).standard_normal(shape)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("iterations", [0, 1, 6])
def test_arithmetic_of_each_element_is_one_kernel(iterations: int, reverse: bool) -> None:
    def step(index: Node, a: Node, b: Node) -> tuple[Node, ...]:
        return select(less(a, b), a * 0.5 + spread(cast(index, type=f64)), b), sin(a)

    function = trace(lambda n, x, y: make_for_loop(n, step, x, y, reverse=reverse), i64, ROWS, ROWS)
    check(function, iterations, numbers(5, 7), numbers(5, 7))


def test_numbers_rows_and_positions_may_take_part() -> None:
    def loop(x: Node, row: Node, scale: Node, zero: Node, listed: Node) -> tuple[Node, ...]:
        wide = broadcast(row, shape=(5, 7), axes=(1,))
        place = cast(index_along((5, 7), 0), type=f64)
        rows = tape_unstack(listed)

        def step(index: Node, a: Node, time: Node) -> tuple[Node, ...]:
            given = tape_get(rows, index)
            return a * spread(scale) + wide + place * spread(time) + spread(given), time + 0.25

        return make_for_loop(constant(4, i64), step, x, zero)

    types = (ROWS, Tensor(f64, (7,)), f64, Tensor(f64, ()), Tensor(f64, (9,)))
    check(trace(loop, *types), numbers(5, 7), numbers(7), 0.7, np.array(0.5), numbers(9))


def test_a_number_that_is_carried_comes_out_as_one() -> None:
    function = trace(
        lambda x, t: make_for_loop(constant(3, i64), lambda i, a, b: (a + spread(b), b * 2.0), x, t), ROWS, f64
    )
    check(function, numbers(5, 7), 1.5)


@pytest.mark.parametrize(
    "meeting",
    [
        lambda a: flip(a, axes=(1,)),
        lambda a: a + spread(reduce(a, kind="sum", axes=(0, 1))),
        lambda a: a + spread(lookup(a, constant(0, i64), constant(0, i64))),
        lambda a: a + broadcast(reduce(a, kind="max", axes=(0,)), shape=(5, 7), axes=(1,)),
    ],
)
def test_elements_that_meet_stay_a_loop_over_tensors(meeting) -> None:
    check(
        trace(lambda n, x: make_for_loop(n, lambda i, a: meeting(a) * 0.3, x)[0], i64, ROWS), 3, numbers(5, 7), loops=1
    )


def test_lists_that_may_be_too_short_stay_a_loop_over_tensors() -> None:
    def loop(n: Node, x: Node, listed: Node) -> Node:
        rows = tape_unstack(listed)
        return make_for_loop(n, lambda i, a: a + spread(tape_get(rows, i)), x)[0]

    check(trace(loop, i64, ROWS, Tensor(f64, (4,))), 4, numbers(5, 7), numbers(4), loops=1)


def test_a_row_as_long_as_the_state_is_no_value_of_each_point() -> None:
    def loop(x: Node, listed: Node) -> Node:
        rows = tape_unstack(listed)

        def step(i: Node, a: Node) -> Node:
            return a * 0.5 + broadcast(tape_get(rows, i), shape=(6,), axes=())

        return make_for_loop(constant(6, i64), step, x)[0]

    check(trace(loop, Tensor(f64, (6,)), Tensor(f64, (6,))), numbers(6), numbers(6))


# --- derivatives ---


def waves(x: Node, y: Node, n: Node) -> Node:
    return make_for_loop(n, lambda i, a: sin(a) * y + x * spread(cast(i, type=f64)), x)[0]


def in_turn(x: Node, y: Node, n: Node) -> Node:
    return make_for_loop(n + 1, lambda i, a: sin(a) + a * y, waves(x, y, n), reverse=True)[0]


def with_a_number(x: Node, y: Node, n: Node) -> Node:
    return make_for_loop(n, lambda i, a, t: (a * y + spread(sin(t)), t * 0.5), x, constant(0.7, f64))[0]


def of_all(x: Node, y: Node, n: Node) -> Node:
    """The cotangent of each point depends on all points."""
    after = waves(x, y, n)
    return after * spread(reduce(after, kind="sum", axes=(0, 1)))


@pytest.mark.parametrize("iterations", [0, 1, 6])
@pytest.mark.parametrize("program", [waves, in_turn, with_a_number, of_all])
def test_loops_of_derivatives_run_at_each_point(program, iterations: int) -> None:
    first = vjp(trace(program, ROWS, ROWS, i64))
    check(first, numbers(5, 7), numbers(5, 7)[::-1].copy(), iterations, numbers(5, 7))
    if program is waves:
        second = vjp(trace(lambda x, y, n, ct: inline(first, (x, y, n, ct))[0], ROWS, ROWS, i64, ROWS))
        check(second, numbers(5, 7), numbers(5, 7)[::-1].copy(), iterations, numbers(5, 7), numbers(5, 7))


def test_a_tape_that_points_share_stays_in_memory() -> None:
    """The backward pass of a sum over all points combines points: both loops stay loops over tensors."""

    def step(i: Node, a: Node) -> Node:
        return sin(a) + spread(sin(reduce(a, kind="sum", axes=(0, 1))) * 0.01)

    function = vjp(trace(lambda x, n: make_for_loop(n, step, x)[0], ROWS, i64))
    check(function, numbers(5, 7), 3, numbers(5, 7), loops=2)


def test_memory_of_a_derivative_does_not_grow_with_its_iterations() -> None:
    many = Tensor(f64, (4096,))

    def arena(iterations: int) -> int:
        count = constant(iterations, i64)
        return plan_of(vjp(trace(lambda x: make_for_loop(count, lambda i, a: sin(a) * x, x)[0], many))).arena_bytes

    assert arena(10_000) == arena(10) < 4096 * 8 * 8


def test_what_fails_at_a_point_is_told() -> None:
    whole = Tensor(i64, (6,))
    function = trace(lambda n, x, y: make_for_loop(n, lambda i, a: floor_div(a, y), x)[0], i64, whole, whole)
    check(function, 2, np.arange(6), np.array([1, 2, 3, 4, 5, 6]))
    with pytest.raises(KernelCheckError, match="zero"):
        run_function(function, 2, np.arange(6), np.array([1, 2, 0, 4, 5, 6]))
    np.testing.assert_array_equal(run_function(function, 0, np.arange(6), np.zeros(6, np.int64)), np.arange(6))


@pytest.mark.parametrize("iterations", [0, 3])
def test_a_carried_value_that_the_body_never_reads_is_the_result_of_no_iterations(iterations: int) -> None:
    function = trace(lambda n, x, y: make_for_loop(n, lambda i, carried: x + 0.5, y), i64, ROWS, ROWS)
    check(function, iterations, numbers(5, 7), numbers(5, 7))


def test_a_loop_whose_values_are_the_same_at_all_points_stays() -> None:
    """Found by random programs: a loop that only counts, and fills the tape of another loop, has no values by point."""
    value_passes.run_one(2689)
