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

# Iterations with fewer bytes of residuals stay in the cache, so only the cheapest ops are worth recomputing.
_MIN_BYTES = 1 << 16
_MAX_NODES = 2000
# The cost of an operation on one element, as the bytes that can be stored and read back in the same time. Measured with
# 10,000 float64 (Runge–Kutta): 0.15 ns for an operation in a kernel, 0.25 ns for a byte of memory.
_BYTES_PER_OPERATION = 0.6
_MAX_COST = 6.0  # an op more expensive than a division or a square root is not recomputed
_MAX_COST_IN_CACHE = 1.0  # sums, products and comparisons
_MOVES = {"slice": 0.5, "broadcast": 0.5, "permute": 2.0, "flip": 2.0, "concatenate": 3.0, "pad": 3.0}
_MAX_SUMMED = 8  # elements for each result of a reduction that may be recomputed
_NEVER = float("inf")


def choose_residuals(wanted: Sequence[Node], state: Sequence[Node]) -> tuple[Node, ...]:
    """Returns the values to store so that all `wanted` values, which depend on the state, can be recomputed."""
    from_state = _find_dependents(wanted, state)
    sizes = {node: _storage_cost(node) for node in from_state}
    # Wanted values of unknown size are stored in any case, so storing them is free.
    sizes |= {node: 0.0 for node in wanted if sizes[node] == _NEVER}
    if len(from_state) > _MAX_NODES:
        return tuple(wanted)
    max_cost = _MAX_COST if sum(sizes[node] for node in wanted) >= _MIN_BYTES else _MAX_COST_IN_CACHE
    graph = _FlowNetwork()
    for node in from_state:
        graph.connect((node, "in"), (node, "out"), sizes[node])
        graph.connect("source", (node, "in"), _NEVER if node in state else _recompute_cost(node, max_cost))
        for operand in node.operands if node not in state else ():
            if operand in sizes:
                graph.connect((operand, "out"), (node, "in"), _NEVER)
    for node in wanted:
        graph.connect((node, "out"), "sink", _NEVER)
    sink_side = graph.cut()
    chosen = [node for node in from_state if (node, "out") in sink_side and (node, "in") not in sink_side]
    return tuple(dict.fromkeys(_strip_reshapes(node) for node in chosen))


def _strip_reshapes(node: Node) -> Node:
    """The value that a chain of reshapes starts from: storing a reshaped value would copy it."""
    while node.op is reshape:
        (node,) = node.operands
    return node


def _find_dependents(roots: Sequence[Node], sources: Sequence[Node]) -> list[Node]:
    reached = set(sources)
    order = []
    for node in toposort(roots):
        if node in reached or not reached.isdisjoint(node.operands):
            reached.add(node)
            order.append(node)
    return order


def _storage_cost(node: Node) -> float:
    """The cost of storing a value: its bytes; infinite if its type is no scalar or tensor."""
    scalar = scalar_of(node.type)
    return _NEVER if scalar is None else _count_elements(node) * scalar.dtype.itemsize


def _has_dimensions(node: Node) -> bool:
    return isinstance(node.type, Tensor) and bool(node.type.shape)


def _recompute_cost(node: Node, max_cost: float) -> float:
    """The cost of recomputing a value from its operands; infinite for ops that are not recomputed."""
    if node.op in (make, get, reshape):
        return 0.0
    if node.op is reduce:
        (reduced,) = node.operands
        summed = _count_elements(reduced) / max(1.0, _count_elements(node))
        return _count_elements(reduced) * _BYTES_PER_OPERATION if summed <= _MAX_SUMMED else _NEVER
    op_cost = _MOVES.get(node.op.name)
    if op_cost is None:
        if not node.op.elementwise or node.op.checked or node.op.cost > max_cost:
            return _NEVER
        op_cost = node.op.cost
    return _count_elements(node) * op_cost * _BYTES_PER_OPERATION


def _count_elements(node: Node) -> float:
    """The number of scalars in a value; infinite if a size is symbolic."""
    match node.type:
        case Tensor(shape=shape):
            return float(prod(shape)) if all(isinstance(size, int) for size in shape) else _NEVER  # type: ignore[arg-type]
        case Vector() | Matrix():
            return float(len(components(node.type)))
    return 1.0


class _FlowNetwork:
    """A flow network. Of all minimum cuts, `cut` finds the one nearest to the sink."""

    def __init__(self) -> None:
        self._residual_capacity: dict[object, dict[object, float]] = {}

    def connect(self, start: object, end: object, capacity: float) -> None:
        outgoing = self._residual_capacity.setdefault(start, {})
        outgoing[end] = outgoing.get(end, 0.0) + capacity
        self._residual_capacity.setdefault(end, {}).setdefault(start, 0.0)

    def cut(self) -> set[object]:
        """The vertices on the sink's side of the minimum cut (Edmonds–Karp)."""
        while (path := self._shortest_path()) is not None:
            pairs = list(pairwise(path))
            amount = min(self._residual_capacity[start][end] for start, end in pairs)
            if amount == _NEVER:
                raise AssertionError("unreachable: every wanted value can be stored itself")
            for start, end in pairs:
                self._residual_capacity[start][end] -= amount
                self._residual_capacity[end][start] += amount
        return self._find_sink_side()

    def _shortest_path(self) -> list[object] | None:
        before: dict[object, object] = {"source": None}
        pending = deque(["source"])
        while pending:
            vertex: object = pending.popleft()
            for end, capacity in self._residual_capacity.get(vertex, {}).items():
                if capacity > 0.0 and end not in before:
                    before[end] = vertex
                    if end == "sink":
                        return _trace_path(before)
                    pending.append(end)  # type: ignore[arg-type]
        return None

    def _find_sink_side(self) -> set[object]:
        reaching: set[object] = {"sink"}
        pending: deque[object] = deque(reaching)
        while pending:
            vertex = pending.popleft()
            for start in self._residual_capacity.get(vertex, {}):
                if start not in reaching and self._residual_capacity[start].get(vertex, 0.0) > 0.0:
                    reaching.add(start)
                    pending.append(start)
        return reaching


def _trace_path(before: dict[object, object]) -> list[object]:
    path: list[object] = ["sink"]
    while before[path[-1]] is not None:
        path.append(before[path[-1]])
    return path[::-1]
