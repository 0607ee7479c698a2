"""Memory of plans: buffers with disjoint lifetimes share bytes, and the verifier finds every violation."""

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from livegrad.diagnostics import VerifyError
from livegrad.ir.node import Node
from livegrad.ir.types import Tensor, f32, f64
from livegrad.ops.linalg import matmul
from livegrad.ops.transcendental import sin
from livegrad.passes.differentiate.reverse import vjp
from livegrad.schedule.allocate import live_ranges
from livegrad.schedule.plan import KernelStep, Plan, View
from livegrad.schedule.verify import verify_plan
from tests.conformance.graphs import float_graph
from tests.schedule.plans import plan_of, total

SQUARE = Tensor(f32, (64, 64))
BYTES = 64 * 64 * 4


def products(x: Node, count: int) -> Node:
    """Each product is needed by the next alone."""
    for _ in range(count):
        x = matmul(x, x)
    return x


def overlapping(plan: Plan) -> list[tuple[str, str]]:
    """The pairs of buffers that live at one time in the same bytes: by definition, without cleverness."""
    ranges = live_ranges(plan.steps, list(plan.arena_offsets))
    actual = []
    for a, (first, last) in ranges.items():
        for b, (begin, end) in ranges.items():
            alive = first <= end and begin <= last
            start, other = plan.arena_offsets[a], plan.arena_offsets[b]
            if a.number < b.number and alive and start < other + b.bytes and other < start + a.bytes:
                actual.append((str(a), str(b)))
    return actual


def test_a_long_chain_needs_two_buffers_however_long_it_is() -> None:
    plan = plan_of(lambda x: products(x, 12), SQUARE)
    assert plan.arena_bytes == 2 * BYTES
    assert plan.naive_bytes == 11 * BYTES


def test_values_that_are_needed_late_keep_their_bytes() -> None:
    def late(x: Node) -> Node:
        early = matmul(x, x)
        return matmul(products(early, 6), early)

    plan = plan_of(late, SQUARE)
    assert plan.arena_bytes == 3 * BYTES
    assert overlapping(plan) == []


def test_arguments_and_results_take_nothing_of_the_arena() -> None:
    plan = plan_of(lambda x: sin(x), SQUARE)
    assert (plan.arena_bytes, plan.arena_offsets) == (0, {})


@settings(max_examples=60, deadline=None)
@given(data=st.data(), backward=st.booleans())
def test_no_two_live_buffers_share_bytes(data: st.DataObject, backward: bool) -> None:
    function = float_graph(data, f64).function
    plan = plan_of(vjp(function) if backward else function)
    verify_plan(plan)
    assert overlapping(plan) == []
    assert plan.arena_bytes <= plan.naive_bytes
    assert all(start % 64 == 0 for start in plan.arena_offsets.values())


# --- mistakes that the verifier must see -----------------------------------------------------------------------------


def chain() -> Plan:
    plan = plan_of(lambda x: total(matmul(products(x, 2), x) * 2.0, 1), SQUARE)
    verify_plan(plan)
    return plan


def test_a_buffer_that_is_read_before_it_is_written_is_found() -> None:
    plan = chain()
    with pytest.raises(VerifyError, match=r"reads b[0-9]+:matmul before it is written"):
        verify_plan(dataclasses.replace(plan, steps=plan.steps[1:]))


def test_a_result_that_no_step_writes_is_found() -> None:
    plan = chain()
    with pytest.raises(VerifyError, match="never writes its result"):
        verify_plan(dataclasses.replace(plan, steps=plan.steps[:-1]))


def test_live_buffers_in_the_same_bytes_are_found() -> None:
    plan = chain()
    with pytest.raises(VerifyError, match="in the same bytes at the same time"):
        verify_plan(dataclasses.replace(plan, arena_offsets=dict.fromkeys(plan.arena_offsets, 0)))


def test_buffers_that_overlap_in_part_are_found() -> None:
    plan = chain()
    crowded = {buffer: start // 2 for buffer, start in plan.arena_offsets.items()}
    with pytest.raises(VerifyError, match="in the same bytes at the same time"):
        verify_plan(dataclasses.replace(plan, arena_offsets=crowded))


def test_a_buffer_outside_of_the_arena_is_found() -> None:
    plan = chain()
    with pytest.raises(VerifyError, match="outside of its"):
        verify_plan(dataclasses.replace(plan, arena_bytes=plan.arena_bytes - 64))


def test_a_buffer_without_an_offset_is_found() -> None:
    with pytest.raises(VerifyError, match="no arena offset for"):
        verify_plan(dataclasses.replace(chain(), arena_offsets={}))


@pytest.mark.parametrize("offset", [-1, 1])
def test_a_view_that_leaves_its_buffer_is_found(offset: int) -> None:
    plan = chain()
    *before, last = plan.steps
    assert isinstance(last, KernelStep)
    view = last.reads[0]
    moved = dataclasses.replace(last, reads=(View(view.buffer, view.offset + offset, view.strides),))
    with pytest.raises(VerifyError, match="accesses memory outside of b"):
        verify_plan(dataclasses.replace(plan, steps=(*before, moved)))


def test_a_step_that_writes_what_it_reads_is_found() -> None:
    plan = plan_of(lambda x: sin(x), SQUARE)
    (step,) = plan.steps
    assert isinstance(step, KernelStep)
    argument = plan.arguments[0]
    in_place = dataclasses.replace(step, outputs=step.reads)
    with pytest.raises(VerifyError, match="reads and writes b0:argument0"):
        verify_plan(dataclasses.replace(plan, steps=(in_place,), results=(argument,)))
