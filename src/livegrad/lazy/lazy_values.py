"""Values of lazy nodes: input data, and cached results.

`tensors` holds nodes and provides data; `lazy.execution` computes values and decides which are cached.
"""

from __future__ import annotations

import math
import os
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np

from livegrad.diagnostics import UsageError, caller_origin
from livegrad.ir.leaves import input_op
from livegrad.ir.node import Key, Node, make_unique_node
from livegrad.ir.types import Tensor, scalar_of_dtype
from livegrad.ir.walk import toposort
from livegrad.lazy.counts import all_counts, clear_counts, count
from livegrad.runtime.fork import renew_lock_after_fork

Array = np.ndarray[Any, Any]


class DeviceValue(Protocol):
    """An array on a device, which stays there until it is read."""

    @property
    def dtype(self) -> Any: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def device(self) -> str: ...
    @property
    def is_on_host(self) -> bool: ...
    @property
    def on_host(self) -> Array: ...


Value = Array | DeviceValue

# A value built on that many executions stands by itself from then on: a loop that updates its tensors for ever would
# otherwise remember every step it ever made.
MOST_GENERATIONS = 8
MOST_LOOKED_AT = 4000  # nodes that wait, for what they are built on

# Re-entrant: a collection while it is held may run code that makes tensors.
lock = threading.RLock()
renew_lock_after_fork(sys.modules[__name__], "lock", threading.RLock)


class Holder(Protocol):
    """Whoever can ask for a node's value: a tensor's handle."""

    _node: Node | None

    @property
    def requires_grad(self) -> bool: ...


_NO_ANCESTORS: Mapping[weakref.ref[Any], int] = MappingProxyType({})


class Leaf(Key):
    """Data given from outside: the key of an input node, together with the array itself.

    The owner of `external` memory may change it at any time, so nothing computed from it is cached.
    `ancestors` are the leaves that detached data was computed from, with their change counts of that time; several
    holders may have the same detached data.
    """

    __slots__ = ("ancestors", "array", "changed", "detached", "external")

    def __init__(self, array: Value, *, external: bool = False) -> None:
        self.name = "data"  # what Key does, written out: every result of every call comes by here
        self.array: Value = array
        self.external, self.detached = external, False
        self.changed = 0  # when it was last given other data, in the count of `_changes`
        self.ancestors: Mapping[weakref.ref[Leaf], int] = _NO_ANCESTORS


class Claim(threading.Event):
    """Says that a thread computes some values; set when it has ended, with the values or without."""

    def __init__(self) -> None:
        super().__init__()
        self._owner = os.getpid(), threading.get_ident()

    def is_own(self) -> bool:
        """Whether this thread computes them: then it asked again on the way, in a callback or a signal's handler."""
        return self._owner == (os.getpid(), threading.get_ident())

    def must_be_awaited(self) -> bool:
        """Whether a thread of this process computes them; after a fork, only the forking thread exists."""
        return self._owner[0] == os.getpid() and not self.is_own()


class Cell:
    """The memo slot of a node that the program holds or held.

    `pending` is set while a thread computes the value; `stamp` says up to which change of leaves the value is good;
    `generation` counts the executions that the value is built on; `detached` is the leaf that its holders went on to,
    for graphs from before that still mean them.
    """

    __slots__ = (
        "__weakref__",
        "companions",
        "cost",
        "detached",
        "device",
        "generation",
        "holder",
        "more_holders",
        "pending",
        "stamp",
        "value",
        "volatile",
    )

    def __init__(self) -> None:
        self.value: Value | None = None
        self.pending: Claim | None = None
        self.detached: Node | None = None
        self.stamp, self.cost, self.volatile, self.generation, self.device = 0, 0.0, False, 0, "cpu"
        self.holder: weakref.ref[Any] | None = None
        self.more_holders: Sequence[weakref.ref[Any]] = ()  # seldom: the same expression written twice
        self.companions: Sequence[weakref.ref[Any]] = ()  # seldom: who is computed together with this one

    def __del__(self) -> None:
        # A finalizer may run anywhere: it takes no lock, and when Python ends this module's names may be gone.
        if self.value is not None and _dropped is not None:
            _dropped.append(self.value.nbytes)


@dataclass(frozen=True)
class Stats:
    """What has been done since the start, or since `reset_stats`.

    >>> stats().kernels_run >= 0
    True
    """

    executions: int = 0  # calls that had something to compute
    programs_compiled: int = 0  # graphs of a new structure
    programs_reused: int = 0  # graphs whose structure was known
    kernels_run: int = 0
    library_calls: int = 0  # steps handed to NumPy or BLAS
    nodes_computed: int = 0
    cache_hits: int = 0  # values that an execution found already computed
    evictions: int = 0
    copies_between_devices: int = 0
    parallel_groups: int = 0  # parts of graphs that were run at the same time as others
    shapes_from_data: int = 0  # masks, repetitions and the like that were computed because a shape depends on them
    bytes_cached: int = 0  # now
    bytes_budget: int = 0  # now


_FEW_WAITING = 4096
# Who holds nodes that are not computed; those that are, or are gone, are taken out when there are twice as many.
_waiting: list[weakref.ref[Any]] = []
_look_through_at = _FEW_WAITING
_valued: weakref.WeakSet[Cell] = weakref.WeakSet()
_dropped: deque[int] = deque()
_changes = 0
_cached_bytes = 0


def _share_of_memory() -> int:
    """A quarter of the machine's memory."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4
    except (AttributeError, ValueError, OSError):  # not a POSIX system
        return 1 << 31


_budget = _share_of_memory()


# --- holders ---------------------------------------------------------------------------------------------------------


def hold(node: Node, holder: Holder) -> None:
    """Registers a holder of the node, so that its value is cached."""
    cell = node.cell
    if cell is None:
        with lock:
            cell = node.cell
            if cell is None:
                cell = Cell()
                cell.holder = _noted(node, holder)
                node.cell = cell
                return
    with lock:
        known = cell.holder
        if known is not None and known() is not None:
            more = cell.more_holders
            # Looked through only when their number has doubled: a thousand handles on one node cost no million steps.
            if len(more) & (len(more) - 1) == 0:
                more = cell.more_holders = [other for other in more if other() is not None]
            more.append(_noted(node, holder))  # type: ignore[union-attr]
        else:
            cell.holder = _noted(node, holder)


def _noted(node: Node, holder: Holder) -> weakref.ref[Any]:
    global _look_through_at
    reference = weakref.ref(holder)
    if node.operands:
        _waiting.append(reference)
        if len(_waiting) >= _look_through_at:
            _waiting[:] = [own for own in _waiting if _waits(own())]
            _look_through_at = max(_FEW_WAITING, 2 * len(_waiting))
    return reference


def waiting_holders(most: int = 1000) -> list[Any]:
    """Who holds nodes that nobody has computed: the latest first, of a bounded number of whom there were."""
    with lock:
        # Asked for by every execution, so those who are done go: what is looked at stays short.
        latest = _waiting[-most:] = [own for own in _waiting[-most:] if _waits(own())]
    holders = {id(holder): holder for reference in reversed(latest) if (holder := reference()) is not None}
    return [holder for holder in holders.values() if not _is_pending(holder)]


def reach(roots: Iterable[Node], ends: Callable[[Node], bool], most: int) -> tuple[list[Node], bool]:
    """The nodes below some roots, the nearest first, no further than where `ends` holds; and whether those are all.

    A graph that only grows must not be looked through for every number that is read: there is a limit.
    """
    found = dict.fromkeys(roots)
    queue = deque(found)
    while queue:
        if len(found) > most:
            return list(found), False
        node = queue.popleft()
        if node.operands and not ends(node):
            fresh = [operand for operand in node.operands if operand not in found]
            found.update(dict.fromkeys(fresh))
            queue.extend(dict.fromkeys(fresh))
    return list(found), True


def _waits(holder: Holder | None) -> bool:
    """Whether the program holds a node without a value; a thread may be computing it, and may fail."""
    node = None if holder is None else holder._node
    if node is None or not node.operands:
        return False
    cell: Cell | None = node.cell
    return cell is None or cell.value is None


def _is_pending(holder: Holder) -> bool:
    cell: Cell | None = None if holder._node is None else holder._node.cell
    return cell is not None and cell.pending is not None


def holders_of(node: Node) -> Iterator[Any]:
    """Everyone who holds the node now."""
    cell: Cell | None = node.cell
    if cell is None or cell.holder is None:
        return
    for reference in (cell.holder, *cell.more_holders):
        holder = reference()
        if holder is not None and (
            holder._node is node or (cell.detached is not None and holder._node is cell.detached)
        ):
            yield holder


def is_held(node: Node) -> bool:
    """Whether anyone holds the node."""
    return next(holders_of(node), None) is not None


def compute_together(holders: Iterable[Any]) -> None:
    """Notes that values share most of their work: whoever asks for one of them has all computed that are held then."""
    references = [weakref.ref(holder) for holder in holders]
    with lock:
        for reference in references:
            holder = reference()
            if holder is not None and holder._node is not None:
                holder._node.cell.companions = references


def missing_companions(node: Node) -> list[Node]:
    """What is computed together with a node, still held, and neither known nor under way."""
    cell: Cell | None = node.cell
    holders = [reference() for reference in cell.companions] if cell is not None else []
    nodes = [holder._node for holder in holders if holder is not None and holder._node is not None]
    return [other for other in nodes if other is not node and other.cell.value is None and other.cell.pending is None]


# --- leaves ----------------------------------------------------------------------------------------------------------


def leaf_node(array: Value, type: Tensor | None = None, *, external: bool = False) -> Node:
    """A node for data. The array is used as it is: dense, and not written to by anyone (unless it is external)."""
    known = type or Tensor(scalar_of_dtype(array.dtype), array.shape)
    return make_unique_node(input_op, (("key", Leaf(array, external=external)), ("type", known)), known)


def leaf_of(node: Node) -> Leaf | None:
    """The data behind a node, when it is a leaf with data."""
    if node.op is not input_op:
        return None
    key = node.attributes[0][1]
    return key if isinstance(key, Leaf) else None


def read_leaf(leaf: Leaf) -> Value:
    """A leaf's data; an error when it was computed from data that has been replaced since."""
    if leaf.ancestors and _is_outdated(leaf):
        raise UsageError(
            "this tensor was computed from a tensor that was refilled since, and can no longer be recomputed",
            where=caller_origin(),
            help="make a new tensor instead of calling fill on the old one",
        )
    return leaf.array


def _is_outdated(leaf: Leaf) -> bool:
    """Whether data was computed from other data that has been replaced since."""
    pairs = ((reference(), changed) for reference, changed in leaf.ancestors.items())
    return any(ancestor is not None and ancestor.changed > changed for ancestor, changed in pairs)


def replace_data(leaf: Leaf, array: Array) -> None:
    """Replaces the data of a leaf. Values computed from it are recomputed when they are next read."""
    global _changes
    with lock:
        _changes += 1
        # Data of a device is replaced by data of that device.
        leaf.array = array if isinstance(leaf.array, np.ndarray) else type(leaf.array).from_host(array)  # type: ignore[attr-defined]
        leaf.changed = _changes


# --- known values ----------------------------------------------------------------------------------------------------


def on_host(value: Value) -> Array:
    """The value as an array of the host; of one that lies on a device the copy, made when it is first asked for."""
    if isinstance(value, np.ndarray):
        return value
    if not value.is_on_host:
        count(copies_between_devices=1)
    return value.on_host


def known_value(node: Node) -> Value | None:
    """A node's value if it is known and still good."""
    cell: Cell | None = node.cell
    if cell is None or cell.value is None or cell.volatile:
        return None
    if cell.stamp != _changes and not _still_good(node, cell):
        forget(cell)
        return None
    return cell.value


def _still_good(node: Node, cell: Cell) -> bool:
    """Whether no leaf below has been given other data since the value was computed.

    Found for all values below at once: asked for each of a thousand values, it would be a walk for each.
    """
    now = _changes  # before the walk: another thread may change a leaf behind it
    newest: dict[Node, float] = {}  # the last change of a leaf below
    for below in toposort([node]):
        leaf = leaf_of(below)
        if leaf is not None:
            newest[below] = math.inf if leaf.external or _is_outdated(leaf) else leaf.changed
        else:
            newest[below] = max((newest[operand] for operand in below.operands), default=0)
        own: Cell | None = below.cell
        if own is not None and own is not cell and own.value is not None and not own.volatile:
            if newest[below] <= own.stamp:
                own.stamp = max(own.stamp, now)
            else:
                forget(own)
    if newest[node] > cell.stamp:
        return False
    cell.stamp = now
    return True


def keep(cell: Cell, value: Value, cost: float, *, volatile: bool, stamp: int) -> None:
    """Stores a computed value. The caller holds the lock."""
    global _cached_bytes
    if isinstance(value, np.ndarray):
        value.setflags(write=False)
    if cell.value is not None:
        _cached_bytes -= cell.value.nbytes
    cell.value, cell.cost, cell.volatile, cell.stamp = value, cost, volatile, stamp
    _valued.add(cell)
    _cached_bytes += value.nbytes


def forget(cell: Cell) -> None:
    """Drops a value; it is computed again when it is next needed."""
    global _cached_bytes
    with lock:
        if cell.value is not None:
            _cached_bytes -= cell.value.nbytes
            cell.value = None
            _valued.discard(cell)


def release_device_values() -> bool:
    """Drops computed values that lie on devices, which are computed again when they are needed; whether there were any.

    Asked for when a device has no memory left. What is in use at the moment stays in memory until its user has ended.
    """
    with lock:
        found = [cell for cell in _valued if cell.value is not None and not isinstance(cell.value, np.ndarray)]
        for cell in found:
            forget(cell)
        count(evictions=len(found))
        return bool(found)


def enforce_budget(spare: Iterable[Cell]) -> None:
    """Evicts the values that are cheapest to recompute per byte until the rest fits.

    Values that were just requested are not evicted, because their caller is about to read them.
    """
    with lock:
        _count_dropped()
        if _cached_bytes <= _budget:
            return
        spared = set(map(id, spare))
        candidates = [cell for cell in _valued if cell.value is not None and id(cell) not in spared]
        candidates.sort(key=lambda cell: cell.cost / max(1, cell.value.nbytes))  # type: ignore[union-attr]
        for cell in candidates:
            if _cached_bytes <= _budget:
                return
            forget(cell)
            count(evictions=1)


def _count_dropped() -> None:
    global _cached_bytes
    while _dropped:
        _cached_bytes -= _dropped.popleft()


def changes() -> int:
    """How often leaves were given other data."""
    return _changes


def set_cache_budget(bytes: int) -> None:
    """Sets the maximum size of cached values in bytes. The default is a quarter of the machine's memory.

    >>> before = stats().bytes_budget
    >>> set_cache_budget(1 << 30)
    >>> stats().bytes_budget
    1073741824
    >>> set_cache_budget(before)
    """
    global _budget
    if isinstance(bytes, bool) or not isinstance(bytes, int) or bytes < 0:
        raise UsageError("not a budget", where=caller_origin(), expected="a number of bytes", found=repr(bytes))
    _budget = bytes
    enforce_budget(())


# --- counting --------------------------------------------------------------------------------------------------------


def count_shape_from_data() -> None:
    """Notes that something is computed early, because the shape of a result depends on its data."""
    count(shapes_from_data=1)


def stats() -> Stats:
    """Returns counts of what executions have done so far, and the size of the cache.

    >>> stats().bytes_budget > 0
    True
    """
    with lock:
        _count_dropped()
        return Stats(**all_counts(), bytes_cached=_cached_bytes, bytes_budget=_budget)


def reset_stats() -> None:
    """Resets all counts. Cached values are kept.

    >>> reset_stats()
    >>> stats().executions
    0
    """
    clear_counts()
