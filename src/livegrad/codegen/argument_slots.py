"""Argument slots of kernels, for CPU and CUDA. In: a buffer of a plan. Out: the slot that holds its address.

All arguments of a kernel are slots of eight bytes. A slot has a number that is known beforehand (an `int`), or an
offset into memory whose address is known at run time. Serialised executables list the slots of every kernel.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, NamedTuple

from livegrad.schedule.plan import Buffer, Plan

# cell: a scalar argument in memory; value: the scalar itself; run: the function of the thread pool; table: constants of
# a library, with two numbers that say which. Of CPU chains: code
# and block are those of a member, private is memory of the chain before the chain itself is built.
SlotKind = Literal[
    "external", "cell", "value", "arena", "scratch", "status", "full", "interrupt", "run",
    "tapes", "tape_bytes", "partials", "counters",
    "code", "block", "private", "table",
]  # fmt: skip


class ArgumentSlot(NamedTuple):
    """An argument that is filled in at run time: which kind of memory, which buffer of that kind, and a byte offset."""

    kind: SlotKind
    buffer: int = 0  # its number; of a chain, the index of a member
    offset: int = 0


Slots = tuple[int | ArgumentSlot, ...]


def buffer_slot(buffer: Buffer, plan: Plan, offset: int = 0) -> ArgumentSlot:
    """The slot for the address of a buffer's element, by its offset in elements."""
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
    """Slots from JSON, which has lists for tuples.

    >>> decode_slots([64, ["arena", 0, 128]])
    (64, ArgumentSlot(kind='arena', buffer=0, offset=128))
    """
    return tuple([slot if isinstance(slot, int) else ArgumentSlot(*slot) for slot in data])
