"""Emits the loads and stores of a kernel's stages: full vectors when all lanes are active, masked at the end of a row.

In: a stage and the current position (`kernel_frame.py`). Out: its arguments in registers, or its results in memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from livegrad.codegen.llvm import baseline_lanes, vector_memory
from livegrad.codegen.llvm.deinterleave import load_columns, load_spread, store_columns, store_spread
from livegrad.codegen.llvm.kernel_frame import AccessKind, Frame, Tail
from livegrad.codegen.llvm.registers import NodeValue, Register
from livegrad.ir.types import Scalar, bool_, i64
from livegrad.schedule.kernel import Sink, Stage, StridedAccess
from livegrad.schedule.loops.nest import LoopNest


class Column(NamedTuple):
    """One strided access of all lanes: lane 0's address, the element type, and the stride from lane to lane."""

    pointer: Register
    type: Scalar
    step: Register


class Accesses(Frame):
    """Loads the arguments of stages and stores their results."""

    def __init__(self, nest: LoopNest, is_baseline: bool = False) -> None:
        super().__init__(nest, is_baseline)
        self.columns: dict[int, list[Register]] = {}  # loaded columns of short rows, by read
        self.stored_columns: dict[int, list[Register]] = {}  # columns to be stored, by output
        self.tiles: dict[tuple[AccessKind, int], Register] = {}  # the tile of each transposed access
        self.tile_row = self.builder.constant(0, i64)  # the tile's offset of the current point's lane 0

    def _arguments(self, stage: Stage, indices: list[Register], tail: Tail | None, vector: bool) -> list[NodeValue]:
        reads = sorted({source.number for source in stage.sources if source.kind == "read"})
        loaded = self._load_all(reads, indices, tail, vector)
        arguments: list[NodeValue] = []
        for source in stage.sources:
            match source.kind:
                case "index":
                    arguments.append(self._index(source.number, indices, vector))
                case "read":
                    arguments.append(loaded[source.number])
                case "indexed":
                    arguments.append(self.indexed_buffers[source.number])
                case "scalar":
                    arguments.append(self.scalar_arguments[source.number])
                case "row":
                    value = self.rows[source.number]
                    assert value is not None
                    arguments.append(value)
        return arguments

    def _index(self, dimension: int, indices: list[Register], vector: bool) -> Register:
        position = [*self.domain_index, *indices][dimension]
        ranks = len(self.domain_index)
        last = ranks - 1 if self.across else ranks + len(self.inner) - 1
        if dimension != last or not vector or self.builder.lanes == 1:
            return replace(position, dimension=dimension)
        lanes = self.builder.apply("add", i64, self.builder.widen(position, self.builder.lanes), self._lane_numbers())
        return replace(lanes, dimension=dimension, first=position)

    def _address_of_access(
        self, kind: AccessKind, number: int, indices: list[Register]
    ) -> tuple[Register, Scalar, Register, Register | None]:
        """The base and offset of lane 0, the element type, and the stride from lane to lane (None: uniform)."""
        reading = kind == "read"
        port = (self.kernel.reads if reading else self.kernel.outputs)[number]
        strides = (self.read_strides if reading else self.output_strides)[number]
        base = (self.read_bases if reading else self.output_bases)[number]
        position = [*self.domain_index, *(indices if port.level == "point" else [])]
        outer_strides = strides[: len(position)]
        if port.scratch:
            return self._scratch_address(base, port, outer_strides, indices)
        offset = self.offset_of(outer_strides, position, None)
        ranks = len(self.domain_index)
        axis = ranks - 1 if self.across else (len(position) - 1 if len(position) > ranks else None)
        step = outer_strides[axis] if axis is not None and axis >= 0 and outer_strides else None
        return base, port.element, offset, step

    def _tile_pointer(self, kind: AccessKind, number: int, type: Scalar) -> Register:
        return vector_memory.element_address(self.builder, self.tiles[kind, number], type, self.tile_row)

    def _scratch_address(
        self, base: Register, port: StridedAccess, strides: list[Register], indices: list[Register]
    ) -> tuple[Register, Scalar, Register, Register]:
        """The address in the thread's scratch memory, which holds one row, or one row per lane, point by point."""
        builder = self.builder
        bytes_before = builder.apply("mul", i64, Register("%worker", i64, 1), self.scratch_size)
        base = builder.advance(base, bytes_before)
        offset = self.offset_of(strides[len(self.domain_index) :], indices, None)
        if self.across:
            offset = builder.apply("mul", i64, offset, builder.constant(builder.lanes, i64))
        return base, port.element, offset, builder.constant(1, i64)

    def _load_all(
        self, reads: list[int], indices: list[Register], tail: Tail | None, vector: bool
    ) -> dict[int, Register]:
        """Loads reads, grouped by kind of access, so that each group tests once whether all lanes are active."""
        builder = self.builder
        loaded: dict[int, Register] = {}
        contiguous: list[tuple[int, Register, Scalar]] = []
        strided: list[tuple[int, Column]] = []
        if vector and builder.lanes > 1:
            loaded = self._load_packs(reads, indices, tail)
        for number in reads:
            if number in loaded:
                continue
            if number in self.columns:
                loaded[number] = self.columns[number][int(indices[-1].text)]
                continue
            if ("read", number) in self.tiles:
                type = self.kernel.reads[number].element
                loaded[number] = vector_memory.load_vector(
                    builder, self._tile_pointer("read", number, type), type, None
                )
                continue
            base, type, offset, step = self._address_of_access("read", number, indices)
            pointer = vector_memory.element_address(builder, base, type, offset)
            if not vector or builder.lanes == 1 or step is None or step.text == "0":
                loaded[number] = vector_memory.load_uniform(builder, pointer, type)
            elif step.text == "1":
                contiguous.append((number, pointer, type))
            elif step.literal:
                strided.append((number, Column(pointer, type, step)))
            else:
                loaded[number] = self._gather(pointer, type, step, tail)
        if contiguous:
            loaded |= self._load_contiguous(contiguous, tail)
        return loaded | self._load_small_strides(strided, tail)

    def _load_packs(self, reads: list[int], indices: list[Register], tail: Tail | None) -> dict[int, Register]:
        """Reads that together cover short contiguous rows: each read is one column."""
        packs = [
            pack for pack in self.nest.read_packs if set(pack) <= {n for n in reads if ("read", n) not in self.tiles}
        ]
        loaded = self._load_columns([[self._column("read", n, indices) for n in pack] for pack in packs], tail)
        return {n: value for pack, row in zip(packs, loaded, strict=True) for n, value in zip(pack, row, strict=True)}

    def _gather(self, pointer: Register, type: Scalar, step: Register, tail: Tail | None) -> Register:
        return vector_memory.gather(self.builder, pointer, type, self._lane_offsets(step), self._mask_of(tail))

    def _scatter(self, pointer: Register, value: Register, step: Register, tail: Tail | None) -> None:
        vector_memory.scatter(self.builder, pointer, value, self._lane_offsets(step), self._mask_of(tail))

    def _lane_offsets(self, step: Register) -> Register:
        return self.builder.apply("mul", i64, self._lane_numbers(), self.builder.widen(step, self.builder.lanes))

    def _mask_of(self, tail: Tail | None) -> Register | None:
        return None if tail is None else self._lane_mask(tail)

    def _branch_on_tail(
        self, tail: Tail, full: Callable[[], list[Register]], partial: Callable[[], list[Register]]
    ) -> list[Register]:
        """Runs the code of `full` when all lanes are active, and that of `partial` at the end of a row."""
        if self.groups == "remainder":
            return partial()
        return self._branch(self._is_full(tail), full, partial)

    def _branch(
        self, condition: Register, then: Callable[[], list[Register]], otherwise: Callable[[], list[Register]]
    ) -> list[Register]:
        """Emits both alternatives in blocks of their own, and joins their results."""
        builder = self.builder
        full, part, ready = (builder.label(hint) for hint in ("full", "part", "ready"))
        builder.branch(condition, full, part)
        alternatives: list[list[Register]] = []
        ends: list[str] = []
        for label, emit in ((full, then), (part, otherwise)):
            builder.begin(label)
            alternatives.append(emit())
            ends.append(builder.block)
            builder.jump(ready)
        builder.begin(ready)
        return [builder.phi(a.type, a.lanes, [(a, ends[0]), (b, ends[1])]) for a, b in zip(*alternatives, strict=True)]

    def _is_full(self, tail: Tail) -> Register:
        position, stop = tail
        remaining = self.builder.apply("sub", i64, stop, position)
        return self.builder.apply("icmp sge", bool_, remaining, self.builder.constant(self.builder.lanes, i64))

    def _load_contiguous(self, reads: list[tuple[int, Register, Scalar]], tail: Tail | None) -> dict[int, Register]:
        def load(mask: Register | None) -> list[Register]:
            return [vector_memory.load_vector(self.builder, pointer, type, mask) for _, pointer, type in reads]

        if tail is None:
            loaded = load(None)
        elif self.is_baseline:
            remaining = self._remaining(tail)
            loaded = [baseline_lanes.load_first(self.builder, pointer, type, remaining) for _, pointer, type in reads]
        else:
            loaded = self._branch_on_tail(tail, lambda: load(None), lambda: load(self._lane_mask(tail)))
        return {number: value for (number, _, _), value in zip(reads, loaded, strict=True)}

    def _load_small_strides(self, reads: list[tuple[int, Column]], tail: Tail | None) -> dict[int, Register]:
        """De-interleaves lanes that are a few elements apart from full loads; gathers them at the end of a row."""

        def deinterleave() -> list[Register]:
            return [
                load_spread(self.builder, column.pointer, column.type, int(column.step.text)) for _, column in reads
            ]

        def gather() -> list[Register]:
            return [self._gather(*column, tail) for _, column in reads]

        if not reads:
            return {}
        loaded = deinterleave() if tail is None else self._branch_on_tail(tail, deinterleave, gather)
        return {number: value for (number, _), value in zip(reads, loaded, strict=True)}

    def _store_small_strides(self, stores: list[tuple[Column, Register]], tail: Tail | None) -> None:
        def interleave() -> list[Register]:
            for column, value in stores:
                store_spread(self.builder, column.pointer, value, int(column.step.text))
            return []

        def scatter() -> list[Register]:
            for column, value in stores:
                self._scatter(column.pointer, value, column.step, tail)
            return []

        if stores and tail is None:
            interleave()
        elif stores and tail is not None:
            self._branch_on_tail(tail, interleave, scatter)

    # --- short contiguous rows: arrays of structs ---

    def _is_short_row(self, kind: AccessKind, number: int) -> bool:
        """Whether each lane accesses a short row, and the rows of neighbouring lanes are adjacent in memory."""
        accesses = self.nest.reads if kind == "read" else self.nest.outputs
        return self.builder.lanes > 1 and "row" in accesses[number].strides

    def _load_rows(self, stage: Stage, tail: Tail) -> dict[int, list[Register]]:
        """The columns of all short rows that a stage reads."""
        reads = sorted({s.number for s in stage.sources if s.kind == "read" and self._is_short_row("read", s.number)})
        inner = [[self.builder.constant(column, i64)] for column in range(self.nest.unrolled_points)]
        loaded = self._load_columns(
            [[self._column("read", number, index) for index in inner] for number in reads], tail
        )
        return dict(zip(reads, loaded, strict=True))

    def _store_rows(self, tail: Tail) -> None:
        """Stores the short rows whose columns a stage has computed."""
        inner = [[self.builder.constant(column, i64)] for column in range(self.nest.unrolled_points)]
        rows = [
            ([self._column("output", n, index) for index in inner], values) for n, values in self.stored_columns.items()
        ]
        self._store_columns(rows, tail)
        self.stored_columns = {}

    def _column(self, kind: AccessKind, number: int, indices: list[Register]) -> Column:
        base, type, offset, step = self._address_of_access(kind, number, indices)
        assert step is not None
        return Column(vector_memory.element_address(self.builder, base, type, offset), type, step)

    def _load_columns(self, rows: list[list[Column]], tail: Tail | None) -> list[list[Register]]:
        """The columns of short rows: de-interleaved when all lanes are active, gathered at the end of a row."""

        def deinterleave() -> list[Register]:
            return [
                register
                for row in rows
                for register in load_columns(self.builder, row[0].pointer, row[0].type, len(row))
            ]

        def gather() -> list[Register]:
            return [self._gather(*column, tail) for row in rows for column in row]

        if not rows:
            return []
        registers = iter(deinterleave() if tail is None else self._branch_on_tail(tail, deinterleave, gather))
        return [[next(registers) for _ in row] for row in rows]

    def _store_columns(self, rows: list[tuple[list[Column], list[Register]]], tail: Tail | None) -> None:
        def interleave() -> list[Register]:
            for row, values in rows:
                store_columns(self.builder, row[0].pointer, values)
            return []

        def scatter() -> list[Register]:
            for row, values in rows:
                for column, value in zip(row, values, strict=True):
                    self._scatter(column.pointer, value, column.step, tail)
            return []

        if rows and tail is None:
            interleave()
        elif rows and tail is not None:
            self._branch_on_tail(tail, interleave, scatter)

    def _store(
        self,
        stores: list[tuple[Sink, NodeValue]],
        indices: list[Register],
        tail: Tail | None,
        vector: bool,
    ) -> None:
        builder = self.builder
        contiguous: list[tuple[int, Register, Register]] = []
        strided: list[tuple[Column, Register]] = []
        values = {target.number: value for target, value in stores}
        untiled = {number for number in values if ("output", number) not in self.tiles}
        packs = [pack for pack in self.nest.output_packs if vector and builder.lanes > 1 and set(pack) <= untiled]
        self._store_packs(packs, values, indices, tail)
        packed = {number for pack in packs for number in pack}
        for target, value in stores:
            if target.number in packed:
                continue
            assert isinstance(value, Register)
            if vector and self._is_short_row("output", target.number):
                self.stored_columns.setdefault(target.number, []).append(value)
                continue
            if ("output", target.number) in self.tiles:
                pointer = self._tile_pointer("output", target.number, value.type)
                vector_memory.store_vector(builder, pointer, builder.widen(value, builder.lanes), None)
                continue
            base, type, offset, step = self._address_of_access("output", target.number, indices)
            pointer = vector_memory.element_address(builder, base, type, offset)
            if not vector or builder.lanes == 1 or step is None:
                vector_memory.store_element(builder, pointer, value)
            elif step.text == "1":
                contiguous.append((target.number, pointer, builder.widen(value, builder.lanes)))
            elif step.literal and step.text != "0":
                strided.append((Column(pointer, type, step), builder.widen(value, builder.lanes)))
            else:
                self._scatter(pointer, value, step, tail)
        if contiguous:
            self._store_contiguous(contiguous, tail)
        self._store_small_strides(strided, tail)

    def _store_packs(
        self, packs: list[tuple[int, ...]], values: dict[int, NodeValue], indices: list[Register], tail: Tail | None
    ) -> None:
        rows: list[tuple[list[Column], list[Register]]] = []
        for pack in packs:
            row = [value for number in pack if isinstance(value := values[number], Register)]
            rows.append(([self._column("output", number, indices) for number in pack], row))
        self._store_columns(rows, tail)

    def _store_contiguous(self, stores: list[tuple[int, Register, Register]], tail: Tail | None) -> None:
        def store(mask: Register | None, non_temporal: tuple[int, ...] = ()) -> list[Register]:
            for number, pointer, value in stores:
                vector_memory.store_vector(self.builder, pointer, value, mask, non_temporal=number in non_temporal)
            return []

        def store_all_lanes() -> list[Register]:
            """Non-temporal stores need addresses aligned to cache lines, so they have a branch of their own."""
            non_temporal = self.nest.non_temporal
            if self.line_aligned is None or not any(number in non_temporal for number, _, _ in stores):
                return store(None)
            return self._branch(self.line_aligned, lambda: store(None, non_temporal), lambda: store(None))

        if tail is None:
            store_all_lanes()
        elif self.is_baseline:
            remaining = self._remaining(tail)
            for _, pointer, value in stores:
                baseline_lanes.store_first(self.builder, pointer, value, remaining)
        else:
            self._branch_on_tail(tail, store_all_lanes, lambda: store(self._lane_mask(tail)))
