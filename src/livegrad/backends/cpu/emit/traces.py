"""Traces in native code: growable memory by iteration, one slot for all lanes of a group, written under the mask.

A trace is changed in place. That is sound because what differentiation makes uses each version of a trace once for
writing; reads of a version are put before the write that ends it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from livegrad.backends.cpu.emit.assembler import Assembler
from livegrad.backends.cpu.emit.memory import load_vector, memory_type, store_vector, to_memory
from livegrad.backends.cpu.emit.values import Register, TraceReference, Value, byte_size, llvm_memory
from livegrad.diagnostics import CompileError
from livegrad.ir.node import Function, Node
from livegrad.ir.types import Scalar, Trace, Type, components, i64
from livegrad.ir.walk import attribute_functions, nodes_of, toposort
from livegrad.ops.control import for_loop, while_loop
from livegrad.ops.trace import trace_add, trace_set, trace_sum

_WRITES = (trace_set, trace_add, trace_sum)
_SLOT_ALIGNMENT = 64


def _written_operands(node: Node) -> list[int]:
    """Which operands of a node it changes in place: the trace that it writes to, or those that a loop carries."""
    if node.op in _WRITES:
        return [0]
    if node.op not in (for_loop, while_loop):
        return []
    first = 1 if node.op is for_loop else 0
    places = range(first, first + node.attribute("carried"))
    return [place for place in places if isinstance(node.operands[place].type, Trace)]


def execution_order(results: Sequence[Node]) -> tuple[list[Node], set[tuple[Node, int]]]:
    """Operands first, and every other use of a trace before the write to it.

    Where a trace is written in several ways, the second value names the writers (and operands) that take a copy.
    """
    order = toposort(results)
    writers: dict[Node, list[tuple[Node, int]]] = {}
    for node in order:
        for place in _written_operands(node):
            writers.setdefault(node.operands[place], []).append((node, place))
    if not writers:
        return order, set()
    copies = {writer for found in writers.values() for writer in found[:-1]}
    # A trace that is also a result must stay as it is: whoever writes to it takes a copy.
    copies |= {found[-1] for trace, found in writers.items() if trace in results}
    before: dict[Node, list[Node]] = {}
    for node in order:
        for operand in node.operands:
            if operand in writers and writers[operand][-1][0] is not node:
                before.setdefault(writers[operand][-1][0], []).append(node)
    return _ordered(results, before), copies


def _ordered(results: Sequence[Node], before: dict[Node, list[Node]]) -> list[Node]:
    order: list[Node] = []
    state: dict[Node, bool] = {}
    pending: list[tuple[Node, bool]] = [(node, False) for node in reversed(results)]
    while pending:
        node, ready = pending.pop()
        if ready:
            if not state[node]:
                state[node] = True
                order.append(node)
            continue
        if node in state:
            continue
        state[node] = False
        pending.append((node, True))
        for other in (*reversed(before.get(node, [])), *reversed(node.operands)):
            if other not in state:
                pending.append((other, False))
    return order


@lru_cache(maxsize=4096)
def mentions_traces(function: Function) -> bool:
    """Whether a function, or one inside it, remembers anything."""
    return any(
        isinstance(node.type, Trace) or any(map(mentions_traces, attribute_functions(node)))
        for node in nodes_of(function)
    )


# --- layout ----------------------------------------------------------------------------------------------------------


def _leaves(type: Type) -> list[Scalar | Trace]:
    if isinstance(type, Scalar | Trace):
        return [type]
    return [leaf for part in components(type) for leaf in _leaves(part)]


def _leaf_bytes(leaf: Scalar | Trace, lanes: int) -> int:
    size = 8 if isinstance(leaf, Trace) else byte_size(leaf) * lanes
    return -(-size // 8) * 8


def slot_bytes(type: Type, lanes: int) -> int:
    """The size of what a trace keeps for one iteration."""
    total = sum(_leaf_bytes(leaf, lanes) for leaf in _leaves(type))
    return max(-(-total // _SLOT_ALIGNMENT) * _SLOT_ALIGNMENT, _SLOT_ALIGNMENT)


def _slot(asm: Assembler, trace: TraceReference, index: Register) -> str:
    asm.uses_traces = True
    if not index.uniform:
        raise CompileError("a trace is indexed by a loop's own index only")
    size = slot_bytes(trace.element, asm.lanes)
    return asm.raw(f"call ptr @lg_trace_slot(ptr %arena, i64 {trace.header.text}, i64 {index.text}, i64 {size})")


def _write(asm: Assembler, pointer: str, type: Type, value: Value) -> None:
    offset = 0
    for leaf, part in zip(_leaves(type), _flat(value), strict=True):
        place = asm.raw(f"getelementptr i8, ptr {pointer}, i64 {offset}")
        if isinstance(part, TraceReference):
            asm.line(f"store i64 {part.header.text}, ptr {place}, align 8")
        elif asm.lanes == 1:
            asm.line(f"store {to_memory(asm, part).typed}, ptr {place}, align {byte_size(part.type)}")
        else:
            store_vector(asm, place, part, asm.mask)
        offset += _leaf_bytes(leaf, asm.lanes)


def _flat(value: Value) -> list[Register | TraceReference]:
    if isinstance(value, tuple):
        return [leaf for part in value for leaf in _flat(part)]
    assert isinstance(value, Register | TraceReference)
    return [value]


def _read(asm: Assembler, pointer: str, type: Type) -> Value:
    parts: list[Value] = []
    offset = 0
    for leaf in _leaves(type):
        place = asm.raw(f"getelementptr i8, ptr {pointer}, i64 {offset}")
        parts.append(_read_leaf(asm, place, leaf))
        offset += _leaf_bytes(leaf, asm.lanes)
    return _shaped(type, parts)


def _read_leaf(asm: Assembler, place: str, leaf: Scalar | Trace) -> Value:
    if isinstance(leaf, Trace):
        name = asm.name("trace")
        asm.lines.append(f"  {name} = load i64, ptr {place}, align 8")
        return TraceReference(Register(name, i64, 1), leaf.element)
    if asm.lanes == 1:
        held = memory_type(leaf)
        loaded = asm.make(f"load {llvm_memory(leaf)}, ptr {place}, align {byte_size(leaf)}", held, 1)
        return asm.make(f"trunc i8 {loaded.text} to i1", leaf, 1) if leaf.kind == "bool" else loaded
    return load_vector(asm, place, leaf, None)


def _shaped(type: Type, parts: list[Value]) -> Value:
    if isinstance(type, Scalar | Trace):
        return parts.pop(0)
    return tuple(_shaped(member, parts) for member in components(type))


# --- ops -------------------------------------------------------------------------------------------------------------


def emit_new(asm: Assembler, node: Node, operands: list[Value]) -> Value:
    asm.uses_traces = True
    assert isinstance(node.type, Trace)
    name = asm.name("trace")
    asm.lines.append(f"  {name} = call i64 @lg_trace_new(ptr %arena)")
    return TraceReference(Register(name, i64, 1), node.type.element)


def ensured(asm: Assembler, trace: TraceReference) -> TraceReference:
    """The trace itself, or an empty one where it was read from a slot that nobody had set."""
    asm.uses_traces = True
    name = asm.name("trace")
    asm.lines.append(f"  {name} = call i64 @lg_trace_ensure(ptr %arena, i64 {trace.header.text})")
    return TraceReference(Register(name, i64, 1), trace.element)


def copied(asm: Assembler, trace: TraceReference) -> TraceReference:
    """A trace with the same contents that can be written to on its own."""
    asm.uses_traces = True
    size = slot_bytes(trace.element, asm.lanes)
    name = asm.name("trace")
    asm.lines.append(f"  {name} = call i64 @lg_trace_copy(ptr %arena, i64 {trace.header.text}, i64 {size})")
    return TraceReference(Register(name, i64, 1), trace.element)


def emit_set(asm: Assembler, node: Node, trace: TraceReference, index: Register, value: Value) -> Value:
    trace = ensured(asm, trace)
    _write(asm, _slot(asm, trace, index), trace.element, value)
    return trace


def emit_get(asm: Assembler, node: Node, trace: TraceReference, index: Register) -> Value:
    return _read(asm, _slot(asm, trace, index), trace.element)


def emit_add(asm: Assembler, node: Node, trace: TraceReference, index: Register, value: Value) -> Value:
    trace = ensured(asm, trace)
    pointer = _slot(asm, trace, index)
    known = _read(asm, pointer, trace.element)
    _write(asm, pointer, trace.element, _sum(asm, trace.element, known, value))
    return trace


def _sum(asm: Assembler, type: Type, first: Value, second: Value) -> Value:
    if isinstance(first, Register) and isinstance(second, Register):
        return asm.apply("fadd contract" if first.type.kind == "float" else "add", first.type, first, second)
    if isinstance(first, TraceReference) and isinstance(second, TraceReference):
        return _merged(asm, first, second)
    assert isinstance(first, tuple)
    assert isinstance(second, tuple)
    return tuple(_sum(asm, t, a, b) for t, a, b in zip(components(type), first, second, strict=True))


def emit_sum(asm: Assembler, node: Node, first: TraceReference, second: TraceReference) -> Value:
    return _merged(asm, first, second)


def _merged(asm: Assembler, into: TraceReference, other: TraceReference) -> TraceReference:
    """Adds every slot of one trace into another, in a loop over the slots that there are."""
    into = ensured(asm, into)
    most = asm.raw(f"call i64 @lg_trace_capacity(i64 {other.header.text})")
    head, body, done = (asm.label(hint) for hint in ("merge", "slot", "merged"))
    before = asm.block
    asm.jump(head)
    asm.begin(head)
    place = len(asm.lines)
    index = Register(asm.name("c"), i64, 1)
    asm.lines.append("")
    more = asm.raw(f"icmp slt i64 {index.text}, {most}")
    asm.line(f"br i1 {more}, label %{body}, label %{done}")
    asm.begin(body)
    # Inactive lanes hold zeros or values of their own: all lanes are added alike.
    with asm.under(None):
        value = _read(asm, _slot(asm, other, index), other.element)
        pointer = _slot(asm, into, index)
        known = _read(asm, pointer, into.element)
        _write(asm, pointer, into.element, _sum(asm, into.element, known, value))
    following = asm.raw(f"add i64 {index.text}, 1")
    last = asm.block
    asm.jump(head)
    asm.lines[place] = f"  {index.text} = phi i64 [ 0, %{before} ], [ {following}, %{last} ]"
    asm.begin(done)
    return into


# A trace is a header {slots, capacity}; its memory comes from an arena of chunks {next, size, used} that is emptied for
# each group of lanes and freed when the kernel returns. An empty header reads as zeros.
RUNTIME = """
declare ptr @malloc(i64)
declare void @free(ptr)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

define internal ptr @lg_arena_take(ptr %arena, i64 %bytes) noinline nounwind {
entry:
  %chunk = load ptr, ptr %arena
  %none = icmp eq ptr %chunk, null
  br i1 %none, label %grow, label %look
look:
  %size.at = getelementptr i64, ptr %chunk, i64 1
  %used.at = getelementptr i64, ptr %chunk, i64 2
  %size = load i64, ptr %size.at
  %used = load i64, ptr %used.at
  %end = add i64 %used, %bytes
  %fits = icmp ule i64 %end, %size
  br i1 %fits, label %take, label %grow
grow:
  %last = phi i64 [ 32768, %entry ], [ %size, %look ]
  %twice = shl i64 %last, 1
  %small = icmp ult i64 %twice, %bytes
  %wanted = select i1 %small, i64 %bytes, i64 %twice
  %whole = add i64 %wanted, 128
  %fresh = call ptr @malloc(i64 %whole)
  store ptr %chunk, ptr %fresh
  %fresh.size = getelementptr i64, ptr %fresh, i64 1
  store i64 %wanted, ptr %fresh.size
  %fresh.used = getelementptr i64, ptr %fresh, i64 2
  store i64 0, ptr %fresh.used
  store ptr %fresh, ptr %arena
  br label %take
take:
  %from = phi ptr [ %chunk, %look ], [ %fresh, %grow ]
  %start = phi i64 [ %used, %look ], [ 0, %grow ]
  %after = add i64 %start, %bytes
  %from.used = getelementptr i64, ptr %from, i64 2
  store i64 %after, ptr %from.used
  %base = ptrtoint ptr %from to i64
  %past = add i64 %base, 127
  %aligned = and i64 %past, -64
  %at = add i64 %aligned, %start
  %memory = inttoptr i64 %at to ptr
  call void @llvm.memset.p0.i64(ptr %memory, i8 0, i64 %bytes, i1 false)
  ret ptr %memory
}

define internal void @lg_arena_empty(ptr %arena) noinline nounwind {
entry:
  %chunk = load ptr, ptr %arena
  %none = icmp eq ptr %chunk, null
  br i1 %none, label %done, label %keep
keep:
  %used.at = getelementptr i64, ptr %chunk, i64 2
  store i64 0, ptr %used.at
  %older = load ptr, ptr %chunk
  store ptr null, ptr %chunk
  br label %loop
loop:
  %old = phi ptr [ %older, %keep ], [ %next, %drop ]
  %end = icmp eq ptr %old, null
  br i1 %end, label %done, label %drop
drop:
  %next = load ptr, ptr %old
  call void @free(ptr %old)
  br label %loop
done:
  ret void
}

define internal void @lg_arena_free(ptr %arena) noinline nounwind {
  call void @lg_arena_empty(ptr %arena)
  %chunk = load ptr, ptr %arena
  call void @free(ptr %chunk)
  store ptr null, ptr %arena
  ret void
}

define internal i64 @lg_trace_new(ptr %arena) noinline nounwind {
  %header = call ptr @lg_arena_take(ptr %arena, i64 64)
  %word = ptrtoint ptr %header to i64
  ret i64 %word
}

define internal i64 @lg_trace_ensure(ptr %arena, i64 %word) noinline nounwind {
entry:
  %none = icmp eq i64 %word, 0
  br i1 %none, label %make, label %keep
make:
  %fresh = call i64 @lg_trace_new(ptr %arena)
  ret i64 %fresh
keep:
  ret i64 %word
}

define internal i64 @lg_trace_copy(ptr %arena, i64 %word, i64 %bytes) noinline nounwind {
entry:
  %copy = call i64 @lg_trace_new(ptr %arena)
  %capacity = call i64 @lg_trace_capacity(i64 %word)
  %empty = icmp eq i64 %capacity, 0
  br i1 %empty, label %done, label %fill
fill:
  %size = mul i64 %capacity, %bytes
  %fresh = call ptr @lg_arena_take(ptr %arena, i64 %size)
  %source = inttoptr i64 %word to ptr
  %old = load ptr, ptr %source
  call void @llvm.memcpy.p0.p0.i64(ptr %fresh, ptr %old, i64 %size, i1 false)
  %header = inttoptr i64 %copy to ptr
  store ptr %fresh, ptr %header
  %capacity.at = getelementptr i64, ptr %header, i64 1
  store i64 %capacity, ptr %capacity.at
  br label %done
done:
  ret i64 %copy
}

define internal i64 @lg_trace_capacity(i64 %word) noinline nounwind {
entry:
  %none = icmp eq i64 %word, 0
  br i1 %none, label %empty, label %read
empty:
  ret i64 0
read:
  %header = inttoptr i64 %word to ptr
  %capacity.at = getelementptr i64, ptr %header, i64 1
  %capacity = load i64, ptr %capacity.at
  ret i64 %capacity
}

define internal ptr @lg_trace_slot(ptr %arena, i64 %word, i64 %index, i64 %bytes) noinline nounwind {
entry:
  %none = icmp eq i64 %word, 0
  br i1 %none, label %nothing, label %look
nothing:
  %zeros = call ptr @lg_arena_take(ptr %arena, i64 %bytes)
  ret ptr %zeros
look:
  %header = inttoptr i64 %word to ptr
  %capacity.at = getelementptr i64, ptr %header, i64 1
  %capacity = load i64, ptr %capacity.at
  %fits = icmp slt i64 %index, %capacity
  br i1 %fits, label %found, label %grow
grow:
  %twice = shl i64 %capacity, 1
  %least = add i64 %index, 8
  %small = icmp slt i64 %twice, %least
  %slots = select i1 %small, i64 %least, i64 %twice
  %size = mul i64 %slots, %bytes
  %fresh = call ptr @lg_arena_take(ptr %arena, i64 %size)
  %old = load ptr, ptr %header
  %held = mul i64 %capacity, %bytes
  call void @llvm.memcpy.p0.p0.i64(ptr %fresh, ptr %old, i64 %held, i1 false)
  store ptr %fresh, ptr %header
  store i64 %slots, ptr %capacity.at
  br label %found
found:
  %data = load ptr, ptr %header
  %offset = mul i64 %index, %bytes
  %slot = getelementptr i8, ptr %data, i64 %offset
  ret ptr %slot
}
"""
