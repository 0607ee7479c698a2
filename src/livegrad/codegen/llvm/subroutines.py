"""Subroutines of a kernel: functions that are called from several places, and pieces of long code.

Called by `function_body.py`. LLVM's compile time grows faster than the length of a function. In pieces of bounded
length it grows linearly, and a function that is called often is compiled once. Results do not change by a bit, because
the IR says what is fused.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from livegrad.codegen.llvm.kernel_builder import KernelBuilder
from livegrad.codegen.llvm.registers import NodeValue, Register, llvm_type, pointer, registers_of
from livegrad.ir.node import Function, Node
from livegrad.ir.types import Scalar, Tape, Tensor, f16, i64
from livegrad.passes.functions import is_pure, is_pure_node
from livegrad.schedule.loops.cost_model import byte_size

EmitFunction = Callable[[KernelBuilder, Function, Sequence[NodeValue]], list[NodeValue]]
EmitNode = Callable[[KernelBuilder, Node, dict[Node, NodeValue]], NodeValue]

LONG = 4000  # nodes: shorter code stays in one piece, and its registers are dealt out all together
_PIECE = 2000
_ALIGNMENT = 64
# Results that are returned in registers; more go through memory. Of four floats x86 returns two on the x87 stack, and
# LLVM's fast instruction selection reads those into registers that the instruction it chooses does not reach (AVX-512).
_MOST_IN_REGISTERS = 2
_RESULTS, _FRAME = Register("%results", pointer, 1), Register("%frame", pointer, 1)  # parameters


@dataclass(frozen=True)
class _Subroutine:
    symbol: str
    returned: str  # the LLVM type of its results together
    results: list[NodeValue]  # as the registers of its own body
    in_memory: bool  # whether it writes its results to where its last argument points


def rebuild_value(value: NodeValue, registers: list[Register]) -> NodeValue:
    """A value of the same shape over other registers, taken from the front of the list."""
    if isinstance(value, Register):
        return registers.pop(0)
    assert isinstance(value, tuple)
    return tuple(rebuild_value(part, registers) for part in value)


# --- calls ------------------------------------------------------------------------------------------------------------


def emit_call(
    builder: KernelBuilder, function: Function, arguments: Sequence[NodeValue], emit: EmitFunction
) -> list[NodeValue]:
    """The results of a call: of a function beside this one, or written out here where it needs the kernel."""
    if not is_pure(function) or any(isinstance(type, Tensor | Tape) for type in function.parameter_types):
        return emit(builder, function, arguments)
    inputs = [register for argument in arguments for register in registers_of(argument)]
    key: Hashable = (function, builder.lanes, tuple((register.type, register.lanes) for register in inputs))
    subroutine = builder.subroutines.get(key)
    if subroutine is None:
        subroutine = builder.subroutines[key] = _define(builder, function, arguments, emit)
    assert isinstance(subroutine, _Subroutine)
    registers = _take_results(builder, subroutine, [register.typed for register in inputs])
    return [rebuild_value(value, registers) for value in subroutine.results]


def _take_results(builder: KernelBuilder, called: _Subroutine, arguments: Sequence[str]) -> list[Register]:
    """Calls a function; the registers that have its results."""
    wanted = [register for value in called.results for register in registers_of(value)]
    if called.in_memory:
        memory = builder.allocate(called.returned, "results")
        builder.line(f"call void @{called.symbol}({', '.join([*arguments, memory.typed])})")
        addresses = [_result_address(builder, called.returned, memory, number) for number in range(len(wanted))]
        return [
            builder.load(address, result.type, result.lanes) for result, address in zip(wanted, addresses, strict=True)
        ]
    text = f"call {called.returned} @{called.symbol}({', '.join(arguments)})"
    if len(wanted) == 1:
        texts = [text]
    else:
        packed = builder.raw(text)
        texts = [f"extractvalue {called.returned} {packed}, {number}" for number in range(len(wanted))]
    return [builder.make(text, result.type, result.lanes) for text, result in zip(texts, wanted, strict=True)]


def _result_address(builder: KernelBuilder, returned: str, memory: Register, number: int) -> Register:
    return builder.make(f"getelementptr {returned}, {memory.typed}, i64 0, i32 {number}", pointer, 1)


def _define(
    builder: KernelBuilder, function: Function, arguments: Sequence[NodeValue], emit: EmitFunction
) -> _Subroutine:
    inner = builder.beside()
    registers = [register for argument in arguments for register in registers_of(argument)]
    own = [Register(f"%a{number}", register.type, register.lanes) for number, register in enumerate(registers)]
    fresh = list(own)
    results = emit(inner, function, [rebuild_value(argument, fresh) for argument in arguments])
    returned = [register for value in results for register in registers_of(value)]
    types = [llvm_type(register.type, register.lanes) for register in returned]
    kind = types[0] if len(types) == 1 else f"{{ {', '.join(types)} }}"
    # LLVM cannot return vectors of halves in registers on processors without F16C.
    in_memory = len(types) > _MOST_IN_REGISTERS or any(register.type is f16 for register in returned)
    parameters = [register.typed for register in own]
    if in_memory:
        parameters.append(_RESULTS.typed)
        for number, register in enumerate(returned):
            inner.store(register, _result_address(inner, kind, _RESULTS, number))
        inner.line("ret void")
    elif len(types) == 1:
        inner.line(f"ret {returned[0].typed}")
    else:
        packed = "poison"
        for number, register in enumerate(returned):
            packed = inner.raw(f"insertvalue {kind} {packed}, {register.typed}, {number}")
        inner.line(f"ret {kind} {packed}")
    symbol = _finish(builder, inner, "void" if in_memory else kind, parameters)
    return _Subroutine(symbol, kind, results, in_memory)


def _finish(builder: KernelBuilder, inner: KernelBuilder, returned: str, parameters: Iterable[str]) -> str:
    """Puts a function that was written beside this one into the module; its name goes out."""
    assert not inner.sites and not inner.polls and not inner.uses_tapes  # noqa: PT018 - one rule
    symbol = f"kernel.{len(builder.definitions)}"
    body = "\n".join(["start:", *inner.entry, *inner.lines])
    builder.definitions.append(
        f"define internal {returned} @{symbol}({', '.join(parameters)}) noinline #0 {{\n{body}\n}}"
    )
    return symbol


# --- long code in pieces ----------------------------------------------------------------------------------------------


def emit_in_pieces(
    builder: KernelBuilder,
    written: Sequence[Node],
    reads: Mapping[Node, Sequence[Node]],
    kept: Iterable[Node],
    values: dict[Node, NodeValue],
    emit: EmitNode,
) -> None:
    """Writes nodes in order, runs of them that need nothing of the kernel as functions of their own.

    `reads` says which nodes each needs the values of, `kept` which are needed afterwards: those are in `values` then.
    """
    frame = _Frame(builder, values, reads, written, set(kept))
    for first, last in _runs(written):
        if last - first == 1:
            node = written[first]
            frame.fetch(reads[node])
            values[node] = emit(builder, node, values)
        else:
            frame.run(written[first:last], emit)
        frame.release(last)
    frame.fetch(kept)
    builder.entry.append(f"  {frame.memory.text} = alloca [{max(frame.size, 1)} x i8], align {_ALIGNMENT}")


def _runs(written: Sequence[Node]) -> Iterable[tuple[int, int]]:
    """Where functions of their own begin and end; what cannot be in one is a run of a single node."""
    first = 0
    for position, node in enumerate(written):
        pure = is_pure_node(node)
        if position > first and (not pure or position - first == _PIECE):
            yield first, position
            first = position
        if not pure:
            yield position, position + 1
            first = position + 1
    if first < len(written):
        yield first, len(written)


_Slot = tuple[int, Scalar, int]  # where in the frame, what, for how many lanes


@dataclass
class _Frame:
    """Memory through which pieces hand on values; what is no longer read makes room for others."""

    builder: KernelBuilder
    values: dict[Node, NodeValue]  # those that the caller has in registers
    reads: Mapping[Node, Sequence[Node]]
    written: Sequence[Node]
    kept: set[Node]
    size: int = 0
    slots: dict[Node, tuple[NodeValue, list[_Slot | None]]] = field(default_factory=dict)
    free: dict[int, list[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.memory = Register(self.builder.name("frame"), pointer, 1)
        self.last: dict[Node, int] = {}
        for position, node in enumerate(self.written):
            for operand in self.reads[node]:
                self.last[operand] = position
        self.ending: dict[int, list[Node]] = {}
        for node, position in self.last.items():
            if node not in self.kept:
                self.ending.setdefault(position, []).append(node)
        self.released = 0

    def run(self, nodes: Sequence[Node], emit: EmitNode) -> None:
        """A piece as a function, and a call of it."""
        piece = set(nodes)
        inner = self.builder.beside()
        local: dict[Node, NodeValue] = {}
        end = self.released + len(nodes)
        for node in nodes:
            for operand in self.reads[node]:
                if operand not in piece and operand not in local:
                    self._store(self.builder, self.memory, operand, self.values)
                    local[operand] = self._load(inner, _FRAME, operand)
            local[node] = emit(inner, node, local)
        for node in nodes:
            if node in self.kept or self.last.get(node, -1) >= end:
                self._store(inner, _FRAME, node, local)
        inner.line("ret void")
        symbol = _finish(self.builder, inner, "void", [_FRAME.typed])
        self.builder.line(f"call void @{symbol}({self.memory.typed})")

    def fetch(self, nodes: Iterable[Node]) -> None:
        """Loads what the caller needs in registers."""
        for node in nodes:
            if node not in self.values:
                self.values[node] = self._load(self.builder, self.memory, node)

    def release(self, end: int) -> None:
        """The nodes before this place have been written: what only they read makes room."""
        for position in range(self.released, end):
            for node in self.ending.get(position, ()):
                for slot in self.slots.pop(node, (None, []))[1]:
                    if slot is not None:
                        self.free.setdefault(_room(slot[1], slot[2]), []).append(slot[0])
        self.released = end

    def _store(self, builder: KernelBuilder, memory: Register, node: Node, values: Mapping[Node, NodeValue]) -> None:
        if node in self.slots:
            return
        value = values[node]
        slots: list[_Slot | None] = []
        for register in registers_of(value):
            if register.literal:
                slots.append(None)
                continue
            slot = self._slot(register)
            builder.store(register, builder.advance(memory, builder.constant(slot[0], i64)), _ALIGNMENT)
            slots.append(slot)
        self.slots[node] = value, slots

    def _load(self, builder: KernelBuilder, memory: Register, node: Node) -> NodeValue:
        value, slots = self.slots[node]
        registers = []
        for register, slot in zip(registers_of(value), slots, strict=True):
            if slot is None:
                registers.append(register)
                continue
            address = builder.advance(memory, builder.constant(slot[0], i64))
            registers.append(builder.load(address, register.type, register.lanes, _ALIGNMENT))
        return rebuild_value(value, registers)

    def _slot(self, register: Register) -> _Slot:
        room = _room(register.type, register.lanes)
        waiting = self.free.get(room)
        if waiting:
            return waiting.pop(), register.type, register.lanes
        self.size += room
        return self.size - room, register.type, register.lanes


def _room(type: Scalar, lanes: int) -> int:
    return -(-byte_size(type) * lanes // _ALIGNMENT) * _ALIGNMENT
