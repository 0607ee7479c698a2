"""The journal of edits since the last frame, from which the engine derives all updates.

It also synchronises threads. Changing or compiling a description requires the journal's lock. An edit that replaces a
number by a number is posted to a mailbox without the lock, so that a slider never waits for a compilation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from itertools import count
from threading import RLock
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from livegrad.live.graph.sources import Numbers, Setting, same_value

if TYPE_CHECKING:
    from livegrad.live.graph.block import Block, State
    from livegrad.live.graph.block_graph import Graph

EntryKind = Literal["value", "feature", "rebind", "code", "structure", "state"]
Detail = str | tuple[float, float]  # a description, or a number before and after


def describe_detail(detail: Any) -> str:
    """The description of an edit. The details of numbers are formatted only here, because few are ever shown.

    >>> describe_detail((1.0, 2.5)), describe_detail("new body")
    ('1.0 → 2.5', 'new body')
    """
    return f"{detail[0]!r} → {detail[1]!r}" if isinstance(detail, tuple) else str(detail)


class Entry(NamedTuple):
    """One edit: its kind, its subject (a pin, feature, block or change), and a description."""

    kind: EntryKind
    subject: Any
    detail: Detail


@dataclass(frozen=True, eq=False)
class StateValue:
    """The value that a state takes from the next frame on."""

    state: State
    value: Numbers


@dataclass(frozen=True, eq=False)
class StructureChange:
    """A structural change: blocks that were added, removed or got other pins, and their graph.

    For a removed composite, `blocks` includes the blocks inside it.
    """

    graph: Graph
    blocks: tuple[Block, ...]


MERGE_THRESHOLD = 256  # fewer edits are not worth merging
_VALUE_KINDS = ("value", "feature", "rebind", "state")


def merge_entries(entries: list[Entry]) -> list[Entry]:
    """Removes edits that a later edit of the same subject supersedes: entries only say what a frame must examine.

    >>> edits = [Entry("value", "gain", (float(n), n + 1.0)) for n in range(1000)]
    >>> merge_entries(edits)
    [Entry(kind='value', subject='gain', detail=(999.0, 1000.0))]
    """
    last: dict[Any, Entry] = {}
    for index, entry in enumerate(entries):
        subject = entry.subject.state if entry.kind == "state" else entry.subject
        key = (entry.kind, subject) if entry.kind in _VALUE_KINDS else index
        last.pop(key, None)  # ordered by the last edit of each subject
        last[key] = entry
    return list(last.values())


class Observer(Protocol):
    """Notified of every edit and every frame: a recording."""

    def before_edit(self, edit: str, arguments: tuple[Any, ...]) -> Any:
        """Returns what `after_edit` receives as `before`; raises to refuse the edit."""
        ...

    def after_edit(self, edit: str, graph: Any, arguments: tuple[Any, ...], before: Any) -> None:
        """Called after an edit of a graph (None: of the engine or a composite)."""
        ...

    def frame_begins(self) -> None:
        """Called when a frame has taken the edits so far."""
        ...

    def frame_ends(self, frame: Any) -> None:
        """Called when a frame is complete."""
        ...


class Listener(Protocol):
    """Notified after every edit and every frame, such as a page that shows the graph. It must not raise."""

    def edited(self, edit: str, arguments: tuple[Any, ...]) -> None:
        """Called after an edit, by the thread that made it, with the lock of the description held; or, for a number
        that replaces a number, when it is posted, without the lock."""
        ...

    def frame_ended(self, frame: Any) -> None:
        """Called when a frame is complete, by the thread that ran it."""
        ...


class EditHistory(Protocol):
    """Records edits, so that they can be undone. Called with the lock of the description held."""

    silent_threads: set[int]  # whose values are not recorded now
    recent: dict[Any, Any]  # the changes that a later one of the same pin merges into, by setting `after`

    def begin_edit(self, edit: str, graph: Any, arguments: tuple[Any, ...]) -> Any:
        """Captures what an edit is about to change; None if it is not recorded."""
        ...

    def end_edit(self, change: Any) -> None:
        """Records an edit, unless it was refused."""
        ...

    def note_number(self, graph: Any, pin: Any, before: Setting, after: Setting) -> None:
        """Records a posted number, unless `recent` has a change of its pin."""
        ...

    def paused(self) -> AbstractContextManager[None]:
        """Leaves out the values that this thread sets inside."""
        ...


@dataclass(frozen=True, eq=False, slots=True)
class Postbox:
    """The sources of one graph, and how to set a number whose pin no longer holds a float."""

    sources: dict[Any, Any]
    set_number: Callable[[Any, float], None]
    graph: Any = None
    is_recorded: bool = True  # in the history


@dataclass(eq=False)
class Journal:
    """Edits in order, the lock of the description, and posted numbers.

    >>> journal = Journal()
    >>> journal.write("code", "shade", "new body")
    >>> [entry.subject for entry in journal.deliver()]
    ['shade']
    """

    entries: list[Entry] = field(default_factory=list)
    applying: list[Entry] = field(default_factory=list)  # entries of the current frame, until it ends
    mailbox: dict[Any, tuple[Postbox, float]] = field(default_factory=dict, repr=False)  # the last number of each pin
    posting: Any = field(default_factory=RLock, repr=False)  # held briefly, and acquired after `lock`
    lock: Any = field(default_factory=RLock, repr=False)
    observer: Observer | None = field(default=None, repr=False)
    listeners: tuple[Listener, ...] = field(default=(), repr=False)
    history: EditHistory | None = field(default=None, repr=False)  # of the engine
    watches: list[Any] = field(default_factory=list, repr=False)  # of blocks that follow files
    structural: int = field(default=0, repr=False)  # the number of structural edits so far
    belongs_to_engine: bool = field(default=False, repr=False)  # whether frames take its edits
    _merge_at: int = field(default=MERGE_THRESHOLD, init=False, repr=False)  # entries
    order: int = field(default_factory=count().__next__, repr=False)  # locks are acquired in this order

    def deliver(self) -> list[Entry]:
        """Turns posted numbers into entries, and returns all entries so far. Called first, with the lock held."""
        if self.mailbox:
            posted = self.mailbox.copy()  # in one step, because other threads continue to post
            for pin, (box, value) in posted.items():
                before: Any = box.sources.get(pin)
                if before.__class__ is not Setting or before.value.__class__ is not float:
                    with nullcontext() if self.history is None or box.is_recorded else self.history.paused():
                        box.set_number(pin, value)
                    continue
                previous = before.value
                if self.observer is not None:
                    self.observer.after_edit("set", box.graph, (pin, value), None)
                # `same_value` decides only for zeros and NaN.
                if (value != previous and value == value) or not same_value(previous, value):
                    # In this order: if an interrupt comes in between, the numbers still differ and are delivered again.
                    after = Setting(value, before.input_type, before.lineage)
                    history = self.history
                    if history is not None and box.is_recorded:
                        known = history.recent.get(pin)
                        if known is not None:
                            known.after = after, None
                        else:
                            history.note_number(box.graph, pin, before, after)
                    self.entries.append(Entry("value", pin, (previous, value)))
                    box.sources[pin] = after
            # Last: if an interrupt comes before this, all numbers are delivered again, with the same result.
            with self.posting:
                for pin, mail in posted.items():
                    if self.mailbox.get(pin) is mail:
                        del self.mailbox[pin]
        if len(self.entries) >= self._merge_at:
            self._merge_entries()
        return self.entries

    def write(self, kind: EntryKind, subject: Any, detail: Detail) -> None:
        """Appends an entry."""
        self.structural += kind == "structure"
        self.entries.append(Entry(kind, subject, detail))
        if len(self.entries) >= self._merge_at:
            self._merge_entries()

    def _merge_entries(self) -> None:
        """Merges entries that accumulate without a frame. The threshold doubles, so that the cost stays linear."""
        self.entries = merge_entries(self.entries)
        self._merge_at = max(MERGE_THRESHOLD, 2 * len(self.entries))

    def notify_observer(self, edit: str, graph: Any, *arguments: Any) -> ObservedEdit:
        """Notifies the observer and the history of an edit, before and after. Called with the lock held."""
        return ObservedEdit(self, edit, graph, arguments)


class ObservedEdit:
    """One edit in a `with` block. A class, because a generator would double the cost of a small edit."""

    __slots__ = ("_arguments", "_before", "_change", "_edit", "_graph", "_journal")

    def __init__(self, journal: Journal, edit: str, graph: Any, arguments: tuple[Any, ...]) -> None:
        self._journal, self._edit, self._graph, self._arguments = journal, edit, graph, arguments

    def __enter__(self) -> None:
        observer, history = self._journal.observer, self._journal.history
        self._before = None if observer is None else observer.before_edit(self._edit, self._arguments)
        self._change = None if history is None else history.begin_edit(self._edit, self._graph, self._arguments)

    def __exit__(self, kind: type[BaseException] | None, *details: Any) -> None:
        journal = self._journal
        if self._change is not None and journal.history is not None:
            journal.history.end_edit(self._change)  # also after an interrupt, which may leave a part of the edit
        if kind is not None:
            return
        if journal.observer is not None:
            journal.observer.after_edit(self._edit, self._graph, self._arguments, self._before)
        for listener in journal.listeners:
            listener.edited(self._edit, self._arguments)


@contextmanager
def hold_locks(journals: Iterable[Journal]) -> Iterator[None]:
    """Holds the locks of several journals. While it waits for one, it holds none of the others.

    A lock order does not suffice: a thread inside `Engine.edits` already holds one of them, whatever its order.
    """
    waiting = sorted(journals, key=lambda journal: journal.order)
    while True:
        with ExitStack() as locks:
            locks.enter_context(waiting[0].lock)
            busy = next((journal for journal in waiting[1:] if not _try_lock(locks, journal)), None)
            if busy is None:
                yield
                return
        waiting = [busy, *(journal for journal in waiting if journal is not busy)]


def _try_lock(locks: ExitStack, journal: Journal) -> bool:
    """Acquires a lock if it is free; `locks` releases it."""
    is_acquired = journal.lock.acquire(blocking=False)
    if is_acquired:
        locks.callback(journal.lock.release)
    return is_acquired
