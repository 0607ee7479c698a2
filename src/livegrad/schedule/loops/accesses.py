"""Loop passes for memory accesses: de-interleaving loads, tiles, and non-temporal stores."""

from __future__ import annotations

from collections.abc import Sequence

from livegrad.ir.walk import nodes_of
from livegrad.ops.assignment import indices_of
from livegrad.schedule.loops.cost_model import (
    LONGEST_PACK,
    MOST_TRANSPOSED,
    NON_TEMPORAL_BYTES,
    NON_TEMPORAL_COST,
    TILE,
    byte_size,
    kernel_cost,
)
from livegrad.schedule.loops.dimensions import NEAR, StrideKind, is_transposed, stride_kinds
from livegrad.schedule.loops.nest import Access, LoopNest
from livegrad.schedule.plan import ALIGNMENT, Buffer, KernelStep, View


def classify_accesses(nest: LoopNest) -> LoopNest:
    """Finds the kinds of strides, accesses that are whole short rows together, and indices without bounds checks."""
    step, dimensions, lane, row = nest.step, nest.dimensions, nest.lane, nest.unrolled_points
    return nest.replace(
        reads=tuple(map(Access, _lane_kinds(dimensions.reads, row, lane))),
        outputs=tuple(map(Access, _lane_kinds(dimensions.outputs, row, lane))),
        read_packs=_packs(step.reads, dimensions.reads, lane),
        output_packs=_packs(step.outputs, dimensions.outputs, lane),
        covered=_covered(step, (*dimensions.domain, *dimensions.inner)),
    )


def tile_transposed(nest: LoopNest) -> LoopNest:
    """Sweeps the inner dimension in tiles where accesses are contiguous along it, and transposes them in registers."""
    kernel, points = nest.kernel, nest.points
    if not nest.across or points is None or points.kind == "unrolled" or kernel.written:
        return nest
    accesses = zip((*kernel.reads, *kernel.outputs), (*nest.reads, *nest.outputs), strict=True)
    rank = nest.domain_rank
    transposed = sum(port.level == "point" and is_transposed(access.strides, rank, True) for port, access in accesses)
    # Not so many that tiles fill the stack.
    return nest.change(points, tile=TILE) if 0 < transposed <= MOST_TRANSPOSED else nest


def stream_stores(nest: LoopNest) -> LoopNest:
    """Has cheap kernels store results with non-temporal stores if they are too large for the caches.

    In a chain, the next step finds them in a cache.
    """
    non_temporal: set[int] = set()
    if nest.across and nest.tile is None:
        non_temporal = _too_large(nest.step.outputs, nest.dimensions.outputs, nest.lane, nest.lanes)
        if non_temporal and kernel_cost([stage.body for stage in nest.kernel.stages]) > NON_TEMPORAL_COST:
            non_temporal = set()
    if set(nest.non_temporal) == non_temporal:
        return nest
    outputs = [output._replace(non_temporal=number in non_temporal) for number, output in enumerate(nest.outputs)]
    return nest.replace(outputs=tuple(outputs))


def _lane_kinds(accesses: Sequence[Sequence[int]], row: int, lane: int) -> tuple[tuple[StrideKind, ...], ...]:
    """The kinds of strides: from row to row where short rows lie one behind the other, or near, between lanes."""
    kinds: list[tuple[StrideKind, ...]] = []
    for access, kind in zip(accesses, stride_kinds(accesses), strict=True):
        if row > 1 and tuple(access[-2:]) == (row, 1):
            kind = (*kind[:-2], "row", "one")
        elif 0 <= lane < len(access) and access[lane] in NEAR:
            kind = (*kind[:lane], NEAR[access[lane]], *kind[lane + 1 :])
        elif access and access[-1] in NEAR:
            kind = (*kind[:-1], NEAR[access[-1]])  # along the inner dimension
        kinds.append(kind)
    return tuple(kinds)


def _packs(views: Sequence[View], strides: Sequence[Sequence[int]], lane: int) -> tuple[tuple[int, ...], ...]:
    """The accesses that are, together, whole short rows of a buffer: as many neighbours as the stride between lanes."""
    groups: dict[tuple[Buffer, tuple[int, ...]], dict[int, int]] = {}
    for number, (view, access_strides) in enumerate(zip(views, strides, strict=True)):
        if 0 <= lane < len(access_strides) and 1 < access_strides[lane] <= LONGEST_PACK:
            groups.setdefault((view.buffer, tuple(access_strides)), {})[view.offset] = number
    packs: list[tuple[int, ...]] = []
    for (_, access_strides), access_at in groups.items():
        first = min(access_at)
        row = tuple(access_at.get(first + column, -1) for column in range(access_strides[lane]))
        if -1 not in row:
            packs.append(row)
    return tuple(packs)


def _covered(step: KernelStep, extents: tuple[int, ...]) -> tuple[tuple[int, int, int], ...]:
    """The indices that need no bounds check: loop indices of dimensions that are no longer than the tensor's axis."""
    covered: set[tuple[int, int, int]] = set()
    for stage in step.kernel.stages if step.kernel.indexed_buffers and step.kernel.uses_index else ():
        source = dict(zip(stage.body.parameters[-len(stage.sources) :], stage.sources, strict=True))
        for node in nodes_of(stage.body):
            indices = indices_of(node)
            whole = source.get(node.operands[0]) if indices else None
            if whole is None:
                continue
            shape = step.indexed_buffers[whole.number].shape
            for axis, (index, size) in enumerate(zip(indices, shape, strict=True)):
                position = source.get(index)
                if position is not None and position.kind == "index" and extents[position.number] <= size:
                    covered.add((whole.number, axis, position.number))
    return tuple(sorted(covered))


def _too_large(views: Sequence[View], strides: Sequence[Sequence[int]], lane: int, lanes: int) -> set[int]:
    """The outputs that are too large for the caches, and are written in whole cache lines."""
    outputs: set[int] = set()
    for number, (view, access_strides) in enumerate(zip(views, strides, strict=True)):
        base, size = view.buffer.base, byte_size(view.buffer.element)
        if base.lifetime != "external" or base.bytes < NON_TEMPORAL_BYTES:
            continue
        if not 0 <= lane < len(access_strides) or access_strides[lane] != 1:  # a single element has no lanes
            continue
        steps = (lanes, view.offset, *access_strides[:lane], *access_strides[lane + 1 :])
        if all(step * size % ALIGNMENT == 0 for step in steps):
            outputs.add(number)
    return outputs
