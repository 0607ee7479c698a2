"""Emits a parallel scan of a row as CUDA C, for the threads of a warp or a block.

The row is scanned tile by tile. Each thread scans a few neighbouring points; the totals of all threads are scanned by
shuffles and through shared memory; and the total of all previous tiles is carried from tile to tile.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from livegrad.codegen.c.operands import Text
from livegrad.codegen.cuda.kernel_accesses import KernelAccesses
from livegrad.codegen.cuda.reductions import Reduction
from livegrad.ir.types import Scalar
from livegrad.schedule.kernel import Scan, Sink, Stage
from livegrad.schedule.loops.cost_model import SCANNED_POINTS

_FOR_EACH_POINT = f"for (int k = 0; k < {SCANNED_POINTS}; ++k)"


def write_shared_scan(kernel: KernelAccesses, stage: Stage, scan: Scan) -> None:
    """Emits the scan of the current row, with an associative operation."""
    writer, type = kernel.writer, stage.body.results[0].type
    assert isinstance(type, Scalar)
    carried = Reduction(writer, Sink("row", 0, scan.kind), type)
    _, lanes = kernel.lanes()
    writer.line(f"{carried.c_type} item[{SCANNED_POINTS}];")
    if kernel.runner == "block":
        writer.line(f"__shared__ {carried.c_type} totals[32];")  # of warps
    with writer.block(f"for (row_index base = 0; base < {_count(kernel)}; base += ({lanes}) * {SCANNED_POINTS})"):
        writer.line(f"{_FOR_EACH_POINT} item[k] = {carried.start};")
        with _points(kernel, scan):
            (value,) = writer.scalars(stage.body, [Text(carried.start, type), *kernel.arguments(stage)])
            writer.line(f"item[k] = {value.text};")
        follow = carried.combination("item[k - 1]", "item[k]")
        writer.line(f"for (int k = 1; k < {SCANNED_POINTS}; ++k) item[k] = {follow};")
        last = f"item[{SCANNED_POINTS - 1}], {carried.start}"
        call = f"lg_block_scan({last}, totals" if kernel.runner == "block" else f"lg_warp_scan({last}"
        writer.line(f"const lg_scanned<{carried.c_type}> scanned = {call}, {carried.functor});")
        writer.line(f"const {carried.c_type} before = {carried.combination(carried.name, 'scanned.before')};")
        with _points(kernel, scan):
            result = carried.combination("before", "item[k]")
            if scan.exclusive:
                result = f"k == 0 ? before : {carried.combination('before', 'item[k == 0 ? 0 : k - 1]')}"
            kernel.store(stage.sinks[0], writer.value(result, type))
        writer.line(f"{carried.name} = {carried.combination(carried.name, 'scanned.total')};")


def _count(kernel: KernelAccesses) -> str:
    return f"(row_index){kernel.slot('inner0')}"


@contextmanager
def _points(kernel: KernelAccesses, scan: Scan) -> Iterator[None]:
    """Code emitted inside runs for each of this thread's points of a tile that is in the row."""
    writer, (lane, _), count = kernel.writer, kernel.lanes(), _count(kernel)
    writer.line("#pragma unroll")
    with writer.block(_FOR_EACH_POINT):
        writer.line(f"const row_index p = base + ({lane}) * {SCANNED_POINTS} + k;")
        with writer.block(f"if (p < {count})"):
            writer.line(f"const row_index {kernel.inner[0]} = {f'{count} - 1 - p' if scan.reverse else 'p'};")
            yield
