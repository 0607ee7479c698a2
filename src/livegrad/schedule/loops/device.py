"""Loop passes for CUDA devices: the mapping of rows to threads, warps and blocks, and the launch size."""

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
    """Decides what runs a row: a thread, a warp, a block, or a block that runs 32 rows in columns of threads."""
    return nest.change(nest.rows, by=_choose_runner(nest))


def share_rows(nest: LoopNest) -> LoopNest:
    """Lets several blocks share a long row. The last block to finish stores the combined reduction."""
    blocks = _choose_blocks_per_row(nest) if nest.shares_rows else 1
    if blocks == 1:
        return nest
    first, *others = nest.loops
    return nest.replace(loops=(first, Loop("parallel", "inner", blocks, by="block"), *others))


def keep_rows(nest: LoopNest) -> LoopNest:
    """Keeps each thread's part of a row in registers, so that later sweeps of a warp or block read no memory."""
    elements = kept_accesses(nest)
    if not elements or nest.rows.by not in ("warp", "block") or blocks_of_a_row(nest) > 1 or not _can_keep_rows(nest):
        return nest
    points, nodes = _points(nest), _node_count(nest.kernel)
    if nodes > MANY_NODES:
        return nest
    for threads in (WARP, 128, 256, 512, LARGEST_BLOCK):
        # A power of two, so that rows of many lengths share code.
        points_per_thread = 1 << (-(-points // threads) - 1).bit_length()
        registers = points_per_thread * sum(-(-element.dtype.itemsize // 4) for element in elements)
        limit = min(KEPT_REGISTERS, DEVICE_REGISTERS // (2 * threads))  # half of the registers of a thread
        fits = points_per_thread <= KEPT_POINTS and points_per_thread * nodes <= KEPT_NODES
        if fits and registers <= limit:
            nest = nest.replace(kept_points=points_per_thread, whole_rows=points_per_thread * threads == points)
            return (
                nest.change(nest.rows, by="warp")
                if threads == WARP
                else nest.change(nest.rows, by="block", step=threads)
            )
    return nest


def kept_accesses(nest: LoopNest) -> list[Scalar]:
    """The element types that a thread would keep for each point: repeated reads, and scratch memory."""
    kernel = nest.kernel
    scratch = [port.element for port in kernel.outputs if port.scratch]
    return [*scratch, *[kernel.reads[read].element for read in repeated_reads(kernel)]]


def repeated_reads(kernel: Kernel) -> list[int]:
    """The indices of reads at inner points that several sweeps of a row repeat."""
    uses = Counter(
        source.number
        for stage in kernel.stages
        if stage.level == "point"
        for source in dict.fromkeys(stage.sources)
        if source.kind == "read" and kernel.reads[source.number].level == "point"
    )
    return sorted(read for read, count in uses.items() if count > 1 and not kernel.reads[read].scratch)


def scratch_output(nest: LoopNest, read: int) -> int | None:
    """The scratch output that a read reads at the same points; None if the points differ."""
    step, dimensions = nest.step, nest.dimensions
    for output, (access, view) in enumerate(zip(nest.kernel.outputs, step.outputs, strict=True)):
        if access.scratch and view.buffer.base is step.reads[read].buffer.base:
            return output if dimensions.outputs[output] == dimensions.reads[read] else None
    return None


def tile_transposed_reads(nest: LoopNest) -> LoopNest:
    """Lets a block take a square of rows and transpose strided reads through shared memory."""
    if nest.rows.by != "thread" or nest.inner_rank or nest.domain_rank < 2 or uses_tapes(nest.kernel):
        return nest
    if row_count(nest) < LEAST_TILED or nest.dimensions.domain[-1] < TILE_SIDE or _node_count(nest.kernel) > MANY_NODES:
        return nest
    dimension, reads = _find_transposed_reads(nest)
    if not reads or nest.dimensions.domain[dimension] < TILE_SIDE:
        return nest
    nest = nest.replace(tiled_reads=reads, tiled_dimension=dimension)
    return nest.change(nest.rows, by="tile")


def _find_transposed_reads(nest: LoopNest) -> tuple[int, tuple[int, ...]]:
    """The dimension along which most reads that are strided along the last one are contiguous, and these reads."""
    last = nest.domain_rank - 1
    contiguous: dict[int, list[int]] = {}
    for read, access in enumerate(nest.reads):
        if access.strides[last] == "any" and "one" in access.strides[:last]:
            contiguous.setdefault(access.strides.index("one"), []).append(read)
    dimension = max(contiguous, key=lambda candidate: len(contiguous[candidate]), default=0)
    return dimension, tuple(contiguous.get(dimension, ())[:MOST_TILED_READS])


def batch_rows(nest: LoopNest) -> LoopNest:
    """Lets a thread read several rows before it computes any, if a single stage does little work per element."""
    if not _can_batch(nest):
        return nest
    first, *others = nest.loops
    return nest.replace(loops=(first, Loop("unrolled", "domain", ROWS_AT_ONCE), *others))


def choose_index_width(nest: LoopNest) -> LoopNest:
    """Uses 32-bit indices if every count and offset fits, because 32-bit division is much faster."""
    sizes = (*nest.dimensions.domain, *nest.dimensions.inner)
    strides = (*nest.dimensions.reads, *nest.dimensions.outputs)
    reach = [
        sum(abs(s) * (n - 1) for s, n in zip(strides_of_access, sizes, strict=False)) for strides_of_access in strides
    ]
    reach += [
        sum(abs(s) * n for s, n in zip(buffer.strides, buffer.shape, strict=True))
        for buffer in nest.step.indexed_buffers
    ]
    counts = (prod(nest.dimensions.domain), prod(nest.dimensions.inner))
    return nest.replace(index="int" if max([*counts, *reach], default=0) < SHORT_INDEX else "long long")


def choose_launch(nest: LoopNest) -> LoopNest:
    """Decides the number of blocks, and the number of threads in each."""
    nest = nest.replace(heavy=_node_count(nest.kernel) > MANY_NODES)
    grid, threads = _choose_launch_size(nest, tile_count(nest) * blocks_of_a_row(nest))
    return nest.change(nest.rows, extent=grid, step=threads)


def row_count(nest: LoopNest) -> int:
    return prod(nest.dimensions.domain)


def tile_count(nest: LoopNest) -> int:
    """The number of rows, or of groups of rows that a block takes together."""
    if nest.rows.by == "tile":
        sides = (nest.tiled_dimension, nest.domain_rank - 1)
        sizes = enumerate(nest.dimensions.domain)
        return prod(-(-size // TILE_SIDE) if dimension in sides else size for dimension, size in sizes)
    return -(-row_count(nest) // COLUMNS) if nest.rows.by == "columns" else row_count(nest)


def blocks_of_a_row(nest: LoopNest) -> int:
    """The number of blocks that share a row."""
    shared = nest.loop("parallel", "inner", "block")
    return 1 if shared is None else shared.extent


def rows_at_once(nest: LoopNest) -> int:
    """The number of rows that a thread reads before it computes any."""
    batch = nest.loop("unrolled", "domain")
    return 1 if batch is None else batch.extent


def worker_count(nest: LoopNest) -> int:
    """The number of concurrent workers, each with private scratch memory or tapes."""
    grid, threads, runner = nest.rows.extent, nest.rows.step, nest.rows.by
    if runner in ("thread", "tile") or uses_tapes(nest.kernel):
        return grid * threads
    return grid * threads // WARP if runner == "warp" else grid


def _points(nest: LoopNest) -> int:
    """The number of inner points of a row."""
    return 1 if nest.points is None else nest.points.extent


def _node_count(kernel: Kernel) -> int:
    functions = [f for stage in kernel.stages for f in reachable_functions([stage.body])]
    return sum(len(list(nodes_of(function))) for function in functions)


def _can_batch(nest: LoopNest) -> bool:
    """Whether a single stage does little work for each of many elements."""
    kernel = nest.kernel
    if nest.rows.by != "thread" or len(kernel.stages) != 1 or kernel.stages[0].level != "row" or uses_tapes(kernel):
        return False
    is_cheap = _node_count(kernel) <= FEW_NODES and 1 <= len(kernel.reads) <= 4
    return is_cheap and row_count(nest) >= MANY_ELEMENTS and all(port.level == "row" for port in kernel.outputs)


def _can_keep_rows(nest: LoopNest) -> bool:
    """Whether each thread visits the same points of a row in every sweep, and reads scratch memory only there."""
    kernel = nest.kernel
    if nest.is_split or uses_tapes(kernel) or kernel.scans:
        return False
    scratch_reads = [index for index, access in enumerate(kernel.reads) if access.scratch]
    return all(scratch_output(nest, read) is not None for read in scratch_reads)


def _choose_runner(nest: LoopNest) -> Runner:
    kernel, rows, points, along_inner = nest.kernel, row_count(nest), _points(nest), nest.step.vector_axis == "inner"
    if points > 1 and kernel.stages[0].scan is not None:
        return _choose_scan_runner(nest)
    if points <= 1:
        return "thread"
    if along_inner and (points >= WORTH_A_BLOCK or rows < FEW_DEVICE_ROWS):
        return "warp" if points <= WARP_ROW else "block"
    if along_inner:
        return "thread"
    is_worth_a_block = rows < MANY_DEVICE_ROWS and points >= WORTH_A_BLOCK
    return "columns" if is_worth_a_block and fold_bytes(kernel) and not uses_tapes(kernel) else "thread"


def _choose_scan_runner(nest: LoopNest) -> Runner:
    """Threads share a scan if its operation is associative, unless there are enough rows adjacent in memory."""
    (stage,), points = nest.kernel.stages, _points(nest)
    is_contiguous = nest.outputs[0].strides[-1] == "one"
    if stage.scan is None or stage.scan.kind is None or nest.inner_rank != 1 or points < WORTH_A_BLOCK:
        return "thread"
    if not is_contiguous and row_count(nest) >= FEW_DEVICE_ROWS:
        return "thread"
    return "warp" if points <= WARP_ROW else "block"


def fold_bytes(kernel: Kernel) -> list[int]:
    """The bytes of a partial result, for each reduction of a kernel."""
    pairs = [(t, r) for stage in kernel.stages for t, r in zip(stage.sinks, stage.body.results, strict=True)]
    return [partial_bytes(t.reduce, r.type) for t, r in pairs if t.reduce is not None and isinstance(r.type, Scalar)]


def _choose_blocks_per_row(nest: LoopNest) -> int:
    """The number of blocks that share a row, or a group of 32 rows. More than one only if a single sweep reduces it.

    The number depends on sizes alone, so that results do not depend on the device.
    """
    kernel, runner = nest.kernel, nest.rows.by
    sweeps = [stage for stage in kernel.stages if stage.level == "point"]
    if runner in ("thread", "warp") or len(sweeps) != 1 or not fold_bytes(kernel) or uses_tapes(kernel):
        return 1
    lanes = MOST_THREADS if runner == "block" else MOST_THREADS // COLUMNS
    return max(1, min(ENOUGH_BLOCKS // max(1, tile_count(nest)), _points(nest) // (lanes * LEAST_POINTS)))


def uses_tapes(kernel: Kernel) -> bool:
    """Whether a kernel's threads need memory for tapes."""
    functions = [f for stage in kernel.stages for f in reachable_functions([stage.body])]
    types = {node.type for function in functions for node in nodes_of(function)}
    return any(isinstance(inner, Tape) for type in types for inner in inner_types(type))


def _choose_launch_size(nest: LoopNest, rows: int) -> tuple[int, int]:
    """The number of blocks and of threads per block, for this many rows, tiles of rows, or parts of rows."""
    kernel, runner = nest.kernel, nest.rows.by
    threads = most = nest.rows.step or (HEAVY_THREADS if nest.heavy else MOST_THREADS)
    if runner != "thread":
        grid = -(-rows * WARP // threads) if runner == "warp" else rows
        if any(port.scratch for port in kernel.outputs) and not nest.kept_points:
            grid = min(grid, MOST_BLOCKS_WITH_MEMORY)
    else:
        threads = min(most, max(WARP, 1 << max(0, rows - 1).bit_length()))
        grid = -(-rows // (threads * rows_at_once(nest)))
        # Beyond this limit, threads take several rows, which amortises their setup.
        grid = min(grid, MOST_BLOCKS)
        if any(port.scratch for port in kernel.outputs):
            grid = min(grid, MOST_THREADS_WITH_MEMORY // threads)
    if uses_tapes(kernel):
        grid = min(grid, MOST_THREADS_WITH_MEMORY // threads)
    return min(grid, (1 << 31) - 1), threads


def partial_bytes(kind: str, type: Scalar) -> int:
    """The bytes of a partial result of a reduction; argmin and argmax also store the index.

    >>> from livegrad.ir.types import f32
    >>> partial_bytes("sum", f32), partial_bytes("argmax", f32)
    (4, 16)
    """
    return 16 if kind.startswith("arg") else 4 if type is f16 else type.dtype.itemsize
