"""Emits the micro-kernels of matrix products as LLVM IR: register tiles of some rows by some vectors of columns.

Called by `matmul_module.py`. For each inner element, a tile broadcasts one left element per row and loads each right
vector once.
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
    """The function of one tile: sums over `depth` inner elements, stored to the result or added to it."""

    def __init__(self, module: LlvmModule, shapes: TileShapes, rows: int, vectors: int) -> None:
        self.shapes, self.rows, self.vectors = shapes, rows, vectors
        self.function = Procedure(module, f"tile_{rows}x{vectors}", _PARAMETERS)
        self.builder, self.parameters = self.function.builder, self.function.parameters
        self._emit()

    @property
    def symbol(self) -> str:
        return f"@{self.function.name}"

    def _emit(self) -> None:
        builder, p = self.builder, self.parameters
        self._prefetch_result()
        # Full tiles have code of their own: a masked load occupies a multiplication unit, or a register for its mask.
        whole = p["columns"] >= self.shapes.panel(self.vectors)
        builder.branch(whole.register, "whole", "part")
        builder.begin("whole")
        unmasked = [None] * self.vectors
        sums = self._sums(unmasked)
        builder.branch(p["adds"].register, "add", "store")
        builder.begin("add")
        self._store(self._add_result(sums, unmasked), unmasked)
        builder.line("ret void")
        builder.begin("store")
        self._store(sums, unmasked)
        builder.line("ret void")
        builder.begin("part")
        self._emit_partial()
        self.function.finish(attributes="#1")

    def _emit_partial(self) -> None:
        """A tile with fewer columns than its width."""
        masks = column_masks(self.shapes, self.parameters["columns"], self.vectors)
        sums = self._sums(masks)
        adds = widen(self.shapes, self.parameters["adds"])
        # If nothing is to be added, masked loads give 0, which changes no sum: sums are never -0.
        self._store(self._add_result(sums, [mask & adds for mask in masks]), masks)

    def _prefetch_result(self) -> None:
        """Prefetches the result's memory, which arrives while the sums are computed."""
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
        # LLVM would derive all row addresses from one pointer that it increments from row to row, and each load would
        # wait for the previous increment. Hiding that the row stride is loop-invariant prevents it.
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
        """The same value, opaque to LLVM's optimiser."""
        type = value.typed.split()[0]
        return value.wrap(self.builder.make(f'call {type} asm "", "=r,0"({value.typed})', value.type, 1))

    def _add_result(self, sums: list[Value], masks: Masks) -> list[Value]:
        """The sums plus the result in memory.

        All of it is read before anything is stored: rows are often a multiple of the page size apart, and a load waits
        for an earlier store to the same offset in another page.
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
        """The addresses of the rows of the result."""
        address = self.parameters["out"]
        yield address
        for _ in range(1, self.rows):
            address = address + self.parameters["out_row"]
            yield address
