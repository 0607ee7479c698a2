"""Sessions: the owners of all mutable state, such as caches, locks, counters and background threads.

A module declares `_kernels = Owned(KernelCache)` and reads `_kernels.current`, which is created on first use. One
session serves the whole process; `fresh_session()` gives a test a separate one. Module-level names hold no other state,
except what exists once per process in the interpreter, LLVM or a driver: `tests/test_state.py` lists it, with reasons.
"""

from __future__ import annotations

import os
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache, update_wrapper
from typing import Any, Generic, ParamSpec, TypeVar

_T = TypeVar("_T")
_P = ParamSpec("_P")


class BackgroundWork(ABC):
    """An owned object with its own thread, which works for one session only."""

    @abstractmethod
    def suspend(self) -> None:
        """Waits until no work is in progress, and starts none until `resume`."""

    @abstractmethod
    def resume(self) -> None:
        """Continues after `suspend`."""

    @abstractmethod
    def close(self) -> None:
        """Ends the threads and drops work that has not started."""


class Session:
    """Owns one object for each `Owned` that was read while the session was current."""

    def __init__(self) -> None:
        self._objects: dict[Owned[Any], Any] = {}
        self._lock = threading.RLock()  # re-entrant: creating an object may read other `Owned`s
        renew_lock_after_fork(self, "_lock", threading.RLock)

    def object_of(self, owned: Owned[_T]) -> _T:
        """Returns the session's object, which the first call creates."""
        with self._lock:
            if owned not in self._objects:
                self._objects[owned] = owned.make()
            return self._objects[owned]

    def set_object(self, owned: Owned[_T], value: _T) -> None:
        """Makes `value` the session's object."""
        with self._lock:
            self._objects[owned] = value

    @property
    def objects(self) -> dict[Owned[Any], Any]:
        """A snapshot of what the session owns."""
        with self._lock:
            return dict(self._objects)

    @property
    def background_work(self) -> list[BackgroundWork]:
        return [value for value in self.objects.values() if isinstance(value, BackgroundWork)]

    def close(self) -> None:
        """Ends the session's threads and drops everything it owns."""
        for work in self.background_work:
            work.close()
        with self._lock:
            self._objects.clear()


class Owned(Generic[_T]):
    """One object for each session; `current` is that of the current session.

    >>> names = Owned(list)
    >>> names.current.append("a")
    >>> with fresh_session():
    ...     names.current
    []
    >>> names.current
    ['a']
    """

    __slots__ = ("current", "make")
    current: _T  # an attribute once the current session has the object: warm calls read it without a function call

    def __init__(self, make: Callable[[], _T]) -> None:
        self.make = make

    def __getattr__(self, name: str) -> Any:
        if name != "current":
            raise AttributeError(name)
        self.current = _switch.session.object_of(self)
        return self.current

    def replace(self, value: _T) -> _T:
        """Replaces the current session's object and returns the previous one."""
        before = self.current
        _switch.session.set_object(self, value)
        self.current = value
        return before


class _Switch:
    """The current session of all threads."""

    def __init__(self) -> None:
        self.session = Session()

    def activate(self, session: Session) -> None:
        before, self.session = self.session, session
        for owned in before.objects:
            with suppress(AttributeError):  # a thread was interrupted before it set `current`
                del owned.current
        for owned, value in session.objects.items():
            owned.current = value


@contextmanager
def fresh_session() -> Iterator[Session]:
    """Runs its body in a new, empty session for all threads, and drops what that session owns at the end.

    The outer session is unchanged and its background threads pause. For tests: no other thread may use livegrad while
    the session changes. Tensors and compiled functions work in any session and keep their values.
    """
    outer, inner = _switch.session, Session()
    for work in outer.background_work:
        work.suspend()
    _switch.activate(inner)
    try:
        yield inner
    finally:
        _switch.activate(outer)
        inner.close()
        for work in outer.background_work:
            work.resume()


class Memo(Generic[_P, _T]):
    """A function memoised per session; `memo` creates it."""

    def __init__(self, function: Callable[_P, _T], maxsize: int) -> None:
        update_wrapper(self, function)
        self._results = Owned(lambda: lru_cache(maxsize)(function))

    def __call__(self, *arguments: _P.args, **named: _P.kwargs) -> _T:
        return self._results.current(*arguments, **named)

    @property
    def misses(self) -> int:
        """The number of calls in this session that computed a new result."""
        return self._results.current.cache_info().misses


def memo(maxsize: int) -> Callable[[Callable[_P, _T]], Memo[_P, _T]]:
    """`functools.lru_cache` with results that belong to the session, for functions that return compiled code."""
    return lambda function: Memo(function, maxsize)


# --- forks ------------------------------------------------------------------------------------------------------------


class _ForkHooks:
    """Renews, in a forked child, the locks that other threads held in the parent, and objects that had threads."""

    def __init__(self) -> None:
        self._locks: dict[
            tuple[int, str], tuple[weakref.ref[Any], Callable[[], Any]]
        ] = {}  # by (id of the holder, attribute)
        self._methods: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._renew)

    def add_lock(self, holder: Any, attribute: str, make: Callable[[], Any]) -> None:
        key, locks = (id(holder), attribute), self._locks
        locks[key] = weakref.ref(holder, lambda _: locks.pop(key, None)), make

    def add_method(self, holder: Any, name: str) -> None:
        self._methods[holder] = name

    def _renew(self) -> None:
        for (_, attribute), (reference, make) in list(self._locks.items()):
            if (holder := reference()) is not None:
                setattr(holder, attribute, make())
        for holder, name in list(self._methods.items()):  # after the locks: they may start threads
            getattr(holder, name)()


_fork_hooks = _ForkHooks()


def renew_lock_after_fork(holder: Any, attribute: str, make: Callable[[], Any] = threading.Lock) -> None:
    """Gives `holder`, an object or a module, a new lock in every forked child."""
    _fork_hooks.add_lock(holder, attribute, make)


def call_after_fork(holder: Any, name: str) -> None:
    """Calls the method `name` of `holder` in every forked child."""
    _fork_hooks.add_method(holder, name)


_switch = _Switch()
