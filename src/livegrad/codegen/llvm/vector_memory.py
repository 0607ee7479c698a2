"""Loads and stores of vectors: contiguous, spread with a stride, or gathered by offsets."""

from __future__ import annotations

from livegrad.codegen.llvm.builder import Assembler, intrinsic_suffix
from livegrad.codegen.llvm.registers import Register, llvm_memory, llvm_type
from livegrad.ir.types import Scalar, bool_, u8
from livegrad.schedule.loops.cost_model import byte_size
from livegrad.schedule.plan import ALIGNMENT


def memory_type(type: Scalar) -> Scalar:
    """The type that memory holds: a byte for a truth value."""
    return u8 if type.kind == "bool" else type


def from_memory(asm: Assembler, value: Register, type: Scalar) -> Register:
    if type.kind != "bool":
        return value
    return asm.apply("icmp ne", bool_, value, asm.constant(0, u8))


def to_memory(asm: Assembler, value: Register) -> Register:
    if value.type.kind != "bool":
        return value
    return asm.convert("zext", value, u8)


def element_pointer(asm: Assembler, pointer: str, type: Scalar, index: Register) -> str:
    return asm.raw(f"getelementptr {llvm_memory(type)}, ptr {pointer}, i64 {index.text}")


def load_uniform(asm: Assembler, pointer: str, type: Scalar) -> Register:
    held = memory_type(type)
    align = byte_size(type)
    loaded = asm.make(f"load {llvm_memory(type)}, ptr {pointer}, align {align}, !invariant.load !0", held, 1)
    return from_memory(asm, loaded, type)


def load_vector(asm: Assembler, pointer: str, type: Scalar, mask: Register | None, lanes: int = 0) -> Register:
    """Lanes (as many as the assembler has, if not told) from consecutive elements; only those of the mask are read."""
    held, lanes = memory_type(type), lanes or asm.lanes
    vector, align = llvm_type(held, lanes), byte_size(type)
    if mask is None:
        text = f"load {vector}, ptr {pointer}, align {align}"
        return from_memory(asm, asm.make(text, held, lanes), type)
    suffix = intrinsic_suffix(held, lanes)
    asm.declarations.add(f"declare {vector} @llvm.masked.load.{suffix}.p0(ptr, <{lanes} x i1>, {vector})")
    arguments = f"ptr align {align} {pointer}, {mask.typed}, {vector} zeroinitializer"
    text = f"call {vector} @llvm.masked.load.{suffix}.p0({arguments})"
    return from_memory(asm, asm.make(text, held, lanes), type)


def store_vector(
    asm: Assembler, pointer: str, value: Register, mask: Register | None, past_caches: bool = False
) -> None:
    """Lanes to consecutive elements; past the caches if all are there, they fill lines, and begin at one."""
    held = to_memory(asm, value)
    align = byte_size(value.type)
    if mask is None:
        how = f"align {ALIGNMENT}, !nontemporal !1" if past_caches else f"align {align}"
        asm.line(f"store {held.typed}, ptr {pointer}, {how}")
        return
    vector, suffix = llvm_type(held.type, held.lanes), intrinsic_suffix(held.type, held.lanes)
    asm.declarations.add(f"declare void @llvm.masked.store.{suffix}.p0({vector}, ptr, <{held.lanes} x i1>)")
    asm.line(f"call void @llvm.masked.store.{suffix}.p0({held.typed}, ptr align {align} {pointer}, {mask.typed})")


def gather(asm: Assembler, pointer: str, type: Scalar, offsets: Register, mask: Register | None) -> Register:
    """Lanes from elements at these offsets."""
    held, lanes = memory_type(type), offsets.lanes
    vector, suffix = llvm_type(held, lanes), intrinsic_suffix(held, lanes)
    pointers = asm.raw(f"getelementptr {llvm_memory(type)}, ptr {pointer}, {offsets.typed}")
    asm.declarations.add(
        f"declare {vector} @llvm.masked.gather.{suffix}.v{lanes}p0(<{lanes} x ptr>, <{lanes} x i1>, {vector})"
    )
    active = mask or asm.widen(asm.constant(True, bool_), lanes)
    places = f"<{lanes} x ptr> align {byte_size(type)} {pointers}"
    arguments = f"{places}, {active.typed}, {vector} zeroinitializer"
    text = f"call {vector} @llvm.masked.gather.{suffix}.v{lanes}p0({arguments})"
    return from_memory(asm, asm.make(text, held, lanes), type)


def scatter(asm: Assembler, pointer: str, value: Register, offsets: Register, mask: Register | None) -> None:
    """Lanes to elements at these offsets."""
    held = to_memory(asm, asm.widen(value, asm.lanes))
    vector, suffix = llvm_type(held.type, asm.lanes), intrinsic_suffix(held.type, asm.lanes)
    pointers = asm.raw(f"getelementptr {llvm_memory(value.type)}, ptr {pointer}, {offsets.typed}")
    asm.declarations.add(
        f"declare void @llvm.masked.scatter.{suffix}.v{asm.lanes}p0({vector}, <{asm.lanes} x ptr>, <{asm.lanes} x i1>)"
    )
    active = mask or asm.widen(asm.constant(True, bool_), asm.lanes)
    asm.line(
        f"call void @llvm.masked.scatter.{suffix}.v{asm.lanes}p0({held.typed}, "
        f"<{asm.lanes} x ptr> align {byte_size(value.type)} {pointers}, {active.typed})"
    )
