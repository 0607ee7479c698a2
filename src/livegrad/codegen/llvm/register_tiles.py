"""Emits transposed accesses through tiles: accesses contiguous along the inner dimension, with strided lanes.

The loop over the inner dimension is tiled. Reads are transposed block by block in registers into a tile on the stack,
in which lanes are contiguous; writes go through such a tile in the other direction.
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

_Block = Callable[[Register, Register, Register], None]  # of its first lane, its first point, and its tile offset


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
        """Runs `body` at each point of a span of the last inner dimension; transposed accesses go through tiles."""
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
        """The stride from point to point, in elements."""
        last = (self.nest.reads if kind == "read" else self.nest.outputs)[number].strides[-1]
        return {"one": 1, **{kind: step for step, kind in NEAR.items()}}[last]

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
        stored_type, back = vector_memory.memory_type(column.type), step < 0

        def block(lane: Register, point: Register, tile_position: Register) -> None:
            side = self._side(stored_type)
            rows = self._row_addresses(column, lane, point, side, step)

            def load(mask: Register | None) -> list[Register]:
                if step in (1, -1):
                    return [vector_memory.load_vector(builder, row, stored_type, mask, side) for row in rows]
                if mask is None:
                    return [load_spread(builder, row, stored_type, step, side) for row in rows]
                lane_offsets = lane_constants(range(0, side * step, step), i64)
                return [vector_memory.gather(builder, row, stored_type, lane_offsets, mask) for row in rows]

            transposed = transpose_block(builder, self._mask_partial_block(point, count, side, back, load))
            for offset, value in enumerate(reversed(transposed) if back else transposed):
                address = self._tile_address("read", number, stored_type, tile_position, offset)
                vector_memory.store_vector(builder, address, value, None)

        # All lanes: those past the end compute with defined values.
        self._blocks(stored_type, builder.constant(builder.lanes, i64), count, block)

    def _transpose_out(self, number: int, indices: list[Register], count: Register) -> None:
        builder = self.builder
        column, step = self._column("output", number, indices), self._point_step("output", number)
        stored_type, back = vector_memory.memory_type(column.type), step < 0

        def block(lane: Register, point: Register, tile_position: Register) -> None:
            side = self._side(stored_type)
            addresses = [
                self._tile_address("output", number, stored_type, tile_position, offset) for offset in range(side)
            ]
            columns = [vector_memory.load_vector(builder, address, stored_type, None, side) for address in addresses]
            transposed = transpose_block(builder, columns[::-1] if back else columns)
            rows = self._row_addresses(column, lane, point, side, step)

            def store(mask: Register | None) -> list[Register]:
                # In descending order: lanes past the end have the address of the last lane, which overwrites them.
                for row, value in reversed(list(zip(rows, transposed, strict=True))):
                    vector_memory.store_vector(builder, row, value, mask)
                return []

            self._mask_partial_block(point, count, side, back, store)

        remaining = builder.apply("add", i64, self._last_lane(), builder.constant(1, i64))
        self._blocks(stored_type, builder.least(remaining, builder.constant(builder.lanes, i64)), count, block)

    def _mask_partial_block(
        self, point: Register, count: Register, side: int, back: bool, emit: Callable[[Register | None], list[Register]]
    ) -> list[Register]:
        """Emits the accesses of a block, under a mask if there are fewer points than its side."""
        builder = self.builder
        remaining = builder.apply("sub", i64, count, point)
        is_full = builder.apply("icmp sge", bool_, remaining, builder.constant(side, i64))
        return self._branch(is_full, lambda: emit(None), lambda: emit(first_lanes(builder, remaining, side, back)))

    def _side(self, stored_type: Scalar) -> int:
        """The number of lanes and points of a square block whose rows are registers."""
        return min(TILE, self.builder.lanes, self.nest.vector_bytes // byte_size(stored_type))

    def _blocks(self, stored_type: Scalar, stop: Register, count: Register, block: _Block) -> None:
        """Loops over the blocks of a tile, up to `stop` lanes and `count` points."""
        builder, side = self.builder, self._side(stored_type)
        lanes, zero = builder.constant(builder.lanes, i64), builder.constant(0, i64)

        def points(point: Register, carried: list[Register]) -> list[Register]:
            row = builder.apply("mul", i64, point, lanes)

            def groups(lane: Register, carried: list[Register]) -> list[Register]:
                block(lane, point, builder.apply("add", i64, row, lane))
                return []

            return counted_loop(builder, zero, stop, side, [], groups)

        counted_loop(builder, zero, count, side, [], points)

    def _tile_address(
        self, kind: AccessKind, number: int, stored_type: Scalar, tile_position: Register, offset: int
    ) -> Register:
        moved = self.builder.apply("add", i64, tile_position, self.builder.constant(offset * self.builder.lanes, i64))
        return vector_memory.element_address(self.builder, self.tiles[kind, number], stored_type, moved)

    def _row_addresses(
        self, column: Column, lane: Register, point: Register, side: int, point_step: int
    ) -> list[Register]:
        """The address of the first point of each lane of a block; lanes past the end have the address of the last."""
        builder, type, step = self.builder, column.type, column.step
        last = self._last_lane()
        lane = builder.least(lane, last)
        offset = builder.apply("mul", i64, lane, step)
        first = point if point_step > 0 else builder.apply("add", i64, point, builder.constant(side - 1, i64))
        moved = first if point_step == 1 else builder.apply("mul", i64, first, builder.constant(point_step, i64))
        offset = builder.apply("add", i64, offset, moved)
        rows = [vector_memory.element_address(builder, column.pointer, type, offset)]
        remaining = builder.apply("sub", i64, last, lane)
        while len(rows) < side:
            exists = builder.apply("icmp sle", bool_, builder.constant(len(rows), i64), remaining)
            moved = builder.select(exists, step, builder.constant(0, i64))
            rows.append(vector_memory.element_address(builder, rows[-1], type, moved))
        return rows

    def _last_lane(self) -> Register:
        """The number of the last active lane; at least the number of lanes if further elements follow."""
        assert self.tail is not None
        position, stop = self.tail
        remaining = self.builder.apply("sub", i64, stop, position)
        return self.builder.apply("sub", i64, remaining, self.builder.constant(1, i64))


def transpose_block(builder: Builder, rows: list[Register]) -> list[Register]:
    """Transposes a square block, given its rows: swaps off-diagonal blocks of 1, 2, 4, … elements."""
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
