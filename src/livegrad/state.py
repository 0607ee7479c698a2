"""State: a session owns every cache, lock, counter and background thread. Layers declare what they need of one.

A module declares `_kernels = Owned(KernelCache)` and uses `_kernels.current`, which is made on first use. One session
serves the whole process; `fresh_session()` gives a test another one. Module-level names hold no other state, except for
what the interpreter, LLVM or a driver has once for a process: `tests/test_state.py` lists that, with reasons.
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
    """Something owned that works on a thread of its own, and so on behalf of its session only."""

    @abstractmethod
    def suspend(self) -> None:
        """Returns when nothing is under way; nothing more is started."""

    @abstractmethod
    def resume(self) -> None:
        """Continues after `suspend`."""

    @abstractmethod
    def close(self) -> None:
        """Ends the threads and drops what has not been started."""


class Session:
    """Owns one object for each `Owned` that was asked for while the session was the current one."""

    def __init__(self) -> None:
        self._objects: dict[Owned[Any], Any] = {}
        self._lock = threading.RLock()  # re-entrant: making an object may ask for others
        renew_lock_after_fork(self, "_lock", threading.RLock)

    def object_of(self, owned: Owned[_T]) -> _T:
        """The session's own object, made on the first call."""
        with self._lock:
            if owned not in self._objects:
                self._objects[owned] = owned.make()
            return self._objects[owned]

    def keep(self, owned: Owned[_T], value: _T) -> None:
        """Makes an object the session's own."""
        with self._lock:
            self._objects[owned] = value

    @property
    def objects(self) -> dict[Owned[Any], Any]:
        """What the session owns now."""
        with self._lock:
            return dict(self._objects)

    @property
    def background_work(self) -> list[BackgroundWork]:
        return [value for value in self.objects.values() if isinstance(value, BackgroundWork)]

    def close(self) -> None:
        """Ends the session's threads and drops all that it owns."""
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
    current: _T  # set while the current session has one, so that reading it is no call

    def __init__(self, make: Callable[[], _T]) -> None:
        self.make = make

    def __getattr__(self, name: str) -> Any:
        if name != "current":
            raise AttributeError(name)
        self.current = _switch.session.object_of(self)
        return self.current

    def replace(self, value: _T) -> _T:
        """Gives the current session another object, and returns the one it had."""
        before = self.current
        _switch.session.keep(self, value)
        self.current = value
        return before


class _Switch:
    """Which session is the current one, for all threads."""

    def __init__(self) -> None:
        self.session = Session()

    def to(self, session: Session) -> None:
        before, self.session = self.session, session
        for owned in before.objects:
            with suppress(AttributeError):  # made by a thread that was interrupted
                del owned.current
        for owned, value in session.objects.items():
            owned.current = value


@contextmanager
def fresh_session() -> Iterator[Session]:
    """Inside, all threads use a session that owns nothing yet; what it came to own is dropped at the end.

    The session outside stays as it is: its background threads pause. For tests: no other thread may be using livegrad
    when the session changes. Tensors and compiled functions can be used in any session; their values stay theirs.
    """
    outer, inner = _switch.session, Session()
    for work in outer.background_work:
        work.suspend()
    _switch.to(inner)
    try:
        yield inner
    finally:
        _switch.to(outer)
        inner.close()
        for work in outer.background_work:
            work.resume()


class Memo(Generic[_P, _T]):
    """What `memo` makes of a function."""

    def __init__(self, function: Callable[_P, _T], maxsize: int) -> None:
        update_wrapper(self, function)
        self._results = Owned(lambda: lru_cache(maxsize)(function))

    def __call__(self, *arguments: _P.args, **named: _P.kwargs) -> _T:
        return self._results.current(*arguments, **named)

    @property
    def misses(self) -> int:
        """How often the function was called in this session."""
        return self._results.current.cache_info().misses


def memo(maxsize: int) -> Callable[[Callable[_P, _T]], Memo[_P, _T]]:
    """`functools.lru_cache` whose results belong to the session: for functions that make compiled code."""
    return lambda function: Memo(function, maxsize)


# --- forks ------------------------------------------------------------------------------------------------------------


class _ForkHooks:
    """What a child of a fork renews: locks that other threads held in the parent, and what belonged to threads.

    The data that a lock guards is consistent, because a fork happens between two instructions.
    """

    def __init__(self) -> None:
        self._locks: dict[tuple[int, str], tuple[weakref.ref[Any], Callable[[], Any]]] = {}  # by holder's id, attribute
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
    """In every child of a fork, `holder` (an object or a module) gets a fresh lock."""
    _fork_hooks.add_lock(holder, attribute, make)


def call_after_fork(holder: Any, name: str) -> None:
    """In every child of a fork, the method `name` of `holder` is called."""
    _fork_hooks.add_method(holder, name)


_switch = _Switch()
