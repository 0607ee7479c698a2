"""The counters behind `lg.stats()`, summed on request.

`execution`, `devices` and `values` count expensive operations. A jitted function has a `RepeatedRun`, so that each call
only increments one number.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections import Counter, deque
from collections.abc import Mapping

from livegrad.runtime.fork import renew_lock_after_fork

_lock = threading.RLock()
renew_lock_after_fork(sys.modules[__name__], "_lock", threading.RLock)
_counts: Counter[str] = Counter()
_ended: deque[tuple[Mapping[str, int], int]] = deque()


class RepeatedRun:
    """What the first run adds to the counts, what each later one does, and how often it was run.

    >>> run = RepeatedRun({"programs_compiled": 1}, {"programs_reused": 1})
    >>> before = all_counts()
    >>> run.times += 3
    >>> sorted((all_counts() - before).items())
    [('programs_compiled', 1), ('programs_reused', 2)]
    """

    __slots__ = ("__weakref__", "_counted", "_first", "_later", "times")

    def __init__(self, first: Mapping[str, int], later: Mapping[str, int]) -> None:
        self._first, self._later = first, later
        self.times = self._counted = 0
        with _lock:
            _running.add(self)

    def take(self) -> list[tuple[Mapping[str, int], int]]:
        """The runs that were not taken before. Their number only grows: threads add to it without the lock."""
        before, self._counted = self._counted, self.times
        first = before == 0 < self._counted
        return [(self._first, first), (self._later, self._counted - before - first)]

    def __del__(self) -> None:
        # A finalizer may run anywhere: it takes no lock, and when Python ends this module's names may be gone.
        if _ended is not None:
            _ended.extend(self.take())


_running: weakref.WeakSet[RepeatedRun] = weakref.WeakSet()


def count(**more: int) -> None:
    """Adds to the counts."""
    with _lock:
        _counts.update(more)


def all_counts() -> Counter[str]:
    """All counts so far, by name."""
    with _lock:
        taken = [counted for run in _running for counted in run.take()]
        while _ended:
            taken.append(_ended.popleft())
        for each, times in taken:
            for name, number in each.items():
                _counts[name] += number * times
        return _counts.copy()


def clear_counts() -> None:
    """Sets all counts to zero."""
    with _lock:
        all_counts()
        _counts.clear()
