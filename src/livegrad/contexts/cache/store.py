"""The memo store: tables of results by key, limited in entries and bytes per table and in total, with LRU eviction.

`evaluate.py` reads `Table.slots` without a lock, records uses, and stores results with `MemoStore.put`. A thread claims
the key that it computes, so that other threads wait for the result and nothing is computed twice.
"""

from __future__ import annotations

import threading
import weakref
from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, replace
from itertools import count
from operator import itemgetter
from typing import Any
from weakref import WeakValueDictionary

from livegrad.contexts.cache.interned_values import Interned, clear_up
from livegrad.diagnostics import UsageError
from livegrad.state import renew_lock_after_fork


@dataclass(frozen=True)
class CacheLimits:
    """Limits of the cache, in total and per node.

    `variants` is the number of earlier runs that are stored for a node with scoped inputs, to compare new runs with.

    >>> CacheLimits(entries=10).node_entries
    65536
    """

    entries: int = 1 << 20
    bytes: int = 1 << 30
    node_entries: int = 1 << 16
    node_bytes: int = 1 << 30
    variants: int = 64

    def __post_init__(self) -> None:
        if min(self.entries, self.bytes, self.node_entries, self.node_bytes, self.variants) < 0:
            raise UsageError("cache limits cannot be negative", found=repr(self))


@dataclass
class Counts:
    """Statistics of one node.

    How often it was computed, found in the cache, reused because its inputs were equal, loaded from disk, or waited for
    in another thread; how many results were evicted; and the time that its function took.
    """

    computed: int = 0
    hits: int = 0
    reused: int = 0
    loaded: int = 0
    waited: int = 0
    evicted: int = 0
    seconds: float = 0.0


class Slot:
    """One result under one key. `payload` is additional data of the evaluator.

    Every use of a result is recorded: `slot.hits += 1; slot.used = store.tick()`. That takes no lock: Python switches
    threads only at calls and jumps, so no count is lost; of two concurrent ticks, either is correct.
    """

    __slots__ = ("__weakref__", "hits", "interned", "key", "payload", "table", "used")

    def __init__(self, table: Table, key: Any, interned: Interned | None, payload: Any, used: int) -> None:
        self.table, self.key, self.interned, self.payload, self.used = table, key, interned, payload, used
        self.hits = 0


class _EvictionQueue:
    """Slots in least-recently-used order, sorted on demand.

    A sorted list of all slots is consumed from the oldest end. Slots used after sorting are skipped; the others are
    older than these and than all newer slots. An exhausted list is sorted again, so the amortised cost per eviction is
    that of sorting.
    """

    __slots__ = ("_oldest_last",)

    def __init__(self) -> None:
        self._oldest_last: list[tuple[int, weakref.ref[Slot]]] = []

    def next(self, slots: Iterable[Slot], is_stored: Callable[[Slot], bool]) -> Slot:
        """The least recently used slot. There is at least one."""
        while True:
            while self._oldest_last:
                used, reference = self._oldest_last.pop()
                slot = reference()
                if slot is not None and slot.used == used and is_stored(slot):
                    return slot
            by_use = [(slot.used, weakref.ref(slot)) for slot in slots]
            self._oldest_last = sorted(by_use, key=itemgetter(0), reverse=True)


class Table:
    """The results of one node content. `slots` changes only under the store's lock."""

    __slots__ = ("__weakref__", "bytes", "counts", "name", "queue", "slots")

    def __init__(self, name: str) -> None:
        self.name = name
        self.slots: dict[Any, Slot] = {}
        self.queue = _EvictionQueue()
        self.bytes = 0
        self.counts = Counts()


class _Gate:
    """The lock and the claims on keys.

    A forked child gets a new gate, because the threads that hold claims do not exist there.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.done = threading.Condition(self.lock)
        self.waiting = 0
        self.claims: dict[tuple[Table, Any], object] = {}


class MemoStore:
    """All tables of a graph, with LRU order over all their results.

    >>> store = MemoStore(CacheLimits(entries=1))
    >>> table = store.table("square")
    >>> for number in (2, 3):
    ...     store.put(table, number, Interned(number * number, None))
    >>> [slot.interned.value for slot in table.slots.values()], table.counts.evicted
    ([9], 1)
    """

    def __init__(self, limits: CacheLimits | None = None) -> None:
        self.limits = limits or CacheLimits()
        self.bytes = 0
        self.on_evict: Callable[[Table], None] | None = None
        self._gate = _Gate()
        renew_lock_after_fork(self, "_gate", _Gate)
        self._slots: dict[Slot, None] = {}
        self._queue = _EvictionQueue()
        self._holders: Counter[Interned] = Counter()
        self._tables: WeakValueDictionary[Hashable, Table] = WeakValueDictionary()
        self.tick = count().__next__  # a logical clock that counts uses

    def __del__(self) -> None:
        # Slots and tables refer to each other. Breaking the cycles frees their values without a garbage collection.
        for slot in self._slots:
            slot.table.slots.clear()

    def table(self, content: Hashable, name: str = "") -> Table:
        """The table for this content. A table without a name reports no events."""
        with self._gate.lock:
            table = self._tables.get(content)
            if table is None:
                table = self._tables[content] = Table(name)
            return table

    @property
    def entries(self) -> int:
        return len(self._slots)

    # --- claims: one thread computes, the others wait ----------------------------------------------------------------

    def claim(self, table: Table, key: Any, owner: object, is_mine: Callable[[object], bool]) -> Slot | None:
        """Returns the result if another thread has computed it; otherwise claims the key for the owner.

        `is_mine` recognises claims that wait for the caller itself. Waiting for those would deadlock, so they raise an
        error.
        """
        claim_key = table, key
        waited = False
        gate = self._gate
        with gate.lock:
            while True:
                slot = table.slots.get(key)
                if slot is not None:
                    table.counts.waited += waited
                    return slot
                holder = gate.claims.get(claim_key)
                if holder is None:
                    gate.claims[claim_key] = owner
                    return None
                if is_mine(holder):
                    raise RecursionError(f"`{table.name}` needs its own result while it is being computed")
                waited = True
                gate.waiting += 1
                gate.done.wait()
                gate.waiting -= 1

    def release(self, table: Table, key: Any) -> None:
        """Releases a claim, whether or not a result was stored."""
        gate = self._gate
        with gate.lock:
            gate.claims.pop((table, key), None)
            if gate.waiting:
                gate.done.notify_all()

    # --- storage and eviction ----------------------------------------------------------------------------------------

    def put(self, table: Table, key: Any, interned: Interned | None, payload: Any = None) -> None:
        """Stores a result, and evicts results beyond the limits, possibly this one."""
        with self._gate.lock:
            if key in table.slots:
                self._remove(table.slots[key])
            count_before = len(self._slots)
            slot = table.slots[key] = Slot(table, key, interned, payload, self.tick())
            self._slots[slot] = None
            if interned is not None:
                table.bytes += interned.size
                if not self._holders[interned]:
                    self.bytes += interned.size
                self._holders[interned] += 1
            del slot
            self._evict(table)
            if len(self._slots) <= count_before:
                clear_up()

    def _evict(self, table: Table) -> None:
        limits, slots = self.limits, table.slots
        while len(slots) > limits.node_entries or (table.bytes > limits.node_bytes and slots):
            self._drop(table.queue.next(slots.values(), self._slots.__contains__))
        while len(self._slots) > limits.entries or (self.bytes > limits.bytes and self._slots):
            self._drop(self._queue.next(self._slots, self._slots.__contains__))

    def _drop(self, slot: Slot) -> None:
        self._remove(slot)
        slot.table.counts.evicted += 1
        if self.on_evict is not None and slot.table.name:
            self.on_evict(slot.table)

    def _remove(self, slot: Slot) -> None:
        table, interned = slot.table, slot.interned
        del table.slots[slot.key], self._slots[slot]
        table.counts.hits += slot.hits
        if interned is not None:
            table.bytes -= interned.size
            self._holders[interned] -= 1
            if not self._holders[interned]:
                del self._holders[interned]
                self.bytes -= interned.size

    def counts(self, table: Table) -> Counts:
        """Statistics of a table so far, including evicted results."""
        with self._gate.lock:
            current_hits = sum(slot.hits for slot in table.slots.values())
            return replace(table.counts, hits=table.counts.hits + current_hits)

    def forget(self) -> None:
        """Drops every result."""
        with self._gate.lock:
            while self._slots:
                self._remove(next(iter(self._slots)))
        clear_up()
