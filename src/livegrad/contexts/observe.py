"""Records evaluations: events, counts and times per node, and the reason why a node was last computed.

`evaluate.py` calls it; `Program.events`, `Program.report` and `Program.why` read it.
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
from livegrad.contexts.cache.interned_values import ABSENT, Interned
from livegrad.contexts.cache.store import MemoStore, Table
from livegrad.contexts.link import Environment, Unit
from livegrad.state import renew_lock_after_fork

if TYPE_CHECKING:
    from livegrad.contexts.evaluate import Answer

EventKind = Literal["computed", "hit", "reused", "loaded", "evicted"]
_SMALL = 1 << 16  # bytes; `why` holds larger values weakly


@dataclass(frozen=True)
class Event:
    """An event of a node, for these values of its needed features.

    `computed`: its function ran. `hit`: the result was cached. `reused`: features changed, but its direct inputs did
    not. `loaded`: the result was on disk. `evicted`: a result was dropped.
    """

    kind: EventKind
    node: str
    features: tuple[tuple[str, Any], ...] = ()

    def __str__(self) -> str:
        features = ", ".join(f"{name}={short_text(value)}" for name, value in self.features)
        return f"{self.kind} {self.node}" + (f" [{features}]" if features else "")


class EventLog(list[Event]):
    """Events in order. `str` gives one per line, `names(kind)` the nodes with events of one kind.

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


class _WeakValue:
    """A large value in the record of a computation: its serial number, and a weak reference to the cached value."""

    __slots__ = ("_reference", "serial")

    def __init__(self, interned: Interned) -> None:
        self.serial = interned.serial
        self._reference = weakref.ref(interned)

    def __str__(self) -> str:
        interned = self._reference()
        return "(no longer cached)" if interned is None else _text(interned)


_RecordedValue = Interned | _WeakValue


def _record_values(interned_values: Environment) -> tuple[_RecordedValue, ...]:
    """The values themselves if they are small in total, and weak references otherwise."""
    if sum(map(_size, interned_values)) <= _SMALL:
        return interned_values
    return tuple([_WeakValue(interned) for interned in interned_values])


_size = attrgetter("size")


def _text(value: _RecordedValue | None) -> str:
    if isinstance(value, Interned):
        return "absent" if value is ABSENT else short_text(value.value)
    return "not needed" if value is None else str(value)


class _Computation(NamedTuple):
    """One computation of a node: the unit, its features, its inputs, and the answers of its scoped inputs."""

    unit: Unit
    env: tuple[_RecordedValue, ...]
    inputs: tuple[_RecordedValue, ...]
    answers: tuple[_RecordedValue, ...]

    @property
    def features(self) -> dict[str, _RecordedValue]:
        return {str(feature): interned for feature, interned in zip(self.unit.need, self.env, strict=True)}


@dataclass(frozen=True)
class Change:
    """One cause: a `feature`, `input`, `scoped input` or `edit`, with its value before and after."""

    kind: Literal["feature", "input", "scoped input", "edit"]
    name: str
    old: str
    new: str

    def __str__(self) -> str:
        return f"{self.kind} `{self.name}`: {self.old} → {self.new}"


@dataclass(frozen=True)
class Reason:
    """Why a node was last computed. `changes` are the causes; `summary` explains it if there are none.

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
    """Records the evaluations of one graph. `log` is None while there is no listener."""

    def __init__(self, store: MemoStore, notify_programs: weakref.WeakMethod[Callable[[], None]]) -> None:
        self.log: EventLog | None = None
        self._notify_programs = notify_programs
        store.on_evict = self._record_eviction
        self._lock = threading.RLock()
        renew_lock_after_fork(self, "_lock", threading.RLock)
        self._latest: dict[str, tuple[_Computation, _Computation | None]] = {}  # with the previous one

    @contextmanager
    def listen(self) -> Iterator[EventLog]:
        before, self.log = self.log, EventLog()
        notify_programs = self._notify_programs()
        if notify_programs is not None:
            notify_programs()
        try:
            yield self.log
        finally:
            self.log = before

    def record(self, kind: EventKind, unit: Unit, env: Environment) -> None:
        log = self.log
        if log is not None:
            names = [
                (str(f), interned.value) for f, interned in zip(unit.need, env, strict=True) if interned is not ABSENT
            ]
            log.append(Event(kind, unit.name, tuple(names)))

    def _record_eviction(self, table: Table) -> None:
        if self.log is not None:
            self.log.append(Event("evicted", table.name))

    def record_counted(self, kind: Literal["reused", "loaded"], unit: Unit, env: Environment) -> None:
        counts = unit.table.counts
        with self._lock:
            setattr(counts, kind, getattr(counts, kind) + 1)
        self.record(kind, unit, env)

    def record_computation(
        self, unit: Unit, env: Environment, inputs: Environment, answers: Sequence[Answer], seconds: float
    ) -> None:
        answer_values = tuple([answer.interned for answer in answers])
        record = _Computation(unit, _record_values(env), _record_values(inputs), _record_values(answer_values))
        with self._lock:
            counts = unit.table.counts
            counts.computed += 1
            counts.seconds += seconds
            previous = self._latest.get(unit.name)
            self._latest[unit.name] = record, None if previous is None else previous[0]
        self.record("computed", unit, env)

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
        yield Change("edit", "function", _describe_function(before), _describe_function(after))
    sources = [", ".join(edge.source for edge in declaration.inputs) for declaration in (before, after)]
    if sources[0] != sources[1]:
        yield Change("edit", "inputs", sources[0] or "none", sources[1] or "none")
    features = [_describe_features(declaration) for declaration in (before, after)]
    if features[0] != features[1]:
        yield Change("edit", "features", features[0], features[1])


def _describe_function(declaration: Any) -> str:
    location = "" if declaration.origin is None else f" ({declaration.origin})"
    return f"{short_text(declaration.function)}{location}"


def _describe_features(declaration: Any) -> str:
    groups = {
        "extract": map(str, declaration.extracts),
        "optional": map(str, declaration.optional),
        "inject": declaration.injects,
        "modify": declaration.modifies,
    }
    descriptions = [f"{kind} {' '.join(sorted(names))}" for kind, names in groups.items()]
    return ", ".join(text for text in descriptions if not text.endswith(" ")) or "none"


def _feature_changes(before: _Computation, latest: _Computation) -> list[Change]:
    old_features, new_features = before.features, latest.features
    return [
        Change("feature", name, _text(old), _text(new))
        for name in dict.fromkeys([*old_features, *new_features])
        if _differ(old := old_features.get(name), new := new_features.get(name))
    ]


def _differ(old: _RecordedValue | None, new: _RecordedValue | None) -> bool:
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
