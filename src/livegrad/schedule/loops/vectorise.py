"""Vectorisation: across rows (outer loop) or along rows (inner loop), the number of lanes, and unrolling.

Rows shorter than a vector, such as points with three coordinates, use outer-loop vectorisation with one lane per row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from math import prod

from livegrad.ir.node import Function, Node
from livegrad.ir.types import Scalar, Tape, Tensor, Type, components, inner_types
from livegrad.ir.walk import nodes_of, reachable_functions
from livegrad.ops.control import for_loop, while_loop
from livegrad.passes.regions import LOOPS
from livegrad.schedule.kernel import Kernel, Level, Stage, StridedAccess
from livegrad.schedule.loops.cost_model import (
    CHEAP_POINT,
    DIVISIONS,
    FEW_CARRIED,
    FEWEST_LANES,
    LANE_GROUPS,
    LARGE_KERNEL,
    LONG_KERNEL,
    LONG_LOOP,
    MANY_MATH_CALLS,
    MANY_PORTS,
    MANY_ROWS,
    MATH_SHARE,
    MEDIUM_LOOP,
    MOST_LANES,
    MOST_PACKED,
    PEELED_NODES,
    SHORT_COST,
    SHORT_LOOP,
    SHORT_ROW,
    SINGLE,
    TILED_ROW,
    WIDEST_VECTOR,
    branch_cost,
    byte_size,
    kernel_cost,
    register_count,
)
from livegrad.schedule.loops.divergence import divergent_scalars, may_diverge
from livegrad.schedule.loops.interchange import has_short_last_dimension, has_transposed_reads, may_change_order
from livegrad.schedule.loops.nest import LoopNest
from livegrad.schedule.plan import KernelStep, View


def vectorise_outer_loops(nest: LoopNest) -> LoopNest:
    """Outer-loop vectorisation: runs lanes across rows if rows are short or adjacent in memory."""
    if nest.across or nest.tile is not None or not may_change_order(nest.step):
        return nest
    if not _has_short_rows(nest) and not has_transposed_reads(nest):
        return nest
    return nest.visit_as(replace(nest.step, vector_axis="domain"))


def vectorise_short_rows(nest: LoopNest) -> LoopNest:
    """Makes a short last dimension the inner dimension, so that lanes run across the dimension before."""
    step, kernel = nest.step, nest.kernel
    if not nest.across or nest.tile is not None or step.inner or not may_change_order(step) or _uses_rows(kernel):
        return nest
    if not has_short_last_dimension(nest):
        return nest
    length = nest.dimensions.domain[-1]
    first = next(axis for axis in range(len(step.domain)) if prod(step.domain[axis:]) == length)
    return nest.visit_as(_make_inner(step, first)) if first else nest


def _has_short_rows(nest: LoopNest) -> bool:
    step, dimensions = nest.step, nest.dimensions
    points = prod(step.inner)
    if points <= SHORT_ROW:
        return prod(step.domain) >= MANY_ROWS
    across = dimensions.domain[-1] if dimensions.domain else 1
    # A failed check reports the index of its element in memory, which only lanes along rows know.
    has_checks = any(may_diverge(stage.body) for stage in step.kernel.stages)
    return points <= TILED_ROW and len(dimensions.inner) == 1 and across >= MANY_ROWS and not has_checks


def _uses_rows(kernel: Kernel) -> bool:
    return any(end.kind == "row" for stage in kernel.stages for end in (*stage.sources, *stage.sinks))


def _make_inner(step: KernelStep, first: int) -> KernelStep:
    """The step with its dimensions from `first` on as inner dimensions."""
    kernel = step.kernel
    inner_kernel = replace(
        kernel,
        domain_rank=first,
        inner_rank=kernel.domain_rank - first,
        reads=_set_levels(kernel.reads, step.reads, first),
        outputs=tuple(port._replace(level="point") for port in kernel.outputs),
        stages=tuple(Stage("point", stage.body, stage.sources, stage.sinks) for stage in kernel.stages),
    )
    return replace(step, kernel=inner_kernel, domain=step.domain[:first], inner=step.domain[first:])


def _set_levels(ports: Sequence[StridedAccess], views: Sequence[View], first: int) -> tuple[StridedAccess, ...]:
    levels: list[Level] = ["point" if any(view.strides[first:]) else "row" for view in views]
    return tuple(port._replace(level=level) for port, level in zip(ports, levels, strict=True))


def unroll_short_rows(nest: LoopNest) -> LoopNest:
    """Fully unrolls a short loop over inner points."""
    points = nest.points
    if not nest.across or points is None or nest.is_split or not nest.domain_rank or nest.inner_rank != 1:
        return nest
    if nest.kernel.scans:
        return nest
    # A row without points has no loop.
    return nest.change(points, kind="unrolled") if 0 < points.extent <= SHORT_ROW else nest


def choose_lanes(nest: LoopNest) -> LoopNest:
    """Decides the number of lanes: a few registers, but no more lanes than a row has use for."""
    if nest.lane < 0:
        return nest.change(nest.vector, extent=1)
    domain, row = nest.dimensions.domain, nest.unrolled_points
    lanes = lane_count(nest)
    if domain and (_reduces_across(nest) or (len(domain) > 1 and nest.across)):
        width = FEWEST_LANES
        while width < lanes and width < domain[-1]:
            width *= 2
        lanes = min(lanes, width)
    if row:
        lanes = min(lanes, max(FEWEST_LANES, 1 << (MOST_PACKED // row).bit_length() - 1))
    return nest.change(nest.vector, extent=lanes)


def unroll_lane_loops(nest: LoopNest) -> LoopNest:
    """Unrolls short bodies over several groups of lanes with separate reductions, to keep the pipelines full."""
    stages = nest.kernel.stages
    if nest.across or nest.lanes == 1 or any(may_diverge(stage.body) for stage in stages):
        return nest
    groups = [LANE_GROUPS if s.level == "point" and branch_cost(s.body) < CHEAP_POINT else 1 for s in stages]
    return nest.replace(unrolled_lanes=tuple(groups)) if max(groups) > 1 else nest


def peel_remainders(nest: LoopNest) -> LoopNest:
    """Separates full groups of lanes from the remainder of a row, if the body is short enough to duplicate.

    The code for full groups then has no branches between loads, arithmetic and stores: loads become operands of
    instructions instead of filling registers, and a short loop has fewer instructions. Loops that write in place, with
    a row for each worker, are too long for two forms, but have as many rows as fill all groups.
    """
    stages, points = nest.kernel.stages, nest.points
    if nest.across and nest.lanes > 1 and nest.kernel.written and not LOOPS.isdisjoint(nest.ops):
        rows = nest.dimensions.domain[-1:]
        return nest.replace(whole_groups=bool(rows) and not rows[0] % nest.lanes and not nest.rows.step % nest.lanes)
    if not nest.across or nest.lanes == 1 or not nest.domain_rank or nest.kernel.written or nest.read_packs:
        return nest
    if nest.unrolled_points or (points is not None and points.tile) or nest.output_packs:
        return nest  # transposing whole rows in registers takes long code already
    if sum(len(nodes_of(stage.body)) for stage in stages) > PEELED_NODES:
        return nest
    return nest if any(may_diverge(stage.body) for stage in stages) else nest.replace(peels_remainder=True)


def interleave_lanes(nest: LoopNest) -> LoopNest:
    """Allows code generation to interleave two groups of lanes, one lagging behind the other, to hide division latency.

    `codegen/llvm/interleaving.py` decides whether it pays off.
    """
    kernel, points = nest.kernel, nest.points
    fills_two_registers = nest.lanes * SINGLE == 2 * nest.vector_bytes
    if not nest.across or nest.vector_bytes != WIDEST_VECTOR or not fills_two_registers:
        return nest
    if points is not None or nest.read_packs or nest.output_packs or kernel.indexed_buffers:
        return nest
    if len(kernel.stages) != 1 or kernel.stages[0].level != "row":
        return nest
    body = kernel.stages[0].body
    divides = any(node.op in DIVISIONS for node in nodes_of(body))
    return nest.change(nest.vector, streams=2) if divides and not may_diverge(body) else nest


def lane_count(nest: LoopNest) -> int:
    """The number of lanes: enough registers of the widest divergent scalar to hide latency, without spills.

    Measured, with one thread: a function of 316 ops with 59 calls of math functions runs at 20, 25, 34, 40 and 32
    Mpoints/s with one, two, four, eight and sixteen registers, while a single call gains nothing from eight and
    compiles longer. A function of 310 ops without calls runs at 214 and 248 with one and two registers, and spills with
    four. Their gradients of 1,000 ops run at 13, 16 and 19, and at 43 and 56; two registers compile in 0.2 s, four in
    0.5 s. At 3,010 ops, one register is as fast as two (everything spills) and compiles in less than half the time.
    With 141 reads and 96 outputs of stride three, eight registers are as fast as four (2.8 and 2.9 ms), but compile in
    5.9 s instead of 1.9. Column sums of 8192 × 1024 elements take 2.2 ms with two registers and 1.7 with eight, which
    read half a kilobyte of each row; cumulative sums down 2048 × 2048 take 10.9 and 0.9, but along rows, where lanes
    are a row apart, 1.4 and 4.2.
    """
    vector_bytes = nest.vector_bytes
    nodes = [node for function in _functions(nest.kernel) for node in nodes_of(function)]
    widest = _widest_divergent(nest, nodes)
    default = _lanes_in(_registers(nest, nodes) * vector_bytes, widest)
    loops = [node for node in nodes if node.op in (for_loop, while_loop)] if len(nodes) <= LONG_LOOP else []
    if not loops:
        return default
    in_loops = _lanes_in(min([_loop_registers(node, vector_bytes) for node in loops]) * vector_bytes, widest)
    points = (*nest.dimensions.domain, *nest.dimensions.inner)[nest.lane]
    return in_loops if default < in_loops <= points else default  # short arrays share one code


def _lanes_in(register_bytes: int, widest: int) -> int:
    return max(FEWEST_LANES, min(MOST_LANES, register_bytes // widest))


def _widest_divergent(nest: LoopNest, nodes: Sequence[Node]) -> int:
    """The bytes of the widest divergent scalar."""
    kernel = nest.kernel
    stored = max([byte_size(access.element) for access in kernel.outputs], default=0)  # stored values diverge
    types = {node.type for node in nodes}
    present = [byte_size(access.element) for access in kernel.reads] + [_widest(type) for type in types]
    if stored and max(present, default=0) <= stored:
        return stored
    return max(map(byte_size, divergent_scalars(nest)), default=4)


@lru_cache(maxsize=4096)
def _widest(type: Type) -> int:
    """The size in bytes of the widest scalar in a type; 0 if there is none."""
    return max([byte_size(inner) for inner in inner_types(type) if isinstance(inner, Scalar)], default=0)


def _reduces_across(nest: LoopNest) -> bool:
    """Whether each lane has a separate reduction or scan, in a register or (by index) in memory."""
    kernel = nest.kernel
    return nest.across and (kernel.reduces or kernel.scans or bool(kernel.written))


def _registers(nest: LoopNest, nodes: Sequence[Node]) -> int:
    """The number of registers for each value in code without loops."""
    kernel = nest.kernel
    math = {op for op in nest.ops if op.llvm is not None and op.llvm.get("float", "").startswith("math:")}
    calls = [node.op.cost for node in nodes if node.op in math]
    if calls and sum(calls) > MATH_SHARE * sum([node.op.cost for node in nodes]):
        has_few_accesses = len(kernel.reads) + len(kernel.outputs) <= MANY_PORTS
        return 2 if len(nodes) > LONG_KERNEL else 8 if len(calls) > MANY_MATH_CALLS and has_few_accesses else 4
    if kernel.written and nest.across and LOOPS.isdisjoint(nest.ops):
        return 4  # an index is read once for all lanes of a row
    reduces = _reduces_across(nest)
    is_contiguous = all(strides[nest.lane] in (0, 1) for strides in nest.dimensions.reads)
    if reduces and is_contiguous and kernel_cost([stage.body for stage in kernel.stages]) < SHORT_COST:
        return 8
    return 1 if len(nodes) > LARGE_KERNEL else 2


def _loop_registers(node: Node, vector_bytes: int) -> int:
    """Registers for each scalar that a loop carries. Iterations are serial, so independent registers hide latency.

    Measured with 16 registers of 32 bytes, 65,536 floats and 1,000 iterations, in ms with two, four and eight: `y * 0.9
    + 0.1` 5.3, 2.7 and 1.4; a Newton step 23, 13 and 10; a polynomial of degree five 29, 15 and 10; a rotation of two
    scalars 6.6, 3.5 and 5.1, because eight spill; a Lorenz system of three 16, 14 and 16. With 80 operations on one
    scalar, four are as fast as eight (19, 14 and 15); with 160, the times are 37, 34 and 30. The same holds if lanes
    leave a loop separately and wait for the last one (5.1, 3.2 and 3.0 with random ends), but not if they also read
    memory by index: 4.7, 6.2 and 7.0. With an invariant beside a carried scalar, eight fill all registers, and it is a
    matter of luck which of the two is spilled: 1.4 or 4.8 ms, and 2.7 with four.
    """
    body: Function = node.attribute("body")
    nodes = [inner for function in reachable_functions([body]) for inner in nodes_of(function)]
    if any(isinstance(inner.type, Tensor | Tape) for inner in nodes):
        return 1
    carried = [scalar for type in body.result_types for scalar in _register_scalars(type)]
    count = sum(scalar.kind == "float" for scalar in carried) or len(carried)
    invariants = len(node.operands) - 1 - node.attribute("carried") if node.op is for_loop else 0
    has_room = 16 * (count + invariants) <= register_count(vector_bytes)  # eight for each, and as many for temporaries
    if count == 1 and has_room and len(nodes) <= SHORT_LOOP and node.op is for_loop:
        return 8
    limit = LONG_LOOP if count == 1 else MEDIUM_LOOP
    return 4 if count <= FEW_CARRIED and len(nodes) <= limit else 1


def _register_scalars(type: Type) -> list[Scalar]:
    """The scalars that a value takes in registers."""
    return (
        [type]
        if isinstance(type, Scalar)
        else [scalar for part in components(type) for scalar in _register_scalars(part)]
    )


def _functions(kernel: Kernel) -> list[Function]:
    return [function for stage in kernel.stages for function in reachable_functions([stage.body])]
