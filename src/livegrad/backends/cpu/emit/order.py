"""In which order straight-line code is written: LLVM keeps it, more or less, when it deals out registers.

In: nodes, operands first. Out: the same nodes in an order that needs fewer registers. `body.py` asks.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from livegrad.ir.node import Node
from livegrad.ir.types import Trace
from livegrad.ir.walk import attribute_functions

# Shorter code fits into the registers in any order.
_SHORT = 100


def in_fewer_registers(order: Sequence[Node]) -> Sequence[Node]:
    """The nodes in an order in which values are used soon.

    A walk from the results goes through all that the first result needs, then to the second. Gradients share most of
    what they need: what the first left behind for the others would wait in memory for its turn. So a node that ends at
    least as many values as it makes is written as soon as it can be; where there is none, the walk goes on.

    Measured for a signed distance of 310 operations with 23 derivatives: 47 Mpoints/s by the walk, 56 in this order.
    """
    if len(order) < _SHORT or any(map(_keeps_its_place, order)):
        return order
    return _Scheduling(order).run()


def _keeps_its_place(node: Node) -> bool:
    """Checks are numbered as they are written, and the first that fails is told; traces are changed in place.

    Branches and loops are code of their own, next to which the order of the rest matters little.
    """
    if node.op.checked or isinstance(node.type, Trace):
        return True
    return bool(node.attributes) and next(attribute_functions(node), None) is not None


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
