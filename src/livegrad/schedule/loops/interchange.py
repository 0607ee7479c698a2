"""Loop interchange: makes transposed accesses contiguous.

If a kernel would gather along the lanes while another dimension is contiguous (a transposed matrix, permuted
dimensions), that dimension becomes an inner dimension, which is swept in tiles.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from livegrad.schedule.kernel import Source, Stage
from livegrad.schedule.loops.cost_model import FEW_LANES, LONGEST_FOLD, LONGEST_KEPT, MANY_ROWS, SHORT_ROW, SWEPT_CHUNK
from livegrad.schedule.loops.dimensions import NEAR, Dimensions
from livegrad.schedule.loops.divergence import may_diverge
from livegrad.schedule.loops.nest import LoopNest
from livegrad.schedule.plan import KernelStep, View


def interchange_transposed(nest: LoopNest) -> LoopNest:
    """Makes a dimension of the domain the inner dimension, if that avoids gathers."""
    step, kernel = nest.step, nest.kernel
    if not nest.across or nest.tile is not None or step.inner or not may_change_order(step):
        return nest
    # A failed check is reported by the index of its element in the order of the domain.
    if any(may_diverge(stage.body) for stage in kernel.stages):
        return nest
    if any(end.kind == "row" for stage in kernel.stages for end in (*stage.sources, *stage.sinks)):
        return nest
    dimensions = nest.dimensions
    swept = swept_dimension(dimensions)
    lane = len(dimensions.domain) - 1
    # Short rows with a small stride between lanes are better vectorised without interchange.
    if swept is None or (has_short_last_dimension(nest) and swept == lane - 1):
        return nest
    if dimensions.domain[lane] < FEW_LANES < dimensions.domain[swept]:
        lane, swept = swept, lane
    order = [*(d for d in range(len(dimensions.domain)) if d not in (lane, swept)), lane]
    return nest.visit_as(_move_inside(step, dimensions, order, swept))


def may_change_order(step: KernelStep) -> bool:
    """Whether points may be visited in another order: not with chunks, writes by index or scans."""
    return not step.chunk and not step.kernel.written and not step.kernel.scans


def has_short_last_dimension(nest: LoopNest) -> bool:
    """Whether there are many rows shorter than a vector."""
    domain = nest.dimensions.domain
    return len(domain) > 1 and domain[-1] <= SHORT_ROW and prod(domain[:-1]) >= MANY_ROWS


def has_transposed_reads(nest: LoopNest) -> bool:
    """Whether rows that are reduced are adjacent in memory, so that lanes across rows need no gathers.

    The row sums of x * y with one factor transposed, 2048 × 2048 elements, take 20 ms with lanes along rows and 2.4
    across.
    """
    kernel, dimensions = nest.kernel, nest.dimensions
    if len(dimensions.inner) != 1 or not dimensions.domain or dimensions.domain[-1] < MANY_ROWS:
        return False
    has_scratch = any(access.scratch for access in kernel.outputs)
    if dimensions.inner[0] > (LONGEST_KEPT if has_scratch else LONGEST_FOLD):
        return False
    lane = len(dimensions.domain) - 1
    reads = [strides for port, strides in zip(kernel.reads, dimensions.reads, strict=True) if not port.scratch]
    strided = [strides for strides in reads if strides[-1] not in (0, 1, *NEAR)]
    fits = all(strides[lane] in (0, 1, *NEAR) or strides[-1] in (0, 1, *NEAR) for strides in reads)
    return bool(strided) and fits and not any(may_diverge(stage.body) for stage in kernel.stages)


def swept_dimension(dimensions: Dimensions) -> int | None:
    """The dimension along which most accesses that are strided along the lanes are contiguous."""
    accesses, rank = (*dimensions.reads, *dimensions.outputs), len(dimensions.domain)
    strided = [strides for strides in accesses if rank > 1 and strides[-1] not in (0, 1, *NEAR)]
    votes = [sum(strides[dimension] in (1, *NEAR) for strides in strided) for dimension in range(rank - 1)]
    return max(range(rank - 1), key=votes.__getitem__) if any(votes) else None


def _move_inside(step: KernelStep, dimensions: Dimensions, order: list[int], swept: int) -> KernelStep:
    """The step with dimension `swept` as the inner dimension, in chunks, and the others in this order."""
    kernel, extent = step.kernel, dimensions.domain[swept]
    depth = {dimension: index for index, dimension in enumerate([*order, swept], start=1)}  # after the chunk dimension

    def reorder_views(views: Sequence[View], strides: Sequence[Sequence[int]]) -> tuple[View, ...]:
        return tuple(
            View(view.buffer, view.offset, (0, *(view_strides[d] for d in order), view_strides[swept]))
            for view, view_strides in zip(views, strides, strict=True)
        )

    reads, outputs = reorder_views(step.reads, dimensions.reads), reorder_views(step.outputs, dimensions.outputs)
    interchanged = replace(
        kernel,
        domain_rank=1 + len(order),
        inner_rank=1,
        reads=tuple(
            port._replace(level="point" if view.strides[-1] else "row")
            for port, view in zip(kernel.reads, reads, strict=True)
        ),
        outputs=tuple(port._replace(level="point") for port in kernel.outputs),
        stages=tuple(_make_point_stage(stage, depth) for stage in kernel.stages),
    )
    domain = (-(-extent // SWEPT_CHUNK), *(dimensions.domain[d] for d in order))
    return replace(
        step, kernel=interchanged, domain=domain, inner=(extent,), reads=reads, outputs=outputs, chunk=SWEPT_CHUNK
    )


def _make_point_stage(stage: Stage, depth: dict[int, int]) -> Stage:
    sources = tuple(Source("index", depth[s.number]) if s.kind == "index" else s for s in stage.sources)
    return Stage("point", stage.body, sources, stage.sinks)
