"""Interval bounds contain all values that a function computes inside a box."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import livegrad as lg
from livegrad import ops
from livegrad.ir.types import Vector, f32
from livegrad.passes.bound_intervals import bound_intervals

V = Vector(f32, 3)
UNARY: dict[str, tuple[Callable[..., Any], tuple[float, float]]] = {
    **{
        name: (getattr(ops, name), (-6.0, 6.0))
        for name in (
            "neg",
            "abs",
            "floor",
            "ceil",
            "trunc",
            "round",
            "sign",
            "fract",
            "exp",
            "exp2",
            "sinh",
            "cosh",
            "tanh",
            "atan",
            "cbrt",
            "sin",
            "cos",
            "tan",
        )
    },
    **{name: (getattr(ops, name), (-1.0, 5.0)) for name in ("sqrt", "log", "log2", "log10")},
    **{name: (getattr(ops, name), (-1.2, 1.2)) for name in ("asin", "acos")},
    "square": (lambda x: x * x, (-3.0, 3.0)),
    "cube": (lambda x: ops.pow(x, 3.0), (-3.0, 3.0)),
    "fourth power": (lambda x: ops.pow(x, 4.0), (-3.0, 3.0)),
    "root": (lambda x: ops.pow(x, 0.5), (-1.0, 3.0)),
    "difference with itself": (lambda x: x - x, (-3.0, 3.0)),
    "reciprocal": (lambda x: 1.0 / x, (-2.0, 3.0)),
    "choice": (lambda x: ops.select(x < 0.5, x * 2.0, 3.0 - x), (-3.0, 3.0)),
    "exclusion": (lambda x: ops.select((x < 0.5) & ~(x < -0.5), x, -x), (-3.0, 3.0)),
    "either": (lambda x: ops.select((x >= 2.0) | (x <= -1.0), x, -x), (-3.0, 3.0)),
    "equality": (lambda x: ops.select(ops.equal(ops.floor(x), 1.0), x, -x), (-3.0, 3.0)),
    "undefined": (lambda x: ops.select(ops.is_nan(ops.sqrt(x)), 7.0 + 0.0 * x, ops.sqrt(x)), (-1.0, 3.0)),
    "clamped": (lambda x: ops.clamp(x, 0.0 * x - 1.0, 0.0 * x + 1.0), (-3.0, 3.0)),
    "scaled": (lambda x: x * -2.5 + 1.0, (-3.0, 3.0)),
    "remainder": (lambda x: ops.fmod(x, 1.5), (-5.0, 5.0)),
    "modulo": (lambda x: x - 1.5 * ops.floor(x / 1.5), (-5.0, 5.0)),
}
BINARY: dict[str, Callable[..., Any]] = {
    **{name: getattr(ops, name) for name in ("add", "sub", "mul", "div", "min", "max", "minimum", "maximum", "atan2")},
    "remainder": ops.fmod,
    "power": lambda x, y: ops.pow(ops.abs(x) + 0.1, y),
    "choice": lambda x, y: ops.select(x < y, x - y, x * y),
}


def boxes(generator: np.random.Generator, low: float, high: float, number: int) -> tuple[Any, Any]:
    a, b = generator.uniform(low, high, (2, number))
    small = generator.random(number) < 0.5
    b = np.where(small, a + (b - a) * 1e-3, b)
    return np.minimum(a, b).astype(np.float32), np.maximum(a, b).astype(np.float32)


def require_sound(function: lg.ir.Function, sides: list[tuple[Any, Any]], generator: np.random.Generator) -> None:
    count = len(sides)
    bounds = lg.ir.compile(lg.ir.map_over(bound_intervals(function, (True,) * count)))
    plain = lg.ir.compile(lg.ir.map_over(function))
    low, high = bounds(*[side for pair in sides for side in pair])
    for share in (0.0, 1.0, *generator.random(6)):
        points = [np.clip((a + np.float32(share) * (b - a)).astype(np.float32), a, b) for a, b in sides]
        values = plain(*points)
        inside = ~((values < low) | (values > high))
        assert inside.all(), [(a[~inside][0], b[~inside][0]) for a, b in sides]
        # What may be undefined has no finite bounds.
        assert not (np.isnan(values) & np.isfinite(low) & np.isfinite(high)).any()


@pytest.mark.parametrize("name", UNARY)
def test_bounds_of_one_operand_hold(name: str) -> None:
    rule, (low, high) = UNARY[name]
    generator = np.random.default_rng(len(name))
    require_sound(lg.ir.trace(rule, f32), [boxes(generator, low, high, 4000)], generator)


@pytest.mark.parametrize("name", BINARY)
def test_bounds_of_two_operands_hold(name: str) -> None:
    generator = np.random.default_rng(len(name))
    sides = [boxes(generator, -3.0, 3.0, 4000) for _ in range(2)]
    require_sound(lg.ir.trace(BINARY[name], f32, f32), sides, generator)


UNDEFINED: dict[str, Callable[..., Any]] = {
    "root": ops.sqrt,
    "root below a number": lambda x: ops.min(ops.sqrt(x), 1.0),
    "logarithm": lambda x: ops.minimum(ops.log(x), 0.0),
    "difference of quotients": lambda x: 1.0 / x - 1.0 / x,
    "arc": lambda x: ops.abs(ops.asin(x)),
}


@pytest.mark.parametrize("inner", UNDEFINED)
def test_no_operation_hides_an_undefined_operand(inner: str) -> None:
    """Whether some value is NaN must show in the bounds, however often it was clamped or scaled to a finite range."""
    generator, undefined = np.random.default_rng(len(inner)), UNDEFINED[inner]
    unary = [rule for name, (rule, _) in UNARY.items() if name != "undefined"]  # which tests for NaN itself
    functions = [lambda x, y, f=rule: f(undefined(x)) + y for rule in unary]
    functions += [lambda x, y, f=rule: f(undefined(x), y) for rule in BINARY.values()]
    functions += [lambda x, y, f=rule: f(y, undefined(x)) for rule in BINARY.values()]
    for function in functions:
        sides = [boxes(generator, -2.0, 2.0, 500) for _ in range(2)]
        require_sound(lg.ir.trace(function, f32, f32), sides, generator)


def test_bounds_of_long_formulas_hold_through_calls() -> None:
    inner = lg.ir.trace(lambda p, r: ops.length(p) - r, V, f32)

    def field(x: Any, y: Any, z: Any) -> Any:
        p = ops.make_vector(x, y, z)
        moved = ops.call(p, ops.abs(x), function=inner)
        turned = ops.cross(p, ops.make_vector(y, z, x))
        return ops.min(moved, ops.dot(p, turned) * 0.3 - 1.0) + 0.1 * ops.sin(5.0 * x)

    generator = np.random.default_rng(0)
    require_sound(lg.ir.trace(field, f32, f32, f32), [boxes(generator, -3, 3, 2000) for _ in range(3)], generator)


def test_bounds_are_close_for_small_boxes() -> None:
    function = lg.ir.trace(lambda x, y: ops.sqrt(x * x + y * y) - 1.0, f32, f32)
    bounds = lg.ir.compile(lg.ir.map_over(bound_intervals(function, (True, True))))
    x = np.linspace(-2, 2, 50, dtype=np.float32)
    low, high = bounds(x, x + np.float32(0.01), x, x + np.float32(0.01))
    assert (high - low).max() < 0.03


def test_operands_without_a_range_stay_single() -> None:
    function = lg.ir.trace(lambda x, r: x * r, f32, f32)
    bounds = bound_intervals(function, (True, False))
    assert bounds.parameter_types == (f32, f32, f32)
    low, high = lg.ir.evaluate(bounds, np.float32(1), np.float32(2), np.float32(-3))
    assert (round(float(low), 4), round(float(high), 4)) == (-6.0, -3.0)


def test_what_has_no_rule_is_unbounded() -> None:
    def counted(x: Any) -> Any:
        return ops.make_for_loop(lg.ir.constant(3, lg.i64), lambda index, y: y * x, x)[0]

    low, high = lg.ir.evaluate(bound_intervals(lg.ir.trace(counted, f32), (True,)), np.float32(0), np.float32(1))
    assert (low, high) == (-np.inf, np.inf)
