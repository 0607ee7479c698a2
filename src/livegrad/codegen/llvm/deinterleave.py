"""De-interleaving loads and interleaving stores: short contiguous rows (AoS to SoA), and small-stride accesses.

Called by `accesses.py` when all lanes are active: full loads and shuffles take a fraction of the time of gathers.
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
    """The columns of one row per lane, the first row at `address`."""
    stored_type, total = memory_type(type), builder.lanes * length
    wide = builder.load(address, stored_type, total, byte_size(type))
    columns = [builder.shuffle(wide, range(column, total, length)) for column in range(length)]
    return [from_memory(builder, column, type) for column in columns]


def store_columns(builder: Builder, address: Register, columns: list[Register]) -> None:
    """Stores one row per lane, given their columns."""
    lanes, length = builder.lanes, len(columns)
    stored = [to_memory(builder, builder.widen(column, lanes)) for column in columns]
    joined = stored[0]
    for count, column in enumerate(stored[1:], start=1):
        joined = _append(builder, joined, column, lanes * count)
    packed = builder.shuffle(joined, [lanes * column + row for row in range(lanes) for column in range(length)])
    builder.store(packed, address, byte_size(columns[0].type))


def load_spread(builder: Builder, address: Register, type: Scalar, step: int, lanes: int = 0) -> Register:
    """Loads lanes that are `step` elements apart, by two overlapping loads from the first to the last element."""
    stored_type, lanes = memory_type(type), lanes or builder.lanes
    if step < 0:
        start = element_address(builder, address, type, builder.constant(step * (lanes - 1), i64))
        return from_memory(
            builder,
            builder.shuffle(load_vector(builder, start, stored_type, None, lanes), range(lanes - 1, -1, -1)),
            type,
        )
    half = lanes * step // 2
    shift = step * (lanes - 1) + 1 - half
    low = load_vector(builder, address, stored_type, None, half)
    high_address = element_address(builder, address, type, builder.constant(shift, i64))
    high = load_vector(builder, high_address, stored_type, None, half)
    element_indices = [
        element if element < half else half + element - shift for element in range(0, lanes * step, step)
    ]
    return from_memory(builder, builder.shuffle(low, element_indices, high), type)


def store_spread(builder: Builder, address: Register, value: Register, step: int) -> None:
    """Stores lanes that are `step` elements apart; the elements between them stay as they are."""
    stored, lanes = to_memory(builder, value), builder.lanes
    if step < 0:
        start = element_address(builder, address, stored.type, builder.constant(step * (lanes - 1), i64))
        store_vector(builder, start, builder.shuffle(stored, range(lanes - 1, -1, -1)), None)
        return
    sources = [element // step if element % step == 0 else None for element in range(lanes * step)]
    bits = ", ".join(f"i1 {'false' if element is None else 'true'}" for element in sources)
    mask = Register(f"<{bits}>", bool_, lanes * step, literal=True)
    store_vector(builder, address, builder.shuffle(stored, sources), mask)


def _append(builder: Builder, first: Register, second: Register, size: int) -> Register:
    """The lanes of both; a shuffle takes vectors of equal width, so the second is padded to the width of the first."""
    total = size + second.lanes
    padded = builder.shuffle(second, [*range(second.lanes), *[None] * (size - second.lanes)])
    return builder.shuffle(first, range(total), padded)
