"""Who holds lazy nodes: whose values are kept, which of them wait for a value, and which are computed together.

`tensors` registers handles; `lazy.execution` asks for those that wait.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from typing import Any

from livegrad.ir.node import Node
from livegrad.lazy.lazy_values import FEW_WAITING, Cell, Holder, cell_of, is_missing, value_store


def hold(node: Node, holder: Holder) -> None:
    """Registers a holder of the node, so that its value is cached.

    The first holder of a node takes no lock, as every operation makes one. If two threads come at the same moment, one
    of the two may not be known: its value is then computed again where it could have been cached.
    """
    reference = weakref.ref(holder)
    first = node.holder
    if first is None or first() is None:
        node.holder = reference
    elif first is not reference:
        with value_store.current.lock:
            cell = cell_of(node)
            more = cell.more_holders
            # Looked through only when their number has doubled: a thousand handles on one node cost no million steps.
            if len(more) & (len(more) - 1) == 0:
                more = cell.more_holders = [other for other in more if other() is not None]
            more.append(reference)  # type: ignore[union-attr]
    if node.operands:
        note_waiting(reference)


def note_waiting(reference: weakref.ref[Any]) -> None:
    """Registers a holder of a node without a value."""
    store = value_store.current
    store.waiting.append(reference)
    if len(store.waiting) >= store.look_through_at:
        with store.lock:
            _look_through(store.waiting, 0)
            store.look_through_at = max(FEW_WAITING, 2 * len(store.waiting))


def _look_through(waiting: list[weakref.ref[Any]], start: int) -> list[weakref.ref[Any]]:
    """Takes out those who do not wait any more, from `start` on, and gives the others.

    Others may append meanwhile, who take no lock: what lies behind the present end stays.
    """
    end = len(waiting)
    left = waiting[start:end] = [reference for reference in waiting[start:end] if _waits(reference())]
    return left


def waiting_holders(most: int = 1000) -> list[Any]:
    """Who holds nodes that nobody has computed: the latest first, of a bounded number of whom there were."""
    store = value_store.current
    with store.lock:
        # Asked for by every execution, so those who are done go: what is looked at stays short.
        latest = _look_through(store.waiting, max(0, len(store.waiting) - most))
    holders = {id(holder): holder for reference in reversed(latest) if (holder := reference()) is not None}
    return [holder for holder in holders.values() if not _is_pending(holder)]


def _waits(holder: Holder | None) -> bool:
    """Whether the program holds a node without a value; a thread may be computing it, and may fail."""
    if holder is None:
        return False
    if holder._deferred is not None:
        return True  # for the value that it is a part of; to make its node here would register it again
    node = holder._node
    if node is None or not node.operands:
        return False
    cell: Cell | None = node.cell
    return cell is None or cell.value is None


def _is_pending(holder: Holder) -> bool:
    if holder._deferred is not None:
        return False
    cell: Cell | None = None if holder._node is None else holder._node.cell
    return cell is not None and cell.pending is not None


def holders_of(node: Node) -> Iterator[Any]:
    """Everyone who holds the node now."""
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
    """Whether anyone holds the node."""
    if node.holder is None:
        return False
    holder = node.holder()
    return (holder is not None and holder._node is node) or next(holders_of(node), None) is not None


def compute_together(holders: Iterable[Any]) -> None:
    """Notes that values share most of their work: whoever asks for one of them has all computed that are held then."""
    references = [weakref.ref(holder) for holder in holders]
    with value_store.current.lock:
        for reference in references:
            holder = reference()
            if holder is not None and holder._node is not None:
                cell_of(holder._node).companions = references


def missing_companions(node: Node) -> list[Node]:
    """What is computed together with a node, still held, and neither known nor under way."""
    cell: Cell | None = node.cell
    holders = [reference() for reference in cell.companions] if cell is not None else []
    nodes = [holder._node for holder in holders if holder is not None and holder._node is not None]
    return [other for other in nodes if other is not node and is_missing(other)]
