"""Instruction interleaving: the second half of the lanes runs some operations behind the first half.

In: a loop nest with lanes of two registers. Out: whether to interleave, and the code. Called by `kernel.py` and
`stages.py`.

Ice Lake's divider takes 12 cycles for the square roots of one register, and instructions that wait for it fill the
processor's queues. With interleaving, one half computes while the other waits: signed distances of 160 to 410
operations, one of 24 a root, run 7 to 11 % faster (4 % of that by the order of operations), whereas four registers in
step are 4 % slower than two. Roots by Newton's iteration, to equal bits, cost the other units more than they save: 20
to 80 % slower for all roots, 5 to 30 % for every fourth.
"""

from __future__ import annotations

from collections.abc import Sequence

from livegrad.codegen.llvm.builder import Assembler
from livegrad.codegen.llvm.function_body import emit_one
from livegrad.codegen.llvm.fused_multiply_add import fused_products
from livegrad.codegen.llvm.list_scheduling import DIVISIONS, in_fewer_registers, with_less_waiting
from livegrad.codegen.llvm.registers import Register, Value
from livegrad.ir.node import Function, Node
from livegrad.ir.types import bool_, f32
from livegrad.ir.walk import nodes_of
from livegrad.schedule.loops.cost_model import (
    DIVISION_IN,
    FEWEST_DIVISIONS,
    INTERLEAVE_ALIVE,
    INTERLEAVE_DISTANCE,
    LONGEST_INTERLEAVED,
    MOST_INTERLEAVED_ALIVE,
    SHORTEST_INTERLEAVED,
    WIDEST_VECTOR,
)
from livegrad.schedule.loops.divergence import has_divergence
from livegrad.schedule.loops.nest import LoopNest


def suits_interleaving(nest: LoopNest) -> bool:
    """Whether a kernel is faster with twice its lanes, in two interleaved halves."""
    in_two_registers = nest.lanes * 4 == 2 * nest.vector_bytes
    if not nest.across or nest.vector_bytes != WIDEST_VECTOR or not in_two_registers:
        return False
    kernel, points = nest.kernel, nest.points
    special = nest.unrolled_points or (points is not None and points.tile) or nest.read_packs or nest.output_packs
    special = special or kernel.wholes
    if special or len(kernel.stages) != 1 or kernel.stages[0].level != "row":
        return False
    return _is_straight(kernel.stages[0].body)


def _is_straight(function: Function) -> bool:
    order = list(nodes_of(function))
    operations = [node for node in order if node.operands]
    if not SHORTEST_INTERLEAVED <= len(operations) <= LONGEST_INTERLEAVED or has_divergence(function):
        return False
    if any(node.type not in (f32, bool_) or _calls_math(node) for node in order):
        return False
    divisions = sum(node.op in DIVISIONS for node in operations)
    if not FEWEST_DIVISIONS <= divisions <= len(operations) // DIVISION_IN:
        return False
    return _most_alive(in_fewer_registers(order)) <= MOST_INTERLEAVED_ALIVE


def _calls_math(node: Node) -> bool:
    return (node.op.llvm or {}).get("float", "").startswith("math:")


def _most_alive(order: Sequence[Node]) -> int:
    """How many computed values are needed later, at most."""
    last = {operand: place for place, node in enumerate(order) for operand in node.operands}
    ends = [0] * (len(order) + 1)
    alive = most = 0
    for place, node in enumerate(order):
        if node.operands:
            alive += 1
            ends[last.get(node, len(order))] += 1
        most = max(most, alive)
        alive -= ends[place]
    return most


def emit_interleaved(asm: Assembler, function: Function, arguments: Sequence[Value]) -> list[Value]:
    """The values of the function's results."""
    order = list(nodes_of(function))
    fused, _ = fused_products(order, function.results)
    halves = [asm.halves(argument) if isinstance(argument, Register) else (argument,) * 2 for argument in arguments]
    streams: list[dict[Node, Value]] = [
        dict(zip(function.parameters, half, strict=True)) for half in zip(*halves, strict=True)
    ]
    unwritten = {*function.parameters, *fused.values()}
    nodes = [node for node in with_less_waiting(order, INTERLEAVE_ALIVE) if node not in unwritten]
    asm.lanes //= 2
    for step in range(len(nodes) + INTERLEAVE_DISTANCE):
        for place, values in zip((step, step - INTERLEAVE_DISTANCE), streams, strict=True):
            if 0 <= place < len(nodes):
                values[nodes[place]] = emit_one(asm, nodes[place], fused, values)
    asm.lanes *= 2
    low, high = ([values[result] for result in function.results] for values in streams)
    return [_joined(asm, *pair) for pair in zip(low, high, strict=True)]


def _joined(asm: Assembler, low: Value, high: Value) -> Value:
    assert isinstance(low, Register)
    assert isinstance(high, Register)
    return asm.joined(low, high)
