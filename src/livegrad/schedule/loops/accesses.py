"""Loop passes for memory accesses: de-interleaving loads, tiles, and non-temporal stores."""

from __future__ import annotations

from collections.abc import Sequence

from livegrad.ir.walk import nodes_of
from livegrad.schedule.indexed_writes import indices_of
from livegrad.schedule.loops.cost_model import (
    LONGEST_PACK,
    MOST_TRANSPOSED,
    STREAMED_BYTES,
    STREAMED_COST,
    byte_size,
    kernel_cost,
)
from livegrad.schedule.loops.cpu_nest import NEAR, CpuNest, is_transposed
from livegrad.schedule.loops.dimensions import StrideKind, stride_kinds
from livegrad.schedule.plan import ALIGNMENT, Buffer, KernelStep, View


def classify_accesses(nest: CpuNest) -> CpuNest:
    """Finds the kinds of strides, accesses that are whole short rows together, and indices that need no check."""
    step, dimensions = nest.step, nest.dimensions
    return nest.replace(
        reads=_lane_kinds(dimensions.reads, nest.unrolled, nest.lane),
        outputs=_lane_kinds(dimensions.outputs, nest.unrolled, nest.lane),
        read_packs=_packs(step.reads, dimensions.reads, nest.lane),
        output_packs=_packs(step.outputs, dimensions.outputs, nest.lane),
        covered=_covered(step, (*dimensions.domain, *dimensions.inner)),
    )


def tile_transposed(nest: CpuNest) -> CpuNest:
    """Sweeps the inner dimension in tiles where accesses are contiguous along it: registers transpose them."""
    kernel, dimensions = nest.kernel, nest.dimensions
    if kernel.along or not dimensions.inner or nest.unrolled or kernel.written:
        return nest
    accesses = zip((*kernel.reads, *kernel.outputs), (*nest.reads, *nest.outputs), strict=True)
    rank = len(dimensions.domain)
    transposed = sum(port.level == "point" and is_transposed(kinds, rank, True) for port, kinds in accesses)
    # Not so many that tiles fill the stack.
    return nest.replace(tiled=True) if 0 < transposed <= MOST_TRANSPOSED else nest


def stream_stores(nest: CpuNest) -> CpuNest:
    """Has cheap kernels write results past the caches that are too large to be found there.

    In a chain, the next step finds them in a cache.
    """
    kernel = nest.kernel
    if kernel.along or nest.tile is not None:
        return nest
    streamed = _streamed(nest.step.outputs, nest.dimensions.outputs, nest.lane, nest.lanes)
    if not streamed or kernel_cost([stage.body for stage in kernel.stages]) > STREAMED_COST:
        return nest
    return nest.replace(streamed=streamed)


def _lane_kinds(accesses: Sequence[Sequence[int]], row: int, lane: int) -> tuple[tuple[StrideKind, ...], ...]:
    """The kinds of strides: from row to row where short rows lie one behind the other, or near, between lanes."""
    kinds: list[tuple[StrideKind, ...]] = []
    for own, kind in zip(accesses, stride_kinds(accesses), strict=True):
        if row > 1 and tuple(own[-2:]) == (row, 1):
            kind = (*kind[:-2], "row", "one")
        elif 0 <= lane < len(own) and own[lane] in NEAR:
            kind = (*kind[:lane], NEAR[own[lane]], *kind[lane + 1 :])
        elif own and own[-1] in NEAR:
            kind = (*kind[:-1], NEAR[own[-1]])  # along the inner dimension
        kinds.append(kind)
    return tuple(kinds)


def _packs(views: Sequence[View], strides: Sequence[Sequence[int]], lane: int) -> tuple[tuple[int, ...], ...]:
    """Which accesses are, together, whole short rows of a buffer: as many neighbours as a lane is from the next."""
    alike: dict[tuple[Buffer, tuple[int, ...]], dict[int, int]] = {}
    for number, (view, own) in enumerate(zip(views, strides, strict=True)):
        alike.setdefault((view.buffer, tuple(own)), {})[view.offset] = number
    packs: list[tuple[int, ...]] = []
    for (_, own), places in alike.items():
        length = own[lane] if 0 <= lane < len(own) else 0
        first = min(places)
        row = tuple(places.get(first + column, -1) for column in range(length)) if 1 < length <= LONGEST_PACK else ()
        if row and -1 not in row:
            packs.append(row)
    return tuple(packs)


def _covered(step: KernelStep, extents: tuple[int, ...]) -> tuple[tuple[int, int, int], ...]:
    """Where a point's place along a dimension is an index into a tensor that has room for it: nothing is to check."""
    found: set[tuple[int, int, int]] = set()
    for stage in step.kernel.stages if step.kernel.wholes and step.kernel.uses_index else ():
        source = dict(zip(stage.body.parameters[-len(stage.sources) :], stage.sources, strict=True))
        for node in nodes_of(stage.body):
            indices = indices_of(node)
            whole = source.get(node.operands[0]) if indices else None
            if whole is None:
                continue
            shape = step.wholes[whole.number].shape
            for axis, (index, size) in enumerate(zip(indices, shape, strict=True)):
                place = source.get(index)
                if place is not None and place.kind == "index" and extents[place.number] <= size:
                    found.add((whole.number, axis, place.number))
    return tuple(sorted(found))


def _streamed(views: Sequence[View], strides: Sequence[Sequence[int]], lane: int, lanes: int) -> tuple[int, ...]:
    """The outputs that go past the caches: results that are too large to be found there, written in whole lines."""
    found: list[int] = []
    for number, (view, own) in enumerate(zip(views, strides, strict=True)):
        base, size = view.buffer.base, byte_size(view.buffer.element)
        if base.lifetime != "external" or base.bytes < STREAMED_BYTES or own[lane] != 1:
            continue
        steps = (lanes, view.offset, *own[:lane], *own[lane + 1 :])
        if all(step * size % ALIGNMENT == 0 for step in steps):
            found.append(number)
    return tuple(found)
