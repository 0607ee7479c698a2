"""Gestures of pages: edits between pressing and releasing a button are one entry of the history.

In: what `engine_thread.py` hears of pages. Out: gestures of `engine.history`, of which one is open at a time.
"""

from __future__ import annotations

from livegrad.live.engine import Engine
from livegrad.live.history import Gesture
from livegrad.tools.studio.page import Page


class Gestures:
    """The open gesture of an engine, and the page that makes it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._open: tuple[Page, Gesture] | None = None

    def begin(self, page: Page, label: str) -> None:
        """Opens a gesture. The previous one ends: two people do not drag in one entry."""
        self.end()
        self._open = page, self._engine.history.gesture(label)

    def end(self, page: Page | None = None, *, cancel: bool = False) -> None:
        """Ends the gesture of a page, if it has one open; of any page if none is given."""
        if self._open is None or page not in (None, self._open[0]):
            return
        _, gesture = self._open
        self._open = None
        (gesture.cancel if cancel else gesture.commit)()
