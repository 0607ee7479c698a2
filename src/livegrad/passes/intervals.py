"""Intervals of the interval arithmetic: bounds of values as nodes, and the operations that rules share."""

from __future__ import annotations

import math
from dataclasses import dataclass

from livegrad import ops
from livegrad.diagnostics import CompileError
from livegrad.ir.node import Node
from livegrad.ir.types import Array, Struct, Tuple, Type, bool_, components, scalar_of
from livegrad.ops.rules import filled


@dataclass(frozen=True)
class Interval:
    """The bounds of a value. For a condition, `low` is whether it must hold, and `high` whether it can.

    Some properties hold for all boxes: the bounds of an `unbounded` value may be infinite or NaN, and a `nonnegative`
    value is never less than zero.
    """

    low: Node
    high: Node
    unbounded: bool = False
    nonnegative: bool = False

    @property
    def is_point(self) -> bool:
        """Whether both bounds are the same node."""
        return self.low is self.high

    @property
    def ends(self) -> tuple[Node, ...]:
        """The distinct bounds: one for a point."""
        return (self.low,) if self.is_point else (self.low, self.high)


def entire_interval(type: Type) -> Interval:
    """The interval of all values of a type."""
    scalar = scalar_of(type)
    if scalar is None:
        if not isinstance(type, Tuple | Struct | Array):
            raise CompileError(f"interval arithmetic has no bounds for values of type {type}")
        inner = [entire_interval(member) for member in components(type)]
        low, high = (ops.make(*[getattr(i, side) for i in inner], type=type) for side in ("low", "high"))
        return Interval(low, high, unbounded=True)
    if scalar is bool_:
        return Interval(filled(False, type), filled(True, type))
    if scalar.kind in ("signed", "unsigned"):
        smallest = -(1 << (scalar.bits - 1)) if scalar.kind == "signed" else 0
        largest = (1 << (scalar.bits - (scalar.kind == "signed"))) - 1
        return Interval(filled(smallest, type), filled(largest, type))
    return Interval(filled(-math.inf, type), filled(math.inf, type), unbounded=True)


def hull(*intervals: Interval) -> Interval:
    """The smallest interval that contains all of these."""
    low, high = intervals[0].low, intervals[0].high
    unbounded = any(interval.unbounded for interval in intervals)
    smaller, larger = (ops.minimum, ops.maximum) if unbounded else (ops.min, ops.max)
    for interval in intervals[1:]:
        low, high = smaller(low, interval.low), larger(high, interval.high)
    return Interval(low, high, unbounded)


def entire_where(condition: Node, interval: Interval) -> Interval:
    """The interval of all values where the condition holds, else this interval."""
    whole = entire_interval(interval.low.type)
    low = ops.select(condition, whole.low, interval.low)
    return Interval(low, ops.select(condition, whole.high, interval.high), unbounded=True)


def widen(interval: Interval, error: float) -> Interval:
    """Widens an interval by a relative error of its ends."""
    low, high = interval.low, interval.high
    return Interval(low - ops.abs(low) * error, high + ops.abs(high) * error)


def contains(interval: Interval, value: float) -> Node:
    """Whether an interval contains a constant."""
    return (interval.low <= value) & (interval.high >= value)
