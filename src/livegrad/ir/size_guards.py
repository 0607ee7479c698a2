"""Records guards for a trace with symbolic sizes: the conditions under which its plan is valid for other sizes.

`SizeGuards` creates the symbols of a trace. Each comparison of symbolic sizes records a bound on a polynomial; sizes
that satisfy all bounds lead to the same decisions, and so to the same plan.
"""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from livegrad.ir.polynomial import Terms, add_terms, constant_terms, evaluate_terms, split_constant
from livegrad.ir.symbolic_size import SymbolicSize, replace_sizes

_MIN_SIZE = 2  # the smallest value of a symbol: axes of size 0 and 1 are special cases almost everywhere


@dataclass
class _Bounds:
    """The bounds on a polynomial without a constant term."""

    low: int | None = None
    high: int | None = None
    excluded: set[int] = field(default_factory=set)

    def admits(self, value: int) -> bool:
        return value not in self.excluded and self.is_in_range(value)

    def is_in_range(self, value: int) -> bool:
        """Whether a value lies between the bounds, excluded or not."""
        return (self.low is None or value >= self.low) and (self.high is None or value <= self.high)


class _Thread(threading.local):
    """The guards that a thread records, for one trace at a time."""

    guards: SizeGuards | None = None


_thread = _Thread()


def is_recording() -> bool:
    """Whether this thread is tracing with symbolic sizes."""
    return _thread.guards is not None


class SizeGuards:
    """The symbols of a trace, computed sizes, and the guards that the trace recorded.

    >>> guards = SizeGuards([10])
    >>> with guards.recording() as (n,):
    ...     n > 4, n * 3 + 1 == 5
    (True, False)
    >>> guards.fits([7]), guards.fits([4])
    (True, False)
    >>> guards.evaluate([7], [(n * 3 + 1).terms, (n // 4).terms])
    [22, 1]
    """

    def __init__(self, hints: Sequence[int]) -> None:
        self._count, self.hints = len(hints), tuple(hints)
        self._values = list(hints)  # the values of all atoms for the hints
        self._computed: list[_ComputedAtom] = []  # the atoms after the symbols
        self._atom_of: dict[tuple[Any, ...], int] = {}
        self._bounds: dict[Terms, _Bounds] = {}
        self._owner: int | None = None
        self.pinned_at: list[
            str
        ] = []  # source lines that fixed a size: by conversion to an int, or by a successful equality test
        self.has_converted = False  # whether a size was converted to an int
        self.symbols = [SymbolicSize(self, (((atom,), 1),), hint) for atom, hint in enumerate(hints)]
        for atom in range(self._count):
            self._bounds[(((atom,), 1),)] = _Bounds(low=_MIN_SIZE)

    @contextmanager
    def recording(self) -> Iterator[list[SymbolicSize]]:
        """Records guards for this thread inside the context; outside, sizes behave like their hints."""
        self._owner, _thread.guards = threading.get_ident(), self
        try:
            yield self.symbols
        finally:
            self._owner = _thread.guards = None

    # --- recording ---

    @property
    def _records(self) -> bool:
        return self._owner == threading.get_ident()  # a background thread that compiles the code must not record

    def compare(self, terms: Terms, value: int, relation: str) -> bool:
        """Compares a polynomial with zero by `relation` (`<=` or `==`) and records a guard.

        `value` is the value of the polynomial for the hints.
        """
        holds = value <= 0 if relation == "<=" else value == 0
        varying, constant = split_constant(terms)
        if not varying or not self._records:
            return holds
        factor = math.gcd(*[coefficient for _, coefficient in varying])
        sign = 1 if varying[0][1] > 0 else -1
        form = tuple([(monomial, sign * coefficient // factor) for monomial, coefficient in varying])
        bounds = self._bounds.setdefault(form, _Bounds())
        # sign * factor * form + constant ? 0
        if relation == "<=":
            upper = (sign > 0) == holds
            if sign > 0:
                limit = -constant // factor  # form <= limit, or form >= limit + 1
            else:
                limit = -(-constant // factor) - 1  # form >= limit + 1, or form <= limit
            if upper:
                bounds.high = limit if bounds.high is None else min(bounds.high, limit)
            else:
                bounds.low = limit + 1 if bounds.low is None else max(bounds.low, limit + 1)
        elif holds:
            bounds.low = bounds.high = -constant * sign // factor
            if len(form) == 1 and len(form[0][0]) == 1 and form[0][0][0] < self._count:
                self.pinned_at.append(_caller_line())
        elif constant % factor == 0:
            bounds.excluded.add(-constant * sign // factor)
        return holds

    def pin(self, size: SymbolicSize) -> int:
        """Returns the hint of a size, with a guard that the size equals it."""
        if self._records:
            self.compare(add_terms(size.terms, constant_terms(-size.hint)), 0, "==")
            self.pinned_at.append(_caller_line())
            self.has_converted = True
        return size.hint

    def compute(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        """Calls a function with the hints. Each integer it returns becomes an atom, recomputed for other sizes."""
        result = function(*replace_sizes(arguments, _hint))
        members = result if isinstance(result, tuple) else (result,)
        sizes = tuple([self._atom(function, arguments, index, member) for index, member in enumerate(members)])
        return sizes if isinstance(result, tuple) else sizes[0]

    def _atom(self, function: Callable[..., Any], arguments: tuple[Any, ...], index: int, value: int) -> SymbolicSize:
        key = (function, arguments, index)
        atom = self._atom_of.get(key)
        if atom is None:
            atom = self._atom_of[key] = len(self._values)
            self._values.append(value)
            self._computed.append(_ComputedAtom(function, arguments, index))
        return SymbolicSize(self, (((atom,), 1),), value)

    # --- other sizes ---

    @property
    def is_pinned(self) -> bool:
        """Whether the guards fix the value of a symbol, which makes a symbolic plan useless."""
        return bool(self.pinned_at)

    def fits(self, sizes: Sequence[int]) -> bool:
        """Whether these sizes satisfy all guards."""
        values = _AtomValues(sizes, self._computed)
        return all(bounds.admits(evaluate_terms(terms, values)) for terms, bounds in self._bounds.items())

    def evaluate(self, sizes: Sequence[int], polynomials: Sequence[Terms]) -> list[int]:
        """The values of polynomials for sizes that satisfy the guards."""
        values = _AtomValues(sizes, self._computed)
        return [evaluate_terms(terms, values) for terms in polynomials]

    def summary(self) -> str:
        """Describes the ranges of the symbols, and counts the other guards."""
        ranges = []
        for atom in range(self._count):
            bounds = self._bounds[(((atom,), 1),)]
            last = "on" if bounds.high is None else f"to {bounds.high}"
            without = sorted(size for size in bounds.excluded if bounds.is_in_range(size))
            ranges.append(f"s{atom} from {bounds.low} {last}{f' without {without}' if without else ''}")
        others = len(self._bounds) - self._count
        return ", ".join(ranges) + (f", and {others} more conditions" if others else "")

    def __str__(self) -> str:
        """The guards as readable text."""
        lines = []
        for terms, bounds in self._bounds.items():
            low = f"{bounds.low} <= " if bounds.low is not None else ""
            high = f" <= {bounds.high}" if bounds.high is not None else ""
            excluded = f", not {sorted(bounds.excluded)}" if bounds.excluded else ""
            lines.append(f"{low}{self.describe(terms)}{high}{excluded}")
        return "\n".join(lines)

    def describe(self, terms: Terms) -> str:
        """A polynomial as readable text; the symbols are s0, s1 and so on."""
        parts = []
        for monomial, coefficient in terms:
            factors = [self._atom_text(atom) for atom in monomial]
            parts.append("*".join([*([str(coefficient)] if coefficient != 1 or not factors else []), *factors]))
        return " + ".join(parts) or "0"

    def _atom_text(self, atom: int) -> str:
        if atom < self._count:
            return f"s{atom}"
        computed = self._computed[atom - self._count]
        arguments = [self.describe(a.terms) if type(a) is SymbolicSize else repr(a) for a in computed.arguments]
        return f"{computed.function.__name__}({', '.join(arguments)})"


@dataclass(frozen=True)
class _ComputedAtom:
    """An integer computed by a function of sizes: the result with this index."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    index: int


def _hint(size: SymbolicSize) -> int:
    return size.hint


class _AtomValues(dict[int, int]):
    """The values of atoms for given sizes, computed on demand."""

    def __init__(self, sizes: Sequence[int], computed: Sequence[_ComputedAtom]) -> None:
        super().__init__(enumerate(sizes))
        self._count, self._computed = len(sizes), computed

    def __missing__(self, atom: int) -> int:
        computed = self._computed[atom - self._count]
        result = computed.function(*replace_sizes(computed.arguments, self._value))
        members = result if isinstance(result, tuple) else (result,)
        for member, value in enumerate(members, atom - computed.index):  # the atoms of one call are consecutive
            self[member] = value
        return self[atom]

    def _value(self, size: SymbolicSize) -> int:
        return evaluate_terms(size.terms, self)


_FILES = {str(Path(__file__)), str(Path(__file__).with_name("symbolic_size.py"))}


def _caller_line() -> str:
    """The innermost source line outside the modules of symbolic sizes."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename in _FILES:
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"
