"""Loop passes for CUDA devices: how many threads and blocks run a row."""

from __future__ import annotations

from collections import Counter
from math import prod

from livegrad.ir.types import Scalar, Tape, f16, inner_types
from livegrad.ir.walk import nodes_of, reachable_functions
from livegrad.schedule.kernel import Kernel
from livegrad.schedule.loops.cost_model import (
    COLUMNS,
    DEVICE_REGISTERS,
    ENOUGH_BLOCKS,
    FEW_DEVICE_ROWS,
    FEW_NODES,
    HEAVY_THREADS,
    KEPT_NODES,
    KEPT_POINTS,
    KEPT_REGISTERS,
    LARGEST_BLOCK,
    LEAST_POINTS,
    LEAST_TILED,
    MANY_DEVICE_ROWS,
    MANY_ELEMENTS,
    MANY_NODES,
    MOST_BLOCKS,
    MOST_BLOCKS_WITH_MEMORY,
    MOST_THREADS,
    MOST_THREADS_WITH_MEMORY,
    MOST_TILED_READS,
    ROWS_AT_ONCE,
    SHORT_INDEX,
    TILE_SIDE,
    WARP,
    WARP_ROW,
    WORTH_A_BLOCK,
)
from livegrad.schedule.loops.nest import Loop, LoopNest, Runner


def assign_rows(nest: LoopNest) -> LoopNest:
    """Decides who runs a row: a thread, a warp, a block, or a block that runs 32 rows in columns of threads."""
    return nest.change(nest.rows, by=_who_runs_a_row(nest))


def share_rows(nest: LoopNest) -> LoopNest:
    """Has several blocks share a long row; the last one to finish stores the combined reduction."""
    blocks = _blocks_for_a_row(nest) if nest.shares_rows else 1
    if blocks == 1:
        return nest
    first, *others = nest.loops
    return nest.replace(loops=(first, Loop("parallel", "inner", blocks, by="block"), *others))


def keep_rows(nest: LoopNest) -> LoopNest:
    """Has the threads of a warp or block keep their part of a row in registers, so that later sweeps read no memory."""
    kept = kept_accesses(nest)
    if not kept or nest.rows.by not in ("warp", "block") or blocks_of_a_row(nest) > 1 or not _may_keep(nest):
        return nest
    points, nodes = _points(nest), _node_count(nest.kernel)
    if nodes > MANY_NODES:
        return nest
    for threads in (WARP, 128, 256, 512, LARGEST_BLOCK):
        held = 1 << (-(-points // threads) - 1).bit_length()  # few kinds of code for many lengths of rows
        registers = held * sum(-(-element.dtype.itemsize // 4) for element in kept)
        most = min(KEPT_REGISTERS, DEVICE_REGISTERS // (2 * threads))  # half of what a thread has
        if held <= KEPT_POINTS and registers <= most and held * nodes <= KEPT_NODES:
            nest = nest.replace(kept_points=held, whole_rows=held * threads == points)
            return (
                nest.change(nest.rows, by="warp")
                if threads == WARP
                else nest.change(nest.rows, by="block", step=threads)
            )
    return nest


def kept_accesses(nest: LoopNest) -> list[Scalar]:
    """The elements of what a thread would keep of each point: reads of several sweeps, and scratch memory."""
    kernel = nest.kernel
    scratch = [port.element for port in kernel.outputs if port.scratch]
    return [*scratch, *[kernel.reads[number].element for number in repeated_reads(kernel)]]


def repeated_reads(kernel: Kernel) -> list[int]:
    """The reads of inner points that several sweeps of a row repeat."""
    uses = Counter(
        source.number
        for stage in kernel.stages
        if stage.level == "point"
        for source in dict.fromkeys(stage.sources)
        if source.kind == "read" and kernel.reads[source.number].level == "point"
    )
    return sorted(number for number, count in uses.items() if count > 1 and not kernel.reads[number].scratch)


def scratch_output(nest: LoopNest, read: int) -> int | None:
    """The output whose scratch memory a read takes up again; None if it reads other points than were written."""
    step, dimensions = nest.step, nest.dimensions
    for number, (port, view) in enumerate(zip(nest.kernel.outputs, step.outputs, strict=True)):
        if port.scratch and view.buffer.base is step.reads[read].buffer.base:
            return number if dimensions.outputs[number] == dimensions.reads[read] else None
    return None


def tile_transposed_reads(nest: LoopNest) -> LoopNest:
    """Has a block take a square of rows, and read through shared memory what lies in memory the other way round."""
    if nest.rows.by != "thread" or nest.inner_rank or nest.domain_rank < 2 or remembers(nest.kernel):
        return nest
    if row_count(nest) < LEAST_TILED or nest.dimensions.domain[-1] < TILE_SIDE or _node_count(nest.kernel) > MANY_NODES:
        return nest
    dimension, reads = _most_transposed(nest)
    if not reads or nest.dimensions.domain[dimension] < TILE_SIDE:
        return nest
    nest = nest.replace(tiled_reads=reads, tiled_dimension=dimension)
    return nest.change(nest.rows, by="tile")


def _most_transposed(nest: LoopNest) -> tuple[int, tuple[int, ...]]:
    """The dimension along which most reads that are strided along the last one are contiguous, and these reads."""
    last = nest.domain_rank - 1
    along: dict[int, list[int]] = {}
    for number, access in enumerate(nest.reads):
        if access.strides[last] == "any" and "one" in access.strides[:last]:
            along.setdefault(access.strides.index("one"), []).append(number)
    dimension = max(along, key=lambda candidate: len(along[candidate]), default=0)
    return dimension, tuple(along.get(dimension, ())[:MOST_TILED_READS])


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
    reach = [
        sum(abs(s) * (n - 1) for s, n in zip(strides_of_access, sizes, strict=False)) for strides_of_access in strides
    ]
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
    if nest.rows.by == "tile":
        sides = (nest.tiled_dimension, nest.domain_rank - 1)
        sizes = enumerate(nest.dimensions.domain)
        return prod(-(-size // TILE_SIDE) if number in sides else size for number, size in sizes)
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
    """The number of concurrent workers, each with private scratch memory or tapes."""
    grid, threads, runner = nest.rows.extent, nest.rows.step, nest.rows.by
    if runner in ("thread", "tile") or remembers(nest.kernel):
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
    if nest.rows.by != "thread" or len(kernel.stages) != 1 or kernel.stages[0].level != "row" or remembers(kernel):
        return False
    few = _node_count(kernel) <= FEW_NODES and 1 <= len(kernel.reads) <= 4
    return few and row_count(nest) >= MANY_ELEMENTS and all(port.level == "row" for port in kernel.outputs)


def _may_keep(nest: LoopNest) -> bool:
    """Whether each thread that sweeps a row visits the same points in every sweep, and scratch is read there alone."""
    kernel = nest.kernel
    if nest.is_split or remembers(kernel) or any(stage.scan is not None for stage in kernel.stages):
        return False
    scratch = [number for number, port in enumerate(kernel.reads) if port.scratch]
    return all(scratch_output(nest, number) is not None for number in scratch)


def _who_runs_a_row(nest: LoopNest) -> Runner:
    kernel, rows, points, along = nest.kernel, row_count(nest), _points(nest), nest.step.vector_axis == "inner"
    if points > 1 and kernel.stages[0].scan is not None:
        return _who_scans_a_row(nest)
    if points <= 1:
        return "thread"
    if along and (points >= WORTH_A_BLOCK or rows < FEW_DEVICE_ROWS):
        return "warp" if points <= WARP_ROW else "block"
    if along:
        return "thread"
    worth = rows < MANY_DEVICE_ROWS and points >= WORTH_A_BLOCK
    return "columns" if worth and fold_bytes(kernel) and not remembers(kernel) else "thread"


def _who_scans_a_row(nest: LoopNest) -> Runner:
    """Threads share a scan if its operation is associative, unless there are enough rows that lie side by side."""
    (stage,), points = nest.kernel.stages, _points(nest)
    along = nest.outputs[0].strides[-1] == "one"
    if stage.scan is None or stage.scan.kind is None or nest.inner_rank != 1 or points < WORTH_A_BLOCK:
        return "thread"
    if not along and row_count(nest) >= FEW_DEVICE_ROWS:
        return "thread"
    return "warp" if points <= WARP_ROW else "block"


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
    """Blocks, and threads of a block, for this many rows (or tiles of rows, or shares of a row)."""
    kernel, runner = nest.kernel, nest.rows.by
    threads = most = nest.rows.step or (HEAVY_THREADS if nest.heavy else MOST_THREADS)
    if runner != "thread":
        grid = -(-rows * WARP // threads) if runner == "warp" else rows
        if any(port.scratch for port in kernel.outputs) and not nest.kept_points:
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
