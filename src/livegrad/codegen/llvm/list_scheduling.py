"""List scheduling before LLVM, which mostly preserves source order when it allocates registers.

In: nodes in topological order. Out: the same nodes in an order with lower register pressure or less waiting on
latencies. Called by `function_body.py` and `interleaving.py`.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence

from livegrad.ir.node import Node
from livegrad.ir.types import Tape, bool_, scalar_of
from livegrad.ops.elementwise import div
from livegrad.ops.transcendental import sqrt
from livegrad.schedule.loops.cost_model import WIDEST_VECTOR

# Shorter code fits into the registers in any order.
_SHORT = 100
_AT_ONCE = 16  # registers for what is about to be used; with more, or fewer than 14, other values wait in memory
_LONG, _LONGEST = 600, 4000  # nodes: shorter code runs as fast in any of these orders; longer was not measured

# Cycles from the start of an operation to its result, as of Ice Lake, for values of two registers: one operation starts
# in each cycle. The divider is busy with one for so long.
_LATENCY = 4.0
_DIVIDER_LATENCY, _DIVIDER_BUSY = 12.0, 24.0
DIVISIONS = frozenset({div, sqrt})

_NEAR = 60  # nodes between a value and a use for which it stays in a register; 15 and 80 are as good


def in_order_of_writing(order: Sequence[Node], lanes: int, vector_bytes: int) -> Sequence[Node]:
    """The nodes in the order that suits registers of so many bytes; if that is 0, it does not matter much."""
    if vector_bytes != WIDEST_VECTOR or not _LONG <= len(order) <= _LONGEST or any(map(_keeps_its_place, order)):
        return in_fewer_registers(order)
    widest = max([scalar.bits // 8 for node in order if (scalar := scalar_of(node.type)) is not None], default=4)
    return with_less_waiting(order, max(1, _AT_ONCE * vector_bytes // (widest * lanes)))


def in_fewer_registers(order: Sequence[Node]) -> Sequence[Node]:
    """Orders nodes for low register pressure.

    A walk from the results visits everything that the first result needs, then the second. Gradients share most of what
    they need, and values of the first that the others use would be spilled. A node that ends at least as many live
    values as it creates is therefore emitted as soon as possible; if there is none, the walk continues.

    Measured for a signed distance of 310 operations with 23 derivatives: 47 Mpoints/s by the walk, 56 in this order.
    """
    if len(order) < _SHORT or any(map(_keeps_its_place, order)):
        return order
    return _Scheduling(order).run()


def _keeps_its_place(node: Node) -> bool:
    """Whether a node must keep its position: checks are numbered in order and the first failure is reported, and tapes
    are updated in place.

    Branches and loops are separate code, for which the order of other nodes matters little.
    """
    if node.op.checked or isinstance(node.type, Tape):
        return True
    return bool(node.functions)


class _Scheduling:
    """Nodes that wait for operands, nodes that are ready, and how many users each value still has."""

    def __init__(self, order: Sequence[Node]) -> None:
        self.order = order
        self.place = {node: place for place, node in enumerate(order)}
        self.operands = {node: [o for o in dict.fromkeys(node.operands) if o.operands] for node in order}
        self.users: dict[Node, list[Node]] = {node: [] for node in order}
        for node in order:
            for operand in self.operands[node]:
                self.users[operand].append(node)
        self.left = {node: len(users) for node, users in self.users.items()}
        self.waiting = {node: len(operands) for node, operands in self.operands.items()}
        self.eager: list[tuple[int, int]] = []  # (values gained, place) of nodes that are ready and gain none
        self.written: set[Node] = set()

    def run(self) -> list[Node]:
        result = [node for node in self.order if not node.operands]
        self.written.update(result)
        for node in self.order:
            if not self.waiting[node]:
                self._consider(node)
        for node in self.order:
            result += self._write_eager()
            if node not in self.written:
                self._write(node)
                result.append(node)
        return result

    def _write_eager(self) -> list[Node]:
        result: list[Node] = []
        while self.eager:
            node = self.order[heapq.heappop(self.eager)[1]]
            if node not in self.written:
                self._write(node)
                result.append(node)
        return result

    def _write(self, node: Node) -> None:
        self.written.add(node)
        for operand in self.operands[node]:
            self.left[operand] -= 1
            if self.left[operand] == 1:
                for user in self.users[operand]:
                    if user not in self.written and not self.waiting[user]:
                        self._consider(user)
        for user in self.users[node]:
            self.waiting[user] -= 1
            if not self.waiting[user]:
                self._consider(user)

    def _consider(self, node: Node) -> None:
        """Notes a node that is ready if it makes no more values than it ends. Leaves are at hand anyway."""
        if not node.operands:
            return
        gained = (1 if self.users[node] else 0) - sum(self.left[operand] == 1 for operand in self.operands[node])
        if gained <= 0:
            heapq.heappush(self.eager, (gained, self.place[node]))


def with_less_waiting(order: Sequence[Node], most_alive: int) -> list[Node]:
    """Orders nodes to hide latency, in the order in which a simple in-order processor would start them.

    Among the nodes whose operands are ready, the one with the longest path to the last result comes next. While
    `most_alive` values are live, only nodes that end at least as many values as they create are chosen, if there are
    any.

    A gradient uses most values twice: soon, and much later in the backward pass. Those are spilled in any order, and do
    not count in between. Comparisons come directly before the first select that uses them, because mask registers are
    few.

    Measured for signed distances of 310 operations with 23 derivatives: 481 ns in fewest registers, 410 in this order,
    for 32 points on one thread; for 316 operations of which 59 are calls, 1380 and 1145.
    """
    return _Starting(order, most_alive).run()


class _Starting:
    """Nodes that can start, when the operands of each are there, and how many near users each value still has."""

    def __init__(self, order: Sequence[Node], most_alive: int) -> None:
        self.order, self.most_alive = order, most_alive
        self.place = {node: place for place, node in enumerate(in_fewer_registers(order))}
        self.operands: dict[Node, list[Node]] = {}
        self.users: dict[Node, list[Node]] = {}
        for node in order:
            self.operands[node] = list(dict.fromkeys(_awaited(node)))
            if node.operands and not _is_comparison(node):
                self.users[node] = []
                for operand in self.operands[node]:
                    self.users[operand].append(node)
        self.near = {node: sum(self._is_near(node, user) for user in users) for node, users in self.users.items()}
        self.gained = {node: self._gained(node) for node in self.users}
        self.waiting = {node: len(self.operands[node]) for node in self.users}
        self.way: dict[Node, float] = {}
        for node, users in reversed(self.users.items()):
            takes = _DIVIDER_BUSY + _DIVIDER_LATENCY if node.op in DIVISIONS else _LATENCY
            self.way[node] = takes + max([self.way[user] for user in users], default=0.0)
        self.there = dict.fromkeys(self.users, 0.0)
        self.ready = [node for node, count in self.waiting.items() if not count]
        self.written: dict[Node, None] = {}  # in this order
        self.now = self.divider_free = 0.0
        self.alive = 0

    def run(self) -> list[Node]:
        self.written.update((node, None) for node in self.order if not node.operands)
        while self.ready:
            node = self._next()
            self.ready.remove(node)
            self.written.update((operand, None) for operand in node.operands if _is_comparison(operand))
            self.written[node] = None
            self._start(node)
        self.written.update(dict.fromkeys(self.order))  # comparisons that are results
        return list(self.written)

    def _is_near(self, operand: Node, user: Node) -> bool:
        return self.place[user] - self.place[operand] <= _NEAR

    def _gained(self, node: Node) -> int:
        """How many more values are alive when the node has started. Leaves are at hand anyway."""
        ended = sum(self.near[operand] == 1 and self._is_near(operand, node) for operand in self.operands[node])
        return (1 if self.near[node] else 0) - ended

    def _next(self) -> Node:
        ready, full = self.ready, self.alive >= self.most_alive
        if full:
            ready = [node for node in ready if self.gained[node] <= 0]
        soonest = max(self.now, min([self.there[node] for node in ready or self.ready]))
        able = [node for node in ready or self.ready if self.there[node] <= soonest]
        if full and not ready:
            return min(able, key=lambda node: self.place[node])
        return max(able, key=lambda node: (self.way[node], -self.place[node]))

    def _start(self, node: Node) -> None:
        self.alive += self.gained[node]
        start = max(self.now, self.there[node])
        self.now = start + 1.0
        if node.op in DIVISIONS:
            self.divider_free = max(start, self.divider_free) + _DIVIDER_BUSY
            self._end(node, self.divider_free + _DIVIDER_LATENCY)
        else:
            self._end(node, start + _LATENCY)

    def _end(self, node: Node, time: float) -> None:
        for operand in self.operands[node]:
            if self._is_near(operand, node):
                self.near[operand] -= 1
                if self.near[operand] == 1:
                    self._ends_with_last_user(operand)
        for user in self.users[node]:
            self.there[user] = max(self.there[user], time)
            self.waiting[user] -= 1
            if not self.waiting[user]:
                self.ready.append(user)

    def _ends_with_last_user(self, operand: Node) -> None:
        for user in self.users[operand]:
            if user not in self.written and self._is_near(operand, user):
                self.gained[user] -= 1


def _is_comparison(node: Node) -> bool:
    return node.type is bool_ and bool(node.operands) and not any(operand.type is bool_ for operand in node.operands)


def _awaited(node: Node) -> Iterator[Node]:
    """The computed values that a node needs; of a comparison, those that are compared."""
    for operand in node.operands:
        if _is_comparison(operand):
            yield from (inner for inner in operand.operands if inner.operands)
        elif operand.operands:
            yield operand
