"""Code compiled for symbolic sizes: finds a template whose guards accept the sizes of a call, or builds a new one.

`jit`, compiled functions of symbolic sizes and lazy graphs describe the sizes of a signature by one vector. The first
vector is compiled for its concrete sizes. From the second vector on, sizes that differ become symbols; sizes that are
always equal share a symbol.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from livegrad.ir.size_guards import SizeGuards, is_recording

T = TypeVar("T")
Vector = tuple[int, ...]

_MAX_RECENT = 8  # vectors that decide which sizes vary
_MAX_TEMPLATES = 32
_MAX_FAILURES = 4  # consecutive


@dataclass(frozen=True)
class Template(Generic[T]):
    """Code compiled for symbolic sizes: the positions of each symbol in a vector, and the constant sizes elsewhere."""

    positions: tuple[tuple[int, ...], ...]
    constant_sizes: tuple[tuple[int, int], ...]
    guards: SizeGuards
    payload: T

    def sizes_from(self, vector: Vector) -> list[int] | None:
        """The sizes of the symbols if the template accepts a vector, else None."""
        for position, size in self.constant_sizes:
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
        self.failures: list[str] = []  # why sizes could not become symbols
        self._consecutive_failures = 0

    def drop_unless(self, condition: Callable[[T], bool]) -> None:
        """Keeps only the templates whose payload satisfies a condition."""
        self.templates = [template for template in self.templates if condition(template.payload)]

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
        """Builds a template for a vector if its sizes vary; None if it must be compiled for its concrete sizes.

        `build` is called with the recording guards and the vector with symbols.
        """
        others = [other for other in self._recent if other != vector]
        if vector not in self._recent:
            self._recent = [*self._recent[-_MAX_RECENT + 1 :], vector]
        if not others or is_recording() or self._is_disabled:
            return None
        groups = _equal_positions([*others, vector])
        sizes = [vector[positions[0]] for positions in groups]
        if min(sizes, default=0) < 2:
            return None
        template, retry = self._build(vector, groups, sizes, build)
        if template is None and retry:
            template, _ = self._build(vector, groups, _other_hints(sizes, vector), build)
        if template is None:
            self._consecutive_failures += 1
            return None
        self._consecutive_failures = 0
        if template.guards.fits(sizes):
            self.templates.append(template)
            return template, sizes
        if not any(t.positions == template.positions and t.guards.fits(template.guards.hints) for t in self.templates):
            self.templates.append(template)  # for other sizes; these are compiled as concrete sizes
        return None

    @property
    def _is_disabled(self) -> bool:
        """Whether building another template is unlikely to pay."""
        return self._consecutive_failures >= _MAX_FAILURES or len(self.templates) >= _MAX_TEMPLATES

    def _build(
        self,
        vector: Vector,
        groups: Sequence[tuple[int, ...]],
        hints: Sequence[int],
        build: Callable[[SizeGuards, Sequence[Any]], T],
    ) -> tuple[Template[T] | None, bool]:
        """Builds a template with these hints; or returns None, and whether other hints may succeed."""
        guards = SizeGuards(hints)
        mixed: list[Any] = list(vector)
        with guards.recording() as symbols:
            for symbol, positions in zip(symbols, groups, strict=True):
                for position in positions:
                    mixed[position] = symbol
            try:
                payload = build(guards, mixed)
            except Exception as error:  # of any kind: an error of the user's code occurs again with concrete sizes
                self.failures.append(f"{type(error).__name__}: {error}")
                return None, False
        if guards.is_pinned:
            self.failures.append(f"a symbolic size is used as a number at {guards.pinned_at[0]}")
            return None, not guards.has_converted
        varying = {position for positions in groups for position in positions}
        constant_sizes = tuple([(position, size) for position, size in enumerate(vector) if position not in varying])
        return Template(tuple(groups), constant_sizes, guards, payload), False


def _equal_positions(vectors: Sequence[Vector]) -> list[tuple[int, ...]]:
    """Groups the positions at which vectors differ: positions that are equal in all vectors form a group."""
    groups: dict[tuple[int, ...], list[int]] = {}
    for position, column in enumerate(zip(*vectors, strict=True)):
        if len(set(column)) > 1:
            groups.setdefault(column, []).append(position)
    return [tuple(positions) for positions in groups.values()]


def _other_hints(sizes: Sequence[int], vector: Vector) -> list[int]:
    """Numbers close to these sizes that equal no other size, because a coincidental equality would pin a symbol."""
    taken, hints = set(vector), []
    for size in sizes:
        hint = size + 1
        while hint in taken or hint % 2 == 0 or hint % 3 == 0:
            hint += 1
        taken.add(hint)
        hints.append(hint)
    return hints
