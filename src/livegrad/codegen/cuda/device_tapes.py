"""Tapes in CUDA C: slots by iteration in thread-private memory, updated in place; see `prelude`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from livegrad.codegen.c.expressions import applied
from livegrad.codegen.c.operands import Text, TraceReference, Value, leaves_of
from livegrad.codegen.cuda.device_elementwise import rounded_half
from livegrad.codegen.cuda.kernel_values import KERNELS
from livegrad.ir.node import Node
from livegrad.ir.types import Scalar, Trace, Type, components, f16
from livegrad.ops.elementwise import add

if TYPE_CHECKING:
    from livegrad.codegen.cuda.kernel_writer import KernelWriter


def _leaves(type: Type) -> list[Scalar | Trace]:
    if isinstance(type, Scalar | Trace):
        return [type]
    return [leaf for part in components(type) for leaf in _leaves(part)]


def slot_bytes(type: Type) -> int:
    """The size of what a trace keeps for one iteration: a word for each number."""
    return max(8 * len(_leaves(type)), 8)


def _slot(writer: KernelWriter, trace: TraceReference, index: str) -> str:
    size = slot_bytes(trace.element)
    writer.largest_slot = max(writer.largest_slot, size)
    name = writer.name("slot")
    writer.line(f"unsigned char* const {name} = lg_trace_slot(memory, {trace.header}, {index}, {size});")
    return name


def _place(slot: str, number: int, leaf: Scalar | Trace) -> str:
    type = "long long" if isinstance(leaf, Trace) else KERNELS.scalar(leaf)
    return f"*({type}*)({slot} + {8 * number})"


def _write(writer: KernelWriter, slot: str, type: Type, value: Value) -> None:
    for number, (leaf, part) in enumerate(zip(_leaves(type), leaves_of(value), strict=True)):
        text = part.header if isinstance(part, TraceReference) else part.text
        writer.line(f"{_place(slot, number, leaf)} = {text};")


def _read(writer: KernelWriter, slot: str, type: Type) -> Value:
    return _shaped(type, iter([_read_leaf(writer, slot, n, leaf) for n, leaf in enumerate(_leaves(type))]))


def _read_leaf(writer: KernelWriter, slot: str, number: int, leaf: Scalar | Trace) -> Value:
    if isinstance(leaf, Scalar):
        return writer.value(_place(slot, number, leaf), leaf)
    return named(writer, _place(slot, number, leaf), leaf.element)


def _shaped(type: Type, parts: Iterator[Value]) -> Value:
    if isinstance(type, Scalar | Trace):
        return next(parts)
    return tuple(_shaped(member, parts) for member in components(type))


def named(writer: KernelWriter, expression: str, element: Type) -> TraceReference:
    """A new name for a trace."""
    writer.uses_traces = True
    name = writer.name("trace")
    writer.line(f"const long long {name} = {expression};")
    return TraceReference(name, element)


def write_new(writer: KernelWriter, node: Node, operands: list[Value]) -> Value:
    assert isinstance(node.type, Trace)
    return named(writer, "lg_trace_ensure(memory, 0)", node.type.element)


def ensured(writer: KernelWriter, trace: TraceReference) -> TraceReference:
    """The trace itself, or an empty one where it was read from a slot that nobody had set."""
    return named(writer, f"lg_trace_ensure(memory, {trace.header})", trace.element)


def copied(writer: KernelWriter, trace: TraceReference) -> TraceReference:
    """A trace with the same contents that can be written to on its own."""
    size = slot_bytes(trace.element)
    writer.largest_slot = max(writer.largest_slot, size)
    return named(writer, f"lg_trace_copy(memory, {trace.header}, {size})", trace.element)


def _slot_of(writer: KernelWriter, operands: list[Value], written: bool) -> tuple[TraceReference, str]:
    """The trace among the operands, and its slot at the index that comes next."""
    trace, index = operands[:2]
    assert isinstance(trace, TraceReference)
    assert isinstance(index, Text)
    trace = ensured(writer, trace) if written else trace
    return trace, _slot(writer, trace, index.text)


def write_get(writer: KernelWriter, node: Node, operands: list[Value]) -> Value:
    trace, slot = _slot_of(writer, operands, written=False)
    return _read(writer, slot, trace.element)


def write_set(writer: KernelWriter, node: Node, operands: list[Value]) -> Value:
    trace, slot = _slot_of(writer, operands, written=True)
    _write(writer, slot, trace.element, operands[2])
    return trace


def write_add(writer: KernelWriter, node: Node, operands: list[Value]) -> Value:
    trace, slot = _slot_of(writer, operands, written=True)
    known = _read(writer, slot, trace.element)
    _write(writer, slot, trace.element, _sum(writer, trace.element, known, operands[2]))
    return trace


def write_sum(writer: KernelWriter, node: Node, operands: list[Value]) -> Value:
    first, second = operands
    assert isinstance(first, TraceReference)
    assert isinstance(second, TraceReference)
    return _merged(writer, first, second)


def _sum(writer: KernelWriter, type: Type, first: Value, second: Value) -> Value:
    if isinstance(first, Text) and isinstance(second, Text):
        text = applied(KERNELS, add, first.scalar, [first.text, second.text])
        return writer.value(rounded_half(text) if first.type is f16 else text, first.type)
    if isinstance(first, TraceReference) and isinstance(second, TraceReference):
        return _merged(writer, first, second)
    assert isinstance(first, tuple)
    assert isinstance(second, tuple)
    return tuple(_sum(writer, t, a, b) for t, a, b in zip(components(type), first, second, strict=True))


def _merged(writer: KernelWriter, into: TraceReference, other: TraceReference) -> TraceReference:
    """Adds every slot of one trace into another, in a loop over the slots that there are."""
    into = ensured(writer, into)
    index = writer.name("i")
    most = f"lg_trace_capacity(memory, {other.header})"
    with writer.block(f"for (long long {index} = 0, most = {most}; {index} < most; ++{index})"):
        value = _read(writer, _slot(writer, other, index), other.element)
        slot = _slot(writer, into, index)
        known = _read(writer, slot, into.element)
        total = _sum(writer, into.element, known, value)
        # Adding nested traces may have moved this one's slots.
        _write(writer, _slot(writer, into, index), into.element, total)
    return into


RULES: dict[str, Callable[[Any, Node, list[Value]], Value]] = {
    "trace_new": write_new,
    "trace_get": write_get,
    "trace_set": write_set,
    "trace_add": write_add,
    "trace_sum": write_sum,
}
