"""Loop passes for CUDA devices: how many threads and blocks run a row."""

from __future__ import annotations

from math import prod

from livegrad.ir.types import Scalar, Tape, f16, inner_types
from livegrad.ir.walk import nodes_of, reachable_functions
from livegrad.schedule.kernel import Kernel
from livegrad.schedule.loops.cost_model import (
    COLUMNS,
    ENOUGH_BLOCKS,
    FEW_DEVICE_ROWS,
    FEW_NODES,
    HEAVY_THREADS,
    LEAST_POINTS,
    MANY_DEVICE_ROWS,
    MANY_ELEMENTS,
    MANY_NODES,
    MOST_BLOCKS,
    MOST_BLOCKS_WITH_MEMORY,
    MOST_THREADS,
    MOST_THREADS_WITH_MEMORY,
    ROWS_AT_ONCE,
    SHORT_INDEX,
    WARP,
    WARP_ROW,
    WORTH_A_BLOCK,
)
from livegrad.schedule.loops.nest import Loop, LoopNest, Runner


def assign_rows(nest: LoopNest) -> LoopNest:
    """Decides who runs a row: a thread, a warp, a block, or a block that runs 32 rows in columns of threads."""
    return nest.change(nest.rows, by=_who_runs_a_row(nest))


def share_rows(nest: LoopNest) -> LoopNest:
    """Has several blocks share a long row; the last one to end stores what all have reduced."""
    blocks = _blocks_for_a_row(nest) if nest.shares_rows else 1
    if blocks == 1:
        return nest
    first, *others = nest.loops
    return nest.replace(loops=(first, Loop("parallel", "inner", blocks, by="block"), *others))


def batch_rows(nest: LoopNest) -> LoopNest:
    """Has a thread read several rows before it computes any, where a single stage does little with each element."""
    if not _may_batch(nest):
        return nest
    first, *others = nest.loops
    return nest.replace(loops=(first, Loop("unrolled", "domain", ROWS_AT_ONCE), *others))


def choose_index_width(nest: LoopNest) -> LoopNest:
    """Uses 32-bit indices where every count and offset fits with room to spare: division is far quicker on them."""
    sizes = (*nest.dimensions.domain, *nest.dimensions.inner)
    strides = (*nest.dimensions.reads, *nest.dimensions.outputs)
    reach = [sum(abs(s) * (n - 1) for s, n in zip(own, sizes, strict=False)) for own in strides]
    counts = (prod(nest.dimensions.domain), prod(nest.dimensions.inner))
    return nest.replace(index="int" if max([*counts, *reach], default=0) < SHORT_INDEX else "long long")


def choose_launch(nest: LoopNest) -> LoopNest:
    """Decides how many blocks there are, and how many threads in each."""
    nest = nest.replace(heavy=_node_count(nest.kernel) > MANY_NODES)
    grid, threads = _launch(nest, tile_count(nest) * blocks_of_a_row(nest))
    return nest.change(nest.rows, extent=grid, step=threads)


def row_count(nest: LoopNest) -> int:
    return prod(nest.dimensions.domain)


def tile_count(nest: LoopNest) -> int:
    """Rows, or groups of rows that a block takes together."""
    return -(-row_count(nest) // COLUMNS) if nest.rows.by == "columns" else row_count(nest)


def blocks_of_a_row(nest: LoopNest) -> int:
    """How many blocks share a row."""
    shared = nest.loop("parallel", "inner", "block")
    return 1 if shared is None else shared.extent


def rows_at_once(nest: LoopNest) -> int:
    """How many rows a thread reads before it computes any."""
    batch = nest.loop("unrolled", "domain")
    return 1 if batch is None else batch.extent


def worker_count(nest: LoopNest) -> int:
    """How many run at once, each with scratch or tapes of its own."""
    grid, threads, runner = nest.rows.extent, nest.rows.step, nest.rows.by
    if runner == "thread" or remembers(nest.kernel):
        return grid * threads
    return grid * threads // WARP if runner == "warp" else grid


def _points(nest: LoopNest) -> int:
    """Inner points that one row sweeps."""
    return 1 if nest.points is None else nest.points.extent


def _node_count(kernel: Kernel) -> int:
    functions = [f for stage in kernel.stages for f in reachable_functions([stage.body])]
    return sum(len(list(nodes_of(function))) for function in functions)


def _may_batch(nest: LoopNest) -> bool:
    """Whether a single stage does little with each of many elements."""
    kernel = nest.kernel
    if len(kernel.stages) != 1 or kernel.stages[0].level != "row" or remembers(kernel):
        return False
    few = _node_count(kernel) <= FEW_NODES and 1 <= len(kernel.reads) <= 4
    return few and row_count(nest) >= MANY_ELEMENTS and all(port.level == "row" for port in kernel.outputs)


def _who_runs_a_row(nest: LoopNest) -> Runner:
    kernel, rows, points, along = nest.kernel, row_count(nest), _points(nest), nest.step.vector_axis == "inner"
    if points <= 1 or any(stage.scan is not None for stage in kernel.stages):
        return "thread"
    if along and (points >= WORTH_A_BLOCK or rows < FEW_DEVICE_ROWS):
        return "warp" if points <= WARP_ROW else "block"
    if along:
        return "thread"
    worth = rows < MANY_DEVICE_ROWS and points >= WORTH_A_BLOCK
    return "columns" if worth and fold_bytes(kernel) and not remembers(kernel) else "thread"


def fold_bytes(kernel: Kernel) -> list[int]:
    """The bytes of a partial result for each reduction of a kernel."""
    pairs = [(t, r) for stage in kernel.stages for t, r in zip(stage.sinks, stage.body.results, strict=True)]
    return [partial_bytes(t.reduce, r.type) for t, r in pairs if t.reduce is not None and isinstance(r.type, Scalar)]


def _blocks_for_a_row(nest: LoopNest) -> int:
    """How many blocks share a row (or 32): more than one only where a single sweep reduces it, by its sizes alone."""
    kernel, together = nest.kernel, nest.rows.by
    sweeps = [stage for stage in kernel.stages if stage.level == "point"]
    if together in ("thread", "warp") or len(sweeps) != 1 or not fold_bytes(kernel) or remembers(kernel):
        return 1
    lanes = MOST_THREADS if together == "block" else MOST_THREADS // COLUMNS
    return max(1, min(ENOUGH_BLOCKS // max(1, tile_count(nest)), _points(nest) // (lanes * LEAST_POINTS)))


def remembers(kernel: Kernel) -> bool:
    """Whether a kernel's threads need memory for tapes."""
    functions = [f for stage in kernel.stages for f in reachable_functions([stage.body])]
    types = {node.type for function in functions for node in nodes_of(function)}
    return any(isinstance(inner, Tape) for type in types for inner in inner_types(type))


def _launch(nest: LoopNest, rows: int) -> tuple[int, int]:
    """Blocks, and threads of a block, for so many rows (or tiles of them, or shares of those)."""
    kernel, runner = nest.kernel, nest.rows.by
    threads = most = HEAVY_THREADS if nest.heavy else MOST_THREADS
    if runner != "thread":
        grid = -(-rows * WARP // threads) if runner == "warp" else rows
        if any(port.scratch for port in kernel.outputs):
            grid = min(grid, MOST_BLOCKS_WITH_MEMORY)
    else:
        threads = min(most, max(WARP, 1 << max(0, rows - 1).bit_length()))
        grid = -(-rows // (threads * rows_at_once(nest)))
        # Beyond that, threads take several rows: what they prepare once, such as numbers of the arguments, pays more.
        grid = min(grid, MOST_BLOCKS)
        if any(port.scratch for port in kernel.outputs):
            grid = min(grid, MOST_THREADS_WITH_MEMORY // threads)
    if remembers(kernel):
        grid = min(grid, MOST_THREADS_WITH_MEMORY // threads)
    return min(grid, (1 << 31) - 1), threads


def partial_bytes(kind: str, type: Scalar) -> int:
    """The bytes of a partial result of a reduction; argmin and argmax also store the index.

    >>> from livegrad.ir.types import f32
    >>> partial_bytes("sum", f32), partial_bytes("argmax", f32)
    (4, 16)
    """
    return 16 if kind.startswith("arg") else 4 if type is f16 else type.dtype.itemsize
