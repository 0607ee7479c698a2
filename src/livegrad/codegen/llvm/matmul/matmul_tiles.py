"""Register tiles of a matrix product as LLVM IR: as many rows and column vectors as registers can hold.

Called by `matmul_module.py`. The sums of a tile run over a range of the inner dimension, with one broadcast of a left
element per row and one load of each right vector.
"""

from __future__ import annotations

from livegrad.codegen.llvm.vector_builder import (
    Text,
    TileShapes,
    column_masks,
    load_vector,
    multiply_add,
    splat,
    store_vector,
)

_PARAMETERS = (
    "ptr %left, i64 %left_row, i64 %left_step, ptr %right, i64 %right_step, ptr %out, i64 %out_row, i64 %depth,"
    " i64 %columns, ptr %ahead, i1 %adds"
)


class Tile:
    """One tile's function: sums over `depth` inner elements, stored to the result or added to it."""

    def __init__(self, shapes: TileShapes, rows: int, vectors: int) -> None:
        self.shapes, self.rows, self.vectors = shapes, rows, vectors
        self.name = f"tile_{rows}x{vectors}"
        self.text = Text()

    def function(self) -> str:
        text, shapes = self.text, self.shapes
        self._fetch_result()
        # Apart, because a masked load takes one of the units that multiply, or a register for its mask.
        whole = text.value(f"icmp sge i64 %columns, {shapes.panel(self.vectors)}")
        text.line(f"br i1 {whole}, label %whole, label %part")
        text.open("whole")
        sums = self._sums(None)
        text.line("br i1 %adds, label %add, label %store")
        text.open("add")
        added = self._added(sums, None)
        self._store(added, None)
        text.open("store")
        self._store(sums, None)
        text.open("part")
        self._part()
        return "\n".join([f"define internal void @{self.name}({_PARAMETERS}) #1 {{", "start:", *text.lines, "}"])

    def _part(self) -> None:
        """A tile with fewer columns than it has room for."""
        text, lanes = self.text, self.shapes.lanes
        masks = column_masks(text, self.shapes, "%columns", self.vectors)
        sums = self._sums(masks)
        flag = text.value(f"insertelement <{lanes} x i1> poison, i1 %adds, i64 0")
        flags = f"<{lanes} x i1> {flag}, <{lanes} x i1> poison, <{lanes} x i32> zeroinitializer"
        every = text.value(f"shufflevector {flags}")
        # Where nothing is to be added this is 0, which changes nothing: no sum is -0.
        self._store(self._added(sums, [text.value(f"and <{lanes} x i1> {mask}, {every}") for mask in masks]), masks)

    def _fetch_result(self) -> None:
        """Asks for the memory that the sums go to: it arrives while they are computed."""
        text, pointer = self.text, "%out"
        for row in range(self.rows):
            if row:
                pointer = text.value(f"getelementptr i8, ptr {pointer}, i64 %out_row")
            for offset in range(0, self.vectors * self.shapes.vector_bytes, 64):
                at = text.value(f"getelementptr i8, ptr {pointer}, i64 {offset}")
                text.line(f"call void @llvm.prefetch.p0(ptr {at}, i32 1, i32 3, i32 1)")

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
        right, ahead, left_count = f"%{mark}.right", f"%{mark}.ahead", f"%{mark}.k"
        following = [
            *((s, self.shapes.vector, "zeroinitializer", s + ".next") for s in sums),
            *((p, "ptr", base, p + ".next") for p, base in zip(lefts, bases, strict=True)),
            (right, "ptr", "%right", right + ".next"),
            (ahead, "ptr", "%ahead", ahead + ".next"),
            (left_count, "i64", "%depth", left_count + ".next"),
        ]
        for name, kind, first, last in following:
            text.line(f"{name} = phi {kind} [ {first}, %{before} ], [ {last}, %{loop} ]")
        # LLVM would make one pointer of them all, moved from row to row, and each load wait for the move before. It
        # cannot where it does not know that the distance is always the same.
        distance = text.value('call i64 asm "", "=r,0"(i64 %left_row)')
        twice = text.value(f"shl i64 {distance}, 1")
        columns = [load_vector(text, self.shapes, right, number, masks) for number in range(self.vectors)]
        text.line(f"call void @llvm.prefetch.p0(ptr {ahead}, i32 0, i32 2, i32 1)")
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
        text.line(f"{ahead}.next = getelementptr i8, ptr {ahead}, i64 %right_step")
        text.line(f"{left_count}.next = sub i64 {left_count}, 1")
        more = text.value(f"icmp ne i64 {left_count}.next, 0")
        text.line(f"br i1 {more}, label %{loop}, label %{after}")
        text.open(after)
        return [own + ".next" for own in sums]

    def _added(self, sums: list[str], masks: list[str] | None) -> list[str]:
        """The sums with what is in the result already. All of it is read before anything is written: rows of many
        products are as far apart as pages are, and a load that follows a store to the same place of another page waits.
        """
        results = []
        for pointer, row in self._rows():
            for number in range(self.vectors):
                before = load_vector(self.text, self.shapes, pointer, number, masks)
                own = sums[row * self.vectors + number]
                results.append(self.text.value(f"fadd {self.shapes.vector} {before}, {own}"))
        return results

    def _store(self, sums: list[str], masks: list[str] | None) -> None:
        size = self.shapes.vector_bytes
        for pointer, row in self._rows():
            for number in range(self.vectors):
                mask = None if masks is None else masks[number]
                own = sums[row * self.vectors + number]
                store_vector(self.text, self.shapes, own, pointer, number * size, mask)
        self.text.line("ret void")

    def _rows(self) -> list[tuple[str, int]]:
        """Where the rows of the result begin."""
        pointers = ["%out"]
        for _ in range(1, self.rows):
            pointers.append(self.text.value(f"getelementptr i8, ptr {pointers[-1]}, i64 %out_row"))
        return [(pointer, row) for row, pointer in enumerate(pointers)]
