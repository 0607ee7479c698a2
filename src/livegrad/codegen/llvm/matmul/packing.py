"""Emits the packing of matrix product operands into contiguous panels, as LLVM IR.

Called by `matmul_module.py`. Contiguous lines are copied; strided lines are transposed in registers, square by square.
"""

from __future__ import annotations

from dataclasses import dataclass

from livegrad.codegen.llvm.builder import lane_constants
from livegrad.codegen.llvm.counted_loops import OpenLoop
from livegrad.codegen.llvm.matmul.tile_shapes import TileShapes
from livegrad.codegen.llvm.matmul.tile_vectors import (
    SpacedVectors,
    column_masks,
    gather_vector,
    load_vector,
    store_vector,
    widen,
)
from livegrad.codegen.llvm.registers import pointer
from livegrad.codegen.llvm.values import LlvmModule, PoolKernel, Procedure, Value, call, counting, integer, smallest
from livegrad.ir.types import i64

PACK_SLOTS = {
    "right": pointer, "packed": pointer, "columns": i64, "inner": i64, "right_step": i64, "right_column": i64,
    "right_matrix": i64, "packed_step": i64, "packed_panel": i64, "packed_matrix": i64, "panel": i64, "panels": i64,
}  # fmt: skip
SUM_SLOTS = {"packed": pointer, "out": pointer, "parts": i64, "part": i64, "size": i64, "block": i64}
PANEL_PARAMETERS = {
    "source": pointer, "line": i64, "number": i64, "count": i64, "lines": i64, "target": pointer, "target_line": i64,
}  # fmt: skip
ROW_PADDING = 64  # bytes between the rows of a packed block
_LINES_AT_ONCE = 32  # of a block packed from columns: its panels read parts of the same cache lines
_SQUARE_PARAMETERS = {
    "source": pointer, "number": i64, "count": i64, "lines": i64, "target": pointer, "target_line": i64,
}  # fmt: skip
_BLOCK_PARAMETERS = {
    "source": pointer, "left_row": i64, "left_step": i64, "rows": i64, "depth": i64, "target": pointer,
}  # fmt: skip


@dataclass(frozen=True)
class Panel:
    """A panel to pack: `lines` lines of `count` elements; strides in bytes."""

    source: Value
    line: Value
    number: Value  # from element to element of a line
    count: Value
    lines: Value
    target: Value
    target_line: Value


def call_pack(panel: Panel) -> None:
    call("@pack_panel", *vars(panel).values())


def pack_kernel(module: LlvmModule) -> None:
    """Defines the kernel that packs matrices. An item is a panel of a matrix."""
    kernel = PoolKernel(module, "pack")
    w = kernel.arguments(PACK_SLOTS)
    with counting(kernel.begin, kernel.end) as item:
        number, matrix = item % w["panels"], item // w["panels"]
        column = number * w["panel"]
        source = w["right"] + matrix * w["right_matrix"] + column * w["right_column"]
        count = smallest(w["columns"] - column, w["panel"])
        target = w["packed"] + matrix * w["packed_matrix"] + number * w["packed_panel"]
        call_pack(Panel(source, w["right_step"], w["right_column"], count, w["inner"], target, w["packed_step"]))
    kernel.finish(exported=True)


def pack_panel(module: LlvmModule, shapes: TileShapes) -> None:
    """Defines the function that packs one panel: line by line, or by transposing blocks if lines are strided."""
    function = Procedure(module, "pack_panel", PANEL_PARAMETERS)
    builder, p = function.builder, function.parameters
    builder.branch(p["number"].equals(shapes.bytes).register, "rows", "across")
    builder.begin("rows")
    # Lines of four vectors, of two, and the remainder.
    first = integer(builder, 0)
    for vectors in (4, 2):
        first = _copy_columns(shapes, p, first, vectors)
    _copy_parts(shapes, p, first, gather=False)
    builder.line("ret void")
    builder.begin("across")
    builder.branch(p["line"].equals(shapes.bytes).register, "upright", "anywhere")
    builder.begin("upright")
    with counting(0, p["count"], shapes.lanes) as part:
        source, target = p["source"] + part * p["number"], p["target"] + part * shapes.bytes
        call("@transpose_squares", source, p["number"], p["count"] - part, p["lines"], target, p["target_line"])
    builder.line("ret void")
    builder.begin("anywhere")
    _copy_parts(shapes, p, integer(builder, 0), gather=True)
    function.finish(exported=True)


def _copy_columns(shapes: TileShapes, p: dict[str, Value], first: Value, vectors: int) -> Value:
    """Copies lines of `vectors` whole vectors; returns the index of the element after them."""
    unit = vectors * shapes.lanes
    end = first + ((p["count"] - first) & -unit)
    with counting(first, end, unit) as part:
        source_start, target_start = (p[side] + part * shapes.bytes for side in ("source", "target"))
        with counting(0, p["lines"]) as line:
            source, target = source_start + line * p["line"], target_start + line * p["target_line"]
            for number in range(vectors):
                store_vector(shapes, load_vector(shapes, source, number), target, number)
    return end


def _copy_parts(shapes: TileShapes, p: dict[str, Value], first: Value, *, gather: bool) -> None:
    """Copies vectors one by one, the last one under a mask."""
    offsets = _multiples(shapes, p["number"]) if gather else None
    with counting(first, p["count"], shapes.lanes) as part:
        (mask,) = column_masks(shapes, p["count"] - part, 1)
        source_start, target_start = p["source"] + part * p["number"], p["target"] + part * shapes.bytes
        with counting(0, p["lines"]) as line:
            source, target = source_start + line * p["line"], target_start + line * p["target_line"]
            if offsets is None:
                value = load_vector(shapes, source, mask=mask)
            else:
                value = gather_vector(shapes, source, offsets, mask)
            store_vector(shapes, value, target, mask=mask)


def _multiples(shapes: TileShapes, stride: Value) -> Value:
    """The offset of each lane: its number times the stride."""
    strides = widen(shapes, stride)
    return strides * strides.wrap(lane_constants(range(shapes.lanes), i64))


def transpose_squares(module: LlvmModule, shapes: TileShapes) -> None:
    """Defines the function that transposes square blocks of strided elements in registers, the last one masked."""
    function = Procedure(module, "transpose_squares", _SQUARE_PARAMETERS)
    builder, p = function.builder, function.parameters
    last = p["count"] - 1
    # If there are fewer elements than lanes, the last one is read again.
    lanes = [integer(builder, lane) for lane in range(shapes.lanes)]
    sources = [p["source"] + smallest(lane, last) * p["number"] for lane in lanes]
    (mask,) = column_masks(shapes, p["count"], 1)
    transpose_lines(shapes, sources, p["lines"], p["target"], p["target_line"], mask)
    function.finish()


def transpose_lines(
    shapes: TileShapes, sources: list[Value], count: Value, target: Value, target_line: Value | int, mask: Value,
    spacing: int = 1,
) -> None:  # fmt: skip
    """Stores `count` lines, each with one element of every source, by transposing blocks in registers.

    Consecutive elements of a source are `spacing` elements apart in memory.
    """
    builder, lanes, loads = count.builder, shapes.lanes, SpacedVectors(shapes, spacing)
    whole = count & -lanes
    with counting(0, whole, lanes) as line:
        offset = line * (spacing * shapes.bytes)
        values = [loads.load(source + offset) for source in sources]
        address = target + line * target_line
        for value in _transpose(shapes, values):
            store_vector(shapes, value, address, mask=mask)
            address = address + target_line
    rest = count - whole
    first, done = builder.label("rest"), builder.label("done")
    builder.branch((rest > 0).register, first, done)
    builder.begin(first)
    masked_loads = SpacedVectors(shapes, spacing, rest).prepare()
    offset = whole * (spacing * shapes.bytes)
    values = [masked_loads.load(source + offset) for source in sources]
    address = target + whole * target_line
    for number, value in enumerate(_transpose(shapes, values)):
        following = builder.label("line")
        builder.branch((rest > number).register, following, done)
        builder.begin(following)
        store_vector(shapes, value, address, mask=mask)
        address = address + target_line
    builder.jump(done)
    builder.begin(done)


def _transpose(shapes: TileShapes, values: list[Value]) -> list[Value]:
    """Transposes a square block of vectors: each stage swaps off-diagonal blocks of half the previous size."""
    builder, lanes = values[0].builder, shapes.lanes
    distance = lanes // 2
    while distance:
        low = [lane if not lane & distance else lanes + lane - distance for lane in range(lanes)]
        high = [lane + distance if not lane & distance else lanes + lane for lane in range(lanes)]
        following = list(values)
        for first in range(lanes):
            if not first & distance:
                second = first + distance
                for row, pattern in ((first, low), (second, high)):
                    pair = values[first], values[second]
                    following[row] = pair[0].wrap(builder.shuffle(pair[0].register, pattern, pair[1].register))
        values = following
        distance //= 2
    return values


def pack_block(module: LlvmModule, shapes: TileShapes, height: int) -> None:
    """Defines the function that packs a block of the left operand for the tiles.

    Contiguous rows are copied, with a cache line of padding; strided rows become panels as high as the highest tile.
    """
    function = Procedure(module, "pack_block", _BLOCK_PARAMETERS)
    builder, p = function.builder, function.parameters
    source, target, element = p["source"], p["target"], integer(builder, shapes.bytes)
    builder.branch(p["left_step"].equals(shapes.bytes).register, "along", "across")
    builder.begin("along")
    distance = padded_row(shapes, p["depth"])
    call_pack(Panel(source, p["left_row"], element, p["depth"], p["rows"], target, distance))
    builder.line("ret void")
    builder.begin("across")
    with counting(0, p["depth"], _LINES_AT_ONCE) as line, counting(0, p["rows"], height) as row:
        block_source = source + row * p["left_row"] + line * p["left_step"]
        count, lines = smallest(p["rows"] - row, height), smallest(p["depth"] - line, _LINES_AT_ONCE)
        packed = target + row * (p["depth"] * shapes.bytes) + line * (height * shapes.bytes)
        target_line = integer(builder, height * shapes.bytes)
        call_pack(Panel(block_source, p["left_step"], p["left_row"], count, lines, packed, target_line))
    function.finish()


def padded_row(shapes: TileShapes, depth: Value) -> Value:
    """The stride of packed rows: not a power of two, or many rows would share few sets of the cache."""
    return depth * shapes.bytes + ROW_PADDING


def sum_kernel(module: LlvmModule, shapes: TileShapes) -> None:
    """Defines the kernel that adds partial products, each over a stretch of the inner dimension, block by block."""
    kernel = PoolKernel(module, "sum")
    builder, w = kernel.builder, kernel.arguments(SUM_SLOTS)
    with counting(kernel.begin, kernel.end) as item:
        first = item * w["block"]
        last = smallest(first + w["block"], w["size"])
        with counting(first, last, shapes.lanes) as position:
            (mask,) = column_masks(shapes, last - position, 1)
            start = w["packed"] + position * shapes.bytes
            first_part = load_vector(shapes, start, mask=mask)
            loop = OpenLoop(builder, [builder.constant(1, i64), first_part.register])
            number, total = (Value(builder, register) for register in loop.carried)
            builder.branch((number < w["parts"]).register, loop.body, loop.done)
            builder.begin(loop.body)
            part = load_vector(shapes, start + number * w["part"], mask=mask)
            following = total + part
            loop.close([(number + 1).register, following.register])
            store_vector(shapes, total, w["out"] + position * shapes.bytes, mask=mask)
    kernel.finish(exported=True)
