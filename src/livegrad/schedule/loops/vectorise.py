"""Vectorisation: whether lanes run across rows (outer loop) or along them (inner loop), how many, and what is unrolled.

Rows that are shorter than a vector, such as points of three coordinates, use outer-loop vectorisation: one lane per
row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from livegrad.ir.node import Function, Node
from livegrad.ir.types import Scalar, Tape, Tensor, Type, components, inner_types
from livegrad.ir.walk import nodes_of, reachable_functions
from livegrad.ops.control import for_loop, while_loop
from livegrad.schedule.kernel import Kernel, Level, Port, Stage
from livegrad.schedule.loops.cost_model import (
    DIVISIONS,
    FEW_CARRIED,
    LARGE_KERNEL,
    LONG_KERNEL,
    LONG_LOOP,
    MANY_MATH_CALLS,
    MANY_PORTS,
    MANY_REGISTERS,
    MANY_ROWS,
    MEDIUM_LOOP,
    MOST_LANES,
    MOST_PACKED,
    SHORT_COST,
    SHORT_LOOP,
    SHORT_ROW,
    TILED_ROW,
    byte_size,
    kernel_cost,
)
from livegrad.schedule.loops.cpu_nest import CpuNest
from livegrad.schedule.loops.divergence import divergent_scalars, may_diverge
from livegrad.schedule.loops.interchange import has_short_last_dimension, has_transposed_reads, may_change_order
from livegrad.schedule.plan import KernelStep, View


def vectorise_outer_loops(nest: CpuNest) -> CpuNest:
    """Turns lanes that run along rows across them: where rows are short, or lie one beside the other."""
    kernel = nest.kernel
    if not kernel.along or nest.tile is not None or not may_change_order(kernel):
        return nest
    if not _has_short_rows(nest) and not has_transposed_reads(nest):
        return nest
    return nest.replace(step=replace(nest.step, kernel=replace(kernel, along=False)))


def vectorise_short_rows(nest: CpuNest) -> CpuNest:
    """Makes a short last dimension the inner one: lanes run across the dimension before."""
    step, kernel = nest.step, nest.kernel
    if kernel.along or nest.tile is not None or step.inner or not may_change_order(kernel) or _uses_rows(kernel):
        return nest
    if not has_short_last_dimension(nest):
        return nest
    length = nest.dimensions.domain[-1]
    first = next(axis for axis in range(len(step.domain)) if prod(step.domain[axis:]) == length)
    return nest.replace(step=_with_inner(step, first)) if first else nest


def _has_short_rows(nest: CpuNest) -> bool:
    step, dimensions = nest.step, nest.dimensions
    points = prod(step.inner)
    if points <= SHORT_ROW:
        return prod(step.domain) >= MANY_ROWS
    across = dimensions.domain[-1] if dimensions.domain else 1
    # A failed check names an element by its number in memory; lanes that go along rows know it.
    checked = any(may_diverge(stage.body) for stage in step.kernel.stages)
    return points <= TILED_ROW and len(dimensions.inner) == 1 and across >= MANY_ROWS and not checked


def _uses_rows(kernel: Kernel) -> bool:
    return any(end.kind == "row" for stage in kernel.stages for end in (*stage.sources, *stage.sinks))


def _with_inner(step: KernelStep, first: int) -> KernelStep:
    """The step with its dimensions from `first` on as inner ones."""
    kernel = step.kernel
    made = replace(
        kernel,
        domain_rank=first,
        inner_rank=kernel.domain_rank - first,
        reads=_leveled(kernel.reads, step.reads, first),
        outputs=tuple(port._replace(level="point") for port in kernel.outputs),
        stages=tuple(Stage("point", stage.body, stage.sources, stage.sinks) for stage in kernel.stages),
    )
    return replace(step, kernel=made, domain=step.domain[:first], inner=step.domain[first:])


def _leveled(ports: Sequence[Port], views: Sequence[View], first: int) -> tuple[Port, ...]:
    levels: list[Level] = ["point" if any(view.strides[first:]) else "row" for view in views]
    return tuple(port._replace(level=level) for port, level in zip(ports, levels, strict=True))


def unroll_short_rows(nest: CpuNest) -> CpuNest:
    """Writes out inner points that are so few that code names each of them."""
    kernel, dimensions = nest.kernel, nest.dimensions
    scans = any(stage.scan is not None for stage in kernel.stages)
    if kernel.along or kernel.split or scans or not dimensions.domain or len(dimensions.inner) != 1:
        return nest
    (points,) = dimensions.inner
    return nest.replace(unrolled=points) if points <= SHORT_ROW else nest


def choose_lanes(nest: CpuNest) -> CpuNest:
    """Decides how many points run in lanes: some registers' worth, and no more than would idle in every row."""
    if nest.lane < 0:
        return nest.replace(lanes=1)
    kernel, domain, row = nest.kernel, nest.dimensions.domain, nest.unrolled
    points = (*domain, *nest.dimensions.inner)[nest.lane]
    lanes = lane_count(kernel, nest.dimensions.reads, nest.lane, nest.vector_bytes, points)
    if domain and (_folds_across(kernel) or (len(domain) > 1 and not kernel.along)):
        lanes = min(lanes, max(4, 1 << (domain[-1] - 1).bit_length()))
    if row:
        lanes = min(lanes, max(4, 1 << (MOST_PACKED // row).bit_length() - 1))
    return nest.replace(lanes=lanes)


def interleave_lanes(nest: CpuNest) -> CpuNest:
    """Lets two halves of twice the lanes run one behind the other, if code generation finds that divisions hold up the
    processor (`codegen/llvm/interleaving.py`)."""
    kernel = nest.kernel
    in_two_registers = nest.lanes * 4 == 2 * nest.vector_bytes
    if kernel.along or nest.vector_bytes != MANY_REGISTERS or not in_two_registers:
        return nest
    special = nest.unrolled or nest.tiled or nest.read_packs or nest.output_packs or kernel.wholes
    if special or len(kernel.stages) != 1 or kernel.stages[0].level != "row":
        return nest
    ops = {node.op for node in nodes_of(kernel.stages[0].body)}
    divides = not ops.isdisjoint(DIVISIONS) or any(op.expand is not None for op in ops)
    return nest.replace(interleaved=True) if divides else nest


def lane_count(kernel: Kernel, reads: Sequence[Sequence[int]], lane: int, vector_bytes: int, points: int) -> int:
    """Some registers' worth of the widest number with a value for each lane: enough work to hide latencies.

    Measured: a 316-op function with 59 calls of math functions runs at 20, 25, 34, 40 and 32 Mpoints/s (one thread)
    with one, two, four, eight and sixteen registers, while a single call gains nothing from eight and compiles longer;
    a 310-op one without at 214 and 248 with one and two, and four spill; their gradients, of 1,000 ops each, at 13, 16
    and 19 and at 43 and 56 (one thread), where two registers compile in 0.2 s and four in 0.5 s; at 3,010 ops one is
    as fast as two (everything spills) and compiles in less than half the time. With 141 reads and 96 outputs of stride
    three, eight registers run as fast as four (2.8 and 2.9 ms) and compile in 5.9 s, not 1.9. The sums of the columns
    of 8192 × 1024 numbers take 2.2 ms with two registers and 1.7 with eight, which read half a kilobyte of each row;
    running sums down 2048 × 2048 10.9 and 0.9, but along rows, where lanes are a row apart, 1.4 and 4.2.
    """
    every = [node for function in _functions(kernel) for node in nodes_of(function)]
    widest = _widest_varying(kernel, every, reads, lane)
    loops = [node for node in every if node.op in (for_loop, while_loop)] if len(every) <= LONG_LOOP else []
    in_use = min([_loop_registers(node, vector_bytes) for node in loops], default=0)
    registers = _registers(kernel, every, reads, lane), in_use
    usual, in_loops = (max(4, min(MOST_LANES, number * vector_bytes // widest)) for number in registers)
    return in_loops if usual < in_loops <= points else usual  # short arrays share the code of others that are


def _widest_varying(kernel: Kernel, every: Sequence[Node], reads: Sequence[Sequence[int]], lane: int) -> int:
    """The bytes of the widest number that has a value for each lane."""
    stored = max([byte_size(port.element) for port in kernel.outputs], default=0)  # what is stored has
    inner = [inner for type in {node.type for node in every} for inner in inner_types(type)]
    present = [port.element for port in kernel.reads] + [scalar for scalar in inner if isinstance(scalar, Scalar)]
    if stored and max(map(byte_size, present), default=0) <= stored:
        return stored
    return max(map(byte_size, divergent_scalars(kernel, reads, lane)), default=4)


def _folds_across(kernel: Kernel) -> bool:
    """Whether lanes have a fold each, in a register or (by index) in memory."""
    folds = any(target.reduce is not None for stage in kernel.stages for target in stage.sinks)
    runs = any(stage.scan is not None for stage in kernel.stages)
    return not kernel.along and (folds or runs or bool(kernel.written))


def _registers(kernel: Kernel, every: Sequence[Node], reads: Sequence[Sequence[int]], lane: int) -> int:
    calls = [node.op.cost for node in every if (node.op.llvm or {}).get("float", "").startswith("math:")]
    mostly_math = sum(calls) > 0.5 * sum(node.op.cost for node in every)
    if mostly_math:
        few_ports = len(kernel.reads) + len(kernel.outputs) <= MANY_PORTS
        return 2 if len(every) > LONG_KERNEL else 8 if len(calls) > MANY_MATH_CALLS and few_ports else 4
    if kernel.written and not kernel.along:
        return 4  # an index is read once for all lanes of a row
    folds = _folds_across(kernel)
    columns = all(own[lane] in (0, 1) for own in reads)
    if folds and columns and kernel_cost([stage.body for stage in kernel.stages]) < SHORT_COST:
        return 8
    return 1 if len(every) > LARGE_KERNEL else 2


def _loop_registers(node: Node, vector_bytes: int) -> int:
    """Registers for each number that a loop carries: an iteration waits for the one before, and others run meanwhile.

    Measured with 16 registers of 32 bytes, 65,536 single numbers and 1,000 iterations, in ms with two, four and eight:
    `y * 0.9 + 0.1` 5.3, 2.7 and 1.4; a Newton step 23, 13 and 10; a polynomial of degree five 29, 15 and 10; two
    numbers that turn about each other 6.6, 3.5 and 5.1, for eight spill; a Lorenz system of three 16, 14 and 16. Of 80
    operations on one number four are as fast as eight (19, 14 and 15), of 160 34 and 30 ms after 37. Where lanes leave
    a loop by themselves and wait for the last one, the same holds (5.1, 3.2 and 3.0 with random ends), but not if they
    read memory by index meanwhile: 4.7, 6.2 and 7.0. With a number that stays the same beside one that is carried,
    eight fill all registers, and which of the two is spilled is a matter of luck: 1.4 or 4.8 ms, and 2.7 with four.
    """
    body: Function = node.attribute("body")
    every = [inner for function in reachable_functions([body]) for inner in nodes_of(function)]
    if any(isinstance(inner.type, Tensor | Tape) for inner in every):
        return 1
    carried = [scalar for type in body.result_types for scalar in _scalars_of(type)]
    numbers = sum(scalar.kind == "float" for scalar in carried) or len(carried)
    fixed = len(node.operands) - 1 - node.attribute("carried") if node.op is for_loop else 0
    room = numbers + fixed <= (2 if vector_bytes > 32 else 1)  # AVX-512 has twice as many registers
    if numbers == 1 and room and len(every) <= SHORT_LOOP and node.op is for_loop:
        return 8
    most = LONG_LOOP if numbers == 1 else MEDIUM_LOOP
    return 4 if numbers <= FEW_CARRIED and len(every) <= most else 1


def _scalars_of(type: Type) -> list[Scalar]:
    """The numbers that a value has in registers."""
    return [type] if isinstance(type, Scalar) else [own for part in components(type) for own in _scalars_of(part)]


def _functions(kernel: Kernel) -> list[Function]:
    return [function for stage in kernel.stages for function in reachable_functions([stage.body])]
