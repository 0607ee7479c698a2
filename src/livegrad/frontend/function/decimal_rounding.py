"""`round(x, digits)` in captured functions: what CPython gives, bit for bit, as ops.

`intrinsics.py` calls it. CPython rounds the exact decimal value of a float. `round(x * 100) / 100` does not: the
product is rounded first and may land on a tie, so that 1.115 would become 1.12, although it is less in decimals.
"""

from __future__ import annotations

from livegrad.ir.node import Node
from livegrad.ops import elementwise

LARGEST_POWER = 18  # of ten, in an int64
MOST_DIGITS = 22  # 10 ** 22 is the largest power of ten that a float64 holds exactly
_SPLIT = float((1 << 27) + 1)  # Veltkamp's constant: it splits 53 bits into two halves
_WHOLE = 2.0**53  # from here on, floats are whole numbers of the last digit


def round_float(x: Node, digits: int) -> Node:
    """A float64 rounded to so many digits after the point, ties to even."""
    scale = 10.0**digits
    scaled = x * scale
    error = _product_error(x, scale, scaled)
    nearest = elementwise.round(scaled)
    rest = scaled - nearest
    above = elementwise.select((rest >= 0.5) & (error > 0.0), nearest + 1.0, nearest)  # the exact product is no tie
    rounded = elementwise.select((rest <= -0.5) & (error < 0.0), nearest - 1.0, above)
    return elementwise.select(elementwise.abs(scaled) < _WHOLE, rounded / scale, x)


def _product_error(x: Node, scale: float, product: Node) -> Node:
    """x * scale - product, exactly (Dekker). Products of halves are exact, so that fusing them changes nothing."""
    x_high, x_low = _halves(x)
    wide = _SPLIT * scale
    high = wide - (wide - scale)
    low = scale - high
    rest = ((product - x_high * high) - x_low * high) - x_high * low
    return x_low * low - rest


def _halves(x: Node) -> tuple[Node, Node]:
    wide = x * _SPLIT
    high = wide - (wide - x)
    return high, x - high


def round_integer(x: Node, digits: int) -> Node:
    """An integer rounded to a power of ten, ties to even; unchanged if there are digits after the point."""
    if digits >= 0:
        return x
    scale = 10**-digits
    lower = x // scale
    twice = (x - lower * scale) * 2
    up = (twice > scale) | ((twice >= scale) & (lower % 2 > 0))
    return elementwise.select(up, lower + 1, lower) * scale
