"""Emits tape ops as LLVM IR. A tape grows by one slot per iteration, which all lanes of a group share under the mask.

Tapes are updated in place (`tape_runtime.py`). This is sound because differentiation writes each version of a tape
once, and reads of a version are ordered before the write that replaces it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache

from livegrad.codegen.llvm.counted_loops import counted_loop
from livegrad.codegen.llvm.kernel_builder import KernelBuilder
from livegrad.codegen.llvm.registers import NodeValue, Register, TapeReference, TapeRows, pointer
from livegrad.codegen.llvm.vector_memory import load_vector, memory_type, store_element, store_vector
from livegrad.diagnostics import CompileError
from livegrad.ir.dimension import round_up
from livegrad.ir.node import Function, Node
from livegrad.ir.types import Scalar, Tape, Type, bool_, components, i64, inner_types
from livegrad.ir.walk import functions_in, nodes_of, ops_in, toposort
from livegrad.ops.tape import tape_add, tape_get, tape_new, tape_set, tape_sum
from livegrad.passes.in_place_loops import order_before_writes, written_operands
from livegrad.passes.regions import LOOPS, first_argument
from livegrad.schedule.loops.cost_model import byte_size

_WRITES = (tape_set, tape_add, tape_sum)
_SLOT_ALIGNMENT = 64
Select = Callable[[KernelBuilder, Register, NodeValue, NodeValue], NodeValue]


def _written_operands(node: Node) -> list[int]:
    """The operands that a node changes in place: tapes and tensors that it writes, or that a loop carries."""
    if node.op in _WRITES:
        return [0]
    tensors = list(written_operands(node))
    if node.op not in LOOPS:
        return tensors
    positions = range(first_argument(node), first_argument(node) + node.attribute("carried"))
    return [position for position in positions if position in tensors or isinstance(node.operands[position].type, Tape)]


def execution_order(results: Sequence[Node]) -> tuple[list[Node], set[tuple[Node, int]]]:
    """The nodes in topological order, with every read of a tape or tensor before the write to it.

    If a tape has several writers, the second value has the writers (and operand positions) that take a copy.
    """
    order = toposort(results)
    writers: dict[Node, list[tuple[Node, int]]] = {}
    for node in order:
        for position in _written_operands(node):
            writers.setdefault(node.operands[position], []).append((node, position))
    if not writers:
        return order, set()
    copies = {writer for writes in writers.values() for writer in writes[:-1]}
    # A tape that is also a result must not change: its writer takes a copy.
    copies |= {writes[-1] for tape, writes in writers.items() if tape in results}
    ordered, conflicting = order_before_writes(results, {value: writes[-1][0] for value, writes in writers.items()})
    copies |= {writers[value][-1] for value in conflicting}
    return ordered, copies


@lru_cache(maxsize=4096)
def mentions_tapes(function: Function) -> bool:
    """Whether a function, or a nested function, uses a tape."""
    has_tape = any(isinstance(node.type, Tape) for node in nodes_of(function))
    return has_tape or any(map(mentions_tapes, functions_in(function)))


# --- layout ----------------------------------------------------------------------------------------------------------


def _leaves(type: Type) -> list[Scalar | Tape]:
    if isinstance(type, Scalar | Tape):
        return [type]
    return [leaf for part in components(type) for leaf in _leaves(part)]


@lru_cache(maxsize=1024)
def _layout(type: Type, lanes: int) -> tuple[tuple[int, ...], int]:
    """The offsets of the leaves in a slot, and the size of a slot, in bytes. A vector never crosses a cache line."""
    offsets, end, alignment = list[int](), 0, _SLOT_ALIGNMENT if lanes > 1 else 1
    for leaf in _leaves(type):
        element = 8 if isinstance(leaf, Tape) else byte_size(leaf)
        aligned = 8 if lanes > 1 or isinstance(leaf, Tape) else element
        start = round_up(end, aligned)
        offsets.append(start)
        end = start + (8 if isinstance(leaf, Tape) else element * lanes)
        alignment = max(alignment, aligned)
    return tuple(offsets), max(round_up(end, alignment), alignment)


def slot_bytes(type: Type, lanes: int) -> int:
    """The bytes that a tape stores per iteration."""
    return _layout(type, lanes)[1]


def _slot(builder: KernelBuilder, tape: TapeReference, index: Register) -> Register:
    builder.uses_tapes = True
    if not index.uniform:
        raise CompileError("a tape can only be indexed by its loop's index")
    size = slot_bytes(tape.element, builder.lanes)
    builder.largest_slot = max(size, builder.largest_slot)
    if _is_row(tape, index):
        assert tape.rows is not None
        return builder.advance(tape.rows.data, builder.apply("mul", i64, index, tape.rows.stride))
    call = f"call ptr @lg_tape_slot(ptr %arena, {tape.header.typed}, {index.typed}, i64 {size})"
    return builder.make(call, pointer, 1)


def _is_row(tape: TapeReference, index: Register) -> bool:
    """Whether there is room for an index without growing the tape."""
    return tape.rows is not None and tape.rows.index == index.text


def _write(builder: KernelBuilder, slot: Register, type: Type, value: NodeValue) -> None:
    offsets, _ = _layout(type, builder.lanes)
    for offset, part in zip(offsets, _flatten(value), strict=True):
        address = builder.advance(slot, builder.constant(offset, i64))
        if isinstance(part, TapeReference):
            builder.store(part.header, address, 8)
        elif builder.lanes == 1:
            store_element(builder, address, part)
        else:
            store_vector(builder, address, builder.widen(part, builder.lanes), builder.mask)


def _flatten(value: NodeValue) -> list[Register | TapeReference]:
    if isinstance(value, tuple):
        return [leaf for part in value for leaf in _flatten(part)]
    assert isinstance(value, Register | TapeReference)
    return [value]


def _read(builder: KernelBuilder, slot: Register, type: Type) -> NodeValue:
    parts: list[NodeValue] = []
    offsets, _ = _layout(type, builder.lanes)
    for offset, leaf in zip(offsets, _leaves(type), strict=True):
        address = builder.advance(slot, builder.constant(offset, i64))
        parts.append(_read_leaf(builder, address, leaf))
    return _build_value(type, parts)


def _read_leaf(builder: KernelBuilder, address: Register, leaf: Scalar | Tape) -> NodeValue:
    if isinstance(leaf, Tape):
        return TapeReference(builder.load(address, i64, align=8), leaf.element)
    if builder.lanes == 1:
        loaded = builder.load(address, memory_type(leaf), align=byte_size(leaf))
        return builder.convert("trunc", loaded, leaf) if leaf.kind == "bool" else loaded
    return load_vector(builder, address, leaf, None)


def _build_value(type: Type, parts: list[NodeValue]) -> NodeValue:
    if isinstance(type, Scalar | Tape):
        return parts.pop(0)
    return tuple(_build_value(member, parts) for member in components(type))


# --- ops -------------------------------------------------------------------------------------------------------------


def emit_new(builder: KernelBuilder, node: Node, operands: list[NodeValue]) -> NodeValue:
    builder.uses_tapes = True
    assert isinstance(node.type, Tape)
    return TapeReference(builder.make("call i64 @lg_tape_new(ptr %arena)", i64, 1), node.type.element)


def ensure_tape(builder: KernelBuilder, tape: TapeReference) -> TapeReference:
    """Returns the tape, or an empty one if it was read from a slot that was never set."""
    builder.uses_tapes = True
    header = builder.make(f"call i64 @lg_tape_ensure(ptr %arena, {tape.header.typed})", i64, 1)
    return TapeReference(header, tape.element)


def reserve_rows(builder: KernelBuilder, tape: TapeReference, iterations: Register) -> TapeReference:
    """The tape with room for a loop's iterations, which then need not look for their slots."""
    builder.uses_tapes = True
    size = slot_bytes(tape.element, builder.lanes)
    builder.largest_slot = max(size, builder.largest_slot)
    call = f"call ptr @lg_tape_rows(ptr %arena, {tape.header.typed}, {iterations.typed}, i64 {size})"
    data = builder.make(call, pointer, 1)
    lost = builder.make(f"icmp eq {data.typed}, null", bool_, 1)
    data = builder.select(lost, Register("@lg_reserve", pointer, 1), data)
    stride = builder.select(lost, builder.constant(0, i64), builder.constant(size, i64))
    return replace(tape, rows=TapeRows(data, stride, iterations.text))


def reserve_rows_of_loop(
    builder: KernelBuilder, loop: Node, values: Sequence[NodeValue], iterations: Register
) -> dict[int, TapeReference]:
    """The tapes that each iteration of a loop writes or reads at its index, with room for all of them, by position."""
    rows: dict[int, TapeReference] = {}
    for position in _positions_of_rows(loop):
        value = values[position]
        if not isinstance(value, TapeReference):
            continue
        if value.rows is None or value.rows.iterations != iterations.text:
            value = reserve_rows(builder, ensure_tape(builder, value), iterations)
        rows[position] = value
    return rows


def _positions_of_rows(loop: Node) -> list[int]:
    """The new tapes that a loop carries, and the captured ones of which an iteration reads its row."""
    body, carried = loop.attribute("body"), loop.attribute("carried")
    read = {
        node.operands[0] for node in nodes_of(body) if node.op is tape_get and node.operands[1] is body.parameters[0]
    }
    new = [position for position in range(carried) if loop.operands[1 + position].op is tape_new]
    return [*new, *(p for p in range(carried, len(loop.operands) - 1) if body.parameters[1 + p] in read)]


def accesses_rows_only(loop: Node, rows: Mapping[int, TapeReference]) -> bool:
    """Whether an innermost loop uses no tapes but those with room, at its index: then no iteration needs memory."""
    body: Function = loop.attribute("body")
    if functions_in(body) or any(isinstance(t.element, Tape) for t in _tapes_of(loop)):
        return False
    tape_nodes = [node for node in nodes_of(body) if any(isinstance(o.type, Tape) for o in node.operands)]
    held = [p for p, operand in enumerate(loop.operands[1:]) if _holds_tape(operand.type)]
    is_at_index = all(node.op in (tape_get, tape_set) and node.operands[1] is body.parameters[0] for node in tape_nodes)
    return is_at_index and tape_new not in ops_in(body) and all(position in rows for position in held)


def _tapes_of(loop: Node) -> list[Tape]:
    return [operand.type for operand in loop.operands if isinstance(operand.type, Tape)]


def _holds_tape(type: Type) -> bool:
    return any(isinstance(inner, Tape) for inner in inner_types(type))


def in_iteration(value: NodeValue, iterations: Register, index: Register) -> NodeValue:
    """A tape inside a loop: with the name of the index, if it has room for the loop's iterations."""
    if not isinstance(value, TapeReference) or value.rows is None:
        return value
    fits = value.rows.iterations == iterations.text
    return replace(value, rows=replace(value.rows, index=index.text) if fits else None)


def keeps_no_tapes(loop: Node) -> bool:
    """Whether no tape that an iteration makes is used after it, and the iteration uses no tape from outside."""
    return not any(_holds_tape(operand.type) for operand in loop.operands) and mentions_tapes(loop.attribute("body"))


@contextmanager
def released_memory(builder: KernelBuilder) -> Iterator[None]:
    """Code whose tapes are not used after it, so that their memory is free again."""
    builder.uses_tapes = True
    chunk = builder.make("load ptr, ptr %arena", pointer, 1)
    mark = builder.make("call i64 @lg_arena_mark(ptr %arena)", i64, 1)
    yield
    builder.line(f"call void @lg_arena_release(ptr %arena, {chunk.typed}, {mark.typed})")


def copy_tape(builder: KernelBuilder, tape: TapeReference) -> TapeReference:
    """Returns an independent copy of a tape."""
    builder.uses_tapes = True
    size = slot_bytes(tape.element, builder.lanes)
    header = builder.make(f"call i64 @lg_tape_copy(ptr %arena, {tape.header.typed}, i64 {size})", i64, 1)
    return TapeReference(header, tape.element)


def emit_set(builder: KernelBuilder, node: Node, tape: TapeReference, index: Register, value: NodeValue) -> NodeValue:
    tape = tape if _is_row(tape, index) else ensure_tape(builder, tape)
    _write(builder, _slot(builder, tape, index), tape.element, value)
    return tape


def emit_get(builder: KernelBuilder, node: Node, tape: TapeReference, index: Register) -> NodeValue:
    return _read(builder, _slot(builder, tape, index), tape.element)


def emit_add(builder: KernelBuilder, node: Node, tape: TapeReference, index: Register, value: NodeValue) -> NodeValue:
    tape = ensure_tape(builder, tape)
    slot = _slot(builder, tape, index)
    stored = _read(builder, slot, tape.element)
    _write(builder, slot, tape.element, _sum(builder, tape.element, stored, value))
    return tape


def _sum(builder: KernelBuilder, type: Type, first: NodeValue, second: NodeValue) -> NodeValue:
    if isinstance(first, Register) and isinstance(second, Register):
        return builder.apply("fadd" if first.type.kind == "float" else "add", first.type, first, second)
    if isinstance(first, TapeReference) and isinstance(second, TapeReference):
        return _merge_tapes(builder, first, second)
    assert isinstance(first, tuple)
    assert isinstance(second, tuple)
    return tuple(_sum(builder, t, a, b) for t, a, b in zip(components(type), first, second, strict=True))


def emit_sum(builder: KernelBuilder, node: Node, first: TapeReference, second: TapeReference) -> NodeValue:
    return _merge_tapes(builder, first, second)


def _merge_tapes(builder: KernelBuilder, into: TapeReference, other: TapeReference) -> TapeReference:
    """Adds every slot of one tape to that of another, in a loop up to its capacity."""
    into = ensure_tape(builder, into)
    most = builder.make(f"call i64 @lg_tape_capacity(i64 {other.header.text})", i64, 1)

    def add_slot(index: Register, carried: list[Register]) -> list[Register]:
        # Inactive lanes hold zeros or values of their own, so all lanes are added.
        with builder.with_mask(None):
            value = _read(builder, _slot(builder, other, index), other.element)
            slot = _slot(builder, into, index)
            stored = _read(builder, slot, into.element)
            _write(builder, slot, into.element, _sum(builder, into.element, stored, value))
        return []

    counted_loop(builder, builder.constant(0, i64), most, 1, [], add_slot)
    return into


def select_tape(
    builder: KernelBuilder, condition: Register, then: TapeReference, otherwise: TapeReference, select: Select
) -> TapeReference:
    """Merges two tapes that lanes select between, so that every lane reads the values that it wrote.

    `select` merges the contents of the slots lane by lane.
    """
    if condition.uniform:
        return TapeReference(builder.select(condition, then.header, otherwise.header), then.element)
    builder.uses_tapes = True
    first, second = (
        builder.make(f"call i64 @lg_tape_capacity(i64 {t.header.text})", i64, 1) for t in (then, otherwise)
    )
    empty = builder.apply("icmp eq", bool_, first, builder.constant(0, i64))
    only = builder.select(empty, otherwise.header, then.header)
    written = builder.apply("icmp ne", bool_, builder.apply("mul", i64, first, second), builder.constant(0, i64))
    differ = builder.apply("icmp ne", bool_, then.header, otherwise.header)
    merge, join = builder.label("merge"), builder.label("join")
    before = builder.block
    builder.branch(builder.apply("and", bool_, written, differ), merge, join)
    builder.begin(merge)
    merged = copy_tape(builder, then)

    def choose_slot(index: Register, carried: list[Register]) -> list[Register]:
        with builder.with_mask(None):
            other_value = _read(builder, _slot(builder, otherwise, index), then.element)
            slot = _slot(builder, merged, index)
            value = _read(builder, slot, then.element)
            _write(builder, slot, then.element, select(builder, condition, value, other_value))
        return []

    counted_loop(builder, builder.constant(0, i64), second, 1, [], choose_slot)
    after = builder.block
    builder.jump(join)
    builder.begin(join)
    header = builder.phi(i64, 1, [(merged.header, after), (only, before)])
    return TapeReference(header, then.element)
