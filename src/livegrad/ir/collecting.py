"""Pauses Python's cyclic garbage collector during compilation.

Passes create hundreds of thousands of live nodes, which the collector would scan repeatedly.
"""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class _Pause:
    """The number of compilations in progress in all threads, and whether the collector was enabled before the first."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.active = 0
        self.was_enabled = False

    def after_fork_in_child(self) -> None:
        """Ends the pauses of the parent's threads, which do not exist in the child."""
        if self.active and self.was_enabled:
            gc.enable()
        self.lock, self.active = threading.Lock(), 0


_pause = _Pause()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pause.after_fork_in_child)


@contextmanager
def collection_paused() -> Iterator[None]:
    """Disables the collector in all threads while any compilation runs, then restores its state.

    >>> with collection_paused():
    ...     print(gc.isenabled())
    False
    """
    with _pause.lock:
        if not _pause.active:
            _pause.was_enabled = gc.isenabled()
            gc.disable()
        _pause.active += 1
    try:
        yield
    finally:
        with _pause.lock:
            _pause.active = max(0, _pause.active - 1)  # it is 0 already after a fork inside the pause
            if not _pause.active and _pause.was_enabled:
                gc.enable()
