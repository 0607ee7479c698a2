"""Chooses the residuals of a loop over tensors: the fewest bytes from which cheap operations can recompute the rest.

`linearize` passes the values that the linear part of a loop needs at each iteration. Storing a tensor costs a round
trip to memory; recomputing it from another costs a pass over the cache. The best choice is a minimum cut of the graph
between the state of the loop and those values.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import pairwise
from math import prod

from livegrad.ir.node import Node
from livegrad.ir.types import Matrix, Tensor, Vector, components, scalar_of
from livegrad.ir.walk import toposort
from livegrad.ops.aggregate import get, make
from livegrad.ops.movement import reshape
from livegrad.ops.reduction import reduce

# Of an iteration: below that, everything stays in the cache, and only what costs next to nothing is computed again.
_MIN_BYTES = 1 << 16
_MAX_NODES = 2000
# An operation on one element, as the bytes that take as long to remember and to read back. Measured with 10,000 float64
# (Runge and Kutta): 0.15 ns for an operation in a kernel, 0.25 ns for a byte that is written to memory and read again.
_BYTES_PER_OPERATION = 0.6
_MAX_COST = 6.0  # an op more expensive than a division or a square root is not recomputed
_MAX_COST_IN_CACHE = 1.0  # sums, products and comparisons
_MOVES = {"slice": 0.5, "broadcast": 0.5, "permute": 2.0, "flip": 2.0, "concatenate": 3.0, "pad": 3.0}
_MAX_SUMMED = 8  # elements of a reduction that is computed again, along with what it reduces
_NEVER = float("inf")


def choose_residuals(wanted: Sequence[Node], state: Sequence[Node]) -> tuple[Node, ...]:
    """Returns the values to store so that all `wanted` ones, which depend on the state, can be recomputed from them."""
    from_state = _depending_on(wanted, state)
    sizes = {node: _bytes(node) for node in from_state}
    # What has no known size is remembered in any case, and so costs nothing more.
    sizes |= {node: 0.0 for node in wanted if sizes[node] == _NEVER}
    if len(from_state) > _MAX_NODES:
        return tuple(wanted)
    most = _MAX_COST if sum(sizes[node] for node in wanted) >= _MIN_BYTES else _MAX_COST_IN_CACHE
    graph = _Flow()
    for node in from_state:
        graph.connect((node, "in"), (node, "out"), sizes[node])
        graph.connect("source", (node, "in"), _NEVER if node in state else _cost(node, most))
        for operand in node.operands if node not in state else ():
            if operand in sizes:
                graph.connect((operand, "out"), (node, "in"), _NEVER)
    for node in wanted:
        graph.connect((node, "out"), "sink", _NEVER)
    behind = graph.behind_the_cut()
    chosen = [node for node in from_state if (node, "out") in behind and (node, "in") not in behind]
    return tuple(dict.fromkeys(_without_reshapes(node) for node in chosen))


def _without_reshapes(node: Node) -> Node:
    """What a value is a reshape of: stored in its own shape, it would be a copy."""
    while node.op is reshape:
        (node,) = node.operands
    return node


def _depending_on(roots: Sequence[Node], sources: Sequence[Node]) -> list[Node]:
    reached = set(sources)
    order = []
    for node in toposort(roots):
        if node in reached or not reached.isdisjoint(node.operands):
            reached.add(node)
            order.append(node)
    return order


def _bytes(node: Node) -> float:
    """What remembering a value costs."""
    scalar = scalar_of(node.type)
    return _NEVER if scalar is None else _elements(node) * scalar.dtype.itemsize


def _has_dimensions(node: Node) -> bool:
    return isinstance(node.type, Tensor) and bool(node.type.shape)


def _cost(node: Node, most: float) -> float:
    """What computing a value again costs, if its operands are there."""
    if node.op in (make, get, reshape):
        return 0.0
    if node.op is reduce:
        (reduced,) = node.operands
        summed = _elements(reduced) / max(1.0, _elements(node))
        return _elements(reduced) * _BYTES_PER_OPERATION if summed <= _MAX_SUMMED else _NEVER
    each = _MOVES.get(node.op.name)
    if each is None:
        if not node.op.elementwise or node.op.checked or node.op.cost > most:
            return _NEVER
        each = node.op.cost
    return _elements(node) * each * _BYTES_PER_OPERATION


def _elements(node: Node) -> float:
    """How many numbers a value has; infinitely many if that is not known."""
    match node.type:
        case Tensor(shape=shape):
            return float(prod(shape)) if all(isinstance(size, int) for size in shape) else _NEVER  # type: ignore[arg-type]
        case Vector() | Matrix():
            return float(len(components(node.type)))
    return 1.0


class _Flow:
    """A network, and the minimal cut in it that lies nearest to the sink."""

    def __init__(self) -> None:
        self._room: dict[object, dict[object, float]] = {}

    def connect(self, start: object, end: object, capacity: float) -> None:
        outgoing = self._room.setdefault(start, {})
        outgoing[end] = outgoing.get(end, 0.0) + capacity
        self._room.setdefault(end, {}).setdefault(start, 0.0)

    def behind_the_cut(self) -> set[object]:
        """The nodes on the sink's side of the cut."""
        while (path := self._shortest_path()) is not None:
            pairs = list(pairwise(path))
            amount = min(self._room[start][end] for start, end in pairs)
            if amount == _NEVER:
                raise AssertionError("unreachable: every wanted value can be stored itself")
            for start, end in pairs:
                self._room[start][end] -= amount
                self._room[end][start] += amount
        return self._leading_to_the_sink()

    def _shortest_path(self) -> list[object] | None:
        before: dict[object, object] = {"source": None}
        pending = deque(["source"])
        while pending:
            vertex: object = pending.popleft()
            for end, room in self._room.get(vertex, {}).items():
                if room > 0.0 and end not in before:
                    before[end] = vertex
                    if end == "sink":
                        return _way(before)
                    pending.append(end)  # type: ignore[arg-type]
        return None

    def _leading_to_the_sink(self) -> set[object]:
        reaching: set[object] = {"sink"}
        pending: deque[object] = deque(reaching)
        while pending:
            vertex = pending.popleft()
            for start in self._room.get(vertex, {}):
                if start not in reaching and self._room[start].get(vertex, 0.0) > 0.0:
                    reaching.add(start)
                    pending.append(start)
        return reaching


def _way(before: dict[object, object]) -> list[object]:
    path: list[object] = ["sink"]
    while before[path[-1]] is not None:
        path.append(before[path[-1]])
    return path[::-1]
