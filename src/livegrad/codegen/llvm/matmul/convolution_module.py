"""Emits convolutions as LLVM IR: implicit GEMM, with panels of the right operand packed directly from the image.

Called by `matmul_module.py`. A row of the right operand is a position in the window, a column a position of the window
in the image. The offset of an element is the sum of a row offset and a column offset. Each work item tabulates both,
packs its panels with them, and runs the tiles of matrix products.
"""

from __future__ import annotations

from livegrad.codegen.llvm.counted_loops import OpenLoop
from livegrad.codegen.llvm.matmul.blocks import TileCall, left_block, rows_of_tiles
from livegrad.codegen.llvm.matmul.packing import transpose_lines
from livegrad.codegen.llvm.matmul.tile_shapes import TileShapes
from livegrad.codegen.llvm.matmul.tile_vectors import (
    OPERAND_SLOTS,
    Slots,
    SpacedVectors,
    column_masks,
    gather_vector,
    store_vector,
)
from livegrad.codegen.llvm.registers import pointer
from livegrad.codegen.llvm.values import (
    LlvmModule,
    PoolKernel,
    Procedure,
    Value,
    call,
    counting,
    integer,
    largest,
    smallest,
)
from livegrad.ir.types import i64

# Rows and columns are numbered along up to four dimensions: the extents of all but the first, and their strides.
TABLE_SLOTS = ("extent1", "extent2", "extent3", "step0", "step1", "step2", "step3")
CONVOLVE_SLOTS = {
    **OPERAND_SLOTS, "rows": i64, "columns": i64,
    "inner": i64, "stretches": i64, "depth": i64,  # stretches of `inner` elements; tiles sum `depth` of them at once
    "left_row": i64, "left_step": i64, "left_stretch": i64, "left_group": i64,  # in bytes, like all strides here
    "right_group": i64, "right_matrix": i64, "out_row": i64, "out_group": i64, "out_matrix": i64, "out_part": i64,
    "groups": i64, "matrices": i64, "part_blocks": i64,  # blocks of the inner dimension that one part sums
    "row_block": i64, "row_blocks": i64, "column_block": i64, "column_blocks": i64,
    # Runs of lines or columns that are one or two elements apart have one entry in the table (spacing 0: no runs).
    "line_run": i64, "line_spacing": i64, "column_run": i64, "column_spacing": i64,
    **{f"line_{name}": i64 for name in TABLE_SLOTS}, **{f"column_{name}": i64 for name in TABLE_SLOTS},
    "scratch": pointer, "scratch_bytes": i64, "left_bytes": i64, "right_bytes": i64, "line_bytes": i64,
}  # fmt: skip
SPACINGS = (1, 2)  # of elements in a run
_FILL_PARAMETERS = {"target": pointer, "first": i64, "count": i64, **dict.fromkeys(TABLE_SLOTS, i64)}
_PACK_PARAMETERS = {
    "image": pointer,
    "lines": pointer, "line_run": i64, "line_spacing": i64, "line_place": i64, "line_count": i64,
    "columns": pointer, "column_run": i64, "column_spacing": i64, "column_place": i64, "column_count": i64,
    "target": pointer,
}  # fmt: skip


def convolve_kernel(module: LlvmModule, name: str, shapes: TileShapes, vectors: int) -> None:
    """Defines the kernel and its functions. An item is a block of columns and rows of a group of an image of a part."""
    wide, heights = shapes.panel(vectors), shapes.heights_of(vectors)
    _define_fill_table(module)
    _define_pack_windows(module, shapes, wide * shapes.bytes)
    kernel = PoolKernel(module, name)
    builder, w = kernel.builder, kernel.arguments(CONVOLVE_SLOTS)
    scratch = w["scratch"] + kernel.worker * w["scratch_bytes"]
    panels = scratch + w["left_bytes"]
    lines = panels + w["right_bytes"]
    columns = lines + w["line_bytes"]
    blocks = _ceiling(w["inner"], w["depth"])
    all_blocks = blocks * w["stretches"]
    with counting(kernel.begin, kernel.end) as item:
        column_number, rest = _split(item, w["column_blocks"])
        row_number, rest = _split(rest, w["row_blocks"])
        group, rest = _split(rest, w["groups"])
        matrix, part = _split(rest, w["matrices"])
        first_row = row_number * w["row_block"]
        rows = smallest(w["row_block"], w["rows"] - first_row)
        first_column = column_number * w["column_block"]
        count = smallest(w["column_block"], w["columns"] - first_column)
        column_place = _fill_table(w, "column", columns, first_column, count)
        left = w["left"] + group * w["left_group"] + first_row * w["left_row"]
        image = w["right"] + group * w["right_group"] + matrix * w["right_matrix"]
        out = w["out"] + part * w["out_part"] + matrix * w["out_matrix"] + group * w["out_group"]
        out = out + first_row * w["out_row"] + first_column * shapes.bytes
        first_block = part * w["part_blocks"]
        last_block = smallest(first_block + w["part_blocks"], all_blocks)
        with counting(first_block, last_block) as block:
            number, stretch = _split(block, blocks)
            inner = number * w["depth"]
            depth = smallest(w["depth"], w["inner"] - inner)
            adds = block.compare("ne", first_block)
            line_place = _fill_table(w, "line", lines, inner + stretch * w["inner"], depth)
            left_start = left + stretch * w["left_stretch"] + inner * w["left_step"]
            packed = left_block(shapes, w, left_start, scratch, rows, depth, heights[0])
            with counting(0, count, wide) as column:
                width = smallest(count - column, wide)
                call(
                    "@pack_windows", image, lines, w["line_run"], w["line_spacing"], line_place, depth, columns,
                    w["column_run"], w["column_spacing"], column_place + column, width, panels,
                )  # fmt: skip
                out_start = out + column * shapes.bytes
                zero, step = integer(builder, 0), integer(builder, wide * shapes.bytes)
                rows_of_tiles(heights, TileCall(w, packed, panels, zero, step, out_start, depth, width, adds), rows, 0)
    kernel.finish(exported=True)


def _split(number: Value, extent: Value) -> tuple[Value, Value]:
    """The index along an inner dimension, and the linear index over all outer dimensions."""
    return number % extent, number // extent


def _ceiling(a: Value, b: Value) -> Value:
    return (a + b - 1) // b


# --- tables of offsets -----------------------------------------------------------------------------------------------


def _fill_table(w: Slots, role: str, table: Value, first: Value, count: Value) -> Value:
    """Tabulates the offsets of the runs of `count` lines or columns; returns the index of the first in its run."""
    run = w[f"{role}_run"]
    start, first_run = _split(first, run)
    runs = _ceiling(start + count, run)
    call("@fill_table", table, first_run, runs, *[w[f"{role}_{name}"] for name in TABLE_SLOTS])
    return start


def _define_fill_table(module: LlvmModule) -> None:
    """Defines a loop over four dimensions, the last one fastest, that stores the offset of each point."""
    function = Procedure(module, "fill_table", _FILL_PARAMETERS)
    builder, p = function.builder, function.parameters
    indices, rest = [], p["first"]
    for extent in ("extent3", "extent2", "extent1"):
        index, rest = _split(rest, p[extent])
        indices.append(index)
    starts = [integer(builder, 0), rest, *reversed(indices)]
    loop = OpenLoop(builder, [start.register for start in starts])
    number, *counters = (Value(builder, register) for register in loop.carried)
    builder.branch((number < p["count"]).register, loop.body, loop.done)
    builder.begin(loop.body)
    products = [counter * p[f"step{axis}"] for axis, counter in enumerate(counters)]
    distance = (products[0] + products[1]) + (products[2] + products[3])
    (p["target"] + number * 8).store(distance)
    following: list[Value] = []
    carry = integer(builder, 1)
    for axis in (3, 2, 1):
        next_index = counters[axis] + carry
        full = next_index.equals(p[f"extent{axis}"])
        following.append(full.select(integer(builder, 0), next_index))
        carry = full.convert("zext", i64)
    following.append(counters[0] + carry)
    loop.close([(number + 1).register, *[value.register for value in reversed(following)]])
    function.finish()


# --- panels of windows -----------------------------------------------------------------------------------------------


def _define_pack_windows(module: LlvmModule, shapes: TileShapes, target_line: int) -> None:
    """Defines the function that packs a panel: copies runs of columns, transposes runs of lines, or gathers."""
    function = Procedure(module, "pack_windows", _PACK_PARAMETERS)
    builder, p = function.builder, function.parameters
    for role, write in (("column", _copy_runs), ("line", _transpose_runs)):
        for spacing in SPACINGS:
            runs, other = builder.label("runs"), builder.label("other")
            builder.branch(p[f"{role}_spacing"].equals(spacing).register, runs, other)
            builder.begin(runs)
            write(shapes, p, target_line, spacing)
            builder.line("ret void")
            builder.begin(other)
    _gather(shapes, p, target_line)
    function.finish()


def _entry(table: Value, number: Value) -> Value:
    return (table + number * 8).load(i64)


def _runs(p: dict[str, Value], role: str) -> tuple[Value, Value]:
    """The range of the runs of a panel: the first, and the one after the last."""
    place, count, run = (p[f"{role}_{name}"] for name in ("place", "count", "run"))
    return place // run, _ceiling(place + count, run)


def _part_of_run(p: dict[str, Value], role: str, run: Value) -> tuple[Value, Value, Value]:
    """The overlap of a panel with a run: its start in the panel, its length, and its start in the run."""
    start = run * p[f"{role}_run"] - p[f"{role}_place"]
    first = largest(start, 0)
    last = smallest(start + p[f"{role}_run"], p[f"{role}_count"])
    return first, last - first, first - start


def _copy_runs(shapes: TileShapes, p: dict[str, Value], target_line: int, spacing: int) -> None:
    """Copies runs of columns: whole vectors, and the last one under a mask."""
    first_run, last_run = _runs(p, "column")
    with counting(first_run, last_run) as run:
        first, count, place = _part_of_run(p, "column", run)
        source = p["image"] + _entry(p["columns"], run) + place * (spacing * shapes.bytes)
        target = p["target"] + first * shapes.bytes
        done = integer(run.builder, 0)
        for vectors in dict.fromkeys((target_line // shapes.vector_bytes, 2, 1)):
            unit = vectors * shapes.lanes
            end = done + (count - done) // unit * unit
            with counting(done, end, unit) as part:
                _copy_lines(shapes, p, source, target, part, target_line, SpacedVectors(shapes, spacing), vectors)
            done = end
        with counting(done, count, shapes.lanes) as part:
            masked = SpacedVectors(shapes, spacing, count - part).prepare()
            _copy_lines(shapes, p, source, target, part, target_line, masked, 1)


def _copy_lines(
    shapes: TileShapes, p: dict[str, Value], source: Value, target: Value, part: Value, target_line: int,
    loads: SpacedVectors, vectors: int,
) -> None:  # fmt: skip
    start = source + part * (loads.spacing * shapes.bytes)
    target_start = target + part * shapes.bytes
    with counting(0, p["line_count"]) as line:
        line_source = start + _entry(p["lines"], line)
        line_target = target_start + line * target_line
        for number in range(vectors):
            store_vector(shapes, loads.load(line_source, number), line_target, number, loads.mask)


def _transpose_runs(shapes: TileShapes, p: dict[str, Value], target_line: int, spacing: int) -> None:
    """Transposes runs of lines in registers, in square blocks."""
    first_run, last_run = _runs(p, "line")
    last = p["column_count"] - 1
    with counting(0, p["column_count"], shapes.lanes) as part:
        sources = []
        for lane in range(shapes.lanes):
            # If there are fewer columns than lanes, the last one is read again.
            place = smallest(part + lane, last) + p["column_place"]
            sources.append(p["image"] + _entry(p["columns"], place))
        (mask,) = column_masks(shapes, p["column_count"] - part, 1)
        target_start = p["target"] + part * shapes.bytes
        with counting(first_run, last_run) as run:
            first, count, place = _part_of_run(p, "line", run)
            offset = _entry(p["lines"], run) + place * (spacing * shapes.bytes)
            run_sources = [source + offset for source in sources]
            run_target = target_start + first * target_line
            transpose_lines(shapes, run_sources, count, run_target, target_line, mask, spacing)


def _gather(shapes: TileShapes, p: dict[str, Value], target_line: int) -> None:
    """Gathers elements that are not in runs."""
    with counting(0, p["column_count"], shapes.lanes) as part:
        (mask,) = column_masks(shapes, p["column_count"] - part, 1)
        entries = p["columns"] + part * 8 + p["column_place"] * 8
        # The table is padded: entries that the last vector reads past its end are not used.
        offsets = entries.load(i64, shapes.lanes, 8)
        target_start = p["target"] + part * shapes.bytes
        with counting(0, p["line_count"]) as line:
            line_source = p["image"] + _entry(p["lines"], line)
            value = gather_vector(shapes, line_source, offsets, mask)
            store_vector(shapes, value, target_start + line * target_line)
