"""Integers as affine forms of loop indices, and the least and the greatest value that such a form takes.

A symbol is an integer between known numbers. The index of a loop also has an affine bound, its number of iterations:
`for j in range(i)` gives j <= i - 1. Used by the loop pass `eliminate_bounds_checks`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from livegrad.ir.leaves import constant_op
from livegrad.ir.node import Node
from livegrad.ir.types import Scalar, Type, i32, i64

_SYMBOLS_TRIED = 8  # the search for a bound tries two bounds of each symbol


@dataclass(frozen=True, eq=False)
class Symbol:
    """An integer from `low` to `high`; none of the forms in `at_most` is less than it.

    Those forms refer to symbols of lower `depth` only."""

    low: int
    high: int
    depth: int = 0
    at_most: tuple[Affine, ...] = ()


@dataclass(frozen=True)
class Affine:
    """A constant and a sum of symbols, each times its coefficient."""

    constant: int
    terms: tuple[tuple[Symbol, int], ...] = ()

    def plus(self, other: Affine, times: int = 1) -> Affine:
        coefficients = dict(self.terms)
        for symbol, coefficient in other.terms:
            coefficients[symbol] = coefficients.get(symbol, 0) + times * coefficient
        terms = [(symbol, coefficient) for symbol, coefficient in coefficients.items() if coefficient]
        return Affine(self.constant + times * other.constant, tuple(terms))

    def times(self, factor: int) -> Affine:
        return Affine(0).plus(self, factor)

    @property
    def depth(self) -> int:
        return max([symbol.depth for symbol, _ in self.terms], default=0)

    def least(self) -> int:
        """A number that the form is never less than: the greatest that the bounds of its symbols give."""
        if not self.terms:
            return self.constant
        symbol, coefficient = max(self.terms, key=lambda term: term[0].depth)
        bounds = [Affine(symbol.low if coefficient > 0 else symbol.high)]
        if coefficient < 0 and len(self.terms) <= _SYMBOLS_TRIED:
            bounds += symbol.at_most
        rest = self.plus(Affine(0, ((symbol, 1),)), -coefficient)
        return max(rest.plus(bound, coefficient).least() for bound in bounds)

    def greatest(self) -> int:
        return -self.times(-1).least()


def index_below(iterations: Affine) -> Affine:
    """The index of a loop that runs so many times."""
    last = iterations.plus(Affine(-1))
    symbol = Symbol(0, max(0, last.greatest()), last.depth + 1, (last,))
    return Affine(0, ((symbol, 1),))


def between(low: int, high: int, at_most: Sequence[Affine] = ()) -> Affine:
    """An integer of which these bounds are known."""
    if low == high:
        return Affine(low)
    depth = max([form.depth for form in at_most], default=0) + 1
    return Affine(0, ((Symbol(low, high, depth, tuple(at_most)), 1),))


def form_of(node: Node, operands: Sequence[Affine | None]) -> Affine | None:
    """The form of a signed integer from those of its operands; None for other types.

    A form is exact: a value that may overflow is any number of its type."""
    if node.type not in (i32, i64):
        return None
    form = _form(node, operands)
    least, most = _limits(node.type)
    return form if form is not None and least <= form.least() and form.greatest() <= most else any_number(node.type)


def any_number(type: Type) -> Affine | None:
    """The form of an integer of which only the type is known; None for other types."""
    return between(*_limits(type)) if type in (i32, i64) else None


def _limits(type: Type) -> tuple[int, int]:
    assert isinstance(type, Scalar)
    match type.kind:
        case "bool":
            return 0, 1
        case "unsigned":
            return 0, (1 << type.bits) - 1
    return -(1 << type.bits - 1), (1 << type.bits - 1) - 1


def _form(node: Node, operands: Sequence[Affine | None]) -> Affine | None:
    if node.op is constant_op:
        return Affine(node.attribute("value"))
    match node.op.name, operands:
        case "cast", [Affine() as form]:
            return form
        case "cast", [None] if _is_whole(node.operands[0].type):
            return between(*_limits(node.operands[0].type))
        case "neg", [Affine() as form]:
            return form.times(-1)
        case "add", [Affine() as a, Affine() as b]:
            return a.plus(b)
        case "sub", [Affine() as a, Affine() as b]:
            return a.plus(b, -1)
        case "mul", [Affine() as a, Affine() as b]:
            return _product(a, b)
        case "select", [_, Affine() as a, Affine() as b]:
            return between(min(a.least(), b.least()), max(a.greatest(), b.greatest()))
        case (("min" | "minimum"), [Affine() as a, Affine() as b]):
            return between(min(a.least(), b.least()), min(a.greatest(), b.greatest()), (a, b))
        case (("max" | "maximum"), [Affine() as a, Affine() as b]):
            return between(max(a.least(), b.least()), max(a.greatest(), b.greatest()))
        case (("mod" | "floor_div"), [Affine() as form, Affine(constant=divisor, terms=())]) if divisor > 0:
            return _divided(node.op.name, form, divisor)
    return None


def _is_whole(type: Type) -> bool:
    return isinstance(type, Scalar) and type.kind in ("bool", "unsigned", "signed")


def _product(a: Affine, b: Affine) -> Affine:
    if not a.terms or not b.terms:
        return b.times(a.constant) if not a.terms else a.times(b.constant)
    ends = [x * y for x in (a.least(), a.greatest()) for y in (b.least(), b.greatest())]
    return between(min(ends), max(ends))


def _divided(name: str, form: Affine, divisor: int) -> Affine:
    """The quotient or the remainder by a positive number, rounded as Python does."""
    low, high = form.least(), form.greatest()
    at_most = (form,) if low >= 0 else ()
    if name == "floor_div":
        return between(low // divisor, high // divisor, at_most)
    if low // divisor == high // divisor:
        return form.plus(Affine(-(low // divisor) * divisor))
    return between(0, divisor - 1, at_most)
