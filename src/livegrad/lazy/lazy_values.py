"""Values of lazy nodes: input data, and cached results.

`tensors` holds nodes and provides data; `lazy.execution` computes values and decides which are cached.
"""

from __future__ import annotations

import math
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np

from livegrad.diagnostics import UsageError, caller_origin
from livegrad.ir.leaves import input_op
from livegrad.ir.node import Key, Node, make_unique_node
from livegrad.ir.types import Tensor, scalar_of_dtype
from livegrad.ir.walk import toposort
from livegrad.lazy.counts import count
from livegrad.state import Owned, renew_lock_after_fork

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


class Holder(Protocol):
    """The owner of a node whose value may be requested: the handle of a tensor."""

    _node: Node | None
    _deferred: Any  # what the node is made of when it is first asked for; None: it is made

    @property
    def requires_grad(self) -> bool: ...


NO_ANCESTORS: Mapping[weakref.ref[Any], int] = MappingProxyType({})


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
        self.changed = 0  # when it was last given other data, by `clock`
        self.ancestors: Mapping[weakref.ref[Leaf], int] = NO_ANCESTORS


class Claim(threading.Event):
    """Says that a thread computes some values; set when it has ended, with the values or without."""

    def __init__(self) -> None:
        super().__init__()
        self._owner = os.getpid(), threading.get_ident()

    def is_mine(self) -> bool:
        """Whether this thread computes them: then the request is reentrant, from a callback or a signal handler."""
        return self._owner == (os.getpid(), threading.get_ident())

    def must_be_awaited(self) -> bool:
        """Whether a thread of this process computes them; after a fork, only the forking thread exists."""
        return self._owner[0] == os.getpid() and not self.is_mine()


class Cell:
    """The memo slot of a node that was computed, or is being computed, or has several holders.

    `store` counts the value's bytes; `pending` is set while a thread computes it; `stamp` says up to which change of
    leaves it is good;
    `generation` counts the executions that the value is built on; `detached` is the leaf that its holders went on to,
    for graphs from before that still mean them; `leaves` are the data that it is built on, once that was asked for.
    """

    __slots__ = (
        "__weakref__",
        "companions",
        "cost",
        "detached",
        "device",
        "generation",
        "leaves",
        "more_holders",
        "pending",
        "stamp",
        "store",
        "value",
        "volatile",
    )

    def __init__(self) -> None:
        self.value: Value | None = None
        self.store: ValueStore | None = None
        self.pending: Claim | None = None
        self.detached: Node | None = None
        self.leaves: tuple[Leaf, ...] | None = None
        self.stamp, self.cost, self.volatile, self.generation, self.device = 0, 0.0, False, 0, "cpu"
        self.more_holders: Sequence[weakref.ref[Any]] = ()  # seldom: the same expression written twice
        self.companions: Sequence[weakref.ref[Any]] = ()  # seldom: who is computed together with this one

    def __del__(self) -> None:
        # A finalizer may run anywhere: it takes no lock.
        if self.value is not None and self.store is not None:
            self.store.valued.pop(id(self), None)
            self.store.dropped.append(self.value.nbytes)


FEW_WAITING = 4096


class ValueStore:
    """The cached values of a session and their budget, the holders that wait for values, and the lock for all cells."""

    def __init__(self) -> None:
        # Re-entrant: a collection while it is held may run code that makes tensors.
        self.lock = threading.RLock()
        renew_lock_after_fork(self, "lock", threading.RLock)
        # Who holds nodes that are not computed; the others are taken out when the list has doubled.
        self.waiting: list[weakref.ref[Any]] = []
        self.look_through_at = FEW_WAITING
        # Cells with values by their ids. A cell takes itself out when it goes.
        self.valued: dict[int, weakref.ref[Cell]] = {}
        self.dropped: deque[int] = deque()  # sizes of values that went with their cells
        self.cached_bytes = 0
        self.budget = _share_of_memory()


def _share_of_memory() -> int:
    """A quarter of the machine's memory."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4
    except (AttributeError, ValueError, OSError):  # not a POSIX system
        return 1 << 31


value_store = Owned(ValueStore)


class _Clock:
    """Counts how often leaves were given other data. For the process: cells and leaves may be used in any session."""

    __slots__ = ("now",)

    def __init__(self) -> None:
        self.now = 0


clock = _Clock()


# --- cells -----------------------------------------------------------------------------------------------------------


def cell_of(node: Node) -> Cell:
    """The memo slot of a node, created on the first call. The caller holds the lock."""
    if node.cell is None:
        node.cell = Cell()
    return node.cell


def reach(roots: Iterable[Node], ends: Callable[[Node], bool], most: int) -> tuple[list[Node], bool]:
    """The nodes below the roots in breadth-first order, down to those where `ends` holds; and whether these are all.

    The walk is bounded, because a growing graph must not be searched for every number that is read.
    """
    reached = dict.fromkeys(roots)
    queue = deque(reached)
    while queue:
        if len(reached) > most:
            return list(reached), False
        node = queue.popleft()
        if node.operands and not ends(node):
            fresh = [operand for operand in node.operands if operand not in reached]
            reached.update(dict.fromkeys(fresh))
            queue.extend(dict.fromkeys(fresh))
    return list(reached), True


def is_missing(node: Node) -> bool:
    """Whether a node has no value, and no thread computes it."""
    cell: Cell | None = node.cell
    return cell is None or (cell.value is None and cell.pending is None)


# --- leaves ----------------------------------------------------------------------------------------------------------


def leaf_node(array: Value, type: Tensor | None = None, *, external: bool = False) -> Node:
    """A node for data. The array is used as it is: dense, and not written to by anyone (unless it is external)."""
    leaf_type = type or Tensor(scalar_of_dtype(array.dtype), array.shape)
    return make_unique_node(input_op, (("key", Leaf(array, external=external)), ("type", leaf_type)), leaf_type)


def leaf_of(node: Node) -> Leaf | None:
    """The data of a leaf node; None for other nodes."""
    if node.op is not input_op:
        return None
    key = node.attributes[0][1]
    return key if isinstance(key, Leaf) else None


def read_leaf(leaf: Leaf) -> Value:
    """A leaf's data; an error when it was computed from data that has been replaced since."""
    if leaf.ancestors and _is_outdated(leaf):
        raise UsageError(
            "this tensor was computed from a tensor that has since been refilled, and can no longer be recomputed",
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
    with value_store.current.lock:
        clock.now += 1
        # Data of a device is replaced by data of that device.
        leaf.array = array if isinstance(leaf.array, np.ndarray) else type(leaf.array).from_host(array)  # type: ignore[attr-defined]
        leaf.changed = clock.now


# --- known values ----------------------------------------------------------------------------------------------------


def on_host(value: Value) -> Array:
    """The value as a host array; a device value is copied on the first request."""
    if isinstance(value, np.ndarray):
        return value
    if not value.is_on_host:
        count(copies_between_devices=1)
    return value.on_host


def cached_value(node: Node) -> Value | None:
    """A node's value if it is known and still good."""
    cell: Cell | None = node.cell
    if cell is None or cell.value is None or cell.volatile:
        return None
    if cell.stamp != clock.now and not _still_good(node, cell):
        forget(cell)
        return None
    return cell.value


def _still_good(node: Node, cell: Cell) -> bool:
    """Whether no leaf below was refilled since the value was computed.

    Checks all values below in one walk, because a walk for each of a thousand values would be slow.
    """
    now = clock.now  # before the walk: another thread may change a leaf that was already visited
    newest: dict[Node, float] = {}  # the last change of a leaf below
    for below in toposort([node]):
        leaf = leaf_of(below)
        if leaf is not None:
            newest[below] = math.inf if leaf.external or _is_outdated(leaf) else leaf.changed
        else:
            newest[below] = max((newest[operand] for operand in below.operands), default=0)
        inner: Cell | None = below.cell
        if inner is not None and inner is not cell and inner.value is not None and not inner.volatile:
            if newest[below] <= inner.stamp:
                inner.stamp = max(inner.stamp, now)
            else:
                forget(inner)
    if newest[node] > cell.stamp:
        return False
    cell.stamp = now
    return True


def keep(cell: Cell, value: Value, cost: float, *, volatile: bool, stamp: int) -> None:
    """Stores a computed value. The caller holds the lock."""
    if value.__class__ is np.ndarray:
        value.setflags(write=False)  # type: ignore[union-attr]
    if cell.value is not None and cell.store is not None:
        cell.store.cached_bytes -= cell.value.nbytes
        cell.store.valued.pop(id(cell), None)
    cell.store = store = value_store.current
    cell.value, cell.cost, cell.volatile, cell.stamp = value, cost, volatile, stamp
    store.valued[id(cell)] = weakref.ref(cell)
    store.cached_bytes += value.nbytes


def forget(cell: Cell) -> None:
    """Drops a value; it is computed again when it is next needed."""
    with value_store.current.lock:
        if cell.value is not None and cell.store is not None:
            cell.store.cached_bytes -= cell.value.nbytes
            cell.value = None
            cell.store.valued.pop(id(cell), None)


def changes() -> int:
    """How often leaves were given other data."""
    return clock.now
