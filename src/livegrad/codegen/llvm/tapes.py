"""Tapes in native code: growable memory by iteration, one slot for all lanes of a group, written under the mask.

A tape is updated in place. This is sound because differentiation writes each version of a tape once, and reads of a
version are ordered before the write that ends it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

from livegrad.codegen.llvm.builder import Assembler
from livegrad.codegen.llvm.counted_loops import counted_loop
from livegrad.codegen.llvm.registers import Register, TapeReference, Value, llvm_memory
from livegrad.codegen.llvm.vector_memory import load_vector, memory_type, store_vector, to_memory
from livegrad.diagnostics import CompileError
from livegrad.ir.node import Function, Node
from livegrad.ir.types import Scalar, Tape, Type, bool_, components, i64
from livegrad.ir.walk import functions_in, nodes_of, toposort
from livegrad.ops.tape import tape_add, tape_set, tape_sum
from livegrad.passes.in_place_loops import LOOPS, first_carried, written_operands
from livegrad.schedule.loops.cost_model import byte_size

_WRITES = (tape_set, tape_add, tape_sum)
_SLOT_ALIGNMENT = 64
Select = Callable[[Assembler, Register, Value, Value], Value]


def _written_operands(node: Node) -> list[int]:
    """Which operands of a node it changes in place: the tapes and tensors that it writes to, or that a loop carries."""
    if node.op in _WRITES:
        return [0]
    tensors = list(written_operands(node))
    if node.op not in LOOPS:
        return tensors
    places = range(first_carried(node), first_carried(node) + node.attribute("carried"))
    return [place for place in places if place in tensors or isinstance(node.operands[place].type, Tape)]


def execution_order(results: Sequence[Node]) -> tuple[list[Node], set[tuple[Node, int]]]:
    """Operands first, and every other use of a tape or tensor before the write to it.

    Where a tape is written in several ways, the second value names the writers (and operands) that take a copy.
    """
    order = toposort(results)
    writers: dict[Node, list[tuple[Node, int]]] = {}
    for node in order:
        for place in _written_operands(node):
            writers.setdefault(node.operands[place], []).append((node, place))
    if not writers:
        return order, set()
    copies = {writer for found in writers.values() for writer in found[:-1]}
    # A tape that is also a result must stay as it is: its writer takes a copy.
    copies |= {found[-1] for tape, found in writers.items() if tape in results}
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
def mentions_tapes(function: Function) -> bool:
    """Whether a function, or a nested function, uses a tape."""
    own = any(isinstance(node.type, Tape) for node in nodes_of(function))
    return own or any(map(mentions_tapes, functions_in(function)))


# --- layout ----------------------------------------------------------------------------------------------------------


def _leaves(type: Type) -> list[Scalar | Tape]:
    if isinstance(type, Scalar | Tape):
        return [type]
    return [leaf for part in components(type) for leaf in _leaves(part)]


def _leaf_bytes(leaf: Scalar | Tape, lanes: int) -> int:
    size = 8 if isinstance(leaf, Tape) else byte_size(leaf) * lanes
    return -(-size // 8) * 8


def slot_bytes(type: Type, lanes: int) -> int:
    """The bytes that a tape stores per iteration."""
    total = sum(_leaf_bytes(leaf, lanes) for leaf in _leaves(type))
    return max(-(-total // _SLOT_ALIGNMENT) * _SLOT_ALIGNMENT, _SLOT_ALIGNMENT)


def _slot(asm: Assembler, tape: TapeReference, index: Register) -> str:
    asm.uses_tapes = True
    if not index.uniform:
        raise CompileError("a tape is indexed by a loop's own index only")
    size = slot_bytes(tape.element, asm.lanes)
    return asm.raw(f"call ptr @lg_tape_slot(ptr %arena, i64 {tape.header.text}, i64 {index.text}, i64 {size})")


def _write(asm: Assembler, pointer: str, type: Type, value: Value) -> None:
    offset = 0
    for leaf, part in zip(_leaves(type), _flat(value), strict=True):
        place = asm.raw(f"getelementptr i8, ptr {pointer}, i64 {offset}")
        if isinstance(part, TapeReference):
            asm.line(f"store i64 {part.header.text}, ptr {place}, align 8")
        elif asm.lanes == 1:
            asm.line(f"store {to_memory(asm, part).typed}, ptr {place}, align {byte_size(part.type)}")
        else:
            store_vector(asm, place, asm.widen(part, asm.lanes), asm.mask)
        offset += _leaf_bytes(leaf, asm.lanes)


def _flat(value: Value) -> list[Register | TapeReference]:
    if isinstance(value, tuple):
        return [leaf for part in value for leaf in _flat(part)]
    assert isinstance(value, Register | TapeReference)
    return [value]


def _read(asm: Assembler, pointer: str, type: Type) -> Value:
    parts: list[Value] = []
    offset = 0
    for leaf in _leaves(type):
        place = asm.raw(f"getelementptr i8, ptr {pointer}, i64 {offset}")
        parts.append(_read_leaf(asm, place, leaf))
        offset += _leaf_bytes(leaf, asm.lanes)
    return _shaped(type, parts)


def _read_leaf(asm: Assembler, place: str, leaf: Scalar | Tape) -> Value:
    if isinstance(leaf, Tape):
        name = asm.name("tape")
        asm.lines.append(f"  {name} = load i64, ptr {place}, align 8")
        return TapeReference(Register(name, i64, 1), leaf.element)
    if asm.lanes == 1:
        held = memory_type(leaf)
        loaded = asm.make(f"load {llvm_memory(leaf)}, ptr {place}, align {byte_size(leaf)}", held, 1)
        return asm.make(f"trunc i8 {loaded.text} to i1", leaf, 1) if leaf.kind == "bool" else loaded
    return load_vector(asm, place, leaf, None)


def _shaped(type: Type, parts: list[Value]) -> Value:
    if isinstance(type, Scalar | Tape):
        return parts.pop(0)
    return tuple(_shaped(member, parts) for member in components(type))


# --- ops -------------------------------------------------------------------------------------------------------------


def emit_new(asm: Assembler, node: Node, operands: list[Value]) -> Value:
    asm.uses_tapes = True
    assert isinstance(node.type, Tape)
    name = asm.name("tape")
    asm.lines.append(f"  {name} = call i64 @lg_tape_new(ptr %arena)")
    return TapeReference(Register(name, i64, 1), node.type.element)


def ensured(asm: Assembler, tape: TapeReference) -> TapeReference:
    """Returns the tape, or an empty one if it was read from a slot that was never set."""
    asm.uses_tapes = True
    name = asm.name("tape")
    asm.lines.append(f"  {name} = call i64 @lg_tape_ensure(ptr %arena, i64 {tape.header.text})")
    return TapeReference(Register(name, i64, 1), tape.element)


def copied(asm: Assembler, tape: TapeReference) -> TapeReference:
    """Returns an independent copy of a tape."""
    asm.uses_tapes = True
    size = slot_bytes(tape.element, asm.lanes)
    name = asm.name("tape")
    asm.lines.append(f"  {name} = call i64 @lg_tape_copy(ptr %arena, i64 {tape.header.text}, i64 {size})")
    return TapeReference(Register(name, i64, 1), tape.element)


def emit_set(asm: Assembler, node: Node, tape: TapeReference, index: Register, value: Value) -> Value:
    tape = ensured(asm, tape)
    _write(asm, _slot(asm, tape, index), tape.element, value)
    return tape


def emit_get(asm: Assembler, node: Node, tape: TapeReference, index: Register) -> Value:
    return _read(asm, _slot(asm, tape, index), tape.element)


def emit_add(asm: Assembler, node: Node, tape: TapeReference, index: Register, value: Value) -> Value:
    tape = ensured(asm, tape)
    pointer = _slot(asm, tape, index)
    known = _read(asm, pointer, tape.element)
    _write(asm, pointer, tape.element, _sum(asm, tape.element, known, value))
    return tape


def _sum(asm: Assembler, type: Type, first: Value, second: Value) -> Value:
    if isinstance(first, Register) and isinstance(second, Register):
        return asm.apply("fadd" if first.type.kind == "float" else "add", first.type, first, second)
    if isinstance(first, TapeReference) and isinstance(second, TapeReference):
        return _merged(asm, first, second)
    assert isinstance(first, tuple)
    assert isinstance(second, tuple)
    return tuple(_sum(asm, t, a, b) for t, a, b in zip(components(type), first, second, strict=True))


def emit_sum(asm: Assembler, node: Node, first: TapeReference, second: TapeReference) -> Value:
    return _merged(asm, first, second)


def _merged(asm: Assembler, into: TapeReference, other: TapeReference) -> TapeReference:
    """Adds every slot of one tape into another, in a loop over the slots that there are."""
    into = ensured(asm, into)
    most = asm.make(f"call i64 @lg_tape_capacity(i64 {other.header.text})", i64, 1)

    def add_slot(index: Register, carried: list[Register]) -> list[Register]:
        # Inactive lanes hold zeros or values of their own: all lanes are added alike.
        with asm.under(None):
            value = _read(asm, _slot(asm, other, index), other.element)
            pointer = _slot(asm, into, index)
            known = _read(asm, pointer, into.element)
            _write(asm, pointer, into.element, _sum(asm, into.element, known, value))
        return []

    counted_loop(asm, asm.constant(0, i64), most, 1, [], add_slot)
    return into


def chosen(
    asm: Assembler, condition: Register, then: TapeReference, otherwise: TapeReference, select: Select
) -> TapeReference:
    """Merges two tapes that lanes select between, so that every lane finds what it wrote.

    `select` merges the contents of the slots lane by lane.
    """
    if condition.uniform:
        return TapeReference(asm.select(condition, then.header, otherwise.header), then.element)
    asm.uses_tapes = True
    first, second = (asm.make(f"call i64 @lg_tape_capacity(i64 {t.header.text})", i64, 1) for t in (then, otherwise))
    empty = asm.apply("icmp eq", bool_, first, asm.constant(0, i64))
    only = asm.select(empty, otherwise.header, then.header)
    written = asm.apply("icmp ne", bool_, asm.apply("mul", i64, first, second), asm.constant(0, i64))
    differ = asm.apply("icmp ne", bool_, then.header, otherwise.header)
    merge, join = asm.label("merge"), asm.label("join")
    before = asm.block
    asm.branch(asm.apply("and", bool_, written, differ), merge, join)
    asm.begin(merge)
    merged = copied(asm, then)

    def choose_slot(index: Register, carried: list[Register]) -> list[Register]:
        with asm.under(None):
            other = _read(asm, _slot(asm, otherwise, index), then.element)
            pointer = _slot(asm, merged, index)
            own = _read(asm, pointer, then.element)
            _write(asm, pointer, then.element, select(asm, condition, own, other))
        return []

    counted_loop(asm, asm.constant(0, i64), second, 1, [], choose_slot)
    after = asm.block
    asm.jump(join)
    asm.begin(join)
    header = asm.make(f"phi i64 [ {merged.header.text}, %{after} ], [ {only.text}, %{before} ]", i64, 1)
    return TapeReference(header, then.element)
