"""Exact quotients of symbolic sizes, for cost models. Comparisons are exact, so that guards remain polynomials."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any


class SymbolicReal:
    """A quotient of symbolic sizes that passes for a `float` and is compared exactly.

    Its floor and ceiling are sizes again. Converting it to a float pins the sizes.
    """

    __slots__ = ("denominator", "numerator")
    __array_ufunc__ = None
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, numerator: Any, denominator: Any = 1) -> None:
        self.numerator, self.denominator = numerator, denominator

    @staticmethod
    def of(value: Any) -> SymbolicReal:
        """Converts a finite number or a size to a quotient with a positive denominator."""
        if type(value) is SymbolicReal:
            return value
        if isinstance(value, int):  # a symbolic one too
            return SymbolicReal(value)
        exact = Fraction(value)
        return SymbolicReal(exact.numerator, exact.denominator)

    @property
    def __class__(self) -> type:  # type: ignore[override]
        return float

    def __add__(self, other: Any) -> Any:
        other = SymbolicReal.of(other)
        top = self.numerator * other.denominator + other.numerator * self.denominator
        return SymbolicReal(top, self.denominator * other.denominator)

    __radd__ = __add__

    def __neg__(self) -> Any:
        return SymbolicReal(-self.numerator, self.denominator)

    def __sub__(self, other: Any) -> Any:
        return self + -SymbolicReal.of(other)

    def __rsub__(self, other: Any) -> Any:
        return -self + other

    def __mul__(self, other: Any) -> Any:
        other = SymbolicReal.of(other)
        return SymbolicReal(self.numerator * other.numerator, self.denominator * other.denominator)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Any:
        other = SymbolicReal.of(other)
        if other.numerator == 0:
            raise ZeroDivisionError("float division by zero")
        sign = 1 if other.numerator > 0 else -1
        top, bottom = self.numerator * other.denominator, self.denominator * other.numerator
        return SymbolicReal(top * sign, bottom * sign)

    def __rtruediv__(self, other: Any) -> Any:
        return SymbolicReal.of(other) / self

    def _difference(self, other: Any) -> Any:
        """The numerator of `self - other`, which has the sign of the difference."""
        other = SymbolicReal.of(other)
        return self.numerator * other.denominator - other.numerator * self.denominator

    def __eq__(self, other: object) -> Any:
        return False if _is_infinite(other) else self._difference(other) == 0

    def __lt__(self, other: Any) -> Any:
        return other > 0 if _is_infinite(other) else self._difference(other) < 0

    def __le__(self, other: Any) -> Any:
        return other > 0 if _is_infinite(other) else self._difference(other) <= 0

    def __gt__(self, other: Any) -> Any:
        return other < 0 if _is_infinite(other) else self._difference(other) > 0

    def __ge__(self, other: Any) -> Any:
        return other < 0 if _is_infinite(other) else self._difference(other) >= 0

    def __bool__(self) -> bool:
        return self.numerator != 0

    def __abs__(self) -> Any:
        return self if self.numerator >= 0 else -self

    def __floor__(self) -> Any:
        return self.numerator // self.denominator

    def __ceil__(self) -> Any:
        return -(-self.numerator // self.denominator)

    def __trunc__(self) -> Any:
        return self.__floor__() if self.numerator >= 0 else self.__ceil__()

    def __float__(self) -> float:
        return float(int(self.numerator) / int(self.denominator))

    def __int__(self) -> int:
        return int(float(self))

    def is_integer(self) -> bool:
        return float(self).is_integer()

    def __repr__(self) -> str:
        return repr(float(self))

    def __format__(self, specification: str) -> str:
        return format(float(self), specification)


def _is_infinite(value: object) -> bool:
    return type(value) is float and math.isinf(value)
