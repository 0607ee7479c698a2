"""A builder for kernels: adds lane masks, checks, calls of math functions, and the state of a kernel to `Builder`."""

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

_MASKING_BYTES = 64  # instructions on vectors of this size (AVX-512) take masks at no extra cost

MathRequest = tuple[str, str, int]  # a function of the math library: its name, element and lanes


class EmitTo:
    """A context in which a builder emits its code to other lines."""

    __slots__ = ("_builder", "_lines", "_previous")

    def __init__(self, builder: KernelBuilder, lines: list[str]) -> None:
        self._builder, self._lines = builder, lines

    def __enter__(self) -> None:
        self._previous, self._builder.lines = self._builder.lines, self._lines

    def __exit__(self, *exception: object) -> None:
        self._builder.lines = self._previous


@dataclass
class KernelBuilder(Builder):
    """A kernel, or one of its subroutines, under construction."""

    entry: list[str] = field(default_factory=list)  # the entry block, which runs once, before any loop
    definitions: list[str] = field(default_factory=list)  # of subroutines
    math: set[MathRequest] = field(default_factory=set)
    sites: list[Site] = field(default_factory=list)
    mask: Register | None = None  # None: every lane is active
    element_index: Register | None = None  # lane 0's linear index in the kernel's domain, for reports
    element_step: Register | None = None  # of the index from lane to lane; None: one
    is_baseline: bool = False  # compile time counts more than speed; the bits are the same
    in_order: bool = False  # lanes scatter one after the other, because two may have the same element
    vector_bytes: int = 0  # of a register; 0: the baseline tier
    shares_lockstep: bool = False  # values that are equal in all lanes inside a loop are uniform registers
    uses_tapes: bool = False
    largest_slot: int = 0  # of its tapes, in bytes
    polls: bool = False
    ends_on_failure: bool = False  # a failed check of a scalar loop ends the run, so that code after it can rely on it
    runs_once: bool = False  # the kernel has one item, so its loops are not repeated for each of many
    comparisons: dict[str, tuple[str, Register, Register]] = field(default_factory=dict)  # opposite predicate, operands
    subroutines: dict[Hashable, object] = field(default_factory=dict)  # by function and argument types
    pool_run: Register | None = None  # the thread pool's function that runs a loop; None: loops are serial
    metadata: LoopMetadata = field(default_factory=lambda: LoopMetadata(()))
    sizes: dict[SymbolicSize, Register] = field(default_factory=dict)  # loaded from the argument block

    @property
    def has_masks(self) -> bool:
        """Whether instructions take masks."""
        return self.vector_bytes == _MASKING_BYTES

    @property
    def optimises_loops(self) -> bool:
        """Whether LLVM optimises the scalar loops of the kernel."""
        return bool(self.metadata.memories)

    @property
    def failure_ends_run(self) -> bool:
        """Whether a check that is emitted now ends the run of the kernel if it fails."""
        return self.ends_on_failure and self.lanes == 1 and self.mask is None

    def subroutine_builder(self) -> KernelBuilder:
        """A builder for a subroutine in the same module."""
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
        """A symbolic size, as a scalar."""
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

    def before_loops(self) -> EmitTo:
        """Code emitted inside runs once, before any loop."""
        return EmitTo(self, self.entry)

    def widen(self, register: Register, lanes: int) -> Register:
        """A register with one value for each lane.

        The baseline tier loads constants from memory, because LLVM takes ten times as long to compile an instruction
        that has a constant vector as operand.
        """
        if not (self.is_baseline and register.literal) or register.lanes == lanes or register.type is bool_:
            return super().widen(register, lanes)
        element, vector = llvm_element(register.type), llvm_type(register.type, lanes)
        name = f'@"{vector} {register.text}"'
        self.declarations.add(f"{name} = private unnamed_addr constant {vector} splat ({element} {register.text})")
        return self.load(Register(name, pointer, 1), register.type, lanes)

    def freeze(self, value: Register) -> Register:
        """The same value, frozen, so that LLVM does not combine its definition with its uses."""
        return self.make(f"freeze {value.typed}", value.type, value.lanes)

    def call_math(self, function: str, *operands: Register) -> Register:
        """A call of livegrad's own math function; half precision is computed in single."""
        operands = tuple(self.match_lanes(*operands))
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

    def intersect_masks(self, first: Register | None, second: Register) -> Register:
        """The lanes in both masks; None is all lanes."""
        return second if first is None else self.apply("and", bool_, first, second)

    @contextmanager
    def with_mask(self, mask: Register | None) -> Iterator[None]:
        """Code emitted inside runs for the lanes of a mask."""
        before, self.mask = self.mask, mask
        try:
            yield
        finally:
            self.mask = before

    @contextmanager
    def with_lanes(self, lanes: int) -> Iterator[None]:
        """Code emitted inside has the given number of lanes, which all belong to the one element of a scalar kernel."""
        before, step = self.lanes, self.element_step
        self.lanes, self.element_step = lanes, self.constant(0, i64)
        try:
            yield
        finally:
            self.lanes, self.element_step = before, step

    def report(self, bad: Register, message: str, origin: SourceLocation | None) -> None:
        """Where `bad` holds in an active lane, writes the check site and the lowest such element to the status word.

        In scalar loops, nothing runs after that: LLVM moves and vectorises code only if nothing in a loop may write the
        status word and continue.
        """
        site = len(self.sites)
        self.sites.append(Site(message, origin))
        failed, done = self.label("failed"), self.label("checked")
        if self.mask is not None:
            if bad.uniform:  # tested first: the mask matters only where it holds
                active = self.label("look")
                self.branch(bad, active, done)
                self.begin(active)
            bad = self.intersect_masks(self.mask, bad)
        self.branch(self.any_lane(bad), failed, done, "" if self.is_baseline else UNLIKELY)
        self.begin(failed)
        lane = self._first_lane(bad)
        if self.element_step is not None:
            lane = self.apply("mul", i64, lane, self.element_step)
        element = lane if self.element_index is None else self.apply("add", i64, self.element_index, lane)
        shifted = self.apply("shl", i64, element, self.constant(16, i64))
        status = self.apply("or", i64, shifted, self.constant(site, i64))
        self.line(f"atomicrmw umin ptr %status, i64 {status.text} monotonic{self.metadata.flags(STATUS)}")
        if self.failure_ends_run:
            self.line("ret void")
        else:
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
