"""The counters behind `lg.stats()`, summed on request.

`execution`, `devices` and `values` count expensive operations. A jitted function has a `RepeatedRun`, so that each call
only increments one number.
"""

from __future__ import annotations

import threading
import weakref
from collections import Counter, deque
from collections.abc import Mapping

from livegrad.state import Owned, renew_lock_after_fork


class _Counters:
    """The counts of a session, and the runs whose numbers have not been added yet."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        renew_lock_after_fork(self, "lock", threading.RLock)
        self.counts: Counter[str] = Counter()
        self.running: weakref.WeakSet[RepeatedRun] = weakref.WeakSet()
        self.ended: deque[tuple[Mapping[str, int], int]] = deque()


_counters = Owned(_Counters)


class RepeatedRun:
    """What the first run adds to the counts, what each later one does, and how often it was run.

    >>> run = RepeatedRun({"programs_compiled": 1}, {"programs_reused": 1})
    >>> before = all_counts()
    >>> run.times += 3
    >>> sorted((all_counts() - before).items())
    [('programs_compiled', 1), ('programs_reused', 2)]
    """

    __slots__ = ("__weakref__", "_counted", "_counters", "_first", "_later", "times")

    def __init__(self, first: Mapping[str, int], later: Mapping[str, int]) -> None:
        self._first, self._later = first, later
        self.times = self._counted = 0
        self._counters = counters = _counters.current
        with counters.lock:
            counters.running.add(self)

    def take(self) -> list[tuple[Mapping[str, int], int]]:
        """The runs that were not taken before. Their number only grows: threads add to it without the lock."""
        before, self._counted = self._counted, self.times
        first = before == 0 < self._counted
        return [(self._first, first), (self._later, self._counted - before - first)]

    def __del__(self) -> None:
        self._counters.ended.extend(self.take())  # a finalizer may run anywhere: it takes no lock


def count(**more: int) -> None:
    """Adds to the counts."""
    counters = _counters.current
    with counters.lock:
        counters.counts.update(more)


def all_counts() -> Counter[str]:
    """All counts so far, by name."""
    counters = _counters.current
    with counters.lock:
        taken = [counted for run in counters.running for counted in run.take()]
        while counters.ended:
            taken.append(counters.ended.popleft())
        for each, times in taken:
            for name, number in each.items():
                counters.counts[name] += number * times
        return counters.counts.copy()


def clear_counts() -> None:
    """Sets all counts to zero."""
    counters = _counters.current
    with counters.lock:
        all_counts()
        counters.counts.clear()
