"""LLVM IR text of tiles: as many rows and vectors of columns of a product as registers can hold.

Called by `gemm_ir.py`. The sums of a tile run over a stretch of the inner dimension, with one broadcast of a left
element for each row and one load of each right vector.
"""

from __future__ import annotations

from livegrad.backends.cpu.native.vector_ir import (
    Text,
    TileShapes,
    column_masks,
    load_vector,
    multiply_add,
    splat,
    store_vector,
)

_TILE_PARAMETERS = (
    "ptr %left, i64 %left_row, i64 %left_step, ptr %right, i64 %right_step, ptr %out, i64 %out_row, i64 %depth,"
    " i64 %columns, i64 %ahead, i1 %adds"
)


class Tile:
    """One tile's function: sums over `depth` inner elements, stored to the result or added to it."""

    def __init__(self, shapes: TileShapes, rows: int, vectors: int) -> None:
        self.shapes, self.rows, self.vectors = shapes, rows, vectors
        self.vector = f"<{shapes.lanes} x {shapes.element}>"
        self.text = Text()

    def function(self) -> str:
        text, shapes = self.text, self.shapes
        self._fetch_result()
        masks = column_masks(text, shapes, "%columns", self.vectors)
        # Apart, because a masked load takes one of the units that multiply, or a register for its mask.
        whole = text.value(f"icmp sge i64 %columns, {self.vectors * shapes.lanes}")
        text.line(f"br i1 {whole}, label %whole, label %part")
        ends = []
        for label, own in (("whole", None), ("part", masks)):
            text.open(label)
            ends.append((self._sums(own), text.block))
            text.line("br label %store")
        text.open("store")
        (first, one), (second, other) = ends
        sums = [
            text.value(f"phi {self.vector} [ {a}, %{one} ], [ {b}, %{other} ]")
            for a, b in zip(first, second, strict=True)
        ]
        self._store(sums, masks)
        name = f"tile_{self.rows}x{self.vectors}"
        return "\n".join([f"define internal void @{name}({_TILE_PARAMETERS}) #1 {{", "start:", *text.lines, "}"])

    def _fetch_result(self) -> None:
        """Asks for the memory that the sums go to: it arrives while they are computed."""
        text, pointer = self.text, "%out"
        for row in range(self.rows):
            if row:
                pointer = text.value(f"getelementptr i8, ptr {pointer}, i64 %out_row")
            for offset in range(0, self.vectors * self.shapes.vector_bytes, 64):
                at = text.value(f"getelementptr i8, ptr {pointer}, i64 {offset}")
                text.line(f"call void @llvm.prefetch.p0(ptr {at}, i32 1, i32 3, i32 1)")

    def _fetch_ahead(self, right: str) -> None:
        """Asks for the same row of the panel that comes next: without that, its first tile waits for every line."""
        text = self.text
        place = text.value(f"getelementptr i8, ptr {right}, i64 %ahead")
        for offset in range(0, self.vectors * self.shapes.vector_bytes, 64):
            at = text.value(f"getelementptr i8, ptr {place}, i64 {offset}")
            text.line(f"call void @llvm.prefetch.p0(ptr {at}, i32 0, i32 2, i32 1)")

    def _sums(self, masks: list[str] | None) -> list[str]:
        """The loop along the inner dimension."""
        text, count = self.text, self.rows * self.vectors
        # Three rows to a pointer: one address is a register and once or twice another.
        bases = [text.moved("%left", ("%left_row", row)) if row else "%left" for row in range(0, self.rows, 3)]
        before, loop, after = text.block, text.label("loop"), text.label("after")
        text.line(f"br label %{loop}")
        text.open(loop)
        mark = text.label("s")
        sums = [f"%{mark}.{number}" for number in range(count)]
        lefts = [f"%{mark}.left{number}" for number in range(len(bases))]
        right, left_count = f"%{mark}.right", f"%{mark}.k"
        following = [
            *((s, self.vector, "zeroinitializer", s + ".next") for s in sums),
            *((p, "ptr", base, p + ".next") for p, base in zip(lefts, bases, strict=True)),
            (right, "ptr", "%right", right + ".next"),
            (left_count, "i64", "%depth", left_count + ".next"),
        ]
        for name, kind, first, last in following:
            text.line(f"{name} = phi {kind} [ {first}, %{before} ], [ {last}, %{loop} ]")
        # LLVM would make one pointer of them all, moved from row to row, and each load wait for the move before. It
        # cannot where it does not know that the distance is always the same.
        distance = text.value('call i64 asm "", "=r,0"(i64 %left_row)')
        twice = text.value(f"shl i64 {distance}, 1")
        columns = [load_vector(text, self.shapes, right, number, masks) for number in range(self.vectors)]
        if masks is None and self.vectors == 2:
            self._fetch_ahead(right)
        opaque = [text.value(f'call ptr asm "", "=r,0"(ptr {pointer})') for pointer in lefts]
        for row in range(self.rows):
            pointer = opaque[row // 3]
            if row % 3:
                pointer = text.value(f"getelementptr i8, ptr {pointer}, i64 {distance if row % 3 == 1 else twice}")
            left = splat(text, self.shapes, text.value(f"load {self.shapes.element}, ptr {pointer}"))
            for number in range(self.vectors):
                own = sums[row * self.vectors + number]
                multiply_add(text, self.shapes, left, columns[number], own, own + ".next")
        for pointer, seen in zip(lefts, opaque, strict=True):
            text.line(f"{pointer}.next = getelementptr i8, ptr {seen}, i64 %left_step")
        text.line(f"{right}.next = getelementptr i8, ptr {right}, i64 %right_step")
        text.line(f"{left_count}.next = sub i64 {left_count}, 1")
        more = text.value(f"icmp ne i64 {left_count}.next, 0")
        text.line(f"br i1 {more}, label %{loop}, label %{after}")
        text.open(after)
        return [own + ".next" for own in sums]

    def _store(self, sums: list[str], masks: list[str]) -> None:
        """Puts the sums into the result, with what is there already if it is to be added to."""
        text, lanes = self.text, self.shapes.lanes
        flag = text.value(f"insertelement <{lanes} x i1> poison, i1 %adds, i64 0")
        flags = f"<{lanes} x i1> {flag}, <{lanes} x i1> poison, <{lanes} x i32> zeroinitializer"
        every = text.value(f"shufflevector {flags}")
        added = [text.value(f"and <{lanes} x i1> {mask}, {every}") for mask in masks]
        pointer = "%out"
        for row in range(self.rows):
            if row:
                pointer = text.value(f"getelementptr i8, ptr {pointer}, i64 %out_row")
            for number, mask in enumerate(masks):
                # Where nothing is to be added this is 0, which changes nothing: no sum is -0.
                before = load_vector(text, self.shapes, pointer, number, added)
                value = text.value(f"fadd {self.vector} {before}, {sums[row * self.vectors + number]}")
                store_vector(text, self.shapes, value, pointer, number * self.shapes.vector_bytes, mask)
        text.line("ret void")


_UNROLLED = 4


class PackedTile(Tile):
    """The highest tile over a packed panel of the left operand: all distances in it are known, so that nothing but
    loads and multiplications is left of the loop. A panel of fewer columns than a tile has is for the other one."""

    def function(self) -> str:
        text, shapes = self.text, self.shapes
        self._fetch_result()
        whole = text.value(f"icmp sge i64 %columns, {self.vectors * shapes.lanes}")
        text.line(f"br i1 {whole}, label %whole, label %part")
        text.open("part")
        text.line(f"call void @tile_{self.rows}x{self.vectors}({', '.join(_TILE_PARAMETERS.split(', '))})")
        text.line("ret void")
        text.open("whole")
        groups = text.value(f"udiv i64 %depth, {_UNROLLED}")
        rest = text.value(f"urem i64 %depth, {_UNROLLED}")
        zeros = ["zeroinitializer"] * (self.rows * self.vectors)
        sums, left, right = self._loop(groups, _UNROLLED, zeros, "%left", "%right")
        sums, _, _ = self._loop(rest, 1, sums, left, right)
        all_lanes = "<" + ", ".join(["i1 true"] * shapes.lanes) + ">"
        self._store(sums, [all_lanes] * self.vectors)
        name = f"packed_{self.rows}x{self.vectors}"
        return "\n".join([f"define internal void @{name}({_TILE_PARAMETERS}) #1 {{", "start:", *text.lines, "}"])

    def _loop(self, count: str, unrolled: int, firsts: list[str], left: str, right: str) -> tuple[list[str], str, str]:
        """So many times, so many inner elements; gives the sums and where the operands go on."""
        text = self.text
        before, head, body, after = text.block, *(text.label(hint) for hint in ("head", "body", "after"))
        sums = [f"%{head}.{number}" for number in range(len(firsts))]
        names = [(own, self.vector, first) for own, first in zip(sums, firsts, strict=True)]
        names += [(f"%{head}.left", "ptr", left), (f"%{head}.right", "ptr", right), (f"%{head}.count", "i64", count)]
        text.go(head)
        for name, kind, first in names:
            text.line(f"{name} = phi {kind} [ {first}, %{before} ], [ {name}.next, %{body} ]")
        more = text.value(f"icmp ne i64 %{head}.count, 0")
        text.line(f"br i1 {more}, label %{body}, label %{after}")
        text.open(body)
        here, right_at = list(sums), f"%{head}.right"
        for inner in range(unrolled):
            if inner:
                right_at = text.value(f"getelementptr i8, ptr {right_at}, i64 %right_step")
            here = self._step(f"%{head}.left", right_at, inner, here, sums if inner == unrolled - 1 else None)
        text.line(f"%{head}.right.next = getelementptr i8, ptr {right_at}, i64 %right_step")
        move = unrolled * self.rows * self.shapes.bytes
        text.line(f"%{head}.left.next = getelementptr i8, ptr %{head}.left, i64 {move}")
        text.line(f"%{head}.count.next = sub i64 %{head}.count, 1")
        text.line(f"br label %{head}")
        text.open(after)
        return sums, f"%{head}.left", f"%{head}.right"

    def _step(self, left: str, right: str, inner: int, sums: list[str], names: list[str] | None) -> list[str]:
        """One inner element; the results are called `names`, or as comes."""
        text, results = self.text, []
        columns = [load_vector(text, self.shapes, right, number, None) for number in range(self.vectors)]
        self._fetch_ahead(right)
        for row in range(self.rows):
            offset = (inner * self.rows + row) * self.shapes.bytes
            place = text.value(f"getelementptr i8, ptr {left}, i64 {offset}")
            value = splat(text, self.shapes, text.value(f"load {self.shapes.element}, ptr {place}"))
            for number in range(self.vectors):
                at = row * self.vectors + number
                result = f"%{text.label('sum')}" if names is None else f"{names[at]}.next"
                multiply_add(text, self.shapes, value, columns[number], sums[at], result)
                results.append(result)
        return results
