"""Instruction interleaving: emits one schedule for both halves of the lanes, the second half some operations later.

In: a kernel for which the loop pass `interleave_lanes` allows it. Out: whether it pays, and the code. Called by
`kernel_module.py` and `stages.py`. The schedule is that of `list_scheduling.py`.

Ice Lake's divider takes 12 cycles for the square roots of one register, and instructions that wait for it fill the
processor's queues. With interleaving, one half computes while the other waits. Signed distances of 160 to 410
operations, of which one in 24 is a root, run 7 to 11 % faster (4 % because of the schedule). Four registers in step are
4 % slower than two. Roots by Newton's iteration, to equal bits, are slower: by 20 to 80 % for all roots, by 5 to 30 %
for every fourth. `./bench passes` measures other programs with and without it.
"""

from __future__ import annotations

from collections.abc import Sequence

from livegrad.codegen.llvm.function_body import emit_one
from livegrad.codegen.llvm.fused_multiply_add import fused_products
from livegrad.codegen.llvm.kernel_builder import KernelBuilder
from livegrad.codegen.llvm.list_scheduling import schedule_for_latency, schedule_for_pressure
from livegrad.codegen.llvm.registers import NodeValue, Register
from livegrad.ir.node import Function, Node
from livegrad.ir.types import bool_, f32
from livegrad.ir.walk import nodes_of
from livegrad.schedule.kernel import Kernel
from livegrad.schedule.loops.cost_model import (
    DIVISION_IN,
    DIVISIONS,
    FEWEST_DIVISIONS,
    INTERLEAVE_DELAY,
    INTERLEAVE_LIVE,
    LONGEST_INTERLEAVED,
    MOST_INTERLEAVED_LIVE,
    SHORTEST_INTERLEAVED,
)
from livegrad.schedule.loops.divergence import may_diverge


def suits_interleaving(kernel: Kernel) -> bool:
    """Whether a kernel of one stage is straight-line code that divisions hold up, with few live values."""
    function = kernel.stages[0].body
    order = list(nodes_of(function))
    operations = [node for node in order if node.operands]
    if not SHORTEST_INTERLEAVED <= len(operations) <= LONGEST_INTERLEAVED or may_diverge(function):
        return False
    if any(node.type not in (f32, bool_) or _calls_math(node) for node in order):
        return False
    divisions = sum(node.op in DIVISIONS for node in operations)
    if not FEWEST_DIVISIONS <= divisions <= len(operations) // DIVISION_IN:
        return False
    return _most_live(schedule_for_pressure(order)) <= MOST_INTERLEAVED_LIVE


def _calls_math(node: Node) -> bool:
    return (node.op.llvm or {}).get("float", "").startswith("math:")


def _most_live(order: Sequence[Node]) -> int:
    """The largest number of computed values that are live at once."""
    last = {operand: position for position, node in enumerate(order) for operand in node.operands}
    ends = [0] * (len(order) + 1)
    alive = most = 0
    for position, node in enumerate(order):
        if node.operands:
            alive += 1
            ends[last.get(node, len(order))] += 1
        most = max(most, alive)
        alive -= ends[position]
    return most


def emit_interleaved(builder: KernelBuilder, function: Function, arguments: Sequence[NodeValue]) -> list[NodeValue]:
    """The values of the function's results."""
    order = list(nodes_of(function))
    fused, _ = fused_products(order, function.results)
    halves = [builder.halves(argument) if isinstance(argument, Register) else (argument,) * 2 for argument in arguments]
    streams: list[dict[Node, NodeValue]] = [
        dict(zip(function.parameters, half, strict=True)) for half in zip(*halves, strict=True)
    ]
    skipped = {*function.parameters, *fused.values()}
    nodes = [node for node in schedule_for_latency(order, INTERLEAVE_LIVE) if node not in skipped]
    builder.lanes //= 2
    for step in range(len(nodes) + INTERLEAVE_DELAY):
        for position, values in zip((step, step - INTERLEAVE_DELAY), streams, strict=True):
            if 0 <= position < len(nodes):
                values[nodes[position]] = emit_one(builder, nodes[position], fused, values)
    builder.lanes *= 2
    low, high = ([values[result] for result in function.results] for values in streams)
    return [_concatenate(builder, *pair) for pair in zip(low, high, strict=True)]


def _concatenate(builder: KernelBuilder, low: NodeValue, high: NodeValue) -> NodeValue:
    assert isinstance(low, Register)
    assert isinstance(high, Register)
    return builder.concatenate(low, high)
