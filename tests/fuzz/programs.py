"""Random tensor programs as Python text over a namespace `xp`, which is livegrad's or another library's.

`random_program(seed)` gives a `Program`: its text and its arguments. What the text may contain is in `operations.py`.
Formulas keep away from kinks and poles: two libraries that round differently must not land on different sides of one.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

import livegrad as lg

Shape = tuple[int, ...]
KINDS = {"float": "f", "complex": "c", "signed": "i", "bool": "b"}
MOST_ELEMENTS = 4096


class Livegrad:
    """livegrad's names, and a few more that programs use."""

    def __getattr__(self, name: str) -> Any:
        return getattr(lg, name)

    @staticmethod
    def put(x: Any, key: Any, values: Any) -> Any:
        changed = lg.copy(x)
        changed[key] = values
        return changed

    @staticmethod
    def window(x: Any, starts: Any, sizes: Any) -> Any:
        return x[tuple(slice(start, start + size) for start, size in zip(starts, sizes, strict=True))]

    @staticmethod
    def put_window(x: Any, starts: Any, sizes: Any, values: Any) -> Any:
        changed = lg.copy(x)
        changed[tuple(slice(start, start + size) for start, size in zip(starts, sizes, strict=True))] = values
        return changed

    @staticmethod
    def update_at(x: Any, key: Any, values: Any, name: str) -> Any:
        return getattr(x.at[key], name)(values)

    @staticmethod
    def while_loop(condition: Any, body: Any, state: Any, most: int) -> Any:
        return lg.while_loop(condition, body, state)

    @staticmethod
    def loop_by_count(iterations: Any, body: Any, state: Any, most: int) -> Any:
        return lg.fori_loop(0, iterations, body, state)

    @staticmethod
    def loop_by_test(iterations: Any, body: Any, state: Any, most: int) -> Any:
        return lg.while_loop(
            lambda t: t[0] < iterations, lambda t: (t[0] + 1, body(t[0], t[1])), (lg.asarray(0), state)
        )[1]


@dataclass(frozen=True)
class Value:
    name: str
    shape: Shape
    kind: str  # one of the values of KINDS


@dataclass
class Program:
    """`text` defines `program(xp, *arguments)`, which returns a list of results."""

    text: str
    arguments: list[Any]
    counts: Counter[str]
    float_type: str

    def function(self, xp: Any) -> Callable[..., list[Any]]:
        scope: dict[str, Any] = {"np": np}
        exec(self.text, scope)
        return lambda *arguments: scope["program"](xp, *arguments)

    def __str__(self) -> str:
        data = "\n".join(f"a{i} = np.array({a.tolist()}, np.{a.dtype})" for i, a in enumerate(self.arguments))
        return f"{self.text}{data}"


@dataclass
class Maker:
    """A program that grows line by line; each line is tried on lazy tensors, which gives its shape and type."""

    random: random.Random
    sizes: Sequence[int]
    float_type: str
    lines: list[str] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)
    scope: dict[str, Any] = field(default_factory=lambda: {"xp": Livegrad(), "np": np})

    def add(self, text: str) -> Value:
        """Another value."""
        name = f"v{len(self.lines)}"
        try:
            result = eval(text, self.scope)
        except Exception as error:
            error.add_note(self.text([], f"{name} = {text}"))
            raise
        self.scope[name] = result
        self.lines.append(f"{name} = {text}")
        value = Value(name, tuple(result.shape), KINDS[result.dtype.kind])
        self.values.append(value)
        return value

    def text(self, results: list[str], *more: str) -> str:
        arguments = ", ".join(["xp", *(v.name for v in self.values if v.name.startswith("a"))])
        body = [*self.lines, *more, f"return [{', '.join(results)}]"]
        return f"def program({arguments}):\n" + "".join(f"    {line}\n" for line in body)

    def draw(self, kind: str = "f", least: int = 0, most: int = 4) -> Value:
        """A value of a kind and of a number of dimensions in a range; one is made where there is none."""
        fitting = [v for v in self.values if v.kind == kind and least <= len(v.shape) <= most]
        fitting = [v for v in fitting if prod(v.shape) <= MOST_ELEMENTS]
        if fitting:  # rather a late one than an early one
            return fitting[max(self.random.randrange(len(fitting)), self.random.randrange(len(fitting)))]
        if kind == "f":
            base = self.random.choice([v for v in self.values if v.kind == "f"])
            if len(base.shape) > most or prod(base.shape) > MOST_ELEMENTS:
                return self.draw_from(self.add(f"xp.reshape({base.name}, (-1,))[:{self.size()}]"), least, most)
            return self.draw_from(base, least, most)
        base = self.draw("f", least, most)
        texts = {
            "i": f"xp.astype(xp.floor({base.name} * 3.137 + 0.1731), xp.int64)",
            "b": f"{base.name} > 0.1373",
            "c": f"{base.name} + 1j * xp.cos({base.name})",
        }
        return self.add(texts[kind])

    def draw_from(self, base: Value, least: int, most: int) -> Value:
        """The value with more dimensions, or one element of it."""
        if len(base.shape) > most:
            return self.add(f"xp.sum({base.name})")
        if len(base.shape) < least:
            return self.add(f"xp.expand_dims({base.name}, axis={tuple(range(least - len(base.shape)))})")
        return base

    def size(self) -> int:
        return self.random.choice(self.sizes)

    def axis(self, value: Value) -> int:
        rank = len(value.shape)
        return self.random.randrange(-rank, rank)

    def axes(self, value: Value) -> Any:
        """None, one axis, or several."""
        rank = len(value.shape)
        chosen = tuple(sorted(self.random.sample(range(rank), self.random.randrange(rank + 1))))
        return self.random.choice([None, chosen or None, self.axis(value) if rank else None])

    def partner(self, value: Value, kind: str | None = None) -> str:
        """Something that broadcasts with a value."""
        kind = kind or value.kind
        fitting = [v.name for v in self.values if v.kind == kind and _broadcasts(v.shape, value.shape)]
        if fitting and self.random.random() < 0.8:
            return self.random.choice(fitting)
        other = self.draw(kind)
        if 0 in other.shape:
            return f"xp.{'any' if kind == 'b' else 'sum'}({other.name})"
        return f"xp.reshape({other.name}, (-1,))[{self.random.choice([0, -1])}]"

    def indices(self, count: int, below: int) -> list[int]:
        """Indices into a dimension, some of them from its end."""
        return [self.random.randrange(-below, below) for _ in range(count)]


def _broadcasts(first: Shape, second: Shape) -> bool:
    if not all(a == b or 1 in (a, b) for a, b in zip(reversed(first), reversed(second), strict=False)):
        return False
    return prod(np.broadcast_shapes(first, second)) <= MOST_ELEMENTS


def spread(m: Maker, x: Value) -> str:
    return f"({x.name} + {ramp(m, x.shape, 0.0137)})"


def ramp(m: Maker, shape: Any, step: float) -> str:
    return f"xp.reshape(xp.asarray(np.arange({prod(shape)}, dtype=np.{m.float_type}) * {step}), {tuple(shape)})"


def distinct(m: Maker, x: Value, axis: int) -> str:
    """Elements of which no two along an axis are equal but for rounding."""
    shape = [1] * len(x.shape)
    shape[axis] = x.shape[axis]
    return f"({x.name} + {ramp(m, shape, 0.013717)})"


Operation = Callable[[Maker], Any]
OPERATIONS: dict[str, tuple[float, Operation]] = {}
FUSING: dict[str, tuple[float, Operation]] = {}  # for programs that the schedule is tested with


def operation(name: str, weight: float = 1.0, fusing: bool = False) -> Callable[[Operation], Operation]:
    """Registers what adds values to a program."""

    def register(function: Operation) -> Operation:
        table = FUSING if fusing else OPERATIONS
        assert name not in table, name
        table[name] = weight, function
        return function

    return register


def random_program(seed: int, sizes: Sequence[int], steps: tuple[int, int], fusing: bool = False) -> Program:
    """The program of a seed, over sizes of dimensions, with so many operations."""
    source, numbers = random.Random(seed), np.random.default_rng(seed)
    float_type = "float32" if source.random() < 0.15 else "float64"
    maker, arguments, counts = Maker(source, sizes, float_type), [], Counter[str]()
    for i in range(source.randrange(1, 4)):
        shape = [source.choice(sizes) for _ in range(source.choice([0, 1, 1, 2, 2, 2, 3, 3]))]
        arguments.append(np.asarray(numbers.normal(size=shape), float_type))
        maker.scope[f"a{i}"] = lg.asarray(arguments[-1])
        maker.values.append(Value(f"a{i}", tuple(shape), "f"))
    table = OPERATIONS | {name: (weight * 4.0, add) for name, (weight, add) in FUSING.items()} if fusing else OPERATIONS
    names, weights = list(table), [weight for weight, _ in table.values()]
    for _ in range(source.randint(*steps)):
        name = source.choices(names, weights)[0]
        table[name][1](maker)
        counts[name] += 1
    body = " ".join(maker.lines)
    ends = [v.name for v in maker.values if v.name not in body.replace(f"{v.name} =", "") and v.name.startswith("v")]
    return Program(maker.text(ends[-5:] or [maker.values[-1].name]), arguments, counts, float_type)
