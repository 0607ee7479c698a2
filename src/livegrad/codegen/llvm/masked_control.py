"""Emits branches and `for` loops under lane masks: a block is skipped only if no lane is active.

Called by `function_body.py`; `while_loops.py` emits `while_loop`s with the same helpers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial

from livegrad.codegen.llvm import tapes
from livegrad.codegen.llvm.counted_loops import OpenLoop, counted_loop
from livegrad.codegen.llvm.kernel_builder import KernelBuilder
from livegrad.codegen.llvm.lane_loops import EmitFunction, emit_lane_loop, reductions_in_lanes
from livegrad.codegen.llvm.loops_on_threads import OutlinedLoop
from livegrad.codegen.llvm.polling import is_too_short_to_poll, poll, runs_in_strips, strip_length
from livegrad.codegen.llvm.registers import (
    NodeValue,
    Register,
    TapeReference,
    TensorReference,
    as_register,
    rebuild_value,
    registers_of,
)
from livegrad.ir.node import Function, Node
from livegrad.ir.types import bool_, i64
from livegrad.schedule.loops.cost_model import branch_cost, dense_bytes
from livegrad.schedule.loops.divergence import divergent_state

# Cheaper branches are computed for all lanes, because a jump costs about as much.
_CHEAP_BRANCH = 40.0
# Loops of a constant number of iterations, at least this, are kept rolled: LLVM would unroll before vectorising.
_VECTOR_LOOP = 8


def _pack_results(results: list[NodeValue]) -> NodeValue:
    return results[0] if len(results) == 1 else tuple(results)


def select_value(builder: KernelBuilder, condition: Register, then: NodeValue, otherwise: NodeValue) -> NodeValue:
    """Selects between two values, member by member and lane by lane."""
    if isinstance(then, Register) and isinstance(otherwise, Register):
        return builder.select(condition, then, otherwise)
    if isinstance(then, TapeReference) and isinstance(otherwise, TapeReference):
        return tapes.select_tape(builder, condition, then, otherwise, select_value)
    if isinstance(then, TensorReference):
        return then  # both branches update the same memory
    assert isinstance(then, tuple)
    assert isinstance(otherwise, tuple)
    return tuple(select_value(builder, condition, a, b) for a, b in zip(then, otherwise, strict=True))


def widen_value(builder: KernelBuilder, value: NodeValue, lanes: int) -> NodeValue:
    """A value with one value per lane in each of its registers."""
    if isinstance(value, Register):
        return builder.widen(value, lanes)
    if isinstance(value, tuple):
        return tuple(widen_value(builder, part, lanes) for part in value)
    return value


# --- branches --------------------------------------------------------------------------------------------------------


def emit_cond(builder: KernelBuilder, node: Node, operands: list[NodeValue], emit: EmitFunction) -> NodeValue:
    predicate, arguments = as_register(operands[0]), operands[1:]
    then, otherwise = node.attribute("then"), node.attribute("otherwise")
    if builder.lanes == 1 and not (tapes.mentions_tapes(then) or tapes.mentions_tapes(otherwise)):
        return _emit_either(builder, predicate, then, otherwise, arguments, emit)
    if not predicate.uniform and branch_cost(then) + branch_cost(otherwise) <= _CHEAP_BRANCH:
        return _select_both(builder, predicate, then, otherwise, arguments, emit)
    if not predicate.uniform and branch_cost(otherwise) == 0.0:
        without = emit(builder, otherwise, arguments)
        if all(isinstance(value, Register) for value in without):
            return _pack_results(
                _override(builder, predicate, then, arguments, emit, [as_register(value) for value in without])
            )
    opposite = builder.apply("xor", bool_, predicate, builder.constant(True, bool_))
    results = [
        _emit_guarded(builder, condition, function, arguments, emit)
        for condition, function in ((predicate, then), (opposite, otherwise))
    ]
    return _pack_results([select_value(builder, predicate, a, b) for a, b in zip(*results, strict=True)])


def _emit_either(
    builder: KernelBuilder,
    predicate: Register,
    then: Function,
    otherwise: Function,
    arguments: list[NodeValue],
    emit: EmitFunction,
) -> NodeValue:
    """The results of the branch that a scalar selects."""
    done = builder.label("join")
    labels = builder.label("then"), builder.label("else")
    builder.branch(predicate, *labels)
    branches: list[tuple[list[NodeValue], str]] = []
    for label, function in zip(labels, (then, otherwise), strict=True):
        builder.begin(label)
        results = emit(builder, function, arguments)
        branches.append((results, builder.block))
        builder.jump(done)
    builder.begin(done)
    (first, first_block), (second, second_block) = branches
    pairs = zip(_all_registers(first), _all_registers(second), strict=True)
    merged = [a if a is b else _join(builder, a, first_block, b, second_block) for a, b in pairs]
    return _pack_results([rebuild_value(value, merged) for value in first])


def _select_both(
    builder: KernelBuilder,
    predicate: Register,
    then: Function,
    otherwise: Function,
    arguments: list[NodeValue],
    emit: EmitFunction,
) -> NodeValue:
    opposite = builder.apply("xor", bool_, predicate, builder.constant(True, bool_))
    with builder.with_mask(builder.intersect_masks(builder.mask, predicate)):
        first = emit(builder, then, arguments)
    with builder.with_mask(builder.intersect_masks(builder.mask, opposite)):
        second = emit(builder, otherwise, arguments)
    return _pack_results([select_value(builder, predicate, a, b) for a, b in zip(first, second, strict=True)])


def _override(
    builder: KernelBuilder,
    condition: Register,
    function: Function,
    arguments: list[NodeValue],
    emit: EmitFunction,
    without: list[Register],
) -> list[NodeValue]:
    """The function's results in the lanes where the condition holds, `without` in others; skipped if it never holds."""
    mask = builder.intersect_masks(builder.mask, condition)
    without = [builder.widen(register, condition.lanes) for register in without]
    run, done = builder.label("then"), builder.label("join")
    builder.branch(builder.any_lane(mask), run, done)
    skipped = builder.block
    builder.begin(run)
    with builder.with_mask(mask):
        results = emit(builder, function, arguments)
    chosen = [builder.select(condition, as_register(a), b) for a, b in zip(results, without, strict=True)]
    came_from = builder.block
    builder.jump(done)
    builder.begin(done)
    return [_join(builder, a, came_from, b, skipped) for a, b in zip(chosen, without, strict=True)]


def _join(builder: KernelBuilder, first: Register, first_block: str, second: Register, second_block: str) -> Register:
    return builder.phi(first.type, first.lanes, [(first, first_block), (second, second_block)])


def _emit_guarded(
    builder: KernelBuilder, condition: Register, function: Function, arguments: list[NodeValue], emit: EmitFunction
) -> list[NodeValue]:
    """The function's results if the condition holds in some lane; otherwise the block is skipped and they are zero."""
    mask = builder.mask if condition.uniform else builder.intersect_masks(builder.mask, condition)
    run, done = builder.label("then"), builder.label("join")
    builder.branch(builder.any_lane(condition if condition.uniform or mask is None else mask), run, done)
    skipped = builder.block
    builder.begin(run)
    with builder.with_mask(mask):
        results = emit(builder, function, arguments)
    came_from = builder.block
    builder.jump(done)
    builder.begin(done)
    registers = _all_registers(results)
    merged = [_phi_or_zero(builder, register, came_from, skipped) for register in registers]
    return [rebuild_value(value, merged) for value in results]


def _phi_or_zero(builder: KernelBuilder, register: Register, came_from: str, skipped: str) -> Register:
    # Zero, not poison: values of inactive lanes may still be compared, and poison would spread to active lanes.
    return builder.phi(
        register.type, register.lanes, [(register, came_from), (builder.zero(register.type, register.lanes), skipped)]
    )


def emit_switch(builder: KernelBuilder, node: Node, operands: list[NodeValue], emit: EmitFunction) -> NodeValue:
    index, arguments = as_register(operands[0]), operands[1:]
    branches = node.attribute("branches")
    bad = builder.apply("icmp uge", bool_, index, builder.constant(len(branches), index.type))
    builder.report(bad, f"switch index out of range ({len(branches)} branches)", node.origin)
    results: list[NodeValue] | None = None
    for position, function in enumerate(branches):
        hit = builder.apply("icmp eq", bool_, index, builder.constant(position, index.type))
        branch_results = _emit_guarded(builder, hit, function, arguments, emit)
        if results is None:
            results = branch_results
        else:
            results = [select_value(builder, hit, new, old) for new, old in zip(branch_results, results, strict=True)]
    assert results is not None
    return _pack_results(results)


# --- loops -----------------------------------------------------------------------------------------------------------


def is_divergent(value: NodeValue) -> bool:
    return any(register.lanes > 1 for register in registers_of(value))


class ProgramLoop:
    """A loop of the program, with an iteration index and carried values."""

    def __init__(self, builder: KernelBuilder, start: list[NodeValue], first: Register | None = None) -> None:
        self._open = OpenLoop(builder, [first or builder.constant(0, i64), *_all_registers(start)])
        self.body, self.done = self._open.body, self._open.done
        self.count, *carried = self._open.carried
        self.state = _rebuild_all(start, carried)

    def close(
        self, count: Register, values: list[NodeValue], condition: Register | None = None, flags: str = ""
    ) -> None:
        """Ends the body; the next iteration starts with these values, if the condition holds."""
        self._open.close([count, *_all_registers(values)], condition, flags)


def _all_registers(values: Sequence[NodeValue]) -> list[Register]:
    return [register for value in values for register in registers_of(value)]


def _rebuild_all(values: Sequence[NodeValue], registers: Sequence[Register]) -> list[NodeValue]:
    """Values of the same structure over other registers."""
    rest = list(registers)
    return [rebuild_value(value, rest) for value in values]


def starting_value(builder: KernelBuilder, value: NodeValue, divergent: bool) -> NodeValue:
    """The initial value of loop state: widened to all lanes if it diverges inside, with a writable tape."""
    if isinstance(value, TapeReference):
        return tapes.ensure_tape(builder, value)
    if isinstance(value, tuple):
        return tuple(starting_value(builder, part, divergent) for part in value)
    return widen_value(builder, value, builder.lanes) if divergent else value


def emit_for_loop(builder: KernelBuilder, node: Node, operands: list[NodeValue], emit: EmitFunction) -> NodeValue:
    if builder.pool_run is not None and any(name == "grain" for name, _ in node.attributes):
        return _emit_parallel_loop(builder, node, operands, emit)
    iterations, values = as_register(operands[0]), operands[1:]
    carried, body = node.attribute("carried"), node.attribute("body")
    kinds = reductions_in_lanes(builder, node)
    if kinds is not None:
        return emit_lane_loop(builder, node, kinds, operands, emit)
    divergent = divergent_state(node, tuple(map(is_divergent, values)), not iterations.uniform)
    start = [starting_value(builder, v, flag) for v, flag in zip(values[:carried], divergent, strict=True)]
    most = iterations if iterations.uniform else _most_iterations(builder, iterations)
    rows = tapes.reserve_rows_of_loop(builder, node, [*start, *values[carried:]], most)

    def with_rows(state: list[NodeValue]) -> list[NodeValue]:
        return [rows.get(position, value) for position, value in enumerate(state)]

    drops_tapes = tapes.keeps_no_tapes(node)

    def iteration(count: Register, state: list[NodeValue]) -> list[NodeValue]:
        index = count
        if node.attribute("reverse"):
            index = builder.apply("sub", i64, builder.apply("sub", i64, most, count), builder.constant(1, i64))
        active = None if iterations.uniform else builder.apply("icmp slt", bool_, index, iterations)
        masked = builder.with_mask(builder.mask if active is None else builder.intersect_masks(builder.mask, active))
        with masked, tapes.released_memory(builder) if drops_tapes else nullcontext():
            arguments = with_rows([*state, *values[carried:]])
            results = emit(builder, body, [index, *(tapes.in_iteration(v, most, index) for v in arguments)])
        results = [
            widen_value(builder, v, builder.lanes) if flag else v for v, flag in zip(results, divergent, strict=True)
        ]
        if active is None:
            return results
        return [keep_inactive(builder, active, new, old) for new, old in zip(results, state, strict=True)]

    # A call of a kernel that polls for Ctrl-C in none of its loops takes half a microsecond less.
    if iterations.literal and is_too_short_to_poll(builder, node, int(iterations.text)):
        return tuple(with_rows(_emit_counted(builder, builder.constant(0, i64), most, start, iteration)))
    if not runs_in_strips(body) and not tapes.accesses_rows_only(node, rows):
        return tuple(with_rows(_emit_counted(builder, builder.constant(0, i64), most, start, iteration, polls=True)))
    strips = ProgramLoop(builder, start)
    builder.jump(strips.body)
    builder.begin(strips.body)
    remaining = builder.apply("sub nsw", i64, most, strips.count)
    length = builder.least(remaining, builder.constant(strip_length(body), i64))
    stop = builder.apply("add nsw", i64, strips.count, length)
    results = _emit_counted(builder, strips.count, stop, strips.state, iteration)
    close_strip(builder, strips, stop, results, builder.apply("icmp slt", bool_, stop, most))
    return tuple(with_rows(results))


def close_strip(
    builder: KernelBuilder, strips: ProgramLoop, count: Register, state: list[NodeValue], again: Register
) -> None:
    """Ends a strip of iterations, and polls if there may be more: short loops inside others do not poll at all."""
    pause = builder.label("pause")
    builder.branch(again, pause, strips.done)
    builder.begin(pause)
    quiet = poll(builder, builder.constant(True, bool_))
    strips.close(count, state, quiet, builder.metadata.keep_rolled())


def _emit_parallel_loop(builder: KernelBuilder, node: Node, operands: list[NodeValue], emit: EmitFunction) -> NodeValue:
    """A loop that carries only tensors, and whose iterations run on the thread pool."""
    carried, body, private = node.attribute("carried"), node.attribute("body"), node.attribute("private")
    sizes = {1 + index: dense_bytes(node.operands[1 + index].type) for index in private}
    loop = OutlinedLoop(builder, operands, sizes)
    inner, (iterations, *values) = loop.builder, loop.values

    def iteration(count: Register, state: list[NodeValue]) -> list[NodeValue]:
        index = count
        if node.attribute("reverse"):
            last = inner.apply("sub", i64, as_register(iterations), inner.constant(1, i64))
            index = inner.apply("sub", i64, last, count)
        return emit(inner, body, [index, *state, *values[carried:]])

    # After an interrupt, threads do not start further ranges.
    stop = inner.select(poll(inner, inner.constant(True, bool_)), loop.end, loop.begin)
    _emit_counted(inner, loop.begin, stop, values[:carried], iteration, polls=not runs_in_strips(body))
    loop.run(as_register(operands[0]), node.attribute("grain"))
    return tuple(operands[1 : 1 + carried])


def _emit_counted(
    builder: KernelBuilder,
    first: Register,
    stop: Register,
    start: list[NodeValue],
    iteration: Callable[[Register, list[NodeValue]], list[NodeValue]],
    polls: bool = False,
) -> list[NodeValue]:
    """The carried values after the iterations from `first` to `stop`."""

    def body(count: Register, registers: list[Register]) -> list[Register]:
        return _all_registers(iteration(count, _rebuild_all(start, registers)))

    unless = partial(poll, builder) if polls else None
    keeps_rolled = stop.literal and int(stop.text) >= _VECTOR_LOOP and not _carries_floats(start)
    flags = builder.metadata.keep_rolled() if keeps_rolled else ""
    ended = counted_loop(
        builder, first, stop, 1, _all_registers(start), body, unless=unless, increment="add nuw nsw", flags=flags
    )
    return _rebuild_all(start, ended)


def _carries_floats(values: list[NodeValue]) -> bool:
    """Whether a loop carries floats, like a sum: LLVM does not vectorise it, but may vectorise around it unrolled."""
    return any(register.type.kind == "float" for register in _all_registers(values))


def keep_inactive(builder: KernelBuilder, active: Register, new: NodeValue, old: NodeValue) -> NodeValue:
    """The new value in active lanes, the old one in others."""
    if isinstance(new, TapeReference):
        return new  # slots of inactive lanes are in the same tape
    if isinstance(new, tuple) and isinstance(old, tuple):
        return tuple(keep_inactive(builder, active, a, b) for a, b in zip(new, old, strict=True))
    return select_value(builder, active, new, old)


def _most_iterations(builder: KernelBuilder, iterations: Register) -> Register:
    """The maximum iteration count of all active lanes."""
    counted = iterations if builder.mask is None else builder.select(builder.mask, iterations, builder.constant(0, i64))
    return builder.reduce_lanes("smax", builder.widen(counted, builder.lanes))
