"""Random edits of live graphs with gradient blocks, against dual numbers in plain Python.

`run_one(seed)` edits a chain of units: blocks, composites and regions with inputs `x`, `y` and `p`. Edits set numbers,
connect and disconnect, replace code, steer regions, and add and remove gradients, also of outputs that do not depend on
their pins yet. After each edit every output and every gradient is compared with the model.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import livegrad as lg

SHORT = 6
_UNITS, _EDITS, _GRADIENTS = 5, 30, 3
_KINDS = ("block", "composite", "if", "if_else", "for", "switch")
_DEFAULTS = {"y": 0.5, "p": 1.0}


@dataclass(frozen=True)
class Dual:
    """A value and its derivative."""

    value: float
    slope: float = 0.0

    def __add__(self, other: Dual) -> Dual:
        return Dual(self.value + other.value, self.slope + other.slope)

    def __mul__(self, other: Dual) -> Dual:
        return Dual(self.value * other.value, self.slope * other.value + self.value * other.slope)


def _sine(x: Dual) -> Dual:
    return Dual(math.sin(x.value), math.cos(x.value) * x.slope)


Function = Callable[[Dual, Dual, Dual], Dual]
# What a block computes, for the engine and for the model.
_BODIES: list[tuple[Callable[..., Any], Function]] = [
    (lambda x, y=0.5, p=1.0: x * 0.5 + y * p, lambda x, y, p: x * Dual(0.5) + y * p),
    (lambda x, y=0.5, p=1.0: lg.sin(x * y) + p, lambda x, y, p: _sine(x * y) + p),
    (lambda x, y=0.5, p=1.0: lg.sin(x) * p - y, lambda x, y, p: _sine(x) * p + y * Dual(-1.0)),
    (lambda x, y=0.5, p=1.0: x * x * 0.125 + p, lambda x, y, p: x * x * Dual(0.125) + p),
]


@dataclass
class Unit:
    """A part of the chain: what the engine has, and what the model knows of it."""

    name: str
    kind: str
    block: Any  # with the pins
    inner: list[Any]  # the blocks whose code is edited
    bodies: list[int]
    sources: dict[str, float | int | None] = field(default_factory=dict)  # a number, a unit's position, or the default
    control: int = 1


@dataclass
class Gradient:
    """A gradient block: the unit whose output it differentiates, and the pins, each of a unit."""

    block: Any
    of: int
    by: dict[str, tuple[int, str]]


def run_one(seed: int, *, backend: str = "cpu", reuse_memory: bool = False) -> Mapping[str, int]:
    """One session; raises AssertionError at the first difference."""
    return _Session(seed, lg.Engine(backend, reuse_memory=reuse_memory)).run()


class _Session:
    def __init__(self, seed: int, engine: lg.Engine) -> None:
        self.seed, self.chance, self.engine = seed, random.Random(seed), engine
        self.strong = self.chance.random() < 0.5  # float64 numbers instead of Python's floats
        self.counts: Counter[str] = Counter()
        self.units: list[Unit] = []
        self.gradients: list[Gradient] = []
        self.made = 0
        self.log: list[str] = []

    def run(self) -> Mapping[str, int]:
        for _ in range(_UNITS):
            self._add_unit()
        self._add_gradient()
        edits = [
            *[self._set_number] * 4, *[self._edit_code] * 3, *[self._connect] * 2, self._disconnect, self._steer,
            self._add_gradient, self._remove_gradient,
        ]  # fmt: skip
        for _ in range(_EDITS):
            for _ in range(self.chance.choice((1, 1, 1, 1, 3))):
                edit = self.chance.choice(edits)
                edit()
                self.counts[edit.__name__.removeprefix("_").replace("_", " ")] += 1
            frame = self.engine.step()
            assert frame.ok, f"{self._story()}\n{frame.problems}"
            self._compare()
        self.engine.close()
        return self.counts

    # --- edits ---

    def _add_unit(self) -> None:
        kind, position = self.chance.choice(_KINDS), len(self.units)
        name = f"u{position}"
        count = 2 if kind in ("if_else", "switch") else 1
        bodies = [self.chance.randrange(len(_BODIES)) for _ in range(count)]
        inner = [lg.block(_BODIES[body][0], name="work") for body in bodies]
        composites = [self._wrapped(f"{name}{place}", own) for place, own in enumerate(inner)]
        make: dict[str, Callable[[], Any]] = {
            "block": lambda: lg.block(_BODIES[bodies[0]][0], name=name),
            "composite": lambda: composites[0],
            "if": lambda: lg.If(name, *composites),
            "if_else": lambda: lg.IfElse(name, *composites),
            "for": lambda: lg.For(name, *composites, carried={"x": "result"}),
            "switch": lambda: lg.Switch(name, *composites),
        }
        block = self.engine.add(make[kind]())
        unit = Unit(name, kind, block, [block] if kind == "block" else inner, bodies)
        self.units.append(unit)
        unit.sources = {"x": 0.0, **dict.fromkeys(_DEFAULTS)}
        self._give(unit, "x")
        self._control(unit, 1)
        self.log.append(f"{name} is a {kind} with {bodies}")

    @staticmethod
    def _wrapped(name: str, block: Any) -> lg.Composite:
        composite = lg.Composite(name)
        composite.graph.add(block)
        for pin in (*block.inputs, *block.outputs):
            composite.expose(block[pin])
        return composite

    def _give(self, unit: Unit, pin: str) -> None:
        value = round(self.chance.uniform(-1.5, 1.5), 3)
        self.engine.set(unit.block[pin], np.float64(value) if self.strong else value)
        unit.sources[pin] = value
        self.log.append(f"{unit.name}.{pin} = {value}")

    def _set_number(self) -> None:
        self._give(self.chance.choice(self.units), self.chance.choice("xyp"))

    def _connect(self) -> None:
        target = self.chance.randrange(1, len(self.units))
        source, pin = self.chance.randrange(target), self.chance.choice("xy")
        self.engine.connect(self.units[source].block, self.units[target].block[pin])
        self.units[target].sources[pin] = source
        self.log.append(f"u{source} -> u{target}.{pin}")

    def _disconnect(self) -> None:
        unit, pin = self.chance.choice(self.units), self.chance.choice("yp")
        if unit.sources[pin] is not None:
            self.engine.disconnect(unit.block[pin])
            unit.sources[pin] = None
            self.log.append(f"disconnect {unit.name}.{pin}")

    def _edit_code(self) -> None:
        unit = self.chance.choice(self.units)
        place, body = self.chance.randrange(len(unit.inner)), self.chance.randrange(len(_BODIES))
        lg.live.edit(self.engine, unit.inner[place], _BODIES[body][0])
        unit.bodies[place] = body
        self.log.append(f"code of {unit.name}[{place}] = {body}")

    def _steer(self) -> None:
        self._control(self.chance.choice(self.units), self.chance.randrange(4))

    def _control(self, unit: Unit, value: int) -> None:
        pin = {"if": "condition", "if_else": "condition", "for": "count", "switch": "index"}.get(unit.kind)
        if pin is not None:
            self.engine.set(unit.block[pin], bool(value) if pin == "condition" else value)
            unit.control = value
            self.log.append(f"{unit.name}.{pin} = {value}")

    def _add_gradient(self) -> None:
        if len(self.gradients) == _GRADIENTS:
            return
        of = self.chance.randrange(len(self.units) - 2, len(self.units))  # what most units may reach
        chosen = [(self.chance.randrange(len(self.units)), self.chance.choice("xyp")) for _ in range(2)]
        by = {f"{pin}{position}": (position, pin) for position, pin in chosen}
        self.made += 1
        pins = {name: self.units[position].block[pin] for name, (position, pin) in by.items()}
        block = lg.grad(of=self.units[of].block, by=pins, name=f"g{self.made}")
        self.gradients.append(Gradient(self.engine.add(block), of, by))
        self.log.append(f"g{self.made}: of u{of} by {', '.join(by)}")

    def _remove_gradient(self) -> None:
        if self.gradients:
            gradient = self.gradients.pop(self.chance.randrange(len(self.gradients)))
            self.engine.remove(gradient.block)
            self.log.append(f"remove {gradient.block.name}")

    # --- the model ---

    def _results(self, by: tuple[int, str] | None = None) -> list[Dual]:
        """The results of all units, with derivatives by one pin."""
        results: list[Dual] = []
        for position, unit in enumerate(self.units):
            inputs = []
            for pin, source in unit.sources.items():
                value = Dual(_DEFAULTS[pin]) if source is None else Dual(source)
                value = results[source] if isinstance(source, int) else value
                inputs.append(value + Dual(0.0, 1.0) if by == (position, pin) else value)
            results.append(self._result(unit, *inputs))
        return results

    @staticmethod
    def _result(unit: Unit, x: Dual, y: Dual, p: Dual) -> Dual:
        functions = [_BODIES[body][1] for body in unit.bodies]
        if unit.kind == "for":
            for _ in range(unit.control):
                x = functions[0](x, y, p)
            return x
        chosen = {"if": 0 if unit.control else 1, "if_else": 0 if unit.control else 1, "switch": unit.control}
        place = chosen.get(unit.kind, 0)
        return functions[place](x, y, p) if place < len(functions) else Dual(0.0)

    def _compare(self) -> None:
        tolerance = 1e-9 if self.strong else 1e-3  # Python's floats are float32 where nothing else decides
        for unit, expected in zip(self.units, self._results(), strict=True):
            self._require(self.engine.read(unit.block), expected.value, tolerance, unit.name)
        for gradient in self.gradients:
            for name, by in gradient.by.items():
                expected = self._results(by)[gradient.of].slope
                found = self.engine.read(gradient.block[name])
                self._require(found, expected, tolerance, f"{gradient.block.name}.{name}")
                self.counts["gradients compared"] += 1

    def _require(self, found: Any, expected: float, tolerance: float, name: str) -> None:
        close = abs(float(found) - expected) <= tolerance * (1.0 + abs(expected))
        assert close, f"{self._story()}\n{name}: expected {expected}, found {found}"

    def _story(self) -> str:
        return f"seed {self.seed}, strong {self.strong}:\n" + "\n".join(self.log[-40:])
