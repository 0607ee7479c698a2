"""Arithmetic on rolled grids reads them in place, region by region, with the same values."""

import numpy as np
import pytest

from livegrad.ir.function import trace
from livegrad.ir.node import Function, Node
from livegrad.ir.types import Tensor, f32, f64, shape_of
from livegrad.ir.walk import nodes_of
from livegrad.ops.comparison import greater
from livegrad.ops.elementwise import select
from livegrad.ops.movement import broadcast, concatenate, index_along, slice_
from livegrad.ops.reduction import reduce
from livegrad.ops.rules import filled
from livegrad.passes.differentiate.reverse import vjp
from livegrad.passes.split_at_concatenations import split_at_concatenations
from livegrad.runtime.cpu import run_function
from livegrad.runtime.reference import evaluate
from tests.schedule.plans import plan_of

GRID = Tensor(f64, (20, 31))


def part(x: Node, axis: int, start: int, end: int) -> Node:
    shape = shape_of(x.type)
    begin = tuple(start if a == axis else 0 for a in range(len(shape)))
    size = tuple(end - start if a == axis else n for a, n in enumerate(shape))
    return slice_(x, start=begin, size=size, step=(1,) * len(shape))


def rolled(x: Node, by: int, axis: int) -> Node:
    size = int(shape_of(x.type)[axis])  # type: ignore[arg-type]
    cut = -by % size
    return concatenate(part(x, axis, cut, size), part(x, axis, 0, cut), axis=axis)


def around(x: Node) -> Node:
    return rolled(x, 1, 0) + rolled(x, -1, 0) + rolled(x, 1, 1) + rolled(x, -1, 1) - 4.0 * x


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(7).standard_normal(shape)


def check(function: Function, *values: np.ndarray) -> None:
    """What runs, what the reference says of the function, and of the function taken apart."""
    wanted = evaluate(function, *values)
    apart = evaluate(split_at_concatenations(function), *values)
    found = run_function(function, *values)
    many = wanted if isinstance(wanted, tuple) else (wanted,)
    for own, other, right in zip(
        found if isinstance(found, tuple) else (found,),
        apart if isinstance(apart, tuple) else (apart,),
        many,
        strict=True,
    ):
        np.testing.assert_array_equal(other, right)
        np.testing.assert_allclose(own, right, 1e-13, 1e-13)


def test_a_stencil_on_a_rolled_grid_stores_no_rolled_grid() -> None:
    function = trace(around, GRID)
    plan = plan_of(function)
    assert [buffer.name for buffer in plan.buffers] == ["argument0", "result0"]
    assert len(plan.steps) == 4  # corners, edges of two kinds, and the inside
    check(function, numbers(20, 31))


@pytest.mark.parametrize("shape", [(40,), (1, 40), (12, 12, 12), (2, 3)])
def test_grids_of_any_rank_keep_their_values(shape: tuple[int, ...]) -> None:
    function = trace(
        lambda x: sum(
            (rolled(x, by, axis) * (axis + 2.0) for axis in range(len(shape)) for by in (1, -1) if shape[axis] > 1), x
        ),
        Tensor(f64, shape),
    )
    check(function, numbers(*shape))


def test_rolls_of_rolls_are_read_through_both() -> None:
    function = trace(lambda x: rolled(rolled(x, 1, 0), -2, 1) * rolled(rolled(x, -1, 0), 1, 1) + x, GRID)
    assert [buffer.name for buffer in plan_of(function).buffers] == ["argument0", "result0"]
    check(function, numbers(20, 31))


def test_rows_positions_and_choices_are_cut_with_the_grid() -> None:
    def step(x: Node, row: Node) -> Node:
        spread = broadcast(rolled(row, 3, 0), shape=(20, 31), axes=(1,))
        return select(greater(around(x), filled(0.0, x.type)), spread * x, filled(2.0, x.type))

    check(trace(step, GRID, Tensor(f64, (31,))), numbers(20, 31), numbers(31))
    check(
        trace(lambda x: select(greater(index_along((40,), 0), 7), rolled(x, 5, 0) * 2.0, x), Tensor(f32, (40,))),
        numbers(40).astype(np.float32),
    )


def test_what_is_wanted_besides_stays_whole() -> None:
    def step(x: Node) -> tuple[Node, ...]:
        moved = rolled(x, 1, 0)
        first = moved * 2.0 + x
        return first, moved, rolled(first, 1, 1) - first, reduce(around(first), kind="sum", axes=(0, 1))

    check(trace(step, GRID), numbers(20, 31))


def test_gradients_of_stencils_agree() -> None:
    check(vjp(trace(lambda x: around(x) * x, GRID)), numbers(20, 31), numbers(20, 31))


def test_halves_and_columns_are_put_together_first() -> None:
    halves = trace(lambda a, b: concatenate(a, b, axis=1) * 2.0, Tensor(f64, (9, 2)), Tensor(f64, (9, 2)))
    assert split_at_concatenations(halves) is halves
    check(halves, numbers(9, 2), numbers(9, 2))


def test_concatenations_of_concatenations_are_written_once() -> None:
    def bordered(x: Node) -> Node:
        side = filled(0.0, Tensor(f64, (20, 1)))
        wide = concatenate(side, x * 2.0, side, axis=1)
        edge = filled(1.0, Tensor(f64, (1, 33)))
        return concatenate(edge, wide, edge, axis=0)

    function = trace(bordered, GRID)
    assert [buffer.name for buffer in plan_of(function).buffers] == ["argument0", "result0"]
    check(function, numbers(20, 31))
    twice = trace(lambda x: (bordered(x), concatenate(x, concatenate(x, x, axis=0), axis=0)), GRID)
    assert sum(node.op is concatenate for node in nodes_of(twice)) == 4
    check(twice, numbers(20, 31))
