"""What was compiled for symbolic sizes, for one signature: finds what fits the sizes of a call, or has it made.

`jit`, compiled functions of symbolic sizes and lazy graphs describe a signature by the vector of all its sizes. The
first vector is compiled as it is. From the second on, the sizes that differ are symbols, equal ones the same symbol.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from livegrad.ir.size_guards import SizeGuards, is_recording

T = TypeVar("T")
Vector = tuple[int, ...]

_MOST_SEEN = 8  # vectors by which sizes are told apart
_MOST_TEMPLATES = 32
_MOST_FAILURES = 4  # in a row


@dataclass(frozen=True)
class Template(Generic[T]):
    """Something compiled for symbolic sizes: which positions of a vector each symbol has, and the numbers elsewhere."""

    positions: tuple[tuple[int, ...], ...]
    fixed: tuple[tuple[int, int], ...]
    guards: SizeGuards
    payload: T

    def sizes_from(self, vector: Vector) -> list[int] | None:
        """The sizes of the symbols if this was compiled for such a vector, else None."""
        for position, size in self.fixed:
            if vector[position] != size:
                return None
        sizes = []
        for positions in self.positions:
            size = vector[positions[0]]
            for position in positions[1:]:
                if vector[position] != size:
                    return None
            sizes.append(size)
        return sizes if self.guards.fits(sizes) else None


class SizeTemplates(Generic[T]):
    """The templates of one signature. Callers hold a lock."""

    def __init__(self) -> None:
        self._recent: list[Vector] = []
        self.templates: list[Template[T]] = []
        self.failures: list[str] = []  # why sizes became no symbols, in words
        self._failed_in_a_row = 0

    def drop_unless(self, holds: Callable[[T], bool]) -> None:
        """Drops the templates for which something does not hold any more."""
        self.templates = [template for template in self.templates if holds(template.payload)]

    def find(self, vector: Vector) -> tuple[Template[T], list[int]] | None:
        """A template for a vector, and the sizes of its symbols."""
        for template in self.templates:
            sizes = template.sizes_from(vector)
            if sizes is not None:
                return template, sizes
        return None

    def make(
        self, vector: Vector, build: Callable[[SizeGuards, Sequence[Any]], T]
    ) -> tuple[Template[T], list[int]] | None:
        """A new template for a vector, if sizes changed and it can be made; else None: it is compiled as it is.

        `build` gets the guards, which record, and the vector with symbols.
        """
        others = [other for other in self._recent if other != vector]
        if vector not in self._recent:
            self._recent = [*self._recent[-_MOST_SEEN + 1 :], vector]
        if not others or is_recording() or self._gave_up:
            return None
        groups = _equal_positions([*others, vector])
        sizes = [vector[positions[0]] for positions in groups]
        if min(sizes, default=0) < 2:
            return None
        template, retry = self._build(vector, groups, sizes, build)
        if template is None and retry:
            template, _ = self._build(vector, groups, _other_hints(sizes, vector), build)
        if template is None:
            self._failed_in_a_row += 1
            return None
        self._failed_in_a_row = 0
        if template.guards.fits(sizes):
            self.templates.append(template)
            return template, sizes
        if not any(t.positions == template.positions and t.guards.fits(template.guards.hints) for t in self.templates):
            self.templates.append(template)  # for other sizes: these are compiled as they are
        return None

    @property
    def _gave_up(self) -> bool:
        return self._failed_in_a_row >= _MOST_FAILURES or len(self.templates) >= _MOST_TEMPLATES

    def _build(
        self,
        vector: Vector,
        groups: Sequence[tuple[int, ...]],
        hints: Sequence[int],
        build: Callable[[SizeGuards, Sequence[Any]], T],
    ) -> tuple[Template[T] | None, bool]:
        """A template for these hints; or None, and whether others may do."""
        guards = SizeGuards(hints)
        mixed: list[Any] = list(vector)
        with guards.recording() as symbols:
            for symbol, positions in zip(symbols, groups, strict=True):
                for position in positions:
                    mixed[position] = symbol
            try:
                payload = build(guards, mixed)
            except Exception as error:  # of whatever kind: compiled as it is, it fails again where it is at fault
                self.failures.append(f"{type(error).__name__}: {error}")
                return None, False
        if guards.is_pinned:
            self.failures.append(f"it has to be a number at {guards.pinned_at[0]}")
            return None, not guards.has_converted
        varying = {position for positions in groups for position in positions}
        fixed = tuple([(position, size) for position, size in enumerate(vector) if position not in varying])
        return Template(tuple(groups), fixed, guards, payload), False


def _equal_positions(vectors: Sequence[Vector]) -> list[tuple[int, ...]]:
    """The positions at which vectors differ, those together that are equal in all of them."""
    groups: dict[tuple[int, ...], list[int]] = {}
    for position, column in enumerate(zip(*vectors, strict=True)):
        if len(set(column)) > 1:
            groups.setdefault(column, []).append(position)
    return [tuple(positions) for positions in groups.values()]


def _other_hints(sizes: Sequence[int], vector: Vector) -> list[int]:
    """Numbers close to these sizes that no other size equals: a comparison by chance pins a symbol."""
    taken, hints = set(vector), []
    for size in sizes:
        hint = size + 1
        while hint in taken or hint % 2 == 0 or hint % 3 == 0:
            hint += 1
        taken.add(hint)
        hints.append(hint)
    return hints
