"""Pauses Python's collector of cyclic garbage while a program is compiled.

Passes make hundreds of thousands of nodes, hardly any of them garbage; the collector would look at all of them again
and again, the longer the program the more often. Whoever compiles comes here.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class _Pause:
    """How many compilations are under way, in all threads, and whether the collector ran before the first of them."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.under_way = 0
        self.was_enabled = False


_pause = _Pause()


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
            _pause.under_way -= 1
            if not _pause.under_way and _pause.was_enabled:
                gc.enable()
