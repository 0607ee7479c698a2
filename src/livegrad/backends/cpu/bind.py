"""From a kernel step to a call: the layout that decides its code, and the words that its arguments are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from livegrad.backends.cpu.emit.control import branch_cost
from livegrad.backends.cpu.emit.frame import Layout
from livegrad.backends.cpu.emit.values import byte_size
from livegrad.backends.dimensions import loop_dimensions, stride_kinds
from livegrad.ir.node import Function
from livegrad.ir.types import Scalar, inner_types
from livegrad.ir.walk import nodes_of, reachable_functions
from livegrad.schedule.kernel import Kernel
from livegrad.schedule.plan import KernelStep

# An item of work should take some tens of microseconds: long enough to hide handing it out, short enough to share.
_ITEM_COST = 4_000_000.0
_LEAST_BLOCK, _MOST_BLOCK = 1024, 1 << 16
# What costs more than this is cut into so many items at least, for as many threads.
_SHARED_COST, _FEWEST_ITEMS = 400_000.0, 8
_LONG_KERNEL, _LARGE_KERNEL = 800, 2000  # nodes
_MANY_MATH_CALLS = 8
_MANY_PORTS = 64
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
    layout = Layout(
        lanes,
        "along" if kernel.along else "across",
        len(domain),
        len(inner),
        stride_kinds(reads),
        stride_kinds(outputs),
        vector_bytes,
    )
    block, total, grain = _items(step, domain, inner, lanes) if rows is None else _row_items(step, domain, rows)
    return Bound(layout, tuple(domain), tuple(inner), _tuples(reads), _tuples(outputs), block, total, grain)


def _tuples(rows: Sequence[Sequence[int]]) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(row) for row in rows)


def lane_count(kernel: Kernel, vector_bytes: int) -> int:
    """Some registers' worth of the widest number in the kernel: enough independent work to hide latencies.

    Measured: a 316-op function with 59 calls of math functions runs at 20, 25, 34, 40 and 32 Mpoints/s (one thread)
    with one, two, four, eight and sixteen registers, while a single call gains nothing from eight and compiles longer;
    a 310-op one without at 214 and 248 with one and two, and four spill; their gradients, of 1,000 ops each, at 13, 16
    and 19 and at 43 and 56 (one thread), where two registers compile in 0.2 s and four in 0.5 s; at 3,010 ops one is
    as fast as two (everything spills) and compiles in less than half the time. With 141 reads and 96 outputs of stride
    three, eight registers run as fast as four (2.8 and 2.9 ms) and compile in 5.9 s, not 1.9.
    """
    widest = max((byte_size(scalar) for scalar in _scalars(kernel)), default=4)
    return max(4, min(_MOST_LANES, _registers(kernel) * vector_bytes // widest))


def _registers(kernel: Kernel) -> int:
    every = [node for function in _functions(kernel) for node in nodes_of(function)]
    calls = [node.op.cost for node in every if (node.op.llvm or {}).get("float", "").startswith("math:")]
    mostly_math = sum(calls) > 0.5 * sum(node.op.cost for node in every)
    if mostly_math:
        few_ports = len(kernel.reads) + len(kernel.outputs) <= _MANY_PORTS
        return 2 if len(every) > _LONG_KERNEL else 8 if len(calls) > _MANY_MATH_CALLS and few_ports else 4
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
        return step.chunk, rows.rows, rows.block
    row = step.domain[-1]
    if domain and prod(domain[:-1]) * row == prod(domain) and domain[-1] == row:
        return row, rows.rows, rows.block  # each row is a line of its own
    return rows.block * row, rows.count, 1


def _items(step: KernelStep, domain: list[int], inner: list[int], lanes: int) -> tuple[int, int, int]:
    """The block word, the number of items, and how many are handed out at once."""
    point = kernel_cost([s.body for s in step.kernel.stages if s.level == "point"]) * max(1, prod(inner))
    cost = kernel_cost([s.body for s in step.kernel.stages if s.level == "row"]) + point + 4.0
    if step.kernel.along:
        rows = prod(domain)
        own = max(1, prod(inner)) if not step.kernel.split else step.chunk * max(1, prod(inner[1:]))
        each = cost if not step.kernel.split else cost * own / max(1, prod(inner))
        grain = max(1, int(_ITEM_COST / max(each, own * 4.0)))
        return (step.chunk, rows, min(grain, max(1, rows)))
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
