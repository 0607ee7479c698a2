"""Random captured functions against CPython: values, derivatives by dual numbers, both modes, and their nestings.

What Python would show under a second name is refused (LG106), and nothing else is.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from random import Random
from typing import Any

import numpy as np

import livegrad as lg
from livegrad.frontend.function.captured import Slot
from livegrad.frontend.function.function_types import ArrayType
from livegrad.ir.node import Function
from livegrad.ir.types import f64, i64
from livegrad.passes.differentiate.forward import jvp
from livegrad.passes.differentiate.reverse import vjp
from livegrad.runtime.reference import evaluate
from tests.fuzz.duals import Dual, dual_max, dual_min, dual_sin, dual_tanh
from tests.fuzz.function_programs import Writer

SHORT = 30


@lg.differentiable
class S:
    a: float
    b: float

    @lg.differentiable
    def area(self):
        return self.a * self.b

    @lg.differentiable
    def moved(self, by):
        self.a += by
        return self


@lg.differentiable
class O:  # noqa: E742
    v: S
    k: float


class PlainS:
    def __init__(self, a: Any, b: Any) -> None:
        self.a, self.b = a, b

    def area(self) -> Any:
        return self.a * self.b

    def moved(self, by: Any) -> PlainS:
        self.a += by
        return self

    def copy(self) -> PlainS:
        return PlainS(self.a, self.b)


class PlainO:
    def __init__(self, v: PlainS, k: Any) -> None:
        self.v, self.k = v, k


PLAIN = {"S": PlainS, "O": PlainO, "copy": copy.deepcopy, "unroll": lambda values: values}
PLAIN |= {"differentiable": lambda function: function}
DUAL = {**PLAIN, "sin": dual_sin, "tanh": dual_tanh, "max": dual_max, "min": dual_min}
OURS = {"S": S, "O": O, "copy": lg.copy, "unroll": lg.unroll, "differentiable": lg.differentiable}
OURS |= {"sin": math.sin, "tanh": math.tanh}


def run_one(seed: int) -> Mapping[str, int]:
    """One program at one point."""
    random = Random(seed)
    writer = Writer(random)
    text = writer.program()
    point = _Point(random)
    try:
        return {**writer.counts, **_compare(text, point, random, writer.aliases)}
    except Exception as error:
        raise AssertionError(f"seed {seed}, {point}\n{text}\n{type(error).__name__}: {error}") from error


class _Point:
    """Arguments, and a direction."""

    def __init__(self, random: Random) -> None:
        def number() -> float:
            return round(random.uniform(-1.5, 1.5), 3)

        self.x, self.y, self.n = number(), number(), random.randrange(5)
        self.values = [number() for _ in range(3)]
        self.dx, self.dy, self.dvalues = number(), number(), [number() for _ in range(3)]

    def __str__(self) -> str:
        return f"x={self.x} y={self.y} n={self.n} values={self.values} along {self.dx} {self.dy} {self.dvalues}"

    @property
    def arguments(self) -> tuple[Any, ...]:
        return self.x, self.y, self.n, list(self.values)

    @property
    def along(self) -> tuple[Any, ...]:
        return self.dx, self.dy, (), list(self.dvalues)

    def slope(self, dx: Any, dy: Any, dvalues: Any) -> float:
        """The derivative along the direction, from a gradient."""
        return float(dx * self.dx + dy * self.dy + np.dot(np.asarray(dvalues, float), self.dvalues))


def _compare(text: str, point: _Point, random: Random, aliases: bool) -> dict[str, int]:
    expected = _by_duals(text, point)
    program = lg.run_source(text, dict(OURS))["program"]
    try:
        made = program.specialize((Slot(f64), Slot(f64), Slot(i64), Slot(ArrayType(f64, 3)))).function
    except lg.FunctionError as error:
        if error.code == "LG106" and aliases:
            return {"refused": 1}
        raise
    _close(evaluate(made, *point.arguments), expected.value, "value by the reference")
    forward, backward = jvp(made), vjp(made)
    value, slope = evaluate(forward, *point.arguments, *point.along)
    _close(value, expected.value, "value of the forward derivative")
    _close(slope, expected.slope, "forward derivative")
    dx, dy, _, dvalues = evaluate(backward, *point.arguments, 1.0)
    _close(point.slope(dx, dy, dvalues), expected.slope, "backward derivative")
    counts = {"programs": 1, "with second names": int(aliases)}
    if random.randrange(4) == 0:
        _compare_native(program, point, expected)
        counts["natively"] = 1
    if random.randrange(4) == 0:
        _compare_second_order(forward, backward, point)
        counts["second order"] = 1
    return counts


def _by_duals(text: str, point: _Point) -> Dual:
    names = dict(DUAL)
    exec(compile(text, "<program>", "exec", dont_inherit=True), names)
    values = [Dual(v, d) for v, d in zip(point.values, point.dvalues, strict=True)]
    return Dual.of(names["program"](Dual(point.x, point.dx), Dual(point.y, point.dy), point.n, values))


def _compare_native(program: Any, point: _Point, expected: Dual) -> None:
    _close(program(*point.arguments), expected.value, "native value")
    dx, dy, _, dvalues = lg.bwd_diff(program)(*point.arguments, 1.0)
    _close(point.slope(dx, dy, dvalues), expected.slope, "native backward derivative")


def _compare_second_order(forward: Function, backward: Function, point: _Point) -> None:
    """The second derivative along the direction, from all four nestings."""
    at, along = point.arguments, point.along
    still = (0.0, 0.0, (), [0.0] * 3)
    fr = evaluate(jvp(backward), *at, 1.0, *along, 0.0)[-4:]
    rf = evaluate(vjp(forward), *at, *along, 0.0, 1.0)[:4]
    rr = evaluate(vjp(backward), *at, 1.0, *along)[:4]
    second = {
        "ff": float(evaluate(jvp(forward), *at, *along, *along, *still)[-1]),
        "fr": point.slope(fr[0], fr[1], fr[3]),
        "rf": point.slope(rf[0], rf[1], rf[3]),
        "rr": point.slope(rr[0], rr[1], rr[3]),
    }
    for name, value in second.items():
        _close(value, second["ff"], f"second derivative {name}, of {second}")


def _close(found: Any, expected: float, what: str) -> None:
    size = 1.0 + abs(expected)
    if not abs(float(found) - expected) <= 1e-9 * size:
        raise AssertionError(f"{what}: found {float(found)!r}, expected {expected!r}")
