"""Registers with operators: arithmetic on a `Value` emits instructions with its builder.

Python numbers as operands become constants. Hand-written code uses it: math functions, matrix products, chains of
kernels.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from livegrad.codegen.llvm.builder import Builder
from livegrad.codegen.llvm.counted_loops import OpenLoop
from livegrad.codegen.llvm.registers import Register, pointer
from livegrad.ir.types import Scalar, bool_, i64


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """A register, or a constant, of a builder.

    No instruction has fast-math flags: Cody–Waite reductions and error terms must survive the optimiser, and results
    must not depend on the number of lanes. Integers are sizes, never negative, so their quotients and remainders are
    unsigned; comparisons of integers are signed, unless `compare` has an unsigned predicate.
    """

    builder: Builder
    register: Register

    @property
    def text(self) -> str:
        return self.register.text

    @property
    def typed(self) -> str:
        return self.register.typed

    @property
    def type(self) -> Scalar:
        """The type of one lane."""
        return self.register.type

    @property
    def is_float(self) -> bool:
        return self.type.kind == "float"

    def wrap(self, register: Register) -> Value:
        return Value(self.builder, register)

    def register_of(self, other: Value | float) -> Register:
        """An operand of this value's type."""
        if not isinstance(other, Value):
            return self.builder.constant(other, self.type)
        if other.type is not self.type:
            raise TypeError(f"expected an operand of type {self.type}, found {other.typed}")
        return other.register

    def _binary(self, float_opcode: str | None, integer_opcode: str | None, other: Value | float) -> Value:
        opcode = float_opcode if self.is_float else integer_opcode
        if opcode is None:
            raise TypeError(f"{float_opcode or integer_opcode} takes no operands of type {self.type}")
        operand = self.register_of(other)
        if self.is_float:
            return self.wrap(self.builder.apply(opcode, self.type, self.register, operand))
        return self.wrap(self.builder.integer(opcode, self.register, operand))

    def __add__(self, other: Value | float) -> Value:
        """The sum; for an address, the address advanced by a number of bytes."""
        if self.type is pointer:
            distance = other.register if isinstance(other, Value) else self.builder.constant(other, i64)
            return self.wrap(self.builder.advance(self.register, distance))
        return self._binary("fadd", "add", other)

    def __sub__(self, other: Value | float) -> Value:
        return self._binary("fsub", "sub", other)

    def __rsub__(self, other: float) -> Value:
        return self.wrap(self.register_of(other)) - self

    def __mul__(self, other: Value | float) -> Value:
        return self._binary("fmul", "mul", other)

    def __truediv__(self, other: Value | float) -> Value:
        return self._binary("fdiv", None, other)

    def __rtruediv__(self, other: float) -> Value:
        return self.wrap(self.register_of(other)) / self

    __radd__ = __add__
    __rmul__ = __mul__

    def __floordiv__(self, other: Value | int) -> Value:
        return self._binary(None, "udiv", other)

    def __mod__(self, other: Value | int) -> Value:
        return self._binary(None, "urem", other)

    def __neg__(self) -> Value:
        return self.wrap(self.builder.negate(self.register))

    def __and__(self, other: Value | int) -> Value:
        return self._binary(None, "and", other)

    def __or__(self, other: Value | int) -> Value:
        return self._binary(None, "or", other)

    def __xor__(self, other: Value | int) -> Value:
        return self._binary(None, "xor", other)

    def __invert__(self) -> Value:
        return self ^ -1

    def __lshift__(self, count: int) -> Value:
        return self._binary(None, "shl", count)

    def __rshift__(self, count: int) -> Value:
        """Arithmetic: copies the sign."""
        return self._binary(None, "ashr", count)

    # Comparisons of floats are ordered: false where an operand is NaN.
    def __lt__(self, other: Value | float) -> Value:
        return self.compare("olt" if self.is_float else "slt", other)

    def __le__(self, other: Value | float) -> Value:
        return self.compare("ole" if self.is_float else "sle", other)

    def __gt__(self, other: Value | float) -> Value:
        return self.compare("ogt" if self.is_float else "sgt", other)

    def __ge__(self, other: Value | float) -> Value:
        return self.compare("oge" if self.is_float else "sge", other)

    def equals(self, other: Value | float) -> Value:
        return self.compare("oeq" if self.is_float else "eq", other)

    def compare(self, predicate: str, other: Value | float) -> Value:
        opcode = "fcmp" if self.is_float else "icmp"
        return self.wrap(self.builder.apply(f"{opcode} {predicate}", bool_, self.register, self.register_of(other)))

    def select(self, then: Value, otherwise: Value | float) -> Value:
        """`then` where this condition holds, `otherwise` elsewhere."""
        return self.wrap(self.builder.select(self.register, then.register, then.register_of(otherwise)))

    def convert(self, instruction: str, type: Scalar) -> Value:
        return self.wrap(self.builder.convert(instruction, self.register, type))

    # --- addresses ---

    def load(self, type: Scalar, lanes: int = 1, align: int = 0) -> Value:
        return self.wrap(self.builder.load(self.register, type, lanes, align))

    def store(self, value: Value, align: int = 0) -> None:
        self.builder.store(value.register, self.register, align)


def integer(builder: Builder, value: int) -> Value:
    return Value(builder, builder.constant(value, i64))


def smallest(first: Value, second: Value | int) -> Value:
    """The lower of two signed integers."""
    return first.wrap(first.builder.intrinsic("smin", first.type, first.register, first.register_of(second)))


def largest(first: Value, second: Value | int) -> Value:
    """The higher of two signed integers."""
    return first.wrap(first.builder.intrinsic("smax", first.type, first.register, first.register_of(second)))


@contextmanager
def when(condition: Value) -> Iterator[None]:
    """Code emitted inside runs only if the condition holds."""
    builder = condition.builder
    then, done = builder.label("then"), builder.label("done")
    builder.branch(condition.register, then, done)
    builder.begin(then)
    yield
    builder.jump(done)
    builder.begin(done)


@contextmanager
def counting(start: Value | int, stop: Value, step: Value | int = 1) -> Iterator[Value]:
    """Code emitted inside is the body of a loop from `start` to below `stop`; yields the counter."""
    builder = stop.builder
    loop = OpenLoop(builder, [stop.register_of(start)])
    counter = Value(builder, loop.carried[0])
    builder.branch((counter < stop).register, loop.body, loop.done)
    builder.begin(loop.body)
    yield counter
    loop.close([(counter + step).register])


@dataclass
class LlvmModule:
    """Functions of a module, and declarations of the functions that they call."""

    declarations: set[str] = field(default_factory=set)
    definitions: list[str] = field(default_factory=list)

    def text(self, *attributes: str) -> str:
        return "\n".join([*sorted(self.declarations), *self.definitions, *attributes])


class Procedure:
    """A function without a result, under construction; `parameters` has its parameters by name."""

    def __init__(self, module: LlvmModule, name: str, parameters: Mapping[str, Scalar]) -> None:
        self.name, self._module = name, module
        self.builder = Builder(declarations=module.declarations)
        self.parameters = {
            parameter: Value(self.builder, Register(f"%{parameter}", type, 1)) for parameter, type in parameters.items()
        }

    def finish(self, *, exported: bool = False, attributes: str = "#0") -> None:
        """Emits the return, and adds the function to its module."""
        self.builder.line("ret void")
        typed = ", ".join([parameter.typed for parameter in self.parameters.values()])
        head = f"define {'' if exported else 'internal '}void @{self.name}({typed}) {attributes}"
        self._module.definitions.append(self.builder.function(head))


def call(function: str, *arguments: Value) -> None:
    """Calls a function without a result, by its symbol or its address."""
    arguments[0].builder.line(f"call void {function}({', '.join([argument.typed for argument in arguments])})")


KERNEL_PARAMETERS = {"begin": i64, "end": i64, "args": pointer, "worker": i64}  # items, argument block, thread


class PoolKernel(Procedure):
    """A kernel under construction: a function that the thread pool calls for a range of items."""

    def __init__(self, module: LlvmModule, name: str) -> None:
        super().__init__(module, name, KERNEL_PARAMETERS)
        self.begin, self.end, self.worker = (self.parameters[name] for name in ("begin", "end", "worker"))

    def arguments(self, slots: Mapping[str, Scalar]) -> dict[str, Value]:
        """Loads the argument block."""
        block = self.parameters["args"]
        return {name: load_slot(block, index, type) for index, (name, type) in enumerate(slots.items())}


def load_slot(block: Value, index: Value | int, type: Scalar = i64) -> Value:
    """A slot of an argument block."""
    return slot_address(block, index).load(type)


def slot_address(block: Value, index: Value | int) -> Value:
    builder = block.builder
    index_register = index.register if isinstance(index, Value) else builder.constant(index, i64)
    return block.wrap(builder.advance(block.register, index_register, "i64"))
