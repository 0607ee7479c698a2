"""The LRU cache evicts the least recently used entry."""

import random

from livegrad.ir.lru import LruCache


def test_the_cache_agrees_with_a_list_of_uses():
    chance = random.Random(0)
    dropped: list[int] = []
    cache: LruCache[int, int] = LruCache(5, dropped.append)
    uses: list[int] = []  # the keys that are in it, the last one used at the end
    for _ in range(2000):
        key = chance.randrange(9)
        if chance.random() < 0.5:
            assert cache.use(key) == (key * 10 if key in uses else None)
            if key in uses:
                uses.remove(key)
                uses.append(key)
        else:
            assert cache.keep(key, key * 10) == key * 10
            uses = [*(one for one in uses if one != key), key]
            gone, uses = uses[:-5], uses[-5:]
            assert dropped == [one * 10 for one in gone]
            dropped.clear()
        assert list(cache) == uses


def test_get_does_not_count_as_use():
    cache: LruCache[str, int] = LruCache(2)
    cache.keep("first", 1)
    cache.keep("second", 2)
    assert (cache.get("first"), cache["first"], "first" in cache) == (1, 1, True)
    cache.keep("third", 3)
    assert list(cache) == ["second", "third"]
