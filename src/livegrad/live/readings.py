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
_RETRY_SECONDS = 0.001  # another reader may have held the lock, and then no frame answers the request


class Attempts:
    """Calls functions under a lock if it is free, without waiting."""

    def __init__(self, lock: Any) -> None:
        self.lock = lock

    def attempt(self, action: Callable[..., Result], *arguments: Any) -> tuple[Result] | None:
        """The result of the action; None if another thread holds the lock."""
        lock, is_acquired = self.lock, False
        was_owned = lock._is_owned()
        try:
            is_acquired = lock.acquire(False)  # by position: passing it by name takes longer than the call
            return (action(*arguments),) if is_acquired else None
        finally:
            # An interrupt may come between acquiring the lock and assigning `is_acquired`.
            if is_acquired or (not was_owned and lock._is_owned()):
                lock.release()


class RequestedReading(Attempts):
    """A reading that is performed between frames. Until then it is not ready, and `result` waits."""

    def __init__(self, lock: Any, make: Callable[[], Reading]) -> None:
        super().__init__(lock)
        self._make = make
        self._outcome: Reading | LivegradError | None = None
        self._is_done = Event()

    def fill(self) -> None:
        """Performs the reading. Called with the lock held."""
        if self._outcome is None:
            try:
                self._outcome = self._make()
            except LivegradError as error:
                self._outcome = error  # raised by `result`
            self._is_done.set()

    def ready(self) -> bool:
        """Whether `result` returns without waiting."""
        if self._outcome is None:
            self.attempt(self.fill)
        outcome = self._outcome
        return outcome is not None and (isinstance(outcome, LivegradError) or outcome.ready())

    def result(self) -> Numbers:
        """Waits for the value and returns it."""
        while self._outcome is None and self.attempt(self.fill) is None:
            self._is_done.wait(_RETRY_SECONDS)
        if isinstance(self._outcome, LivegradError):
            raise self._outcome
        assert self._outcome is not None
        return self._outcome.result()
