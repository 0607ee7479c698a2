"""An LRU dictionary, used by all bounded caches."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class LruCache(OrderedDict[K, V]):
    """At most so many entries; the least recently used one makes room for a new one.

    `get` and `[]` leave the order as it is, `use` does not. Callers that share one between threads hold a lock.

    >>> cache: LruCache[str, int] = LruCache(2)
    >>> _ = cache.keep("a", 1), cache.keep("b", 2), cache.use("a"), cache.keep("c", 3)
    >>> list(cache)
    ['a', 'c']
    """

    def __init__(self, most: int, dropped: Callable[[V], Any] | None = None) -> None:
        super().__init__()
        self.most = most
        self._dropped = dropped  # called with what had to make room

    def use(self, key: K) -> V | None:
        """The entry of a key, which is the last one used now; None if there is none."""
        value = self.get(key)
        if value is not None:
            self.move_to_end(key)
        return value

    def keep(self, key: K, value: V) -> V:
        """Puts an entry in, as the last one used, and gives it back."""
        self[key] = value
        self.move_to_end(key)
        while len(self) > self.most:
            _, oldest = self.popitem(last=False)
            if self._dropped is not None:
                self._dropped(oldest)
        return value
