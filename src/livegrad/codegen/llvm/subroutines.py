"""Emits subroutines of a kernel: called functions, compiled once, and long straight-line code split into pieces.

Called by `function_body.py`. LLVM's compile time grows faster than linearly with the length of a function; with pieces
of bounded length it grows linearly. Results have the same bits, because fused multiply-adds are explicit in the IR.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from livegrad.codegen.llvm.kernel_builder import KernelBuilder
from livegrad.codegen.llvm.registers import NodeValue, Register, llvm_type, pointer, rebuild_value, registers_of
from livegrad.ir.dimension import round_up
from livegrad.ir.node import Function, Node
from livegrad.ir.types import Scalar, Tape, Tensor, f16, i64
from livegrad.passes.functions import is_pure, is_pure_node
from livegrad.schedule.loops.cost_model import byte_size

EmitFunction = Callable[[KernelBuilder, Function, Sequence[NodeValue]], list[NodeValue]]
EmitNode = Callable[[KernelBuilder, Node, dict[Node, NodeValue]], NodeValue]

LONG = 4000  # nodes; shorter code stays in one function, whose registers are allocated together
_PIECE = 2000
_ALIGNMENT = 64
# Results returned in registers; more are returned in memory. Of four floats, x86 returns two on the x87 stack. LLVM's
# fast instruction selection reads them into registers that the selected instruction cannot address (AVX-512).
_MOST_IN_REGISTERS = 2
_RESULTS, _FRAME = Register("%results", pointer, 1), Register("%frame", pointer, 1)  # parameters


@dataclass(frozen=True)
class _Subroutine:
    symbol: str
    result_type: str  # the LLVM type of all results together
    results: list[NodeValue]  # over the registers of its body
    in_memory: bool  # whether it stores its results at the address in its last argument


# --- calls ------------------------------------------------------------------------------------------------------------


def emit_call(
    builder: KernelBuilder, function: Function, arguments: Sequence[NodeValue], emit: EmitFunction
) -> list[NodeValue]:
    """The results of a call: of a subroutine, or inlined if the function needs the kernel's state."""
    if not is_pure(function) or any(isinstance(type, Tensor | Tape) for type in function.parameter_types):
        return emit(builder, function, arguments)
    inputs = [register for argument in arguments for register in registers_of(argument)]
    key: Hashable = (function, builder.lanes, tuple((register.type, register.lanes) for register in inputs))
    subroutine = builder.subroutines.get(key)
    if subroutine is None:
        subroutine = builder.subroutines[key] = _define(builder, function, arguments, emit)
    assert isinstance(subroutine, _Subroutine)
    registers = _call_subroutine(builder, subroutine, [register.typed for register in inputs])
    return [rebuild_value(value, registers) for value in subroutine.results]


def _call_subroutine(builder: KernelBuilder, subroutine: _Subroutine, arguments: Sequence[str]) -> list[Register]:
    """Calls a subroutine; returns the registers of its results."""
    results = [register for value in subroutine.results for register in registers_of(value)]
    type = subroutine.result_type
    if subroutine.in_memory:
        memory = builder.allocate(type, "results")
        builder.line(f"call void @{subroutine.symbol}({', '.join([*arguments, memory.typed])})")
        addresses = [_result_address(builder, type, memory, index) for index in range(len(results))]
        return [
            builder.load(address, result.type, result.lanes) for result, address in zip(results, addresses, strict=True)
        ]
    call = f"call {type} @{subroutine.symbol}({', '.join(arguments)})"
    if len(results) == 1:
        instructions = [call]
    else:
        packed = builder.raw(call)
        instructions = [f"extractvalue {type} {packed}, {index}" for index in range(len(results))]
    return [
        builder.make(instruction, result.type, result.lanes)
        for instruction, result in zip(instructions, results, strict=True)
    ]


def _result_address(builder: KernelBuilder, type: str, memory: Register, index: int) -> Register:
    return builder.make(f"getelementptr {type}, {memory.typed}, i64 0, i32 {index}", pointer, 1)


def _define(
    builder: KernelBuilder, function: Function, arguments: Sequence[NodeValue], emit: EmitFunction
) -> _Subroutine:
    inner = builder.subroutine_builder()
    registers = [register for argument in arguments for register in registers_of(argument)]
    inputs = [Register(f"%a{index}", register.type, register.lanes) for index, register in enumerate(registers)]
    remaining = list(inputs)
    results = emit(inner, function, [rebuild_value(argument, remaining) for argument in arguments])
    returned = [register for value in results for register in registers_of(value)]
    types = [llvm_type(register.type, register.lanes) for register in returned]
    result_type = types[0] if len(types) == 1 else f"{{ {', '.join(types)} }}"
    # LLVM cannot return vectors of halves in registers on processors without F16C.
    in_memory = len(types) > _MOST_IN_REGISTERS or any(register.type is f16 for register in returned)
    parameters = [register.typed for register in inputs]
    if in_memory:
        parameters.append(_RESULTS.typed)
        for index, register in enumerate(returned):
            inner.store(register, _result_address(inner, result_type, _RESULTS, index))
        inner.line("ret void")
    elif len(types) == 1:
        inner.line(f"ret {returned[0].typed}")
    else:
        packed = "poison"
        for index, register in enumerate(returned):
            packed = inner.raw(f"insertvalue {result_type} {packed}, {register.typed}, {index}")
        inner.line(f"ret {result_type} {packed}")
    symbol = _add_subroutine(builder, inner, "void" if in_memory else result_type, parameters)
    return _Subroutine(symbol, result_type, results, in_memory)


def _add_subroutine(builder: KernelBuilder, inner: KernelBuilder, returned: str, parameters: Iterable[str]) -> str:
    """Adds a subroutine to the module; returns its symbol."""
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
    schedule: Sequence[Node],
    reads: Mapping[Node, Sequence[Node]],
    live_out: Iterable[Node],
    values: dict[Node, NodeValue],
    emit: EmitNode,
) -> None:
    """Emits nodes in order, and runs of pure nodes as subroutines.

    `reads` has the nodes whose values each node needs. The nodes of `live_out` are in `values` afterwards.
    """
    frame = _Frame(builder, values, reads, schedule, set(live_out))
    for first, last in _runs(schedule):
        if last - first == 1:
            node = schedule[first]
            frame.fetch(reads[node])
            values[node] = emit(builder, node, values)
        else:
            frame.emit_piece(schedule[first:last], emit)
        frame.release(last)
    frame.fetch(live_out)
    builder.entry.append(f"  {frame.memory.text} = alloca [{max(frame.size, 1)} x i8], align {_ALIGNMENT}")


def _runs(schedule: Sequence[Node]) -> Iterable[tuple[int, int]]:
    """The start and end of each piece; an impure node is a run of its own."""
    first = 0
    for position, node in enumerate(schedule):
        pure = is_pure_node(node)
        if position > first and (not pure or position - first == _PIECE):
            yield first, position
            first = position
        if not pure:
            yield position, position + 1
            first = position + 1
    if first < len(schedule):
        yield first, len(schedule)


_Slot = tuple[int, Scalar, int]  # offset in the frame, element type, lanes


@dataclass
class _Frame:
    """Memory through which pieces pass values; slots of values that are no longer read are reused."""

    builder: KernelBuilder
    values: dict[Node, NodeValue]  # those that the caller has in registers
    reads: Mapping[Node, Sequence[Node]]
    schedule: Sequence[Node]
    live_out: set[Node]
    size: int = 0
    slots: dict[Node, tuple[NodeValue, list[_Slot | None]]] = field(default_factory=dict)
    free: dict[int, list[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.memory = Register(self.builder.name("frame"), pointer, 1)
        self.last_use: dict[Node, int] = {}
        for position, node in enumerate(self.schedule):
            for operand in self.reads[node]:
                self.last_use[operand] = position
        self.last_used_at: dict[int, list[Node]] = {}
        for node, position in self.last_use.items():
            if node not in self.live_out:
                self.last_used_at.setdefault(position, []).append(node)
        self.emitted = 0

    def emit_piece(self, nodes: Sequence[Node], emit: EmitNode) -> None:
        """Emits a piece as a subroutine, and a call of it."""
        piece = set(nodes)
        inner = self.builder.subroutine_builder()
        local: dict[Node, NodeValue] = {}
        end = self.emitted + len(nodes)
        for node in nodes:
            for operand in self.reads[node]:
                if operand not in piece and operand not in local:
                    self._store(self.builder, self.memory, operand, self.values)
                    local[operand] = self._load(inner, _FRAME, operand)
            local[node] = emit(inner, node, local)
        for node in nodes:
            if node in self.live_out or self.last_use.get(node, -1) >= end:
                self._store(inner, _FRAME, node, local)
        inner.line("ret void")
        symbol = _add_subroutine(self.builder, inner, "void", [_FRAME.typed])
        self.builder.line(f"call void @{symbol}({self.memory.typed})")

    def fetch(self, nodes: Iterable[Node]) -> None:
        """Loads values that the caller needs in registers."""
        for node in nodes:
            if node not in self.values:
                self.values[node] = self._load(self.builder, self.memory, node)

    def release(self, end: int) -> None:
        """Frees the slots of values that only nodes before `end` read, which have been emitted."""
        for position in range(self.emitted, end):
            for node in self.last_used_at.get(position, ()):
                for slot in self.slots.pop(node, (None, []))[1]:
                    if slot is not None:
                        self.free.setdefault(_slot_size(slot[1], slot[2]), []).append(slot[0])
        self.emitted = end

    def _store(self, builder: KernelBuilder, memory: Register, node: Node, values: Mapping[Node, NodeValue]) -> None:
        if node in self.slots:
            return
        value = values[node]
        slots: list[_Slot | None] = []
        for register in registers_of(value):
            if register.literal:
                slots.append(None)
                continue
            slot = self._allocate_slot(register)
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

    def _allocate_slot(self, register: Register) -> _Slot:
        size = _slot_size(register.type, register.lanes)
        free_offsets = self.free.get(size)
        if free_offsets:
            return free_offsets.pop(), register.type, register.lanes
        self.size += size
        return self.size - size, register.type, register.lanes


def _slot_size(type: Scalar, lanes: int) -> int:
    return round_up(byte_size(type) * lanes, _ALIGNMENT)
