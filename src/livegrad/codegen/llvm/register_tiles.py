"""Transposed accesses: contiguous along the inner dimension, while lanes are far apart in memory.

A kernel sweeps its inner dimension in tiles. Transposed reads are transposed block by block in registers into a tile on
the stack, in which lanes are contiguous; transposed writes go through such a tile in the other direction.
"""

from __future__ import annotations

from collections.abc import Callable

from livegrad.codegen.llvm import vector_memory
from livegrad.codegen.llvm.accesses import Accesses, Column
from livegrad.codegen.llvm.baseline_lanes import first_lanes
from livegrad.codegen.llvm.builder import Builder, lane_constants
from livegrad.codegen.llvm.counted_loops import counted_loop
from livegrad.codegen.llvm.deinterleave import load_spread
from livegrad.codegen.llvm.kernel_frame import AccessKind, Tail
from livegrad.codegen.llvm.registers import Register, llvm_memory, pointer
from livegrad.ir.types import Scalar, bool_, i64
from livegrad.schedule.kernel import Stage
from livegrad.schedule.loops.cost_model import TILE, byte_size
from livegrad.schedule.loops.dimensions import NEAR, is_transposed

_Block = Callable[[Register, Register, Register], None]  # its first lane, its first point, and its address in the tile


class Tiles(Accesses):
    """Sweeps of the last inner dimension in tiles."""

    tail: Tail | None

    def _tiled_sweep(
        self,
        stage: Stage,
        outer: list[Register],
        span: tuple[Register, Register],
        state: list[Register],
        body: Callable[[Register, list[Register]], list[Register]],
        down: bool,
    ) -> list[Register]:
        """`body` at each point of a span of the last inner dimension; transposed accesses go through tiles."""
        builder = self.builder
        start, stop = span
        size = builder.constant(TILE, i64)
        reads = sorted({s.number for s in stage.sources if s.kind == "read" and self._is_transposed("read", s.number)})
        outputs = [t.number for t in stage.sinks if t.kind == "output" and self._is_transposed("output", t.number)]

        def tile(number: Register, carried: list[Register]) -> list[Register]:
            first = builder.apply("add", i64, start, builder.apply("mul", i64, number, size))
            count = builder.least(builder.apply("sub", i64, stop, first), size)
            for read in reads:
                self._transpose_in(read, [*outer, first], count)

            def point(tile_position: Register, inner: list[Register]) -> list[Register]:
                self.tile_row = builder.apply("mul", i64, tile_position, builder.constant(builder.lanes, i64))
                return body(builder.apply("add", i64, first, tile_position), inner)

            ended = counted_loop(builder, builder.constant(0, i64), count, 1, carried, point, downward=down)
            for output in outputs:
                self._transpose_out(output, [*outer, first], count)
            return ended

        rounded = builder.apply("add", i64, builder.apply("sub", i64, stop, start), builder.constant(TILE - 1, i64))
        tiles = builder.apply("sdiv", i64, rounded, size)
        self.tiles = {("read", n): self._tile_memory("read", n) for n in reads}
        self.tiles |= {("output", n): self._tile_memory("output", n) for n in outputs}
        ended = counted_loop(builder, builder.constant(0, i64), tiles, 1, state, tile, downward=down)
        self.tiles = {}
        return ended

    def _is_transposed(self, kind: AccessKind, number: int) -> bool:
        reading = kind == "read"
        port = (self.kernel.reads if reading else self.kernel.outputs)[number]
        access = (self.nest.reads if reading else self.nest.outputs)[number]
        return port.level == "point" and is_transposed(access.strides, self.nest.domain_rank, reading)

    def _point_step(self, kind: AccessKind, number: int) -> int:
        """From point to point, in elements."""
        last = (self.nest.reads if kind == "read" else self.nest.outputs)[number].strides[-1]
        return {"one": 1, **{near: step for step, near in NEAR.items()}}[last]

    def _tile_memory(self, kind: AccessKind, number: int) -> Register:
        """The memory of a tile, shared by all stages that need it for this access."""
        name = f"%tile.{kind}{number}"
        port = (self.kernel.reads if kind == "read" else self.kernel.outputs)[number]
        line = f"  {name} = alloca [{TILE * self.builder.lanes} x {llvm_memory(port.element)}], align 64"
        if line not in self.builder.entry:
            self.builder.entry.append(line)
        return Register(name, pointer, 1)

    def _transpose_in(self, number: int, indices: list[Register], count: Register) -> None:
        builder = self.builder
        column, step = self._column("read", number, indices), self._point_step("read", number)
        held, back = vector_memory.memory_type(column.type), step < 0

        def block(lane: Register, point: Register, tile_position: Register) -> None:
            side = self._side(held)
            rows = self._rows(column, lane, point, side, step)

            def load(mask: Register | None) -> list[Register]:
                if step in (1, -1):
                    return [vector_memory.load_vector(builder, row, held, mask, side) for row in rows]
                if mask is None:
                    return [load_spread(builder, row, held, step, side) for row in rows]
                lane_offsets = lane_constants(range(0, side * step, step), i64)
                return [vector_memory.gather(builder, row, held, lane_offsets, mask) for row in rows]

            transposed = transpose_block(builder, self._masked_at_the_end(point, count, side, back, load))
            for offset, value in enumerate(reversed(transposed) if back else transposed):
                vector_memory.store_vector(
                    builder, self._tile_address("read", number, held, tile_position, offset), value, None
                )

        self._blocks(held, builder.constant(builder.lanes, i64), count, block)  # all lanes: what is computed has values

    def _transpose_out(self, number: int, indices: list[Register], count: Register) -> None:
        builder = self.builder
        column, step = self._column("output", number, indices), self._point_step("output", number)
        held, back = vector_memory.memory_type(column.type), step < 0

        def block(lane: Register, point: Register, tile_position: Register) -> None:
            side = self._side(held)
            addresses = [self._tile_address("output", number, held, tile_position, offset) for offset in range(side)]
            columns = [vector_memory.load_vector(builder, address, held, None, side) for address in addresses]
            transposed = transpose_block(builder, columns[::-1] if back else columns)
            rows = self._rows(column, lane, point, side, step)

            def store(mask: Register | None) -> list[Register]:
                # The last one first: those beyond the end have the place of the last that there is.
                for row, value in reversed(list(zip(rows, transposed, strict=True))):
                    vector_memory.store_vector(builder, row, value, mask)
                return []

            self._masked_at_the_end(point, count, side, back, store)

        left = builder.apply("add", i64, self._last_lane(), builder.constant(1, i64))
        self._blocks(held, builder.least(left, builder.constant(builder.lanes, i64)), count, block)

    def _masked_at_the_end(
        self, point: Register, count: Register, side: int, back: bool, text: Callable[[Register | None], list[Register]]
    ) -> list[Register]:
        """What a text gives for a square, under a mask where there are fewer points than its side."""
        builder = self.builder
        left = builder.apply("sub", i64, count, point)
        whole = builder.apply("icmp sge", bool_, left, builder.constant(side, i64))
        return self._choose(whole, lambda: text(None), lambda: text(first_lanes(builder, left, side, back)))

    def _side(self, held: Scalar) -> int:
        """How many lanes and points are a square that registers hold."""
        return min(TILE, self.builder.lanes, self.nest.vector_bytes // byte_size(held))

    def _blocks(self, held: Scalar, stop: Register, count: Register, block: _Block) -> None:
        """All squares of so many lanes and points of a tile."""
        builder, side = self.builder, self._side(held)
        lanes, zero = builder.constant(builder.lanes, i64), builder.constant(0, i64)

        def points(point: Register, carried: list[Register]) -> list[Register]:
            row = builder.apply("mul", i64, point, lanes)

            def groups(lane: Register, carried: list[Register]) -> list[Register]:
                block(lane, point, builder.apply("add", i64, row, lane))
                return []

            return counted_loop(builder, zero, stop, side, [], groups)

        counted_loop(builder, zero, count, side, [], points)

    def _tile_address(
        self, kind: AccessKind, number: int, held: Scalar, tile_position: Register, offset: int
    ) -> Register:
        moved = self.builder.apply("add", i64, tile_position, self.builder.constant(offset * self.builder.lanes, i64))
        return vector_memory.element_address(self.builder, self.tiles[kind, number], held, moved)

    def _rows(self, column: Column, lane: Register, point: Register, side: int, point_step: int) -> list[Register]:
        """Where the points of each lane of a square begin in memory; lanes beyond the end are where the last one is."""
        builder, type, step = self.builder, column.type, column.step
        last = self._last_lane()
        lane = builder.least(lane, last)
        offset = builder.apply("mul", i64, lane, step)
        first = point if point_step > 0 else builder.apply("add", i64, point, builder.constant(side - 1, i64))
        moved = first if point_step == 1 else builder.apply("mul", i64, first, builder.constant(point_step, i64))
        offset = builder.apply("add", i64, offset, moved)
        rows = [vector_memory.element_address(builder, column.pointer, type, offset)]
        left = builder.apply("sub", i64, last, lane)
        while len(rows) < side:
            follows = builder.apply("icmp sle", bool_, builder.constant(len(rows), i64), left)
            moved = builder.select(follows, step, builder.constant(0, i64))
            rows.append(vector_memory.element_address(builder, rows[-1], type, moved))
        return rows

    def _last_lane(self) -> Register:
        """The number of the last lane that stands for an element, or more."""
        assert self.tail is not None
        position, stop = self.tail
        left = self.builder.apply("sub", i64, stop, position)
        return self.builder.apply("sub", i64, left, self.builder.constant(1, i64))


def transpose_block(builder: Builder, rows: list[Register]) -> list[Register]:
    """The columns of a square, whose rows come in: halves of ever smaller squares change places."""
    side, distance = len(rows), 1
    while distance < side:
        transposed = list(rows)
        for first in range(side):
            if first & distance:
                continue
            second = first | distance
            low = [side + (lane ^ distance) if lane & distance else lane for lane in range(side)]
            high = [side + lane if lane & distance else lane | distance for lane in range(side)]
            transposed[first] = builder.shuffle(rows[first], low, rows[second])
            transposed[second] = builder.shuffle(rows[first], high, rows[second])
        rows, distance = transposed, 2 * distance
    return rows
