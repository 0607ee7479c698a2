"""De-interleaving loads: short contiguous rows as one vector per column (AoS to SoA), and small-stride accesses.

`accesses.py` uses it when all lanes are active: full loads and shuffles take a fraction of the time of gathers.
"""

from __future__ import annotations

from livegrad.codegen.llvm.builder import Builder
from livegrad.codegen.llvm.registers import Register
from livegrad.codegen.llvm.vector_memory import (
    element_address,
    from_memory,
    load_vector,
    memory_type,
    store_vector,
    to_memory,
)
from livegrad.ir.types import Scalar, bool_, i64
from livegrad.schedule.loops.cost_model import byte_size


def load_columns(builder: Builder, address: Register, type: Scalar, length: int) -> list[Register]:
    """The columns of as many rows as there are lanes, the first of them at `address`."""
    held, total = memory_type(type), builder.lanes * length
    wide = builder.load(address, held, total, byte_size(type))
    columns = [builder.shuffle(wide, range(column, total, length)) for column in range(length)]
    return [from_memory(builder, column, type) for column in columns]


def store_columns(builder: Builder, address: Register, columns: list[Register]) -> None:
    """Writes rows, as many as there are lanes, from their columns."""
    lanes, length = builder.lanes, len(columns)
    held = [to_memory(builder, builder.widen(column, lanes)) for column in columns]
    joined = held[0]
    for rows, column in enumerate(held[1:], start=1):
        joined = _appended(builder, joined, column, lanes * rows)
    packed = builder.shuffle(joined, [lanes * column + row for row in range(lanes) for column in range(length)])
    builder.store(packed, address, byte_size(columns[0].type))


def load_spread(builder: Builder, address: Register, type: Scalar, step: int, lanes: int = 0) -> Register:
    """Lanes that are `step` elements apart: two loads, from the first element and up to the last, hold all of them."""
    held, lanes = memory_type(type), lanes or builder.lanes
    if step < 0:
        start = element_address(builder, address, type, builder.constant(step * (lanes - 1), i64))
        return from_memory(
            builder, builder.shuffle(load_vector(builder, start, held, None, lanes), range(lanes - 1, -1, -1)), type
        )
    half = lanes * step // 2
    shift = step * (lanes - 1) + 1 - half
    low = load_vector(builder, address, held, None, half)
    high = load_vector(builder, element_address(builder, address, type, builder.constant(shift, i64)), held, None, half)
    element_indices = [
        element if element < half else half + element - shift for element in range(0, lanes * step, step)
    ]
    return from_memory(builder, builder.shuffle(low, element_indices, high), type)


def store_spread(builder: Builder, address: Register, value: Register, step: int) -> None:
    """Writes lanes that are `step` elements apart, and nothing between them."""
    held, lanes = to_memory(builder, value), builder.lanes
    if step < 0:
        start = element_address(builder, address, held.type, builder.constant(step * (lanes - 1), i64))
        store_vector(builder, start, builder.shuffle(held, range(lanes - 1, -1, -1)), None)
        return
    sources = [element // step if element % step == 0 else None for element in range(lanes * step)]
    marks = ", ".join(f"i1 {'false' if element is None else 'true'}" for element in sources)
    mask = Register(f"<{marks}>", bool_, lanes * step, literal=True)
    store_vector(builder, address, builder.shuffle(held, sources), mask)


def _appended(builder: Builder, first: Register, second: Register, size: int) -> Register:
    """The lanes of both; a shuffle takes two vectors of one width, so the second is padded to the first's."""
    total = size + second.lanes
    padded = builder.shuffle(second, [*range(second.lanes), *[None] * (size - second.lanes)])
    return builder.shuffle(first, range(total), padded)
