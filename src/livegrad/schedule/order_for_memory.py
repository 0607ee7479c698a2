"""Greedy list scheduling of groups for memory: a ready group that frees memory runs first.

The pass `order_for_memory` calls `sort_for_memory` after fusion. Gradients need it: the factors of a weight's gradient
can be freed as soon as the gradient is computed, and would otherwise all live until the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heappop, heappush
from math import prod

from livegrad.ir.node import Node
from livegrad.ir.symbolic_size import hint_of
from livegrad.ir.types import Tensor, scalar_of
from livegrad.ops.movement import sizes
from livegrad.schedule.fuse import Group
from livegrad.schedule.materialise import Roots


def sort_for_memory(groups: Sequence[Group], roots: Roots, results: Iterable[Node]) -> list[Group]:
    """Sorts groups topologically: groups that free memory first, the others in their given order."""
    memory = _Memory(groups, roots, results)
    waiting = {group: len(group.needs) for group in groups}
    users: dict[Group, list[Group]] = {group: [] for group in groups}
    for group in groups:
        for other in group.needs:
            users[other].append(group)
    position = {group: index for index, group in enumerate(groups)}
    ready: list[tuple[int, int]] = []

    def push_ready(group: Group) -> None:
        growth = memory.growth(group)
        heappush(ready, (growth if growth <= 0 else 1, position[group]))

    for group in groups:
        if not waiting[group]:
            push_ready(group)
    order: list[Group] = []
    done: set[Group] = set()
    while ready:
        group = groups[heappop(ready)[1]]
        if group in done:
            continue  # it was pushed again when it became the last reader of a value
        done.add(group)
        order.append(group)
        for last_reader in memory.run(group):
            if not waiting[last_reader] and last_reader not in done:
                push_ready(last_reader)
        for user in users[group]:
            waiting[user] -= 1
            if not waiting[user]:
                push_ready(user)
    return order


class _Memory:
    """The bytes that each group allocates, and the remaining readers of each value."""

    def __init__(self, groups: Sequence[Group], roots: Roots, results: Iterable[Node]) -> None:
        self._base: dict[Node, Node] = {}
        for root, kind in roots.items():
            (source,) = root.operands[:1] if kind == "view" else (root,)
            self._base[root] = self._base.get(source, source)
        returned = {self._base.get(node, node) for node in results}
        self._bytes = {root: 0 if root in returned else _bytes(root) for root in roots}
        self._reads: dict[Group, set[Node]] = {}
        self._readers: dict[Node, set[Group]] = {}
        for group in groups:
            reads = {self._base[leaf] for leaf in group.leaves if leaf in roots} - set(group.roots)
            self._reads[group] = {node for node in reads if node in roots and node not in returned}
            for node in self._reads[group]:
                self._readers.setdefault(node, set()).add(group)

    def growth(self, group: Group) -> int:
        """The growth of memory in use when a group runs, in bytes."""
        allocated = sum([self._bytes[root] for root in group.roots if self._base[root] is root])
        return allocated - sum([self._bytes[node] for node in self._reads[group] if len(self._readers[node]) == 1])

    def run(self, group: Group) -> list[Group]:
        """Records that a group has run; returns the groups that have become the last reader of a value."""
        last_readers: list[Group] = []
        for node in self._reads[group]:
            readers = self._readers[node]
            readers.discard(group)
            if len(readers) == 1:
                last_readers.extend(readers)
        return last_readers


def _bytes(root: Node) -> int:
    scalar = scalar_of(root.type)
    # Any order is correct, so the order for one example serves all sizes.
    return (
        hint_of(prod(sizes(root))) * scalar.dtype.itemsize
        if scalar is not None and isinstance(root.type, Tensor)
        else 0
    )
