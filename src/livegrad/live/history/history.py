"""The history of an engine: entries of edits, undone and redone one entry at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import get_ident
from types import TracebackType
from typing import TYPE_CHECKING, Any

from livegrad.diagnostics import LivegradError, UsageError, caller_origin, shown
from livegrad.live.graph.block import Pin
from livegrad.live.graph.sources import Setting
from livegrad.live.history.changes import Change, Feed, begin_change

if TYPE_CHECKING:
    from livegrad.live.engine import Engine

_MAX_ENTRIES = 1000
_MAX_BYTES = 1 << 26  # of arrays that inputs had


@dataclass(frozen=True)
class HistoryEntry:
    """One step of undo: its label, the number of edits, and whether it is undone.

    >>> import livegrad as lg
    >>> engine = lg.Engine()
    >>> _ = engine.add(lg.block(lambda x=4.0: x * 2.0, name="double"))
    >>> engine.history.entries
    (HistoryEntry(label='add double', edits=1, is_undone=False),)
    """

    label: str
    edits: int
    is_undone: bool


class _Entry:
    """The changes of one gesture, in order."""

    def __init__(self, label: str = "", changes: list[Change] | None = None) -> None:
        self.given_label = label
        self.changes = changes or []

    @property
    def label(self) -> str:
        if self.given_label or not self.changes:
            return self.given_label
        more = len(self.changes) - 1
        return self.changes[0].label + (f" and {more} more" if more else "")

    @property
    def size(self) -> int:
        return sum(change.size for change in self.changes)


class History:
    """Undo and redo of an engine: structure, values, bodies, names, exposed pins, positions, controls and features.

    Edits of all threads are recorded. An edit is an entry of its own, unless it belongs to a `gesture` or to a group of
    `engine.edits()`. Values, positions, controls and features that change again before another kind of edit is made
    stay one entry each, so a program that animates an input does not fill the history. The values of states belong to
    the run, and are not recorded.

    The history keeps 1,000 entries (`max_entries`), and forgets the oldest ones earlier if arrays that inputs had take
    more than 64 MB (`max_bytes`).

    >>> import livegrad as lg
    >>> engine = lg.Engine()
    >>> double = engine.add(lg.block(lambda x=4.0: x * 2.0, name="double"))
    >>> with engine.history.gesture("drag x"):
    ...     engine.set(double["x"], 5.0)
    ...     engine.set(double["x"], 6.0)
    >>> engine.history.undo(), engine.step().ok, float(engine.read(double))
    ('drag x', True, 8.0)
    >>> engine.history.redo(), engine.step().ok, float(engine.read(double))
    ('drag x', True, 12.0)
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.max_entries, self.max_bytes = _MAX_ENTRIES, _MAX_BYTES
        self._done: deque[_Entry] = deque()
        self._bytes = 0  # of the done entries
        self._undone: list[_Entry] = []  # the next to redo is the last
        self._open: _Entry | None = None  # of the open gestures
        self._depth = 0  # open gestures and groups
        self.recent: dict[Hashable, Change] = {}  # the changes that a later one with their key merges into
        self._is_restoring = False
        self.silent_threads: set[int] = set()  # whose values are not recorded now

    def __repr__(self) -> str:
        return f"<history: {len(self._done)} to undo, {len(self._undone)} to redo>"

    @property
    def entries(self) -> tuple[HistoryEntry, ...]:
        """The entries from the oldest to the newest; those that are undone come last."""
        with self._engine.graph.editing():
            done = [HistoryEntry(entry.label, len(entry.changes), False) for entry in self._done]
            undone = [HistoryEntry(entry.label, len(entry.changes), True) for entry in reversed(self._undone)]
        return (*done, *undone)

    @property
    def next_undo(self) -> str | None:
        """The label of the entry that `undo` would undo, or None."""
        try:
            return self._done[-1].label
        except IndexError:  # another thread has just undone it
            return None

    @property
    def next_redo(self) -> str | None:
        """The label of the entry that `redo` would make again, or None."""
        try:
            return self._undone[-1].label
        except IndexError:
            return None

    def undo(self) -> str | None:
        """Undoes the last entry. Returns its label, or None if there is nothing to undo."""
        with self._restoring("undo"):
            if not self._done:
                return None
            entry = self._done[-1]
            self._restore(list(reversed(entry.changes)), "undo")
            self._undone.append(self._done.pop())
            self._bytes -= entry.size
            return entry.label

    def redo(self) -> str | None:
        """Makes the last undone entry again. Returns its label, or None if there is nothing to redo.

        The first edit after an undo forgets the undone entries.
        """
        with self._restoring("redo"):
            if not self._undone:
                return None
            entry = self._undone[-1]
            self._restore(entry.changes, "redo")
            self._append(self._undone.pop())
            return entry.label

    def gesture(self, label: str) -> Gesture:
        """Opens a gesture: until it is committed, the edits of all threads are one entry with this label.

        Use it in a `with` block, which cancels it if an exception ends the block; or keep it and call `commit` or
        `cancel`, for example when the mouse button is released. Gestures inside a gesture belong to its entry.
        """
        if not isinstance(label, str) or not label:
            found = shown(label)
            raise UsageError("a gesture needs a label", where=caller_origin(), expected="a str", found=found)
        with self._engine.graph.editing():
            return Gesture(self, self._begin(label))

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Leaves out the values and features that this thread sets inside, such as those of a clock.

        The functions in `engine.before_frame` are called in this way. Other edits are recorded.

        >>> import livegrad as lg
        >>> engine = lg.Engine()
        >>> double = engine.add(lg.block(lambda x=4.0: x * 2.0, name="double"))
        >>> with engine.history.paused():
        ...     engine.set(double["x"], 5.0)
        >>> [entry.label for entry in engine.history.entries]
        ['add double']
        """
        thread = get_ident()
        if thread in self.silent_threads:
            yield
            return
        self.silent_threads.add(thread)
        try:
            yield
        finally:
            self.silent_threads.discard(thread)

    def clear(self) -> None:
        """Forgets all entries, for example after a program has built its graph."""
        with self._engine.graph.editing():
            self._done.clear()
            self._bytes = 0
            self._undone.clear()
            self.recent.clear()
            if self._open is not None:
                self._open = _Entry(self._open.given_label)

    # --- recording: called with the lock of the description held ---

    def begin_edit(self, edit: str, graph: Any, arguments: tuple[Any, ...]) -> Change | None:
        """Captures what an edit is about to change; None if it is not recorded."""
        if self._is_restoring or (edit in ("set", "feature") and get_ident() in self.silent_threads):
            return None
        return begin_change(edit, graph, arguments, self._engine)

    def end_edit(self, change: Change) -> None:
        """Records an edit, unless it was refused. An interrupt may have left a part of it."""
        change.finish(self._engine)
        if not change.is_empty:
            self._note(change)

    def note_number(self, graph: Any, pin: Pin, before: Setting, after: Setting) -> None:
        """Records a posted number, unless `recent` has a change of its pin."""
        if not self._is_restoring:
            self._note(Feed(graph, pin, (before, None), (after, None)))

    def _note(self, change: Change) -> None:
        self._undone.clear()
        known = None if change.key is None else self.recent.get(change.key)
        if known is not None:
            before = known.size
            known.after = change.after
            if self._open is None:
                self._bytes += known.size - before
                self._forget_oldest()
        else:
            # In this order: if an interrupt comes in between, a posted number is delivered and recorded again.
            if self._open is None:
                self._append(_Entry(changes=[change]))
            else:
                self._open.changes.append(change)
            if change.key is None:
                self.recent.clear()
            else:
                self.recent[change.key] = change

    def _append(self, entry: _Entry) -> None:
        self._done.append(entry)
        self._bytes += entry.size
        self._forget_oldest()

    def _forget_oldest(self) -> None:
        """Keeps the limits. The last entry always stays."""
        while len(self._done) > 1 and (self._bytes > self.max_bytes or len(self._done) > self.max_entries):
            self._bytes -= self._done.popleft().size
            self.recent.clear()

    # --- gestures ---

    def _begin(self, label: str = "") -> int:
        """Begins a group of edits. Returns the number of changes of the entry before it."""
        self.recent.clear()
        if self._open is None:
            self._open = _Entry(label)
        self._depth += 1
        return len(self._open.changes)

    def _end(self) -> None:
        self._engine.graph.journal.deliver()
        self.recent.clear()
        self._depth -= 1
        if self._depth == 0:
            entry, self._open = self._open, None
            if entry is not None and entry.changes:
                self._append(entry)

    @contextmanager
    def group(self) -> Iterator[None]:
        """Makes the edits inside one entry. Called with the lock of the description held."""
        if self._is_restoring:
            yield
            return
        self._begin()
        try:
            yield
        finally:
            self._end()

    def _cancel(self, start: int) -> None:
        """Undoes the changes of the open entry from `start` on, and ends the innermost gesture."""
        with self._engine.graph.editing():
            entry = self._open
            assert entry is not None
            self._is_restoring = True
            try:
                self._restore(list(reversed(entry.changes[start:])), "undo")
                del entry.changes[start:]
            finally:
                self._is_restoring = False
                self._end()

    # --- restoring ---

    @contextmanager
    def _restoring(self, action: str) -> Iterator[None]:
        """Keeps other edits away, and the edits inside out of the history."""
        with self._engine.graph.editing():
            if self._depth or self._is_restoring:
                help = "commit or cancel it first"
                raise UsageError(f"cannot {action} during a gesture", where=caller_origin(), help=help)
            self.recent.clear()
            self._is_restoring = True
            try:
                yield
            finally:
                self._is_restoring = False

    def _restore(self, changes: list[Change], action: str) -> None:
        """Undoes or redoes changes in order; if one cannot be, makes the others as they were."""
        back = "redo" if action == "undo" else "undo"
        for index, change in enumerate(changes):
            try:
                getattr(change, action)(self._engine)
            except LivegradError as error:
                for restored in reversed(changes[:index]):
                    getattr(restored, back)(self._engine)
                raise UsageError(
                    f"cannot {action}: {change.label}",
                    where=caller_origin(),
                    found=str(error),
                    help="the graph was changed outside of the engine; `history.clear()` forgets all entries",
                ) from error


class Gesture:
    """Edits that are undone together. `commit` or the end of a `with` block ends it; `cancel` undoes its edits.

    >>> import livegrad as lg
    >>> engine = lg.Engine()
    >>> double = engine.add(lg.block(lambda x=4.0: x * 2.0, name="double"))
    >>> gesture = engine.history.gesture("drag x")
    >>> engine.set(double["x"], 5.0)
    >>> gesture.cancel()
    >>> engine.parameters()[double["x"]]["value"], len(engine.history.entries)
    (4.0, 1)
    """

    def __init__(self, history: History, start: int) -> None:
        self._history, self._start = history, start
        self._is_open = True

    def commit(self) -> None:
        """Ends the gesture. Its edits are one entry of the history."""
        with self._history._engine.graph.editing():
            self._close()
            self._history._end()

    def cancel(self) -> None:
        """Undoes the edits of the gesture, and ends it."""
        self._close()
        self._history._cancel(self._start)

    def _close(self) -> None:
        if not self._is_open:
            raise UsageError("this gesture has ended", where=caller_origin(), help="open another one")
        self._is_open = False

    def __enter__(self) -> Gesture:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_open:
            (self.commit if kind is None else self.cancel)()
