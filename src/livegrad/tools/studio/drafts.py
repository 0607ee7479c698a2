"""Saves what pages edit in a document: by themselves to a draft beside the file, and to the file when a page says so.

In: edits of an engine that was opened from a file. Out: `scene.lg.draft`, which pages offer when it is newer.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Literal

from livegrad.diagnostics import LivegradError
from livegrad.live.engine import Engine
from livegrad.tools.studio.values import Json

_DELAY = 1.0  # seconds from an edit to the draft
State = Literal["saved", "edited", "drafted", "failed"]


def draft_of(path: Path) -> Path:
    """Where the draft of a file is.

    >>> draft_of(Path("scene.lg")).name
    'scene.lg.draft'
    """
    return path.with_name(f"{path.name}.draft")


def has_newer_draft(path: Path) -> bool:
    """Whether there is a draft with changes that the file does not have."""
    try:
        draft, file = draft_of(path), path.stat()
        return draft.stat().st_mtime_ns >= file.st_mtime_ns and draft.read_bytes() != path.read_bytes()
    except OSError:
        return False


class Draft:
    """The draft of one document. `now` is a function, so that tests need not wait."""

    def __init__(self, engine: Engine, path: Path, now: Callable[[], float] = perf_counter) -> None:
        self.path = path
        self.state: State = "saved"
        self.offers_draft = has_newer_draft(path)  # from before this session; an edit replaces it
        self.problem = ""
        self._engine, self._now = engine, now
        self._due: float | None = None

    def describe(self) -> Json:
        """What pages show of it."""
        shown = {"name": self.path.name, "state": self.state, "problem": self.problem}
        return {**shown, "draft": self.offers_draft}

    def note_edit(self) -> None:
        """Notes that the draft is out of date."""
        self.state, self.offers_draft = "edited", False
        if self._due is None:
            self._due = self._now() + _DELAY

    def seconds_until_due(self) -> float | None:
        """How long until the draft is written; None: it need not be."""
        return None if self._due is None else max(0.0, self._due - self._now())

    def update(self) -> None:
        """Writes the draft if it is due."""
        if self._due is not None and self._due <= self._now():
            self.write()

    def write(self) -> None:
        """Writes the draft. What cannot be saved is reported, and tried again after the next edit."""
        self._due = None
        try:
            self._engine.save(draft_of(self.path))
            self.state, self.problem = "drafted", ""
        except (LivegradError, OSError) as error:
            self.state, self.problem = "failed", error.what if isinstance(error, LivegradError) else str(error)

    def save(self) -> None:
        """Writes the file, and removes the draft."""
        self._engine.save(self.path)
        self._due, self.offers_draft = None, False
        self.state, self.problem = "saved", ""
        draft_of(self.path).unlink(missing_ok=True)
