"""Dual numbers: an oracle for derivatives that shares nothing with ours; plain Python computes with them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any


@dataclass
class Dual:
    """A number with its derivative along one direction, for plain Python to compute with."""

    value: float
    slope: float

    @staticmethod
    def of(x: Any) -> Dual:
        return x if isinstance(x, Dual) else Dual(float(x), 0.0)

    def __add__(self, other: Any) -> Dual:
        o = Dual.of(other)
        return Dual(self.value + o.value, self.slope + o.slope)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Dual:
        o = Dual.of(other)
        return Dual(self.value - o.value, self.slope - o.slope)

    def __rsub__(self, other: Any) -> Dual:
        return Dual.of(other) - self

    def __mul__(self, other: Any) -> Dual:
        o = Dual.of(other)
        return Dual(self.value * o.value, self.slope * o.value + self.value * o.slope)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Dual:
        o = Dual.of(other)
        return Dual(self.value / o.value, (self.slope * o.value - self.value * o.slope) / (o.value * o.value))

    def __rtruediv__(self, other: Any) -> Dual:
        return Dual.of(other) / self

    def __neg__(self) -> Dual:
        return Dual(-self.value, -self.slope)

    def __abs__(self) -> Dual:
        return -self if self.value < 0.0 else self

    def __lt__(self, other: Any) -> bool:
        return self.value < Dual.of(other).value

    def __gt__(self, other: Any) -> bool:
        return self.value > Dual.of(other).value

    def __ge__(self, other: Any) -> bool:
        return self.value >= Dual.of(other).value

    def __le__(self, other: Any) -> bool:
        return self.value <= Dual.of(other).value


def dual_sin(x: Any) -> Dual:
    d = Dual.of(x)
    return Dual(math.sin(d.value), math.cos(d.value) * d.slope)


def dual_tanh(x: Any) -> Dual:
    d = Dual.of(x)
    t = math.tanh(d.value)
    return Dual(t, (1.0 - t * t) * d.slope)


def dual_max(x: Any, y: Any) -> Dual:
    """The larger; of two that are equal, half of each slope, as docs/derivatives.md says."""
    one, two = Dual.of(x), Dual.of(y)
    if one.value == two.value:
        return Dual(one.value, (one.slope + two.slope) / 2)
    return one if one.value > two.value else two


def dual_min(x: Any, y: Any) -> Dual:
    return -dual_max(-Dual.of(x), -Dual.of(y))
