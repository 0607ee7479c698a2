"""Traces in CUDA C: slots by iteration in memory of the thread's own, changed in place; see `prelude.TRACES`."""

from __future__ import annotations

from collections.abc import Iterator

from livegrad.backends.cuda.values import Text, TraceReference, Value, held_type, leaves_of
from livegrad.backends.cuda.writer import Writer
from livegrad.ir.node import Node
from livegrad.ir.types import Scalar, Trace, Type, components


def _leaves(type: Type) -> list[Scalar | Trace]:
    if isinstance(type, Scalar | Trace):
        return [type]
    return [leaf for part in components(type) for leaf in _leaves(part)]


def slot_bytes(type: Type) -> int:
    """The size of what a trace keeps for one iteration: a word for each number."""
    return max(8 * len(_leaves(type)), 8)


def _slot(writer: Writer, trace: TraceReference, index: str) -> str:
    size = slot_bytes(trace.element)
    writer.largest_slot = max(writer.largest_slot, size)
    name = writer.name("slot")
    writer.line(f"unsigned char* const {name} = lg_trace_slot(memory, {trace.header}, {index}, {size});")
    return name


def _place(slot: str, number: int, leaf: Scalar | Trace) -> str:
    type = "long long" if isinstance(leaf, Trace) else held_type(leaf)
    return f"*({type}*)({slot} + {8 * number})"


def _write(writer: Writer, slot: str, type: Type, value: Value) -> None:
    for number, (leaf, part) in enumerate(zip(_leaves(type), leaves_of(value), strict=True)):
        text = part.header if isinstance(part, TraceReference) else part.text
        writer.line(f"{_place(slot, number, leaf)} = {text};")


def _read(writer: Writer, slot: str, type: Type) -> Value:
    return _shaped(type, iter([_read_leaf(writer, slot, n, leaf) for n, leaf in enumerate(_leaves(type))]))


def _read_leaf(writer: Writer, slot: str, number: int, leaf: Scalar | Trace) -> Value:
    if isinstance(leaf, Scalar):
        return writer.value(_place(slot, number, leaf), leaf)
    return _named(writer, _place(slot, number, leaf), leaf.element)


def _shaped(type: Type, parts: Iterator[Value]) -> Value:
    if isinstance(type, Scalar | Trace):
        return next(parts)
    return tuple(_shaped(member, parts) for member in components(type))


def _named(writer: Writer, expression: str, element: Type) -> TraceReference:
    writer.uses_traces = True
    name = writer.name("trace")
    writer.line(f"const long long {name} = {expression};")
    return TraceReference(name, element)


def write_new(writer: Writer, node: Node, operands: list[Value]) -> Value:
    assert isinstance(node.type, Trace)
    return _named(writer, "lg_trace_ensure(memory, 0)", node.type.element)


def ensured(writer: Writer, trace: TraceReference) -> TraceReference:
    """The trace itself, or an empty one where it was read from a slot that nobody had set."""
    return _named(writer, f"lg_trace_ensure(memory, {trace.header})", trace.element)


def copied(writer: Writer, trace: TraceReference) -> TraceReference:
    """A trace with the same contents that can be written to on its own."""
    size = slot_bytes(trace.element)
    writer.largest_slot = max(writer.largest_slot, size)
    return _named(writer, f"lg_trace_copy(memory, {trace.header}, {size})", trace.element)


def write_set(writer: Writer, node: Node, operands: list[Value]) -> Value:
    trace, index, value = operands
    assert isinstance(trace, TraceReference)
    assert isinstance(index, Text)
    trace = ensured(writer, trace)
    _write(writer, _slot(writer, trace, index.text), trace.element, value)
    return trace


def write_get(writer: Writer, node: Node, operands: list[Value]) -> Value:
    trace, index = operands
    assert isinstance(trace, TraceReference)
    assert isinstance(index, Text)
    return _read(writer, _slot(writer, trace, index.text), trace.element)


def write_add(writer: Writer, node: Node, operands: list[Value]) -> Value:
    trace, index, value = operands
    assert isinstance(trace, TraceReference)
    assert isinstance(index, Text)
    trace = ensured(writer, trace)
    slot = _slot(writer, trace, index.text)
    known = _read(writer, slot, trace.element)
    _write(writer, slot, trace.element, _sum(writer, trace.element, known, value))
    return trace


def write_sum(writer: Writer, node: Node, operands: list[Value]) -> Value:
    first, second = operands
    assert isinstance(first, TraceReference)
    assert isinstance(second, TraceReference)
    return _merged(writer, first, second)


def _sum(writer: Writer, type: Type, first: Value, second: Value) -> Value:
    if isinstance(first, Text) and isinstance(second, Text):
        text = f"{first.text} + {second.text}"
        return writer.value(f"lg_round_half({text})" if first.type.name == "f16" else text, first.type)
    if isinstance(first, TraceReference) and isinstance(second, TraceReference):
        return _merged(writer, first, second)
    assert isinstance(first, tuple)
    assert isinstance(second, tuple)
    return tuple(_sum(writer, t, a, b) for t, a, b in zip(components(type), first, second, strict=True))


def _merged(writer: Writer, into: TraceReference, other: TraceReference) -> TraceReference:
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
