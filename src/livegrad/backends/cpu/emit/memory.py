"""Loads and stores of vectors: contiguous, spread with a stride, or gathered by computed index."""

from __future__ import annotations

from livegrad.backends.cpu.emit.assembler import Assembler, intrinsic_suffix
from livegrad.backends.cpu.emit.values import Register, TensorReference, byte_size, llvm_memory, llvm_type
from livegrad.diagnostics import CompileError
from livegrad.ir.node import Node
from livegrad.ir.types import Scalar, bool_, i64, u8


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


def load_vector(asm: Assembler, pointer: str, type: Scalar, mask: Register | None) -> Register:
    """Lanes from consecutive elements; only those of the mask are read."""
    held = memory_type(type)
    vector, align = llvm_type(held, asm.lanes), byte_size(type)
    if mask is None:
        text = f"load {vector}, ptr {pointer}, align {align}"
        return from_memory(asm, asm.make(text, held, asm.lanes), type)
    suffix = intrinsic_suffix(held, asm.lanes)
    asm.declarations.add(f"declare {vector} @llvm.masked.load.{suffix}.p0(ptr, <{asm.lanes} x i1>, {vector})")
    arguments = f"ptr align {align} {pointer}, {mask.typed}, {vector} zeroinitializer"
    text = f"call {vector} @llvm.masked.load.{suffix}.p0({arguments})"
    return from_memory(asm, asm.make(text, held, asm.lanes), type)


def store_vector(asm: Assembler, pointer: str, value: Register, mask: Register | None) -> None:
    held = to_memory(asm, asm.widen(value, asm.lanes))
    align = byte_size(value.type)
    if mask is None:
        asm.line(f"store {held.typed}, ptr {pointer}, align {align}")
        return
    vector, suffix = llvm_type(held.type, asm.lanes), intrinsic_suffix(held.type, asm.lanes)
    asm.declarations.add(f"declare void @llvm.masked.store.{suffix}.p0({vector}, ptr, <{asm.lanes} x i1>)")
    asm.line(f"call void @llvm.masked.store.{suffix}.p0({held.typed}, ptr align {align} {pointer}, {mask.typed})")


def gather(asm: Assembler, pointer: str, type: Scalar, offsets: Register, mask: Register | None) -> Register:
    """Lanes from elements at these offsets."""
    held = memory_type(type)
    vector, suffix = llvm_type(held, asm.lanes), intrinsic_suffix(held, asm.lanes)
    pointers = asm.raw(f"getelementptr {llvm_memory(type)}, ptr {pointer}, {offsets.typed}")
    asm.declarations.add(
        f"declare {vector} @llvm.masked.gather.{suffix}.v{asm.lanes}p0"
        f"(<{asm.lanes} x ptr>, <{asm.lanes} x i1>, {vector})"
    )
    active = mask or asm.widen(asm.constant(True, bool_), asm.lanes)
    places = f"<{asm.lanes} x ptr> align {byte_size(type)} {pointers}"
    arguments = f"{places}, {active.typed}, {vector} zeroinitializer"
    text = f"call {vector} @llvm.masked.gather.{suffix}.v{asm.lanes}p0({arguments})"
    return from_memory(asm, asm.make(text, held, asm.lanes), type)


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


def emit_lookup(asm: Assembler, node: Node, tensor: TensorReference, indices: list[Register]) -> Register:
    """A read by computed index: out of range is reported, and reads nothing."""
    offset, inside = _checked_offset(asm, node, tensor, indices)
    if offset is None or inside is None:
        return load_uniform(asm, tensor.pointer, tensor.element)
    if offset.uniform and inside.uniform:
        safe = asm.select(inside, offset, asm.constant(0, i64))
        return _load_if(asm, element_pointer(asm, tensor.pointer, tensor.element, safe), tensor.element, inside)
    mask = asm.both(asm.mask, inside) if asm.mask is not None else inside
    return gather(asm, tensor.pointer, tensor.element, asm.widen(offset, asm.lanes), asm.widen(mask, asm.lanes))


def emit_addition(
    asm: Assembler, node: Node, tensor: TensorReference, value: Register, indices: list[Register]
) -> None:
    """An addition at a computed index, in memory: out of range is reported, and changes nothing."""
    if asm.lanes != 1:
        raise CompileError("additions at indices are for one lane", where=node.origin)
    offset, inside = _checked_offset(asm, node, tensor, indices)
    run, done = asm.label("add"), asm.label("added")
    asm.branch(inside or asm.constant(True, bool_), run, done)
    asm.begin(run)
    type, align = tensor.element, byte_size(tensor.element)
    pointer = element_pointer(asm, tensor.pointer, type, offset or asm.constant(0, i64))
    before = asm.make(f"load {llvm_memory(type)}, ptr {pointer}, align {align}", type, 1)
    after = asm.apply("fadd" if type.kind == "float" else "add", type, before, value)
    asm.line(f"store {after.typed}, ptr {pointer}, align {align}")
    asm.jump(done)
    asm.begin(done)


def _checked_offset(
    asm: Assembler, node: Node, tensor: TensorReference, indices: list[Register]
) -> tuple[Register | None, Register | None]:
    """Where an element lies, and whether there is one: None for a tensor without dimensions."""
    offset: Register | None = None
    inside: Register | None = None
    for axis, (index, extent, stride) in enumerate(zip(indices, tensor.extents, tensor.strides, strict=True)):
        wide = index if index.type is i64 else asm.convert("sext", index, i64)
        within = asm.apply("icmp ult", bool_, wide, extent)
        bad = asm.apply("xor", bool_, within, asm.constant(True, bool_))
        asm.report(bad, f"index out of range for axis {axis}", node.origin)
        inside = within if inside is None else asm.apply("and", bool_, inside, within)
        term = asm.apply("mul", i64, wide, stride)
        offset = term if offset is None else asm.apply("add", i64, offset, term)
    return offset, inside


def _load_if(asm: Assembler, pointer: str, type: Scalar, condition: Register) -> Register:
    """A scalar load that happens only when it may."""
    run, done = asm.label("read"), asm.label("was")
    before = asm.block
    asm.branch(condition, run, done)
    asm.begin(run)
    held = memory_type(type)
    loaded = asm.make(f"load {llvm_memory(type)}, ptr {pointer}, align {byte_size(type)}", held, 1)
    asm.jump(done)
    asm.begin(done)
    zero = asm.constant(0, held)
    return from_memory(asm, asm.phi(held, 1, [(loaded, run), (zero, before)]), type)
