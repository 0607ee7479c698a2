"""Branches and loops under lane masks: a block is skipped only if no lane is active."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

from livegrad.codegen.llvm import tapes
from livegrad.codegen.llvm.builder import Assembler
from livegrad.codegen.llvm.counted_loops import OpenLoop
from livegrad.codegen.llvm.registers import (
    Register,
    TapeReference,
    TensorReference,
    Value,
    literal_text,
    llvm_type,
    registers_of,
)
from livegrad.ir.leaves import constant_op
from livegrad.ir.node import Function, Node
from livegrad.ir.types import bool_, i64
from livegrad.ir.walk import nodes_of
from livegrad.schedule.loops.cost_model import branch_cost
from livegrad.schedule.loops.uniform_values import carried_variation, varying_results, while_variation

EmitFunction = Callable[[Assembler, Function, Sequence[Value]], list[Value]]

# Branches cheaper than this are computed for all lanes: a jump costs about as much.
_CHEAP_BRANCH = 40.0
# A loop of a known number of iterations that takes less work than this ends soon enough without looking for Ctrl-C.
_SHORT_LOOP = 10_000.0


def _register(value: Value) -> Register:
    assert isinstance(value, Register)
    return value


def _packed(results: list[Value]) -> Value:
    return results[0] if len(results) == 1 else tuple(results)


def select_value(asm: Assembler, condition: Register, then: Value, otherwise: Value) -> Value:
    """Member by member and lane by lane."""
    if isinstance(then, Register) and isinstance(otherwise, Register):
        return asm.select(condition, then, otherwise)
    if isinstance(then, TapeReference) and isinstance(otherwise, TapeReference):
        return tapes.chosen(asm, condition, then, otherwise, select_value)
    if isinstance(then, TensorReference):
        return then  # both ways add to the same memory
    assert isinstance(then, tuple)
    assert isinstance(otherwise, tuple)
    return tuple(select_value(asm, condition, a, b) for a, b in zip(then, otherwise, strict=True))


def _widened(asm: Assembler, value: Value, lanes: int) -> Value:
    if isinstance(value, Register):
        return asm.widen(value, lanes)
    if isinstance(value, tuple):
        return tuple(_widened(asm, part, lanes) for part in value)
    return value


def _rebuilt(value: Value, registers: list[Register]) -> Value:
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


def emit_cond(asm: Assembler, node: Node, operands: list[Value], emit: EmitFunction) -> Value:
    predicate, arguments = _register(operands[0]), operands[1:]
    then, otherwise = node.attribute("then"), node.attribute("otherwise")
    if not predicate.uniform and branch_cost(then) + branch_cost(otherwise) <= _CHEAP_BRANCH:
        return _select_both(asm, predicate, then, otherwise, arguments, emit)
    if not predicate.uniform and branch_cost(otherwise) == 0.0:
        without = emit(asm, otherwise, arguments)
        if all(isinstance(value, Register) for value in without):
            return _packed(_replaced(asm, predicate, then, arguments, emit, [_register(value) for value in without]))
    opposite = asm.apply("xor", bool_, predicate, asm.constant(True, bool_))
    results = [
        _guarded(asm, condition, function, arguments, emit)
        for condition, function in ((predicate, then), (opposite, otherwise))
    ]
    return _packed([select_value(asm, predicate, a, b) for a, b in zip(*results, strict=True)])


def _select_both(
    asm: Assembler, predicate: Register, then: Function, otherwise: Function, arguments: list[Value], emit: EmitFunction
) -> Value:
    opposite = asm.apply("xor", bool_, predicate, asm.constant(True, bool_))
    with asm.under(asm.both(asm.mask, predicate)):
        first = emit(asm, then, arguments)
    with asm.under(asm.both(asm.mask, opposite)):
        second = emit(asm, otherwise, arguments)
    return _packed([select_value(asm, predicate, a, b) for a, b in zip(first, second, strict=True)])


def _replaced(
    asm: Assembler,
    condition: Register,
    function: Function,
    arguments: list[Value],
    emit: EmitFunction,
    without: list[Register],
) -> list[Value]:
    """The function's results in the lanes where the condition holds; jumped over where in none."""
    mask = asm.both(asm.mask, condition)
    without = [asm.widen(register, condition.lanes) for register in without]
    run, done = asm.label("then"), asm.label("join")
    asm.branch(asm.any_lane(mask), run, done)
    skipped = asm.block
    asm.begin(run)
    with asm.under(mask):
        results = emit(asm, function, arguments)
    chosen = [asm.select(condition, _register(a), b) for a, b in zip(results, without, strict=True)]
    came_from = asm.block
    asm.jump(done)
    asm.begin(done)
    return [_joined(asm, a, came_from, b, skipped) for a, b in zip(chosen, without, strict=True)]


def _joined(asm: Assembler, first: Register, first_block: str, second: Register, second_block: str) -> Register:
    vector = llvm_type(first.type, first.lanes)
    text = f"phi {vector} [ {first.text}, %{first_block} ], [ {second.text}, %{second_block} ]"
    return asm.make(text, first.type, first.lanes)


def _guarded(
    asm: Assembler, condition: Register, function: Function, arguments: list[Value], emit: EmitFunction
) -> list[Value]:
    """The function's results where the condition holds in some lane; jumped over, and undefined, where in none."""
    mask = asm.mask if condition.uniform else asm.both(asm.mask, condition)
    run, done = asm.label("then"), asm.label("join")
    asm.branch(asm.any_lane(condition if condition.uniform or mask is None else mask), run, done)
    skipped = asm.block
    asm.begin(run)
    with asm.under(mask):
        results = emit(asm, function, arguments)
    came_from = asm.block
    asm.jump(done)
    asm.begin(done)
    registers = _all_registers(results)
    merged = [_phi_or_nothing(asm, register, came_from, skipped) for register in registers]
    return [_rebuilt(value, merged) for value in results]


def _phi_or_nothing(asm: Assembler, register: Register, came_from: str, skipped: str) -> Register:
    # Zero, not poison: an inactive lane's value may still be compared, and comparing poison spoils the active ones.
    nothing = "zeroinitializer" if register.lanes > 1 else _zero_text(register)
    vector = llvm_type(register.type, register.lanes)
    text = f"phi {vector} [ {register.text}, %{came_from} ], [ {nothing}, %{skipped} ]"
    return asm.make(text, register.type, register.lanes)


def _zero_text(register: Register) -> str:
    return literal_text(0, register.type)


def emit_switch(asm: Assembler, node: Node, operands: list[Value], emit: EmitFunction) -> Value:
    index, arguments = _register(operands[0]), operands[1:]
    branches = node.attribute("branches")
    bad = asm.apply("icmp uge", bool_, index, asm.constant(len(branches), index.type))
    asm.report(bad, f"switch on a number that has no branch ({len(branches)} branches)", node.origin)
    results: list[Value] | None = None
    for position, function in enumerate(branches):
        hit = asm.apply("icmp eq", bool_, index, asm.constant(position, index.type))
        found = _guarded(asm, hit, function, arguments, emit)
        if results is None:
            results = found
        else:
            results = [select_value(asm, hit, new, old) for new, old in zip(found, results, strict=True)]
    assert results is not None
    return _packed(results)


# --- loops -----------------------------------------------------------------------------------------------------------


def _is_varying(value: Value) -> bool:
    return any(register.lanes > 1 for register in registers_of(value))


class _Loop:
    """A loop of the program, with an iteration index from 0 and carried values."""

    def __init__(self, asm: Assembler, start: list[Value]) -> None:
        self._open = OpenLoop(asm, [asm.constant(0, i64), *_all_registers(start)])
        self.body, self.done = self._open.body, self._open.done
        self.count, *carried = self._open.carried
        self.state = [_rebuilt(value, carried) for value in start]

    def close(self, count: Register, values: list[Value]) -> None:
        """Ends the body; the next iteration starts with these values."""
        self._open.close([count, *_all_registers(values)])


def _all_registers(values: Sequence[Value]) -> list[Register]:
    return [register for value in values for register in registers_of(value)]


def _starting(asm: Assembler, value: Value, varying: bool) -> Value:
    """A value as a loop starts with it: wide if it will be, and with a tape to write to."""
    if isinstance(value, TapeReference):
        return tapes.ensured(asm, value)
    if isinstance(value, tuple):
        return tuple(_starting(asm, part, varying) for part in value)
    return _widened(asm, value, asm.lanes) if varying else value


def emit_for_loop(asm: Assembler, node: Node, operands: list[Value], emit: EmitFunction) -> Value:
    iterations, values = _register(operands[0]), operands[1:]
    carried, body = node.attribute("carried"), node.attribute("body")
    varying = carried_variation(node, tuple(map(_is_varying, values)), not iterations.uniform)
    start = [_starting(asm, v, flag) for v, flag in zip(values[:carried], varying, strict=True)]
    most = iterations if iterations.uniform else _most_iterations(asm, iterations)
    loop = _Loop(asm, start)
    again = asm.apply("icmp slt", bool_, loop.count, most)
    again = (
        _poll(asm, again) if not iterations.literal or loop_work(node, int(iterations.text)) > _SHORT_LOOP else again
    )
    asm.branch(again, loop.body, loop.done)
    asm.begin(loop.body)
    index = loop.count
    if node.attribute("reverse"):
        index = asm.apply("sub", i64, asm.apply("sub", i64, most, loop.count), asm.constant(1, i64))
    active = None if iterations.uniform else asm.apply("icmp slt", bool_, index, iterations)
    with asm.under(asm.mask if active is None else asm.both(asm.mask, active)):
        results = emit(asm, body, [index, *loop.state, *values[carried:]])
    results = [_widened(asm, v, asm.lanes) if flag else v for v, flag in zip(results, varying, strict=True)]
    if active is not None:
        results = [_keep_inactive(asm, active, new, old) for new, old in zip(results, loop.state, strict=True)]
    loop.close(asm.apply("add", i64, loop.count, asm.constant(1, i64)), results)
    return tuple(loop.state)


def _keep_inactive(asm: Assembler, active: Register, new: Value, old: Value) -> Value:
    if isinstance(new, TapeReference):
        return new  # lanes that rest have their slots in it too
    if isinstance(new, tuple) and isinstance(old, tuple):
        return tuple(_keep_inactive(asm, active, a, b) for a, b in zip(new, old, strict=True))
    return select_value(asm, active, new, old)


def _most_iterations(asm: Assembler, iterations: Register) -> Register:
    """The maximum iteration count of all active lanes."""
    counted = iterations if asm.mask is None else asm.select(asm.mask, iterations, asm.constant(0, i64))
    counted = asm.widen(counted, asm.lanes)
    vector = llvm_type(i64, counted.lanes)
    asm.declarations.add(f"declare i64 @llvm.vector.reduce.smax.v{counted.lanes}i64({vector})")
    return asm.make(f"call i64 @llvm.vector.reduce.smax.v{counted.lanes}i64({counted.typed})", i64, 1)


def _poll(asm: Assembler, again: Register) -> Register:
    """Leave the loop as well when the interrupt flag is set."""
    asm.polls = True
    flag = asm.raw("load atomic i32, ptr %interrupt monotonic, align 4")
    quiet = asm.make(f"icmp eq i32 {flag}, 0", bool_, 1)
    if asm.uses_tapes:
        # A loop that remembers must not go on when there was no more memory for it.
        status = asm.raw("load atomic i64, ptr %status monotonic, align 8")
        quiet = asm.apply("and", bool_, quiet, asm.make(f"icmp eq i64 {status}, -1", bool_, 1))
    return asm.apply("and", bool_, again, quiet)


def emit_while_loop(asm: Assembler, node: Node, operands: list[Value], emit: EmitFunction) -> Value:
    carried, limit = node.attribute("carried"), node.attribute("limit")
    captures = operands[carried:]
    varying = while_variation(node, tuple(map(_is_varying, operands)))
    start = [_starting(asm, v, flag) for v, flag in zip(operands[:carried], varying, strict=True)]
    diverges = any(varying_results(node.attribute("condition"), (*varying, *map(_is_varying, captures))))
    loop = _Loop(asm, start)
    holds = _register(emit(asm, node.attribute("condition"), [*loop.state, *captures])[0])
    active = asm.both(asm.mask, holds) if diverges else holds
    again = asm.any_lane(active)
    if limit is not None:
        again = _within_limit(asm, node, active, again, loop.count, limit)
    asm.branch(_poll(asm, again), loop.body, loop.done)
    asm.begin(loop.body)
    with asm.under(active if diverges else asm.mask):
        results = emit(asm, node.attribute("body"), [loop.count, *loop.state, *captures])
    results = [_widened(asm, v, asm.lanes) if flag else v for v, flag in zip(results, varying, strict=True)]
    if diverges:
        results = [_keep_inactive(asm, active, new, old) for new, old in zip(results, loop.state, strict=True)]
    loop.close(asm.apply("add", i64, loop.count, asm.constant(1, i64)), results)
    return tuple(loop.state)


def _within_limit(
    asm: Assembler, node: Node, active: Register, again: Register, count: Register, limit: int
) -> Register:
    spent = asm.apply("icmp sge", bool_, count, asm.constant(limit, i64))
    asm.report(asm.apply("and", bool_, active, spent), f"the loop ran past its limit of {limit}", node.origin)
    return asm.apply("and", bool_, again, asm.apply("xor", bool_, spent, asm.constant(True, bool_)))
