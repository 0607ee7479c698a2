"""Pauses Python's cyclic garbage collector while a program is compiled.

Passes create hundreds of thousands of nodes, few of them garbage, and the collector would scan all of them repeatedly.
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
        self.under_way = 0
        self.was_enabled = False

    def after_fork_in_child(self) -> None:
        """Threads that compiled in the parent do not exist in the child and cannot end their pauses."""
        if self.under_way and self.was_enabled:
            gc.enable()
        self.lock, self.under_way = threading.Lock(), 0


_pause = _Pause()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pause.after_fork_in_child)


@contextmanager
def collection_paused() -> Iterator[None]:
    """Nothing is collected inside, in any thread; afterwards the collector is as it was.

    >>> with collection_paused():
    ...     print(gc.isenabled())
    False
    """
    with _pause.lock:
        if not _pause.under_way:
            _pause.was_enabled = gc.isenabled()
            gc.disable()
        _pause.under_way += 1
    try:
        yield
    finally:
        with _pause.lock:
            _pause.under_way = max(0, _pause.under_way - 1)  # 0 already: this thread has forked meanwhile
            if not _pause.under_way and _pause.was_enabled:
                gc.enable()
