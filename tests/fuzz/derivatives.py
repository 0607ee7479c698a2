"""Random differentiable programs against CPython: values, both modes by central differences, second order.

The text of a program runs twice: compiled by livegrad, and as plain Python with stand-ins for livegrad's names.
"""

from __future__ import annotations

import copy
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from random import Random
from types import SimpleNamespace
from typing import Any

import livegrad as lg
from tests.fuzz import derivative_oracle
from tests.fuzz.derivative_programs import Function, Program, random_program
from tests.fuzz.derivative_types import Float, Type, displacement

Along = Sequence[Sequence[float]]  # a direction: for each argument its coordinates

SHORT = 5
STEP = 1e-5
TOLERANCE = 2e-6
SECOND_TOLERANCE = 2e-5


def run_one(seed: int) -> Mapping[str, int]:
    """One program with its derivatives at one point."""
    random = Random(seed)
    program = random_program(random)
    counts: Counter[str] = Counter(dict.fromkeys(program.features, 1))
    try:
        counts.update(Check(program, random).run())
    except Exception as error:
        raise AssertionError(f"seed {seed}: {type(error).__name__}: {error}\n{program.text}") from error
    counts["programs"] += 1
    return counts


def _plain_names() -> dict[str, Any]:
    fakes = {name: value for name, value in vars(derivative_oracle).items() if not name.startswith("__")}
    fakes["copy"] = copy.copy
    return {"lg": SimpleNamespace(**fakes), "math": math}


class Check:
    """One program, compiled and plain, and what is compared."""

    def __init__(self, program: Program, random: Random) -> None:
        self.program, self.random = program, random
        self.plain = _plain_names()
        exec(compile(program.text, "<plain>", "exec"), self.plain)
        self.names: dict[str, Any] = {"lg": lg, **lg.run_source(program.text, {"lg": lg, "math": math})}

    def run(self) -> Counter[str]:
        counts = Counter(self.function(self.program.main, "main"))
        for made in self.program.overloads:
            counts.update(self.function(made, "over"))
            self.agree(made)
        return counts

    def function(self, function: Function, name: str) -> dict[str, int]:
        values = [type.value(self.random) for _, type, _ in function.parameters]
        types = [type for _, type, _ in function.parameters]
        active = [not quiet for _, _, quiet in function.parameters]
        compiled = self.names[name]
        result = function.result.read(compiled(*self.built(self.names, types, values)))
        expected = self.plain_value(function, name, values)
        sizes = [type.size(value) if flag else 0 for type, value, flag in zip(types, values, active, strict=True)]
        along = [[self.random.uniform(-1, 1) for _ in range(size)] for size in sizes]
        tolerance = 1e-9 + 1e-15 * self.condition(function, name, values, along, expected)
        _close(_flat(result), _flat(expected), tolerance, f"{name}: value")
        moved = self.central(function, name, values, along)
        forward = self.forward(function, name, values, along, expected)
        if moved is not None:
            _close(forward, moved, TOLERANCE, f"{name}: forward mode")
        weights = [self.random.uniform(-1, 1) for _ in range(function.result.size(expected))]
        backward = self.backward(function, name, values, weights, expected)
        paired = sum(a * b for own, d in zip(backward, along, strict=True) for a, b in zip(own, d, strict=True))
        _close(
            [paired], [sum(map(math.prod, zip(weights, forward, strict=True)))], 1e-8, f"{name}: <bwd, dx> = <dy, fwd>"
        )
        if isinstance(function.result, Float):
            self.second(function, name, values, along)
        return {"functions": 1, "coordinates": sum(sizes), "too steep for differences": int(moved is None)}

    # --- the same function in several ways ---

    def built(self, names: dict[str, Any], types: Sequence[Type], values: Sequence[Any]) -> list[Any]:
        return [type.build(names, value) for type, value in zip(types, values, strict=True)]

    def plain_value(self, function: Function, name: str, values: Sequence[Any]) -> Any:
        types = [type for _, type, _ in function.parameters]
        return function.result.read(self.plain[name](*self.built(self.plain, types, values)))

    def moved(
        self, function: Function, values: Sequence[Any], along: Sequence[Sequence[float]], step: float
    ) -> list[Any]:
        parts = zip(function.parameters, values, along, strict=True)
        return [
            value if quiet else type.move(value, iter([step * d for d in own]))
            for (_, type, quiet), value, own in parts
        ]

    def condition(
        self, function: Function, name: str, values: Sequence[Any], along: Along, expected: Any, step: float = 1e-12
    ) -> float:
        """How much the program magnifies rounding: it may take the sine of a large number."""
        near = self.plain_value(function, name, self.moved(function, values, along, step))
        apart = [abs(a - b) for a, b in zip(_flat(near), _flat(expected), strict=False)]
        return max([d / step for d in apart if math.isfinite(d)], default=0.0)

    def central(self, function: Function, name: str, values: Sequence[Any], along: Along) -> list[float] | None:
        def difference(step: float) -> list[float]:
            ends = [self.plain_value(function, name, self.moved(function, values, along, s * step)) for s in (-1, 1)]
            return [d / (2 * step) for d in displacement(function.result, *ends)]

        return _reliable(difference, TOLERANCE)

    def pairs(self, function: Function, values: Sequence[Any], along: Sequence[Sequence[float]]) -> list[Any]:
        made = []
        for (_, type, quiet), value, own in zip(function.parameters, values, along, strict=True):
            built = type.build(self.names, value)
            differential = type.differential(self.names, value, iter(own)) if not quiet else None
            made.append(
                built if quiet or (differential is None and built is not None) else lg.pair(built, differential)
            )
        return made

    def forward(
        self, function: Function, name: str, values: Sequence[Any], along: Sequence[Sequence[float]], result: Any
    ) -> list[float]:
        both = lg.fwd_diff(self.names[name])(*self.pairs(function, values, along))
        return function.result.coordinates(result, both.differential)

    def backward(
        self, function: Function, name: str, values: Sequence[Any], weights: Sequence[float], result: Any
    ) -> list[list[float]]:
        types = [type for _, type, _ in function.parameters]
        seed = function.result.differential(self.names, result, iter(weights))
        found = lg.bwd_diff(self.names[name])(*self.built(self.names, types, values), seed)
        rows = zip(function.parameters, values, found, strict=True)
        return [[] if quiet else type.coordinates(value, own) for (_, type, quiet), value, own in rows]

    def second(self, function: Function, name: str, values: Sequence[Any], along: Sequence[Sequence[float]]) -> None:
        """The derivative of the gradient along a direction, by central differences of the gradient."""
        types = [type for _, type, _ in function.parameters]
        derivative = lg.fwd_diff(lg.bwd_diff(self.names[name]))
        both = derivative(*self.pairs(function, values, along), lg.pair(1.0, 0.0))

        def gradients(step: float) -> list[Any]:
            at = [self.built(self.names, types, self.moved(function, values, along, s * step)) for s in (-1, 1)]
            return [lg.bwd_diff(self.names[name])(*point, 1.0) for point in at]

        for place, ((_, type, quiet), value) in enumerate(zip(function.parameters, values, strict=True)):
            if quiet or not type.size(value):
                continue

            def difference(step: float, type: Type = type, value: Any = value, place: int = place) -> list[float]:
                low, high = (type.coordinates(value, end[place]) for end in gradients(step))
                return [(b - a) / (2 * step) for a, b in zip(low, high, strict=True)]

            wanted = _reliable(difference, SECOND_TOLERANCE)
            found = type.coordinates(value, both.differential[place])
            if wanted is not None:
                _close(found, wanted, SECOND_TOLERANCE, f"{name}: second order by argument {place}")

    def agree(self, made: Function) -> None:
        """A call of the overloaded function is a call of the overload that fits."""
        values = [type.value(self.random) for _, type, _ in made.parameters]
        given = self.built(self.names, [type for _, type, _ in made.parameters], values)
        chosen, direct = self.names["over"], self.names[made.name]
        if chosen is direct:
            return
        assert chosen(*given) == direct(*given), f"{made.name}: another overload is called"
        ways = [lg.bwd_diff(function)(*given, 1.0) for function in (chosen, direct)]
        rows = [
            [
                type.coordinates(value, own)
                for (_, type, _), value, own in zip(made.parameters, values, way, strict=True)
            ]
            for way in ways
        ]
        assert rows[0] == rows[1], f"{made.name}: another overload is differentiated"


def _reliable(difference: Callable[[float], list[float]], tolerance: float) -> list[float] | None:
    """Central differences, if another step gives the same; None where the function is too steep for them."""
    found, finer = difference(STEP), difference(STEP / 4)
    same = all(abs(a - b) <= 0.5 * tolerance * (1 + abs(a) + abs(b)) for a, b in zip(found, finer, strict=True))
    return found if same else None


def _flat(value: Any) -> list[float]:
    if isinstance(value, dict):
        return [part for item in value.values() for part in _flat(item)]
    if isinstance(value, list | tuple):
        return [part for item in value for part in _flat(item)]
    return [] if value is None else [float(value)]


def _close(found: Sequence[float], wanted: Sequence[float], tolerance: float, what: str) -> None:
    assert len(found) == len(wanted), f"{what}: {found}, right {wanted}"
    for a, b in zip(found, wanted, strict=True):
        # Infinities are equal or not: their difference is no number.
        assert a == b or abs(a - b) <= tolerance * (1 + abs(a) + abs(b)), f"{what}: {found}, right {wanted}"
