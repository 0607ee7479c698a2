"""Writes LLVM text: fresh names, blocks, declarations, splats, and checks under the current lane mask.

One assembler writes one kernel; the modules beside it are its vocabulary.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache

from livegrad.codegen.check_sites import Site
from livegrad.codegen.llvm.registers import Register, literal_text, llvm_element, llvm_type
from livegrad.codegen.llvm.vector_math import math_function_name
from livegrad.diagnostics import Place
from livegrad.ir.types import Scalar, bf16, bool_, f32, i64

_MASKING_BYTES = 64  # processors with vectors of this size compute, load and store under masks, as quickly as without


@dataclass
class Assembler:
    """The text of one kernel under construction."""

    lanes: int
    lines: list[str] = field(default_factory=list)
    entry: list[str] = field(default_factory=list)  # what is computed once, before any loop
    declarations: set[str] = field(default_factory=set)
    math: set[tuple[str, str, int]] = field(default_factory=set)
    sites: list[Site] = field(default_factory=list)
    block: str = "start"
    mask: Register | None = None  # None: every lane is active
    element_index: Register | None = None  # the position of lane 0 in the kernel's domain, for reports
    element_step: Register | None = None  # from lane to lane; None: one
    quick: bool = False  # what LLVM is soon done with counts more than what is soon computed
    in_order: bool = False  # lanes write by index one after the other: they may mean the same element
    vector_bytes: int = 0  # of a register, where quick code is worth some time
    uses_tapes: bool = False
    polls: bool = False
    comparisons: dict[str, tuple[str, Register, Register]] = field(default_factory=dict)  # opposite predicate, operands
    subroutines: dict[Hashable, object] = field(default_factory=dict)  # what was made beside the kernel, by what it is
    definitions: list[str] = field(default_factory=list)  # their texts
    _names: int = 0

    @property
    def has_masks(self) -> bool:
        """Whether instructions work under masks: those on vectors of this size do."""
        return self.vector_bytes == _MASKING_BYTES

    def beside(self) -> Assembler:
        """An assembler for another function of the same module."""
        return Assembler(
            self.lanes,
            declarations=self.declarations,
            math=self.math,
            quick=self.quick,
            vector_bytes=self.vector_bytes,
            subroutines=self.subroutines,
            definitions=self.definitions,
        )

    # --- text ---

    def name(self, hint: str = "v") -> str:
        self._names += 1
        return f"%{hint}{self._names}"

    def line(self, text: str) -> None:
        self.lines.append("  " + text)

    def make(self, text: str, type: Scalar, lanes: int) -> Register:
        self._names = number = self._names + 1
        name = f"%v{number}"
        self.lines.append(f"  {name} = {text}")
        return Register(name, type, lanes)

    def raw(self, text: str) -> str:
        """Emits an instruction whose result is not a scalar type, such as an address."""
        name = self.name("p")
        self.lines.append(f"  {name} = {text}")
        return name

    def label(self, hint: str) -> str:
        self._names += 1
        return f"{hint}{self._names}"

    def begin(self, label: str) -> None:
        self.lines.append(f"{label}:")
        self.block = label

    def jump(self, label: str) -> None:
        self.line(f"br label %{label}")

    def branch(self, condition: Register, then: str, otherwise: str) -> None:
        self.line(f"br i1 {condition.text}, label %{then}, label %{otherwise}")

    def phi(self, type: Scalar, lanes: int, incoming: list[tuple[Register, str]]) -> Register:
        pairs = ", ".join(f"[ {register.text}, %{block} ]" for register, block in incoming)
        return self.make(f"phi {llvm_type(type, lanes)} {pairs}", type, lanes)

    # --- values ---

    def constant(self, value: bool | int | float, type: Scalar) -> Register:
        if type is i64:
            return _whole_number(int(value))
        return Register(literal_text(value, type), type, 1, literal=True)

    def widen(self, register: Register, lanes: int) -> Register:
        """A register with one value for each lane."""
        if register.lanes == lanes:
            return register
        element = llvm_element(register.type)
        vector = llvm_type(register.type, lanes)
        if register.literal and self.quick and register.type is not bool_:
            return self._from_memory(register, lanes)
        if register.literal:
            return Register(f"splat ({element} {register.text})", register.type, lanes, literal=True)
        first = self.raw(f"insertelement {vector} poison, {element} {register.text}, i64 0")
        return self.make(
            f"shufflevector {vector} {first}, {vector} poison, <{lanes} x i32> zeroinitializer", register.type, lanes
        )

    def _from_memory(self, register: Register, lanes: int) -> Register:
        """A constant for each lane, loaded: LLVM takes ten times as long for an instruction that has one as operand."""
        element, vector = llvm_element(register.type), llvm_type(register.type, lanes)
        name = f'@"{vector} {register.text}"'
        self.declarations.add(f"{name} = private unnamed_addr constant {vector} splat ({element} {register.text})")
        return self.make(f"load {vector}, ptr {name}", register.type, lanes)

    def least(self, first: Register, second: Register) -> Register:
        """The lower of two integers; LLVM knows it when it sees it, and is done sooner than with its name."""
        return self.select(self.apply("icmp slt", bool_, first, second), first, second)

    def halves(self, register: Register) -> tuple[Register, Register]:
        """The lower and the upper lanes."""
        if register.uniform:
            return register, register
        lanes = register.lanes // 2
        rest = f"{llvm_type(register.type, register.lanes)} poison, <{lanes} x i32>"
        low, high = (
            self.make(f"shufflevector {register.typed}, {rest} <{_counted(first, lanes)}>", register.type, lanes)
            for first in (0, lanes)
        )
        return low, high

    def joined(self, low: Register, high: Register) -> Register:
        """The lanes of both."""
        if low.uniform:
            return low
        lanes = 2 * low.lanes
        places = f"<{lanes} x i32> <{_counted(0, lanes)}>"
        return self.make(f"shufflevector {low.typed}, {high.typed}, {places}", low.type, lanes)

    def alike(self, *registers: Register) -> list[Register]:
        """The registers all uniform, or all with one value for each lane."""
        lanes = max([register.lanes for register in registers])
        return [register if register.lanes == lanes else self.widen(register, lanes) for register in registers]

    def apply(self, instruction: str, type: Scalar, *operands: Register) -> Register:
        """`instruction` on operands of one type; `type` is the result's."""
        lanes = operands[0].lanes
        for operand in operands:
            if operand.lanes != lanes:
                operands = tuple(self.alike(*operands))
                break
        first = operands[0]
        texts = ", ".join([operand.text for operand in operands])
        return self.make(f"{instruction} {llvm_type(first.type, first.lanes)} {texts}", type, first.lanes)

    def select(self, condition: Register, then: Register, otherwise: Register) -> Register:
        if then.text == otherwise.text and then.lanes == otherwise.lanes:
            return then
        lanes = max(condition.lanes, then.lanes, otherwise.lanes)
        then, otherwise = self.widen(then, lanes), self.widen(otherwise, lanes)
        return self.make(f"select {condition.typed}, {then.typed}, {otherwise.typed}", then.type, lanes)

    def intrinsic(self, name: str, type: Scalar, *operands: Register, extra: str = "", flags: str = "") -> Register:
        """A call of `llvm.<name>` on operands of one type."""
        operands = tuple(self.alike(*operands))
        first = operands[0]
        vector = llvm_type(first.type, first.lanes)
        suffix = intrinsic_suffix(first.type, first.lanes)
        kinds = ", ".join([vector] * len(operands)) + (", i1" if extra else "")
        self.declarations.add(f"declare {vector} @llvm.{name}.{suffix}({kinds})")
        arguments = ", ".join(operand.typed for operand in operands) + (f", {extra}" if extra else "")
        flags = f"{flags} " if flags else ""
        return self.make(f"call {flags}{vector} @llvm.{name}.{suffix}({arguments})", type, first.lanes)

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

    def convert(self, instruction: str, value: Register, type: Scalar) -> Register:
        return self.make(f"{instruction} {value.typed} to {llvm_type(type, value.lanes)}", type, value.lanes)

    # --- masks and checks ---

    def both(self, first: Register | None, second: Register) -> Register:
        """The lanes of both masks; None is all of them."""
        return second if first is None else self.apply("and", bool_, first, second)

    def any_lane(self, mask: Register) -> Register:
        """Whether any lane of a mask is set."""
        if mask.uniform:
            return mask
        vector = llvm_type(bool_, mask.lanes)
        self.declarations.add(f"declare i1 @llvm.vector.reduce.or.v{mask.lanes}i1({vector})")
        return self.make(f"call i1 @llvm.vector.reduce.or.v{mask.lanes}i1({mask.typed})", bool_, 1)

    @contextmanager
    def under(self, mask: Register | None) -> Iterator[None]:
        before, self.mask = self.mask, mask
        try:
            yield
        finally:
            self.mask = before

    def report(self, bad: Register, message: str, origin: Place | None) -> None:
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
        self.branch(self.any_lane(bad), failed, done)
        self.begin(failed)
        lane = self._first_lane(bad)
        if self.element_step is not None:
            lane = self.apply("mul", i64, lane, self.element_step)
        element = lane if self.element_index is None else self.apply("add", i64, self.element_index, lane)
        shifted = self.apply("shl", i64, element, self.constant(16, i64))
        word = self.apply("or", i64, shifted, self.constant(site, i64))
        self.line(f"atomicrmw umin ptr %status, i64 {word.text} monotonic")
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


@lru_cache(maxsize=256)
def _whole_number(value: int) -> Register:
    return Register(str(value), i64, 1, literal=True)


def intrinsic_suffix(type: Scalar, lanes: int) -> str:
    element = f"f{type.bits}" if type.kind == "float" and type is not bf16 else f"i{type.bits}"
    return element if lanes == 1 else f"v{lanes}{element}"


def _counted(first: int, count: int) -> str:
    return ", ".join(f"i32 {number}" for number in range(first, first + count))
