"""Writes by computed index: in-place kernels, or selects inside expressions; counted, not timed."""

from collections.abc import Callable
from math import prod
from typing import Any

from livegrad.codegen.cuda.cuda_target import CUDA
from livegrad.ir.function import trace
from livegrad.ir.node import Node
from livegrad.ir.types import Tensor, f32, i64, shape_of
from livegrad.ops.assignment import assign
from livegrad.ops.indexing import lookup, scatter_add
from livegrad.ops.movement import broadcast, index_along, pad, slice_
from livegrad.ops.reduction import reduce
from livegrad.ops.rules import filled, zero
from livegrad.ops.sorting import searchsorted, take_along_axis
from livegrad.ops.transcendental import exp
from livegrad.passes.differentiate.reverse import vjp
from livegrad.schedule.indexed_writes import affine_position
from livegrad.schedule.plan import KernelStep, Plan
from livegrad.schedule.views import Affine
from tests.schedule.plans import host_ops, plan_of, writing_kernels

TABLE = Tensor(f32, (1000, 64))
PLACES = Tensor(i64, (500,))
ROWS = Tensor(f32, (500, 64))


def rows_at(places: Node, columns: int) -> tuple[Node, Node]:
    """The indices of whole rows."""
    shape = (500, columns)
    return broadcast(places, shape=shape, axes=(0,)), index_along(shape, 1)


def gradient_plan(function: Callable[..., Any], *types: Any) -> Plan:
    return plan_of(vjp(trace(function, *types)))


def test_rows_are_added_by_one_kernel_whose_lanes_run_across_the_row() -> None:
    plan = plan_of(lambda t, v, i: scatter_add(t, v, *rows_at(i, 64)), TABLE, ROWS, PLACES)
    assert host_ops(plan) == []
    copy, addition = plan.steps
    assert isinstance(copy, KernelStep)
    assert isinstance(addition, KernelStep)
    assert not copy.kernel.written
    assert addition.kernel.written
    assert (addition.domain, addition.inner, addition.vector_axis) == ((64,), (500,), "domain")


def test_an_update_copies_the_tensor_once() -> None:
    plan = plan_of(lambda t, v, i: assign(t + 1.0, v, i), Tensor(f32, (10_000,)), Tensor(f32, (500,)), PLACES)
    assert host_ops(plan) == []
    assert writing_kernels(plan) == ["assign"]
    assert plan.kernels == 2
    assert plan.arena_bytes == 0


def test_updates_of_updates_go_to_the_same_memory() -> None:
    def thrice(t: Node, v: Node, i: Node) -> Node:
        for _ in range(3):
            t = assign(t, v, i)
            i = i + 1
        return t

    plan = plan_of(thrice, Tensor(f32, (10_000,)), Tensor(f32, (500,)), PLACES)
    assert writing_kernels(plan) == ["assign"] * 3
    assert plan.kernels == 4
    assert plan.arena_bytes == 0


def test_what_others_read_before_an_update_is_not_overwritten() -> None:
    def function(t: Node, v: Node, i: Node) -> tuple[Node, Node]:
        total = scatter_add(t, v, i)
        return assign(total, v, i), total

    assert plan_of(function, Tensor(f32, (10_000,)), Tensor(f32, (500,)), PLACES).kernels == 4


def test_one_value_per_row_is_selected_without_writing_by_index() -> None:
    def picked(x: Node, i: Node) -> Node:
        return take_along_axis(x, i, 1)

    plan = gradient_plan(picked, Tensor(f32, (500, 64)), Tensor(i64, (500, 1)))
    assert host_ops(plan) == []
    assert writing_kernels(plan) == []


def test_several_values_per_row_are_written_row_by_row() -> None:
    plan = gradient_plan(lambda x, i: take_along_axis(x, i, 1), Tensor(f32, (500, 64)), Tensor(i64, (500, 9)))
    (step,) = [step for step in plan.steps if isinstance(step, KernelStep) and step.kernel.written]
    assert (step.domain, step.inner, step.vector_axis) == ((500,), (9,), "inner")


def test_many_additions_to_few_elements_are_made_in_chunks() -> None:
    many = 1 << 17
    plan = plan_of(
        lambda t, v, i: scatter_add(t, v, i), Tensor(f32, (100,)), Tensor(f32, (many,)), Tensor(i64, (many,))
    )
    (step,) = [step for step in plan.steps if isinstance(step, KernelStep) and step.kernel.written]
    assert step.chunk
    assert step.domain == (16,)


def test_assignments_are_never_made_in_chunks() -> None:
    many = 1 << 17
    plan = plan_of(lambda t, v, i: assign(t, v, i), Tensor(f32, (100,)), Tensor(f32, (many,)), Tensor(i64, (many,)))
    assert not any(step.chunk for step in plan.steps if isinstance(step, KernelStep))


def test_other_backends_write_from_the_host() -> None:
    function = trace(lambda t, v, i: scatter_add(t, v, i), Tensor(f32, (100,)), Tensor(f32, (500,)), PLACES)
    assert host_ops(plan_of(function, target=CUDA)) == ["scatter_add"]


def test_searching_is_part_of_the_kernel_that_uses_it() -> None:
    def function(t: Node, v: Node) -> Node:
        return lookup(t, searchsorted(t, v, side="left") % 100) + 1.0

    plan = plan_of(function, Tensor(f32, (100,)), Tensor(f32, (500,)))
    assert host_ops(plan) == []
    assert plan.kernels == 1


def test_the_gradient_of_differences_needs_no_padded_tensors() -> None:
    def differences(x: Node) -> Node:
        right, left = (slice_(x, start=(0, a), size=(64, 63), step=(1, 1)) for a in (1, 0))
        return reduce((right - left) * (right - left), kind="sum", axes=(0, 1))

    plan = gradient_plan(differences, Tensor(f32, (64, 64)))
    assert plan.kernels == 2  # the differences, and what each element gets of its neighbours


def test_a_padded_tensor_that_is_wanted_is_written_part_by_part() -> None:
    plan = plan_of(lambda x: pad(x, zero(f32), low=(1,), high=(1,), interior=(0,)), Tensor(f32, (64,)))
    assert plan.kernels == 3
    assert not any(step.kernel.indexed_buffers for step in plan.steps if isinstance(step, KernelStep))


def test_affine_indices_are_distinguished_from_computed_ones() -> None:
    along = index_along((3, 4), 1)
    assert affine_position(along) == Affine(1, 0, 1)
    assert affine_position(along * 2 + 5) == Affine(1, 5, 2)
    assert affine_position(broadcast(index_along((4,), 0), shape=(3, 4), axes=(1,))) == Affine(1, 0, 1)
    assert affine_position(filled(7, Tensor(i64, (3, 4)))) == Affine(None, 7, 0)
    assert affine_position(along % 2) is None


# --- assignments to slices -------------------------------------------------------------------------------------------

LONG = Tensor(f32, (100_000,))


def put(base: Node, start: int, values: Node, step: int = 1) -> Node:
    (count,) = shape_of(values.type)
    return assign(base, values, index_along((count,), 0) * step + start)


def bytes_written(plan: Plan) -> int:
    steps = [step for step in plan.steps if isinstance(step, KernelStep)]
    return sum(prod((*step.domain, *step.inner)) * max(1, len(step.outputs)) for step in steps) * 4


def in_turn(x: Node, v: Node) -> Node:
    for start in range(0, 1000, 20):
        x = put(x, start, v)
    return x


def test_slices_that_are_written_in_turn_cost_what_they_write() -> None:
    plan = plan_of(lambda x, v: in_turn(exp(x), v), LONG, Tensor(f32, (10,)))
    assert host_ops(plan) == []
    assert bytes_written(plan) <= (100_000 + 50 * 10) * 4
    assert plan.arena_bytes == 0


def test_a_slice_that_is_changed_by_itself_is_changed_in_place() -> None:
    def add_in_turn(x: Node, v: Node) -> Node:
        x = exp(x)
        for start in range(0, 200, 20):
            x = put(x, start, slice_(x, start=(start,), size=(10,), step=(1,)) + v)
        return x

    plan = plan_of(add_in_turn, LONG, Tensor(f32, (10,)))
    assert bytes_written(plan) <= (100_000 + 2 * 10 * 10) * 4


def test_a_version_that_is_read_later_is_copied() -> None:
    def both(x: Node, v: Node) -> tuple[Node, Node]:
        before = put(put(exp(x), 3, v), 40, v)
        after = put(before, 20, v)
        return after, exp(before)

    plan = plan_of(both, LONG, Tensor(f32, (10,)))
    assert bytes_written(plan) >= 3 * 100_000 * 4


def test_most_of_a_tensor_is_written_without_a_copy_of_what_it_replaces() -> None:
    plan = plan_of(lambda x, v: put(x, 1, exp(v)), LONG, Tensor(f32, (99_998,)))
    assert bytes_written(plan) == 100_000 * 4


def test_devices_write_slices_in_kernels() -> None:
    plan = plan_of(in_turn, LONG, Tensor(f32, (10,)), target=CUDA)
    assert host_ops(plan) == []
    assert bytes_written(plan) <= (100_000 + 50 * 10) * 4


def test_the_gradient_of_a_slice_that_is_written_reads_it() -> None:
    plan = gradient_plan(lambda x, v: put(x, 7, v), LONG, Tensor(f32, (10,)))
    assert host_ops(plan) == []
    assert writing_kernels(plan) == []
