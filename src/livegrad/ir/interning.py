"""Weak interning tables: equal objects are the same object while it is referenced.

Types, nodes and values of contexts are interned by the keys of their components.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from typing import Any, Generic, TypeVar

from livegrad.state import renew_lock_after_fork

_Object = TypeVar("_Object")
_Key = tuple[Any, ...]
_MAX_DEAD = 64  # entries of dead objects, dropped together: one lock instead of one for each


class Entry(weakref.ref[_Object], Generic[_Object]):
    """A weak reference that stores its key in the table."""

    __slots__ = ("key",)
    key: _Key


class InternTable(dict[_Key, Entry[_Object]]):
    """Objects by key. `get` returns an entry, which is empty once the object is gone; `enter` adds one.

    >>> from livegrad.ir.types import f32
    >>> table = InternTable()
    >>> table.enter(("number", 32), f32) is table.get(("number", 32))()
    True
    """

    __slots__ = ("__weakref__", "_dead", "_note_dead", "lock")

    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.RLock()  # a collection inside may run code that enters others
        renew_lock_after_fork(self, "lock", threading.RLock)
        # Callbacks run at any moment, also while the lock is held: they only append here, and `enter` clears up.
        self._dead: deque[Entry[_Object]] = deque()
        self._note_dead = self._dead.append

    def enter(self, key: _Key, fresh: _Object) -> _Object:
        """The interned object of the key: this one, or one that another thread has just entered."""
        entry = Entry(fresh, self._note_dead)
        entry.key = key
        if len(self._dead) > _MAX_DEAD:
            self.clear_up()
        # One step of the interpreter, so it needs no lock. Entries are replaced and dropped under the lock.
        if self.setdefault(key, entry) is entry:
            return fresh
        with self.lock:  # often: addresses are used again, and so are keys
            existing = self.setdefault(key, entry)()
            if existing is not None:
                return existing
            self[key] = entry
            return fresh

    def clear_up(self) -> None:
        """Drops the entries of objects that are gone, because their keys may keep other objects alive."""
        with self.lock:
            while self._dead:
                gone = self._dead.popleft()
                if self.get(gone.key) is gone:  # and not the entry of an object that replaced it
                    del self[gone.key]
                del gone  # its key may hold a function alive, whose nodes are to follow in this loop
