"""Branches and loops under lane masks: a block is skipped only if no lane is active."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial

from livegrad.codegen.llvm import tapes
from livegrad.codegen.llvm.counted_loops import OpenLoop, counted_loop
from livegrad.codegen.llvm.kernel_builder import KernelBuilder
from livegrad.codegen.llvm.lane_loops import EmitFunction, emit_lane_loop, reductions_in_lanes
from livegrad.codegen.llvm.loops_on_threads import LoopPart
from livegrad.codegen.llvm.registers import (
    NodeValue,
    Register,
    TapeReference,
    TensorReference,
    registers_of,
)
from livegrad.ir.leaves import constant_op
from livegrad.ir.node import Function, Node
from livegrad.ir.types import bool_, i32, i64
from livegrad.ir.walk import nodes_of, ops_below
from livegrad.ops.control import call, for_loop, while_loop
from livegrad.schedule.loops.cost_model import branch_cost, dense_bytes
from livegrad.schedule.loops.divergence import divergent_state

# Branches cheaper than this are computed for all lanes: a jump costs about as much.
_CHEAP_BRANCH = 40.0
# A loop of a known number of iterations that takes less work than this ends soon enough without looking for Ctrl-C.
_SHORT_LOOP = 10_000.0
# A loop of a known number of iterations, at least so many, stays a loop: LLVM would unroll it before it vectorises.
_VECTOR_LOOP = 8
# So much work an innermost loop does between two looks: inside it, LLVM may move loads and stores, and vectorise.
_STRIP_WORK = 100_000.0


def _register(value: NodeValue) -> Register:
    assert isinstance(value, Register)
    return value


def _packed(results: list[NodeValue]) -> NodeValue:
    return results[0] if len(results) == 1 else tuple(results)


def select_value(builder: KernelBuilder, condition: Register, then: NodeValue, otherwise: NodeValue) -> NodeValue:
    """Member by member and lane by lane."""
    if isinstance(then, Register) and isinstance(otherwise, Register):
        return builder.select(condition, then, otherwise)
    if isinstance(then, TapeReference) and isinstance(otherwise, TapeReference):
        return tapes.chosen(builder, condition, then, otherwise, select_value)
    if isinstance(then, TensorReference):
        return then  # both ways add to the same memory
    assert isinstance(then, tuple)
    assert isinstance(otherwise, tuple)
    return tuple(select_value(builder, condition, a, b) for a, b in zip(then, otherwise, strict=True))


def widened(builder: KernelBuilder, value: NodeValue, lanes: int) -> NodeValue:
    if isinstance(value, Register):
        return builder.widen(value, lanes)
    if isinstance(value, tuple):
        return tuple(widened(builder, part, lanes) for part in value)
    return value


def _rebuilt(value: NodeValue, registers: list[Register]) -> NodeValue:
    """A value of the same shape over other registers, taken from the front of the list."""
    if isinstance(value, Register):
        return registers.pop(0)
    if isinstance(value, TapeReference):
        return TapeReference(registers.pop(0), value.element)
    if isinstance(value, TensorReference):
        return value
    assert isinstance(value, tuple)
    return tuple(_rebuilt(part, registers) for part in value)


def loop_work(node: Node, iterations: int) -> float:
    """A rough cost of a `for_loop` of so many iterations in additions, loops inside it by their own iterations."""
    return iterations * _work(node.attribute("body"))


@lru_cache(maxsize=4096)
def _work(function: Function) -> float:
    total = 0.0
    for node in nodes_of(function):
        if node.op.name == "for_loop" and node.operands[0].op is constant_op:
            total += loop_work(node, node.operands[0].attribute("value"))
        else:
            total += node.op.cost + sum(map(_work, node.functions))
    return total


# --- branches --------------------------------------------------------------------------------------------------------


def emit_cond(builder: KernelBuilder, node: Node, operands: list[NodeValue], emit: EmitFunction) -> NodeValue:
    predicate, arguments = _register(operands[0]), operands[1:]
    then, otherwise = node.attribute("then"), node.attribute("otherwise")
    if not predicate.uniform and branch_cost(then) + branch_cost(otherwise) <= _CHEAP_BRANCH:
        return _select_both(builder, predicate, then, otherwise, arguments, emit)
    if not predicate.uniform and branch_cost(otherwise) == 0.0:
        without = emit(builder, otherwise, arguments)
        if all(isinstance(value, Register) for value in without):
            return _packed(
                _replaced(builder, predicate, then, arguments, emit, [_register(value) for value in without])
            )
    opposite = builder.apply("xor", bool_, predicate, builder.constant(True, bool_))
    results = [
        _guarded(builder, condition, function, arguments, emit)
        for condition, function in ((predicate, then), (opposite, otherwise))
    ]
    return _packed([select_value(builder, predicate, a, b) for a, b in zip(*results, strict=True)])


def _select_both(
    builder: KernelBuilder,
    predicate: Register,
    then: Function,
    otherwise: Function,
    arguments: list[NodeValue],
    emit: EmitFunction,
) -> NodeValue:
    opposite = builder.apply("xor", bool_, predicate, builder.constant(True, bool_))
    with builder.under(builder.both(builder.mask, predicate)):
        first = emit(builder, then, arguments)
    with builder.under(builder.both(builder.mask, opposite)):
        second = emit(builder, otherwise, arguments)
    return _packed([select_value(builder, predicate, a, b) for a, b in zip(first, second, strict=True)])


def _replaced(
    builder: KernelBuilder,
    condition: Register,
    function: Function,
    arguments: list[NodeValue],
    emit: EmitFunction,
    without: list[Register],
) -> list[NodeValue]:
    """The function's results in the lanes where the condition holds; jumped over where in none."""
    mask = builder.both(builder.mask, condition)
    without = [builder.widen(register, condition.lanes) for register in without]
    run, done = builder.label("then"), builder.label("join")
    builder.branch(builder.any_lane(mask), run, done)
    skipped = builder.block
    builder.begin(run)
    with builder.under(mask):
        results = emit(builder, function, arguments)
    chosen = [builder.select(condition, _register(a), b) for a, b in zip(results, without, strict=True)]
    came_from = builder.block
    builder.jump(done)
    builder.begin(done)
    return [_joined(builder, a, came_from, b, skipped) for a, b in zip(chosen, without, strict=True)]


def _joined(builder: KernelBuilder, first: Register, first_block: str, second: Register, second_block: str) -> Register:
    return builder.phi(first.type, first.lanes, [(first, first_block), (second, second_block)])


def _guarded(
    builder: KernelBuilder, condition: Register, function: Function, arguments: list[NodeValue], emit: EmitFunction
) -> list[NodeValue]:
    """The function's results where the condition holds in some lane; jumped over, and undefined, where in none."""
    mask = builder.mask if condition.uniform else builder.both(builder.mask, condition)
    run, done = builder.label("then"), builder.label("join")
    builder.branch(builder.any_lane(condition if condition.uniform or mask is None else mask), run, done)
    skipped = builder.block
    builder.begin(run)
    with builder.under(mask):
        results = emit(builder, function, arguments)
    came_from = builder.block
    builder.jump(done)
    builder.begin(done)
    registers = _all_registers(results)
    merged = [_phi_or_nothing(builder, register, came_from, skipped) for register in registers]
    return [_rebuilt(value, merged) for value in results]


def _phi_or_nothing(builder: KernelBuilder, register: Register, came_from: str, skipped: str) -> Register:
    # Zero, not poison: an inactive lane's value may still be compared, and comparing poison spoils the active ones.
    return builder.phi(
        register.type, register.lanes, [(register, came_from), (builder.zero(register.type, register.lanes), skipped)]
    )


def emit_switch(builder: KernelBuilder, node: Node, operands: list[NodeValue], emit: EmitFunction) -> NodeValue:
    index, arguments = _register(operands[0]), operands[1:]
    branches = node.attribute("branches")
    bad = builder.apply("icmp uge", bool_, index, builder.constant(len(branches), index.type))
    builder.report(bad, f"switch index out of range ({len(branches)} branches)", node.origin)
    results: list[NodeValue] | None = None
    for position, function in enumerate(branches):
        hit = builder.apply("icmp eq", bool_, index, builder.constant(position, index.type))
        found = _guarded(builder, hit, function, arguments, emit)
        if results is None:
            results = found
        else:
            results = [select_value(builder, hit, new, old) for new, old in zip(found, results, strict=True)]
    assert results is not None
    return _packed(results)


# --- loops -----------------------------------------------------------------------------------------------------------


def is_divergent(value: NodeValue) -> bool:
    return any(register.lanes > 1 for register in registers_of(value))


class ProgramLoop:
    """A loop of the program, with an iteration index and carried values."""

    def __init__(self, builder: KernelBuilder, start: list[NodeValue], first: Register | None = None) -> None:
        self._open = OpenLoop(builder, [first or builder.constant(0, i64), *_all_registers(start)])
        self.body, self.done = self._open.body, self._open.done
        self.count, *carried = self._open.carried
        self.state = _all_rebuilt(start, carried)

    def close(self, count: Register, values: list[NodeValue], flags: str = "") -> None:
        """Ends the body; the next iteration starts with these values."""
        self._open.close([count, *_all_registers(values)], flags=flags)


def _all_registers(values: Sequence[NodeValue]) -> list[Register]:
    return [register for value in values for register in registers_of(value)]


def _all_rebuilt(values: Sequence[NodeValue], registers: Sequence[Register]) -> list[NodeValue]:
    """Values of the same shapes over other registers."""
    rest = list(registers)
    return [_rebuilt(value, rest) for value in values]


def starting_value(builder: KernelBuilder, value: NodeValue, divergent: bool) -> NodeValue:
    """A value as a loop starts with it: wide if it will be, and with a tape to write to."""
    if isinstance(value, TapeReference):
        return tapes.ensured(builder, value)
    if isinstance(value, tuple):
        return tuple(starting_value(builder, part, divergent) for part in value)
    return widened(builder, value, builder.lanes) if divergent else value


def emit_for_loop(builder: KernelBuilder, node: Node, operands: list[NodeValue], emit: EmitFunction) -> NodeValue:
    if builder.pool_run is not None and any(name == "grain" for name, _ in node.attributes):
        return _emit_on_threads(builder, node, operands, emit)
    iterations, values = _register(operands[0]), operands[1:]
    carried, body = node.attribute("carried"), node.attribute("body")
    kinds = reductions_in_lanes(builder, node)
    if kinds is not None:
        return emit_lane_loop(builder, node, kinds, operands, emit)
    divergent = divergent_state(node, tuple(map(is_divergent, values)), not iterations.uniform)
    start = [starting_value(builder, v, flag) for v, flag in zip(values[:carried], divergent, strict=True)]
    most = iterations if iterations.uniform else _most_iterations(builder, iterations)

    def iteration(count: Register, state: list[NodeValue]) -> list[NodeValue]:
        index = count
        if node.attribute("reverse"):
            index = builder.apply("sub", i64, builder.apply("sub", i64, most, count), builder.constant(1, i64))
        active = None if iterations.uniform else builder.apply("icmp slt", bool_, index, iterations)
        with builder.under(builder.mask if active is None else builder.both(builder.mask, active)):
            results = emit(builder, body, [index, *state, *values[carried:]])
        results = [
            widened(builder, v, builder.lanes) if flag else v for v, flag in zip(results, divergent, strict=True)
        ]
        if active is None:
            return results
        return [keep_inactive(builder, active, new, old) for new, old in zip(results, state, strict=True)]

    # Without a look for Ctrl-C in any of its loops, a kernel is called in half a microsecond less.
    short = _STRIP_WORK if builder.runs_once and builder.lanes == 1 else _SHORT_LOOP
    if iterations.literal and loop_work(node, int(iterations.text)) <= short:
        return tuple(_counted(builder, builder.constant(0, i64), most, start, iteration))
    if not runs_in_strips(body):
        return tuple(_counted(builder, builder.constant(0, i64), most, start, iteration, polls=True))
    strips = ProgramLoop(builder, start)
    again = poll(builder, builder.apply("icmp slt", bool_, strips.count, most))
    builder.branch(again, strips.body, strips.done)
    builder.begin(strips.body)
    left = builder.apply("sub nsw", i64, most, strips.count)
    stop = builder.apply("add nsw", i64, strips.count, builder.least(left, builder.constant(strip_length(body), i64)))
    results = _counted(builder, strips.count, stop, strips.state, iteration)
    strips.close(stop, results, builder.metadata.keep_rolled())
    return tuple(strips.state)


def _emit_on_threads(builder: KernelBuilder, node: Node, operands: list[NodeValue], emit: EmitFunction) -> NodeValue:
    """A loop that carries nothing but tensors, of which each thread takes some iterations at once."""
    carried, body, private = node.attribute("carried"), node.attribute("body"), node.attribute("private")
    sizes = {1 + number: dense_bytes(node.operands[1 + number].type) for number in private}
    part = LoopPart(builder, operands, sizes)
    inner, (iterations, *values) = part.builder, part.values

    def iteration(count: Register, state: list[NodeValue]) -> list[NodeValue]:
        index = count
        if node.attribute("reverse"):
            last = inner.apply("sub", i64, _register(iterations), inner.constant(1, i64))
            index = inner.apply("sub", i64, last, count)
        return emit(inner, body, [index, *state, *values[carried:]])

    # A thread that an interrupt finds waiting does not begin.
    stop = inner.select(poll(inner, inner.constant(True, bool_)), part.end, part.begin)
    _counted(inner, part.begin, stop, values[:carried], iteration, polls=not runs_in_strips(body))
    part.run(_register(operands[0]), node.attribute("grain"))
    return tuple(operands[1 : 1 + carried])


def _counted(
    builder: KernelBuilder,
    first: Register,
    stop: Register,
    start: list[NodeValue],
    iteration: Callable[[Register, list[NodeValue]], list[NodeValue]],
    polls: bool = False,
) -> list[NodeValue]:
    """The carried values after the iterations from the first one on."""

    def body(count: Register, registers: list[Register]) -> list[Register]:
        return _all_registers(iteration(count, _all_rebuilt(start, registers)))

    unless = partial(poll, builder) if polls else None
    keeps_rolled = stop.literal and int(stop.text) >= _VECTOR_LOOP and not _carries_floats(start)
    flags = builder.metadata.keep_rolled() if keeps_rolled else ""
    ended = counted_loop(
        builder, first, stop, 1, _all_registers(start), body, unless=unless, increment="add nuw nsw", flags=flags
    )
    return _all_rebuilt(start, ended)


def _carries_floats(values: list[NodeValue]) -> bool:
    """Whether a loop is a sum or the like, which is not vectorised. Unrolled, it leaves that to the loop around it."""
    return any(register.type.kind == "float" for register in _all_registers(values))


@lru_cache(maxsize=4096)
def runs_in_strips(body: Function) -> bool:
    """Whether a loop is an innermost one. One that writes tapes looks in each iteration if there is memory left."""
    return ops_below(body).isdisjoint((for_loop, while_loop, call)) and not tapes.mentions_tapes(body)


def strip_length(body: Function) -> int:
    """How many iterations run between two looks for Ctrl-C."""
    return 1 << max(6, int(_STRIP_WORK / max(1.0, _work(body))).bit_length() - 1)


def keep_inactive(builder: KernelBuilder, active: Register, new: NodeValue, old: NodeValue) -> NodeValue:
    if isinstance(new, TapeReference):
        return new  # lanes that rest have their slots in it too
    if isinstance(new, tuple) and isinstance(old, tuple):
        return tuple(keep_inactive(builder, active, a, b) for a, b in zip(new, old, strict=True))
    return select_value(builder, active, new, old)


def _most_iterations(builder: KernelBuilder, iterations: Register) -> Register:
    """The maximum iteration count of all active lanes."""
    counted = iterations if builder.mask is None else builder.select(builder.mask, iterations, builder.constant(0, i64))
    return builder.reduce_lanes("smax", builder.widen(counted, builder.lanes))


def poll(builder: KernelBuilder, again: Register, can_fail: bool = False) -> Register:
    """Leave the loop as well when the interrupt flag is set, or after a failed check.

    What is read behind the end of a tensor is zero: a `while_loop` might wait for another number forever.
    """
    builder.polls = True
    flag = builder.make("load atomic i32, ptr %interrupt monotonic, align 4", i32, 1)
    quiet = builder.apply("icmp eq", bool_, flag, builder.constant(0, i32))
    if builder.uses_tapes or can_fail:
        # A loop that remembers must not go on when there was no more memory for it.
        status = builder.make("load atomic i64, ptr %status monotonic, align 8", i64, 1)
        unset = builder.apply("icmp eq", bool_, status, builder.constant(-1, i64))
        quiet = builder.apply("and", bool_, quiet, unset)
    return builder.apply("and", bool_, again, quiet)
