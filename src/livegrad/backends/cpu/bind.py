"""From a kernel step to a call: the layout that decides its code, and the words that its arguments are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from livegrad.backends.cpu.emit.control import branch_cost
from livegrad.backends.cpu.emit.frame import Layout
from livegrad.backends.cpu.emit.values import byte_size
from livegrad.backends.dimensions import StrideKind, loop_dimensions, stride_kinds
from livegrad.ir.node import Function
from livegrad.ir.types import Scalar, inner_types
from livegrad.ir.walk import nodes_of, reachable_functions
from livegrad.schedule.kernel import Kernel
from livegrad.schedule.plan import Buffer, KernelStep, View

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
_SHORT_COST = 20.0  # of a body that has registers to spare
_MOST_LANES = 128


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


def bind(step: KernelStep, vector_bytes: int, rows: RowBlock | None = None) -> Bound:
    """The layout of a step, and how its work is cut into items: by their cost, or so that blocks of rows are whole."""
    kernel = step.kernel
    dimensions = loop_dimensions(step)
    domain, inner, reads, outputs = dimensions.domain, dimensions.inner, dimensions.reads, dimensions.outputs
    lanes = 1 if not kernel.along and not domain else lane_count(kernel, vector_bytes)
    if domain and _folds_across(kernel):
        lanes = min(lanes, max(4, 1 << (domain[-1] - 1).bit_length()))  # more would idle in every row
    row = inner[0] if domain and _is_written_out(kernel, inner) else 0
    lane = len(domain) + (len(inner) if kernel.along else 0) - 1
    layout = Layout(
        lanes,
        "along" if kernel.along else "across",
        len(domain),
        len(inner),
        _packed(stride_kinds(reads), reads, row),
        _packed(stride_kinds(outputs), outputs, row),
        vector_bytes,
        _packs(step.reads, reads, lane),
        _packs(step.outputs, outputs, lane),
        row,
    )
    block, total, grain = _items(step, domain, inner, lanes) if rows is None else _row_items(step, domain, rows)
    return Bound(layout, tuple(domain), tuple(inner), _tuples(reads), _tuples(outputs), block, total, grain)


def _is_written_out(kernel: Kernel, inner: Sequence[int]) -> bool:
    """Whether a kernel's inner points are so few that its code names each of them."""
    scans = any(stage.scan is not None for stage in kernel.stages)
    return not kernel.along and not kernel.split and not scans and len(inner) == 1 and inner[0] <= SHORT_ROW


def _packed(
    kinds: tuple[tuple[StrideKind, ...], ...], rows: Sequence[Sequence[int]], row: int
) -> tuple[tuple[StrideKind, ...], ...]:
    """The kinds of strides, with that from row to row where short rows lie one behind the other."""
    return tuple(
        (*kind[:-2], "row", "one") if row > 1 and tuple(own[-2:]) == (row, 1) else kind
        for kind, own in zip(kinds, rows, strict=True)
    )


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


def lane_count(kernel: Kernel, vector_bytes: int) -> int:
    """Some registers' worth of the widest number in the kernel: enough independent work to hide latencies.

    Measured: a 316-op function with 59 calls of math functions runs at 20, 25, 34, 40 and 32 Mpoints/s (one thread)
    with one, two, four, eight and sixteen registers, while a single call gains nothing from eight and compiles longer;
    a 310-op one without at 214 and 248 with one and two, and four spill; their gradients, of 1,000 ops each, at 13, 16
    and 19 and at 43 and 56 (one thread), where two registers compile in 0.2 s and four in 0.5 s; at 3,010 ops one is
    as fast as two (everything spills) and compiles in less than half the time. With 141 reads and 96 outputs of stride
    three, eight registers run as fast as four (2.8 and 2.9 ms) and compile in 5.9 s, not 1.9. The sums of the columns
    of 8192 × 1024 numbers take 2.2 ms with two registers and 1.7 with eight, which read half a kilobyte of each row.
    """
    widest = max((byte_size(scalar) for scalar in _scalars(kernel)), default=4)
    return max(4, min(_MOST_LANES, _registers(kernel) * vector_bytes // widest))


def _folds_across(kernel: Kernel) -> bool:
    return not kernel.along and any(t.reduce is not None for stage in kernel.stages for t in stage.targets)


def _registers(kernel: Kernel) -> int:
    every = [node for function in _functions(kernel) for node in nodes_of(function)]
    calls = [node.op.cost for node in every if (node.op.llvm or {}).get("float", "").startswith("math:")]
    mostly_math = sum(calls) > 0.5 * sum(node.op.cost for node in every)
    if mostly_math:
        few_ports = len(kernel.reads) + len(kernel.outputs) <= _MANY_PORTS
        return 2 if len(every) > _LONG_KERNEL else 8 if len(calls) > _MANY_MATH_CALLS and few_ports else 4
    if _folds_across(kernel) and kernel_cost([stage.body for stage in kernel.stages]) < _SHORT_COST:
        return 8
    return 1 if len(every) > _LARGE_KERNEL else 2


def _functions(kernel: Kernel) -> list[Function]:
    return [function for stage in kernel.stages for function in reachable_functions([stage.body])]


def _scalars(kernel: Kernel) -> set[Scalar]:
    found = {port.element for port in (*kernel.reads, *kernel.outputs)}
    types = {node.type for function in _functions(kernel) for node in nodes_of(function)}
    return found | {inner for type in types for inner in inner_types(type) if isinstance(inner, Scalar)}


def kernel_cost(functions: Sequence[Function]) -> float:
    return sum(map(branch_cost, functions))


def _row_items(step: KernelStep, domain: list[int], rows: RowBlock) -> tuple[int, int, int]:
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
