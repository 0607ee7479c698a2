"""Emits tape ops as CUDA C: slots by iteration in thread-private memory, updated in place; see `prelude.py`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from livegrad.codegen.c.expressions import apply_op
from livegrad.codegen.c.operands import TapeReference, Text, Value, leaves_of
from livegrad.codegen.cuda.device_elementwise import round_to_half
from livegrad.codegen.cuda.kernel_values import KERNELS
from livegrad.ir.node import Node
from livegrad.ir.types import Scalar, Tape, Type, components, f16
from livegrad.ops.elementwise import add

if TYPE_CHECKING:
    from livegrad.codegen.cuda.kernel_writer import KernelWriter


def _leaves(type: Type) -> list[Scalar | Tape]:
    if isinstance(type, Scalar | Tape):
        return [type]
    return [leaf for part in components(type) for leaf in _leaves(part)]


def slot_bytes(type: Type) -> int:
    """The bytes that a tape stores per iteration: eight per scalar."""
    return max(8 * len(_leaves(type)), 8)


def _slot(writer: KernelWriter, tape: TapeReference, index: str) -> str:
    size = slot_bytes(tape.element)
    writer.largest_slot = max(writer.largest_slot, size)
    name = writer.name("slot")
    writer.line(f"unsigned char* const {name} = lg_tape_slot(memory, {tape.header}, {index}, {size});")
    return name


def _slot_address(slot: str, number: int, leaf: Scalar | Tape) -> str:
    type = "long long" if isinstance(leaf, Tape) else KERNELS.scalar(leaf)
    return f"*({type}*)({slot} + {8 * number})"


def _write(writer: KernelWriter, slot: str, type: Type, value: Value) -> None:
    for number, (leaf, part) in enumerate(zip(_leaves(type), leaves_of(value), strict=True)):
        text = part.header if isinstance(part, TapeReference) else part.text
        writer.line(f"{_slot_address(slot, number, leaf)} = {text};")


def _read(writer: KernelWriter, slot: str, type: Type) -> Value:
    return _build_value(type, iter([_read_leaf(writer, slot, n, leaf) for n, leaf in enumerate(_leaves(type))]))


def _read_leaf(writer: KernelWriter, slot: str, number: int, leaf: Scalar | Tape) -> Value:
    if isinstance(leaf, Scalar):
        return writer.value(_slot_address(slot, number, leaf), leaf)
    return bind_tape(writer, _slot_address(slot, number, leaf), leaf.element)


def _build_value(type: Type, parts: Iterator[Value]) -> Value:
    if isinstance(type, Scalar | Tape):
        return next(parts)
    return tuple(_build_value(member, parts) for member in components(type))


def bind_tape(writer: KernelWriter, expression: str, element: Type) -> TapeReference:
    """Assigns a tape to a new name."""
    writer.uses_tapes = True
    name = writer.name("tape")
    writer.line(f"const long long {name} = {expression};")
    return TapeReference(name, element)


def write_new(writer: KernelWriter, node: Node, operands: list[Value]) -> Value:
    assert isinstance(node.type, Tape)
    return bind_tape(writer, "lg_tape_ensure(memory, 0)", node.type.element)


def ensure_tape(writer: KernelWriter, tape: TapeReference) -> TapeReference:
    """Returns the tape, or an empty one if it was read from a slot that was never set."""
    return bind_tape(writer, f"lg_tape_ensure(memory, {tape.header})", tape.element)


def copy_tape(writer: KernelWriter, tape: TapeReference) -> TapeReference:
    """Returns an independent copy of a tape."""
    size = slot_bytes(tape.element)
    writer.largest_slot = max(writer.largest_slot, size)
    return bind_tape(writer, f"lg_tape_copy(memory, {tape.header}, {size})", tape.element)


def _slot_of(writer: KernelWriter, operands: list[Value], writes: bool) -> tuple[TapeReference, str]:
    """The tape, which is the first operand, and its slot at the index, which is the second."""
    tape, index = operands[:2]
    assert isinstance(tape, TapeReference)
    assert isinstance(index, Text)
    tape = ensure_tape(writer, tape) if writes else tape
    return tape, _slot(writer, tape, index.text)


def write_get(writer: KernelWriter, node: Node, operands: list[Value]) -> Value:
    tape, slot = _slot_of(writer, operands, writes=False)
    return _read(writer, slot, tape.element)


def write_set(writer: KernelWriter, node: Node, operands: list[Value]) -> Value:
    tape, slot = _slot_of(writer, operands, writes=True)
    _write(writer, slot, tape.element, operands[2])
    return tape


def write_add(writer: KernelWriter, node: Node, operands: list[Value]) -> Value:
    tape, slot = _slot_of(writer, operands, writes=True)
    stored = _read(writer, slot, tape.element)
    _write(writer, slot, tape.element, _sum(writer, tape.element, stored, operands[2]))
    return tape


def write_sum(writer: KernelWriter, node: Node, operands: list[Value]) -> Value:
    first, second = operands
    assert isinstance(first, TapeReference)
    assert isinstance(second, TapeReference)
    return _merge_tapes(writer, first, second)


def _sum(writer: KernelWriter, type: Type, first: Value, second: Value) -> Value:
    if isinstance(first, Text) and isinstance(second, Text):
        text = apply_op(KERNELS, add, first.scalar, [first.text, second.text])
        return writer.value(round_to_half(text) if first.type is f16 else text, first.type)
    if isinstance(first, TapeReference) and isinstance(second, TapeReference):
        return _merge_tapes(writer, first, second)
    assert isinstance(first, tuple)
    assert isinstance(second, tuple)
    return tuple(_sum(writer, t, a, b) for t, a, b in zip(components(type), first, second, strict=True))


def _merge_tapes(writer: KernelWriter, into: TapeReference, other: TapeReference) -> TapeReference:
    """Adds every slot of one tape to that of another, in a loop up to its capacity."""
    into = ensure_tape(writer, into)
    index = writer.name("i")
    most = f"lg_tape_capacity(memory, {other.header})"
    with writer.block(f"for (long long {index} = 0, most = {most}; {index} < most; ++{index})"):
        value = _read(writer, _slot(writer, other, index), other.element)
        slot = _slot(writer, into, index)
        stored = _read(writer, slot, into.element)
        total = _sum(writer, into.element, stored, value)
        # Adding nested tapes may have moved the slots of this tape.
        _write(writer, _slot(writer, into, index), into.element, total)
    return into


RULES: dict[str, Callable[[Any, Node, list[Value]], Value]] = {
    "tape_new": write_new,
    "tape_get": write_get,
    "tape_set": write_set,
    "tape_add": write_add,
    "tape_sum": write_sum,
}
