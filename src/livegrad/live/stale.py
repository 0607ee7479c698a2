"""Computes which steps of a live plan must run: the stale steps and their dependents.

In: a plan, the steps that a change affects directly, and the contents of shared memory. Out: steps in order,
with reasons.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from heapq import heapify, heappop, heappush

from livegrad.live.compile.live_plan import LivePlan
from livegrad.live.compile.live_steps import operand_key

Contents = Mapping[int, str]  # slot → the buffer whose contents it holds


def stale_steps(plan: LivePlan, seeds: Mapping[str, str], contents: Contents) -> dict[str, str]:
    """The seeds, all their dependents, and producers whose results were overwritten; in order, with reasons."""
    reasons = dict(seeds)
    position = plan.position
    waiting = [(position[key], key) for key in reasons]
    heapify(waiting)
    ordered: dict[str, str] = {}
    while waiting:
        _, key = heappop(waiting)
        if key in ordered:
            continue
        ordered[key] = reasons[key]
        for source in _lost_producers(plan, key, contents):
            if source not in reasons:
                reasons[source] = f"{key} reads it, and its memory was reused"
                heappush(waiting, (position[source], source))
        for consumer in plan.consumers[key]:
            if consumer not in reasons:
                reasons[consumer] = f"reads {key}, which ran"
                heappush(waiting, (position[consumer], consumer))
    if plan.slot_of:  # a producer may come after its reader in `ordered`
        return {key: reasons[key] for key in sorted(ordered, key=position.__getitem__)}
    return ordered


def _lost_producers(plan: LivePlan, key: str, contents: Contents) -> Iterable[str]:
    """The steps whose results this one reads, and whose memory was overwritten."""
    if not plan.slot_of:
        return
    for operand in plan.steps[key].all_operands():
        name = str(operand_key(operand))
        slot = plan.slot_of.get(name)
        if slot is not None and contents.get(slot) != name:
            yield plan.producer[name]


def steps_to_restore(plan: LivePlan, target: str, contents: Contents) -> list[str]:
    """The steps that restore the results of a step: the step itself, and producers whose results are overwritten."""
    needed = {target}
    is_growing = True
    while is_growing:
        written = {plan.slot_of[b]: b for key in needed for b in plan.steps[key].results if b in plan.slot_of}
        reads = {str(operand_key(o)) for key in needed for o in plan.steps[key].all_operands()}
        lost = {
            plan.producer[name]
            for name in reads & plan.slot_of.keys()
            # Overwritten already, or about to be by another step of this run.
            if contents.get(plan.slot_of[name]) != name or written.get(plan.slot_of[name], name) != name
        }
        is_growing = not lost <= needed
        needed |= lost
    return sorted(needed, key=plan.position.__getitem__)
