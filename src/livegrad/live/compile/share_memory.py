"""Assigns shared memory slots to buffers of a live plan. The last phase of the graph compiler.

Two buffers share bytes only if every reader of the first precedes the writer of the second by dependency, so that no
execution order can mix them up, and only if both and all those readers become stale together. Buffers that users read
(sinks, and outputs passed to `keep`), states and external memory never share.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from livegrad.live.compile.live_plan import LivePlan
from livegrad.live.compile.live_steps import operand_key


@dataclass
class _Slot:
    """A slot of shared memory: its size, and the buffer that uses it last."""

    bytes: int
    last: str


def share_memory(plan: LivePlan, kept: frozenset[str] = frozenset()) -> LivePlan:
    """Returns the plan with memory slots for the buffers that share memory."""
    ancestors, classes = _ancestors(plan), staleness_classes(plan)
    unshared = {state.next for state in plan.states} | kept
    slots: list[_Slot] = []
    slot_of: dict[str, int] = {}
    for key, step in plan.steps.items():
        for buffer in step.results:
            readers = plan.readers.get(buffer, ())
            if not readers or buffer in unshared:
                continue
            if any(classes[reader] != classes[key] for reader in readers):
                continue
            size = plan.buffers[buffer].bytes
            index = next(
                (
                    index
                    for index, slot in enumerate(slots)
                    if slot.bytes >= size and _may_follow(plan, slot.last, key, ancestors, classes)
                ),
                None,
            )
            if index is None:
                index = len(slots)
                slots.append(_Slot(size, buffer))
            slots[index].last = buffer
            slot_of[buffer] = index
    return replace(plan, slot_of=slot_of, slots=tuple(slot.bytes for slot in slots), reuses_memory=True)


def _may_follow(plan: LivePlan, first: str, writer: str, ancestors: dict[str, int], classes: dict[str, int]) -> bool:
    """Whether the results of `writer` may reuse the memory of the buffer `first`."""
    producer = plan.producer[first]
    if classes[producer] != classes[writer]:
        return False
    before = ancestors[writer]
    return all(before >> plan.position[reader] & 1 for reader in plan.readers[first])


def _ancestors(plan: LivePlan) -> dict[str, int]:
    """The ancestors of each step, as a bit mask over positions."""
    ancestors: dict[str, int] = {}
    for key, step in plan.steps.items():
        mask = 0
        for operand in step.all_operands():
            source = plan.producer.get(str(operand_key(operand)))
            if source is not None:
                mask |= ancestors[source] | 1 << plan.position[source]
        ancestors[key] = mask
    return ancestors


def staleness_classes(plan: LivePlan) -> dict[str, int]:
    """For each step, a bit mask of the roots (parameters, features, memory, states) that it depends on."""
    bits: dict[object, int] = {}
    classes: dict[str, int] = {}
    for key, step in plan.steps.items():
        mask = 0
        for operand in step.all_operands():
            name = operand_key(operand)
            source = plan.producer.get(name) if isinstance(name, str) else None
            mask |= classes[source] if source is not None else 1 << bits.setdefault(name, len(bits))
        classes[key] = mask
    return classes
