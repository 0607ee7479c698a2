"""Loads and stores of a kernel: all reads of a stage at once, as full vectors when all lanes are active."""

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
    """A column of short rows: where lane 0 has it, and how far it is to the next lane's."""

    pointer: Register
    type: Scalar
    step: Register


class Accesses(Frame):
    """Where a stage's arguments come from and its results go."""

    def __init__(self, nest: LoopNest, is_baseline: bool = False) -> None:
        super().__init__(nest, is_baseline)
        self.columns: dict[int, list[Register]] = {}  # of packed rows, by read
        self.stored_columns: dict[int, list[Register]] = {}  # by output
        self.tiles: dict[
            tuple[AccessKind, int], Register
        ] = {}  # where accesses of the stage find or leave what is transposed
        self.tile_row = self.builder.constant(0, i64)  # the place of a point's first lane there

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
                    arguments.append(self.wholes[source.number])
                case "scalar":
                    arguments.append(self.uniforms[source.number])
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
        """Where lane 0 of an access lies, its element, and the stride from lane to lane (None: not along the lanes)."""
        reading = kind == "read"
        port = (self.kernel.reads if reading else self.kernel.outputs)[number]
        strides = (self.read_strides if reading else self.output_strides)[number]
        base = (self.read_bases if reading else self.output_bases)[number]
        here = [*self.domain_index, *(indices if port.level == "point" else [])]
        outer_strides = strides[: len(here)]
        if port.scratch:
            return self._scratch_address(base, port, outer_strides, indices)
        offset = self.offset_of(outer_strides, here, None)
        ranks = len(self.domain_index)
        lane = ranks - 1 if self.across else (len(here) - 1 if len(here) > ranks else None)
        step = outer_strides[lane] if lane is not None and lane >= 0 and outer_strides else None
        return base, port.element, offset, step

    def _tile_pointer(self, kind: AccessKind, number: int, type: Scalar) -> Register:
        return vector_memory.element_address(self.builder, self.tiles[kind, number], type, self.tile_row)

    def _scratch_address(
        self, base: Register, port: StridedAccess, strides: list[Register], indices: list[Register]
    ) -> tuple[Register, Scalar, Register, Register]:
        """In the thread's own memory, which holds one row, or as many as there are lanes, point by point."""
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
        """Loads by group: consecutive lanes are loaded whole where all are there, under a mask at the end."""
        builder = self.builder
        loaded: dict[int, Register] = {}
        whole: list[tuple[int, Register, Scalar]] = []
        near: list[tuple[int, Column]] = []
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
                whole.append((number, pointer, type))
            elif step.literal:
                near.append((number, Column(pointer, type, step)))
            else:
                loaded[number] = self._gather(pointer, type, step, tail)
        if whole:
            loaded |= self._load_whole(whole, tail)
        return loaded | self._load_near(near, tail)

    def _load_packs(self, reads: list[int], indices: list[Register], tail: Tail | None) -> dict[int, Register]:
        """What several reads together take of packed rows: a column each."""
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

    def _either(
        self, tail: Tail, full: Callable[[], list[Register]], part: Callable[[], list[Register]]
    ) -> list[Register]:
        """What one of two texts gives: `full` runs where all lanes stand for elements, `part` at the end."""
        if self.groups == "remainder":
            return part()
        return self._choose(self._is_full(tail), full, part)

    def _choose(
        self, condition: Register, full: Callable[[], list[Register]], part: Callable[[], list[Register]]
    ) -> list[Register]:
        builder = self.builder
        whole, some, ready = (builder.label(hint) for hint in ("full", "part", "ready"))
        builder.branch(condition, whole, some)
        alternatives: list[list[Register]] = []
        ends: list[str] = []
        for label, text in ((whole, full), (some, part)):
            builder.begin(label)
            alternatives.append(text())
            ends.append(builder.block)
            builder.jump(ready)
        builder.begin(ready)
        return [builder.phi(a.type, a.lanes, [(a, ends[0]), (b, ends[1])]) for a, b in zip(*alternatives, strict=True)]

    def _is_full(self, tail: Tail) -> Register:
        position, stop = tail
        left = self.builder.apply("sub", i64, stop, position)
        return self.builder.apply("icmp sge", bool_, left, self.builder.constant(self.builder.lanes, i64))

    def _load_whole(self, whole: list[tuple[int, Register, Scalar]], tail: Tail | None) -> dict[int, Register]:
        def load(mask: Register | None) -> list[Register]:
            return [vector_memory.load_vector(self.builder, pointer, type, mask) for _, pointer, type in whole]

        if tail is None:
            loaded = load(None)
        elif self.is_baseline:
            left = self._left(tail)
            loaded = [baseline_lanes.load_first(self.builder, pointer, type, left) for _, pointer, type in whole]
        else:
            loaded = self._either(tail, lambda: load(None), lambda: load(self._lane_mask(tail)))
        return {number: value for (number, _, _), value in zip(whole, loaded, strict=True)}

    def _load_near(self, near: list[tuple[int, Column]], tail: Tail | None) -> dict[int, Register]:
        """Lanes that are a few elements apart, by whole loads; gathered at the end."""

        def spread() -> list[Register]:
            return [load_spread(self.builder, column.pointer, column.type, int(column.step.text)) for _, column in near]

        def gathered() -> list[Register]:
            return [self._gather(*column, tail) for _, column in near]

        if not near:
            return {}
        loaded = spread() if tail is None else self._either(tail, spread, gathered)
        return {number: value for (number, _), value in zip(near, loaded, strict=True)}

    def _store_near(self, near: list[tuple[Column, Register]], tail: Tail | None) -> None:
        def spread() -> list[Register]:
            for column, value in near:
                store_spread(self.builder, column.pointer, value, int(column.step.text))
            return []

        def scattered() -> list[Register]:
            for column, value in near:
                self._scatter(column.pointer, value, column.step, tail)
            return []

        if near and tail is None:
            spread()
        elif near and tail is not None:
            self._either(tail, spread, scattered)

    # --- packed rows ---

    def _is_packed(self, kind: AccessKind, number: int) -> bool:
        """Whether an access goes to short rows that lie one behind the other, a row for each lane."""
        accesses = self.nest.reads if kind == "read" else self.nest.outputs
        return self.builder.lanes > 1 and "row" in accesses[number].strides

    def _load_rows(self, stage: Stage, tail: Tail) -> dict[int, list[Register]]:
        """The columns of all packed rows that a stage reads."""
        reads = sorted({s.number for s in stage.sources if s.kind == "read" and self._is_packed("read", s.number)})
        inner = [[self.builder.constant(column, i64)] for column in range(self.nest.unrolled_points)]
        loaded = self._load_columns(
            [[self._column("read", number, index) for index in inner] for number in reads], tail
        )
        return dict(zip(reads, loaded, strict=True))

    def _store_rows(self, tail: Tail) -> None:
        """Writes the packed rows whose columns a stage has left, one after the other."""
        inner = [[self.builder.constant(column, i64)] for column in range(self.nest.unrolled_points)]
        rows = [
            ([self._column("output", n, index) for index in inner], held) for n, held in self.stored_columns.items()
        ]
        self._store_columns(rows, tail)
        self.stored_columns = {}

    def _column(self, kind: AccessKind, number: int, indices: list[Register]) -> Column:
        base, type, offset, step = self._address_of_access(kind, number, indices)
        assert step is not None
        return Column(vector_memory.element_address(self.builder, base, type, offset), type, step)

    def _load_columns(self, rows: list[list[Column]], tail: Tail | None) -> list[list[Register]]:
        """Columns of packed rows: from whole rows where all lanes are there, gathered at the end."""

        def whole() -> list[Register]:
            return [
                register
                for row in rows
                for register in load_columns(self.builder, row[0].pointer, row[0].type, len(row))
            ]

        def gathered() -> list[Register]:
            return [self._gather(*column, tail) for row in rows for column in row]

        if not rows:
            return []
        supply = iter(whole() if tail is None else self._either(tail, whole, gathered))
        return [[next(supply) for _ in row] for row in rows]

    def _store_columns(self, rows: list[tuple[list[Column], list[Register]]], tail: Tail | None) -> None:
        def whole() -> list[Register]:
            for row, held in rows:
                store_columns(self.builder, row[0].pointer, held)
            return []

        def scattered() -> list[Register]:
            for row, held in rows:
                for column, value in zip(row, held, strict=True):
                    self._scatter(column.pointer, value, column.step, tail)
            return []

        if rows and tail is None:
            whole()
        elif rows and tail is not None:
            self._either(tail, whole, scattered)

    def _store(
        self,
        stores: list[tuple[Sink, NodeValue]],
        indices: list[Register],
        tail: Tail | None,
        vector: bool,
    ) -> None:
        builder = self.builder
        whole: list[tuple[int, Register, Register]] = []
        near: list[tuple[Column, Register]] = []
        values = {target.number: value for target, value in stores}
        by_itself = {number for number in values if ("output", number) not in self.tiles}
        packs = [pack for pack in self.nest.output_packs if vector and builder.lanes > 1 and set(pack) <= by_itself]
        self._store_packs(packs, values, indices, tail)
        packed = {number for pack in packs for number in pack}
        for target, value in stores:
            if target.number in packed:
                continue
            assert isinstance(value, Register)
            if vector and self._is_packed("output", target.number):
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
                whole.append((target.number, pointer, builder.widen(value, builder.lanes)))
            elif step.literal and step.text != "0":
                near.append((Column(pointer, type, step), builder.widen(value, builder.lanes)))
            else:
                self._scatter(pointer, value, step, tail)
        if whole:
            self._store_whole(whole, tail)
        self._store_near(near, tail)

    def _store_packs(
        self, packs: list[tuple[int, ...]], values: dict[int, NodeValue], indices: list[Register], tail: Tail | None
    ) -> None:
        rows: list[tuple[list[Column], list[Register]]] = []
        for pack in packs:
            held = [value for number in pack if isinstance(value := values[number], Register)]
            rows.append(([self._column("output", number, indices) for number in pack], held))
        self._store_columns(rows, tail)

    def _store_whole(self, whole: list[tuple[int, Register, Register]], tail: Tail | None) -> None:
        def store(mask: Register | None, past: tuple[int, ...] = ()) -> list[Register]:
            for number, pointer, value in whole:
                vector_memory.store_vector(self.builder, pointer, value, mask, non_temporal=number in past)
            return []

        def all_lanes() -> list[Register]:
            """Past the caches in a branch of its own: a store there must begin at a line."""
            non_temporal = self.nest.non_temporal
            if self.begins_lines is None or not any(number in non_temporal for number, _, _ in whole):
                return store(None)
            return self._choose(self.begins_lines, lambda: store(None, non_temporal), lambda: store(None))

        if tail is None:
            all_lanes()
        elif self.is_baseline:
            left = self._left(tail)
            for _, pointer, value in whole:
                baseline_lanes.store_first(self.builder, pointer, value, left)
        else:
            self._either(tail, all_lanes, lambda: store(self._lane_mask(tail)))
