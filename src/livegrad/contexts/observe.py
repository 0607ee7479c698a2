"""Observes evaluation: events, counts and times per node, and why a node was last computed.

Evaluation reports here; `Program.events`, `Program.report` and `Program.why` read it.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from livegrad.contexts.cache.describe import short_text
from livegrad.contexts.cache.interned_values import ABSENT, Fact
from livegrad.contexts.cache.store import MemoStore, Table
from livegrad.contexts.link import Environment, Unit
from livegrad.state import renew_lock_after_fork

if TYPE_CHECKING:
    from livegrad.contexts.evaluate import Answer

EventKind = Literal["computed", "hit", "reused", "loaded", "evicted"]
_SMALL = 1 << 16  # bytes that are kept for `why` of one computation


@dataclass(frozen=True)
class Event:
    """Something that happened to a node, for these values of its needed features.

    `computed`: its function ran. `hit`: the result was there. `reused`: other features, but the same values went in.
    `loaded`: the result was on disk. `evicted`: a result was dropped.
    """

    kind: EventKind
    node: str
    features: tuple[tuple[str, Any], ...] = ()

    def __str__(self) -> str:
        told = ", ".join(f"{name}={short_text(value)}" for name, value in self.features)
        return f"{self.kind} {self.node}" + (f" [{told}]" if told else "")


class EventLog(list[Event]):
    """Events in order; `str` has one a line, `names(kind)` the nodes of one kind.

    >>> log = EventLog([Event("computed", "leaf"), Event("hit", "leaf", (("index", 2),))])
    >>> print(log)
    computed leaf
    hit leaf [index=2]
    >>> log.names("computed")
    ['leaf']
    """

    def __str__(self) -> str:
        return "\n".join(map(str, self))

    def names(self, kind: EventKind) -> list[str]:
        return [event.node for event in self if event.kind == kind]


class _Glimpse:
    """A large value as it is remembered for `why`: by number, and itself only while a cache holds it."""

    __slots__ = ("_fact", "serial")

    def __init__(self, fact: Fact) -> None:
        self.serial = fact.serial
        self._fact = weakref.ref(fact)

    def __str__(self) -> str:
        fact = self._fact()
        return "(no longer kept)" if fact is None else _text(fact)


_Remembered = Fact | _Glimpse


def _remember(facts: Environment) -> tuple[_Remembered, ...]:
    """Facts as they are while they are small together, which costs nothing; else what can be known of them later."""
    if sum(map(_size, facts)) <= _SMALL:
        return facts
    return tuple([_Glimpse(fact) for fact in facts])


_size = attrgetter("size")


def _text(value: _Remembered | None) -> str:
    if isinstance(value, Fact):
        return "absent" if value is ABSENT else short_text(value.value)
    return "not needed" if value is None else str(value)


class _Computation(NamedTuple):
    """One computation of a node: what it is, and all that went into it."""

    unit: Unit
    env: tuple[_Remembered, ...]
    inputs: tuple[_Remembered, ...]
    answers: tuple[_Remembered, ...]

    @property
    def features(self) -> dict[str, _Remembered]:
        return {str(feature): fact for feature, fact in zip(self.unit.need, self.env, strict=True)}


@dataclass(frozen=True)
class Change:
    """One cause: a `feature`, `input`, `scoped input` or `edit`, with what it was and what it is."""

    kind: Literal["feature", "input", "scoped input", "edit"]
    name: str
    old: str
    new: str

    def __str__(self) -> str:
        return f"{self.kind} `{self.name}`: {self.old} → {self.new}"


@dataclass(frozen=True)
class Reason:
    """Why a node was computed last; `changes` are the causes, `summary` says it when there are none.

    >>> print(Reason("page", "was computed again because of", (Change("feature", "real_time", "1.0", "2.0"),)))
    `page` was computed again because of
      feature `real_time`: 1.0 → 2.0
    """

    node: str
    summary: str
    changes: tuple[Change, ...] = ()
    through: tuple[Change, ...] = field(default=())  # features that changed below the inputs

    def __str__(self) -> str:
        lines = [f"`{self.node}` {self.summary}", *[f"  {change}" for change in self.changes]]
        lines += [f"  below its inputs, {change}" for change in self.through]
        return "\n".join(lines)


class Observer:
    """What is known about the evaluations of one program. `log` is None while nobody listens."""

    def __init__(self, store: MemoStore, tell_programs: weakref.WeakMethod[Callable[[], None]]) -> None:
        self.log: EventLog | None = None
        self._tell_programs = tell_programs
        store.on_evict = self._evicted
        self._lock = threading.RLock()
        renew_lock_after_fork(self, "_lock", threading.RLock)
        self._latest: dict[str, tuple[_Computation, _Computation | None]] = {}  # and the one before

    @contextmanager
    def listening(self) -> Iterator[EventLog]:
        before, self.log = self.log, EventLog()
        tell_programs = self._tell_programs()
        if tell_programs is not None:
            tell_programs()
        try:
            yield self.log
        finally:
            self.log = before

    def happened(self, kind: EventKind, unit: Unit, env: Environment) -> None:
        log = self.log
        if log is not None:
            names = [(str(f), fact.value) for f, fact in zip(unit.need, env, strict=True) if fact is not ABSENT]
            log.append(Event(kind, unit.name, tuple(names)))

    def _evicted(self, table: Table) -> None:
        if self.log is not None:
            self.log.append(Event("evicted", table.name))

    def counted(self, kind: Literal["reused", "loaded"], unit: Unit, env: Environment) -> None:
        counts = unit.table.counts
        with self._lock:
            setattr(counts, kind, getattr(counts, kind) + 1)
        self.happened(kind, unit, env)

    def computed(
        self, unit: Unit, env: Environment, inputs: Environment, answers: Sequence[Answer], seconds: float
    ) -> None:
        told = tuple([answer.fact for answer in answers])
        record = _Computation(unit, _remember(env), _remember(inputs), _remember(told))
        with self._lock:
            counts = unit.table.counts
            counts.computed += 1
            counts.seconds += seconds
            known = self._latest.get(unit.name)
            self._latest[unit.name] = record, None if known is None else known[0]
        self.happened("computed", unit, env)

    def why(self, unit: Unit) -> Reason:
        """Compares the last computation of a node with the one before it."""
        latest, before = self._latest.get(unit.name, (None, None))
        if latest is None:
            return Reason(unit.name, "has not been computed")
        if before is None:
            return Reason(unit.name, "was computed for the first time")
        edits = tuple(_edits(before.unit, latest.unit))
        direct = set(latest.unit.reads)
        features = _feature_changes(before, latest)
        changes = (*edits, *[c for c in features if c.name in direct], *_input_changes(before, latest))
        through = tuple([change for change in features if change.name not in direct])
        if not changes and not through:
            return Reason(unit.name, "was computed again: its result had been dropped from the cache")
        return Reason(unit.name, "was computed again because of", changes, through)


def _edits(old: Unit, new: Unit) -> Iterator[Change]:
    before, after = old.declaration, new.declaration
    if old.by_inputs is not new.by_inputs and before.function is not after.function:
        yield Change("edit", "function", _named(before), _named(after))
    sources = [", ".join(edge.source for edge in each.inputs) for each in (before, after)]
    if sources[0] != sources[1]:
        yield Change("edit", "inputs", sources[0] or "none", sources[1] or "none")
    features = [_declared(each) for each in (before, after)]
    if features[0] != features[1]:
        yield Change("edit", "features", features[0], features[1])


def _named(declaration: Any) -> str:
    place = "" if declaration.origin is None else f" ({declaration.origin})"
    return f"{short_text(declaration.function)}{place}"


def _declared(declaration: Any) -> str:
    groups = {
        "extract": map(str, declaration.extracts),
        "optional": map(str, declaration.optional),
        "inject": declaration.injects,
        "modify": declaration.modifies,
    }
    told = [f"{kind} {' '.join(sorted(names))}" for kind, names in groups.items()]
    return ", ".join(text for text in told if not text.endswith(" ")) or "none"


def _feature_changes(before: _Computation, latest: _Computation) -> list[Change]:
    olds, news = before.features, latest.features
    return [
        Change("feature", name, _text(old), _text(new))
        for name in dict.fromkeys([*olds, *news])
        if _differ(old := olds.get(name), new := news.get(name))
    ]


def _differ(old: _Remembered | None, new: _Remembered | None) -> bool:
    return (old and old.serial) != (new and new.serial)


def _input_changes(before: _Computation, latest: _Computation) -> Iterator[Change]:
    plain = [edge.source for edge in latest.unit.declaration.inputs if not edge.scoped]
    if len(before.inputs) == len(latest.inputs):
        for name, old, new in zip(plain, before.inputs, latest.inputs, strict=True):
            if _differ(old, new):
                yield Change("input", name, _text(old), _text(new))
    scoped = ", ".join(edge.source for edge in latest.unit.declaration.inputs if edge.scoped)
    for old, new in zip(before.answers, latest.answers, strict=False):
        if _differ(old, new):
            yield Change("scoped input", scoped, _text(old), _text(new))
            return
    if len(before.answers) != len(latest.answers):
        yield Change("scoped input", scoped, f"{len(before.answers)} answers", f"{len(latest.answers)} answers")
