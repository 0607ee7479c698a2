"""Raises Python's recursion limit for the front end and the passes, which recurse over nested programs.

They need about ten Python calls for each level of branches, calls and expressions; the default limit is 1,000.
"""

from __future__ import annotations

import sys
import threading
from contextlib import ContextDecorator

# Python calls. The native stack of a thread, usually 8 MB, holds three times as many.
MAX_CALLS = 20_000


class _RecursionLimit:
    """The limit of the process: how many users need it raised, its previous and its raised value."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.users = 0
        self.previous = 0
        self.raised = 0


_limit = _RecursionLimit()


class deep_recursion(ContextDecorator):
    """Raises the recursion limit until the last user leaves this context."""

    __slots__ = ()

    def __enter__(self) -> None:
        with _limit.lock:
            if _limit.users == 0:
                _limit.previous = sys.getrecursionlimit()
                _limit.raised = max(_limit.previous, MAX_CALLS)
                sys.setrecursionlimit(_limit.raised)
            _limit.users += 1

    def __exit__(self, *exception: object) -> None:
        with _limit.lock:
            _limit.users -= 1
            if _limit.users == 0 and sys.getrecursionlimit() == _limit.raised:  # no other code has changed the limit
                sys.setrecursionlimit(_limit.previous)
