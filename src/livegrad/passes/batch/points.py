"""Batches of functions with loops and branches as maps: each member runs its own control flow, over scalars.

Over whole tensors, every iteration would go through all members in memory until the last of them is done.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import prod

from livegrad.ir.dimension import Size
from livegrad.ir.function import trace
from livegrad.ir.leaves import constant_op
from livegrad.ir.node import Function, Node
from livegrad.ir.types import Tensor, Type, Vector
from livegrad.ir.walk import nodes_of, ops_in, rebuild, substitute
from livegrad.ops.aggregate import make, members_of
from livegrad.ops.control import map_, parameters_of
from livegrad.ops.indexing import lookup
from livegrad.ops.movement import concatenate, reshape
from livegrad.passes.batch.values import along_batch, holds_tensors
from livegrad.passes.differentiate.tangents import result_nodes
from livegrad.passes.regions import BRANCHES, LOOPS
from livegrad.passes.scalar_replacement import Memory, NotReplaced, Value, replace_tensors
from livegrad.passes.scalar_replacement.values import array_of, flatten

_MAX_LIFTED = 8  # elements of a member's tensor that it takes in registers; more are read from memory


def run_by_point(
    function: Function, values: Sequence[Node], flags: Sequence[bool], size: Size
) -> list[tuple[Node, bool]] | None:
    """The results of a function for a batch by one map, and which of them are batched; None if scalars do not suffice.

    The values that are flagged are batched, the others are shared by all members.
    """
    if ops_in(function).isdisjoint((*LOOPS, *BRANCHES)):
        return None
    parts = _split(function, values, flags)
    if parts is None:
        return None
    try:
        results = _PointMap(parts, size).build()
    except NotReplaced:
        return None
    next_result = iter(results)
    return [
        (next(next_result), True) if node in parts.varying else (parts.shared[node], False) for node in function.results
    ]


@dataclass
class _Parts:
    """A function in two parts: nodes that differ between members, and nodes that all members share."""

    function: Function
    batched: dict[Node, Node]  # by parameter
    varying: set[Node] = field(default_factory=set)
    shared: dict[Node, Node] = field(default_factory=dict)  # the value of each node that does not differ

    @property
    def shared_inputs(self) -> list[Node]:
        """The shared nodes that others use."""
        used = {operand: None for node in nodes_of(self.function) if node in self.varying for operand in node.operands}
        return [node for node in used if node not in self.varying and node.op is not constant_op]


def _split(function: Function, values: Sequence[Node], flags: Sequence[bool]) -> _Parts | None:
    inputs = list(zip(function.parameters, values, flags, strict=True))
    parts = _Parts(function, {parameter: value for parameter, value, flag in inputs if flag})
    parts.varying.update(parts.batched)
    parts.shared.update({parameter: value for parameter, value, flag in inputs if not flag})
    has_control = False
    for node in nodes_of(function):
        if node in parts.varying or node in parts.shared:
            continue
        if parts.varying.isdisjoint(node.operands):
            parts.shared[node] = rebuild(node, tuple([parts.shared[operand] for operand in node.operands]))
        else:
            parts.varying.add(node)
            has_control |= node.op in LOOPS or node.op in BRANCHES
    return parts if has_control else None


class _PointMap:
    """The map of what differs between members."""

    def __init__(self, parts: _Parts, size: Size) -> None:
        self._parts, self._size = parts, size
        self._operands: list[Node] = []
        self._types: list[Type] = []  # at one point
        self._lifted: list[bool] = []
        self._member: int | None = None  # which operand is the index in the batch

    def build(self) -> list[Node]:
        parts = self._parts
        results = [node for node in parts.function.results if node in parts.varying]
        taken = [*parts.batched, *parts.shared_inputs]
        types = [node.type for node in taken]
        parameters = parameters_of(types)
        exchanged = substitute(results, dict(zip(taken, parameters, strict=True)), parts.function.source_locations)
        inside = Function(parts.function.name, parameters, exchanged)
        positions = [self._take(node) for node in taken]
        if not any(self._lifted):
            self._member_index()
        result_types = [node.type for node in results]

        def at_point(*values: Node) -> list[Node]:
            captured = [self._value(node, values, position) for node, position in zip(taken, positions, strict=True)]
            values_at_point = zip(replace_tensors(inside, captured), result_types, strict=True)
            return [node for value, type in values_at_point for node in _result(value, type)]

        point = trace(at_point, *self._types, name=parts.function.name)
        number = len(point.results)
        value = map_(*self._operands, function=point, lifted=tuple(self._lifted), summed=(False,) * number)
        nodes = iter(result_nodes(value, number))
        return [self._as_batch(nodes, type) for type in result_types]

    # --- operands ---

    def _add(self, operand: Node, type: Type, lifted: bool) -> int:
        self._operands.append(operand)
        self._types.append(type)
        self._lifted.append(lifted)
        return len(self._operands) - 1

    def _member_index(self) -> int:
        if self._member is None:
            along = along_batch(self._size, ())
            self._member = self._add(along, along.type.element, True)  # type: ignore[attr-defined]
        return self._member

    def _take(self, node: Node) -> int:
        """The position of the operand that gives a node's value at each point."""
        type, batched = node.type, node in self._parts.batched
        if batched and not holds_tensors(type):
            return self._add(self._parts.batched[node], type, True)
        if not isinstance(type, Tensor):
            if holds_tensors(type):
                raise NotReplaced
            return self._add(self._parts.shared[node], type, False)
        if not batched:
            shared = self._parts.shared[node]
            return self._add(shared, type, False) if type.rank else self._add(lookup(shared), type.element, False)
        value, total = self._parts.batched[node], number_of_elements(type)
        if not type.rank:
            return self._add(value, type.element, True)
        if 0 < total <= _MAX_LIFTED and _in_vectors(type):
            return self._add(reshape(value, shape=(self._size, total)), Vector(type.element, total), True)
        self._member_index()
        return self._add(value, value.type, False)

    def _value(self, node: Node, values: Sequence[Node], position: int) -> Value:
        value, type = values[position], node.type
        if not isinstance(type, Tensor):
            return value
        if isinstance(value.type, Vector):
            return array_of(members_of(value), type.shape)  # type: ignore[arg-type]
        if not isinstance(value.type, Tensor):
            return array_of([value], ())
        return Memory(value, (values[self._member_index()],) if node in self._parts.batched else ())

    def _as_batch(self, nodes: Iterator[Node], type: Type) -> Node:
        """A result of all members, from the next results of the map."""
        if not isinstance(type, Tensor) or not type.rank:
            return next(nodes)
        if _in_vectors(type):
            return reshape(next(nodes), shape=(self._size, *type.shape))
        columns = [reshape(next(nodes), shape=(self._size, 1)) for _ in range(number_of_elements(type))]
        return reshape(concatenate(*columns, axis=1), shape=(self._size, *type.shape))


def number_of_elements(type: Tensor) -> int:
    """How many elements a member's tensor has; zero if that is not known."""
    return prod(type.shape) if all(isinstance(size, int) for size in type.shape) else 0  # type: ignore[arg-type]


def _in_vectors(type: Tensor) -> bool:
    """Whether a map takes and gives small tensors as vectors. `split_complex` takes complex numbers apart singly."""
    return type.element.kind != "complex"


def _result(value: Value, type: Type) -> list[Node]:
    if not isinstance(type, Tensor):
        if holds_tensors(type) or not isinstance(value, Node):
            raise NotReplaced
        return [value]
    nodes = list(flatten(value, type))
    if not nodes:
        raise NotReplaced
    if type.rank and _in_vectors(type):
        return [make(*nodes, type=Vector(type.element, len(nodes)))]
    return nodes
