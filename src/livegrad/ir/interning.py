"""Weak interning (hash consing): equal objects are the same object as long as it is referenced.

Types, nodes and context values are interned by keys made from their components.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from typing import Any, Generic, TypeVar

from livegrad.state import renew_lock_after_fork

_Object = TypeVar("_Object")
_Key = tuple[Any, ...]
_MAX_DEAD = 64  # entries of dead objects are dropped in batches, which takes the lock once


class Entry(weakref.ref[_Object], Generic[_Object]):
    """A weak reference that stores its key in the table."""

    __slots__ = ("key",)
    key: _Key


class InternTable(dict[_Key, Entry[_Object]]):
    """Objects by key. `get` returns a weak reference, or None; `enter` adds an object.

    >>> from livegrad.ir.types import f32
    >>> table = InternTable()
    >>> table.enter(("number", 32), f32) is table.get(("number", 32))()
    True
    """

    __slots__ = ("__weakref__", "_dead", "_note_dead", "lock")

    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.RLock()  # garbage collection under the lock may run code that enters objects
        renew_lock_after_fork(self, "lock", threading.RLock)
        # Callbacks run at any moment, even under the lock, so they only append to this queue; `enter` empties it.
        self._dead: deque[Entry[_Object]] = deque()
        self._note_dead = self._dead.append

    def enter(self, key: _Key, fresh: _Object) -> _Object:
        """Returns the interned object for a key: `fresh`, or an equal object that another thread entered first."""
        entry = Entry(fresh, self._note_dead)
        entry.key = key
        if len(self._dead) > _MAX_DEAD:
            self.clear_up()
        # `setdefault` is atomic and needs no lock. Entries are replaced and dropped under the lock.
        if self.setdefault(key, entry) is entry:
            return fresh
        with self.lock:  # common: keys contain addresses, which Python reuses
            existing = self.setdefault(key, entry)()
            if existing is not None:
                return existing
            self[key] = entry
            return fresh

    def clear_up(self) -> None:
        """Drops the entries of dead objects, because their keys may keep other objects alive."""
        with self.lock:
            while self._dead:
                dead = self._dead.popleft()
                if self.get(dead.key) is dead:  # not the entry of a newer object with the same key
                    del self[dead.key]
                del dead  # its key may keep a function alive, whose nodes this loop should drop too
