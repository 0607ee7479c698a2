"""Tracks the tensor handles that hold lazy nodes: values of held nodes are cached.

`tensors` registers handles. `lazy.execution` queries which nodes are held, which handles wait for values, and which
nodes are computed together.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from typing import Any

from livegrad.ir.node import Node
from livegrad.lazy.lazy_values import MIN_WAITING, Cell, Holder, cell_of, is_missing, value_store


def register_holder(node: Node, holder: Holder) -> None:
    """Registers a holder of the node, so that its value is cached.

    The first holder of a node takes no lock, because every operation registers one. If two threads register at the same
    moment, one registration may be lost: the value is then recomputed instead of cached.
    """
    reference = weakref.ref(holder)
    first = node.holder
    if first is None or first() is None:
        node.holder = reference
    elif first is not reference:
        with value_store.current.lock:
            cell = cell_of(node)
            more = cell.more_holders
            # Pruned only when the length has doubled, so a thousand handles on one node take linear time.
            if len(more) & (len(more) - 1) == 0:
                more = cell.more_holders = [existing for existing in more if existing() is not None]
            more.append(reference)  # type: ignore[union-attr]
    if node.operands:
        register_waiting(reference)


def register_waiting(reference: weakref.ref[Any]) -> None:
    """Registers a holder of a node without a value."""
    store = value_store.current
    store.waiting.append(reference)
    if len(store.waiting) >= store.prune_at:
        with store.lock:
            _prune_waiting(store.waiting, 0)
            store.prune_at = max(MIN_WAITING, 2 * len(store.waiting))


def _prune_waiting(waiting: list[weakref.ref[Any]], start: int) -> list[weakref.ref[Any]]:
    """Removes holders that no longer wait, from index `start` on, and returns the rest of that part.

    Other threads append without the lock, so entries that arrive during the call are left alone.
    """
    end = len(waiting)
    remaining = waiting[start:end] = [reference for reference in waiting[start:end] if _is_waiting(reference())]
    return remaining


def waiting_holders(max_entries: int = 1000) -> list[Any]:
    """Returns the holders of nodes without values, latest first, among the last `max_entries` registrations."""
    store = value_store.current
    with store.lock:
        # Every execution comes here; pruning keeps the searched part short.
        latest = _prune_waiting(store.waiting, max(0, len(store.waiting) - max_entries))
    holders = {id(holder): holder for reference in reversed(latest) if (holder := reference()) is not None}
    return [holder for holder in holders.values() if not _is_claimed(holder)]


def _is_waiting(holder: Holder | None) -> bool:
    """Whether a holder has a node without a value. A thread may be computing the value, and may fail."""
    if holder is None:
        return False
    if holder._deferred is not None:
        # An element waits for the value that it is part of; creating its node here would register it again.
        return holder._deferred[1] is not None
    node = holder._node
    if node is None or not node.operands:
        return False
    cell: Cell | None = node.cell
    return cell is None or cell.value is None


def _is_claimed(holder: Holder) -> bool:
    if holder._deferred is not None:
        return False
    cell: Cell | None = None if holder._node is None else holder._node.cell
    return cell is not None and cell.claim is not None


def holders_of(node: Node) -> Iterator[Any]:
    """Yields the current holders of the node."""
    if node.holder is None:
        return
    cell: Cell | None = node.cell
    references = (node.holder,) if cell is None else (node.holder, *cell.more_holders)
    detached = None if cell is None else cell.detached
    for reference in references:
        holder = reference()
        if holder is not None and (holder._node is node or (detached is not None and holder._node is detached)):
            yield holder


def is_held(node: Node) -> bool:
    """Whether a tensor holds the node."""
    if node.holder is None:
        return False
    holder = node.holder()
    return (holder is not None and holder._node is node) or next(holders_of(node), None) is not None


def compute_together(holders: Iterable[Any]) -> None:
    """Marks values that share most of their work: reading one of them computes all that are still held."""
    references = [weakref.ref(holder) for holder in holders]
    with value_store.current.lock:
        for reference in references:
            holder = reference()
            if holder is not None and holder._node is not None:
                cell_of(holder._node).companions = references


def missing_companions(node: Node) -> list[Node]:
    """Returns the nodes to compute together with a node: held, without a value, and not claimed."""
    cell: Cell | None = node.cell
    holders = [reference() for reference in cell.companions] if cell is not None else []
    nodes = [holder._node for holder in holders if holder is not None and holder._node is not None]
    return [companion for companion in nodes if companion is not node and is_missing(companion)]
