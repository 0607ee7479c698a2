"""Writes the body of one function as LLVM IR text, with every value a scalar or a vector of a fixed number of lanes.
In: Python expressions over ``Value``s. Out: instructions, and the intrinsics that they use.
Called by the modules of this package that define functions; ``library`` turns the finished body into a definition."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Union

from livegrad.codegen.llvm.vector_math.element import ELEMENTS, Element

Operand = Union["Value", float, int]
Values = tuple["Value", ...]

REGISTER_BITS = 512  # of AVX-512
_ELEMENT_OF_KIND = {element.float_type: element for element in ELEMENTS.values()}


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """An SSA value or constant. Arithmetic on it writes an instruction; Python numbers beside it become constants.

    No instruction carries a fast-math flag: Cody–Waite reductions and error terms must survive the optimiser, and
    results must not depend on the number of lanes."""

    assembler: "Assembler"
    text: str
    kind: str  # the type of one lane: "float", "double", "i32", "i64" or "i1"

    @property
    def is_float(self) -> bool:
        return self.kind in _ELEMENT_OF_KIND

    def _binary(self, float_opcode: str | None, integer_opcode: str | None, other: Operand) -> "Value":
        opcode = float_opcode if self.is_float else integer_opcode
        if opcode is None:
            raise TypeError(f"{float_opcode or integer_opcode} takes no operands of type {self.kind}")
        return self.assembler.instruction(opcode, self, self.assembler.operand(other, self.kind))

    def _compare(self, float_predicate: str, integer_predicate: str, other: Operand) -> "Value":
        opcode = f"fcmp {float_predicate}" if self.is_float else f"icmp {integer_predicate}"
        return self.assembler.instruction(opcode, self, self.assembler.operand(other, self.kind), result_kind="i1")

    def __add__(self, other: Operand) -> "Value":
        return self._binary("fadd", "add", other)

    def __sub__(self, other: Operand) -> "Value":
        return self._binary("fsub", "sub", other)

    def __rsub__(self, other: Operand) -> "Value":
        return self.assembler.operand(other, self.kind) - self

    def __mul__(self, other: Operand) -> "Value":
        return self._binary("fmul", None, other)

    def __truediv__(self, other: Operand) -> "Value":
        return self._binary("fdiv", None, other)

    def __rtruediv__(self, other: Operand) -> "Value":
        return self.assembler.operand(other, self.kind) / self

    __radd__ = __add__
    __rmul__ = __mul__

    def __neg__(self) -> "Value":
        return self.assembler.instruction("fneg", self)

    def __and__(self, other: Operand) -> "Value":
        return self._binary(None, "and", other)

    def __or__(self, other: Operand) -> "Value":
        return self._binary(None, "or", other)

    def __xor__(self, other: Operand) -> "Value":
        return self._binary(None, "xor", other)

    def __invert__(self) -> "Value":
        return self ^ -1

    def __lshift__(self, count: int) -> "Value":
        return self._binary(None, "shl", count)

    def __rshift__(self, count: int) -> "Value":
        """Arithmetic: copies the sign."""
        return self._binary(None, "ashr", count)

    # Comparisons are ordered, that is, false where an operand is NaN; those of integers are signed.
    def __lt__(self, other: Operand) -> "Value":
        return self._compare("olt", "slt", other)

    def __le__(self, other: Operand) -> "Value":
        return self._compare("ole", "sle", other)

    def __gt__(self, other: Operand) -> "Value":
        return self._compare("ogt", "sgt", other)

    def __ge__(self, other: Operand) -> "Value":
        return self._compare("oge", "sge", other)

    def equals(self, other: Operand) -> "Value":
        return self._compare("oeq", "eq", other)


class Assembler:
    """One function body being written. Its element type is the type of the function's arguments and result."""

    def __init__(self, element: Element, lanes: int, avx512: bool = False) -> None:
        self.element = element
        self.lanes = lanes
        # Instructions of AVX-512 work on whole registers; other numbers of lanes do without them.
        self.avx512 = avx512 and lanes % (REGISTER_BITS // element.width) == 0
        self.lines: list[str] = []
        self.declarations: set[str] = set()
        self.tables: dict[str, str] = {}  # constants in memory, by symbol
        self._names = 0
        self._block = "entry"

    # Types and constants

    def type_of(self, kind: str) -> str:
        return kind if self.lanes == 1 else f"<{self.lanes} x {kind}>"

    def argument(self, name: str) -> Value:
        return Value(self, f"%{name}", self.element.float_type)

    def operand(self, value: Operand, kind: str) -> Value:
        if isinstance(value, Value):
            if value.kind != kind:
                raise TypeError(f"expected an operand of type {kind}, found {value.text} of type {value.kind}")
            return value
        if kind in _ELEMENT_OF_KIND:
            scalar = _ELEMENT_OF_KIND[kind].literal(value)
        elif kind == "i1":
            scalar = "true" if value else "false"
        else:
            scalar = str(int(value))
        return Value(self, scalar if self.lanes == 1 else f"splat ({kind} {scalar})", kind)

    def constant(self, value: float) -> Value:
        return self.operand(value, self.element.float_type)

    def integer_constant(self, value: int) -> Value:
        return self.operand(value, self.element.integer_type)

    # Instructions

    def new_name(self, prefix: str = "v") -> str:
        self._names += 1
        return f"{prefix}{self._names}"

    def emit(self, right_hand_side: str, kind: str) -> Value:
        name = self.new_name()
        self.lines.append(f"  %{name} = {right_hand_side}")
        return Value(self, f"%{name}", kind)

    def instruction(self, opcode: str, first: Value, *rest: Value, result_kind: str | None = None) -> Value:
        operands = ", ".join(value.text for value in (first, *rest))
        return self.emit(f"{opcode} {self.type_of(first.kind)} {operands}", result_kind or first.kind)

    def intrinsic(self, name: str, *arguments: Value) -> Value:
        kind = arguments[0].kind
        lane = _ELEMENT_OF_KIND[kind].name
        symbol = f"@llvm.{name}.{lane if self.lanes == 1 else f'v{self.lanes}{lane}'}"
        vector = self.type_of(kind)
        self.declarations.add(f"declare {vector} {symbol}({', '.join([vector] * len(arguments))})")
        return self.emit(f"call {vector} {symbol}({', '.join(f'{vector} {a.text}' for a in arguments)})", kind)

    def fma(self, x: Operand, y: Operand, z: Operand) -> Value:
        """x·y + z, rounded once."""
        kind = next(value.kind for value in (x, y, z) if isinstance(value, Value))
        return self.intrinsic("fma", *(self.operand(value, kind) for value in (x, y, z)))

    def sqrt(self, x: Value) -> Value:
        return self.intrinsic("sqrt", x)

    def abs(self, x: Value) -> Value:
        return self.intrinsic("fabs", x)

    def trunc(self, x: Value) -> Value:
        return self.intrinsic("trunc", x)

    def copy_sign(self, magnitude: Value, sign: Value) -> Value:
        return self.intrinsic("copysign", magnitude, sign)

    def select(self, mask: Value, then: Operand, otherwise: Operand) -> Value:
        kinds = [value.kind for value in (then, otherwise) if isinstance(value, Value)]
        kind = kinds[0] if kinds else self.element.float_type
        then, otherwise = self.operand(then, kind), self.operand(otherwise, kind)
        vector = self.type_of(kind)
        condition = f"{self.type_of('i1')} {mask.text}"
        return self.emit(f"select {condition}, {vector} {then.text}, {vector} {otherwise.text}", kind)

    def at_most(self, x: Value, bound: Operand) -> Value:
        """min(x, bound), but NaN where x is NaN; a compare and a select become one instruction."""
        return self.select(x > bound, bound, x)

    def at_least(self, x: Value, bound: Operand) -> Value:
        return self.select(x < bound, bound, x)

    def convert(self, x: Value, kind: str) -> Value:
        """Between float formats, from an integer to a float, or from i64 to i32."""
        if x.is_float:
            opcode = "fpext" if kind == "double" else "fptrunc"
        else:
            opcode = "trunc" if kind == "i32" else "sitofp"
        return self.emit(f"{opcode} {self.type_of(x.kind)} {x.text} to {self.type_of(kind)}", kind)

    # Bit patterns

    def bits(self, x: Value) -> Value:
        return self._reinterpret(x, _ELEMENT_OF_KIND[x.kind].integer_type)

    def from_bits(self, bits: Value) -> Value:
        return self._reinterpret(bits, {"i32": "float", "i64": "double"}[bits.kind])

    def _reinterpret(self, x: Value, kind: str) -> Value:
        return self.emit(f"bitcast {self.type_of(x.kind)} {x.text} to {self.type_of(kind)}", kind)

    def sign_of(self, x: Value) -> Value:
        """The sign bit alone, as an integer."""
        return self.bits(x) & self.element.sign_bit

    def has_sign(self, x: Value) -> Value:
        return self.bits(x) < 0

    def flip_sign(self, x: Value, sign: Value) -> Value:
        """x, negated where the integer ``sign`` has the sign bit; the other bits of ``sign`` must be zero."""
        return self.from_bits(self.bits(x) ^ sign)

    def small_integer_to_float(self, x: Value) -> Value:
        """For magnitudes below 2^22: float64 goes through the rounding constant, since few CPUs convert i64."""
        if self.element.width == 32:
            return self.convert(x, self.element.float_type)
        magic = self.element.rounding_magic
        return self.from_bits(x + self.element.bits_of(magic)) - magic

    def nearest_integer(self, x: Value, scale: float) -> tuple[Value, Value]:
        """rint(x·scale) as a float, and as the low bits of an integer (the bits above them are not zero)."""
        magic = _ELEMENT_OF_KIND[x.kind].rounding_magic
        shifted = self.fma(x, scale, magic)
        return shifted - magic, self.bits(shifted)

    def nearest_power(self, x: Value, scale: float, exponent_offset: int = 0) -> tuple[Value, Value]:
        """n = rint(x·scale), and 2^(n + exponent_offset), which is right for normal results only."""
        # With the exponent bias inside the rounding constant, one shift makes the power of two.
        magic = self.element.rounding_magic + self.element.bias + exponent_offset
        shifted = self.fma(x, scale, magic)
        return shifted - magic, self.from_bits(self.bits(shifted) << self.element.mantissa_bits)

    # Composites

    def polynomial(self, x: Value, coefficients: Sequence[float]) -> Value:
        """The sum of coefficients[i]·x^i, by Horner's rule."""
        result: Operand = coefficients[-1]
        for coefficient in reversed(coefficients[:-1]):
            result = self.fma(result, x, coefficient)
        return self.operand(result, x.kind)

    def polynomial_in_two_chains(self, x: Value, coefficients: Sequence[float]) -> Value:
        """Even and odd terms apart: measured 10 to 20 % faster for log and tan in float64 and pow in float32, where
        the latency of one long chain sets the pace. Where the sums cancel, as for atan near 1, it costs accuracy."""
        square = x * x
        return self.fma(self.polynomial(square, coefficients[1::2]), x, self.polynomial(square, coefficients[::2]))

    def two_product(self, x: Value, y: Value) -> tuple[Value, Value]:
        """x·y and its exact rounding error."""
        product = x * y
        return product, self.fma(x, y, -product)

    def fast_two_sum(self, large: Operand, small: Value) -> tuple[Value, Value]:
        """The sum and its exact rounding error, given |large| >= |small|."""
        total = large + small
        return total, small - (total - large)

    def subtract_multiple(self, x: Value, multiple: Value, unit: Sequence[float]) -> Value:
        """x - multiple·unit (Cody–Waite), the unit given in parts, greatest first.

        The fma does not round the product, so the first difference is exact, cancellation included."""
        for part in unit:
            x = self.fma(multiple, -part, x)
        return x

    # Control flow

    def call_helper(self, name: str, argument: Value, result_kinds: Sequence[str]) -> Values:
        """Calls a function that returns a structure; ``library`` adds its definition."""
        results = ", ".join(self.type_of(kind) for kind in result_kinds)
        packed = self.new_name("packed")
        self.lines.append(
            f"  %{packed} = call fastcc {{ {results} }} @{name}({self.type_of(argument.kind)} {argument.text})"
        )
        return tuple(
            self.emit(f"extractvalue {{ {results} }} %{packed}, {index}", kind)
            for index, kind in enumerate(result_kinds)
        )

    def any_lane(self, mask: Value) -> str:
        return self._any(mask.text, self.lanes)

    def _any(self, mask: str, lanes: int) -> str:
        if lanes == 1:
            return mask
        symbol = f"@llvm.vector.reduce.or.v{lanes}i1"
        self.declarations.add(f"declare i1 {symbol}(<{lanes} x i1>)")
        name = self.new_name("any")
        self.lines.append(f"  %{name} = call i1 {symbol}(<{lanes} x i1> {mask})")
        return f"%{name}"

    def start_block(self, label: str) -> None:
        self.lines.append(f"{label}:")
        self._block = label

    def any_square_above(self, x: Value, bound: float) -> str:
        """Whether x² is above the bound, or no number, in some lane; true, too, where squares of several add up to it.

        About one instruction for each register, where a comparison for each takes four: masks are joined one by one.
        """
        if self.lanes <= REGISTER_BITS // self.element.width:
            return self._any_at_least((x * x).text, x.kind, self.lanes, bound)
        lanes = self.lanes // 2
        vector = f"<{lanes} x {x.kind}>"
        low, high = self._halves(x.text, x.kind, self.lanes)
        square = self.emit(f"fmul {vector} {low}, {low}", x.kind).text
        symbol = f"@llvm.fma.v{lanes}{self.element.name}"
        self.declarations.add(f"declare {vector} {symbol}({vector}, {vector}, {vector})")
        given = ", ".join(f"{vector} {value}" for value in (high, high, square))
        total = self.emit(f"call {vector} {symbol}({given})", x.kind).text
        while lanes > REGISTER_BITS // self.element.width:
            halves = self._halves(total, x.kind, lanes)
            lanes //= 2
            total = self.emit(f"fadd <{lanes} x {x.kind}> {', '.join(halves)}", x.kind).text
        return self._any_at_least(total, x.kind, lanes, bound)

    def _halves(self, vector: str, kind: str, lanes: int) -> list[str]:
        type = f"<{lanes} x {kind}>"
        places = [", ".join(f"i32 {lane}" for lane in range(first, first + lanes // 2)) for first in (0, lanes // 2)]
        taken = [f"{type} {vector}, {type} poison, <{lanes // 2} x i32> <{some}>" for some in places]
        return [self.emit(f"shufflevector {operands}", kind).text for operands in taken]

    def _any_at_least(self, vector: str, kind: str, lanes: int, bound: float) -> str:
        limit = _ELEMENT_OF_KIND[kind].literal(bound)
        type, limit = (kind, limit) if lanes == 1 else (f"<{lanes} x {kind}>", f"splat ({kind} {limit})")
        return self._any(self.emit(f"fcmp uge {type} {vector}, {limit}", "i1").text, lanes)

    def when_any(self, mask: Value, usual: Values, replace: Callable[[], Values]) -> Values:
        """``usual``, or what ``replace`` writes in a block that runs only when the mask holds in some lane."""
        return self.when(self.any_lane(mask), usual, replace)

    def when(self, condition: str, usual: Values, replace: Callable[[], Values]) -> Values:
        """``usual``, or what ``replace`` writes in a block that runs only when the condition holds, an i1 in LLVM."""
        rare, done, before = self.new_name("rare"), self.new_name("done"), self._block
        self.lines.append(f"  br i1 {condition}, label %{rare}, label %{done}")
        self.start_block(rare)
        replaced = replace()
        after = self._block
        self.lines.append(f"  br label %{done}")
        self.start_block(done)
        return tuple(
            self.emit(f"phi {self.type_of(u.kind)} [ {u.text}, %{before} ], [ {r.text}, %{after} ]", u.kind)
            for u, r in zip(usual, replaced, strict=True)
        )

    def repeat_while_any(
        self, state: Value, condition: Callable[[Value], Value], step: Callable[[Value], Value]
    ) -> Value:
        """Applies ``step``, which must not branch, to the lanes where ``condition`` holds, until it holds in none."""
        loop, body, done = self.new_name("loop"), self.new_name("body"), self.new_name("done")
        before, current, following = self._block, self.new_name("state"), self.new_name("next")
        vector = self.type_of(state.kind)
        self.lines.append(f"  br label %{loop}")
        self.start_block(loop)
        self.lines.append(f"  %{current} = phi {vector} [ {state.text}, %{before} ], [ %{following}, %{body} ]")
        value = Value(self, f"%{current}", state.kind)
        active = condition(value)
        self.lines.append(f"  br i1 {self.any_lane(active)}, label %{body}, label %{done}")
        self.start_block(body)
        stepped = step(value)
        condition_text = f"{self.type_of('i1')} {active.text}"
        self.lines.append(f"  %{following} = select {condition_text}, {vector} {stepped.text}, {vector} {value.text}")
        self.lines.append(f"  br label %{loop}")
        self.start_block(done)
        return value
