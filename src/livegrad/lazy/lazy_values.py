"""Stores the values of lazy nodes: input data in leaves, and cached results in memo slots.

`tensors` holds nodes and provides data; `lazy.execution` computes values and decides which to cache.
"""

from __future__ import annotations

import math
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np

from livegrad.diagnostics import UsageError, caller_origin
from livegrad.ir.leaves import input_op, parameter_op
from livegrad.ir.node import Key, Node, make_unique_node
from livegrad.ir.types import Tensor, scalar_of_dtype
from livegrad.ir.walk import toposort
from livegrad.lazy.counts import count
from livegrad.state import Owned, renew_lock_after_fork

Array = np.ndarray[Any, Any]


class DeviceValue(Protocol):
    """An array in device memory. Reading it copies it to the host."""

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

# After this many executions a value becomes a leaf. Otherwise an endless update loop would retain its whole graph.
MAX_GENERATIONS = 8
MAX_VISITED = 4000  # nodes visited in a search below pending tensors


class Holder(Protocol):
    """The owner of a node whose value may be requested: the handle of a tensor."""

    _node: Node | None
    _deferred: Any  # the source that creates the node on demand; None: the node exists

    @property
    def requires_grad(self) -> bool: ...


NO_ANCESTORS: Mapping[weakref.ref[Any], int] = MappingProxyType({})


class Leaf(Key):
    """Input data: the key of an input node, together with the array itself.

    The owner of `external` memory may change it at any time, so nothing computed from it is cached.
    `ancestors` are the leaves that detached data was computed from, with their change counts at that time. Several
    holders may share the same detached data. `has_descendants` says that such data were computed from this leaf.
    `stand_ins` are those of the computed value that this leaf replaces (see `Cell`).
    """

    __slots__ = ("ancestors", "array", "changed_at", "detached", "external", "has_descendants", "stand_ins")

    def __init__(self, array: Value, *, external: bool = False) -> None:
        self.name = "data"  # inlined from `Key`: this runs for every result of every call
        self.array: Value = array
        self.external, self.detached, self.has_descendants = external, False, False
        self.changed_at = 0  # the time on `clock` when the data was last replaced
        self.ancestors: Mapping[weakref.ref[Leaf], int] = NO_ANCESTORS
        self.stand_ins: tuple[Leaf, ...] = ()


class Claim(threading.Event):
    """Marks values that a thread is computing. The event is set when the thread ends, with or without the values."""

    def __init__(self) -> None:
        super().__init__()
        self._owner = os.getpid(), threading.get_ident()

    def is_mine(self) -> bool:
        """Whether this thread owns the claim: the request is then reentrant, from a callback or signal handler."""
        return self._owner == (os.getpid(), threading.get_ident())

    def must_be_awaited(self) -> bool:
        """Whether another thread of this process owns the claim; after a fork, only the forking thread exists."""
        return self._owner[0] == os.getpid() and not self.is_mine()


class Cell:
    """The memo slot of a node that was computed, is being computed, or has several holders.

    `store` counts the value's bytes. `claim` is set while a thread computes the value. The value is valid as long as no
    leaf below has changed after `stamp`. `generation` counts the executions that the value depends on. `detached` is
    the leaf that its holders moved to; older graphs still use the node. `leaves` caches the leaves that the value
    depends on. `stand_ins` are leaves without data among the ancestors of detached data that were computed from this
    value while a tensor held it: the tensor may become a variable, and the data then miss its gradient.
    """

    __slots__ = (
        "__weakref__",
        "claim",
        "companions",
        "cost",
        "detached",
        "device",
        "generation",
        "leaves",
        "more_holders",
        "stamp",
        "stand_ins",
        "store",
        "value",
        "volatile",
    )

    def __init__(self) -> None:
        self.value: Value | None = None
        self.store: ValueStore | None = None
        self.claim: Claim | None = None
        self.detached: Node | None = None
        self.leaves: tuple[Leaf, ...] | None = None
        self.stand_ins: tuple[Leaf, ...] = ()
        self.stamp, self.cost, self.volatile, self.generation, self.device = 0, 0.0, False, 0, "cpu"
        self.more_holders: Sequence[weakref.ref[Any]] = ()  # rare: the same expression written twice
        self.companions: Sequence[weakref.ref[Any]] = ()  # rare: holders whose values are computed together

    def __del__(self) -> None:
        # A finalizer may run anywhere, so it must not take a lock.
        if self.value is not None and self.store is not None:
            self.store.computed_cells.pop(id(self), None)
            self.store.dropped_sizes.append(self.value.nbytes)


MIN_WAITING = 4096


class ValueStore:
    """The cached values of a session and their budget, the holders that wait for values, and the lock for all cells."""

    def __init__(self) -> None:
        # Reentrant: garbage collection under the lock may run code that creates tensors.
        self.lock = threading.RLock()
        renew_lock_after_fork(self, "lock", threading.RLock)
        # Holders of nodes without values. Pruned when the list has doubled.
        self.waiting: list[weakref.ref[Any]] = []
        self.prune_at = MIN_WAITING
        # Cells with values, by id. A cell removes itself when it is collected.
        self.computed_cells: dict[int, weakref.ref[Cell]] = {}
        self.dropped_sizes: deque[int] = deque()  # sizes of values whose cells were collected
        self.cached_bytes = 0
        self.budget = _default_budget()


def _default_budget() -> int:
    """Returns a quarter of the machine's memory in bytes."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4
    except (AttributeError, ValueError, OSError):  # not a POSIX system
        return 1 << 31


value_store = Owned(ValueStore)


class _Clock:
    """Counts how often the data of leaves was replaced. Shared by all sessions, which may share cells and leaves."""

    __slots__ = ("now",)

    def __init__(self) -> None:
        self.now = 0


clock = _Clock()


# --- cells -----------------------------------------------------------------------------------------------------------


def cell_of(node: Node) -> Cell:
    """Returns the memo slot of a node, and creates it if necessary. The caller holds the lock."""
    if node.cell is None:
        node.cell = Cell()
    return node.cell


def reachable_nodes(roots: Iterable[Node], ends: Callable[[Node], bool], max_nodes: int) -> tuple[list[Node], bool]:
    """Returns the nodes below the roots in breadth-first order, down to nodes where `ends` holds.

    The walk stops after `max_nodes`, because reading a number must not search a whole growing graph. The second result
    says whether the walk is complete.
    """
    reached = dict.fromkeys(roots)
    queue = deque(reached)
    while queue:
        if len(reached) > max_nodes:
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
    return cell is None or (cell.value is None and cell.claim is None)


# --- leaves ----------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1024)  # types that nothing else keeps would be made for each array again
def _array_type(dtype: np.dtype[Any], shape: tuple[int, ...]) -> Tensor:
    return Tensor(scalar_of_dtype(dtype), shape)


def leaf_node(array: Value, type: Tensor | None = None, *, external: bool = False) -> Node:
    """Creates an input node for an array, without a copy. The array is dense and, unless external, never written to."""
    leaf_type = type or _array_type(array.dtype, array.shape)
    return make_unique_node(input_op, (("key", Leaf(array, external=external)), ("type", leaf_type)), leaf_type)


def leaf_of(node: Node) -> Leaf | None:
    """Returns the leaf of an input node with data; None for other nodes."""
    if node.op is not input_op:
        return None
    key = node.attributes[0][1]
    return key if isinstance(key, Leaf) else None


def read_leaf(leaf: Leaf) -> Value:
    """Returns a leaf's data; raises if the leaf was computed from data that has been replaced since."""
    if leaf.ancestors and _is_outdated(leaf):
        raise UsageError(
            "this tensor was computed from a tensor that has since been refilled, and can no longer be recomputed",
            where=caller_origin(),
            help="create a new tensor instead of calling fill on the old one",
        )
    return leaf.array


def _is_outdated(leaf: Leaf) -> bool:
    """Whether a leaf was computed from data that has been replaced since."""
    pairs = ((reference(), changed_at) for reference, changed_at in leaf.ancestors.items())
    return any(ancestor is not None and ancestor.changed_at > changed_at for ancestor, changed_at in pairs)


def replace_data(leaf: Leaf, array: Array) -> None:
    """Replaces the data of a leaf. Values computed from it are recomputed when they are next read."""
    with value_store.current.lock:
        clock.now += 1
        # Data on a device stays on that device.
        leaf.array = array if isinstance(leaf.array, np.ndarray) else type(leaf.array).from_host(array)  # type: ignore[attr-defined]
        leaf.changed_at = clock.now


# --- cached values ---------------------------------------------------------------------------------------------------


def on_host(value: Value) -> Array:
    """Returns the value as a host array; a device value is copied on the first request."""
    if isinstance(value, np.ndarray):
        return value
    if not value.is_on_host:
        count(copies_between_devices=1)
    return value.on_host


def cached_value(node: Node) -> Value | None:
    """Returns a node's value if it is cached and still valid, otherwise None. Drops an outdated value."""
    cell: Cell | None = node.cell
    if cell is None or cell.value is None or cell.volatile:
        return None
    if cell.stamp != clock.now and not _is_fresh(node, cell):
        drop_value(cell)
        return None
    return cell.value


def _is_fresh(node: Node, cell: Cell) -> bool:
    """Whether no leaf below was refilled since the value was computed.

    Checks all values below in one walk, because one walk for each of a thousand values would be slow.
    """
    now = clock.now  # before the walk: another thread may change a leaf that was already visited
    newest: dict[Node, float] = {}  # the time of the last change of a leaf below each node
    for below in toposort([node]):
        leaf = leaf_of(below)
        if leaf is not None:
            newest[below] = math.inf if leaf.external or _is_outdated(leaf) else leaf.changed_at
        else:
            newest[below] = max((newest[operand] for operand in below.operands), default=0)
        inner: Cell | None = below.cell
        if inner is not None and inner is not cell and inner.value is not None and not inner.volatile:
            if newest[below] <= inner.stamp:
                inner.stamp = max(inner.stamp, now)
            else:
                drop_value(inner)
    if newest[node] > cell.stamp:
        return False
    cell.stamp = now
    return True


def cache_value(cell: Cell, value: Value, cost: float, *, volatile: bool, stamp: int) -> None:
    """Caches a computed value. The caller holds the lock."""
    if value.__class__ is np.ndarray:
        value.setflags(write=False)  # type: ignore[union-attr]
    if cell.value is not None and cell.store is not None:
        cell.store.cached_bytes -= cell.value.nbytes
        cell.store.computed_cells.pop(id(cell), None)
    cell.store = store = value_store.current
    cell.value, cell.cost, cell.volatile, cell.stamp = value, cost, volatile, stamp
    store.computed_cells[id(cell)] = weakref.ref(cell)
    store.cached_bytes += value.nbytes


def drop_value(cell: Cell) -> None:
    """Drops a cached value; it is recomputed when it is next needed."""
    with value_store.current.lock:
        if cell.value is not None and cell.store is not None:
            cell.store.cached_bytes -= cell.value.nbytes
            cell.value = None
            cell.store.computed_cells.pop(id(cell), None)


def change_count() -> int:
    """Returns how often the data of leaves was replaced."""
    return clock.now


def is_traced(node: Node) -> bool:
    """Whether the value depends on an argument of a function that is being traced."""
    leaves = (below for below in toposort([node]) if below.op in (input_op, parameter_op))
    return any(leaf_of(leaf) is None for leaf in leaves)
