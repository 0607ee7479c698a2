"""Readings between frames: immediate if no frame runs, otherwise after the frame that runs in another thread.

Used by `Engine.read` and `read_async`. A thread that steps without a pause would rarely release the lock, so the thread
that starts or ends a frame performs the pending readings; each reading comes from one complete frame.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Event
from typing import Any, TypeVar

from livegrad.diagnostics import LivegradError
from livegrad.live.executor import Reading
from livegrad.live.graph.sources import Numbers

Result = TypeVar("Result")
_LOOK_AGAIN = 0.001  # seconds: the lock may have been another reader's, and then no frame comes


class Attempts:
    """Does things under a lock if that is free, without waiting for it."""

    def __init__(self, lock: Any) -> None:
        self.lock = lock

    def attempt(self, action: Callable[[], Result]) -> tuple[Result] | None:
        """What the action gives; None if another thread has the lock."""
        lock, taken = self.lock, False
        owned = lock._is_owned()
        try:
            taken = lock.acquire(blocking=False)
            return (action(),) if taken else None
        finally:
            # An interrupt may come before `taken` is known.
            if taken or (not owned and lock._is_owned()):
                lock.release()


class RequestedReading(Attempts):
    """A reading that is made between frames; until then it is not ready, and `result` waits."""

    def __init__(self, lock: Any, make: Callable[[], Reading]) -> None:
        super().__init__(lock)
        self._make = make
        self._made: Reading | LivegradError | None = None
        self._is_made = Event()

    def fill(self) -> None:
        """Makes the reading. Called with the lock held."""
        if self._made is None:
            try:
                self._made = self._make()
            except LivegradError as error:
                self._made = error  # raised to the reader of the result
            self._is_made.set()

    def ready(self) -> bool:
        """Whether `result` would return at once."""
        if self._made is None:
            self.attempt(self.fill)
        made = self._made
        return made is not None and (isinstance(made, LivegradError) or made.ready())

    def result(self) -> Numbers:
        """The value, once it is there."""
        while self._made is None and self.attempt(self.fill) is None:
            self._is_made.wait(_LOOK_AGAIN)
        if isinstance(self._made, LivegradError):
            raise self._made
        assert self._made is not None
        return self._made.result()
