"""Vectorises reduction loops of scalar kernels: lane k combines the terms of iterations k, k + lanes, and so on.

Called by `masked_control.py` for loops with the attribute `lanes`. Lanes are combined by halving. Before each halving
of the lanes that remain, the remaining terms that fill them are added: the order is the same on every machine and in
both tiers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache

from livegrad.codegen.llvm.builder import lane_constants
from livegrad.codegen.llvm.counted_loops import OpenLoop
from livegrad.codegen.llvm.kernel_builder import KernelBuilder
from livegrad.codegen.llvm.lane_reductions import across_lanes, combine, initial
from livegrad.codegen.llvm.registers import NodeValue, Register
from livegrad.ir.node import Function, Node
from livegrad.ir.types import bool_, i64
from livegrad.ir.walk import nodes_of, ops_below
from livegrad.ops.comparison import bit_and, bit_or
from livegrad.ops.control import call, for_loop, while_loop
from livegrad.ops.elementwise import add, maximum, minimum, mul, sub
from livegrad.ops.tape import tape_get

EmitFunction = Callable[[KernelBuilder, Function, Sequence[NodeValue]], list[NodeValue]]
Totals = list[Register]

_KINDS = {add: "sum", sub: "sum", mul: "prod", maximum: "max", minimum: "min", bit_or: "any", bit_and: "all"}
_MOST_NODES = 40  # of a body that is emitted once for each number of lanes


def reductions_in_lanes(builder: KernelBuilder, node: Node) -> tuple[str, ...] | None:
    """The kinds of the reductions of a loop that runs in lanes; None for other loops, and in vectorised kernels."""
    if builder.lanes > 1 or dict(node.attributes).get("lanes", 1) == 1:
        return None
    return _reduction_kinds(node.attribute("body"))


@lru_cache(maxsize=4096)
def _reduction_kinds(body: Function) -> tuple[str, ...] | None:
    """The reduction of each carried value; None if a value is used otherwise, or the body has loops inside."""
    if not ops_below(body).isdisjoint((for_loop, while_loop, call, tape_get)):
        return None
    nodes, kinds = nodes_of(body), list[str]()
    for result, total in zip(body.results, body.parameters[1:], strict=False):
        uses = sum(node.operands.count(total) for node in nodes)
        updates = result.operands[:1] == (total,) if result.op is sub else total in result.operands
        if uses != 1 or not updates or result.op not in _KINDS:
            return None
        kinds.append(_KINDS[result.op])
    return tuple(kinds)


def emit_lane_loop(
    builder: KernelBuilder,
    node: Node,
    kinds: Sequence[str],
    operands: Sequence[Register | NodeValue],
    emit: EmitFunction,
) -> tuple[Register, ...]:
    """The results of reductions that share a loop."""
    iterations, starts = operands[0], operands[1 : 1 + len(kinds)]
    assert isinstance(iterations, Register)
    body, lanes = node.attribute("body"), node.attribute("lanes")
    if not iterations.literal:
        iterations = builder.intrinsic("smax", i64, iterations, builder.constant(0, i64))

    def iteration(width: int, index: Register, totals: Totals) -> Totals:
        """The totals after the next `width` terms."""
        position = index
        with builder.with_lanes(width):
            if width > 1:
                position = builder.apply("add", i64, builder.widen(index, width), lane_constants(range(width), i64))
                position = replace(position, first=index)
            after = emit(builder, body, [position, *totals, *operands[1 + len(kinds) :]])
        return [builder.widen(total, width) for total in after]  # type: ignore[arg-type]

    whole = _round_down(builder, iterations, lanes)
    pairs = list(zip(kinds, starts, strict=True))
    totals = [builder.widen(initial(builder, kind, start.type)[0], lanes) for kind, start in pairs]  # type: ignore[union-attr]
    totals = _loop(builder, builder.constant(0, i64), whole, lanes, totals, iteration)
    short = len(nodes_of(body)) <= _MOST_NODES
    while lanes > 1 and short:
        totals = [_halve(builder, kind, total) for kind, total in zip(kinds, totals, strict=True)]
        totals = _run_remainder(builder, iterations, lanes // 2, totals, iteration)
        lanes //= 2
    totals = [across_lanes(builder, kind, (total,))[0] for kind, total in zip(kinds, totals, strict=True)]
    totals = [
        combine(builder, kind, (start,), (total,))[0]  # type: ignore[arg-type]
        for (kind, start), total in zip(pairs, totals, strict=True)
    ]
    return tuple(totals if short else _loop(builder, whole, iterations, 1, totals, iteration))


def _round_down(builder: KernelBuilder, iterations: Register, lanes: int) -> Register:
    """The largest multiple of `lanes` that is at most `iterations`."""
    return builder.apply("and", i64, iterations, builder.constant(-lanes, i64))


def _halve(builder: KernelBuilder, kind: str, total: Register) -> Register:
    """Combines the lower and the upper half of the lanes."""
    half = total.lanes // 2
    low, high = (builder.shuffle(total, range(first, first + half)) for first in (0, half))
    return combine(builder, kind, (low,), (high,))[0]


def _run_remainder(
    builder: KernelBuilder,
    iterations: Register,
    lanes: int,
    before: Totals,
    iteration: Callable[[int, Register, Totals], Totals],
) -> Totals:
    """The totals after one more iteration of `lanes` terms, if the remainder by `2 * lanes` has as many."""
    fills, done = builder.label("fills"), builder.label("filled")
    rest = builder.apply("and", i64, iterations, builder.constant(lanes, i64))
    skipped = builder.block
    builder.branch(builder.apply("icmp ne", bool_, rest, builder.constant(0, i64)), fills, done)
    builder.begin(fills)
    after = iteration(lanes, _round_down(builder, iterations, 2 * lanes), before)
    last = builder.block
    builder.jump(done)
    builder.begin(done)
    pairs = zip(after, before, strict=True)
    return [builder.phi(a.type, a.lanes, [(a, last), (b, skipped)]) for a, b in pairs]


def _loop(
    builder: KernelBuilder,
    first: Register,
    stop: Register,
    step: int,
    start: Totals,
    iteration: Callable[[int, Register, Totals], Totals],
) -> Totals:
    """The totals after the iterations from `first` to `stop`. LLVM must not unroll the loop, which has vectors."""
    loop = OpenLoop(builder, [first, *start])
    index, *totals = loop.carried
    builder.branch(builder.apply("icmp slt", bool_, index, stop), loop.body, loop.done)
    builder.begin(loop.body)
    after = iteration(step, index, totals)
    following = builder.apply("add nuw nsw", i64, index, builder.constant(step, i64))
    loop.close([following, *after], flags=builder.metadata.keep_rolled())
    return totals
