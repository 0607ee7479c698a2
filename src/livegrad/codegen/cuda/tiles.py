"""Emits square tiles of rows as CUDA C: transposed reads go through shared memory.

A block computes one tile at a time. Reads that are contiguous along another dimension than the last are staged in
shared memory, so that loads and stores are coalesced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from livegrad.codegen.cuda.kernel_accesses import KernelAccesses
from livegrad.codegen.cuda.kernel_values import memory_type
from livegrad.schedule.loops.cost_model import MOST_THREADS, TILE_SIDE


def write_tiles(kernel: KernelAccesses, run_stages: Callable[[], None]) -> None:
    """Emits the loop over tiles; `run_stages` emits the code for one row."""
    writer, nest = kernel.writer, kernel.nest
    tiled, side = nest.tiled_reads, TILE_SIDE
    for read in tiled:
        # A column of padding, so that the threads of a warp read different banks.
        writer.line(f"__shared__ {memory_type(kernel.kernel.reads[read].element)} tile{read}[{side}][{side + 1}];")
    writer.line(f"const int across = threadIdx.x % {side}, down = threadIdx.x / {side};")
    sides = (nest.tiled_dimension, nest.domain_rank - 1)
    extents = [f"(row_index){kernel.slot(f'domain{d}')}" for d in range(nest.domain_rank)]
    counts = [f"(({e} + {side - 1}) / {side})" if d in sides else e for d, e in enumerate(extents)]
    with writer.block(f"for (row_index tile = blockIdx.x; tile < {' * '.join(counts)}; tile += gridDim.x)"):
        writer.line("row_index rest = tile;")
        for dimension in reversed(range(nest.domain_rank)):
            name = f"t{dimension}" if dimension in sides else kernel.domain[dimension]
            writer.line(f"const row_index {name} = rest % {counts[dimension]};")
            writer.line(f"rest /= {counts[dimension]};")
        with _rows(kernel, sides, extents, ("across", "down + k")):
            for read in tiled:
                lvalue = kernel.element("read", read, kernel.kernel.reads[read], nest.reads[read].strides)
                writer.line(f"tile{read}[down + k][across] = {lvalue};")
        writer.line("__syncthreads();")
        kernel.preloaded = {read: f"tile{read}[across][down + k]" for read in tiled}
        with _rows(kernel, sides, extents, ("down + k", "across")):
            linear = "0"
            for name, extent in zip(kernel.domain, extents, strict=True):
                linear = f"({linear} * {extent} + {name})"
            writer.line(f"const row_index row = {linear};")
            run_stages()
        writer.line("__syncthreads();")


@contextmanager
def _rows(
    kernel: KernelAccesses, sides: tuple[int, int], extents: list[str], offsets: tuple[str, str]
) -> Iterator[None]:
    """Code emitted inside runs for each of this thread's rows of a tile, at these offsets along the two sides."""
    writer = kernel.writer
    writer.line("#pragma unroll")
    with writer.block(f"for (int k = 0; k < {TILE_SIDE}; k += {MOST_THREADS // TILE_SIDE})"):
        for dimension, offset in zip(sides, offsets, strict=True):
            writer.line(f"const row_index {kernel.domain[dimension]} = t{dimension} * {TILE_SIDE} + {offset};")
        inside = [f"{kernel.domain[dimension]} < {extents[dimension]}" for dimension in sides]
        with writer.block(f"if ({' && '.join(inside)})"):
            yield
