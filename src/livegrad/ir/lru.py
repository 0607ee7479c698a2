"""An LRU dictionary, used by all bounded caches."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class LruCache(OrderedDict[K, V]):
    """A dictionary with a capacity, which evicts the least recently used entry.

    `get` and `[]` do not count as use; `use` and `keep` do. Callers that share a cache between threads hold a lock.

    >>> cache: LruCache[str, int] = LruCache(2)
    >>> _ = cache.keep("a", 1), cache.keep("b", 2), cache.use("a"), cache.keep("c", 3)
    >>> list(cache)
    ['a', 'c']
    """

    def __init__(self, capacity: int, on_evict: Callable[[V], Any] | None = None) -> None:
        super().__init__()
        self.capacity = capacity
        self._on_evict = on_evict  # called with each evicted value

    def use(self, key: K) -> V | None:
        """Returns the value of a key and marks it as most recently used; None if the key is absent."""
        value = self.get(key)
        if value is not None:
            self.move_to_end(key)
        return value

    def keep(self, key: K, value: V) -> V:
        """Stores a value as the most recently used and returns it."""
        self[key] = value
        self.move_to_end(key)
        while len(self) > self.capacity:
            _, oldest = self.popitem(last=False)
            if self._on_evict is not None:
                self._on_evict(oldest)
        return value
