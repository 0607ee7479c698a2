"""The frame of a kernel in LLVM IR: its arguments, counted loops, and the current position in the domain.

`accesses.py`, `stages.py` and `kernel.py` each add a layer to it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import reduce
from typing import Literal

from livegrad.codegen.llvm import vector_memory
from livegrad.codegen.llvm.baseline_lanes import first_lanes, number_vector
from livegrad.codegen.llvm.builder import Assembler
from livegrad.codegen.llvm.function_body import needs_mask
from livegrad.codegen.llvm.registers import Register, TensorReference, Value
from livegrad.ir.types import Scalar, bool_, i64
from livegrad.schedule.kernel import Port
from livegrad.schedule.loops.dimensions import NEAR, StrideKind
from livegrad.schedule.loops.divergence import has_divergence
from livegrad.schedule.loops.nest import Access, LoopNest
from livegrad.schedule.plan import ALIGNMENT

AccessKind = Literal["read", "output"]
Tail = tuple[Register, Register]  # the position of lane 0, and where the lanes' dimension ends


_KNOWN_STRIDES: dict[StrideKind, int] = {"zero": 0, "one": 1, **{near: step for step, near in NEAR.items()}}


@dataclass
class Words:
    """Allocates the slots of the argument block; `names` records the contents of each."""

    names: list[str] = field(default_factory=list)

    def take(self, name: str) -> int:
        self.names.append(name)
        return len(self.names) - 1


class Frame:
    """One kernel being written."""

    def __init__(self, nest: LoopNest, quick: bool = False) -> None:
        self.nest, self.kernel = nest, nest.kernel
        self.across = nest.across
        kernel = nest.kernel
        self.quick = quick  # short text counts more than quick code; the bits are the same
        self.masks: dict[Tail, Register] = {}  # those that hold in all of the code being written
        self.lefts: dict[Tail, Register] = {}  # the same for how many lanes there are
        registers = 0 if quick else nest.vector_bytes
        self.asm = Assembler(nest.lanes, quick=quick, in_order=not self.across, vector_bytes=registers)
        self.words = Words()
        self.rows: list[Value | None] = [None] * len(kernel.rows)
        self.diverges = any(has_divergence(stage.body) for stage in kernel.stages)
        self.masked = self.diverges and any(needs_mask(stage.body) for stage in kernel.stages)
        self.domain_index: list[Register] = []
        self.chunk_rank = 1 if nest.is_split else 0  # dimensions before the domain's own that number chunks

    # --- the argument block ---

    def word(self, name: str, type: str = "i64") -> str:
        """A word of the argument block, loaded before the loops."""
        index = self.words.take(name)
        asm = self.asm
        place, loaded = asm.name("p"), asm.name("w")
        asm.entry.append(f"  {place} = getelementptr i64, ptr %args, i64 {index}")
        asm.entry.append(f"  {loaded} = load {type}, ptr {place}, align 8, !invariant.load !0")
        return loaded

    def number(self, name: str) -> Register:
        return Register(self.word(name), i64, 1)

    def uniform(self, name: str, type: Scalar) -> Register:
        """A scalar argument, by the address of its value, and spread over the lanes once if it is needed so."""
        pointer = self.word(name, "ptr")
        held, lines = self.asm.entry, self.asm.lines
        self.asm.lines = held
        value = vector_memory.load_uniform(self.asm, pointer, type)
        self.asm.lines = lines
        return value

    def load_arguments(self) -> None:
        nest, kernel = self.nest, self.kernel
        self.status = self.word("status", "ptr")
        self.interrupt = self.word("interrupt", "ptr")
        self.extents = [self.number(f"domain{d}") for d in range(nest.domain_rank)]
        self.inner = [self.number(f"inner{d}") for d in range(nest.inner_rank)]
        self.block_size = self.number("block")
        scratch = any(port.scratch for port in kernel.outputs)
        self.scratch_size = self.number("scratch") if scratch else self.block_size
        self.chunk = self.number("chunk") if nest.is_split else None
        self.read_bases, self.read_strides = self._ports("read", kernel.reads, nest.reads)
        self.output_bases, self.output_strides = self._ports("output", kernel.outputs, nest.outputs)
        self.wholes = [self._whole(index) for index in range(len(kernel.wholes))]
        self.uniforms = [self.uniform(f"uniform{i}", type) for i, type in enumerate(kernel.uniforms)]
        self.begins_lines = self._all_begin_lines([self.output_bases[number] for number in nest.non_temporal])

    def _all_begin_lines(self, pointers: list[str]) -> Register | None:
        """Whether all of some memory begins at cache lines, found out before the loops; None where there is none."""
        asm = self.asm
        lines, asm.lines = asm.lines, asm.entry
        places = [asm.make(f"ptrtoint ptr {pointer} to i64", i64, 1) for pointer in pointers]
        joined = reduce(lambda a, b: asm.apply("or", i64, a, b), places) if places else None
        rest = None if joined is None else asm.apply("and", i64, joined, asm.constant(ALIGNMENT - 1, i64))
        found = None if rest is None else asm.apply("icmp eq", bool_, rest, asm.constant(0, i64))
        asm.lines = lines
        return found

    def _ports(
        self, role: str, ports: tuple[Port, ...], accesses: tuple[Access, ...]
    ) -> tuple[list[str], list[list[Register]]]:
        bases = [self.word(f"{role}{k}", "ptr") for k in range(len(ports))]
        strides = [
            [self._stride(f"{role}{k}.stride{d}", kind) for d, kind in enumerate(access.strides)]
            for k, access in enumerate(accesses)
        ]
        return bases, strides

    def _stride(self, name: str, kind: StrideKind) -> Register:
        if kind == "any":
            return self.number(name)
        return self.asm.constant(self.nest.unrolled_points if kind == "row" else _KNOWN_STRIDES[kind], i64)

    def _whole(self, index: int) -> TensorReference:
        whole = self.kernel.wholes[index]
        pointer = self.word(f"whole{index}", "ptr")
        extents = tuple(self.number(f"whole{index}.extent{d}") for d in range(whole.rank))
        strides = [self.number(f"whole{index}.stride{d}") for d in range(whole.rank - 1)]
        strides += [self.asm.constant(1, i64)] * min(whole.rank, 1)  # memory of tensors is dense
        covered = frozenset((axis, dimension) for own, axis, dimension in self.nest.covered if own == index)
        chunk_rank = self.chunk_rank if index in self.kernel.written else 0
        return TensorReference(pointer, whole.element, extents, tuple(strides), covered, chunk_rank)

    # --- places ---

    def offset_of(self, strides: list[Register], indices: list[Register], start: Register | None) -> Register:
        """The element offset of a point: a sum of index times stride, without the terms that are known to be zero."""
        total = start
        for stride, index in zip(strides, indices, strict=True):
            if stride.text == "0":
                continue
            term = index if stride.text == "1" else self.asm.apply("mul", i64, index, stride)
            total = term if total is None else self.asm.apply("add", i64, total, term)
        return self.asm.constant(0, i64) if total is None else total

    def decode(self, linear: Register, extents: list[Register]) -> list[Register]:
        """The indices of a point from its number in row-major order."""
        indices: list[Register] = []
        for extent in reversed(extents[1:]):
            indices.append(self.asm.apply("urem", i64, linear, extent))
            linear = self.asm.apply("udiv", i64, linear, extent)
        if extents:
            indices.append(linear)
        return indices[::-1]

    def _following(self, indices: list[Register], extents: list[Register]) -> list[Register]:
        """The indices of the next point in row-major order."""
        asm, one, zero = self.asm, self.asm.constant(1, i64), self.asm.constant(0, i64)
        found: list[Register] = []
        step = one
        for index, extent in zip(reversed(indices[1:]), reversed(extents[1:]), strict=True):
            moved = asm.apply("add", i64, index, step)
            ends = asm.apply("icmp eq", bool_, moved, extent)
            found.append(asm.select(ends, zero, moved))
            step = asm.convert("zext", ends, i64)
        if indices:
            found.append(asm.apply("add", i64, indices[0], step))
        return found[::-1]

    def encode(self, indices: list[Register], extents: list[Register]) -> Register:
        """The number of a point in row-major order from its indices."""
        linear: Register | None = None
        for index, extent in zip(indices, extents, strict=True):
            scaled = None if linear is None else self.asm.apply("mul", i64, linear, extent)
            linear = index if scaled is None else self.asm.apply("add", i64, scaled, index)
        return self.asm.constant(0, i64) if linear is None else linear

    def _begin_group(self, tail: Tail | None) -> None:
        """Writes what all accesses of a group of lanes share, where short text counts."""
        if self.quick and tail is not None and self.asm.lanes > 1:
            self.lefts[tail] = self._left(tail)
            if self.masked or self._has_gathers():
                self.masks[tail] = self._lane_mask(tail)

    def _has_gathers(self) -> bool:
        """Whether lanes of an access are not consecutive."""
        ranks = self.nest.domain_rank + (0 if self.across else self.nest.inner_rank)
        strides = [access.strides for access in (*self.nest.reads, *self.nest.outputs)]
        kinds = [own[ranks - 1] for own in strides if len(own) >= ranks]
        return not {"zero", "one"}.issuperset(kinds)

    def _left(self, tail: Tail) -> Register:
        """How many elements there are from the first lane on."""
        position, stop = tail
        return self.lefts[tail] if tail in self.lefts else self.asm.apply("sub", i64, stop, position)

    def _lane_mask(self, tail: Tail) -> Register:
        """The lanes that stand for elements below the end."""
        return self.masks[tail] if tail in self.masks else first_lanes(self.asm, self._left(tail), self.asm.lanes)

    def _lane_numbers(self) -> Register:
        return number_vector(range(self.asm.lanes), i64)
