"""Dependencies between launches. In: ordered steps. Out: the indices of each step's predecessors.

Two steps are ordered if one writes what the other reads or writes; buffers that share bytes of the arena count as one.
All others may run concurrently.
"""

from __future__ import annotations

from collections.abc import Sequence

from livegrad.schedule.plan import Buffer, Plan, Step


def dependencies(
    steps: Sequence[Step], plan: Plan, one_by_one: Sequence[int] = (), in_turn: Sequence[int] = ()
) -> list[list[int]]:
    """For each step the numbers of earlier ones that must have ended.

    Those `one_by_one` share memory for tapes, those `in_turn` the memory of a library.
    """
    overlaps = _overlaps(plan)
    writer: dict[Buffer, int] = {}
    readers: dict[Buffer, list[int]] = {}
    found: list[list[int]] = []
    for number, step in enumerate(steps):
        before: set[int] = set()
        inputs, results = dict.fromkeys(step.inputs), dict.fromkeys(step.results)
        for buffer in inputs:
            before.update(writer[other] for other in overlaps.get(buffer, (buffer,)) if other in writer)
        for buffer in results:
            for other in overlaps.get(buffer, (buffer,)):
                before.update(readers.get(other, ()))
                if other in writer:
                    before.add(writer[other])
        for sharing in (one_by_one, in_turn):
            if number in sharing:
                before.update([other for other in sharing if other < number][-1:])
        before.discard(number)
        for buffer in inputs:
            readers.setdefault(buffer, []).append(number)
        for buffer in results:
            writer[buffer] = number
        found.append(sorted(before))
    return found


def _overlaps(plan: Plan) -> dict[Buffer, tuple[Buffer, ...]]:
    """For each buffer of the arena those that share bytes with it, itself among them."""
    ordered = sorted(plan.places, key=lambda buffer: plan.places[buffer])
    found: dict[Buffer, list[Buffer]] = {buffer: [buffer] for buffer in ordered}
    open_: list[tuple[int, Buffer]] = []
    for buffer in ordered:
        start = plan.places[buffer]
        open_ = [(end, other) for end, other in open_ if end > start]
        for _, other in open_:
            found[buffer].append(other)
            found[other].append(buffer)
        open_.append((start + buffer.reserved_bytes, buffer))
    return {buffer: tuple(others) for buffer, others in found.items()}
