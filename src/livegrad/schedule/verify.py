"""Verifies plans: no read before a write, no bytes shared by live buffers, no view outside its buffer.

The driver verifies each plan pass with these checks, in time linear in the size of the plan.
"""

from __future__ import annotations

from bisect import bisect, insort

from livegrad.diagnostics import VerifyError
from livegrad.ir.symbolic_size import hint_of
from livegrad.schedule.allocate import live_ranges
from livegrad.schedule.plan import Buffer, KernelStep, Plan, Slot, View, element_range, reads_of, writes_of


def verify_plan(plan: Plan) -> None:
    """Raises `VerifyError` if a plan is not valid."""
    verify_order(plan)
    verify_views(plan)
    verify_sharing(plan)


# --- order -----------------------------------------------------------------------------------------------------------


def verify_order(plan: Plan) -> None:
    """Raises `VerifyError` if a step reads a value that no earlier step has written."""
    written = {_owner(slot) for slot in plan.arguments}
    for index, step in enumerate(plan.steps):
        results = {_owner(slot) for slot in writes_of(step)}
        reads = {_owner(slot): slot for slot in reads_of(step)}
        for owner, slot in reads.items():
            if owner not in written:
                raise VerifyError(f"step {index} of plan `{plan.name}` reads {slot} before it is written")
        both = results.intersection(reads)
        if both:
            raise VerifyError(f"step {index} of plan `{plan.name}` reads and writes {min(map(str, both))}")
        written |= results
    for slot in plan.results:
        if _owner(slot) not in written:
            raise VerifyError(f"plan `{plan.name}` never writes its result {slot}")


def _owner(slot: Slot) -> Slot:
    return slot.base if isinstance(slot, Buffer) else slot


# --- views -----------------------------------------------------------------------------------------------------------


def verify_views(plan: Plan) -> None:
    """Raises `VerifyError` if a kernel accesses memory outside a buffer."""
    for index, step in enumerate(plan.steps):
        if isinstance(step, KernelStep):
            extents = (*step.domain, *step.inner)
            for view in (*step.reads, *step.outputs):
                if not _is_inside(view, extents):
                    raise VerifyError(
                        f"step {index} of plan `{plan.name}` accesses memory outside of {view.buffer}", found=str(view)
                    )
            for view in step.scalar_arguments:
                if not 0 <= view.offset < view.buffer.size:
                    raise VerifyError(
                        f"step {index} of plan `{plan.name}` accesses memory outside of {view.buffer}", found=str(view)
                    )


def verify_step(step: KernelStep, pass_name: str) -> None:
    """Raises `VerifyError` if a kernel that a pass has changed accesses memory outside a buffer."""
    extents = (*step.domain, *step.inner)
    for view in (*step.reads, *step.outputs):
        if not _is_inside(view, extents):
            raise VerifyError(
                f"after `{pass_name}`, kernel `{step.kernel.name}` accesses memory outside of {view.buffer}",
                found=str(view),
            )


def _is_inside(view: View, extents: tuple[int, ...]) -> bool:
    if len(view.strides) != len(extents):
        return False
    if 0 in extents:
        return True
    first, last = element_range(view.offset, view.strides, extents)
    return first >= 0 and last < view.buffer.size


# --- shared bytes ----------------------------------------------------------------------------------------------------


def verify_sharing(plan: Plan) -> None:
    """Raises `VerifyError` if two live buffers share bytes.

    Walks the steps with the live buffers sorted by arena offset, so that only adjacent buffers can overlap.
    """
    private = {buffer for chain in plan.chains for buffer in chain.private}
    temporaries = [buffer for buffer in plan.buffers if buffer.lifetime == "graph" and buffer not in private]
    ranges = _widen_to_chains(live_ranges(plan.steps, temporaries), plan)
    begins: dict[int, list[Buffer]] = {}
    ends: dict[int, list[Buffer]] = {}
    for buffer, (first, last) in ranges.items():
        begins.setdefault(first, []).append(buffer)
        ends.setdefault(last, []).append(buffer)
    live: list[tuple[int, int, Buffer]] = []
    for index in range(len(plan.steps)):
        for buffer in begins.get(index, ()):
            _check_arena_range(plan, live, buffer)
        for buffer in ends.get(index, ()):
            live.remove(_arena_key(plan, buffer))


def _widen_to_chains(ranges: dict[Buffer, tuple[int, int]], plan: Plan) -> dict[Buffer, tuple[int, int]]:
    """Widens live ranges so that all steps of a chain count as one."""
    if not plan.chains:
        return ranges
    index_of = {id(step): index for index, step in enumerate(plan.steps)}
    spans = [sorted(index_of[id(step)] for step in chain.steps) for chain in plan.chains]
    first_of = {index: span[0] for span in spans for index in span}
    last_of = {index: span[-1] for span in spans for index in span}
    return {b: (first_of.get(first, first), last_of.get(last, last)) for b, (first, last) in ranges.items()}


def _arena_key(plan: Plan, buffer: Buffer) -> tuple[int, int, Buffer]:
    if buffer not in plan.arena_offsets:
        raise VerifyError(f"plan `{plan.name}` has no arena offset for {buffer}")
    return hint_of(plan.arena_offsets[buffer]), buffer.number, buffer  # symbolic sizes are verified for one example


def _check_arena_range(plan: Plan, live: list[tuple[int, int, Buffer]], buffer: Buffer) -> None:
    key = _arena_key(plan, buffer)
    start, size = key[0], hint_of(buffer.bytes)
    if start + size > hint_of(plan.arena_bytes):
        raise VerifyError(f"plan `{plan.name}` puts {buffer} outside of its {plan.arena_bytes} bytes")
    at = bisect(live, key)
    for offset, _, other in (*live[max(at - 1, 0) : at], *live[at : at + 1]):
        if offset < start + size and start < offset + hint_of(other.bytes):
            raise VerifyError(f"plan `{plan.name}` has {other} and {buffer} in the same bytes at the same time")
    insort(live, key)
