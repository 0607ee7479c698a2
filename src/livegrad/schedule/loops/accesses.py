"""Loop passes for memory accesses: de-interleaving loads, tiles transposed in registers, non-temporal stores."""

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
    """Classifies strides, finds accesses that form whole short rows, and indices that need no bounds check."""
    step, dimensions, lane, row = nest.step, nest.dimensions, nest.lane, nest.unrolled_points
    return nest.replace(
        reads=tuple(map(Access, _classify_strides(dimensions.reads, row, lane))),
        outputs=tuple(map(Access, _classify_strides(dimensions.outputs, row, lane))),
        read_packs=_find_packs(step.reads, dimensions.reads, lane),
        output_packs=_find_packs(step.outputs, dimensions.outputs, lane),
        covered=_find_covered_indices(step, (*dimensions.domain, *dimensions.inner)),
    )


def tile_transposed(nest: LoopNest) -> LoopNest:
    """Sweeps the inner dimension in tiles where accesses are contiguous along it, and transposes them in registers."""
    kernel, points = nest.kernel, nest.points
    if not nest.across or points is None or points.kind == "unrolled" or kernel.written:
        return nest
    accesses = zip((*kernel.reads, *kernel.outputs), (*nest.reads, *nest.outputs), strict=True)
    rank = nest.domain_rank
    transposed = sum(port.level == "point" and is_transposed(access.strides, rank, True) for port, access in accesses)
    # The tiles of too many accesses would fill the stack.
    return nest.change(points, tile=TILE) if 0 < transposed <= MOST_TRANSPOSED else nest


def stream_stores(nest: LoopNest) -> LoopNest:
    """Uses non-temporal stores for results of cheap kernels that exceed the caches.

    Not in a chain, where the next step reads the results from a cache.
    """
    non_temporal: set[int] = set()
    if nest.across and nest.tile is None:
        non_temporal = _find_large_outputs(nest.step.outputs, nest.dimensions.outputs, nest.lane, nest.lanes)
        if non_temporal and kernel_cost([stage.body for stage in nest.kernel.stages]) > NON_TEMPORAL_COST:
            non_temporal = set()
    if set(nest.non_temporal) == non_temporal:
        return nest
    outputs = [output._replace(non_temporal=index in non_temporal) for index, output in enumerate(nest.outputs)]
    return nest.replace(outputs=tuple(outputs))


def _classify_strides(accesses: Sequence[Sequence[int]], row: int, lane: int) -> tuple[tuple[StrideKind, ...], ...]:
    """Classifies strides: `row` between consecutive short rows, `near` for small strides between lanes."""
    kinds: list[tuple[StrideKind, ...]] = []
    for access, kind in zip(accesses, stride_kinds(accesses), strict=True):
        if row > 1 and tuple(access[-2:]) == (row, 1):
            kind = (*kind[:-2], "row", "one")
        elif 0 <= lane < len(access) and access[lane] in NEAR:
            kind = (*kind[:lane], NEAR[access[lane]], *kind[lane + 1 :])
        elif access and access[-1] in NEAR:
            kind = (*kind[:-1], NEAR[access[-1]])  # between inner points
        kinds.append(kind)
    return tuple(kinds)


def _find_packs(views: Sequence[View], strides: Sequence[Sequence[int]], lane: int) -> tuple[tuple[int, ...], ...]:
    """Groups of accesses that together form whole short rows: as many adjacent elements as the stride between lanes."""
    groups: dict[tuple[Buffer, tuple[int, ...]], dict[int, int]] = {}
    for index, (view, access_strides) in enumerate(zip(views, strides, strict=True)):
        if 0 <= lane < len(access_strides) and 1 < access_strides[lane] <= LONGEST_PACK:
            groups.setdefault((view.buffer, tuple(access_strides)), {})[view.offset] = index
    packs: list[tuple[int, ...]] = []
    for (_, access_strides), access_at in groups.items():
        first = min(access_at)
        row = tuple(access_at.get(first + column, -1) for column in range(access_strides[lane]))
        if -1 not in row:
            packs.append(row)
    return tuple(packs)


def _find_covered_indices(step: KernelStep, extents: tuple[int, ...]) -> tuple[tuple[int, int, int], ...]:
    """The (buffer, axis, dimension) of loop indices whose dimension is not longer than the axis they index."""
    covered: set[tuple[int, int, int]] = set()
    for stage in step.kernel.stages if step.kernel.indexed_buffers and step.kernel.uses_index else ():
        source = dict(zip(stage.body.parameters[-len(stage.sources) :], stage.sources, strict=True))
        for node in nodes_of(stage.body):
            indices = indices_of(node)
            buffer = source.get(node.operands[0]) if indices else None
            if buffer is None:
                continue
            shape = step.indexed_buffers[buffer.number].shape
            for axis, (index, size) in enumerate(zip(indices, shape, strict=True)):
                position = source.get(index)
                if position is not None and position.kind == "index" and extents[position.number] <= size:
                    covered.add((buffer.number, axis, position.number))
    return tuple(sorted(covered))


def _find_large_outputs(views: Sequence[View], strides: Sequence[Sequence[int]], lane: int, lanes: int) -> set[int]:
    """The outputs that exceed the caches and are written in whole cache lines."""
    outputs: set[int] = set()
    for index, (view, access_strides) in enumerate(zip(views, strides, strict=True)):
        base, size = view.buffer.base, byte_size(view.buffer.element)
        if base.lifetime != "external" or base.bytes < NON_TEMPORAL_BYTES:
            continue
        if not 0 <= lane < len(access_strides) or access_strides[lane] != 1:  # a single element has no lanes
            continue
        steps = (lanes, view.offset, *access_strides[:lane], *access_strides[lane + 1 :])
        if all(step * size % ALIGNMENT == 0 for step in steps):
            outputs.add(index)
    return outputs
