"""Loads and stores rows between memory and workspaces whose vectors hold one element of several rows.

Called by `transform_module.py`. In the workspace, vector i holds real number i of each row; a complex number takes two
vectors. Contiguous rows are transposed in registers, block by block; interleaved rows are loaded as vectors; other rows
are loaded number by number.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from livegrad.codegen.llvm.fourier.butterflies import Lanes
from livegrad.codegen.llvm.register_tiles import transpose_block
from livegrad.codegen.llvm.registers import llvm_element, pointer
from livegrad.codegen.llvm.values import LlvmModule, Procedure, Value, counting, integer, largest, smallest, when
from livegrad.ir.types import Scalar, i64

SIDE_BY_SIDE, CONTIGUOUS, SPREAD = 0, 1, 2  # memory layouts of rows
# `rows` is an array of addresses. `step` is the stride between elements of a row, in bytes. An element has two vectors
# of the workspace, for its real and imaginary part; `first` is the offset of real parts.
_LOAD_PARAMETERS = {
    "rows": pointer, "layout": i64, "step": i64, "count": i64, "workspace": pointer, "first": i64,
}  # fmt: skip


def define_moves(module: LlvmModule, lanes: Lanes, kind: str) -> None:
    """Defines the functions that load and store rows of `complex` or `real` numbers."""
    parts = 2 if kind == "complex" else 1
    _define_load(module, lanes, f"load_{kind}", parts)
    _define_store(module, lanes, f"store_{kind}", parts)


def declarations(lanes: Lanes, kinds: Sequence[str]) -> set[str]:
    """Declarations of these functions for modules that import them."""
    return {
        f"declare void @{name}({', '.join(map(llvm_element, _parameters(lanes, name).values()))})"
        for kind in kinds
        for name in (f"load_{kind}", f"store_{kind}")
    }


def _parameters(lanes: Lanes, name: str) -> dict[str, Scalar]:
    return _LOAD_PARAMETERS | ({"scale": lanes.type} if name.startswith("store") else {})


class _Move(Procedure):
    """A function that moves rows of real numbers (one part) or complex ones (two)."""

    def __init__(self, module: LlvmModule, lanes: Lanes, name: str, parts: int) -> None:
        super().__init__(module, name, _parameters(lanes, name))
        self.lanes, self.parts = lanes, parts
        self.workspace, self.step, self.count = (self.parameters[key] for key in ("workspace", "step", "count"))

    def row(self, lane: int) -> Value:
        return (self.parameters["rows"] + 8 * lane).load(pointer)

    def addresses(self, index: Value) -> list[Value]:
        """The addresses of the parts of an element in the workspace."""
        element, first = self.workspace + index * (2 * self.lanes.vector_bytes), self.parameters["first"]
        return [element + offset for offset in (first, first ^ self.lanes.vector_bytes)[: self.parts]]

    def results(self, index: Value) -> list[Value]:
        """The scaled parts of an element, ready to be stored."""
        return [self.vector(address) * self.parameters["scale"] for address in self.addresses(index)]

    def vector(self, address: Value) -> Value:
        return address.load(self.lanes.type, self.lanes.count, self.lanes.bytes)

    def store(self, address: Value, value: Value) -> None:
        address.store(value, self.lanes.bytes)

    def emit(self, bodies: Mapping[int, Callable[[], None]]) -> None:
        """Emits a branch for each layout, and ends the function."""
        layout = self.parameters["layout"]
        for layout_code, body in bodies.items():
            with when(layout.equals(layout_code)):
                body()
        self.finish(exported=True)

    def squares(self, body: Callable[[Value, int], None]) -> None:
        """Loops over square blocks of as many real numbers as lanes; the last block ends at the last element."""
        size = self.lanes.count // self.parts
        with counting(0, self.count, size) as start:
            body(largest(smallest(start, self.count - size), 0), size)


def _define_load(module: LlvmModule, lanes: Lanes, name: str, parts: int) -> None:
    move = _Move(module, lanes, name, parts)
    builder, width = move.builder, lanes.count

    def side_by_side() -> None:
        first = move.row(0)
        with counting(0, move.count) as index:
            source = first + index * move.step
            vectors = [move.vector(source + number * lanes.vector_bytes) for number in range(parts)]
            if parts == 2:
                low, high = (vector.register for vector in vectors)
                vectors = [source.wrap(builder.shuffle(low, range(part, 2 * width, 2), high)) for part in range(2)]
            for address, vector in zip(move.addresses(index), vectors, strict=True):
                move.store(address, vector)

    def contiguous() -> None:
        rows = [move.row(lane) for lane in range(width)]

        def square(start: Value, size: int) -> None:
            offset = start * (parts * lanes.bytes)
            columns = transpose_block(builder, [move.vector(row + offset).register for row in rows])
            for number in range(size):
                for part, address in enumerate(move.addresses(start + number)):
                    move.store(address, address.wrap(columns[number * parts + part]))

        move.squares(square)

    def spread() -> None:
        rows = [move.row(lane) for lane in range(width)]
        with counting(0, move.count) as index:
            offset = index * move.step
            for part, address in enumerate(move.addresses(index)):
                vector = builder.zero(lanes.type, width)
                for lane, row in enumerate(rows):
                    number = (row + offset + part * lanes.bytes).load(lanes.type)
                    vector = builder.insert(vector, number.register, lane)
                move.store(address, address.wrap(vector))

    move.emit({SIDE_BY_SIDE: side_by_side, CONTIGUOUS: contiguous, SPREAD: spread})


def _define_store(module: LlvmModule, lanes: Lanes, name: str, parts: int) -> None:
    move = _Move(module, lanes, name, parts)
    builder, width = move.builder, lanes.count

    def side_by_side() -> None:
        first = move.row(0)
        with counting(0, move.count) as index:
            target = first + index * move.step
            vectors = move.results(index)
            if parts == 2:
                re, im = (vector.register for vector in vectors)
                order = [part * width + lane for lane in range(width) for part in range(2)]
                halves = (order[:width], order[width:])
                vectors = [target.wrap(builder.shuffle(re, half, im)) for half in halves]
            for number, vector in enumerate(vectors):
                move.store(target + number * lanes.vector_bytes, vector)

    def contiguous() -> None:
        rows = [move.row(lane) for lane in range(width)]

        def square(start: Value, size: int) -> None:
            columns = [part.register for number in range(size) for part in move.results(start + number)]
            offset = start * (parts * lanes.bytes)
            for row, vector in zip(rows, transpose_block(builder, columns), strict=True):
                move.store(row + offset, row.wrap(vector))

        move.squares(square)

    def spread() -> None:
        rows = [move.row(lane) for lane in range(width)]
        with counting(0, move.count) as index:
            offset = index * move.step
            for part, vector in enumerate(move.results(index)):
                for lane, row in enumerate(rows):
                    (row + offset + part * lanes.bytes).store(row.wrap(builder.extract(vector.register, lane)))

    move.emit({SIDE_BY_SIDE: side_by_side, CONTIGUOUS: contiguous, SPREAD: spread})


def find_rows(batch: dict[str, Value], start: Value, rows: Value, lanes: int) -> None:
    """Emits code that stores the addresses of `lanes` rows from `start` on; past the last row, its address is repeated.

    Rows are numbered along two dimensions of the batch: `inner` rows are `row` bytes apart, and such groups are `outer`
    bytes apart.
    """
    inner, last = batch["inner"], batch["count"] - 1
    start = smallest(start, last)
    position = start % inner
    address = batch["address"] + (start // inner) * batch["outer"] + position * batch["row"]
    wrap = batch["outer"] - (inner - 1) * batch["row"]
    for lane in range(lanes):
        (rows + 8 * lane).store(address)
        following = position + 1
        wraps = following.equals(inner)
        move = wraps.select(wrap, batch["row"])
        ends = integer(start.builder, lane) + start
        move = (ends < last).select(move, 0)
        address = address + move
        position = wraps.select(integer(start.builder, 0), following)
