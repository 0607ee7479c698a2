"""Verifies plans: nothing is read before it is written, no two live buffers share bytes, no view exceeds its buffer.

Every plan pass is verified with these. They take time linear in the size of the plan.
"""

from __future__ import annotations

from bisect import bisect, insort

from livegrad.diagnostics import VerifyError
from livegrad.ir.symbolic_size import hint_of
from livegrad.schedule.allocate import live_ranges
from livegrad.schedule.plan import Buffer, KernelStep, Plan, Slot, View, reached, reads_of, writes_of


def verify_plan(plan: Plan) -> None:
    """Raises `VerifyError` where the plan could not run as it stands."""
    verify_order(plan)
    verify_views(plan)
    verify_sharing(plan)


# --- order -----------------------------------------------------------------------------------------------------------


def verify_order(plan: Plan) -> None:
    """Raises `VerifyError` where a step reads what no step before it has written."""
    written = {_owner(slot) for slot in plan.arguments}
    for number, step in enumerate(plan.steps):
        results = {_owner(slot) for slot in writes_of(step)}
        reads = {_owner(slot): slot for slot in reads_of(step)}
        for owner, slot in reads.items():
            if owner not in written:
                raise VerifyError(f"step {number} of plan `{plan.name}` reads {slot} before it is written")
        both = results.intersection(reads)
        if both:
            raise VerifyError(f"step {number} of plan `{plan.name}` reads and writes {min(map(str, both))}")
        written |= results
    for slot in plan.results:
        if _owner(slot) not in written:
            raise VerifyError(f"plan `{plan.name}` never writes its result {slot}")


def _owner(slot: Slot) -> Slot:
    return slot.base if isinstance(slot, Buffer) else slot


# --- views -----------------------------------------------------------------------------------------------------------


def verify_views(plan: Plan) -> None:
    """Raises `VerifyError` where a kernel leaves a buffer."""
    for number, step in enumerate(plan.steps):
        if isinstance(step, KernelStep):
            extents = (*step.domain, *step.inner)
            for view in (*step.reads, *step.outputs):
                if not _is_inside(view, extents):
                    raise VerifyError(
                        f"step {number} of plan `{plan.name}` accesses memory outside of {view.buffer}", found=str(view)
                    )
            for view in step.scalar_arguments:
                if not 0 <= view.offset < view.buffer.size:
                    raise VerifyError(
                        f"step {number} of plan `{plan.name}` accesses memory outside of {view.buffer}", found=str(view)
                    )


def verify_step(step: KernelStep, made_by: str) -> None:
    """Raises `VerifyError` where a kernel that a pass has changed leaves a buffer."""
    extents = (*step.domain, *step.inner)
    for view in (*step.reads, *step.outputs):
        if not _is_inside(view, extents):
            raise VerifyError(
                f"after `{made_by}`, kernel `{step.kernel.name}` accesses memory outside of {view.buffer}",
                found=str(view),
            )


def _is_inside(view: View, extents: tuple[int, ...]) -> bool:
    if len(view.strides) != len(extents):
        return False
    if 0 in extents:
        return True
    first, last = reached(view.offset, view.strides, extents)
    return first >= 0 and last < view.buffer.size


# --- shared bytes ----------------------------------------------------------------------------------------------------


def verify_sharing(plan: Plan) -> None:
    """Raises `VerifyError` where two living buffers share bytes.

    Walks the steps with the set of living buffers, in the order of their places: only neighbours can overlap.
    """
    private = {buffer for chain in plan.chains for buffer in chain.private}
    inside = [buffer for buffer in plan.buffers if buffer.lifetime == "graph" and buffer not in private]
    ranges = _widened(live_ranges(plan.steps, inside), plan)
    begins: dict[int, list[Buffer]] = {}
    ends: dict[int, list[Buffer]] = {}
    for buffer, (first, last) in ranges.items():
        begins.setdefault(first, []).append(buffer)
        ends.setdefault(last, []).append(buffer)
    living: list[tuple[int, int, Buffer]] = []
    for number in range(len(plan.steps)):
        for buffer in begins.get(number, ()):
            _check_arena_range(plan, living, buffer)
        for buffer in ends.get(number, ()):
            living.remove(_spot(plan, buffer))


def _widened(ranges: dict[Buffer, tuple[int, int]], plan: Plan) -> dict[Buffer, tuple[int, int]]:
    """Lives in which all steps of a chain, which run in turn, count as one."""
    if not plan.chains:
        return ranges
    number = {id(step): number for number, step in enumerate(plan.steps)}
    spans = [sorted(number[id(step)] for step in chain.steps) for chain in plan.chains]
    first_of = {inside: span[0] for span in spans for inside in span}
    last_of = {inside: span[-1] for span in spans for inside in span}
    return {b: (first_of.get(first, first), last_of.get(last, last)) for b, (first, last) in ranges.items()}


def _spot(plan: Plan, buffer: Buffer) -> tuple[int, int, Buffer]:
    if buffer not in plan.arena_offsets:
        raise VerifyError(f"plan `{plan.name}` has no arena offset for {buffer}")
    return hint_of(plan.arena_offsets[buffer]), buffer.number, buffer  # of symbolic sizes, one example is verified


def _check_arena_range(plan: Plan, living: list[tuple[int, int, Buffer]], buffer: Buffer) -> None:
    spot = _spot(plan, buffer)
    size = hint_of(buffer.bytes)
    if spot[0] + size > hint_of(plan.arena_bytes):
        raise VerifyError(f"plan `{plan.name}` puts {buffer} outside of its {plan.arena_bytes} bytes")
    at = bisect(living, spot)
    for offset, _, other in (*living[max(at - 1, 0) : at], *living[at : at + 1]):
        if offset < spot[0] + size and spot[0] < offset + hint_of(other.bytes):
            raise VerifyError(f"plan `{plan.name}` has {other} and {buffer} in the same bytes at the same time")
    insort(living, spot)
