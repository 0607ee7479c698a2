"""LLVM IR text that packs operands of matrix products: into panels in which the numbers of a line follow each other.

Called by `gemm_ir.py`. Lines along memory are copied; where they lie across it, squares are turned in registers.
"""

from __future__ import annotations

from dataclasses import dataclass

from livegrad.backends.cpu.native.vector_ir import (
    Text,
    TileShapes,
    column_masks,
    kernel_text,
    load_vector,
    store_vector,
)

PACK_WORDS = (
    "right", "packed", "columns", "inner", "right_step", "right_column", "right_matrix",
    "packed_step", "packed_panel", "packed_matrix", "panels",
)  # fmt: skip


@dataclass(frozen=True)
class Panel:
    """A panel to pack: `lines` lines of `count` numbers, as many as a tile is wide or high; distances in bytes."""

    source: str
    line: str
    number: str
    count: str
    lines: str
    target: str
    target_line: str


def call_pack(text: Text, panel: Panel) -> None:
    text.line(
        f"call void @pack_panel(ptr {panel.source}, i64 {panel.line}, i64 {panel.number}, i64 {panel.count},"
        f" i64 {panel.lines}, ptr {panel.target}, i64 {panel.target_line})"
    )


def pack_kernel(shapes: TileShapes) -> str:
    """Item i is a panel of a matrix."""
    text = Text()
    w = text.words(PACK_WORDS)
    with text.loop("%begin", "%end", 1) as item:
        number = text.value(f"urem i64 {item}, {w['panels']}")
        matrix = text.value(f"udiv i64 {item}, {w['panels']}")
        column = text.value(f"mul i64 {number}, {shapes.panel}")
        panel = Panel(
            text.moved(w["right"], (matrix, w["right_matrix"]), (column, w["right_column"])),
            w["right_step"], w["right_column"],
            text.least(text.value(f"sub i64 {w['columns']}, {column}"), str(shapes.panel)), w["inner"],
            text.moved(w["packed"], (matrix, w["packed_matrix"]), (number, w["packed_panel"])), w["packed_step"],
        )  # fmt: skip
        call_pack(text, panel)
    return kernel_text("pack", text)


def pack_panel(shapes: TileShapes) -> str:
    """The function that packs one panel: line by line, or by turning squares where the lines lie across memory."""
    text = Text()
    masks = column_masks(text, shapes, "%count", -(-max(shapes.panel, shapes.heights[0]) // shapes.lanes))
    consecutive = text.value(f"icmp eq i64 %number, {shapes.bytes}")
    upright = text.value(f"icmp eq i64 %line, {shapes.bytes}")
    text.line(f"br i1 {consecutive}, label %rows, label %across")
    text.open("rows")
    _copy_lines(text, shapes, "0", masks, gather=False)
    text.line("ret void")
    text.open("across")
    turned = text.value(f"and i64 %lines, {-shapes.lanes}")
    first = text.value(f"select i1 {upright}, i64 {turned}, i64 0")
    with text.loop("0", "%count", shapes.lanes) as part:
        source, target = text.moved("%source", (part, "%number")), text.moved("%target", (part, shapes.bytes))
        count = text.value(f"sub i64 %count, {part}")
        text.line(
            f"call void @turn_squares(ptr {source}, i64 %number, i64 {count}, i64 {first}, ptr {target},"
            " i64 %target_line)"
        )
    _copy_lines(text, shapes, first, masks, gather=True)
    text.line("ret void")
    parameters = "ptr %source, i64 %line, i64 %number, i64 %count, i64 %lines, ptr %target, i64 %target_line"
    return "\n".join([f"define internal void @pack_panel({parameters}) #0 {{", "start:", *text.lines, "}"])


def _copy_lines(text: Text, shapes: TileShapes, first: str, masks: list[str], gather: bool) -> None:
    vector, lanes = f"<{shapes.lanes} x {shapes.element}>", shapes.lanes
    parts = range(len(masks)) if gather else ()
    distances = [_multiples(text, shapes, "%number", lanes * part) for part in parts]
    with text.loop(first, "%lines", 1) as line:
        source = text.moved("%source", (line, "%line"))
        target = text.moved("%target", (line, "%target_line"))
        for number, mask in enumerate(masks):
            if gather:
                places = text.value(f"getelementptr i8, ptr {source}, <{lanes} x i64> {distances[number]}")
                function = f"@llvm.masked.gather.v{lanes}f{shapes.bytes * 8}.v{lanes}p0"
                value = text.value(
                    f"call {vector} {function}(<{lanes} x ptr> {places}, i32 {shapes.bytes}, <{lanes} x i1> {mask},"
                    f" {vector} zeroinitializer)"
                )
            else:
                value = load_vector(text, shapes, source, number, masks)
            store_vector(text, shapes, value, target, number * shapes.vector_bytes, mask)


def _multiples(text: Text, shapes: TileShapes, distance: str, first: int) -> str:
    numbers = f"<{shapes.lanes} x i64>"
    one = text.value(f"insertelement {numbers} poison, i64 {distance}, i64 0")
    every = text.value(f"shufflevector {numbers} {one}, {numbers} poison, <{shapes.lanes} x i32> zeroinitializer")
    lanes = ", ".join(f"i64 {first + lane}" for lane in range(shapes.lanes))
    return text.value(f"mul {numbers} {every}, <{lanes}>")


def turn_squares(shapes: TileShapes) -> str:
    """The function that turns squares of numbers, whose lines lie across memory, in registers."""
    text = Text()
    lanes = shapes.lanes
    (mask,) = column_masks(text, shapes, "%count", 1)
    last = text.value("sub i64 %count, 1")
    # Where there are fewer numbers than lanes, the last one is read again.
    sources = [text.moved("%source", (text.least(str(lane), last), "%number")) for lane in range(lanes)]
    with text.loop("0", "%lines", lanes) as line:
        distance = text.value(f"mul i64 {line}, {shapes.bytes}")
        values = []
        for source in sources:
            values.append(load_vector(text, shapes, text.moved(source, (distance, 1)), 0, None))
        target = text.moved("%target", (line, "%target_line"))
        for value in _turned(text, shapes, values):
            store_vector(text, shapes, value, target, 0, mask)
            target = text.moved(target, ("%target_line", 1))
    text.line("ret void")
    parameters = "ptr %source, i64 %number, i64 %count, i64 %lines, ptr %target, i64 %target_line"
    return "\n".join([f"define internal void @turn_squares({parameters}) #0 {{", "start:", *text.lines, "}"])


def _turned(text: Text, shapes: TileShapes, values: list[str]) -> list[str]:
    """The transposition of a square of vectors: in each stage, pairs exchange blocks of half the size."""
    lanes, vector = shapes.lanes, f"<{shapes.lanes} x {shapes.element}>"
    distance = lanes // 2
    while distance:
        low = [lane if not lane & distance else lanes + lane - distance for lane in range(lanes)]
        high = [lane + distance if not lane & distance else lanes + lane for lane in range(lanes)]
        following = list(values)
        for first in range(lanes):
            if not first & distance:
                second = first + distance
                for at, pattern in ((first, low), (second, high)):
                    chosen = ", ".join(f"i32 {lane}" for lane in pattern)
                    following[at] = text.value(
                        f"shufflevector {vector} {values[first]}, {vector} {values[second]}, <{lanes} x i32> <{chosen}>"
                    )
        values = following
        distance //= 2
    return values
