"""The journal of edits since the last frame, from which the engine derives all updates.

It also synchronises threads. Changing or compiling a description requires the journal's lock. Replacing a number by a
number is posted to a mailbox without the lock, so that a slider never waits for a compilation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import count
from threading import RLock
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from livegrad.live.graph.sources import Numbers, Setting, same_value

if TYPE_CHECKING:
    from livegrad.live.graph.block import Block, State
    from livegrad.live.graph.block_graph import Graph

EntryKind = Literal["value", "feature", "rebind", "code", "structure", "state"]


Detail = str | tuple[float, float]  # words, or a number before and after


def words_of(detail: Any) -> str:
    """What to say of an edit; of a number it is put into words only when someone asks.

    >>> words_of((1.0, 2.5)), words_of("new body")
    ('1.0 → 2.5', 'new body')
    """
    return f"{detail[0]!r} → {detail[1]!r}" if isinstance(detail, tuple) else str(detail)


class Entry(NamedTuple):
    """One edit: what kind, of which pin, feature or block, and what to say about it."""

    kind: EntryKind
    subject: Any
    detail: Detail


@dataclass(frozen=True, eq=False)
class StateValue:
    """The value of a state from the next frame on."""

    state: State
    value: Numbers


@dataclass(frozen=True, eq=False)
class StructureChange:
    """Where the structure has changed: blocks that came, went or have other pins, and the graph that they were in.

    With a composite that went come the blocks that were inside of it.
    """

    graph: Graph
    blocks: tuple[Block, ...]


MANY = 256  # fewer edits are not worth merging
_OF_VALUES = ("value", "feature", "rebind", "state")


def merge_entries(entries: list[Entry]) -> list[Entry]:
    """Many edits without those that later ones of the same thing make needless: they say what is to be looked at.

    >>> edits = [Entry("value", "gain", (float(n), n + 1.0)) for n in range(1000)]
    >>> merge_entries(edits)
    [Entry(kind='value', subject='gain', detail=(999.0, 1000.0))]
    """
    last: dict[Any, Entry] = {}
    for place, entry in enumerate(entries):
        subject = entry.subject.state if entry.kind == "state" else entry.subject
        key = (entry.kind, subject) if entry.kind in _OF_VALUES else place
        last.pop(key, None)  # the order is that of the last ones
        last[key] = entry
    return list(last.values())


class Observer(Protocol):
    """Notified of every edit and every frame: a recording."""

    def before_edit(self, edit: str, arguments: tuple[Any, ...]) -> Any:
        """What `after_edit` is to get; raises to refuse the edit."""
        ...

    def after_edit(self, edit: str, graph: Any, arguments: tuple[Any, ...], before: Any) -> None:
        """An edit that has been made, of a graph (None: of the engine or a composite)."""
        ...

    def frame_begins(self) -> None:
        """A frame has taken the edits so far."""
        ...

    def frame_ends(self, frame: Any) -> None:
        """A frame is over, whole."""
        ...


@dataclass(frozen=True, eq=False, slots=True)
class Postbox:
    """Of one graph: what feeds its pins, and what to do with a number for a pin that no float feeds any more."""

    sources: dict[Any, Any]
    give: Callable[[Any, float], None]
    graph: Any = None


@dataclass(eq=False)
class Journal:
    """Edits in order, the lock of the description, and posted numbers.

    >>> journal = Journal()
    >>> journal.write("code", "shade", "new body")
    >>> [entry.subject for entry in journal.deliver()]
    ['shade']
    """

    entries: list[Entry] = field(default_factory=list)
    applying: list[Entry] = field(default_factory=list)  # those that a frame has begun with, until it has ended
    mailbox: dict[Any, tuple[Postbox, float]] = field(default_factory=dict, repr=False)  # the last number for each pin
    posting: Any = field(default_factory=RLock, repr=False)  # held for a moment only, and after `lock`
    lock: Any = field(default_factory=RLock, repr=False)
    observer: Observer | None = field(default=None, repr=False)
    watches: list[Any] = field(default_factory=list, repr=False)  # of blocks that follow something outside
    structural: int = field(default=0, repr=False)  # how many edits of the structure there have been
    is_engines: bool = field(default=False, repr=False)  # whether frames take its edits
    _crowded: int = field(default=MANY, init=False, repr=False)  # so many edits are merged
    order: int = field(default_factory=count().__next__, repr=False)  # who needs several locks takes the lowest first

    def deliver(self) -> list[Entry]:
        """Makes edits of what was posted, and gives all edits so far. Called first of all, with the lock held."""
        with self.posting:
            posted = list(self.mailbox.items())  # others go on posting
        for pin, (box, value) in posted:
            before: Any = box.sources.get(pin)
            if before.__class__ is not Setting or before.value.__class__ is not float:
                box.give(pin, value)
                continue
            known = before.value
            if self.observer is not None:
                self.observer.after_edit("set", box.graph, (pin, value), None)
            # Zeros and NaN are looked at twice.
            if (value != known and value == value) or not same_value(known, value):
                # In this order: after an interrupt in between, the number is still another one and is delivered again.
                self.entries.append(Entry("value", pin, (known, value)))
                box.sources[pin] = Setting(value, before.given, before.line)
        # Last: an interrupt before this delivers all of them again, which comes to the same.
        with self.posting:
            for pin, mail in posted:
                if self.mailbox.get(pin) is mail:
                    del self.mailbox[pin]
        if len(self.entries) >= self._crowded:
            self._make_room()
        return self.entries

    def write(self, kind: EntryKind, subject: Any, detail: Detail) -> None:
        """Adds an edit."""
        self.structural += kind == "structure"
        self.entries.append(Entry(kind, subject, detail))
        if len(self.entries) >= self._crowded:
            self._make_room()

    def _make_room(self) -> None:
        """Merges edits that pile up while nobody steps; the more there are, the less often."""
        self.entries = merge_entries(self.entries)
        self._crowded = max(MANY, 2 * len(self.entries))

    @contextmanager
    def observed(self, edit: str, graph: Any, *arguments: Any) -> Iterator[None]:
        """Around an edit: tells the observer once it has been made. Called with the lock held."""
        observer = self.observer
        before = None if observer is None else observer.before_edit(edit, arguments)
        yield
        if observer is not None:
            observer.after_edit(edit, graph, arguments, before)


@contextmanager
def hold_locks(journals: Iterable[Journal]) -> Iterator[None]:
    """Holds the locks of several journals. Who waits for one holds none of the others by this.

    An order of locks is not enough: a thread inside of `Engine.edits` has one of them before, whatever its place.
    """
    waiting = sorted(journals, key=lambda journal: journal.order)
    while True:
        with ExitStack() as locks:
            locks.enter_context(waiting[0].lock)
            busy = next((one for one in waiting[1:] if not _enter_at_once(locks, one)), None)
            if busy is None:
                yield
                return
        waiting = [busy, *(one for one in waiting if one is not busy)]


def _enter_at_once(locks: ExitStack, journal: Journal) -> bool:
    """Takes a lock if it is free, until `locks` is left."""
    taken = journal.lock.acquire(blocking=False)
    if taken:
        locks.callback(journal.lock.release)
    return taken
