"""Maps buffers of a plan to the argument slots of kernels, for CPU and CUDA.

Every argument of a kernel is a slot of eight bytes: an integer constant, or an offset into memory whose address is
known at run time (`ArgumentSlot`). Serialised executables list the slots of every kernel.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, NamedTuple

from livegrad.schedule.plan import Buffer, Plan

# cell: a scalar argument in memory; value: the scalar itself; run: the function of the thread pool; table: constants of
# a library, selected by two integers. For chains of CPU kernels, before the chain is built: the code and the argument
# block of a member, and memory that is private to the chain.
SlotKind = Literal[
    "external", "cell", "value", "arena", "scratch", "status", "full", "interrupt", "run",
    "tapes", "tape_bytes", "partials", "counters",
    "code", "block", "private", "table",
]  # fmt: skip


class ArgumentSlot(NamedTuple):
    """An argument that is known at run time: a kind of memory, a buffer of that kind, and an offset in bytes."""

    kind: SlotKind
    buffer: int = 0  # the index of the buffer, or of a member of a chain
    offset: int = 0


Slots = tuple[int | ArgumentSlot, ...]


def buffer_slot(buffer: Buffer, plan: Plan, offset: int = 0) -> ArgumentSlot:
    """The slot for the address of an element of a buffer, given its offset in elements."""
    base = buffer.base
    if base.lifetime == "region":
        return ArgumentSlot("scratch", base.number)
    shift = offset * buffer.element.dtype.itemsize
    if base.lifetime == "graph":
        return ArgumentSlot("arena", 0, plan.arena_offsets[base] + shift)
    return ArgumentSlot("cell" if is_cell(base, plan) else "external", base.number, shift)


def is_cell(buffer: Buffer, plan: Plan) -> bool:
    """Whether a buffer is a scalar argument of the plan."""
    base = buffer.base
    return base.lifetime == "external" and base.shape == () and base in plan.arguments


def decode_slots(data: Iterable[Any]) -> Slots:
    """Converts slots from JSON, which has lists instead of tuples.

    >>> decode_slots([64, ["arena", 0, 128]])
    (64, ArgumentSlot(kind='arena', buffer=0, offset=128))
    """
    return tuple([slot if isinstance(slot, int) else ArgumentSlot(*slot) for slot in data])
