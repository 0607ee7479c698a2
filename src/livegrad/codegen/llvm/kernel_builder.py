"""A builder for kernels: what is known while one is written, lane masks, checks, and calls of math functions."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from livegrad.codegen.check_sites import Site
from livegrad.codegen.llvm.builder import Builder
from livegrad.codegen.llvm.metadata import STATUS, UNLIKELY, LoopMetadata
from livegrad.codegen.llvm.registers import Register, llvm_element, llvm_type, pointer
from livegrad.codegen.llvm.vector_math import math_function_name
from livegrad.diagnostics import CompileError, SourceLocation
from livegrad.ir.symbolic_size import SymbolicSize
from livegrad.ir.types import Scalar, bool_, f32, i64

_MASKING_BYTES = 64  # processors with vectors of this size compute, load and store under masks at no extra cost

MathRequest = tuple[str, str, int]  # a function of the math library: its name, element and lanes


@dataclass
class KernelBuilder(Builder):
    """A kernel, or a function beside it, under construction."""

    entry: list[str] = field(default_factory=list)  # what is computed once, before any loop
    definitions: list[str] = field(default_factory=list)  # of functions beside the kernel
    math: set[MathRequest] = field(default_factory=set)
    sites: list[Site] = field(default_factory=list)
    mask: Register | None = None  # None: every lane is active
    element_index: Register | None = None  # the position of lane 0 in the kernel's domain, for reports
    element_step: Register | None = None  # from lane to lane; None: one
    is_baseline: bool = False  # compile time counts more than speed; the bits are the same
    in_order: bool = False  # lanes scatter one after the other: two may have the same element
    vector_bytes: int = 0  # of a register; 0: the baseline tier
    shares_lockstep: bool = False  # what lanes of a loop have in common while they are in it is one register
    uses_tapes: bool = False
    largest_slot: int = 0  # of its tapes, in bytes
    polls: bool = False
    runs_once: bool = False  # whether the kernel has one item: its loops are not repeated for each of many
    comparisons: dict[str, tuple[str, Register, Register]] = field(default_factory=dict)  # opposite predicate, operands
    subroutines: dict[Hashable, object] = field(default_factory=dict)  # functions beside the kernel, by what they are
    pool_run: Register | None = None  # the function that runs a loop on threads; None: loops are serial
    metadata: LoopMetadata = field(default_factory=lambda: LoopMetadata(()))
    sizes: dict[SymbolicSize, Register] = field(default_factory=dict)  # numbers that the argument block has

    @property
    def has_masks(self) -> bool:
        """Whether instructions work under masks: those on vectors of this size do."""
        return self.vector_bytes == _MASKING_BYTES

    @property
    def optimises_loops(self) -> bool:
        """Whether LLVM is to optimise the scalar loops of the kernel."""
        return bool(self.metadata.memories)

    def beside(self) -> KernelBuilder:
        """A builder for another function of the same module."""
        return KernelBuilder(
            self.lanes,
            declarations=self.declarations,
            math=self.math,
            is_baseline=self.is_baseline,
            vector_bytes=self.vector_bytes,
            subroutines=self.subroutines,
            metadata=self.metadata,
            definitions=self.definitions,
        )

    def size_argument(self, size: SymbolicSize, type: Scalar) -> Register:
        """A number that differs from size to size."""
        register = self.sizes.get(size)
        if register is None:
            raise CompileError("a subroutine of a kernel cannot read a symbolic size")
        with self.before_loops():
            if type.kind == "float":
                return self.convert("sitofp", register, type)
            return register if type.bits == 64 else self.convert("trunc", register, type)

    def allocate(self, type: str, hint: str = "p") -> Register:
        """Memory on the stack, aligned to a cache line."""
        name = self.name(hint)
        self.entry.append(f"  {name} = alloca {type}, align 64")
        return Register(name, pointer, 1)

    @contextmanager
    def before_loops(self) -> Iterator[None]:
        """What is written here is computed once, before any loop."""
        lines, self.lines = self.lines, self.entry
        try:
            yield
        finally:
            self.lines = lines

    def widen(self, register: Register, lanes: int) -> Register:
        """A register with one value for each lane.

        The baseline tier loads constants from memory: LLVM takes ten times as long for an instruction with a constant
        vector as operand.
        """
        if not (self.is_baseline and register.literal) or register.lanes == lanes or register.type is bool_:
            return super().widen(register, lanes)
        element, vector = llvm_element(register.type), llvm_type(register.type, lanes)
        name = f'@"{vector} {register.text}"'
        self.declarations.add(f"{name} = private unnamed_addr constant {vector} splat ({element} {register.text})")
        return self.load(Register(name, pointer, 1), register.type, lanes)

    def freeze(self, value: Register) -> Register:
        """The same value; LLVM does not join what it is computed by with what uses it."""
        return self.make(f"freeze {value.typed}", value.type, value.lanes)

    def call_math(self, function: str, *operands: Register) -> Register:
        """One of our own math functions; half precision goes through single."""
        operands = tuple(self.alike(*operands))
        type = operands[0].type
        if type.bits == 16:
            wide = self.call_math(function, *(self.convert("fpext", operand, f32) for operand in operands))
            return self.convert("fptrunc", wide, type)
        lanes = operands[0].lanes
        self.math.add((function, type.name, lanes))
        arguments = ", ".join(operand.typed for operand in operands)
        symbol = math_function_name(function, type.name, lanes)
        return self.make(f"call fastcc {llvm_type(type, lanes)} @{symbol}({arguments})", type, lanes)

    # --- masks and checks ---

    def both(self, first: Register | None, second: Register) -> Register:
        """The lanes of both masks; None is all of them."""
        return second if first is None else self.apply("and", bool_, first, second)

    @contextmanager
    def under(self, mask: Register | None) -> Iterator[None]:
        before, self.mask = self.mask, mask
        try:
            yield
        finally:
            self.mask = before

    @contextmanager
    def in_lanes(self, lanes: int) -> Iterator[None]:
        """What is written here has so many lanes; all of them stand for the one element of a scalar kernel."""
        before, step = self.lanes, self.element_step
        self.lanes, self.element_step = lanes, self.constant(0, i64)
        try:
            yield
        finally:
            self.lanes, self.element_step = before, step

    def report(self, bad: Register, message: str, origin: SourceLocation | None) -> None:
        """Writes the site and the lowest element for which `bad` holds in an active lane to the status word."""
        site = len(self.sites)
        self.sites.append(Site(message, origin))
        failed, done = self.label("failed"), self.label("checked")
        if self.mask is not None:
            if bad.uniform:  # whether any lane is active matters only if it is
                look = self.label("look")
                self.branch(bad, look, done)
                self.begin(look)
            bad = self.both(self.mask, bad)
        self.branch(self.any_lane(bad), failed, done, "" if self.is_baseline else UNLIKELY)
        self.begin(failed)
        lane = self._first_lane(bad)
        if self.element_step is not None:
            lane = self.apply("mul", i64, lane, self.element_step)
        element = lane if self.element_index is None else self.apply("add", i64, self.element_index, lane)
        shifted = self.apply("shl", i64, element, self.constant(16, i64))
        word = self.apply("or", i64, shifted, self.constant(site, i64))
        self.line(f"atomicrmw umin ptr %status, i64 {word.text} monotonic{self.metadata.flags(STATUS)}")
        self.jump(done)
        self.begin(done)

    def _first_lane(self, mask: Register) -> Register:
        if mask.uniform:
            return self.constant(0, i64)
        width = max(mask.lanes, 8)
        bits = self.raw(f"bitcast {mask.typed} to i{mask.lanes}")
        if mask.lanes < 8:
            bits = self.raw(f"zext i{mask.lanes} {bits} to i8")
        self.declarations.add(f"declare i{width} @llvm.cttz.i{width}(i{width}, i1)")
        count = self.raw(f"call i{width} @llvm.cttz.i{width}(i{width} {bits}, i1 false)")
        if width == 64:
            return Register(count, i64, 1)
        return self.make(f"{'zext' if width < 64 else 'trunc'} i{width} {count} to i64", i64, 1)
