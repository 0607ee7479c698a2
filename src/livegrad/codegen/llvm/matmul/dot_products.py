"""Matrix products as LLVM IR for operands that are both contiguous along the inner dimension: dot products of rows and
columns.

Called by `matmul_module.py`. Four rows by four columns are summed at once, so that each loaded vector is used four
times; only two rows if there are not enough registers. The summation order of an element does not depend on its tile.
"""

from __future__ import annotations

from livegrad.codegen.llvm.vector_builder import (
    BATCH_WORDS,
    Text,
    TileShapes,
    column_masks,
    find_matrices,
    kernel_text,
    load_vector,
    multiply_add,
)

DOT_WORDS = (
    "left", "right", "out", "rows", "columns", "inner", "left_row", "right_column", "out_row", "out_matrix",
    "row_block", "row_blocks", "column_block", "column_blocks", *BATCH_WORDS,
)  # fmt: skip
_WIDTHS = (4, 1)
_PARAMETERS = "ptr %left, i64 %left_row, ptr %right, i64 %right_column, ptr %out, i64 %out_row, i64 %inner"


def dot_kernel(shapes: TileShapes) -> list[str]:
    """The kernel and its tiles: item i is a block of rows and of columns of a matrix."""
    text = Text()
    w = text.words(DOT_WORDS)
    with text.loop("%begin", "%end", 1) as item:
        number = text.value(f"urem i64 {item}, {w['column_blocks']}")
        rest = text.value(f"udiv i64 {item}, {w['column_blocks']}")
        row_number = text.value(f"urem i64 {rest}, {w['row_blocks']}")
        matrix = text.value(f"udiv i64 {rest}, {w['row_blocks']}")
        left, right = find_matrices(text, w, matrix)
        out = text.moved(w["out"], (matrix, w["out_matrix"]))
        column = text.value(f"mul i64 {number}, {w['column_block']}")
        last_column = text.least(text.value(f"add i64 {column}, {w['column_block']}"), w["columns"])
        first_row = text.value(f"mul i64 {row_number}, {w['row_block']}")
        last_row = text.least(text.value(f"add i64 {first_row}, {w['row_block']}"), w["rows"])
        for width in _WIDTHS:
            column_end = _whole_end(text, column, last_column, width)
            with text.loop(column, column_end, width) as own_column:
                right_at = text.moved(right, (own_column, w["right_column"]))
                row = first_row
                for height in shapes.dot_heights:
                    row_end = _whole_end(text, row, last_row, height)
                    with text.loop(row, row_end, height) as own_row:
                        left_at = text.moved(left, (own_row, w["left_row"]))
                        out_at = text.moved(out, (own_row, w["out_row"]), (own_column, shapes.bytes))
                        text.line(
                            f"call void @dot_{height}x{width}(ptr {left_at}, i64 {w['left_row']}, ptr {right_at},"
                            f" i64 {w['right_column']}, ptr {out_at}, i64 {w['out_row']}, i64 {w['inner']})"
                        )
                    row = row_end
            column = column_end
    tiles = [_tile(shapes, height, width) for height in shapes.dot_heights for width in _WIDTHS]
    return [*tiles, kernel_text("dot", text)]


def _whole_end(text: Text, first: str, last: str, unit: int) -> str:
    """Where whole units from `first` on end."""
    count = text.value(f"sub i64 {last}, {first}")
    return text.value(f"add i64 {first}, {text.value(f'and i64 {count}, {-unit}')}")


def _tile(shapes: TileShapes, height: int, width: int) -> str:
    """Scalar products of some rows and columns: whole vectors, then what is left under a mask."""
    text, count = Text(), height * width
    lefts = [text.moved("%left", ("%left_row", row)) if row else "%left" for row in range(height)]
    rights = [text.moved("%right", ("%right_column", column)) if column else "%right" for column in range(width)]
    whole = text.value(f"and i64 %inner, {-shapes.lanes}")
    before, head, body, after = text.block, *(text.label(hint) for hint in ("head", "body", "after"))
    place, sums = f"%{head}.place", [f"%{head}.sum{number}" for number in range(count)]
    text.go(head)
    text.line(f"{place} = phi i64 [ 0, %{before} ], [ {place}.next, %{body} ]")
    for own in sums:
        text.line(f"{own} = phi {shapes.vector} [ zeroinitializer, %{before} ], [ {own}.next, %{body} ]")
    text.line(f"br i1 {text.value(f'icmp slt i64 {place}, {whole}')}, label %{body}, label %{after}")
    text.open(body)
    _add_products(text, shapes, (lefts, rights), place, None, sums, [f"{own}.next" for own in sums])
    text.line(f"{place}.next = add i64 {place}, {shapes.lanes}")
    text.line(f"br label %{head}")
    text.open(after)
    masks = column_masks(text, shapes, text.value(f"sub i64 %inner, {whole}"), 1)
    ends = [f"{own}.end" for own in sums]
    _add_products(text, shapes, (lefts, rights), whole, masks, sums, ends)
    for row in range(height):
        out = text.moved("%out", ("%out_row", row)) if row else "%out"
        for vector, size in _totals(text, shapes, ends[row * width : (row + 1) * width]):
            text.line(f"store <{size} x {shapes.element}> {vector}, ptr {out}, align {shapes.bytes}")
            out = text.moved(out, (str(size * shapes.bytes), 1))
    text.line("ret void")
    head_line = f"define internal void @dot_{height}x{width}({_PARAMETERS}) #1 {{"
    return "\n".join([head_line, "start:", *text.lines, "}"])


def _add_products(
    text: Text, shapes: TileShapes, pointers: tuple[list[str], list[str]], place: str, masks: list[str] | None,
    sums: list[str], results: list[str],
) -> None:  # fmt: skip
    lefts, rights = (
        [load_vector(text, shapes, text.moved(pointer, (place, shapes.bytes)), 0, masks) for pointer in side]
        for side in pointers
    )
    names = iter(zip(sums, results, strict=True))
    for left in lefts:
        for right in rights:
            multiply_add(text, shapes, left, right, *next(names))


def _totals(text: Text, shapes: TileShapes, vectors: list[str]) -> list[tuple[str, int]]:
    """The totals of the lanes of each vector, in vectors of so many. Neighbours are added first, whether the lanes of
    two vectors fit into one or not: a total does not depend on how many are made at once."""
    size, each = shapes.lanes, shapes.lanes  # lanes of a vector, and how many of them belong to one total
    while each > 1:
        pairs = list(zip(vectors[::2], vectors[1::2], strict=True)) if len(vectors) > 1 else [(vectors[0], "poison")]
        vectors = []
        smaller = size if len(pairs[0]) == 2 and pairs[0][1] != "poison" else size // 2
        kind = f"<{size} x {shapes.element}>"
        for first, second in pairs:
            halves = [
                text.value(
                    f"shufflevector {kind} {first}, {kind} {second},"
                    f" <{smaller} x i32> <{', '.join(f'i32 {2 * lane + odd}' for lane in range(smaller))}>"
                )
                for odd in (0, 1)
            ]
            vectors.append(text.value(f"fadd <{smaller} x {shapes.element}> {halves[0]}, {halves[1]}"))
        size, each = smaller, each // 2
    return [(vector, size) for vector in vectors]
