"""Computes which steps of a live plan must run: the stale steps and their dependents.

In: a plan, the directly affected steps, and the contents of shared memory. Out: steps in order, with reasons.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from heapq import heapify, heappop, heappush

from livegrad.live.compile.live_plan import LivePlan, operand_key

Contents = Mapping[int, str]  # slot → the buffer whose contents it has


def stale_steps(plan: LivePlan, seeds: Mapping[str, str], contents: Contents) -> dict[str, str]:
    """The seeds, everything below them, and producers whose results were overwritten; in order, with reasons."""
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
                reasons[source] = f"{key} reads it, and its memory was used again"
                heappush(waiting, (position[source], source))
        for consumer in plan.consumers[key]:
            if consumer not in reasons:
                reasons[consumer] = f"reads {key}, which ran"
                heappush(waiting, (position[consumer], consumer))
    if plan.places:  # a producer may have been found after its reader
        return {key: reasons[key] for key in sorted(ordered, key=position.__getitem__)}
    return ordered


def _lost_producers(plan: LivePlan, key: str, contents: Contents) -> Iterable[str]:
    """The steps whose results this one reads, and which are no longer there because memory is shared."""
    if not plan.places:
        return
    for operand in plan.steps[key].all_operands():
        name = str(operand_key(operand))
        place = plan.places.get(name)
        if place is not None and contents.get(place) != name:
            yield plan.producer[name]


def steps_to_restore(plan: LivePlan, target: str, contents: Contents) -> list[str]:
    """What must run so that a step's results are in memory again: it, and what it needs that is gone too."""
    needed = {target}
    grown = True
    while grown:
        written = {plan.places[b]: b for key in needed for b in plan.steps[key].results if b in plan.places}
        reads = {str(operand_key(o)) for key in needed for o in plan.steps[key].all_operands()}
        lost = {
            plan.producer[name]
            for name in reads & plan.places.keys()
            # Gone already, or about to be overwritten by another of those that run now.
            if contents.get(plan.places[name]) != name or written.get(plan.places[name], name) != name
        }
        grown = not lost <= needed
        needed |= lost
    return sorted(needed, key=plan.position.__getitem__)
