"""The LLVM IR builder: emits instructions on typed registers, names values, and declares the functions that it calls.

In: registers and Python numbers. Out: the LLVM IR of a function. `kernel_builder.py` adds the state of a kernel under
construction, `values.py` adds operators; `vector_math` and `matmul` write their functions with both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from livegrad.codegen.llvm.registers import Register, literal_text, llvm_element, llvm_type, pointer
from livegrad.ir.types import Scalar, bf16, bool_, i64

# The second operand with which an integer instruction returns its first.
_RIGHT_IDENTITY = {"add": "0", "sub": "0", "mul": "1"}


@dataclass
class Builder:
    """The body of one function under construction. Builders of one module share the declarations."""

    lanes: int = 1  # of vectors, unless an operand says how many
    lines: list[str] = field(default_factory=list)
    declarations: set[str] = field(default_factory=set)
    block: str = "start"
    _names: int = 0

    # --- lines ---

    def name(self, hint: str = "v") -> str:
        self._names += 1
        return f"%{hint}{self._names}"

    def line(self, text: str) -> None:
        self.lines.append("  " + text)

    def make(self, text: str, type: Scalar, lanes: int) -> Register:
        """Emits an instruction; returns the register of its result."""
        self._names = index = self._names + 1
        name = f"%v{index}"
        self.lines.append(f"  {name} = {text}")
        return Register(name, type, lanes)

    def raw(self, text: str) -> str:
        """Emits an instruction whose result type `Scalar` cannot express: a struct, or an integer of unusual width."""
        name = self.name("p")
        self.lines.append(f"  {name} = {text}")
        return name

    def function(self, head: str) -> str:
        """The LLVM IR of the function; `head` is its first line, up to the brace."""
        return "\n".join([f"{head} {{", "start:", *self.lines, "}"])

    # --- blocks ---

    def label(self, hint: str) -> str:
        self._names += 1
        return f"{hint}{self._names}"

    def begin(self, label: str) -> None:
        self.lines.append(f"{label}:")
        self.block = label

    def jump(self, label: str, flags: str = "") -> None:
        self.line(f"br label %{label}{flags}")

    def branch(self, condition: Register, then: str, otherwise: str, flags: str = "") -> None:
        self.line(f"br i1 {condition.text}, label %{then}, label %{otherwise}{flags}")

    def phi(self, type: Scalar, lanes: int, incoming: Sequence[tuple[Register, str]]) -> Register:
        pairs = ", ".join(f"[ {register.text}, %{block} ]" for register, block in incoming)
        return self.make(f"phi {llvm_type(type, lanes)} {pairs}", type, lanes)

    # --- constants and lanes ---

    def constant(self, value: bool | int | float, type: Scalar) -> Register:
        if type is i64:
            return _integer_constant(int(value))
        return Register(literal_text(value, type), type, 1, literal=True)

    def zero(self, type: Scalar, lanes: int = 1) -> Register:
        return self.constant(0, type) if lanes == 1 else Register("zeroinitializer", type, lanes, literal=True)

    def widen(self, register: Register, lanes: int) -> Register:
        """A register with one value for each lane."""
        if register.lanes == lanes:
            return register
        element = llvm_element(register.type)
        if register.literal:
            return Register(f"splat ({element} {register.text})", register.type, lanes, literal=True)
        vector = llvm_type(register.type, lanes)
        first = self.raw(f"insertelement {vector} poison, {element} {register.text}, i64 0")
        return self.make(
            f"shufflevector {vector} {first}, {vector} poison, <{lanes} x i32> zeroinitializer", register.type, lanes
        )

    def match_lanes(self, *registers: Register) -> list[Register]:
        """The registers with the same number of lanes: uniform ones are widened if any has one value per lane."""
        lanes = max([register.lanes for register in registers])
        return [register if register.lanes == lanes else self.widen(register, lanes) for register in registers]

    def shuffle(self, first: Register, lanes: Sequence[int | None], second: Register | None = None) -> Register:
        """A vector of the given lanes of one vector, or of two concatenated vectors; None is an undefined lane.

        A single lane is returned as a scalar.
        """
        if len(lanes) == 1 and second is None and lanes[0] is not None:
            return self.extract(first, lanes[0])
        upper = f"{llvm_type(first.type, first.lanes)} poison" if second is None else second.typed
        return self.make(f"shufflevector {first.typed}, {upper}, {_shuffle_mask(tuple(lanes))}", first.type, len(lanes))

    def extract(self, vector: Register, lane: int) -> Register:
        return self.make(f"extractelement {vector.typed}, i64 {lane}", vector.type, 1)

    def insert(self, vector: Register, value: Register, lane: int) -> Register:
        return self.make(f"insertelement {vector.typed}, {value.typed}, i64 {lane}", vector.type, vector.lanes)

    def halves(self, register: Register) -> tuple[Register, Register]:
        """The lower and the upper half of the lanes."""
        if register.uniform:
            return register, register
        lanes = register.lanes
        return self.shuffle(register, range(lanes // 2)), self.shuffle(register, range(lanes // 2, lanes))

    def concatenate(self, low: Register, high: Register) -> Register:
        """The lanes of `low` followed by those of `high`."""
        return low if low.uniform else self.shuffle(low, range(2 * low.lanes), high)

    # --- instructions ---

    def apply(self, instruction: str, type: Scalar, *operands: Register) -> Register:
        """`instruction` on operands of one type; `type` is the result's."""
        lanes = operands[0].lanes
        for operand in operands:
            if operand.lanes != lanes:
                operands = tuple(self.match_lanes(*operands))
                break
        first = operands[0]
        texts = ", ".join([operand.text for operand in operands])
        return self.make(f"{instruction} {llvm_type(first.type, first.lanes)} {texts}", type, first.lanes)

    def integer(self, instruction: str, first: Register, second: Register) -> Register:
        """`instruction` on integers; none if the second operand is its identity."""
        if second.literal and second.text == _RIGHT_IDENTITY.get(instruction):
            return first
        return self.apply(instruction, first.type, first, second)

    def select(self, condition: Register, then: Register, otherwise: Register) -> Register:
        if then.text == otherwise.text and then.lanes == otherwise.lanes:
            return then
        lanes = max(condition.lanes, then.lanes, otherwise.lanes)
        then, otherwise = self.widen(then, lanes), self.widen(otherwise, lanes)
        return self.make(f"select {condition.typed}, {then.typed}, {otherwise.typed}", then.type, lanes)

    def least(self, first: Register, second: Register) -> Register:
        """The lower of two signed integers. LLVM recognises the pattern and compiles it faster than `llvm.smin`."""
        return self.select(self.apply("icmp slt", bool_, first, second), first, second)

    def negate(self, register: Register) -> Register:
        if register.literal and register.uniform:
            bits = int(register.text, 16) ^ (1 << 63)
            return Register(f"0x{bits:016X}", register.type, 1, literal=True)
        return self.make(f"fneg {register.typed}", register.type, register.lanes)

    def convert(self, instruction: str, value: Register, type: Scalar) -> Register:
        return self.make(f"{instruction} {value.typed} to {llvm_type(type, value.lanes)}", type, value.lanes)

    def intrinsic(self, name: str, type: Scalar, *operands: Register, extra: str = "") -> Register:
        """A call of `llvm.<name>` on operands of one type."""
        operands = tuple(self.match_lanes(*operands))
        first = operands[0]
        vector = llvm_type(first.type, first.lanes)
        suffix = intrinsic_suffix(first.type, first.lanes)
        parameters = ", ".join([vector] * len(operands)) + (", i1" if extra else "")
        self.declarations.add(f"declare {vector} @llvm.{name}.{suffix}({parameters})")
        arguments = ", ".join([operand.typed for operand in operands]) + (f", {extra}" if extra else "")
        return self.make(f"call {vector} @llvm.{name}.{suffix}({arguments})", type, first.lanes)

    def reduce_lanes(self, name: str, vector: Register) -> Register:
        """Reduces all lanes to one integer with `llvm.vector.reduce.<name>`."""
        if vector.uniform:
            return vector
        element, symbol = llvm_element(vector.type), f"llvm.vector.reduce.{name}.v{vector.lanes}i{vector.type.bits}"
        self.declarations.add(f"declare {element} @{symbol}({llvm_type(vector.type, vector.lanes)})")
        return self.make(f"call {element} @{symbol}({vector.typed})", vector.type, 1)

    def any_lane(self, mask: Register) -> Register:
        """Whether any lane of a mask is set."""
        return self.reduce_lanes("or", mask)

    # --- memory ---

    def advance(self, base: Register, index: Register, element: str = "i8") -> Register:
        """The address `index` elements after `base`; one address per lane if the index has lanes."""
        return self.make(f"getelementptr {element}, {base.typed}, {index.typed}", pointer, index.lanes)

    def load(self, address: Register, type: Scalar, lanes: int = 1, align: int = 0, flags: str = "") -> Register:
        return self.make(f"load {llvm_type(type, lanes)}, {address.typed}{_aligned(align)}{flags}", type, lanes)

    def store(self, value: Register, address: Register, align: int = 0, flags: str = "") -> None:
        self.lines.append(f"  store {value.typed}, {address.typed}{_aligned(align)}{flags}")

    def masked_load(self, address: Register, type: Scalar, mask: Register, align: int) -> Register:
        """Loads lanes from consecutive elements, or from one address each; masked-off lanes are 0 and not read."""
        vector = llvm_type(type, mask.lanes)
        symbol = _masked_name("load" if address.uniform else "gather", type, mask.lanes)
        addresses = llvm_type(pointer, address.lanes)
        self.declarations.add(f"declare {vector} @{symbol}({addresses}, <{mask.lanes} x i1>, {vector})")
        arguments = f"{addresses} align {align} {address.text}, {mask.typed}, {vector} zeroinitializer"
        return self.make(f"call {vector} @{symbol}({arguments})", type, mask.lanes)

    def masked_store(self, value: Register, address: Register, mask: Register, align: int) -> None:
        """Stores lanes to consecutive elements, or to one address each; masked-off lanes are not written."""
        symbol = _masked_name("store" if address.uniform else "scatter", value.type, value.lanes)
        vector, addresses = llvm_type(value.type, value.lanes), llvm_type(pointer, address.lanes)
        self.declarations.add(f"declare void @{symbol}({vector}, {addresses}, <{value.lanes} x i1>)")
        self.line(f"call void @{symbol}({value.typed}, {addresses} align {align} {address.text}, {mask.typed})")

    def prefetch(self, address: Register, *, write: bool, locality: int) -> None:
        """Prefetches a cache line that is used soon; locality 3 keeps it in all caches."""
        self.declarations.add("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
        self.line(f"call void @llvm.prefetch.p0({address.typed}, i32 {int(write)}, i32 {locality}, i32 1)")


def _aligned(align: int) -> str:
    return f", align {align}" if align else ""


def _masked_name(operation: str, type: Scalar, lanes: int) -> str:
    addresses = f".v{lanes}p0" if operation in ("gather", "scatter") else ".p0"
    return f"llvm.masked.{operation}.{intrinsic_suffix(type, lanes)}{addresses}"


def intrinsic_suffix(type: Scalar, lanes: int) -> str:
    element = f"f{type.bits}" if type.kind == "float" and type is not bf16 else f"i{type.bits}"
    return element if lanes == 1 else f"v{lanes}{element}"


@lru_cache(maxsize=256)
def _integer_constant(value: int) -> Register:
    return Register(str(value), i64, 1, literal=True)


@lru_cache(maxsize=256)
def lane_constants(numbers: Sequence[int], type: Scalar) -> Register:
    """A constant for each lane."""
    texts = [f"{llvm_type(type, 1)} {number}" for number in numbers]
    return Register(f"<{', '.join(texts)}>", type, len(texts), literal=True)


@lru_cache(maxsize=256)
def _shuffle_mask(lanes: tuple[int | None, ...]) -> str:
    texts = ["i32 poison" if lane is None else f"i32 {lane}" for lane in lanes]
    return f"<{len(lanes)} x i32> <{', '.join(texts)}>"
