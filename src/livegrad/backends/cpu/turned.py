"""Kernels over tensors that lie the other way round (a transposed matrix, permuted dimensions).

A plan's kernel steps come in; those that would gather along the lanes, and find neighbours along another dimension, go
out with that dimension as an inner one, to be swept in tiles (`emit/tiles.py`). `kernels.py` calls it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from livegrad.backends.cpu.emit.body import has_divergence
from livegrad.backends.cpu.emit.frame import NEAR
from livegrad.backends.dimensions import Dimensions, loop_dimensions
from livegrad.schedule.kernel import Source, Stage
from livegrad.schedule.plan import KernelStep, View

# Points of the swept dimension in one item of work. 2048 × 2048 single numbers are turned in 4.1 ms with 16, in 3.4
# with 64 and in 2.7 with 1024: what is read should go on in memory. Gathered, they took 17 ms.
_CHUNK = 1024
_FEW_LANES = 16  # a dimension so short leaves lanes idle
_MANY_ROWS = 64
_LONGEST_KEPT = 512  # numbers of a row that each lane may keep in a thread's own memory
_LONGEST_FOLD = 4096  # numbers that are added one after the other: more would lose digits


def turn_step(step: KernelStep) -> KernelStep:
    """The step with a dimension of its domain as an inner one, where that spares gathering."""
    kernel = step.kernel
    # A failed check is reported by the number of its element, in the order of the domain.
    if kernel.along or kernel.split or step.inner or any(has_divergence(stage.body) for stage in kernel.stages):
        return step
    if any(end.kind == "row" for stage in kernel.stages for end in (*stage.sources, *stage.sinks)):
        return step
    dimensions = loop_dimensions(step)
    swept = swept_dimension(dimensions)
    if swept is None:
        return step
    lane = len(dimensions.domain) - 1
    if dimensions.domain[lane] < _FEW_LANES < dimensions.domain[swept]:
        lane, swept = swept, lane
    order = [*(d for d in range(len(dimensions.domain)) if d not in (lane, swept)), lane]
    return _with_inner(step, dimensions, order, swept)


def has_turned_reads(step: KernelStep) -> bool:
    """Whether some of the rows that are folded are consecutive from one to the next: lanes across need not gather.

    The sums of the rows of x * y, one of them transposed, 2048 × 2048 numbers, take 20 ms along and 2.4 across.
    """
    kernel, dimensions = step.kernel, loop_dimensions(step)
    if len(dimensions.inner) != 1 or not dimensions.domain or dimensions.domain[-1] < _MANY_ROWS:
        return False
    keeps = any(port.scratch for port in kernel.outputs)
    if dimensions.inner[0] > (_LONGEST_KEPT if keeps else _LONGEST_FOLD):
        return False
    lane = len(dimensions.domain) - 1
    reads = [own for port, own in zip(kernel.reads, dimensions.reads, strict=True) if not port.scratch]
    far = [own for own in reads if own[-1] not in (0, 1, *NEAR)]
    fits = all(own[lane] in (0, 1, *NEAR) or own[-1] in (0, 1, *NEAR) for own in reads)
    return bool(far) and fits and not any(has_divergence(stage.body) for stage in kernel.stages)


def swept_dimension(dimensions: Dimensions) -> int | None:
    """Along which dimension most of those accesses are consecutive that are far from it along the lanes."""
    accesses, rank = (*dimensions.reads, *dimensions.outputs), len(dimensions.domain)
    far = [own for own in accesses if rank > 1 and own[-1] not in (0, 1, *NEAR)]
    votes = [sum(own[dimension] in (1, *NEAR) for own in far) for dimension in range(rank - 1)]
    return max(range(rank - 1), key=votes.__getitem__) if any(votes) else None


def _with_inner(step: KernelStep, dimensions: Dimensions, order: list[int], swept: int) -> KernelStep:
    """The step over chunks of one dimension, the others in this order, with points of that one inside."""
    kernel, extent = step.kernel, dimensions.domain[swept]
    place = {dimension: number for number, dimension in enumerate([*order, swept], start=1)}  # behind the chunks

    def seen(views: Sequence[View], strides: Sequence[Sequence[int]]) -> tuple[View, ...]:
        return tuple(
            View(view.buffer, view.offset, (0, *(own[d] for d in order), own[swept]))
            for view, own in zip(views, strides, strict=True)
        )

    reads, outputs = seen(step.reads, dimensions.reads), seen(step.outputs, dimensions.outputs)
    made = replace(
        kernel,
        domain_rank=1 + len(order),
        inner_rank=1,
        reads=tuple(
            port._replace(level="point" if view.strides[-1] else "row")
            for port, view in zip(kernel.reads, reads, strict=True)
        ),
        outputs=tuple(port._replace(level="point") for port in kernel.outputs),
        stages=tuple(_at_points(stage, place) for stage in kernel.stages),
        split=True,
    )
    domain = (-(-extent // _CHUNK), *(dimensions.domain[d] for d in order))
    return replace(step, kernel=made, domain=domain, inner=(extent,), reads=reads, outputs=outputs, chunk=_CHUNK)


def _at_points(stage: Stage, place: dict[int, int]) -> Stage:
    sources = tuple(Source("index", place[s.number]) if s.kind == "index" else s for s in stage.sources)
    return Stage("point", stage.body, sources, stage.sinks)
