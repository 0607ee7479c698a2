"""Weak interning tables: equal objects are the same object while it is referenced.

Types and nodes are interned by the keys of their components.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from typing import Any, Generic, TypeVar

from livegrad.state import renew_lock_after_fork

_Object = TypeVar("_Object")
_Key = tuple[Any, ...]


class Entry(weakref.ref[_Object], Generic[_Object]):
    """A weak reference that knows its place in the table."""

    __slots__ = ("key",)
    key: _Key


class InternTable(dict[_Key, Entry[_Object]]):
    """Objects by key. `get` gives an entry, which is empty once nobody holds the object; `enter` adds one.

    >>> from livegrad.ir.types import f32
    >>> table = InternTable()
    >>> table.enter(("number", 32), f32) is table.get(("number", 32))()
    True
    """

    __slots__ = ("__weakref__", "_dead", "lock")

    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.RLock()  # a collection inside may run code that enters others
        renew_lock_after_fork(self, "lock", threading.RLock)
        # Callbacks run at any moment, also while the lock is held: they only append here, and `enter` clears up.
        self._dead: deque[Entry[_Object]] = deque()

    def enter(self, key: _Key, fresh: _Object) -> _Object:
        """The object that the key stands for from now on: this one, or one that another thread has just entered."""
        with self.lock:
            if self._dead:
                self.clear_up()
            made = Entry(fresh, self._dead.append)
            made.key = key
            entry = self.setdefault(key, made)
            known = entry()
            if known is None:
                self[key] = made
                return fresh
            return known

    def clear_up(self) -> None:
        """Drops the entries of objects that are gone: their keys may hold others."""
        with self.lock:
            while self._dead:
                gone = self._dead.popleft()
                entry = self.pop(gone.key, gone)
                if entry is not gone:
                    self[gone.key] = entry  # of an object that took its place
                del gone, entry  # its key may hold a function alive, whose nodes are to follow in this loop
