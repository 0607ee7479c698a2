"""Room for recursion: programs of people nest deeper than Python's stack of 1,000 calls allows a compiler to follow.

The front end and the passes follow branches, calls and expressions by recursion, some ten calls for each level.
"""

from __future__ import annotations

import sys
import threading
from contextlib import ContextDecorator

# Calls on Python's stack. A thread's stack of machine words, 8 MB as a rule, holds three times as many.
MAX_CALLS = 20_000


class _Raised:
    """How many threads need the raised limit, which belongs to the process, and its values before and since."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.count = 0
        self.before = 0
        self.since = 0


_raised = _Raised()


class deep_recursion(ContextDecorator):
    """Raises the recursion limit until the last user of this context leaves it."""

    __slots__ = ()

    def __enter__(self) -> None:
        with _raised.lock:
            if _raised.count == 0:
                _raised.before = sys.getrecursionlimit()
                _raised.since = max(_raised.before, MAX_CALLS)
                sys.setrecursionlimit(_raised.since)
            _raised.count += 1

    def __exit__(self, *exception: object) -> None:
        with _raised.lock:
            _raised.count -= 1
            if _raised.count == 0 and sys.getrecursionlimit() == _raised.since:  # no other code has changed the limit
                sys.setrecursionlimit(_raised.before)
