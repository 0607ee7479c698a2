"""Batches functions with divergent loops and branches as a map: each member runs its own control flow, over scalars.

Masked loops over tensors would instead process all members in memory until the last of them is done.
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
from livegrad.ops.control import parameters_of
from livegrad.ops.indexing import lookup
from livegrad.ops.maps import map_
from livegrad.ops.movement import concatenate, reshape
from livegrad.passes.batch.values import along_batch, holds_tensors
from livegrad.passes.differentiate.tangents import result_nodes
from livegrad.passes.regions import BRANCHES, LOOPS
from livegrad.passes.scalar_replacement import Memory, NotReplaced, Value, replace_tensors
from livegrad.passes.scalar_replacement.values import array_of, flatten

_MAX_LIFTED = 8  # elements of a member's tensor that fit in registers; larger tensors are read from memory


def run_by_point(
    function: Function, values: Sequence[Node], flags: Sequence[bool], size: Size
) -> list[tuple[Node, bool]] | None:
    """Runs a function for a batch as one map; returns each result and whether it is batched, or None if that fails.

    `flags` says which values are batched; all members share the others. It fails if tensors cannot become scalars.
    """
    if ops_in(function).isdisjoint((*LOOPS, *BRANCHES)):
        return None
    parts = _split_by_divergence(function, values, flags)
    if parts is None:
        return None
    try:
        results = _PointMap(parts, size).build()
    except NotReplaced:
        return None
    next_result = iter(results)
    return [
        (next(next_result), True) if node in parts.divergent else (parts.uniform[node], False)
        for node in function.results
    ]


@dataclass
class _DivergenceSplit:
    """The nodes of a function by divergence: those that differ between members, and the values of uniform ones."""

    function: Function
    batched: dict[Node, Node]  # by parameter
    divergent: set[Node] = field(default_factory=set)
    uniform: dict[Node, Node] = field(default_factory=dict)  # the value that all members share, by node

    @property
    def uniform_inputs(self) -> list[Node]:
        """The uniform nodes that divergent ones use."""
        used = {
            operand: None for node in nodes_of(self.function) if node in self.divergent for operand in node.operands
        }
        return [node for node in used if node not in self.divergent and node.op is not constant_op]


def _split_by_divergence(function: Function, values: Sequence[Node], flags: Sequence[bool]) -> _DivergenceSplit | None:
    inputs = list(zip(function.parameters, values, flags, strict=True))
    parts = _DivergenceSplit(function, {parameter: value for parameter, value, flag in inputs if flag})
    parts.divergent.update(parts.batched)
    parts.uniform.update({parameter: value for parameter, value, flag in inputs if not flag})
    has_control = False
    for node in nodes_of(function):
        if node in parts.divergent or node in parts.uniform:
            continue
        if parts.divergent.isdisjoint(node.operands):
            parts.uniform[node] = rebuild(node, tuple([parts.uniform[operand] for operand in node.operands]))
        else:
            parts.divergent.add(node)
            has_control |= node.op in LOOPS or node.op in BRANCHES
    return parts if has_control else None


class _PointMap:
    """Builds the map that computes the divergent nodes."""

    def __init__(self, parts: _DivergenceSplit, size: Size) -> None:
        self._parts, self._size = parts, size
        self._operands: list[Node] = []
        self._types: list[Type] = []  # at one point
        self._lifted: list[bool] = []
        self._member: int | None = None  # which operand is the index in the batch

    def build(self) -> list[Node]:
        parts = self._parts
        results = [node for node in parts.function.results if node in parts.divergent]
        inputs = [*parts.batched, *parts.uniform_inputs]
        types = [node.type for node in inputs]
        parameters = parameters_of(types)
        exchanged = substitute(results, dict(zip(inputs, parameters, strict=True)), parts.function.source_locations)
        inside = Function(parts.function.name, parameters, exchanged)
        positions = [self._add_input(node) for node in inputs]
        if not any(self._lifted):
            self._member_index()
        result_types = [node.type for node in results]

        def at_point(*values: Node) -> list[Node]:
            captured = [
                self._value_at_point(node, values, position) for node, position in zip(inputs, positions, strict=True)
            ]
            values_at_point = zip(replace_tensors(inside, captured), result_types, strict=True)
            return [node for value, type in values_at_point for node in _flatten_result(value, type)]

        point = trace(at_point, *self._types, name=parts.function.name)
        count = len(point.results)
        value = map_(*self._operands, function=point, lifted=tuple(self._lifted), summed=(False,) * count)
        nodes = iter(result_nodes(value, count))
        return [self._take_result(nodes, type) for type in result_types]

    # --- operands ---

    def _add_operand(self, operand: Node, type: Type, lifted: bool) -> int:
        self._operands.append(operand)
        self._types.append(type)
        self._lifted.append(lifted)
        return len(self._operands) - 1

    def _member_index(self) -> int:
        if self._member is None:
            along = along_batch(self._size, ())
            self._member = self._add_operand(along, along.type.element, True)  # type: ignore[attr-defined]
        return self._member

    def _add_input(self, node: Node) -> int:
        """Adds a node as an operand of the map; returns its position."""
        type, batched = node.type, node in self._parts.batched
        if batched and not holds_tensors(type):
            return self._add_operand(self._parts.batched[node], type, True)
        if not isinstance(type, Tensor):
            if holds_tensors(type):
                raise NotReplaced
            return self._add_operand(self._parts.uniform[node], type, False)
        if not batched:
            uniform = self._parts.uniform[node]
            if not type.rank:
                return self._add_operand(lookup(uniform), type.element, False)
            return self._add_operand(uniform, type, False)
        value, total = self._parts.batched[node], number_of_elements(type)
        if not type.rank:
            return self._add_operand(value, type.element, True)
        if 0 < total <= _MAX_LIFTED and _fits_vectors(type):
            return self._add_operand(reshape(value, shape=(self._size, total)), Vector(type.element, total), True)
        self._member_index()
        return self._add_operand(value, value.type, False)

    def _value_at_point(self, node: Node, values: Sequence[Node], position: int) -> Value:
        value, type = values[position], node.type
        if not isinstance(type, Tensor):
            return value
        if isinstance(value.type, Vector):
            return array_of(members_of(value), type.shape)  # type: ignore[arg-type]
        if not isinstance(value.type, Tensor):
            return array_of([value], ())
        return Memory(value, (values[self._member_index()],) if node in self._parts.batched else ())

    def _take_result(self, nodes: Iterator[Node], type: Type) -> Node:
        """Builds a result for all members from the next results of the map."""
        if not isinstance(type, Tensor) or not type.rank:
            return next(nodes)
        if _fits_vectors(type):
            return reshape(next(nodes), shape=(self._size, *type.shape))
        columns = [reshape(next(nodes), shape=(self._size, 1)) for _ in range(number_of_elements(type))]
        return reshape(concatenate(*columns, axis=1), shape=(self._size, *type.shape))


def number_of_elements(type: Tensor) -> int:
    """The number of elements of a tensor; zero if a size is symbolic."""
    return prod(type.shape) if all(isinstance(size, int) for size in type.shape) else 0  # type: ignore[arg-type]


def _fits_vectors(type: Tensor) -> bool:
    """Whether a map takes and returns small tensors of this type as vectors: `split_complex` splits scalars only."""
    return type.element.kind != "complex"


def _flatten_result(value: Value, type: Type) -> list[Node]:
    if not isinstance(type, Tensor):
        if holds_tensors(type) or not isinstance(value, Node):
            raise NotReplaced
        return [value]
    nodes = list(flatten(value, type))
    if not nodes:
        raise NotReplaced
    if type.rank and _fits_vectors(type):
        return [make(*nodes, type=Vector(type.element, len(nodes)))]
    return nodes
