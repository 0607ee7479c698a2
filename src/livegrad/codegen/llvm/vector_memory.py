"""Emits loads and stores of elements and vectors: contiguous, gathers and scatters. Booleans take a byte in memory."""

from __future__ import annotations

from livegrad.codegen.llvm.builder import Builder
from livegrad.codegen.llvm.registers import Register, llvm_memory
from livegrad.ir.types import Scalar, bool_, u8
from livegrad.schedule.loops.cost_model import byte_size
from livegrad.schedule.plan import ALIGNMENT


def memory_type(type: Scalar) -> Scalar:
    """The type of an element in memory: a byte for a boolean."""
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
    """Loads an element that nothing writes while the kernel runs."""
    loaded = builder.load(address, memory_type(type), align=byte_size(type), flags=", !invariant.load !0")
    return from_memory(builder, loaded, type)


def store_element(builder: Builder, address: Register, value: Register, flags: str = "") -> None:
    builder.store(to_memory(builder, value), address, byte_size(value.type), flags)


def load_vector(
    builder: Builder, address: Register, type: Scalar, mask: Register | None, lanes: int = 0, flags: str = ""
) -> Register:
    """Loads lanes from consecutive elements, by default the builder's number; masked-off lanes are not read."""
    stored_type, lanes = memory_type(type), lanes or builder.lanes
    if mask is None:
        return from_memory(builder, builder.load(address, stored_type, lanes, byte_size(type), flags), type)
    return from_memory(builder, builder.masked_load(address, stored_type, mask, byte_size(type)), type)


def store_vector(
    builder: Builder, address: Register, value: Register, mask: Register | None, non_temporal: bool = False
) -> None:
    """Stores lanes to consecutive elements. Non-temporal stores write whole, aligned cache lines, without a mask."""
    stored = to_memory(builder, value)
    if mask is not None:
        builder.masked_store(stored, address, mask, byte_size(value.type))
    elif non_temporal:
        builder.store(stored, address, ALIGNMENT, ", !nontemporal !1")
    else:
        builder.store(stored, address, byte_size(value.type))


def gather(builder: Builder, base: Register, type: Scalar, offsets: Register, mask: Register | None) -> Register:
    """Loads lanes from elements at the given offsets."""
    addresses = element_address(builder, base, type, offsets)
    active = mask or builder.widen(builder.constant(True, bool_), offsets.lanes)
    loaded = builder.masked_load(addresses, memory_type(type), active, byte_size(type))
    return from_memory(builder, loaded, type)


def scatter(builder: Builder, base: Register, value: Register, offsets: Register, mask: Register | None) -> None:
    """Stores lanes to elements at the given offsets."""
    stored = to_memory(builder, builder.widen(value, builder.lanes))
    addresses = element_address(builder, base, value.type, offsets)
    active = mask or builder.widen(builder.constant(True, bool_), builder.lanes)
    builder.masked_store(stored, addresses, active, byte_size(value.type))
