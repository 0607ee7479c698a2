"""Evicts cached values to stay within a memory budget, and reports execution statistics.

`lazy.execution` enforces the budget after each execution; devices release values when they run out of memory.
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
from livegrad.lazy.lazy_values import Cell, ValueStore, drop_value, value_store


def recomputation_costs(order: Sequence[Node], cached: Container[Node], to_cache: Container[Node]) -> dict[Node, float]:
    """Estimates the cost of recomputing each node from cached values."""
    costs: dict[Node, float] = {}
    for node in order:
        if node in cached:
            costs[node] = 0.0
            continue
        costs[node] = node_cost(node) + sum(costs[o] for o in node.operands if o not in to_cache)
    return costs


def node_cost(node: Node) -> float:
    """Estimates the cost of a node in additions."""
    return node.op.cost * (math.prod(node.type.shape) if isinstance(node.type, Tensor) else 1)  # type: ignore[arg-type]


def release_device_values() -> bool:
    """Drops all computed values on devices and returns whether there were any. They are recomputed on demand.

    Called when a device runs out of memory. A value that is in use stays in memory until its user finishes.
    """
    store = value_store.current
    with store.lock:
        cells = [cell for cell in list_computed_cells(store) if not isinstance(cell.value, np.ndarray)]
        for cell in cells:
            drop_value(cell)
        count(evictions=len(cells))
        return bool(cells)


def enforce_budget(exempt: Iterable[Cell]) -> None:
    """Evicts the values that are cheapest to recompute per byte until the rest fits the budget.

    The `exempt` values were just requested and are not evicted, because their caller is about to read them.
    """
    store = value_store.current
    with store.lock:
        _subtract_dropped(store)
        if store.cached_bytes <= store.budget:
            return
        exempt_ids = set(map(id, exempt))
        candidates = [cell for cell in list_computed_cells(store) if id(cell) not in exempt_ids]
        candidates.sort(key=lambda cell: cell.cost / max(1, cell.value.nbytes))  # type: ignore[union-attr]
        for cell in candidates:
            if store.cached_bytes <= store.budget:
                return
            drop_value(cell)
            count(evictions=1)


def list_computed_cells(store: ValueStore) -> list[Cell]:
    """Returns the cells of a session that have values."""
    cells = [reference() for reference in list(store.computed_cells.values())]
    return [cell for cell in cells if cell is not None and cell.value is not None]


def _subtract_dropped(store: ValueStore) -> None:
    while store.dropped_sizes:
        store.cached_bytes -= store.dropped_sizes.popleft()


def set_cache_budget(bytes: int) -> None:
    """Sets the maximum size of cached values in bytes. The default is a quarter of the machine's memory.

    >>> before = stats().bytes_budget
    >>> set_cache_budget(1 << 30)
    >>> stats().bytes_budget
    1073741824
    >>> set_cache_budget(before)
    """
    if isinstance(bytes, bool) or not isinstance(bytes, int) or bytes < 0:
        raise UsageError("invalid cache budget", where=caller_origin(), expected="an integer ≥ 0", found=repr(bytes))
    value_store.current.budget = bytes
    enforce_budget(())


# --- counting --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Stats:
    """Counts of execution work since the start, or since `reset_stats`.

    >>> stats().kernels_run >= 0
    True
    """

    executions: int = 0  # calls that had something to compute
    programs_compiled: int = 0  # graphs of a new structure
    programs_reused: int = 0  # graphs whose structure has a cached program
    kernels_run: int = 0
    library_calls: int = 0  # steps that call NumPy or BLAS
    nodes_computed: int = 0
    cache_hits: int = 0  # cached values that an execution used
    evictions: int = 0
    copies_between_devices: int = 0
    parallel_groups: int = 0  # independent parts of graphs that ran in parallel
    shapes_from_data: int = 0  # values computed early because a result shape depends on them, such as masks
    bytes_cached: int = 0  # current
    bytes_budget: int = 0  # current


def count_shape_from_data() -> None:
    """Counts an early computation: the shape of a result depends on the computed data."""
    count(shapes_from_data=1)


def stats() -> Stats:
    """Returns execution counts and the size of the cache.

    >>> stats().bytes_budget > 0
    True
    """
    store = value_store.current
    with store.lock:
        _subtract_dropped(store)
        return Stats(**all_counts(), bytes_cached=store.cached_bytes, bytes_budget=store.budget)


def reset_stats() -> None:
    """Resets all counts. Cached values are kept.

    >>> reset_stats()
    >>> stats().executions
    0
    """
    clear_counts()
