"""The journal of edits: what users changed since the last frame. The engine reads it, and looks at nothing else."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

EntryKind = Literal["value", "feature", "rebind", "code", "structure", "reset"]


Detail = str | tuple[float, float]  # words, or a knob before and after


def words_of(detail: Any) -> str:
    """What to say of an edit; of a knob it is put into words only when someone asks.

    >>> words_of((1.0, 2.5)), words_of("new body")
    ('1.0 → 2.5', 'new body')
    """
    return f"{detail[0]!r} → {detail[1]!r}" if isinstance(detail, tuple) else str(detail)


class Entry(NamedTuple):
    """One edit: what kind, of which pin, feature or block, and what to say about it."""

    kind: EntryKind
    subject: Any
    detail: Detail


@dataclass
class Journal:
    """Edits in the order in which they were made.

    >>> journal = Journal()
    >>> journal.write("code", "shade", "new body")
    >>> [entry.subject for entry in journal.take()], len(journal.entries)
    (['shade'], 0)
    """

    entries: list[Entry] = field(default_factory=list)

    def write(self, kind: EntryKind, subject: Any, detail: Detail) -> None:
        """Adds an edit."""
        self.entries.append(Entry(kind, subject, detail))

    def take(self) -> list[Entry]:
        """The edits so far, which are then the reader's."""
        taken, self.entries = self.entries, []
        return taken

    def put_back(self, entries: list[Entry]) -> None:
        """Returns edits that could not be applied; they come first."""
        self.entries = [*entries, *self.entries]
