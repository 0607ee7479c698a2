"""From a kernel step to a launch: the layout that decides its code, its words, and how many threads run it."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any, Literal

import numpy as np

from livegrad.backends.cuda.fold import COLUMNS, partial_bytes
from livegrad.ir.types import Scalar, Trace, inner_types
from livegrad.ir.walk import nodes_of, reachable_functions
from livegrad.schedule.kernel import Kernel
from livegrad.schedule.loops.dimensions import StrideKind, loop_dimensions, stride_kinds
from livegrad.schedule.plan import Buffer, KernelStep, Plan, View

RowRunner = Literal["thread", "warp", "block", "columns"]
WordKind = Literal[
    "number", "external", "cell", "value", "arena", "scratch", "status", "traces", "trace_bytes", "full", "interrupt",
    "partials", "counters",
]  # fmt: skip

MOST_THREADS = 256  # of a block
_LEAST_FOR_A_BLOCK = 32  # inner points of a row that are worth a block of threads
_FEW_ROWS = 4096  # with fewer, threads would idle if each took a row
_MANY_ROWS = 1 << 17  # with as many, a thread for each keeps the device busy, whatever lies in a row
_SHORT_ROW = 512  # points of a row up to which a warp takes it alone
# Blocks share rows until there are so many, each with so many points for every thread at least.
_ENOUGH_BLOCKS, _LEAST_POINTS = 2112, 8
# A kernel that does little for each element waits for memory: its threads take some at once, if there are so many.
_FEW_NODES, _AT_ONCE, _MANY_ELEMENTS = 40, 4, 1 << 20
# A kernel of so many nodes needs many registers: fewer threads, of which enough fit on a multiprocessor. Measured for a
# gradient of 1,080 instructions: 4.6 ms in blocks of 256 with 223 registers for each thread, 3.5 ms in three of 128.
_MANY_NODES, HEAVY_THREADS = 500, 128
_MOST_BLOCKS = 1 << 14  # of threads that take rows: sixteen times what the largest devices run at once
# With memory of its own for each thread (or block), only so many run at once and take rows in turn.
_MOST_BLOCKS_WITH_MEMORY, _MOST_THREADS_WITH_MEMORY = 2048, 1 << 15


@dataclass(frozen=True)
class Layout:
    """What the code depends on besides the kernel: who runs a row, ranks after merging, strides, width of indices.

    A row is run by a thread, by a warp, by a block, or with 31 others by a block in which each of 32 columns of threads
    has one.
    """

    rows: RowRunner
    domain_rank: int
    inner_rank: int
    reads: tuple[tuple[StrideKind, ...], ...]
    outputs: tuple[tuple[StrideKind, ...], ...]
    by_value: tuple[bool, ...]  # of the uniforms: part of the arguments, or read from memory
    index: Literal["int", "long long"]
    shared_rows: bool = False  # several blocks share a row; the last one to end stores what all have folded
    heavy: bool = False  # long code, which needs many registers
    at_once: int = 1  # rows that a thread reads before it computes any


@dataclass(frozen=True)
class Word:
    """One word of a kernel's arguments: a number, or an offset into something that has an address at run time."""

    kind: WordKind
    slot: int = 0
    value: int = 0


@dataclass(frozen=True)
class Bound:
    """A kernel step ready to compile and launch."""

    layout: Layout
    words: dict[str, Word]
    grid: int
    threads: int
    workers: int  # how many run at once, each with scratch or traces of its own
    scratch_bytes: int  # for each worker
    partial_bytes: int = 0  # what blocks that share rows leave for the last of them
    counters: int = 0  # words of four bytes, zero before the first launch, by which they find out who is last


def bind(step: KernelStep, plan: Plan, share_rows: bool = False) -> Bound:
    """The layout of a step, its words by name, and its launch.

    Blocks share long rows only where the caller has memory for what they leave (`partial_bytes`, `counters`).
    """
    kernel = step.kernel
    dimensions = loop_dimensions(step)
    domain, inner, reads, outputs = dimensions.domain, dimensions.inner, dimensions.reads, dimensions.outputs
    rows, points = prod(domain), _points(step, inner)
    together = _who_runs_a_row(kernel, rows, points)
    tiles = -(-rows // COLUMNS) if together == "columns" else rows
    blocks = _blocks_for_a_row(kernel, together, tiles, points) if share_rows else 1
    layout = Layout(
        together,
        len(domain),
        len(inner),
        stride_kinds(reads),
        stride_kinds(outputs),
        tuple(_is_cell(view.buffer, plan) and view.buffer.element.dtype.itemsize <= 8 for view in step.uniforms),
        _index_type(domain, inner, [*reads, *outputs]),
        blocks > 1,
        _node_count(kernel) > _MANY_NODES,
        _rows_at_once(kernel, rows),
    )
    grid, threads, workers = _launch(kernel, layout, tiles * blocks, points)
    scratch = max((v.buffer.bytes for p, v in zip(kernel.outputs, step.outputs, strict=True) if p.scratch), default=0)
    scratch = -(-scratch // 16) * 16
    words = _words(step, plan, layout, domain, inner, [*reads, *outputs])
    words |= {"rows": Word("number", 0, rows), "scratch_bytes": Word("number", 0, scratch)}
    words |= {"blocks": Word("number", 0, blocks)}
    partials = sum(_fold_bytes(kernel)) * rows * blocks if blocks > 1 else 0
    return Bound(layout, words, grid, threads, workers, scratch, partials, tiles if blocks > 1 else 0)


def _node_count(kernel: Kernel) -> int:
    functions = [f for stage in kernel.stages for f in reachable_functions([stage.body])]
    return sum(len(list(nodes_of(function))) for function in functions)


def _rows_at_once(kernel: Kernel, rows: int) -> int:
    """How many rows a thread takes together: more than one where a single stage does little with each element."""
    if len(kernel.stages) != 1 or kernel.stages[0].level != "row" or rows < _MANY_ELEMENTS or remembers(kernel):
        return 1
    few = _node_count(kernel) <= _FEW_NODES and 1 <= len(kernel.reads) <= 4
    return _AT_ONCE if few and all(port.level == "row" for port in kernel.outputs) else 1


def _who_runs_a_row(kernel: Kernel, rows: int, points: int) -> RowRunner:
    if points <= 1 or any(stage.scan is not None for stage in kernel.stages):
        return "thread"
    if kernel.along and (points >= _LEAST_FOR_A_BLOCK or rows < _FEW_ROWS):
        return "warp" if points <= _SHORT_ROW else "block"
    if kernel.along:
        return "thread"
    worth = rows < _MANY_ROWS and points >= _LEAST_FOR_A_BLOCK
    return "columns" if worth and _fold_bytes(kernel) and not remembers(kernel) else "thread"


def _fold_bytes(kernel: Kernel) -> list[int]:
    """What a partial result takes of each fold of a kernel."""
    pairs = [(t, r) for stage in kernel.stages for t, r in zip(stage.sinks, stage.body.results, strict=True)]
    return [partial_bytes(t.reduce, r.type) for t, r in pairs if t.reduce is not None and isinstance(r.type, Scalar)]


def _blocks_for_a_row(kernel: Kernel, together: str, tiles: int, points: int) -> int:
    """How many blocks share a row (or 32): more than one only where a single sweep folds it, by its sizes alone."""
    sweeps = [stage for stage in kernel.stages if stage.level == "point"]
    if together in ("thread", "warp") or len(sweeps) != 1 or not _fold_bytes(kernel) or remembers(kernel):
        return 1
    lanes = MOST_THREADS if together == "block" else MOST_THREADS // COLUMNS
    return max(1, min(_ENOUGH_BLOCKS // max(1, tiles), points // (lanes * _LEAST_POINTS)))


def _points(step: KernelStep, inner: list[int]) -> int:
    """Inner points that one row sweeps."""
    return min(step.chunk, inner[0]) * prod(inner[1:]) if step.kernel.split else prod(inner)


def _index_type(domain: list[int], inner: list[int], strides: list[list[int]]) -> Literal["int", "long long"]:
    """Short indices where every count and every offset fits with room to spare: division is far quicker on them."""
    sizes = (*domain, *inner)
    reach = [sum(abs(s) * (n - 1) for s, n in zip(own, sizes, strict=False)) for own in strides]
    return "int" if max([prod(domain), prod(inner), *reach], default=0) < 1 << 30 else "long long"


def remembers(kernel: Kernel) -> bool:
    """Whether a kernel's threads need memory for traces."""
    functions = [f for stage in kernel.stages for f in reachable_functions([stage.body])]
    types = {node.type for function in functions for node in nodes_of(function)}
    return any(isinstance(inner, Trace) for type in types for inner in inner_types(type))


def _launch(kernel: Kernel, layout: Layout, rows: int, points: int) -> tuple[int, int, int]:
    """Blocks, threads of a block, and workers, for so many rows (or tiles of them, or shares of those)."""
    threads = most = HEAVY_THREADS if layout.heavy else MOST_THREADS
    if layout.rows != "thread":
        grid = -(-rows * 32 // threads) if layout.rows == "warp" else rows
        if any(port.scratch for port in kernel.outputs):
            grid = min(grid, _MOST_BLOCKS_WITH_MEMORY)
    else:
        threads = min(most, max(32, 1 << max(0, rows - 1).bit_length()))
        grid = -(-rows // (threads * layout.at_once))
        # Beyond that, threads take several rows: what they prepare once, such as numbers of the arguments, pays more.
        grid = min(grid, _MOST_BLOCKS)
        if any(port.scratch for port in kernel.outputs):
            grid = min(grid, _MOST_THREADS_WITH_MEMORY // threads)
    if remembers(kernel):
        grid = min(grid, _MOST_THREADS_WITH_MEMORY // threads)
    grid = min(grid, (1 << 31) - 1)
    workers = {"thread": grid * threads, "warp": grid * threads // 32}.get(layout.rows, grid)
    return grid, threads, grid * threads if remembers(kernel) else workers


# --- words -----------------------------------------------------------------------------------------------------------


def _words(
    step: KernelStep, plan: Plan, layout: Layout, domain: list[int], inner: list[int], strides: list[list[int]]
) -> dict[str, Word]:
    """What each word that a kernel may take holds."""
    words = {"status": Word("status"), "full": Word("full"), "traces": Word("traces")}
    words |= {"trace_bytes": Word("trace_bytes"), "chunk": Word("number", 0, step.chunk)}
    words |= {"interrupt": Word("interrupt"), "partials": Word("partials"), "counters": Word("counters")}
    words |= {f"domain{d}": Word("number", 0, size) for d, size in enumerate(domain)}
    words |= {f"inner{d}": Word("number", 0, size) for d, size in enumerate(inner)}
    roles = [f"read{n}" for n in range(len(step.reads))] + [f"output{n}" for n in range(len(step.outputs))]
    for role, view, own in zip(roles, (*step.reads, *step.outputs), strides, strict=True):
        words[role] = _place(view, plan)
        words |= {f"{role}_stride{d}": Word("number", 0, stride) for d, stride in enumerate(own)}
    for number, buffer in enumerate(step.wholes):
        words[f"whole{number}"] = _place(View(buffer, 0, ()), plan)
        words |= {f"whole{number}_extent{d}": Word("number", 0, size) for d, size in enumerate(buffer.shape)}
        words |= {f"whole{number}_stride{d}": Word("number", 0, stride) for d, stride in enumerate(buffer.strides)}
    for number, (view, by_value) in enumerate(zip(step.uniforms, layout.by_value, strict=True)):
        place = _place(view, plan)
        words[f"uniform{number}"] = Word("value", place.slot) if by_value else place
    return words


def _is_cell(buffer: Buffer, plan: Plan) -> bool:
    """Whether a buffer is a scalar argument of the plan."""
    base = buffer.base
    return base.lifetime == "external" and base.shape == () and base in plan.arguments


def _place(view: View, plan: Plan) -> Word:
    base = view.buffer.base
    shift = view.offset * view.buffer.element.dtype.itemsize
    if base.lifetime == "region":
        return Word("scratch", base.number, 0)
    if base.lifetime == "graph":
        return Word("arena", 0, plan.places[base] + shift)
    return Word("cell" if _is_cell(base, plan) else "external", base.number, shift)


def word_value(array: np.ndarray[Any, Any]) -> int:
    """A scalar as it stands in a word of the arguments: its own bytes, then zeros.

    >>> word_value(np.array(1.0, np.float32)) == 0x3F800000
    True
    """
    return int.from_bytes(array.tobytes().ljust(8, b"\0"), "little", signed=True)
