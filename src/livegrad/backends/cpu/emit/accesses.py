"""Loads and stores of a kernel: every read of a stage at once, whole vectors where all lanes are there."""

from __future__ import annotations

from livegrad.backends.cpu.emit import memory
from livegrad.backends.cpu.emit.frame import Frame, Tail
from livegrad.backends.cpu.emit.values import Register, Value, byte_size
from livegrad.ir.types import Scalar, bool_, i64
from livegrad.schedule.kernel import Port, Stage, Target


class Accesses(Frame):
    """Where a stage's arguments come from and its results go."""

    def _arguments(self, stage: Stage, indices: list[Register], tail: Tail | None, vector: bool) -> list[Value]:
        reads = sorted({source.number for source in stage.sources if source.kind == "read"})
        loaded = self._load_all(reads, indices, tail, vector)
        arguments: list[Value] = []
        for source in stage.sources:
            match source.kind:
                case "index":
                    arguments.append(self._index(source.number, indices, vector))
                case "read":
                    arguments.append(loaded[source.number])
                case "whole":
                    arguments.append(self.wholes[source.number])
                case "uniform":
                    arguments.append(self.uniforms[source.number])
                case "row":
                    value = self.rows[source.number]
                    assert value is not None
                    arguments.append(value)
        return arguments

    def _index(self, dimension: int, indices: list[Register], vector: bool) -> Register:
        position = [*self.domain_index, *indices][dimension]
        ranks = len(self.domain_index)
        last = ranks - 1 if self.layout.direction == "across" else ranks + len(self.inner) - 1
        if dimension != last or not vector or self.asm.lanes == 1:
            return position
        return self.asm.apply("add", i64, self.asm.widen(position, self.asm.lanes), self._lane_numbers())

    def _place(self, kind: str, number: int, indices: list[Register]) -> tuple[str, Scalar, Register, Register | None]:
        """Where lane 0 of an access lies, its element, and the stride from lane to lane (None: not along the lanes)."""
        reading = kind == "read"
        port = (self.kernel.reads if reading else self.kernel.outputs)[number]
        strides = (self.read_strides if reading else self.output_strides)[number]
        base = (self.read_bases if reading else self.output_bases)[number]
        here = [*self.domain_index, *(indices if port.level == "point" else [])]
        own = strides[: len(here)]
        offset = self.offset_of(own, here, None)
        ranks = len(self.domain_index)
        lane = ranks - 1 if self.layout.direction == "across" else (len(here) - 1 if len(here) > ranks else None)
        step = own[lane] if lane is not None and lane >= 0 and own else None
        if port.scratch:
            base = self._scratch_base(base, port)
        return base, port.element, offset, step

    def _scratch_base(self, base: str, port: Port) -> str:
        bytes_each = self.asm.apply("mul", i64, Register("%worker", i64, 1), self.block_size)
        return self.asm.raw(f"getelementptr i8, ptr {base}, i64 {bytes_each.text}")

    def _load_all(
        self, reads: list[int], indices: list[Register], tail: Tail | None, vector: bool
    ) -> dict[int, Register]:
        """Loads by group: consecutive lanes are loaded whole where all are there, under a mask at the end."""
        asm = self.asm
        loaded: dict[int, Register] = {}
        whole: list[tuple[int, str, Scalar]] = []
        for number in reads:
            base, type, offset, step = self._place("read", number, indices)
            pointer = memory.element_pointer(asm, base, type, offset)
            if not vector or asm.lanes == 1 or step is None or step.text == "0":
                loaded[number] = memory.load_uniform(asm, pointer, type)
            elif step.text == "1":
                whole.append((number, pointer, type))
            else:
                mask = None if tail is None else self._lane_mask(tail)
                offsets = asm.apply("mul", i64, self._lane_numbers(), asm.widen(step, asm.lanes))
                loaded[number] = memory.gather(asm, pointer, type, offsets, mask)
        if whole:
            loaded |= self._load_whole(whole, tail)
        return loaded

    def _load_whole(self, whole: list[tuple[int, str, Scalar]], tail: Tail | None) -> dict[int, Register]:
        asm = self.asm
        if tail is None:
            return {number: memory.load_vector(asm, pointer, type, None) for number, pointer, type in whole}
        full, part, ready = (asm.label(hint) for hint in ("full", "part", "ready"))
        asm.branch(self._is_full(tail), full, part)
        asm.begin(full)
        complete = [memory.load_vector(asm, pointer, type, None) for _, pointer, type in whole]
        asm.jump(ready)
        asm.begin(part)
        mask = self._lane_mask(tail)
        masked = [memory.load_vector(asm, pointer, type, mask) for _, pointer, type in whole]
        asm.jump(ready)
        asm.begin(ready)
        pairs = zip(complete, masked, strict=True)
        merged = [asm.phi(a.type, a.lanes, [(a, full), (b, part)]) for a, b in pairs]
        return {number: value for (number, _, _), value in zip(whole, merged, strict=True)}

    def _is_full(self, tail: Tail) -> Register:
        position, stop = tail
        left = self.asm.apply("sub", i64, stop, position)
        return self.asm.apply("icmp sge", bool_, left, self.asm.constant(self.asm.lanes, i64))

    def _store(
        self,
        stores: list[tuple[Target, Value]],
        indices: list[Register],
        tail: Tail | None,
        vector: bool,
    ) -> None:
        asm = self.asm
        whole: list[tuple[str, Register]] = []
        for target, value in stores:
            assert isinstance(value, Register)
            base, type, offset, step = self._place("output", target.number, indices)
            pointer = memory.element_pointer(asm, base, type, offset)
            if not vector or asm.lanes == 1 or step is None:
                held = memory.to_memory(asm, value)
                asm.line(f"store {held.typed}, ptr {pointer}, align {byte_size(type)}")
            elif step.text == "1":
                whole.append((pointer, asm.widen(value, asm.lanes)))
            else:
                mask = None if tail is None else self._lane_mask(tail)
                offsets = asm.apply("mul", i64, self._lane_numbers(), asm.widen(step, asm.lanes))
                memory.scatter(asm, pointer, value, offsets, mask)
        if whole:
            self._store_whole(whole, tail)

    def _store_whole(self, whole: list[tuple[str, Register]], tail: Tail | None) -> None:
        asm = self.asm
        if tail is None:
            for pointer, value in whole:
                memory.store_vector(asm, pointer, value, None)
            return
        full, part, ready = (asm.label(hint) for hint in ("full", "part", "stored"))
        asm.branch(self._is_full(tail), full, part)
        for label, masked in ((full, False), (part, True)):
            asm.begin(label)
            mask = self._lane_mask(tail) if masked else None
            for pointer, value in whole:
                memory.store_vector(asm, pointer, value, mask)
            asm.jump(ready)
        asm.begin(ready)
