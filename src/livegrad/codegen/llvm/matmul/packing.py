"""Packs operands of matrix products into contiguous panels, as LLVM IR.

Called by `matmul_module.py`. Contiguous lines are copied; strided lines are transposed in registers, square by square.
"""

from __future__ import annotations

from dataclasses import dataclass

from livegrad.codegen.llvm.vector_builder import (
    SpacedVectors,
    Text,
    TileShapes,
    column_masks,
    kernel_text,
    load_vector,
    store_vector,
)

PACK_WORDS = (
    "right", "packed", "columns", "inner", "right_step", "right_column", "right_matrix",
    "packed_step", "packed_panel", "packed_matrix", "panel", "panels",
)  # fmt: skip
SUM_WORDS = ("packed", "out", "parts", "part", "size", "block")
PANEL_PARAMETERS = "ptr %source, i64 %line, i64 %number, i64 %count, i64 %lines, ptr %target, i64 %target_line"
ROW_PADDING = 64  # bytes between the rows of a packed block
_LINES_AT_ONCE = 32  # of a block that is packed from columns: each panel takes a part of the same lines of the cache


@dataclass(frozen=True)
class Panel:
    """A panel to pack: `lines` lines of `count` numbers; distances in bytes."""

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
        column = text.value(f"mul i64 {number}, {w['panel']}")
        panel = Panel(
            text.moved(w["right"], (matrix, w["right_matrix"]), (column, w["right_column"])),
            w["right_step"], w["right_column"],
            text.least(text.value(f"sub i64 {w['columns']}, {column}"), w["panel"]), w["inner"],
            text.moved(w["packed"], (matrix, w["packed_matrix"]), (number, w["packed_panel"])), w["packed_step"],
        )  # fmt: skip
        call_pack(text, panel)
    return kernel_text("pack", text)


def pack_panel(shapes: TileShapes) -> str:
    """The function that packs one panel: line by line, or by turning squares where the lines lie across memory."""
    text = Text()
    consecutive = text.value(f"icmp eq i64 %number, {shapes.bytes}")
    text.line(f"br i1 {consecutive}, label %rows, label %across")
    text.open("rows")
    # Whole lines of four vectors, of two, and what is left.
    first = "0"
    for vectors in (4, 2):
        first = _copy_columns(text, shapes, first, vectors)
    _copy_parts(text, shapes, first, gather=False)
    text.line("ret void")
    text.open("across")
    upright = text.value(f"icmp eq i64 %line, {shapes.bytes}")
    text.line(f"br i1 {upright}, label %upright, label %anywhere")
    text.open("upright")
    with text.loop("0", "%count", shapes.lanes) as part:
        source, target = text.moved("%source", (part, "%number")), text.moved("%target", (part, shapes.bytes))
        count = text.value(f"sub i64 %count, {part}")
        text.line(
            f"call void @turn_squares(ptr {source}, i64 %number, i64 {count}, i64 %lines, ptr {target},"
            " i64 %target_line)"
        )
    text.line("ret void")
    text.open("anywhere")
    _copy_parts(text, shapes, "0", gather=True)
    text.line("ret void")
    return "\n".join([f"define void @pack_panel({PANEL_PARAMETERS}) #0 {{", "start:", *text.lines, "}"])


def _copy_columns(text: Text, shapes: TileShapes, first: str, vectors: int) -> str:
    """Copies whole vectors of consecutive numbers, so many side by side; gives the number that comes behind."""
    unit = vectors * shapes.lanes
    rest = text.value(f"sub i64 %count, {first}")
    whole = text.value(f"and i64 {rest}, {-unit}")
    end = text.value(f"add i64 {first}, {whole}")
    with text.loop(first, end, unit) as part:
        start, goal = (text.moved(pointer, (part, shapes.bytes)) for pointer in ("%source", "%target"))
        with text.loop("0", "%lines", 1) as line:
            source, target = text.moved(start, (line, "%line")), text.moved(goal, (line, "%target_line"))
            for number in range(vectors):
                value = load_vector(text, shapes, source, number, None)
                store_vector(text, shapes, value, target, number * shapes.vector_bytes, None)
    return end


def _copy_parts(text: Text, shapes: TileShapes, first: str, *, gather: bool) -> None:
    """Copies vectors one by one, the last one under a mask."""
    vector, lanes = shapes.vector, shapes.lanes
    distances = _multiples(text, shapes, "%number") if gather else ""
    with text.loop(first, "%count", lanes) as part:
        (mask,) = column_masks(text, shapes, text.value(f"sub i64 %count, {part}"), 1)
        start, goal = text.moved("%source", (part, "%number")), text.moved("%target", (part, shapes.bytes))
        with text.loop("0", "%lines", 1) as line:
            source, target = text.moved(start, (line, "%line")), text.moved(goal, (line, "%target_line"))
            if gather:
                places = text.value(f"getelementptr i8, ptr {source}, <{lanes} x i64> {distances}")
                value = text.value(
                    f"call {vector} @llvm.masked.gather.{shapes.suffix}.v{lanes}p0(<{lanes} x ptr> {places},"
                    f" i32 {shapes.bytes}, <{lanes} x i1> {mask}, {vector} zeroinitializer)"
                )
            else:
                value = load_vector(text, shapes, source, 0, [mask])
            store_vector(text, shapes, value, target, 0, mask)


def _multiples(text: Text, shapes: TileShapes, distance: str) -> str:
    numbers = f"<{shapes.lanes} x i64>"
    one = text.value(f"insertelement {numbers} poison, i64 {distance}, i64 0")
    every = text.value(f"shufflevector {numbers} {one}, {numbers} poison, <{shapes.lanes} x i32> zeroinitializer")
    lanes = ", ".join(f"i64 {lane}" for lane in range(shapes.lanes))
    return text.value(f"mul {numbers} {every}, <{lanes}>")


def turn_squares(shapes: TileShapes) -> str:
    """The function that turns squares of numbers, whose lines lie across memory, in registers: whole ones, then one of
    the lines that are left."""
    text = Text()
    last = text.value("sub i64 %count, 1")
    # Where there are fewer numbers than lanes, the last one is read again.
    sources = [text.moved("%source", (text.least(str(lane), last), "%number")) for lane in range(shapes.lanes)]
    (mask,) = column_masks(text, shapes, "%count", 1)
    turn_lines(text, shapes, sources, "%lines", "%target", "%target_line", mask)
    text.line("ret void")
    parameters = "ptr %source, i64 %number, i64 %count, i64 %lines, ptr %target, i64 %target_line"
    return "\n".join([f"define internal void @turn_squares({parameters}) #0 {{", "start:", *text.lines, "}"])


def turn_lines(
    text: Text, shapes: TileShapes, sources: list[str], count: str, target: str, target_line: str, mask: str,
    spacing: int = 1,
) -> None:  # fmt: skip
    """Writes `count` lines, of one number from each source: squares turned in registers, the last one in part. Numbers
    of a source that follow each other lie so many elements apart."""
    lanes, every = shapes.lanes, SpacedVectors(shapes, spacing)
    whole = text.value(f"and i64 {count}, {-lanes}")
    with text.loop("0", whole, lanes) as line:
        distance = text.value(f"mul i64 {line}, {spacing * shapes.bytes}")
        values = [every.load(text, text.moved(source, (distance, 1))) for source in sources]
        here = text.moved(target, (line, target_line))
        for value in _turned(text, shapes, values):
            store_vector(text, shapes, value, here, 0, mask)
            here = text.moved(here, (target_line, 1))
    rest = text.value(f"sub i64 {count}, {whole}")
    some = text.value(f"icmp sgt i64 {rest}, 0")
    first, done = text.label("rest"), text.label("done")
    text.line(f"br i1 {some}, label %{first}, label %{done}")
    text.open(first)
    some_lines = SpacedVectors(shapes, spacing, rest).prepared(text)
    distance = text.value(f"mul i64 {whole}, {spacing * shapes.bytes}")
    values = [some_lines.load(text, text.moved(source, (distance, 1))) for source in sources]
    here = text.moved(target, (whole, target_line))
    for number, value in enumerate(_turned(text, shapes, values)):
        following = text.label("line")
        text.line(f"br i1 {text.value(f'icmp sgt i64 {rest}, {number}')}, label %{following}, label %{done}")
        text.open(following)
        store_vector(text, shapes, value, here, 0, mask)
        here = text.moved(here, (target_line, 1))
    text.go(done)


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


def pack_block(shapes: TileShapes, height: int) -> str:
    """The function that packs a block of the left operand for the tiles: rows along memory follow each other, a cache
    line apart; others become panels as high as the highest tile."""
    text = Text()
    along = text.value(f"icmp eq i64 %left_step, {shapes.bytes}")
    text.line(f"br i1 {along}, label %along, label %across")
    text.open("along")
    distance = padded_row(text, shapes, "%depth")
    panel = Panel("%source", "%left_row", str(shapes.bytes), "%depth", "%rows", "%target", distance)
    call_pack(text, panel)
    text.line("ret void")
    text.open("across")
    with (
        text.loop("0", "%depth", _LINES_AT_ONCE) as line,
        text.loop("0", "%rows", height) as row,
    ):
        panel = Panel(
            text.moved("%source", (row, "%left_row"), (line, "%left_step")), "%left_step", "%left_row",
            text.least(text.value(f"sub i64 %rows, {row}"), str(height)),
            text.least(text.value(f"sub i64 %depth, {line}"), str(_LINES_AT_ONCE)),
            text.moved("%target", (row, text.value(f"mul i64 %depth, {shapes.bytes}")), (line, height * shapes.bytes)),
            str(height * shapes.bytes),
        )  # fmt: skip
        call_pack(text, panel)
    text.line("ret void")
    parameters = "ptr %source, i64 %left_row, i64 %left_step, i64 %rows, i64 %depth, ptr %target"
    return "\n".join([f"define internal void @pack_block({parameters}) #0 {{", "start:", *text.lines, "}"])


def padded_row(text: Text, shapes: TileShapes, depth: str) -> str:
    """The distance of packed rows: not a power of two, or many would share few places of the cache."""
    return text.value(f"add i64 {text.value(f'mul i64 {depth}, {shapes.bytes}')}, {ROW_PADDING}")


def sum_kernel(shapes: TileShapes) -> str:
    """Adds the parts of a product, each summed over a stretch of the inner dimension: item i is a block of numbers."""
    text = Text()
    w = text.words(SUM_WORDS)
    with text.loop("%begin", "%end", 1) as item:
        first = text.value(f"mul i64 {item}, {w['block']}")
        last = text.least(text.value(f"add i64 {first}, {w['block']}"), w["size"])
        with text.loop(first, last, shapes.lanes) as place:
            masks = column_masks(text, shapes, text.value(f"sub i64 {last}, {place}"), 1)
            start = text.moved(w["packed"], (place, shapes.bytes))
            before, total = text.block, text.label("total")
            head, body, after = (text.label(hint) for hint in ("head", "body", "after"))
            first_part = load_vector(text, shapes, start, 0, masks)
            text.go(head)
            text.line(f"%{total}.number = phi i64 [ 1, %{before} ], [ %{total}.next, %{body} ]")
            text.line(f"%{total} = phi {shapes.vector} [ {first_part}, %{before} ], [ %{total}.more, %{body} ]")
            more = text.value(f"icmp slt i64 %{total}.number, {w['parts']}")
            text.line(f"br i1 {more}, label %{body}, label %{after}")
            text.open(body)
            part = load_vector(text, shapes, text.moved(start, (f"%{total}.number", w["part"])), 0, masks)
            text.line(f"%{total}.more = fadd {shapes.vector} %{total}, {part}")
            text.line(f"%{total}.next = add i64 %{total}.number, 1")
            text.line(f"br label %{head}")
            text.open(after)
            store_vector(text, shapes, f"%{total}", text.moved(w["out"], (place, shapes.bytes)), 0, masks[0])
    return kernel_text("sum", text)
