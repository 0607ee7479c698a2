"""Convolutions as LLVM IR: products of kernels and windows, with panels packed directly from the image.

Called by `matmul_module.py`. A row of the right operand is a position in the window, a column a position of the window
in the image. The offset of an element is the sum of a row offset and a column offset. Each work item tabulates both,
packs its panels with them, and runs the tiles of matrix products.
"""

from __future__ import annotations

from livegrad.codegen.llvm.matmul.blocks import TileCall, left_block, rows_of_tiles
from livegrad.codegen.llvm.matmul.packing import turn_lines
from livegrad.codegen.llvm.vector_builder import (
    SpacedVectors,
    Text,
    TileShapes,
    column_masks,
    kernel_text,
    store_vector,
)

# Numbers of rows and columns are counted over up to four dimensions: the extents of all but the first, and distances.
TABLE_WORDS = ("extent1", "extent2", "extent3", "step0", "step1", "step2", "step3")
CONVOLVE_WORDS = (
    "left", "right", "out", "rows", "columns",
    "inner", "stretches", "depth",  # the inner dimension is stretches of so many; tiles sum over so many at once
    "left_row", "left_step", "left_stretch", "left_group",  # in bytes, as all distances here
    "right_group", "right_matrix", "out_row", "out_group", "out_matrix", "out_part",
    "groups", "matrices", "part_blocks",  # blocks of the inner dimension that one part sums
    "row_block", "row_blocks", "column_block", "column_blocks",
    # So many lines or columns lie in a run, one or two elements apart: the table has one entry for each (0: no runs).
    "line_run", "line_spacing", "column_run", "column_spacing",
    *(f"line_{name}" for name in TABLE_WORDS), *(f"column_{name}" for name in TABLE_WORDS),
    "scratch", "scratch_bytes", "left_bytes", "right_bytes", "line_bytes",
)  # fmt: skip
SPACINGS = (1, 2)  # of runs that are packed together
_COUNT = "ptr %target, i64 %first, i64 %count, " + ", ".join(f"i64 %{name}" for name in TABLE_WORDS)
_PACK = (
    "ptr %image, ptr %lines, i64 %line_run, i64 %line_spacing, i64 %line_place, i64 %line_count,"
    " ptr %columns, i64 %column_run, i64 %column_spacing, i64 %column_place, i64 %column_count, ptr %target"
)


def convolve_kernel(name: str, shapes: TileShapes, vectors: int) -> list[str]:
    """The kernel and what it calls. Item i is a block of columns, of rows, of a group, of an image, of a part."""
    text, wide, heights = Text(), shapes.panel(vectors), shapes.heights_of(vectors)
    w = text.words(CONVOLVE_WORDS)
    scratch = text.moved(w["scratch"], ("%worker", w["scratch_bytes"]))
    panels = text.moved(scratch, (w["left_bytes"], 1))
    lines = text.moved(panels, (w["right_bytes"], 1))
    columns = text.moved(lines, (w["line_bytes"], 1))
    blocks = _ceiling(text, w["inner"], w["depth"])
    every_block = text.value(f"mul i64 {blocks}, {w['stretches']}")
    with text.loop("%begin", "%end", 1) as item:
        column_number, rest = _taken(text, item, w["column_blocks"])
        row_number, rest = _taken(text, rest, w["row_blocks"])
        group, rest = _taken(text, rest, w["groups"])
        matrix, part = _taken(text, rest, w["matrices"])
        first_row = text.value(f"mul i64 {row_number}, {w['row_block']}")
        rows = text.least(w["row_block"], text.value(f"sub i64 {w['rows']}, {first_row}"))
        first_column = text.value(f"mul i64 {column_number}, {w['column_block']}")
        count = text.least(w["column_block"], text.value(f"sub i64 {w['columns']}, {first_column}"))
        column_place = _fill_table(text, w, "column", columns, first_column, count)
        left = text.moved(w["left"], (group, w["left_group"]), (first_row, w["left_row"]))
        image = text.moved(w["right"], (group, w["right_group"]), (matrix, w["right_matrix"]))
        out = text.moved(
            w["out"], (part, w["out_part"]), (matrix, w["out_matrix"]), (group, w["out_group"]),
            (first_row, w["out_row"]), (first_column, shapes.bytes),
        )  # fmt: skip
        first_block = text.value(f"mul i64 {part}, {w['part_blocks']}")
        last_block = text.least(text.value(f"add i64 {first_block}, {w['part_blocks']}"), every_block)
        with text.loop(first_block, last_block, 1) as block:
            number, stretch = _taken(text, block, blocks)
            inner = text.value(f"mul i64 {number}, {w['depth']}")
            depth = text.least(w["depth"], text.value(f"sub i64 {w['inner']}, {inner}"))
            adds = text.value(f"icmp ne i64 {block}, {first_block}")
            line = text.value(f"add i64 {inner}, {text.value(f'mul i64 {stretch}, ' + w['inner'])}")
            line_place = _fill_table(text, w, "line", lines, line, depth)
            left_here = text.moved(left, (stretch, w["left_stretch"]), (inner, w["left_step"]))
            packed = left_block(text, shapes, w, left_here, scratch, rows, depth, heights[0])
            with text.loop("0", count, wide) as column:
                width = text.least(text.value(f"sub i64 {count}, {column}"), str(wide))
                place = text.value(f"add i64 {column_place}, {column}")
                text.line(
                    f"call void @pack_windows(ptr {image}, ptr {lines}, i64 {w['line_run']}, i64 {w['line_spacing']},"
                    f" i64 {line_place}, i64 {depth}, ptr {columns}, i64 {w['column_run']},"
                    f" i64 {w['column_spacing']}, i64 {place}, i64 {width}, ptr {panels})"
                )
                out_at = text.moved(out, (column, shapes.bytes))
                call = TileCall(w, packed, panels, "0", str(wide * shapes.bytes), out_at, depth, width, adds)
                rows_of_tiles(text, heights, call, rows, 0)
    return [_fill_function(), _pack_windows(shapes, wide * shapes.bytes), kernel_text(name, text)]


def _taken(text: Text, number: str, extent: str) -> tuple[str, str]:
    """The index along an inner dimension, and the number of all that is outside of it."""
    return text.value(f"urem i64 {number}, {extent}"), text.value(f"udiv i64 {number}, {extent}")


def _ceiling(text: Text, a: str, b: str) -> str:
    past = text.value(f"sub i64 {text.value(f'add i64 {a}, {b}')}, 1")
    return text.value(f"udiv i64 {past}, {b}")


# --- tables of distances ---------------------------------------------------------------------------------------------


def _fill_table(text: Text, w: dict[str, str], role: str, table: str, first: str, count: str) -> str:
    """Distances of the runs that hold `count` lines or columns; gives the place of the first in its run."""
    run = w[f"{role}_run"]
    place, first_run = _taken(text, first, run)
    runs = _ceiling(text, text.value(f"add i64 {place}, {count}"), run)
    words = ", ".join(f"i64 {w[f'{role}_{name}']}" for name in TABLE_WORDS)
    text.line(f"call void @fill_table(ptr {table}, i64 {first_run}, i64 {runs}, {words})")
    return place


def _fill_function() -> str:
    """Counts over four dimensions, the last one fastest, and writes the distance of each number."""
    text = Text()
    indices, rest = [], "%first"
    for extent in ("%extent3", "%extent2", "%extent1"):
        index, rest = _taken(text, rest, extent)
        indices.append(index)
    starts = [rest, *reversed(indices)]
    before, head, body, done = text.block, *(text.label(hint) for hint in ("head", "body", "done"))
    counters = [f"%{head}.i{axis}" for axis in range(4)]
    text.go(head)
    text.line(f"%{head}.n = phi i64 [ 0, %{before} ], [ %{head}.n.next, %{body} ]")
    for counter, start in zip(counters, starts, strict=True):
        text.line(f"{counter} = phi i64 [ {start}, %{before} ], [ {counter}.next, %{body} ]")
    more = text.value(f"icmp slt i64 %{head}.n, %count")
    text.line(f"br i1 {more}, label %{body}, label %{done}")
    text.open(body)
    products = [text.value(f"mul i64 {counter}, %step{axis}") for axis, counter in enumerate(counters)]
    pairs = [text.value(f"add i64 {products[0]}, {products[1]}"), text.value(f"add i64 {products[2]}, {products[3]}")]
    distance = text.value(f"add i64 {pairs[0]}, {pairs[1]}")
    text.line(f"store i64 {distance}, ptr {text.moved('%target', (f'%{head}.n', 8))}")
    carry = "1"
    for axis in (3, 2, 1):
        following = text.value(f"add i64 {counters[axis]}, {carry}")
        full = text.value(f"icmp eq i64 {following}, %extent{axis}")
        text.line(f"{counters[axis]}.next = select i1 {full}, i64 0, i64 {following}")
        carry = text.value(f"zext i1 {full} to i64")
    text.line(f"{counters[0]}.next = add i64 {counters[0]}, {carry}")
    text.line(f"%{head}.n.next = add i64 %{head}.n, 1")
    text.line(f"br label %{head}")
    text.open(done)
    text.line("ret void")
    return "\n".join([f"define internal void @fill_table({_COUNT}) #0 {{", "start:", *text.lines, "}"])


# --- panels of windows -----------------------------------------------------------------------------------------------


def _pack_windows(shapes: TileShapes, target_line: int) -> str:
    """The function that packs a panel: by runs of columns, by turning runs of lines, or number by number."""
    text = Text()
    for role, write in (("column", _copy_runs), ("line", _turn_runs)):
        for spacing in SPACINGS:
            here, other = text.label("runs"), text.label("other")
            fits = text.value(f"icmp eq i64 %{role}_spacing, {spacing}")
            text.line(f"br i1 {fits}, label %{here}, label %{other}")
            text.open(here)
            write(text, shapes, target_line, spacing)
            text.line("ret void")
            text.open(other)
    _gather(text, shapes, target_line)
    text.line("ret void")
    return "\n".join([f"define internal void @pack_windows({_PACK}) #0 {{", "start:", *text.lines, "}"])


def _entry(text: Text, table: str, number: str) -> str:
    return text.value(f"load i64, ptr {text.moved(table, (number, 8))}")


def _runs(text: Text, role: str) -> tuple[str, str]:
    """The numbers of the first run of a panel and of the one behind the last."""
    first = text.value(f"udiv i64 %{role}_place, %{role}_run")
    return first, _ceiling(text, text.value(f"add i64 %{role}_place, %{role}_count"), f"%{role}_run")


def _part_of_run(text: Text, role: str, run: str) -> tuple[str, str, str]:
    """What a panel has of a run: the first number of the panel, how many, and the first's place in the run."""
    start = text.value(f"sub i64 {text.value(f'mul i64 {run}, %{role}_run')}, %{role}_place")
    first = text.most(start, "0")
    last = text.least(text.value(f"add i64 {start}, %{role}_run"), f"%{role}_count")
    return first, text.value(f"sub i64 {last}, {first}"), text.value(f"sub i64 {first}, {start}")


def _copy_runs(text: Text, shapes: TileShapes, target_line: int, spacing: int) -> None:
    """Columns that lie in runs: whole vectors, and the last one under a mask."""
    first_run, last_run = _runs(text, "column")
    with text.loop(first_run, last_run, 1) as run:
        first, count, place = _part_of_run(text, "column", run)
        distance = _entry(text, "%columns", run)
        source = text.moved("%image", (distance, 1), (place, spacing * shapes.bytes))
        target = text.moved("%target", (first, shapes.bytes))
        done = "0"
        for vectors in dict.fromkeys((target_line // shapes.vector_bytes, 2, 1)):
            unit = vectors * shapes.lanes
            number = text.value(f"udiv i64 {text.value(f'sub i64 {count}, {done}')}, {unit}")
            end = text.value(f"add i64 {done}, {text.value(f'mul i64 {number}, {unit}')}")
            with text.loop(done, end, unit) as part:
                _copy_lines(text, shapes, source, target, part, target_line, SpacedVectors(shapes, spacing), vectors)
            done = end
        with text.loop(done, count, shapes.lanes) as part:
            some = SpacedVectors(shapes, spacing, text.value(f"sub i64 {count}, {part}")).prepared(text)
            _copy_lines(text, shapes, source, target, part, target_line, some, 1)


def _copy_lines(
    text: Text, shapes: TileShapes, source: str, target: str, part: str, target_line: int, loads: SpacedVectors,
    vectors: int,
) -> None:  # fmt: skip
    start = text.moved(source, (part, loads.spacing * shapes.bytes))
    goal = text.moved(target, (part, shapes.bytes))
    with text.loop("0", "%line_count", 1) as line:
        here = text.moved(start, (_entry(text, "%lines", line), 1))
        there = text.moved(goal, (line, target_line))
        for number in range(vectors):
            value = loads.load(text, here, number)
            store_vector(text, shapes, value, there, number * shapes.vector_bytes, loads.mask)


def _turn_runs(text: Text, shapes: TileShapes, target_line: int, spacing: int) -> None:
    """Lines that lie in runs: squares of them and as many columns are turned in registers."""
    first_run, last_run = _runs(text, "line")
    last = text.value("sub i64 %column_count, 1")
    with text.loop("0", "%column_count", shapes.lanes) as part:
        sources = []
        for lane in range(shapes.lanes):
            # Where there are fewer columns than lanes, the last one is read again.
            column = text.least(text.value(f"add i64 {part}, {lane}"), last)
            place = text.value(f"add i64 {column}, %column_place")
            sources.append(text.moved("%image", (_entry(text, "%columns", place), 1)))
        (mask,) = column_masks(text, shapes, text.value(f"sub i64 %column_count, {part}"), 1)
        goal = text.moved("%target", (part, shapes.bytes))
        with text.loop(first_run, last_run, 1) as run:
            first, count, place = _part_of_run(text, "line", run)
            distance = text.value(
                f"add i64 {_entry(text, '%lines', run)}, {text.value(f'mul i64 {place}, {spacing * shapes.bytes}')}"
            )
            here = [text.moved(source, (distance, 1)) for source in sources]
            there = text.moved(goal, (first, target_line))
            turn_lines(text, shapes, here, count, there, str(target_line), mask, spacing)


def _gather(text: Text, shapes: TileShapes, target_line: int) -> None:
    """Numbers that have no neighbours."""
    vector, lanes = shapes.vector, shapes.lanes
    with text.loop("0", "%column_count", lanes) as part:
        (mask,) = column_masks(text, shapes, text.value(f"sub i64 %column_count, {part}"), 1)
        entries = text.moved("%columns", (part, 8), ("%column_place", 8))
        # The table is followed by memory of its own: what the last vector reads behind it is never used.
        distances = text.value(f"load <{lanes} x i64>, ptr {entries}, align 8")
        goal = text.moved("%target", (part, shapes.bytes))
        with text.loop("0", "%line_count", 1) as line:
            here = text.moved("%image", (_entry(text, "%lines", line), 1))
            places = text.value(f"getelementptr i8, ptr {here}, <{lanes} x i64> {distances}")
            value = text.value(
                f"call {vector} @llvm.masked.gather.{shapes.suffix}.v{lanes}p0(<{lanes} x ptr> {places},"
                f" i32 {shapes.bytes}, <{lanes} x i1> {mask}, {vector} zeroinitializer)"
            )
            store_vector(text, shapes, value, text.moved(goal, (line, target_line)), 0, None)
