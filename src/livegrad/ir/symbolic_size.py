"""Symbolic sizes: integers with an example value and a polynomial, which record each comparison as a guard.

A `SymbolicSize` passes for an `int`. It has a value for one example of the argument sizes (its hint) and a polynomial
for all others. A comparison has the result for the hint and adds a guard (`size_guards.py`), so code traced with
symbolic sizes is valid for all sizes that satisfy the guards. Converting one to a machine integer (`range`, an index,
text) pins it: a guard requires that it equals its hint.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable
from dataclasses import fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any

from livegrad.ir.polynomial import (
    Terms,
    add_terms,
    constant_terms,
    divide_terms,
    evaluate_terms,
    multiply_terms,
    split_constant,
)
from livegrad.ir.symbolic_real import SymbolicReal

if TYPE_CHECKING:
    from livegrad.ir.size_guards import SizeGuards


class SymbolicSize:
    """An integer for one example of the argument sizes, with the polynomial that computes it for others."""

    __slots__ = ("guards", "hint", "terms")
    __array_ufunc__ = None  # NumPy's integers leave arithmetic to this class

    def __init__(self, guards: SizeGuards, terms: Terms, hint: int) -> None:
        self.guards, self.terms, self.hint = guards, terms, hint

    @property
    def __class__(self) -> type:  # type: ignore[override]
        """`int`, so that `isinstance` accepts it. Native code calls `__index__` for the value."""
        return int

    def _with_terms(self, terms: Terms, hint: int) -> Any:
        varying, constant = split_constant(terms)
        return SymbolicSize(self.guards, terms, hint) if varying else constant

    def _parts(self, other: Any) -> tuple[Terms, int] | None:
        """The polynomial and hint of another integer; None if `other` is not an integer."""
        if type(other) is SymbolicSize:
            if other.guards is self.guards:
                return other.terms, other.hint
            number = other.__index__()
            return constant_terms(number), number
        if isinstance(other, int) or hasattr(type(other), "__index__"):
            number = int(other)
            return constant_terms(number), number
        return None

    # --- arithmetic ---

    def __add__(self, other: Any) -> Any:
        parts = self._parts(other)
        if parts is None:
            return SymbolicReal(self) + other if isinstance(other, float) else NotImplemented
        return self._with_terms(add_terms(self.terms, parts[0]), self.hint + parts[1])

    __radd__ = __add__

    def __neg__(self) -> Any:
        return self._with_terms(multiply_terms(self.terms, constant_terms(-1)), -self.hint)

    def __sub__(self, other: Any) -> Any:
        parts = self._parts(other)
        if parts is None:
            return SymbolicReal(self) - other if isinstance(other, float) else NotImplemented
        return self._with_terms(
            add_terms(self.terms, multiply_terms(parts[0], constant_terms(-1))), self.hint - parts[1]
        )

    def __rsub__(self, other: Any) -> Any:
        return -self + other

    def __mul__(self, other: Any) -> Any:
        parts = self._parts(other)
        if parts is None:
            if isinstance(other, float):
                return SymbolicReal(self) * other
            if isinstance(other, str | bytes | list | tuple):
                return other * self.__index__()
            return NotImplemented
        return self._with_terms(multiply_terms(self.terms, parts[0]), self.hint * parts[1])

    __rmul__ = __mul__

    def __pow__(self, other: Any, modulus: Any = None) -> Any:
        if modulus is None and type(other) is int and 0 <= other <= 4:
            result: Any = 1
            for _ in range(other):
                result = self * result
            return result
        return self.__index__() ** other

    def __rpow__(self, other: Any) -> Any:
        return other ** self.__index__()

    def __floordiv__(self, other: Any) -> Any:
        parts = self._parts(other)
        if parts is None:
            return NotImplemented
        return _floor_quotient(self.guards, (self.terms, self.hint), parts)

    def __rfloordiv__(self, other: Any) -> Any:
        parts = self._parts(other)
        if parts is None:
            return NotImplemented
        return _floor_quotient(self.guards, parts, (self.terms, self.hint))

    def __mod__(self, other: Any) -> Any:
        return self - (self // other) * other if self._parts(other) is not None else NotImplemented

    def __rmod__(self, other: Any) -> Any:
        return other - (other // self) * self if self._parts(other) is not None else NotImplemented

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> Any:
        return other // self, other % self

    def __truediv__(self, other: Any) -> Any:
        return SymbolicReal(self) / other

    def __rtruediv__(self, other: Any) -> Any:
        return SymbolicReal.of(other) / self

    def __abs__(self) -> Any:
        return self if self >= 0 else -self

    def __pos__(self) -> Any:
        return self

    def __trunc__(self) -> Any:
        return self

    __floor__ = __ceil__ = __trunc__

    def __lshift__(self, other: Any) -> Any:
        return self * (1 << int(other))

    def __rshift__(self, other: Any) -> Any:
        return self // (1 << int(other))

    # --- decisions ---

    def _compare(self, other: Any, relation: str, swapped: bool = False) -> Any:
        """Compares `self - other`, or `other - self` if `swapped`, with zero."""
        parts = self._parts(other)
        if parts is None:
            return NotImplemented
        difference = self - other if not swapped else -(self - other)
        if type(difference) is not SymbolicSize:
            return difference <= 0 if relation == "<=" else difference == 0
        return self.guards.compare(difference.terms, difference.hint, relation)

    def __eq__(self, other: object) -> Any:
        if type(other) is SymbolicSize and other.guards is not self.guards:
            return False  # it belongs to another trace
        if isinstance(other, float):
            return other.is_integer() and self == int(other)
        return self._compare(other, "==")

    def __ne__(self, other: object) -> Any:
        equal = self.__eq__(other)
        return equal if equal is NotImplemented else not equal

    def __hash__(self) -> int:
        # Not the hash of the hint: as a key of interned types and nodes, a symbolic size differs from every integer.
        return hash((SymbolicSize, id(self.guards), self.terms))

    def __le__(self, other: Any) -> Any:
        if isinstance(other, float):
            return other > 0 if math.isinf(other) else self <= math.floor(other)
        return self._compare(other, "<=")

    def __ge__(self, other: Any) -> Any:
        if isinstance(other, float):
            return other < 0 if math.isinf(other) else self >= math.ceil(other)
        return self._compare(other, "<=", swapped=True)

    def __lt__(self, other: Any) -> Any:
        at_least = self >= other
        return at_least if at_least is NotImplemented else not at_least

    def __gt__(self, other: Any) -> Any:
        at_most = self <= other
        return at_most if at_most is NotImplemented else not at_most

    def __bool__(self) -> bool:
        return bool(self != 0)

    # --- conversions to machine integers, which pin the size ---

    def __index__(self) -> int:
        return self.guards.pin(self)

    __int__ = __index__

    def __float__(self) -> float:
        return float(self.guards.pin(self))

    def __and__(self, other: Any) -> Any:
        return self.__index__() & int(other)

    def __or__(self, other: Any) -> Any:
        return self.__index__() | int(other)

    def __xor__(self, other: Any) -> Any:
        return self.__index__() ^ int(other)

    __rand__, __ror__, __rxor__ = __and__, __or__, __xor__

    def __invert__(self) -> Any:
        return -self - 1

    def __round__(self, digits: int | None = None) -> Any:
        return self if digits is None or digits >= 0 else round(self.__index__(), digits)

    def bit_length(self) -> int:
        """The bit length, found by comparisons, so that the guards admit all sizes with as many bits."""
        bits, size = 0, abs(self)
        while size >= 1 << bits:
            bits += 1
        return bits

    def bit_count(self) -> int:
        return self.__index__().bit_count()

    def is_integer(self) -> bool:
        return True

    @property
    def real(self) -> Any:
        return self

    @property
    def imag(self) -> int:
        return 0

    def __format__(self, specification: str) -> str:
        return format(self.guards.pin(self), specification)

    def __repr__(self) -> str:
        return str(self.guards.pin(self))

    __str__ = __repr__

    def __reduce__(self) -> Any:
        return int, (self.guards.pin(self),)


def _floor_quotient(guards: SizeGuards, numerator: tuple[Terms, int], denominator: tuple[Terms, int]) -> Any:
    """The floor of a quotient: a polynomial where the division is exact, plus a computed atom for the remainder."""
    (terms, hint), (divisor, divisor_hint) = numerator, denominator
    if not divisor_hint:
        raise ZeroDivisionError("integer division or modulo by zero")
    varying, factor = split_constant(divisor)
    if varying:
        guards.compare(
            divisor, divisor_hint, "=="
        )  # a guard against division by zero, even if the polynomials divide exactly
        exact = divide_terms(terms, divisor)
        if exact is not None:
            return _size(guards, exact, hint // divisor_hint)
        return guards.compute(_floor, (_size(guards, terms, hint), SymbolicSize(guards, divisor, divisor_hint)))
    # floor((factor * p + rest) / factor) is p + floor(rest / factor)
    exact_part = tuple([(monomial, c // factor) for monomial, c in terms if monomial and c % factor == 0])
    rest = tuple([(monomial, c) for monomial, c in terms if not (monomial and c % factor == 0)])
    varying_rest, constant = split_constant(rest)
    if not varying_rest:
        return _size(guards, add_terms(exact_part, constant_terms(constant // factor)), hint // factor)
    rest_hint = evaluate_terms(rest, guards._values)
    quotient = guards.compute(_floor, (SymbolicSize(guards, rest, rest_hint), factor))
    return quotient + _size(guards, exact_part, (hint - rest_hint) // factor)


def _floor(numerator: int, denominator: int) -> int:
    return numerator // denominator if denominator else 0  # a guard excludes zero


def _size(guards: SizeGuards, terms: Terms, hint: int) -> Any:
    varying, constant = split_constant(terms)
    return SymbolicSize(guards, terms, hint) if varying else constant


def as_integer(value: Any) -> int:
    """`operator.index`, but symbolic sizes are returned unchanged."""
    return operator.index(value) if type(value) is not SymbolicSize else value  # type: ignore[return-value]


def hint_of(size: Any) -> int:
    """The example value of a size, without a guard: only for choices that are valid for all sizes."""
    return size.hint if type(size) is SymbolicSize else size


def replace_sizes(value: Any, number_of: Callable[[SymbolicSize], int]) -> Any:
    """Replaces symbolic sizes in a value by integers, also inside tuples and dataclasses."""
    if type(value) is SymbolicSize:
        return number_of(value)
    if isinstance(value, tuple):
        members = [replace_sizes(member, number_of) for member in value]
        return type(value)(*members) if hasattr(value, "_fields") else tuple(members)
    if is_dataclass(value) and symbolic_within((value,)) is not None:
        field_values = {part.name: getattr(value, part.name) for part in fields(value)}
        return replace(value, **{name: replace_sizes(part, number_of) for name, part in field_values.items()})  # type: ignore[type-var]
    return value


def symbolic_within(values: Iterable[Any]) -> SymbolicSize | None:
    """The first symbolic size in values, also inside tuples and dataclasses; None if there is none."""
    for value in values:
        kind = type(value)
        if kind is SymbolicSize:
            return value
        if kind is int or kind is float or kind is bool:
            continue
        if isinstance(value, tuple):
            inside = symbolic_within(value)
        elif is_dataclass(value):
            inside = symbolic_within([getattr(value, part.name) for part in fields(value)])
        else:
            continue
        if inside is not None:
            return inside
    return None


def compute_for_sizes(function: Callable[..., Any], *arguments: Any) -> Any:
    """Calls `function(*arguments)`. If an argument is symbolic, the results are recomputed for each set of sizes.

    For choices that need more than integer comparisons: costs, divisors, logarithms. The function returns an integer or
    a tuple of integers, and must accept all sizes from two on.
    """
    size = symbolic_within(arguments)
    return function(*arguments) if size is None else size.guards.compute(function, arguments)
