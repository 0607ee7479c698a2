"""Symbolic dimensions: integer polynomials over named sizes, with exact arithmetic.

A tensor shape consists of integers and dimensions.
"""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral
from typing import Any

import numpy as np

from livegrad.diagnostics import UsageError, caller_origin


class Dimension:
    """A size known only at run time: a polynomial with integer coefficients over named sizes.

    >>> n, m = Dimension.symbol("n"), Dimension.symbol("m")
    >>> (n + 1) * 2, n * m - m * n
    (2*n + 2, 0)
    """

    __slots__ = ("terms",)
    terms: tuple[tuple[tuple[str, ...], int], ...]

    def __init__(self, terms: tuple[tuple[tuple[str, ...], int], ...]) -> None:
        object.__setattr__(self, "terms", terms)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("a Dimension is immutable")

    @staticmethod
    def symbol(name: str) -> Dimension:
        if not name.isidentifier():
            raise UsageError(f"`{name}` cannot name a dimension", expected="an identifier")
        return Dimension((((name,), 1),))

    @property
    def symbols(self) -> frozenset[str]:
        return frozenset(name for names, _ in self.terms for name in names)

    def evaluate(self, sizes: Mapping[str, int]) -> int:
        return sum(coefficient * int(np.prod([sizes[n] for n in names])) for names, coefficient in self.terms)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Dimension) and self.terms == other.terms

    def __hash__(self) -> int:
        return hash(self.terms)

    def __reduce__(self) -> tuple[Any, ...]:
        return Dimension, (self.terms,)

    def __repr__(self) -> str:
        parts = []
        for names, coefficient in self.terms:
            factors = [*([] if abs(coefficient) == 1 and names else [str(abs(coefficient))]), *names]
            sign = "-" if coefficient < 0 else "+"
            parts.append(f" {sign} " + "*".join(factors))
        text = "".join(parts)
        return text[3:] if text.startswith(" + ") else "-" + text[3:]

    def __add__(self, other: int | Dimension) -> int | Dimension:
        return _from_terms([*self.terms, *_terms(other)])

    def __mul__(self, other: int | Dimension) -> int | Dimension:
        return _from_terms([(a + b, x * y) for a, x in self.terms for b, y in _terms(other)])

    def __sub__(self, other: int | Dimension) -> int | Dimension:
        return self + (-1 * other)

    def __rsub__(self, other: int) -> int | Dimension:
        return self * -1 + other

    __radd__ = __add__
    __rmul__ = __mul__


def _terms(value: int | Dimension) -> tuple[tuple[tuple[str, ...], int], ...]:
    if isinstance(value, Dimension):
        return value.terms
    if not isinstance(value, Integral):
        raise UsageError(
            "symbolic sizes can only be combined with integers and other sizes",
            where=caller_origin(),
            found=type(value).__name__,
            help="to use it in tensor code, write lg.sum(lg.ones_like(x)), or make it a separate input",
        )
    return (((), int(value)),)


def _from_terms(terms: list[tuple[tuple[str, ...], int]]) -> int | Dimension:
    total: dict[tuple[str, ...], int] = {}
    for names, coefficient in terms:
        key = tuple(sorted(names))
        total[key] = total.get(key, 0) + coefficient
    nonzero = {names: coefficient for names, coefficient in total.items() if coefficient}
    if not nonzero:
        return 0
    if set(nonzero) == {()}:
        return nonzero[()]
    return Dimension(tuple(sorted(nonzero.items(), key=lambda item: (-len(item[0]), item[0]))))


Size = int | Dimension


def size_product(shape: tuple[Size, ...]) -> Size:
    """The number of elements of a shape.

    >>> size_product((2, Dimension.symbol("n"), 3))
    6*n
    """
    total: Size = 1
    for size in shape:
        total = total * size
    return total


def divide_exactly(size: Size, divisor: Size) -> Size | None:
    """`size / divisor` if it is an integer for all sizes, else None.

    >>> divide_exactly(12, 4), divide_exactly(12, 5)
    (3, None)
    """
    if size == divisor:
        return 1
    if isinstance(size, int) and isinstance(divisor, int):
        return size // divisor if divisor and size % divisor == 0 else None
    numerator, denominator = _terms(size), _terms(divisor)
    if len(denominator) != 1:
        return None
    names, coefficient = denominator[0]
    quotient = []
    for term_names, term_coefficient in numerator:
        rest = list(term_names)
        if coefficient == 0 or term_coefficient % coefficient or any(rest.count(n) < names.count(n) for n in names):
            return None
        for name in names:
            rest.remove(name)
        quotient.append((tuple(rest), term_coefficient // coefficient))
    return _from_terms(quotient)


def round_up(size: int, unit: int) -> int:
    """The least multiple of `unit` that is not below `size`."""
    return -(-size // unit) * unit
