"""Decimal rounding as ops: `round(x, digits)` with exactly CPython's results. Called by `intrinsics`.

CPython rounds the exact decimal value of a float. `round(x * 100) / 100` rounds the product first, which may create a
tie: it would round 1.115 to 1.12, although the float 1.115 is slightly less than the decimal 1.115.
"""

from __future__ import annotations

from livegrad.ir.node import Node
from livegrad.ops import elementwise

LARGEST_POWER = 18  # the largest power of ten in an int64 is 10 ** 18
MOST_DIGITS = 22  # 10 ** 22 is the largest power of ten that a float64 holds exactly
_SPLIT = float((1 << 27) + 1)  # Veltkamp's constant: it splits 53 bits into two halves
_WHOLE = 2.0**53  # a scaled value of at least this size is an integer, so the float has no further digits


def round_float(x: Node, digits: int) -> Node:
    """A float64 rounded to `digits` decimal places, ties to even."""
    scale = 10.0**digits
    scaled = x * scale
    error = _product_error(x, scale, scaled)
    nearest = elementwise.round(scaled)
    remainder = scaled - nearest
    above = elementwise.select(
        (remainder >= 0.5) & (error > 0.0), nearest + 1.0, nearest
    )  # the exact product is no tie
    rounded = elementwise.select((remainder <= -0.5) & (error < 0.0), nearest - 1.0, above)
    return elementwise.select(elementwise.abs(scaled) < _WHOLE, rounded / scale, x)


def _product_error(x: Node, scale: float, product: Node) -> Node:
    """x * scale - product, exactly (Dekker). Products of halves are exact, so contraction to FMA changes nothing."""
    x_high, x_low = _halves(x)
    wide = _SPLIT * scale
    high = wide - (wide - scale)
    low = scale - high
    remainder = ((product - x_high * high) - x_low * high) - x_high * low
    return x_low * low - remainder


def _halves(x: Node) -> tuple[Node, Node]:
    wide = x * _SPLIT
    high = wide - (wide - x)
    return high, x - high


def round_integer(x: Node, digits: int) -> Node:
    """An integer rounded to a multiple of 10 ** -digits, ties to even; unchanged if digits >= 0."""
    if digits >= 0:
        return x
    scale = 10**-digits
    lower = x // scale
    twice = (x - lower * scale) * 2
    up = (twice > scale) | ((twice >= scale) & (lower % 2 > 0))
    return elementwise.select(up, lower + 1, lower) * scale
