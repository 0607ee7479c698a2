"""Register tiles of a matrix product as LLVM IR: as many rows and column vectors as registers can hold.

Called by `matmul_module.py`. The sums of a tile run over a range of the inner dimension, with one broadcast of a left
element per row and one load of each right vector.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from livegrad.codegen.llvm.counted_loops import OpenLoop
from livegrad.codegen.llvm.matmul.tile_shapes import TileShapes
from livegrad.codegen.llvm.matmul.tile_vectors import column_masks, load_vector, multiply_add, store_vector, widen
from livegrad.codegen.llvm.registers import pointer
from livegrad.codegen.llvm.values import LlvmModule, Procedure, Value
from livegrad.ir.types import bool_, i64

_PARAMETERS = {
    "left": pointer, "left_row": i64, "left_step": i64, "right": pointer, "right_step": i64, "out": pointer,
    "out_row": i64, "depth": i64, "columns": i64, "ahead": pointer, "adds": bool_,
}  # fmt: skip
_ROWS_OF_A_POINTER = 3  # an address is a register plus once or twice another

Masks = Sequence[Value | None]  # of the vectors of a row; None: all lanes


class Tile:
    """One tile's function: sums over `depth` inner elements, stored to the result or added to it."""

    def __init__(self, module: LlvmModule, shapes: TileShapes, rows: int, vectors: int) -> None:
        self.shapes, self.rows, self.vectors = shapes, rows, vectors
        self.function = Procedure(module, f"tile_{rows}x{vectors}", _PARAMETERS)
        self.builder, self.parameters = self.function.builder, self.function.parameters
        self._write()

    @property
    def symbol(self) -> str:
        return f"@{self.function.name}"

    def _write(self) -> None:
        builder, p = self.builder, self.parameters
        self._prefetch_result()
        # Apart, because a masked load takes one of the units that multiply, or a register for its mask.
        whole = p["columns"] >= self.shapes.panel(self.vectors)
        builder.branch(whole.register, "whole", "part")
        builder.begin("whole")
        every = [None] * self.vectors
        sums = self._sums(every)
        builder.branch(p["adds"].register, "add", "store")
        builder.begin("add")
        self._store(self._added(sums, every), every)
        builder.line("ret void")
        builder.begin("store")
        self._store(sums, every)
        builder.line("ret void")
        builder.begin("part")
        self._write_part()
        self.function.finish(attributes="#1")

    def _write_part(self) -> None:
        """A tile with fewer columns than it has room for."""
        masks = column_masks(self.shapes, self.parameters["columns"], self.vectors)
        sums = self._sums(masks)
        adds = widen(self.shapes, self.parameters["adds"])
        # Where nothing is to be added this is 0, which changes nothing: no sum is -0.
        self._store(self._added(sums, [mask & adds for mask in masks]), masks)

    def _prefetch_result(self) -> None:
        """Asks for the memory that the sums go to: it arrives while they are computed."""
        for row in self._rows():
            for offset in range(0, self.vectors * self.shapes.vector_bytes, 64):
                self.builder.prefetch((row + offset).register, write=True, locality=3)

    def _sums(self, masks: Masks) -> list[Value]:
        """The loop along the inner dimension."""
        builder, p, count = self.builder, self.parameters, self.rows * self.vectors
        bases = [
            p["left"] + p["left_row"] * row if row else p["left"] for row in range(0, self.rows, _ROWS_OF_A_POINTER)
        ]
        zero = Value(builder, builder.zero(self.shapes.type, self.shapes.lanes))
        carried = [*[zero] * count, *bases, p["right"], p["ahead"], p["depth"]]
        loop = OpenLoop(builder, [value.register for value in carried])
        *carried, right, ahead, remaining = (Value(builder, register) for register in loop.carried)
        sums, lefts = carried[:count], carried[count:]
        # LLVM would make one pointer of them all, moved from row to row, and each load wait for the move before. It
        # cannot where it does not know that the distance is always the same.
        distance = self._opaque(p["left_row"])
        twice = distance << 1
        columns = [load_vector(self.shapes, right, number, masks[number]) for number in range(self.vectors)]
        builder.prefetch(ahead.register, write=False, locality=2)
        rows = [self._opaque(left) for left in lefts]
        for row in range(self.rows):
            base, number = divmod(row, _ROWS_OF_A_POINTER)
            address = rows[base] + (distance, twice)[number - 1] if number else rows[base]
            left = widen(self.shapes, address.load(self.shapes.type))
            for column in range(self.vectors):
                index = row * self.vectors + column
                sums[index] = multiply_add(self.shapes, left, columns[column], sums[index])
        following = [row + p["left_step"] for row in rows]
        following += [right + p["right_step"], ahead + p["right_step"], remaining - 1]
        more = following[-1].compare("ne", 0)
        loop.close([value.register for value in (*sums, *following)], more.register)
        return sums

    def _opaque(self, value: Value) -> Value:
        """The same value, of which LLVM knows nothing."""
        type = value.typed.split()[0]
        return value.wrap(self.builder.make(f'call {type} asm "", "=r,0"({value.typed})', value.type, 1))

    def _added(self, sums: list[Value], masks: Masks) -> list[Value]:
        """The sums with what is in the result already. All of it is read before anything is written: rows of many
        products are as far apart as pages are, and a load waits for a store to the same offset in another page.
        """
        results = []
        for row, address in enumerate(list(self._rows())):
            for number in range(self.vectors):
                before = load_vector(self.shapes, address, number, masks[number])
                results.append(before + sums[row * self.vectors + number])
        return results

    def _store(self, sums: list[Value], masks: Masks) -> None:
        for row, address in enumerate(list(self._rows())):
            for number in range(self.vectors):
                total = sums[row * self.vectors + number]
                store_vector(self.shapes, total, address, number, masks[number])

    def _rows(self) -> Iterator[Value]:
        """Where the rows of the result begin."""
        address = self.parameters["out"]
        yield address
        for _ in range(1, self.rows):
            address = address + self.parameters["out_row"]
            yield address
