"""List scheduling of instructions before LLVM, which mostly preserves source order when it allocates registers.

In: nodes in topological order. Out: the same nodes in an order with lower register pressure, or with latencies hidden.
Called by `function_body.py`, and by `interleaving.py`, which emits one schedule for two halves of the lanes.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence

from livegrad.ir.node import Node
from livegrad.ir.types import Tape, bool_, scalar_of
from livegrad.schedule.loops.cost_model import DIVISIONS, WIDEST_VECTOR

# Shorter code fits into registers in any order.
_SHORT = 100
_LIVE_REGISTERS = 16  # for values with a near use; with more, or fewer than 14, other values are spilled
_LONG, _LONGEST = 600, 4000  # nodes; shorter code runs as fast in either order, longer code was not measured

# Cycles from the start of an operation to its result (Ice Lake), for values of two registers. One operation starts in
# each cycle; a division or square root occupies the divider for `_DIVIDER_BUSY` cycles.
_LATENCY = 4.0
_DIVIDER_LATENCY, _DIVIDER_BUSY = 12.0, 24.0

_NEAR = 60  # nodes between a value and a use for which it stays in a register; 15 to 80 perform alike


def schedule_instructions(nodes: Sequence[Node], lanes: int, vector_bytes: int) -> Sequence[Node]:
    """Orders nodes for vector registers of `vector_bytes` bytes; 0 is the baseline tier."""
    if vector_bytes != WIDEST_VECTOR or not _LONG <= len(nodes) <= _LONGEST or any(map(_is_pinned, nodes)):
        return schedule_for_pressure(nodes)
    widest = max([scalar.bits // 8 for node in nodes if (scalar := scalar_of(node.type)) is not None], default=4)
    return schedule_for_latency(nodes, max(1, _LIVE_REGISTERS * vector_bytes // (widest * lanes)))


def schedule_for_pressure(nodes: Sequence[Node]) -> Sequence[Node]:
    """Orders nodes for low register pressure.

    A depth-first walk visits all operands of the first result, then those of the second. Gradients share most of their
    operands, so values that several results use would be spilled. Therefore a node that ends at least as many live
    values as it creates is emitted as soon as it is ready; if there is none, the walk continues.

    Measured for a signed distance of 310 operations with 23 derivatives: 47 Mpoints/s by the walk, 56 in this order.
    """
    if len(nodes) < _SHORT or any(map(_is_pinned, nodes)):
        return nodes
    return _PressureScheduler(nodes).run()


def schedule_for_latency(nodes: Sequence[Node], live_limit: int) -> list[Node]:
    """Orders nodes to hide latency, in the order in which a simple in-order processor would start them.

    Among the nodes whose operands are ready, the one with the longest path to the last result comes next. While
    `live_limit` values are live, only nodes that end at least as many values as they create are chosen, if there are
    any.

    A gradient uses most values twice: soon, and much later in the backward pass. Those are spilled in any order, and
    do not count as live in between. Comparisons come directly before the first select that uses them, because there
    are few mask registers.

    Measured for signed distances of 310 operations with 23 derivatives: 481 ns for low pressure, 410 in this order, for
    32 points on one thread; for 316 operations of which 59 are calls, 1380 and 1145.
    """
    return _LatencyScheduler(nodes, live_limit).run()


def _is_pinned(node: Node) -> bool:
    """Whether a node must keep its position: checks are numbered in order and the first failure is reported, and tapes
    are updated in place.

    Branches and loops are separate code, for which the order of other nodes matters little.
    """
    return node.op.checked or isinstance(node.type, Tape) or bool(node.functions)


class _ListScheduler:
    """Tracks the dependencies between nodes, and the nodes emitted. Subclasses choose among the nodes that are ready.

    Leaves cost no registers, so only computed operands count.
    """

    def __init__(self, nodes: Sequence[Node], operands: Mapping[Node, list[Node]]) -> None:
        self.nodes, self.operands = nodes, operands
        self.users: dict[Node, list[Node]] = {node: [] for node in operands}
        for node, computed in operands.items():
            for operand in computed:
                self.users[operand].append(node)
        self.awaited = {node: len(computed) for node, computed in operands.items()}  # operands not emitted yet
        self.emitted: dict[Node, None] = {node: None for node in nodes if not node.operands}  # in this order

    def release_users(self, node: Node) -> list[Node]:
        """The users of an emitted node that are now ready."""
        ready: list[Node] = []
        for user in self.users[node]:
            self.awaited[user] -= 1
            if not self.awaited[user]:
                ready.append(user)
        return ready


class _PressureScheduler(_ListScheduler):
    """Emits the nodes that create no more live values than they end as soon as they are ready."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        super().__init__(nodes, {node: [o for o in dict.fromkeys(node.operands) if o.operands] for node in nodes})
        self.position = {node: position for position, node in enumerate(nodes)}
        self.uses_left = {node: len(users) for node, users in self.users.items()}
        self.eager: list[tuple[int, int]] = []  # (live values created, position) of such nodes

    def run(self) -> list[Node]:
        for node in self.nodes:
            if not self.awaited[node]:
                self._consider(node)
        for node in self.nodes:
            while self.eager:
                self._emit(self.nodes[heapq.heappop(self.eager)[1]])
            self._emit(node)
        return list(self.emitted)

    def _emit(self, node: Node) -> None:
        if node in self.emitted:
            return
        self.emitted[node] = None
        for operand in self.operands[node]:
            self.uses_left[operand] -= 1
            if self.uses_left[operand] == 1:
                for user in self.users[operand]:
                    if user not in self.emitted and not self.awaited[user]:
                        self._consider(user)
        for user in self.release_users(node):
            self._consider(user)

    def _consider(self, node: Node) -> None:
        if not node.operands:
            return
        ended = sum(self.uses_left[operand] == 1 for operand in self.operands[node])
        created = (1 if self.users[node] else 0) - ended
        if created <= 0:
            heapq.heappush(self.eager, (created, self.position[node]))


class _LatencyScheduler(_ListScheduler):
    """Simulates when each node can start, and how many values with a near use are live."""

    def __init__(self, nodes: Sequence[Node], live_limit: int) -> None:
        computed = [node for node in nodes if node.operands and not _is_comparison(node)]
        super().__init__(nodes, {node: list(dict.fromkeys(_computed_operands(node))) for node in computed})
        self.live_limit = live_limit
        self.position = {node: position for position, node in enumerate(schedule_for_pressure(nodes))}
        self.near_uses = {node: sum(self._is_near(node, user) for user in users) for node, users in self.users.items()}
        self.created = {node: self._created(node) for node in self.users}  # live values
        self.path: dict[Node, float] = {}  # cycles to the last result
        for node, users in reversed(self.users.items()):
            latency = _DIVIDER_BUSY + _DIVIDER_LATENCY if node.op in DIVISIONS else _LATENCY
            self.path[node] = latency + max([self.path[user] for user in users], default=0.0)
        self.operands_at = dict.fromkeys(self.users, 0.0)  # the cycle in which the last operand is available
        self.ready = [node for node, count in self.awaited.items() if not count]
        self.now = self.divider_free = 0.0
        self.live = 0

    def run(self) -> list[Node]:
        while self.ready:
            node = self._next()
            self.ready.remove(node)
            self.emitted.update((operand, None) for operand in node.operands if _is_comparison(operand))
            self.emitted[node] = None
            self._start(node)
        self.emitted.update(dict.fromkeys(self.nodes))  # comparisons that are results
        return list(self.emitted)

    def _is_near(self, operand: Node, user: Node) -> bool:
        return self.position[user] - self.position[operand] <= _NEAR

    def _created(self, node: Node) -> int:
        """The change in the number of live values when the node has started."""
        ended = sum(self.near_uses[operand] == 1 and self._is_near(operand, node) for operand in self.operands[node])
        return (1 if self.near_uses[node] else 0) - ended

    def _next(self) -> Node:
        ready, full = self.ready, self.live >= self.live_limit
        if full:
            ready = [node for node in ready if self.created[node] <= 0]
        soonest = max(self.now, min([self.operands_at[node] for node in ready or self.ready]))
        candidates = [node for node in ready or self.ready if self.operands_at[node] <= soonest]
        if full and not ready:
            return min(candidates, key=lambda node: self.position[node])
        return max(candidates, key=lambda node: (self.path[node], -self.position[node]))

    def _start(self, node: Node) -> None:
        self.live += self.created[node]
        start = max(self.now, self.operands_at[node])
        self.now = start + 1.0
        if node.op in DIVISIONS:
            self.divider_free = max(start, self.divider_free) + _DIVIDER_BUSY
            self._finish(node, self.divider_free + _DIVIDER_LATENCY)
        else:
            self._finish(node, start + _LATENCY)

    def _finish(self, node: Node, time: float) -> None:
        for operand in self.operands[node]:
            if self._is_near(operand, node):
                self.near_uses[operand] -= 1
                if self.near_uses[operand] == 1:
                    self._credit_last_user(operand)
        for user in self.users[node]:
            self.operands_at[user] = max(self.operands_at[user], time)
        self.ready += self.release_users(node)

    def _credit_last_user(self, operand: Node) -> None:
        """The only near user left of an operand ends its live range."""
        for user in self.users[operand]:
            if user not in self.emitted and self._is_near(operand, user):
                self.created[user] -= 1


def _is_comparison(node: Node) -> bool:
    return node.type is bool_ and bool(node.operands) and not any(operand.type is bool_ for operand in node.operands)


def _computed_operands(node: Node) -> Iterator[Node]:
    """The computed operands of a node; for an operand that is a comparison, the computed operands of that."""
    for operand in node.operands:
        if _is_comparison(operand):
            yield from (inner for inner in operand.operands if inner.operands)
        elif operand.operands:
            yield operand
