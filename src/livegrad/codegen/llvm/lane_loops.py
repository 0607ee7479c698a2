"""Reductions of scalar kernels in lanes: each lane combines the terms of every so many iterations.

`masked_control.py` calls this for loops with the attribute `lanes`. Lanes are combined by halving, and the terms of the
iterations that do not fill all lanes come last, one after the other: the same order on every machine and in both tiers.
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

_KINDS = {add: "sum", sub: "sum", mul: "prod", maximum: "max", minimum: "min", bit_or: "any", bit_and: "all"}


def reduction_in_lanes(builder: KernelBuilder, node: Node) -> str | None:
    """The kind of a reduction that runs in lanes; None for other loops, and in kernels that have lanes of their own."""
    if builder.lanes > 1 or dict(node.attributes).get("lanes", 1) == 1:
        return None
    return _kind_of(node.attribute("body"))


@lru_cache(maxsize=4096)
def _kind_of(body: Function) -> str | None:
    """How a body combines what it carries with a term; None if it does anything else with it, or has loops inside."""
    result, total = body.results[0], body.parameters[1]
    if not ops_below(body).isdisjoint((for_loop, while_loop, call, tape_get)):
        return None
    uses = sum(node.operands.count(total) for node in nodes_of(body))
    ours = result.operands[0] is total if result.op is sub else total in result.operands
    return _KINDS.get(result.op) if uses == 1 and ours else None


def emit_lane_loop(
    builder: KernelBuilder, node: Node, kind: str, operands: Sequence[Register | NodeValue], emit: EmitFunction
) -> Register:
    """The result of a reduction."""
    iterations, start, *captures = operands
    assert isinstance(iterations, Register)
    assert isinstance(start, Register)
    body, lanes = node.attribute("body"), node.attribute("lanes")
    if not iterations.literal:
        iterations = builder.intrinsic("smax", i64, iterations, builder.constant(0, i64))
    rest = builder.apply("and", i64, iterations, builder.constant(lanes - 1, i64))
    whole = builder.apply("sub nsw", i64, iterations, rest)

    def in_lanes(index: Register, total: Register) -> Register:
        with builder.in_lanes(lanes):
            places = builder.apply("add", i64, builder.widen(index, lanes), lane_constants(range(lanes), i64))
            (after,) = emit(builder, body, [replace(places, first=index), total, *captures])
        assert isinstance(after, Register)
        return builder.widen(after, lanes)

    def alone(index: Register, total: Register) -> Register:
        (after,) = emit(builder, body, [index, total, *captures])
        assert isinstance(after, Register)
        return after

    (identity,) = initial(builder, kind, start.type)
    wide = _loop(builder, builder.constant(0, i64), whole, lanes, builder.widen(identity, lanes), in_lanes)
    (total,) = combine(builder, kind, (start,), across_lanes(builder, kind, (wide,)))
    return _loop(builder, whole, iterations, 1, total, alone)


def _loop(
    builder: KernelBuilder,
    first: Register,
    stop: Register,
    step: int,
    start: Register,
    iteration: Callable[[Register, Register], Register],
) -> Register:
    """The total after the iterations from the first one on. LLVM leaves it rolled: it is one of vectors already."""
    loop = OpenLoop(builder, [first, start])
    index, total = loop.carried
    builder.branch(builder.apply("icmp slt", bool_, index, stop), loop.body, loop.done)
    builder.begin(loop.body)
    after = iteration(index, total)
    following = builder.apply("add nuw nsw", i64, index, builder.constant(step, i64))
    loop.close([following, after], flags=builder.metadata.keep_rolled())
    return total
