"""The budget of cached values: which ones go when they take too much memory, and counts of what was done.

`lazy.execution` enforces the budget after each execution, and devices release values when they have no memory left.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from livegrad.diagnostics import UsageError, caller_origin
from livegrad.ir.node import Node
from livegrad.ir.types import Tensor
from livegrad.lazy.counts import all_counts, clear_counts, count
from livegrad.lazy.lazy_values import Cell, ValueStore, forget, value_store


def recomputation_costs(order: Sequence[Node], cached: Container[Node], kept: Container[Node]) -> dict[Node, float]:
    """A rough cost of recomputing each node from cached values."""
    costs: dict[Node, float] = {}
    for node in order:
        if node in cached:
            costs[node] = 0.0
            continue
        costs[node] = node_cost(node) + sum(costs[o] for o in node.operands if o not in kept)
    return costs


def node_cost(node: Node) -> float:
    """Roughly how many additions a node is worth."""
    return node.op.cost * (math.prod(node.type.shape) if isinstance(node.type, Tensor) else 1)  # type: ignore[arg-type]


def release_device_values() -> bool:
    """Drops computed values that lie on devices, which are computed again when they are needed; whether there were any.

    Asked for when a device has no memory left. What is in use at the moment stays in memory until its user has ended.
    """
    store = value_store.current
    with store.lock:
        cells = [cell for cell in valued_cells(store) if not isinstance(cell.value, np.ndarray)]
        for cell in cells:
            forget(cell)
        count(evictions=len(cells))
        return bool(cells)


def enforce_budget(spare: Iterable[Cell]) -> None:
    """Evicts the values that are cheapest to recompute per byte until the rest fits.

    Values that were just requested are not evicted, because their caller is about to read them.
    """
    store = value_store.current
    with store.lock:
        _count_dropped(store)
        if store.cached_bytes <= store.budget:
            return
        spared = set(map(id, spare))
        candidates = [cell for cell in valued_cells(store) if id(cell) not in spared]
        candidates.sort(key=lambda cell: cell.cost / max(1, cell.value.nbytes))  # type: ignore[union-attr]
        for cell in candidates:
            if store.cached_bytes <= store.budget:
                return
            forget(cell)
            count(evictions=1)


def valued_cells(store: ValueStore) -> list[Cell]:
    """The cells of a session that have values."""
    cells = [reference() for reference in list(store.valued.values())]
    return [cell for cell in cells if cell is not None and cell.value is not None]


def _count_dropped(store: ValueStore) -> None:
    while store.dropped:
        store.cached_bytes -= store.dropped.popleft()


def set_cache_budget(bytes: int) -> None:
    """Sets the maximum size of cached values in bytes. The default is a quarter of the machine's memory.

    >>> before = stats().bytes_budget
    >>> set_cache_budget(1 << 30)
    >>> stats().bytes_budget
    1073741824
    >>> set_cache_budget(before)
    """
    if isinstance(bytes, bool) or not isinstance(bytes, int) or bytes < 0:
        raise UsageError("invalid budget", where=caller_origin(), expected="a number of bytes", found=repr(bytes))
    value_store.current.budget = bytes
    enforce_budget(())


# --- counting --------------------------------------------------------------------------------------------------------


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


def count_shape_from_data() -> None:
    """Notes that something is computed early, because the shape of a result depends on its data."""
    count(shapes_from_data=1)


def stats() -> Stats:
    """Returns counts of what executions have done so far, and the size of the cache.

    >>> stats().bytes_budget > 0
    True
    """
    store = value_store.current
    with store.lock:
        _count_dropped(store)
        return Stats(**all_counts(), bytes_cached=store.cached_bytes, bytes_budget=store.budget)


def reset_stats() -> None:
    """Resets all counts. Cached values are kept.

    >>> reset_stats()
    >>> stats().executions
    0
    """
    clear_counts()
