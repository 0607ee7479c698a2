"""The counters behind `lg.stats()`, summed on request.

`execution`, `devices` and `lazy_values` count expensive operations. A jitted function has a `RepeatedRun`, so each call
only increments one number.
"""

from __future__ import annotations

import threading
import weakref
from collections import Counter, deque
from collections.abc import Mapping

from livegrad.state import Owned, renew_lock_after_fork


class _Counters:
    """The counts of a session, and the repeated runs that have not been added yet."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        renew_lock_after_fork(self, "lock", threading.RLock)
        self.counts: Counter[str] = Counter()
        self.active: weakref.WeakSet[RepeatedRun] = weakref.WeakSet()
        self.finished: deque[tuple[Mapping[str, int], int]] = deque()


_counters = Owned(_Counters)


class RepeatedRun:
    """Counts the runs of a program, with what the first run and each later run add to the counts.

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
            counters.active.add(self)

    def take_new_runs(self) -> list[tuple[Mapping[str, int], int]]:
        """Returns the runs since the last call. Threads increment `times` without the lock, so it is never reset."""
        before, self._counted = self._counted, self.times
        first = before == 0 < self._counted
        return [(self._first, first), (self._later, self._counted - before - first)]

    def __del__(self) -> None:
        self._counters.finished.extend(self.take_new_runs())  # a finalizer may run anywhere: it takes no lock


def count(**more: int) -> None:
    """Adds to the counts."""
    counters = _counters.current
    with counters.lock:
        counters.counts.update(more)


def all_counts() -> Counter[str]:
    """Returns all counts so far, by name."""
    counters = _counters.current
    with counters.lock:
        new_runs = [runs for run in counters.active for runs in run.take_new_runs()]
        while counters.finished:
            new_runs.append(counters.finished.popleft())
        for counts_per_run, times in new_runs:
            for name, number in counts_per_run.items():
                counters.counts[name] += number * times
        return counters.counts.copy()


def clear_counts() -> None:
    """Sets all counts to zero."""
    counters = _counters.current
    with counters.lock:
        all_counts()
        counters.counts.clear()
