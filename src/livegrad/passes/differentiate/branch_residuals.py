"""The residuals of branches: each branch stores its own in slots that all branches share, by type."""

from __future__ import annotations

from collections.abc import Sequence

from livegrad.ir.node import Node
from livegrad.ir.types import Type
from livegrad.ops.rules import zero


def assign_shared_slots(residuals: list[tuple[Node, ...]]) -> tuple[list[Type], list[list[int]]]:
    """Slots for the residuals of branches: only one branch runs, so residuals of one type share a slot."""
    slots: list[Type] = []
    slots_of_branches: list[list[int]] = []
    for nodes in residuals:
        free = list(range(len(slots)))
        branch_slots = []
        for node in nodes:
            index = next((i for i in free if slots[i] is node.type), None)
            if index is None:
                index = len(slots)
                slots.append(node.type)
            else:
                free.remove(index)
            branch_slots.append(index)
        slots_of_branches.append(branch_slots)
    return slots, slots_of_branches


def fill_slots(slots: list[Type], residuals: Sequence[Node], positions: list[int]) -> list[Node]:
    by_slot = dict(zip(positions, residuals, strict=True))
    return [by_slot[index] if index in by_slot else zero(type) for index, type in enumerate(slots)]
