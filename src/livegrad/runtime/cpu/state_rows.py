"""Finds state of a loop that lives on its tape: iteration i reads it in row i and writes row i + 1.

In: the plan of a body that copies a leaf of its state to a row of a tape, as bodies of gradients do. Out: where these
leaves are. Nothing is copied then, and the state needs no buffers. Called by `loop_body.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from livegrad.schedule.kept_parts import whole_copies
from livegrad.schedule.plan import Buffer, Plan, Slot

RowSlots = Sequence[tuple[Sequence[Slot], Sequence[Slot]]]  # what a body reads and writes, for each tape


class StateRow(NamedTuple):
    """A leaf of the state that is a column of a tape."""

    leaf: int  # its number among the leaves of the state
    tape: int
    column: int  # of those that the body writes
    step: int  # the copy that is left out


def find_state_rows(
    plan: Plan, state_in: Sequence[Slot], state_out: Sequence[Slot], row_slots: RowSlots
) -> list[StateRow]:
    """The leaves of the state that the plan copies to rows of tapes."""
    leaves = {into: leaf for leaf, into in enumerate(state_in) if _is_free(leaf, state_in, state_out, row_slots)}
    columns = {slot: (t, c) for t, (_, writes) in enumerate(row_slots) for c, slot in enumerate(writes)}
    found: dict[int, StateRow] = {}
    for number, step in enumerate(plan.steps):
        copies = whole_copies(step)
        if len(copies) != 1 or copies[0][0] not in columns or copies[0][1] not in leaves:
            continue
        row, leaf = copies[0][0], leaves[copies[0][1]]
        others = {base for other in plan.steps if other is not step for base in (*other.inputs, *other.results)}
        if row not in others and list(plan.results).count(row) == 1 and leaf not in found:
            found[leaf] = StateRow(leaf, *columns[row], number)
    return list(found.values())


def _is_free(leaf: int, state_in: Sequence[Slot], state_out: Sequence[Slot], row_slots: RowSlots) -> bool:
    """Whether the argument and the result of a leaf are buffers of their own."""
    into, out = state_in[leaf], state_out[leaf]
    if not isinstance(into, Buffer) or not isinstance(out, Buffer) or into.bytes != out.bytes:
        return False
    results = [*state_out, *[slot for _, writes in row_slots for slot in writes]]
    return into not in results and results.count(out) == 1 and out not in state_in
