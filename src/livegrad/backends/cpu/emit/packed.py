"""Short rows in memory, one after the other, as one vector for each of their columns: a lane for each row.

`accesses.py` calls it where all lanes are there: whole vectors and shuffles take a fraction of the time of gathering.
"""

from __future__ import annotations

from collections.abc import Sequence

from livegrad.backends.cpu.emit.assembler import Assembler
from livegrad.backends.cpu.emit.memory import from_memory, memory_type, to_memory
from livegrad.backends.cpu.emit.values import Register, byte_size, llvm_type
from livegrad.ir.types import Scalar


def load_columns(asm: Assembler, pointer: str, type: Scalar, length: int) -> list[Register]:
    """The columns of as many rows as there are lanes, the first of them at `pointer`."""
    held, total = memory_type(type), asm.lanes * length
    wide = asm.make(f"load {llvm_type(held, total)}, ptr {pointer}, align {byte_size(type)}", held, total)
    columns = [_picked(asm, wide, range(column, total, length)) for column in range(length)]
    return [from_memory(asm, column, type) for column in columns]


def store_columns(asm: Assembler, pointer: str, columns: list[Register]) -> None:
    """Writes rows, as many as there are lanes, from their columns."""
    lanes, length = asm.lanes, len(columns)
    held = [to_memory(asm, asm.widen(column, lanes)) for column in columns]
    joined = held[0]
    for rows, column in enumerate(held[1:], start=1):
        joined = _appended(asm, joined, column, lanes * rows)
    packed = _picked(asm, joined, [lanes * column + row for row in range(lanes) for column in range(length)])
    asm.line(f"store {packed.typed}, ptr {pointer}, align {byte_size(columns[0].type)}")


def _picked(asm: Assembler, source: Register, places: Sequence[int | None]) -> Register:
    """The lanes at these places; None: whatever."""
    wanted = ", ".join("i32 poison" if place is None else f"i32 {place}" for place in places)
    vector = llvm_type(source.type, source.lanes)
    text = f"shufflevector {source.typed}, {vector} poison, <{len(places)} x i32> <{wanted}>"
    return asm.make(text, source.type, len(places))


def _appended(asm: Assembler, first: Register, second: Register, size: int) -> Register:
    """The lanes of both; a shuffle takes two vectors of one width, so the second is padded to the first's."""
    total = size + second.lanes
    padded = _picked(asm, second, [*range(second.lanes), *[None] * (size - second.lanes)])
    wanted = ", ".join(f"i32 {lane}" for lane in range(total))
    text = f"shufflevector {first.typed}, {padded.typed}, <{total} x i32> <{wanted}>"
    return asm.make(text, first.type, total)
