"""Emits `while_loop`s, under lane masks if lanes leave them at different iterations. Called by `function_body.py`."""

from __future__ import annotations

from livegrad.codegen.llvm.kernel_builder import KernelBuilder
from livegrad.codegen.llvm.lane_loops import EmitFunction
from livegrad.codegen.llvm.masked_control import (
    ProgramLoop,
    close_strip,
    is_divergent,
    keep_inactive,
    starting_value,
    widen_value,
)
from livegrad.codegen.llvm.polling import poll, runs_in_strips, strip_length
from livegrad.codegen.llvm.registers import NodeValue, Register, as_register
from livegrad.ir.node import Node
from livegrad.ir.types import bool_, i64
from livegrad.schedule.loops.divergence import divergent_results, divergent_while_state, lockstep_state


def emit_while_loop(builder: KernelBuilder, node: Node, operands: list[NodeValue], emit: EmitFunction) -> NodeValue:
    carried, limit = node.attribute("carried"), node.attribute("limit")
    captures = operands[carried:]
    if builder.lanes == 1 and runs_in_strips(node.attribute("body")):
        return _while_in_strips(builder, node, operands, emit)
    flags = tuple(map(is_divergent, operands))
    lockstep = lockstep_state(node, flags) if builder.shares_lockstep else ()
    if any(lockstep):
        return _while_in_lockstep(builder, node, operands, lockstep, emit)
    divergent = divergent_while_state(node, flags)
    start = [starting_value(builder, v, flag) for v, flag in zip(operands[:carried], divergent, strict=True)]
    diverges = any(divergent_results(node.attribute("condition"), (*divergent, *map(is_divergent, captures))))
    loop = ProgramLoop(builder, start)
    holds = as_register(emit(builder, node.attribute("condition"), [*loop.state, *captures])[0])
    active = builder.intersect_masks(builder.mask, holds) if diverges else holds
    again = builder.any_lane(active)
    if limit is not None:
        again = _within_limit(builder, node, active, again, loop.count, limit)
    builder.branch(poll(builder, again), loop.body, loop.done)
    builder.begin(loop.body)
    with builder.with_mask(active if diverges else builder.mask):
        results = emit(builder, node.attribute("body"), [loop.count, *loop.state, *captures])
    results = [
        widen_value(builder, v, builder.lanes) if flag else v for v, flag in zip(results, divergent, strict=True)
    ]
    if diverges:
        results = [keep_inactive(builder, active, new, old) for new, old in zip(results, loop.state, strict=True)]
    loop.close(builder.apply("add", i64, loop.count, builder.constant(1, i64)), results)
    return tuple(loop.state)


def _while_in_lockstep(
    builder: KernelBuilder, node: Node, operands: list[NodeValue], lockstep: tuple[bool, ...], emit: EmitFunction
) -> NodeValue:
    """A loop that lanes leave at different iterations, and in which some values are equal in all lanes still inside.

    The loop carries a mask of the lanes inside, since lanes that left may not re-enter; the common values as scalars;
    and for each lane all values with which it left.
    """
    carried, limit = node.attribute("carried"), node.attribute("limit")
    captures, lanes = operands[carried:], builder.lanes
    flags = divergent_while_state(node, tuple(map(is_divergent, operands)))
    inside = builder.widen(builder.constant(True, bool_) if builder.mask is None else builder.mask, lanes)
    common = [value for value, is_common in zip(operands[:carried], lockstep, strict=True) if is_common]
    start = [starting_value(builder, v, flag) for v, flag in zip(operands[:carried], flags, strict=True)]
    loop = ProgramLoop(builder, [inside, *common, *start])
    before, lane_values = as_register(loop.state[0]), loop.state[1 + len(common) :]
    scalars = iter(loop.state[1 : 1 + len(common)])
    state = [next(scalars) if is_common else value for value, is_common in zip(lane_values, lockstep, strict=True)]
    with builder.with_mask(before):
        holds = as_register(emit(builder, node.attribute("condition"), [*state, *captures])[0])
    active = builder.intersect_masks(before, holds)
    again = builder.any_lane(active)
    if limit is not None:
        again = _within_limit(builder, node, active, again, loop.count, limit)
    builder.branch(poll(builder, again), loop.body, loop.done)
    builder.begin(loop.body)
    with builder.with_mask(active):
        results = emit(builder, node.attribute("body"), [loop.count, *state, *captures])
    following = [value for value, is_common in zip(results, lockstep, strict=True) if is_common]
    results = [widen_value(builder, v, lanes) if flag else v for v, flag in zip(results, flags, strict=True)]
    results = [keep_inactive(builder, active, new, old) for new, old in zip(results, lane_values, strict=True)]
    loop.close(builder.apply("add", i64, loop.count, builder.constant(1, i64)), [active, *following, *results])
    return tuple(lane_values)


def _while_in_strips(builder: KernelBuilder, node: Node, operands: list[NodeValue], emit: EmitFunction) -> NodeValue:
    """An innermost loop of a scalar kernel, which polls for Ctrl-C only after each strip of iterations."""
    carried, body = node.attribute("carried"), node.attribute("body")
    captures, limit = operands[carried:], node.attribute("limit")
    strips = ProgramLoop(builder, operands[:carried])
    builder.jump(strips.body)
    builder.begin(strips.body)
    stop = builder.apply("add", i64, strips.count, builder.constant(strip_length(body), i64))
    loop = ProgramLoop(builder, strips.state, strips.count)
    again = holds = as_register(emit(builder, node.attribute("condition"), [*loop.state, *captures])[0])
    if limit is not None:
        again = _within_limit(builder, node, holds, holds, loop.count, limit)
    within = builder.label("within")
    builder.branch(again, within, strips.done)
    builder.begin(within)
    builder.branch(builder.apply("icmp slt", bool_, loop.count, stop), loop.body, loop.done)
    builder.begin(loop.body)
    results = emit(builder, body, [loop.count, *loop.state, *captures])
    loop.close(builder.apply("add", i64, loop.count, builder.constant(1, i64)), results)
    close_strip(builder, strips, loop.count, loop.state, builder.constant(True, bool_))
    return tuple(loop.state)


def _within_limit(
    builder: KernelBuilder, node: Node, active: Register, again: Register, count: Register, limit: int
) -> Register:
    exceeded = builder.apply("icmp sge", bool_, count, builder.constant(limit, i64))
    failed = builder.apply("and", bool_, active, exceeded)
    builder.report(failed, f"the loop ran past its limit of {limit}", node.origin)
    return builder.apply("and", bool_, again, builder.apply("xor", bool_, exceeded, builder.constant(True, bool_)))
