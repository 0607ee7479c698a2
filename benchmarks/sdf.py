"""The benchmark functions: signed distances of smoothly joined spheres and boxes, as straight-line programs.

`algebraic()` has exactly 310 operations, `transcendental()` 316 with 59 calls of sin, exp, log, tanh and pow.
A program is replayed on any namespace by `evaluate`, or written as Python text by `python_source`."""

import random
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

PARAMETER_LIMIT = 20  # the first numbers of shapes are run-time parameters, the rest are literals
LEAVES = frozenset({"input", "parameter", "literal"})
TRANSCENDENTAL = frozenset({"sin", "exp", "log", "tanh", "pow"})


@dataclass(frozen=True)
class Instruction:
    """One value: a leaf, whose `value` is an index or a number, or an operation on earlier values."""

    op: str
    operands: tuple[int, ...] = ()
    value: float = 0.0


@dataclass(frozen=True)
class Program:
    """Instructions in order; the last one is the result."""

    instructions: tuple[Instruction, ...]
    parameters: tuple[float, ...]

    def count(self, ops: frozenset[str] | None = None) -> int:
        """How many operations, of these kinds or of all; leaves are not operations."""
        wanted = (i.op for i in self.instructions if i.op not in LEAVES)
        return sum(ops is None or op in ops for op in wanted)


def round_to_float32(value: float) -> float:
    return struct.unpack("f", struct.pack("f", value))[0]


@dataclass
class Builder:
    """Appends instructions; equal leaves are shared."""

    random: random.Random
    instructions: list[Instruction] = field(default_factory=list)
    parameters: list[float] = field(default_factory=list)
    leaves: dict[Instruction, int] = field(default_factory=dict)

    def leaf(self, op: str, value: float) -> int:
        instruction = Instruction(op, (), value)
        if instruction not in self.leaves:
            self.leaves[instruction] = self.append(instruction)
        return self.leaves[instruction]

    def append(self, instruction: Instruction) -> int:
        self.instructions.append(instruction)
        return len(self.instructions) - 1

    def op(self, op: str, *operands: int) -> int:
        return self.append(Instruction(op, operands))

    def literal(self, value: float) -> int:
        return self.leaf("literal", round_to_float32(value))

    def scaled(self, value: int, factor: float) -> int:
        return self.op("mul", value, self.literal(factor))

    def number(self, low: float, high: float) -> int:
        """A random number: a parameter while there are any left, then a literal."""
        value = round_to_float32(self.random.uniform(low, high))
        if len(self.parameters) == PARAMETER_LIMIT:
            return self.literal(value)
        self.parameters.append(value)
        return self.leaf("parameter", len(self.parameters) - 1)

    def coordinates(self) -> list[int]:
        return [self.leaf("input", axis) for axis in range(3)]

    def length(self, vector: Sequence[int]) -> int:
        x, y, z = (self.op("mul", component, component) for component in vector)
        return self.op("sqrt", self.op("add", self.op("add", x, y), z))

    def program(self) -> Program:
        return Program(tuple(self.instructions), tuple(self.parameters))


def sphere(b: Builder) -> int:
    offset = [b.op("sub", axis, b.number(-1, 1)) for axis in b.coordinates()]
    return b.op("sub", b.length(offset), b.number(0.2, 0.5))


def box(b: Builder) -> int:
    centred = [b.op("abs", b.op("sub", axis, b.number(-1, 1))) for axis in b.coordinates()]
    x, y, z = (b.op("sub", axis, b.literal(b.random.uniform(0.1, 0.4))) for axis in centred)
    zero = b.literal(0.0)
    outside = b.length([b.op("max", axis, zero) for axis in (x, y, z)])
    inside = b.op("min", b.op("max", x, b.op("max", y, z)), zero)
    return b.op("add", outside, inside)


def polynomial_union(b: Builder, left: int, right: int) -> int:
    """The smaller distance, with a blend of width k where the two are close."""
    k = b.random.uniform(0.1, 0.3)
    gap = b.op("abs", b.op("sub", left, right))
    blend = b.scaled(b.op("max", b.op("sub", b.literal(k), gap), b.literal(0.0)), 1 / k)
    return b.op("sub", b.op("min", left, right), b.scaled(b.op("mul", blend, blend), k / 4))


def rippled_sphere(b: Builder) -> int:
    """A sphere under a power, with a product of sines added."""
    offset = [b.op("sub", axis, b.number(-1, 1)) for axis in b.coordinates()]
    radius = b.op("pow", b.length(offset), b.literal(b.random.uniform(0.8, 1.3)))
    x, y, z = (b.op("sin", b.scaled(axis, b.random.uniform(3, 7))) for axis in b.coordinates())
    ripple = b.scaled(b.op("mul", b.op("mul", x, y), z), 0.05)
    return b.op("add", b.op("sub", radius, b.number(0.2, 0.5)), ripple)


def squashed_box(b: Builder) -> int:
    return b.op("tanh", b.scaled(box(b), 0.7))


def exponential_union(b: Builder, left: int, right: int) -> int:
    k = b.random.uniform(0.1, 0.3)
    total = b.op("add", b.op("exp", b.scaled(left, -1 / k)), b.op("exp", b.scaled(right, -1 / k)))
    return b.scaled(b.op("log", total), -k)


def algebraic(pairs: int = 6, seed: int = 1) -> Program:
    """10 + 50 × pairs operations: a sphere, joined with `pairs` boxes and spheres in turn."""
    b = Builder(random.Random(seed))
    distance = sphere(b)
    for _ in range(pairs):
        distance = polynomial_union(b, distance, box(b))
        distance = polynomial_union(b, distance, sphere(b))
    return b.program()


def transcendental(pairs: int = 5, seed: int = 1) -> Program:
    """21 + 59 × pairs operations, of which 4 + 11 × pairs are transcendental."""
    b = Builder(random.Random(seed))
    distance = rippled_sphere(b)
    for _ in range(pairs):
        distance = exponential_union(b, distance, squashed_box(b))
        distance = exponential_union(b, distance, rippled_sphere(b))
    return b.program()


def evaluate(
    program: Program,
    inputs: Sequence[Any],
    parameters: Sequence[Any],
    operations: Mapping[str, Callable[..., Any]],
    literal: Callable[[float], Any] = float,
) -> Any:
    """Replays the program on whatever `operations` compute with: arrays, tracers or IR nodes."""
    leaf = {
        "input": lambda value: inputs[int(value)],
        "parameter": lambda value: parameters[int(value)],
        "literal": literal,
    }
    values: list[Any] = []
    for instruction in program.instructions:
        if instruction.op in LEAVES:
            values.append(leaf[instruction.op](instruction.value))
        else:
            operands = (values[i] for i in instruction.operands)
            values.append(operations[instruction.op](*operands))
    return values[-1]


def python_source(
    program: Program, forms: Mapping[str, str], *, literal: str = "{0!r}", parameter: str = "p[{0}]"
) -> list[str]:
    """The program as Python assignments; `forms` maps an operation to a pattern such as "{0} + {1}".

    Inputs are named x, y and z. The last line assigns the result."""
    names: list[str] = []
    lines: list[str] = []
    for index, instruction in enumerate(program.instructions):
        if instruction.op == "input":
            names.append("xyz"[int(instruction.value)])
        elif instruction.op == "parameter":
            names.append(parameter.format(int(instruction.value)))
        elif instruction.op == "literal":
            names.append(literal.format(instruction.value))
        else:
            names.append(f"v{index}")
            text = forms[instruction.op].format(*(names[i] for i in instruction.operands))
            lines.append(f"v{index} = {text}")
    lines.append(f"result = {names[-1]}")
    return lines
