"""De-interleaving loads: short contiguous rows as one vector per column (AoS to SoA), and small-stride accesses.

`accesses.py` uses it when all lanes are active: full loads and shuffles take a fraction of the time of gathers.
"""

from __future__ import annotations

from collections.abc import Sequence

from livegrad.codegen.llvm.builder import Assembler
from livegrad.codegen.llvm.registers import Register, llvm_type
from livegrad.codegen.llvm.vector_memory import (
    element_pointer,
    from_memory,
    load_vector,
    memory_type,
    store_vector,
    to_memory,
)
from livegrad.ir.types import Scalar, bool_, i64
from livegrad.schedule.loops.cost_model import byte_size


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


def load_spread(asm: Assembler, pointer: str, type: Scalar, step: int, lanes: int = 0) -> Register:
    """Lanes that are `step` elements apart: two loads, from the first element and up to the last, hold all of them."""
    held, lanes = memory_type(type), lanes or asm.lanes
    if step < 0:
        start = element_pointer(asm, pointer, type, asm.constant(step * (lanes - 1), i64))
        return from_memory(
            asm, _picked(asm, load_vector(asm, start, held, None, lanes), range(lanes - 1, -1, -1)), type
        )
    half = lanes * step // 2
    shift = step * (lanes - 1) + 1 - half
    low = load_vector(asm, pointer, held, None, half)
    high = load_vector(asm, element_pointer(asm, pointer, type, asm.constant(shift, i64)), held, None, half)
    places = [place if place < half else half + place - shift for place in range(0, lanes * step, step)]
    return from_memory(asm, _picked(asm, low, places, high), type)


def store_spread(asm: Assembler, pointer: str, value: Register, step: int) -> None:
    """Writes lanes that are `step` elements apart, and nothing between them."""
    held, lanes = to_memory(asm, value), asm.lanes
    if step < 0:
        start = element_pointer(asm, pointer, held.type, asm.constant(step * (lanes - 1), i64))
        store_vector(asm, start, _picked(asm, held, range(lanes - 1, -1, -1)), None)
        return
    places = [place // step if place % step == 0 else None for place in range(lanes * step)]
    marks = ", ".join(f"i1 {'false' if place is None else 'true'}" for place in places)
    mask = Register(f"<{marks}>", bool_, lanes * step, literal=True)
    store_vector(asm, pointer, _picked(asm, held, places), mask)


def _picked(asm: Assembler, source: Register, places: Sequence[int | None], second: Register | None = None) -> Register:
    """Shuffles: selects these lanes, also from an optional second vector; None is undefined."""
    wanted = ", ".join("i32 poison" if place is None else f"i32 {place}" for place in places)
    vector = llvm_type(source.type, source.lanes)
    other = "poison" if second is None else second.text
    text = f"shufflevector {source.typed}, {vector} {other}, <{len(places)} x i32> <{wanted}>"
    return asm.make(text, source.type, len(places))


def _appended(asm: Assembler, first: Register, second: Register, size: int) -> Register:
    """The lanes of both; a shuffle takes two vectors of one width, so the second is padded to the first's."""
    total = size + second.lanes
    padded = _picked(asm, second, [*range(second.lanes), *[None] * (size - second.lanes)])
    wanted = ", ".join(f"i32 {lane}" for lane in range(total))
    text = f"shufflevector {first.typed}, {padded.typed}, <{total} x i32> <{wanted}>"
    return asm.make(text, first.type, total)
