"""Loads and stores of elements and vectors: contiguous, or gathered by offsets. Booleans take a byte in memory."""

from __future__ import annotations

from livegrad.codegen.llvm.builder import Builder
from livegrad.codegen.llvm.registers import Register, llvm_memory
from livegrad.ir.types import Scalar, bool_, u8
from livegrad.schedule.loops.cost_model import byte_size
from livegrad.schedule.plan import ALIGNMENT


def memory_type(type: Scalar) -> Scalar:
    """The type that memory holds: a byte for a truth value."""
    return u8 if type.kind == "bool" else type


def from_memory(builder: Builder, value: Register, type: Scalar) -> Register:
    if type.kind != "bool":
        return value
    return builder.apply("icmp ne", bool_, value, builder.constant(0, u8))


def to_memory(builder: Builder, value: Register) -> Register:
    if value.type.kind != "bool":
        return value
    return builder.convert("zext", value, u8)


def element_address(builder: Builder, base: Register, type: Scalar, index: Register) -> Register:
    return builder.advance(base, index, llvm_memory(type))


def load_element(builder: Builder, address: Register, type: Scalar, flags: str = "") -> Register:
    return from_memory(builder, builder.load(address, memory_type(type), align=byte_size(type), flags=flags), type)


def load_uniform(builder: Builder, address: Register, type: Scalar) -> Register:
    """An element that nothing writes while the kernel runs."""
    loaded = builder.load(address, memory_type(type), align=byte_size(type), flags=", !invariant.load !0")
    return from_memory(builder, loaded, type)


def store_element(builder: Builder, address: Register, value: Register, flags: str = "") -> None:
    builder.store(to_memory(builder, value), address, byte_size(value.type), flags)


def load_vector(
    builder: Builder, address: Register, type: Scalar, mask: Register | None, lanes: int = 0, flags: str = ""
) -> Register:
    """Lanes (as many as the builder has, if not told) from consecutive elements; only those of the mask are read."""
    held, lanes = memory_type(type), lanes or builder.lanes
    if mask is None:
        return from_memory(builder, builder.load(address, held, lanes, byte_size(type), flags), type)
    return from_memory(builder, builder.masked_load(address, held, mask, byte_size(type)), type)


def store_vector(
    builder: Builder, address: Register, value: Register, mask: Register | None, non_temporal: bool = False
) -> None:
    """Lanes to consecutive elements; a non-temporal store has all lanes, fills cache lines and begins at one."""
    held = to_memory(builder, value)
    if mask is not None:
        builder.masked_store(held, address, mask, byte_size(value.type))
    elif non_temporal:
        builder.store(held, address, ALIGNMENT, ", !nontemporal !1")
    else:
        builder.store(held, address, byte_size(value.type))


def gather(builder: Builder, base: Register, type: Scalar, offsets: Register, mask: Register | None) -> Register:
    """Lanes from elements at these offsets."""
    addresses = element_address(builder, base, type, offsets)
    active = mask or builder.widen(builder.constant(True, bool_), offsets.lanes)
    loaded = builder.masked_load(addresses, memory_type(type), active, byte_size(type))
    return from_memory(builder, loaded, type)


def scatter(builder: Builder, base: Register, value: Register, offsets: Register, mask: Register | None) -> None:
    """Lanes to elements at these offsets."""
    held = to_memory(builder, builder.widen(value, builder.lanes))
    addresses = element_address(builder, base, value.type, offsets)
    active = mask or builder.widen(builder.constant(True, bool_), builder.lanes)
    builder.masked_store(held, addresses, active, byte_size(value.type))
