"""From a kernel step to a call: the layout that decides its code, and the words that its arguments are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from livegrad.backends.cpu.emit.control import branch_cost
from livegrad.backends.cpu.emit.frame import NEAR, Layout
from livegrad.backends.cpu.emit.tiles import is_turned
from livegrad.backends.cpu.emit.values import byte_size
from livegrad.backends.cpu.varying import varying_scalars
from livegrad.backends.dimensions import StrideKind, loop_dimensions, stride_kinds
from livegrad.ir.node import Function, Node
from livegrad.ir.types import Scalar, inner_types
from livegrad.ir.walk import nodes_of, reachable_functions
from livegrad.schedule.indexed_writes import indices_of
from livegrad.schedule.kernel import Kernel
from livegrad.schedule.plan import ALIGNMENT, Buffer, KernelStep, View

# An item of work should take some tens of microseconds: long enough to hide handing it out, short enough to share.
_ITEM_COST = 4_000_000.0
_LEAST_BLOCK, _MOST_BLOCK = 1024, 1 << 16
# What costs more than this is cut into so many items at least, for as many threads.
_SHARED_COST, _FEWEST_ITEMS = 400_000.0, 8
_LONG_KERNEL, _LARGE_KERNEL = 800, 2000  # nodes
_MANY_MATH_CALLS = 8
_MANY_PORTS = 64
SHORT_ROW = 8  # inner points that code names one by one
# Numbers of a row that are read together: a matrix of four rows. 200,000 products of 3 × 3 take 3.0 ms gathered and 1.4
# packed, of 4 × 4 5.8 and 4.7.
_LONGEST_PACK = 16
# Numbers that are shuffled into columns together: rows of 5 bytes compile in 1.1 s by 128 lanes, in 0.3 by 32.
_MOST_PACKED = 256
_SHORT_COST = 20.0  # of a body that has registers to spare
_MOST_LANES = 128
_MOST_TURNED = 16  # accesses of a kernel that have tiles
# A result of this size is written past the caches, which spares reading it first. A kernel from 16 MB to 16 MB takes
# 1.0 ms and 0.8, from 32 to 32 2.9 and 1.9; but what reads 8 MB next finds them in a cache, if they went there.
_STREAMED_BYTES = 1 << 24
# Where there is more to compute, such stores hold up the rest. From 64 MB to 64 MB, streamed and not: 4.2 and 5.9 ms at
# a cost of 6, 5.2 and 5.8 at 12, 6.4 and 5.8 at 18, 12.6 and 7.3 at 48; a distance of 310 operations 42 and 38 ms.
_STREAMED_COST = 12.0


@dataclass(frozen=True)
class Bound:
    """A kernel step ready to compile: its layout, and every number that its argument block needs."""

    layout: Layout
    domain: tuple[int, ...]
    inner: tuple[int, ...]
    reads: tuple[tuple[int, ...], ...]
    outputs: tuple[tuple[int, ...], ...]
    block: int
    total: int
    grain: int


@dataclass(frozen=True)
class RowBlock:
    """A chain's rows: how many there are, and how many are one block."""

    rows: int
    block: int

    @property
    def count(self) -> int:
        return -(-self.rows // self.block)


def bind(step: KernelStep, vector_bytes: int) -> Bound:
    """The layout of a step, and how its work is cut into items, by their cost."""
    kernel = step.kernel
    dimensions = loop_dimensions(step)
    domain, inner, reads, outputs = dimensions.domain, dimensions.inner, dimensions.reads, dimensions.outputs
    lane = len(domain) + (len(inner) if kernel.along else 0) - 1
    lanes = 1 if lane < 0 else lane_count(kernel, reads, lane, vector_bytes)
    if domain and (_folds_across(kernel) or (len(domain) > 1 and not kernel.along)):
        lanes = min(lanes, max(4, 1 << (domain[-1] - 1).bit_length()))  # more would idle in every row
    row = inner[0] if domain and _is_written_out(kernel, inner) else 0
    lanes = min(lanes, max(4, 1 << (_MOST_PACKED // row).bit_length() - 1)) if row else lanes
    layout = Layout(
        lanes,
        "along" if kernel.along else "across",
        len(domain),
        len(inner),
        _lane_kinds(reads, row, lane),
        _lane_kinds(outputs, row, lane),
        vector_bytes,
        _packs(step.reads, reads, lane),
        _packs(step.outputs, outputs, lane),
        row,
        covered=_covered(step, (*domain, *inner)),
    )
    if not kernel.along and inner and not row and not kernel.written and _has_turned(kernel, layout):
        layout = replace(layout, tiled=True)
    streamed = () if kernel.along else _streamed(step.outputs, outputs, lane, lanes)
    if streamed and kernel_cost([stage.body for stage in kernel.stages]) <= _STREAMED_COST:
        layout = replace(layout, streamed=streamed)
    block, total, grain = _items(step, domain, inner, lanes)
    return Bound(layout, tuple(domain), tuple(inner), _tuples(reads), _tuples(outputs), block, total, grain)


def bind_in_chain(step: KernelStep, alone: Bound, rows: RowBlock) -> Bound:
    """A step in a chain, from what it is alone: blocks of rows are whole, and the next step finds them in a cache."""
    block, total, grain = _row_items(step, alone.domain, rows)
    layout = replace(alone.layout, streamed=()) if alone.layout.streamed else alone.layout
    return replace(alone, layout=layout, block=block, total=total, grain=grain)


def _is_written_out(kernel: Kernel, inner: Sequence[int]) -> bool:
    """Whether a kernel's inner points are so few that its code names each of them."""
    scans = any(stage.scan is not None for stage in kernel.stages)
    return not kernel.along and not kernel.split and not scans and len(inner) == 1 and inner[0] <= SHORT_ROW


def _streamed(views: Sequence[View], strides: Sequence[Sequence[int]], lane: int, lanes: int) -> tuple[int, ...]:
    """The outputs that go past the caches: results that are too large to be found there, written in whole lines."""
    found: list[int] = []
    for number, (view, own) in enumerate(zip(views, strides, strict=True)):
        base, size = view.buffer.base, byte_size(view.buffer.element)
        if base.lifetime != "external" or base.bytes < _STREAMED_BYTES or own[lane] != 1:
            continue
        steps = (lanes, view.offset, *own[:lane], *own[lane + 1 :])
        if all(step * size % ALIGNMENT == 0 for step in steps):
            found.append(number)
    return tuple(found)


def _has_turned(kernel: Kernel, layout: Layout) -> bool:
    """Whether some accesses are consecutive along the inner dimension, and not so many that tiles fill the stack."""
    accesses = zip((*kernel.reads, *kernel.outputs), (*layout.reads, *layout.outputs), strict=True)
    turned = sum(port.level == "point" and is_turned(kinds, layout.domain_rank, True) for port, kinds in accesses)
    return 0 < turned <= _MOST_TURNED


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
        row = tuple(places.get(first + column, -1) for column in range(length)) if 1 < length <= _LONGEST_PACK else ()
        if row and -1 not in row:
            packs.append(row)
    return tuple(packs)


def _tuples(rows: Sequence[Sequence[int]]) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(row) for row in rows)


def lane_count(kernel: Kernel, reads: Sequence[Sequence[int]], lane: int, vector_bytes: int) -> int:
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
    return max(4, min(_MOST_LANES, _registers(kernel, every, reads, lane) * vector_bytes // widest))


def _widest_varying(kernel: Kernel, every: Sequence[Node], reads: Sequence[Sequence[int]], lane: int) -> int:
    """The bytes of the widest number that has a value for each lane."""
    stored = max([byte_size(port.element) for port in kernel.outputs], default=0)  # what is stored has
    inner = [inner for type in {node.type for node in every} for inner in inner_types(type)]
    present = [port.element for port in kernel.reads] + [scalar for scalar in inner if isinstance(scalar, Scalar)]
    if stored and max(map(byte_size, present), default=0) <= stored:
        return stored
    return max(map(byte_size, varying_scalars(kernel, reads, lane)), default=4)


def _folds_across(kernel: Kernel) -> bool:
    """Whether lanes have a fold each, in a register or (by index) in memory."""
    folds = any(target.reduce is not None for stage in kernel.stages for target in stage.sinks)
    runs = any(stage.scan is not None for stage in kernel.stages)
    return not kernel.along and (folds or runs or bool(kernel.written))


def _registers(kernel: Kernel, every: Sequence[Node], reads: Sequence[Sequence[int]], lane: int) -> int:
    calls = [node.op.cost for node in every if (node.op.llvm or {}).get("float", "").startswith("math:")]
    mostly_math = sum(calls) > 0.5 * sum(node.op.cost for node in every)
    if mostly_math:
        few_ports = len(kernel.reads) + len(kernel.outputs) <= _MANY_PORTS
        return 2 if len(every) > _LONG_KERNEL else 8 if len(calls) > _MANY_MATH_CALLS and few_ports else 4
    if kernel.written and not kernel.along:
        return 4  # an index is read once for all lanes of a row
    folds = _folds_across(kernel)
    columns = all(own[lane] in (0, 1) for own in reads)
    if folds and columns and kernel_cost([stage.body for stage in kernel.stages]) < _SHORT_COST:
        return 8
    return 1 if len(every) > _LARGE_KERNEL else 2


def _functions(kernel: Kernel) -> list[Function]:
    return [function for stage in kernel.stages for function in reachable_functions([stage.body])]


def kernel_cost(functions: Sequence[Function]) -> float:
    return sum(map(branch_cost, functions))


def _row_items(step: KernelStep, domain: Sequence[int], rows: RowBlock) -> tuple[int, int, int]:
    """The block word, the number of items, and how many items are a block of rows."""
    if step.kernel.along:
        return 1, rows.rows, rows.block
    row = step.domain[-1]
    if domain and prod(domain[:-1]) * row == prod(domain) and domain[-1] == row:
        return row, rows.rows, rows.block  # each row is a line of its own
    return rows.block * row, rows.count, 1


def _items(step: KernelStep, domain: list[int], inner: list[int], lanes: int) -> tuple[int, int, int]:
    """The block word, the number of items, and how many are handed out at once."""
    points = max(1, min(step.chunk, inner[0]) * prod(inner[1:]) if step.kernel.split else prod(inner))
    point = kernel_cost([s.body for s in step.kernel.stages if s.level == "point"]) * points
    cost = kernel_cost([s.body for s in step.kernel.stages if s.level == "row"]) + point + 4.0
    cost = max(cost, points * 4.0)  # to fetch a number is work, too
    if step.kernel.along:
        rows = prod(domain)
        return 1, rows, min(max(1, int(_ITEM_COST / cost)), max(1, rows))
    if not domain:
        return 1, 1, 1
    wanted = max(_LEAST_BLOCK, min(_MOST_BLOCK, int(_ITEM_COST / cost)))
    if prod(inner) > 1:
        wanted = max(lanes, min(wanted, int(_ITEM_COST / cost)))
        if cost * prod(domain) > _SHARED_COST:
            wanted = max(lanes, min(wanted, prod(domain) // _FEWEST_ITEMS))
    block = -(-wanted // lanes) * lanes
    lines, length = prod(domain[:-1]), domain[-1]
    blocks = -(-length // block)
    return block, lines * blocks, max(1, block // max(1, length))
